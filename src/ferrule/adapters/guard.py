"""What all guards share: whose session they open, and what they give to a framework.

An approval is answered by the agent's own approver, if it has one. Otherwise it is the framework's
to ask for (`framework_approvals`). What was asked and answered is in the journal, so the answer may
come to another process, which opens the same session.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from ferrule.engine.agent import Agent
from ferrule.engine.run_inputs import UNSET
from ferrule.engine.session import Session
from ferrule.permissions.approvals import DenyingApprover

from .guarded_session import GuardedSession

T = TypeVar("T")


class GuardOptions(TypedDict, total=False):
    """Whose session a guard opens.

    Attributes:
        session: The session's id: a known one is continued, another one is new. By default a new
            one with a random id.
        user: Whose session it is, by default the agent's user.
        tenant: By default the agent's tenant.
        deps: What the tools find as `Context.deps`.
    """

    session: str
    user: str
    tenant: str
    deps: Any


@dataclass(slots=True)
class GuardedTools(Generic[T]):
    """What `guard` gives: `tools` for the framework, and the session that they are called in."""

    session: Session[Any]
    tools: list[T]


@asynccontextmanager
async def open_guarded_session(
    agent: Agent[Any, Any], framework: str, **options: Unpack[GuardOptions]
) -> AsyncGenerator[GuardedSession]:
    """Open a session of an agent for a framework's calls, and close it at the end.

    The agent stays open for its owner.

    Raises:
        JournalError: The session is damaged, or another process is driving it.
        ConfigError: The dependencies are of another type than the agent's.
        TypeError: There is no such option.
    """
    unknown = sorted(options.keys() - GuardOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(GuardOptions.__annotations__)
        raise TypeError(f"guard: unexpected `{unknown[0]}`; there are: {known}")
    user = options.get("user", "")
    tenant = options.get("tenant", "")
    if user or tenant:
        agent = agent.copy_for_user(user or agent.user, tenant=tenant)
    session = agent.session(
        id=options.get("session", ""), resume=True, deps=options.get("deps", UNSET)
    )
    asks_nobody = isinstance(agent.approver, DenyingApprover)
    guarded = GuardedSession(session, framework, None if asks_nobody else agent.approver)
    if session.is_recorded:
        guarded.restore(agent.journal.records(session.id))
    try:
        yield guarded
    finally:
        await guarded.close()
