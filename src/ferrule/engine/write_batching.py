"""Sessions over one journal share their writes: one transaction for all that wait.

A session that wants its events in the journal before it goes on waits with the others; nobody waits
for a timer.

* A journal in a file is written by the event loop, in its next iteration: by then the events of all
  that wait are known. A run that is alone writes at once.
* A journal on a server (`RemoteJournal`) is written by a thread, one write at a time, and what
  comes while a write is under way waits for the next. So the more sessions there are, and the
  farther the server is, the more share a write; and nothing in the process waits for the network.

Only the cost is shared: if the common write fails, nothing of it is recorded, and each session
writes alone and gets its own error.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from ferrule.core.errors import FerruleError, JournalError
from ferrule.core.events import Event
from ferrule.core.identity import Identity
from ferrule.storage.journal.protocols import BatchJournal, Journal, RemoteJournal
from ferrule.tools.forking import make_lock, make_rlock

from .threads import Threads

MAX_SESSIONS = 64
"""Maximum number of sessions in one transaction: other processes that write the file wait for it.
"""
MAX_REMOTE_SESSIONS = 256
"""The same for a journal on a server, where sessions of other processes are not held up."""

_run_in_thread = Threads().run
"""Threads of their own: those for handlers may all be taken by handlers that wait for a write."""

_Taken = tuple["Writer", Identity, list[Event]]
_Outcome = tuple[dict["Writer", BaseException], BaseException | None]
"""The errors of sessions that could not be written, and that of a release."""


class Writer(Protocol):
    """A session's log, as far as writing it is concerned."""

    identity: Identity
    unwritten: list[Event]

    def mark_written(self, count: int) -> None:
        """Take note that the first events that were unwritten are in the journal now."""
        ...


class WriteBatch(threading.local):
    """The writes of the sessions over one journal; `WriteBatch.of` returns the one of a journal.

    Each thread, and so each running event loop, has its own; `lock` is the same in all of them.

    Attributes:
        lock: Held by whoever writes to a journal on a server, from looking at what is unwritten
            until that is marked as written.
        is_remote: Whether threads do the writing.
        active_runs: The logs of the runs and direct calls that are under way in this thread.
    """

    def __init__(
        self, journal: Journal, lock: AbstractContextManager[object] | None = None
    ) -> None:
        self.journal = journal
        self.lock = lock or make_rlock()
        self.is_remote = isinstance(journal, RemoteJournal)
        self.active_runs: list[Writer] = []
        self._shared: BatchJournal | None = journal if isinstance(journal, BatchJournal) else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Writer, None] = {}
        self._remote: _RemoteWrites | None = None

    @staticmethod
    def of(journal: Journal) -> WriteBatch:
        """Return what all sessions over this journal share."""
        with _LOCK:
            found = _BATCHES.get(id(journal))
            if found is None:
                found = _BATCHES[id(journal)] = WriteBatch(journal, make_rlock())
            return found

    async def write(self, log: Writer) -> None:
        """Have a log's events written with those of others.

        Where the journal is remote, it raises what writing them raised. Elsewhere the caller must
        `flush` whatever is still unwritten afterwards.
        """
        if self._shared is None:
            return
        loop = self._enter_loop()
        if self._remote is not None:
            await self._remote.write(log)
            return
        if not self._waiting:
            loop.call_soon(self._write, self._shared)
        self._waiting[log] = None
        await asyncio.sleep(0)

    async def release(self, session: str) -> None:
        """Let other processes write the session, in one write with the others that wait."""
        self._enter_loop()
        if self._remote is not None:
            await self._remote.release(session)
        else:
            self.journal.release(session)

    def _enter_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Nobody waits for the logs of a loop that has ended.
            self._loop = loop
            self._waiting = {}
            if isinstance(self.journal, RemoteJournal):
                self._remote = _RemoteWrites(self.journal, self.lock)
        return loop

    def _write(self, journal: BatchJournal) -> None:
        waiting = [log for log in self._waiting if log.unwritten]
        self._waiting = {}
        for at in range(0, len(waiting), MAX_SESSIONS):
            logs = waiting[at : at + MAX_SESSIONS]
            batches = [(log.identity, list(log.unwritten)) for log in logs]
            try:
                journal.append_batches(batches)
            except FerruleError:
                continue
            for log, (_, events) in zip(logs, batches, strict=True):
                log.mark_written(len(events))


