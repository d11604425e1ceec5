"""Statistics of a journal, kept up to date by reading what is new: for a view that is opened often.

    numbers = Following(journal, price_of=price_of)
    tools, reading = numbers.ask(lambda n: n.tools.tools(owner), seconds=1.0)

Limited are: the number of `sessions`, those used last; of these as many, newest first, as have
`events` events together; and the time that one question may read. What is left is read with the
next question, and `Reading` says how much that is. A session is read once, and after that only its
new events. Memory grows with tools, days and sessions, not with events (`statistics.tools`,
`statistics.spending`).

A session that is archived meanwhile stays in the sums. A damaged one is counted up to the damage,
and named.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ferrule.core.errors import JournalError, SessionNotFound
from ferrule.core.value_class import frozen
from ferrule.storage.journal.change_detection import create_change_detector
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.tools.forking import make_lock

from .activity import Activities
from .finished_calls import CallReader
from .spending import PriceOf, Spending
from .tools import ToolStatistics

T = TypeVar("T")
MAX_SESSIONS = 1_000
MAX_EVENTS = 250_000
_CLOCK_INTERVAL = 64
"""Events between two checks of the clock."""


@frozen
class ReadingProgress:
    """How far the numbers go.

    `read` events were read, `left` are for the next questions; `older` sessions are left out;
    `damaged` has a sentence for each session that could not be read.
    """

    read: int = 0
    left: int = 0
    older: int = 0
    damaged: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be read, and nothing was left out."""
        return not (self.left or self.older or self.damaged)


@dataclass(slots=True)
class _SessionProgress:
    """How far a session was read."""

    seq: int = 0
    calls: CallReader = field(default_factory=CallReader)
    damaged: str = ""
    seen: int = 0
    """Its events when it turned out to be damaged or gone: it is read again once it has more."""


class JournalStatistics:
    """Statistics of one journal. Safe to use from several threads: one reads, the others wait."""

    def __init__(
        self,
        journal: Journal,
        *,
        price_of: PriceOf | None = None,
        sessions: int = MAX_SESSIONS,
        events: int = MAX_EVENTS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tools = ToolStatistics()
        self.spending = Spending(price_of)
        self.activities = Activities()
        self._journal = journal
        self._changes = create_change_detector(journal)
        self._max_sessions = sessions
        self._max_events = events
        self._now = now
        self._lock = make_lock()
        self._progress: dict[str, _SessionProgress] = {}
        self._admitted_events = 0
        self._read = 0
        self._reading = ReadingProgress()
        self._has_sessions = False

    def query(
        self, query: Callable[[JournalStatistics], T], *, seconds: float = 1.0
    ) -> tuple[T, ReadingProgress]:
        """Read what is new, for at most `seconds`, and apply `query` to the statistics.

        Blocks. Raises JournalError.
        """
        # Taken before the lock: simultaneous questions wait for one reading, not for one each.
        deadline = self._now() + seconds
        with self._lock:
            # A journal without sessions may not even be a file.
            self._has_sessions = self._has_sessions or bool(self._journal.sessions(limit=1))
            if self._has_sessions and (self._changes.has_changed() or self._reading.left):
                self._reading = self._catch_up(deadline)
            return query(self), self._reading

    def close(self) -> None:
        """Release what is open."""
        self._changes.close()

    def _catch_up(self, deadline: float) -> ReadingProgress:
        # One more than are read, to know whether there are older ones.
        infos = self._journal.sessions(limit=self._max_sessions + 1)
        older = max(0, len(infos) - self._max_sessions)
        left = 0
        for info in infos[: self._max_sessions]:
            if not self._admit(info):
                older += 1
                continue
            progress = self._progress[info.session]
            if (
                progress.seq < info.events
                and progress.seen < info.events
                and self._now() < deadline
            ):
                self._read_new_events(info, progress, deadline)
            if progress.seen < info.events:
                left += max(0, info.events - progress.seq)
        damaged = tuple(
            progress.damaged for progress in self._progress.values() if progress.damaged
        )
        return ReadingProgress(self._read, left, older, damaged)

    def _admit(self, info: SessionInfo) -> bool:
        if info.session in self._progress:
            return True
        if self._admitted_events >= self._max_events:
            return False
        self._admitted_events += info.events
        self._progress[info.session] = _SessionProgress()
        return True

    def _read_new_events(
        self, info: SessionInfo, progress: _SessionProgress, deadline: float
    ) -> None:
        progress.damaged = ""
        try:
            for record in self._journal.records(info.session, after=progress.seq):
                progress.seq = record.seq
                self._read += 1
                ended = progress.calls.feed(record)
                self.spending.feed(record)
                for call in () if self.spending.is_copy(record) else ended:
                    self.tools.add(call)
                self.activities.feed(record, ended)
                if record.seq % _CLOCK_INTERVAL == 0 and self._now() > deadline:
                    return
        except JournalError as error:
            # One bad session must not hide the numbers of all others.
            progress.damaged = error.detail
            progress.seen = info.events
        except SessionNotFound:
            # Archived between the list and this.
            progress.seen = info.events
