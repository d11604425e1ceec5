"""Calls of many sessions, for checking what other permission rules would have decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ferrule.core.calls import read_arguments
from ferrule.core.value_class import frozen
from ferrule.storage.journal.protocols import Journal

from .audit import AuditedCall, audit_calls


@frozen
class PastCall:
    """A call and what was decided about it.

    `arguments` are those as they would run, unchecked: as the last hook left them, else as
    they arrived; None if they were not a JSON object. `verdict` is the gate's (`allow`, `ask`,
    `refuse`; "" if it was never asked), `choice` what a person answered, or "". `audit` contains
    all that is known of the call.
    """

    tool: str
    arguments: dict[str, Any] | None
    verdict: str
    choice: str
    audit: AuditedCall


def read_past_calls(
    journal: Journal,
    *,
    sessions: Sequence[str] | None = None,
    tenant: str | None = None,
    user: str | None = None,
    since: int = 0,
    tools: frozenset[str] | None = None,
) -> Iterator[PastCall]:
    """Yield the calls of these sessions, in each in the order in which they were settled.

    Holds one session's history in memory at a time.

    Args:
        journal: The journal.
        sessions: Ids or beginnings of ids; by default all sessions, the one used last first.
        tenant: Only sessions of this tenant.
        user: Only sessions of this user.
        since: Only calls requested at this time (ms since 1970) or later.
        tools: Only calls of these tools.

    Raises:
        SessionNotFound, JournalError: A session cannot be found or read.
    """
    if sessions is None:
        found = journal.sessions(tenant=tenant, user=user)
        sessions = [info.session for info in found if info.last >= since]
    else:
        sessions = [journal.find(name, tenant=tenant, user=user).session for name in sessions]
    for session in sessions:
        for call in audit_calls(journal.records(session)):
            if call.requested >= since and (tools is None or call.tool in tools):
                yield _to_past_call(call)


def _to_past_call(call: AuditedCall) -> PastCall:
    arguments = call.arguments
    for hook in call.hooks:
        if hook.verdict == "change" and hook.arguments:
            arguments = hook.arguments
    choice = ""
    for answer in call.answers:
        if not answer.question:
            choice = answer.scope
    return PastCall(call.tool, read_arguments(arguments), call.verdict, choice, call)
