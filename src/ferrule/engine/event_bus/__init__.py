"""The event bus: what happens in sessions, for anyone who may watch it, while it happens.

Modules: `bus`, `feed` (a session's publisher), `subscription`, `event_selection` (who sees what),
`events`, `attachment` (connects a session) (recent events), `journal_events` and `past_events`
(read from journals), `live_redaction`, `argument_redaction`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .bus import Bus
    from .events import BusEvent

__all__ = ["Bus", "BusEvent"]

__getattr__, __dir__ = lazy_names(__name__, {".bus": ("Bus",), ".events": ("BusEvent",)})
