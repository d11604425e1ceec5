"""Runs that go on at once share their writes: one transaction for what many sessions have to say in
one turn of the event loop.

A session that wants its events in the journal before it goes on waits for the next turn; by then
the events of all that wait are written together. Nobody waits for a clock, and a run that is alone
writes at once. What is shared is only the cost: if the common write fails, nothing of it is
recorded, and each session writes alone and hears of its own error.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol

from ferrule.core.errors import FerruleError
from ferrule.core.events import Event
from ferrule.core.identity import Identity
from ferrule.storage.journal.protocols import Journal, Sharing

AT_ONCE = 64
"""Sessions in one transaction at the most: other processes that write the same file wait for its
end.
"""


class Writer(Protocol):
    """A session's log, as far as its writes go: whose it is, what is unwritten, and whether the
    journal has the session.
    """

    identity: Identity
    unwritten: list[Event]
    begun: bool


class Together(threading.local):
    """The writes of an agent's sessions. Each thread, and so each running event loop, has its
    own.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._shared: Sharing | None = journal if isinstance(journal, Sharing) else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Writer, None] = {}
        self.running = 0
        """Runs under way in this thread."""

    async def write(self, log: Writer) -> None:
        """Have a log's events written with those of others. What is unwritten after that, its
        `flush` must write.
        """
        if self._shared is None:
            return
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # What waits in a loop that has ended, nobody waits for.
            self._loop, self._waiting = loop, {}
        if not self._waiting:
            loop.call_soon(self._write, self._shared)
        self._waiting[log] = None
        await asyncio.sleep(0)

    def _write(self, journal: Sharing) -> None:
        waiting, self._waiting = [log for log in self._waiting if log.unwritten], {}
        for at in range(0, len(waiting), AT_ONCE):
            logs = waiting[at : at + AT_ONCE]
            try:
                journal.append_all([(log.identity, log.unwritten) for log in logs])
            except FerruleError:
                continue
            for log in logs:
                log.unwritten, log.begun = [], True
