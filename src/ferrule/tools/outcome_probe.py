"""A probe: how a tool finds out whether a call of it happened, when the process died while it ran.

    async def sent(values, context):
        found = await outbox.find(reference=f"{context.identity.session}-{context.call_id}")
        return happened({"id": found.id}) if found else NOT_HAPPENED

    @tool(side_effect="external", probe=sent)
    async def send(to: str, text: str, context: Context) -> dict[str, str]: ...

A probe only looks. It gets the checked arguments of the call and a context with the same session
and `call_id` that the handler had, which is why a handler does well to leave both with what it
does: ids of calls differ within a session, and not between sessions. A probe that raises, or takes
too long, knows nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ferrule.core.frozen import frozen

from .context import Context

SECONDS = 30.0
"""For a probe."""


@frozen
class Probed:
    """`happened` is True (then `value` is what the handler would have returned), False (it may be
    done now), or None: unknown.
    """

    happened: bool | None
    value: Any = None


NOT_HAPPENED = Probed(False)
"""Nothing was done: the call runs again."""
UNKNOWN = Probed(None)
"""The model is told that the outcome is unknown."""

Probe = Callable[[Mapping[str, Any], Context], Awaitable[Probed]]


def happened(value: Any = None) -> Probed:
    """It was done, and this is its result."""
    return Probed(True, value)
