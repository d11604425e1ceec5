"""Calls that were made, over many sessions: for whoever asks what other rules would have said of
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

from ferrule.core.frozen import frozen
from ferrule.storage.audit.audit import AuditedCall, calls

from .sqlite import Journal


@frozen
class PastCall:
    """A call and what was decided. `values` are the arguments as they would run, unchecked: as the
    last hook left them, else as they arrived; None if they were no JSON object. `verdict` is the
    gate's (`allow`, `ask`, `refuse`; "" if it was never asked), `choice` what a person answered, or
    "".

    `audit` holds all that is known of it.
    """

    tool: str
    values: dict[str, Any] | None
    verdict: str
    choice: str
    audit: AuditedCall


def past_calls(
    journal: Journal,
    *,
    sessions: Sequence[str] | None = None,
    tenant: str | None = None,
    user: str | None = None,
    since: int = 0,
    tools: frozenset[str] | None = None,
) -> Iterator[PastCall]:
    """The calls of these sessions (of all, the one used last first), in each in the order in which
    they were settled.

    Only those asked for at `since` or later (ms since 1970), and of these `tools` where they are
    named. Holds one session's history at a time. Raises SessionNotFound, JournalError.
    """
    if sessions is None:
        found = journal.sessions(tenant=tenant, user=user)
        sessions = [info.session for info in found if info.last >= since]
    else:
        sessions = [journal.find(name, tenant=tenant, user=user).session for name in sessions]
    for session in sessions:
        for call in calls(journal.records(session)):
            if call.requested >= since and (tools is None or call.tool in tools):
                yield _past(call)


def _past(call: AuditedCall) -> PastCall:
    changed = [word.arguments for word in call.hooks if word.verdict == "change" and word.arguments]
    spoken = [answer.scope for answer in call.answers if not answer.question]
    values = _values(changed[-1] if changed else call.arguments)
    return PastCall(call.tool, values, call.verdict, spoken[-1] if spoken else "", call)


def _values(text: str) -> dict[str, Any] | None:
    """As the dispatcher reads them: nothing is no arguments, and an object may have been encoded as
    text.
    """
    if not text.strip():
        return {}
    try:
        value: Any = json.loads(text)
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
