"""Find out whether a call happened if the process died while it ran.

    async def find_mail(values, context):
        found = await outbox.find(reference=f"{context.identity.session}-{context.call_id}")
        return report_effect({"id": found.id}) if found else NOT_HAPPENED

    @tool(side_effect="external", probe=find_mail)
    async def send(to: str, text: str, context: Context) -> dict[str, str]: ...

A probe only looks. It gets the checked arguments of the call and a context with the same session
and `call_id` that the handler had. A handler should therefore store both with its effect: call ids
are unique within a session, not between sessions. If a probe raises or takes too long, the outcome
is unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ferrule.core.value_class import frozen

from .context import Context

PROBE_SECONDS = 30.0
"""Time limit of a probe."""


@frozen
class ProbeResult:
    """What a probe found.

    Attributes:
        happened: True if the call took effect, False if it did not and may run now, None if that is
            unknown.
        value: What the handler would have returned, if the call happened.
    """

    happened: bool | None
    value: Any = None


NOT_HAPPENED = ProbeResult(False)
"""Nothing was done; the call runs again."""
UNKNOWN = ProbeResult(None)
"""The model is told that the outcome is unknown."""

Probe = Callable[[Mapping[str, Any], Context], Awaitable[ProbeResult]]


def report_effect(value: Any = None) -> ProbeResult:
    """Report that the call took effect, with its result."""
    return ProbeResult(True, value)
