"""Events: what a session's journal holds, and who may read them on the bus as they happen.

`session.events()` and `Journal.records` give `JournalRecord`s; the event of each is one of the
classes here. An event that a newer version wrote is `Unknown`.
"""

from __future__ import annotations

from .core.events import (
    CallEvaluated,
    CallHooked,
    CallProbed,
    CallStarted,
    Cancelled,
    ContextAdded,
    ContextCompacted,
    ContextRestored,
    DelegationFinished,
    DelegationStarted,
    DirectCall,
    Event,
    HistoryGiven,
    JournalRecord,
    LimitHit,
    ModelAnswered,
    ModelFailed,
    Noticed,
    NoticeGiven,
    PersonAnswered,
    Recovered,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
    Unknown,
    Usage,
)
from .engine.event_bus.event_selection import Operator, OwnSession, OwnSessions
from .engine.event_bus.events import CursorError
from .engine.event_bus.subscription import Subscription

__all__ = [
    "CallEvaluated",
    "CallHooked",
    "CallProbed",
    "CallStarted",
    "Cancelled",
    "ContextAdded",
    "ContextCompacted",
    "ContextRestored",
    "CursorError",
    "DelegationFinished",
    "DelegationStarted",
    "DirectCall",
    "Event",
    "HistoryGiven",
    "JournalRecord",
    "LimitHit",
    "ModelAnswered",
    "ModelFailed",
    "NoticeGiven",
    "Noticed",
    "Operator",
    "OwnSession",
    "OwnSessions",
    "PersonAnswered",
    "Recovered",
    "RunFinished",
    "RunStarted",
    "SessionOpened",
    "Subscription",
    "ToolAnswered",
    "Unknown",
    "Usage",
]
