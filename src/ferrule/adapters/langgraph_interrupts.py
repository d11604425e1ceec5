"""An approval as LangGraph's interrupt, and its answer.

The value of the interrupt has the form that LangChain's own middleware gives (`action_requests`,
`review_configs`), and the `PendingApproval` as `approval`. An answer is

    {"decisions": [{"type": "approve"}]}      `reject` and `edit` as well, or plain `True`, `False`

Answers of a task come back by their place in it alone. Where several calls of one task wait for an
approval (a `ToolNode` that runs all calls of a message), an answer must therefore name the one that
it is for, with `"digest": ...`; any other is not taken, and the question comes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.extras import name_missing_extra
from ferrule.core.value_class import frozen

from .framework_approvals import PendingApproval
from .guarded_session import GuardedSession

with name_missing_extra():
    from langgraph.config import get_config
    from langgraph.errors import GraphInterrupt
    from langgraph.types import interrupt


@frozen
class Decision:
    """What a graph's person said: yes or no, and other arguments if there are any."""

    approved: bool
    arguments: Mapping[str, Any] | None = None


def find_task() -> str:
    """Return what names the current task of a graph, the same when it runs again; "" outside."""
    try:
        config: Mapping[str, Any] = get_config()
    except RuntimeError:
        return ""
    return str(config.get("configurable", {}).get("checkpoint_ns", ""))


def ask_person(guarded: GuardedSession, pending: PendingApproval, task: str) -> Decision:
    """Interrupt the graph, or return the answer of its person. Raises GraphInterrupt."""
    action = {
        "name": pending.tool,
        "args": dict(pending.arguments),
        "description": pending.describe(),
    }
    review = {"action_name": pending.tool, "allowed_decisions": ["approve", "edit", "reject"]}
    asked = {
        "action_requests": [action],
        "review_configs": [review],
        "approval": pending.to_json(),
    }
    while True:
        try:
            answer: Any = interrupt(asked)
        except GraphInterrupt:
            guarded.remember_asked(pending, task)
            raise
        if _is_for(answer, pending, alone=len(guarded.asked_in(task)) < 2):
            return _read_answer(answer)


def _is_for(answer: Any, pending: PendingApproval, *, alone: bool) -> bool:
    if isinstance(answer, Mapping) and "digest" in answer:
        return cast("Mapping[str, Any]", answer)["digest"] == pending.digest
    return alone


def _read_answer(answer: Any) -> Decision:
    """Return what an answer says. What cannot be read is a no."""
    if not isinstance(answer, Mapping):
        return Decision(answer is True)
    given = cast("Mapping[str, Any]", answer)
    decisions: list[Any] = given.get("decisions") or [given]
    decision: Mapping[str, Any] = decisions[0]
    if decision.get("type") == "edit":
        return Decision(True, dict(decision["edited_action"]["args"]))
    return Decision(decision.get("type") == "approve")
