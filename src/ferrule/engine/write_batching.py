"""Concurrent runs share their writes: one transaction for many sessions per loop iteration.

A session that wants its events in the journal before it goes on waits for the next iteration of the
event loop; by then the events of all that wait are written together. Nobody waits for a timer, and
a run that is alone writes at once. Only the cost is shared: if the common write fails, nothing of
it is recorded, and each session writes alone and gets its own error.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol

from ferrule.core.errors import FerruleError
from ferrule.core.events import Event
from ferrule.core.identity import Identity
from ferrule.storage.journal.protocols import BatchJournal, Journal

MAX_SESSIONS = 64
"""Maximum number of sessions in one transaction: other processes that write the file wait for it.
"""


class Writer(Protocol):
    """A session's log, as far as writing it is concerned."""

    identity: Identity
    unwritten: list[Event]
    is_recorded: bool


class WriteBatch(threading.local):
    """The writes of an agent's sessions.

    Each thread, and so each running event loop, has its own.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._shared: BatchJournal | None = journal if isinstance(journal, BatchJournal) else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Writer, None] = {}
        self.active_runs = 0
        """Number of runs under way in this thread."""

    async def write(self, log: Writer) -> None:
        """Have a log's events written with those of others.

        The caller must `flush` whatever is still unwritten afterwards.
        """
        if self._shared is None:
            return
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Nobody waits for the logs of a loop that has ended.
            self._loop = loop
            self._waiting = {}
        if not self._waiting:
            loop.call_soon(self._write, self._shared)
        self._waiting[log] = None
        await asyncio.sleep(0)

    def _write(self, journal: BatchJournal) -> None:
        waiting = [log for log in self._waiting if log.unwritten]
        self._waiting = {}
        for at in range(0, len(waiting), MAX_SESSIONS):
            logs = waiting[at : at + MAX_SESSIONS]
            try:
                journal.append_batches([(log.identity, log.unwritten) for log in logs])
            except FerruleError:
                continue
            for log in logs:
                log.unwritten = []
                log.is_recorded = True
