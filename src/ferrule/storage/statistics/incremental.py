"""Numbers of a journal, kept up to date by reading what is new: for a view that is opened again and
again.

    numbers = Following(journal, price_of=price_of)
    tools, reading = numbers.ask(lambda n: n.tools.tools(owner), seconds=1.0)

What is bounded: the `sessions` used last, and of these as many, newest first, as come to `events`
events; the time that one question may read (what is left is read with the next one, and `Reading`
says how much that is). A session is read once, and after that only its new events. Memory grows
with tools, days and sessions, not with events (`statistics.tools`, `statistics.spending`).

A session that is archived while this lives stays in the sums. A damaged one is counted up to its
damage, and named.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ferrule.core.errors import JournalError, SessionNotFound
from ferrule.core.frozen import frozen
from ferrule.storage.journal.change_detection import changes_of
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.journal.sqlite import Journal

from .finished_calls import CallReader
from .spending import PriceOf, Spending
from .tools import ToolStatistics

T = TypeVar("T")
SESSIONS = 1_000
EVENTS = 250_000
_OFTEN = 64
"""Events between two looks at the clock."""


@frozen
class Reading:
    """How far the numbers go: events `read` so far, those `left` to be read by the next questions,
    `older` sessions that are not looked at, and what could not be read, a sentence each.
    """

    read: int = 0
    left: int = 0
    older: int = 0
    damaged: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Nothing is left to be read, and nothing left out."""
        return not (self.left or self.older or self.damaged)


@dataclass(slots=True)
class _At:
    """How far a session was read."""

    seq: int = 0
    calls: CallReader = field(default_factory=CallReader)
    damaged: str = ""
    seen: int = 0
    """Events it had when it turned out to be damaged or gone: it is looked at again once it has
    more.
    """


class Following:
    """Safe to use from several threads: one reads at a time, the others wait for it."""

    def __init__(
        self,
        journal: Journal,
        *,
        price_of: PriceOf | None = None,
        sessions: int = SESSIONS,
        events: int = EVENTS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tools = ToolStatistics()
        self.spending = Spending(price_of)
        self._journal = journal
        self._changes = changes_of(journal)
        self._most_sessions, self._most_events = sessions, events
        self._now = now
        self._lock = threading.Lock()
        self._at: dict[str, _At] = {}
        self._admitted = 0
        self._read = 0
        self._reading = Reading()
        self._begun = False

    def ask(self, query: Callable[[Following], T], *, seconds: float = 1.0) -> tuple[T, Reading]:
        """Read what is new, for at most so long, and put a question to the numbers. Blocks. Raises
        JournalError.
        """
        # From before the lock on: several who ask at once wait for one reading, not for one each.
        until = self._now() + seconds
        with self._lock:
            # A journal that nobody has written to yet may not even be a file.
            self._begun = self._begun or bool(self._journal.sessions(limit=1))
            if self._begun and (self._changes.changed() or self._reading.left):
                self._reading = self._catch_up(until)
            return query(self), self._reading

    def close(self) -> None:
        """Give back what is open."""
        self._changes.close()

    def _catch_up(self, until: float) -> Reading:
        # One more than are read: then there are older ones.
        infos = self._journal.sessions(limit=self._most_sessions + 1)
        older = max(0, len(infos) - self._most_sessions)
        left = 0
        for info in infos[: self._most_sessions]:
            if not self._admit(info):
                older += 1
                continue
            at = self._at[info.session]
            if at.seq < info.events and at.seen < info.events and self._now() < until:
                self._read_on(info, at, until)
            if at.seen < info.events:
                left += max(0, info.events - at.seq)
        damaged = tuple(at.damaged for at in self._at.values() if at.damaged)
        return Reading(self._read, left, older, damaged)

    def _admit(self, info: SessionInfo) -> bool:
        if info.session in self._at:
            return True
        if self._admitted >= self._most_events:
            return False
        self._admitted += info.events
        self._at[info.session] = _At()
        return True

    def _read_on(self, info: SessionInfo, at: _At, until: float) -> None:
        at.damaged = ""
        try:
            for record in self._journal.records(info.session, after=at.seq):
                at.seq = record.seq
                self._read += 1
                for call in at.calls.feed(record):
                    self.tools.add(call)
                self.spending.feed(record)
                if record.seq % _OFTEN == 0 and self._now() > until:
                    return
        except JournalError as error:
            # One bad session must not hide the numbers of all others.
            at.damaged, at.seen = error.detail, info.events
        except SessionNotFound:
            # Archived between the list and this.
            at.seen = info.events
