"""How long the runs of each session took, and how many calls they made.

A projection of the journal, fed with its records and the calls that they end
(`finished_calls.CallReader`). Runs of sub-agents count in their own sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ferrule.core.events import JournalRecord, RunFinished, RunStarted

from .finished_calls import FinishedCall


@dataclass(slots=True)
class SessionActivity:
    """What happened in a session.

    Attributes:
        milliseconds: How long its finished runs took.
        calls: Calls that ended.
        refused: Calls among them that something or somebody refused.
        began: When the run began that has not ended, in ms since 1970; 0 without one.
    """

    milliseconds: int = 0
    calls: int = 0
    refused: int = 0
    began: int = 0


class Activities:
    """Adds up sessions. Feed it the records of each session in order; sessions may alternate."""

    def __init__(self) -> None:
        self._sessions: dict[str, SessionActivity] = {}

    def feed(self, record: JournalRecord, ended: Sequence[FinishedCall]) -> None:
        """Add a record and the calls that it ended."""
        activity = self._sessions.setdefault(record.session, SessionActivity())
        activity.calls += len(ended)
        activity.refused += sum(bool(call.stopped_by) for call in ended)
        if isinstance(record.event, RunStarted):
            activity.began = record.time
        elif isinstance(record.event, RunFinished):
            activity.milliseconds += record.time - activity.began if activity.began else 0
            activity.began = 0

    def find(self, session: str) -> SessionActivity | None:
        """Return what happened in a session, as far as it was read; None if it was not."""
        return self._sessions.get(session)