_LOCK = make_lock()
_BATCHES: weakref.WeakValueDictionary[int, WriteBatch] = weakref.WeakValueDictionary()
"""By the identity of the journal, which lives as long as its batch does."""


class _RemoteWrites:
    """The writes of one event loop to a journal on a server."""

    def __init__(self, journal: RemoteJournal, lock: AbstractContextManager[object]) -> None:
        self._journal = journal
        self._lock = lock
        self._logs: dict[Writer, asyncio.Future[None]] = {}
        self._released: dict[str, asyncio.Future[None]] = {}
        self._is_writing = False

    async def write(self, log: Writer) -> None:
        written = self._logs.get(log)
        if written is None:
            written = self._logs[log] = asyncio.get_running_loop().create_future()
        await self._wait(written)

    async def release(self, session: str) -> None:
        released = self._released[session] = asyncio.get_running_loop().create_future()
        await self._wait(released)

    async def _wait(self, done: asyncio.Future[None]) -> None:
        """Wait for a write, also if cancelled meanwhile: it may be under way in its thread."""
        if not self._is_writing:
            self._is_writing = True
            asyncio.get_running_loop().call_soon(self._begin)
        cancelled = False
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            done.exception()
            raise asyncio.CancelledError
        done.result()

    def _begin(self) -> None:
        """Hand what waits to a thread."""
        logs = dict(list(self._logs.items())[:MAX_REMOTE_SESSIONS])
        for log in logs:
            del self._logs[log]
        released, self._released = self._released, {}
        work = _run_in_thread(partial(self._write, list(logs), list(released)))
        work.add_done_callback(partial(self._end, logs, released))

    def _end(
        self,
        logs: dict[Writer, asyncio.Future[None]],
        released: dict[str, asyncio.Future[None]],
        work: asyncio.Future[_Outcome],
    ) -> None:
        """Tell those that waited, and begin the next write if there is something to write."""
        self._is_writing = bool(self._logs or self._released)
        if self._is_writing:
            self._begin()
        failure = work.exception()
        errors, not_released = ({}, failure) if failure is not None else work.result()
        for log, done in logs.items():
            _settle(done, failure or errors.get(log))
        for done in released.values():
            _settle(done, not_released)

    def _write(self, logs: list[Writer], released: list[str]) -> _Outcome:
        """Write and release, in a thread. Return the errors."""
        with self._lock:
            taken = [(log, log.identity, list(log.unwritten)) for log in logs if log.unwritten]
            errors = self._write_batches(taken) if taken else {}
            try:
                if released:
                    self._journal.release_batch(released)
            except FerruleError as error:
                return errors, error
        return errors, None

    def _write_batches(self, taken: list[_Taken]) -> dict[Writer, BaseException]:
        try:
            self._journal.append_batches([one[1:] for one in taken])
        except FerruleError as error:
            return self._write_each(taken, error)
        for log, _, events in taken:
            log.mark_written(len(events))
        return {}

    def _write_each(self, taken: list[_Taken], error: FerruleError) -> dict[Writer, BaseException]:
        """Write each session alone: nothing was recorded, or each finds out what was.

        If the server cannot be reached, only the first waits for it.
        """
        errors: dict[Writer, BaseException] = {}
        unreachable: FerruleError | None = None
        for log, identity, events in taken:
            try:
                if unreachable is not None:
                    raise _not_tried_error(identity.session, unreachable, error)
                self._journal.append(identity.session, identity.run, events, identity=identity)
                log.mark_written(len(events))
            except FerruleError as refused:
                errors[log] = refused
                if refused.code in ("journal_unreachable", "journal_unsure"):
                    unreachable = unreachable or refused
        return errors


def _not_tried_error(session: str, unreachable: FerruleError, first: FerruleError) -> JournalError:
    """Return the error of a session that is not tried again, after `first` failed for all."""
    return JournalError(
        f"session `{session}` was not written, or it is not known: {unreachable.detail}",
        code="journal_unsure" if first.code == "journal_unsure" else unreachable.code,
        hint=unreachable.hint,
        retryable=True,
    )


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
