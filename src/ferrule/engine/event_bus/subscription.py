"""One subscriber's side of the bus: a bounded buffer that drops the oldest events and reports them.

A publisher only appends to the buffer, and wakes a reader that waits. What no longer fits is
dropped from the front; the next thing that is read is one notice (`bus.dropped`) that names, for
each session, the first and the last lost event and how many they are. Of the events subscribed to,
everything between the two was lost and nothing else: what is read and what notices name is exactly
what was published.

A subscription belongs to one reader. It is read in an event loop, which need not be that of the
run, or with `take_nowait`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ferrule.core.calls import encode_json
from ferrule.core.errors import FerruleError
from ferrule.engine.threads import run_blocking
from ferrule.tools.forking import make_lock

from .event_selection import Kinds, Scope
from .events import CLOSED, BusEvent, LostEvents, Place, SessionKey, count_lost, seal

YIELD_AFTER = 64
"""Events after which a reader that never has to wait lets others of its loop work."""
MAX_SESSIONS = 4096
"""Maximum number of sessions whose position a subscription remembers."""


class PastEvents(Protocol):
    """Events of one session that are no longer in memory.

    `page` blocks; [] is the end. Raises CursorError, JournalError.
    """

    def page(self) -> list[BusEvent]: ...


class Subscription:
    """A subscription, made by `Bus.subscribe`; an asynchronous iterator.

    Close it, or drop the last reference, when it is no longer read.
    """

    def __init__(
        self,
        scope: Scope,
        kinds: Kinds,
        *,
        buffer: int,
        patience: int,
        now: Callable[[], float],
        closed: Callable[[Subscription], None],
    ) -> None:
        self.scope = scope
        self.kinds = kinds
        self._most = buffer
        self._patience = patience
        self._now = now
        self._on_close = closed
        self._lock = make_lock()
        self._all = kinds.all
        self._buffer: deque[tuple[SessionKey, BusEvent]] = deque()
        self._lost: dict[SessionKey, list[Any]] = {}
        self._unread = 0
        self._ended = ""
        self._over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._past: deque[PastEvents] = deque()
        self._replay: deque[BusEvent] = deque()
        self._kept: list[BusEvent] = []
        self._seen: dict[SessionKey, tuple[Place, str]] = {}
        self._paging: asyncio.Future[list[BusEvent]] | None = None
        self._read = 0

    # ---- for the bus, which calls these with events in their order

    def begin(
        self,
        seen: dict[SessionKey, tuple[Place, str]],
        past: list[PastEvents],
        replay: list[BusEvent],
    ) -> None:
        """Set where the subscription starts.

        First come the events read from a journal (`past`), then those still in memory (`replay`).
        """
        self._seen, self._past, self._kept = seen, deque(past), replay
        self._read_past()

    def offer(self, entry: tuple[SessionKey, BusEvent]) -> asyncio.AbstractEventLoop | None:
        """Take an event of a session.

        Returns the event loop of a reader that waits, in which somebody must call `wake`.
        """
        # This runs for each reader of each event, so it must be cheap.
        if not self._all and entry[1].kind not in self.kinds:
            return None
        with self._lock:
            if self._ended:
                return None
            buffer = self._buffer
            buffer.append(entry)
            if len(buffer) > self._most:
                self._lose(buffer.popleft())
            loop = self._loop
            if loop is not None:
                # Once for each time that the reader waits: it needs no second wake-up.
                self._loop = None
            return loop

    def end(self, reason: str) -> asyncio.AbstractEventLoop | None:
        """End the subscription: what is buffered can still be read, then an event with the reason.

        Returns as `offer`.
        """
        with self._lock:
            if not self._ended:
                self._end(reason)
            return self._loop_to_wake()

    def wake(self) -> None:
        """Wake the reader; to be called in its loop."""
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    @property
    def has_ended(self) -> bool:
        """Whether the subscription takes no more events."""
        return bool(self._ended)

    def _lose(self, entry: tuple[SessionKey, BusEvent]) -> None:
        session, event = entry
        lost = self._lost.get(session)
        if lost is None:
            self._lost[session] = [event.sequence, event.sequence, 1]
        else:
            lost[1] = event.sequence
            lost[2] += 1
        self._unread += 1
        if self._unread > self._patience and not self._ended:
            self._end("stale")

    def _end(self, reason: str) -> None:
        self._ended = reason
        if reason == "stale":
            # Nobody has read for a long time: free its memory now.
            while self._buffer:
                self._lose(self._buffer.popleft())

    def _loop_to_wake(self) -> asyncio.AbstractEventLoop | None:
        # Once for each time that it waits: it needs no second wake-up.
        loop, self._loop = self._loop, None
        return loop

    # ---- for the reader

    @property
    def cursor(self) -> dict[str, str]:
        """The reader's position in each session, for subscribing again behind it.

        What was read last, or where the subscription started.
        """
        return {key[2]: text for key, (_, text) in self._seen.items()}

    def take_nowait(self) -> list[BusEvent]:
        """Return everything that can be read now, maybe nothing.

        Never waits, but reads the journal if the cursor asked for older events.
        """
        taken: list[BusEvent] = []
        while self._past:
            self._add_page(self._past[0].page())
        while True:
            event = self._next()
            if event is None:
                return taken
            taken.append(event)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> BusEvent:
        """Return the next event.

        Raises CursorError, JournalError if older ones cannot be read; the subscription is closed
        then.
        """
        self._read += 1
        if self._read % YIELD_AFTER == 0:
            await asyncio.sleep(0)
        while not self._over:
            while self._past and not self._replay:
                await self._page()
            event = self._next()
            if event is not None:
                return event
            if not self._over:
                await self._wait()
        raise StopAsyncIteration

    async def batch(self, most: int = YIELD_AFTER, most_bytes: int = 65536) -> list[BusEvent]:
        """Return the next event and what else can be read without waiting, within these limits.

        [] is the end. Raises as `__anext__`.
        """
        try:
            taken = [await anext(self)]
        except StopAsyncIteration:
            return []
        size = len(taken[0].data)
        while len(taken) < most and size < most_bytes and (self._replay or not self._past):
            event = self._next()
            if event is None:
                break
            taken.append(event)
            size += len(event.data)
        return taken

    async def _page(self) -> None:
        # A reader that is cancelled meanwhile finds the page when it comes back: it is read from
        # the journal only once.
        self._paging = self._paging or run_blocking(self._past[0].page)
        try:
            page = await asyncio.shield(self._paging)
        except FerruleError:
            self.close()
            raise
        self._paging = None
        self._add_page(page)

    def _add_page(self, page: list[BusEvent]) -> None:
        if page:
            self._replay.extend(page)
        elif self._past:
            self._past.popleft()
            self._read_past()

    def _read_past(self) -> None:
        """Continue with what is still in memory, once the journals are read."""
        if not self._past:
            self._replay.extend(self._kept)
            self._kept = []

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._buffer or self._lost or self._ended:
                return
            self._loop, self._waiting = loop, loop.create_future()
        try:
            await self._waiting
        finally:
            with self._lock:
                self._loop = self._waiting = None

    def _next(self) -> BusEvent | None:
        while self._replay:
            event = self._replay.popleft()
            if event.identity is None or (event.kind in self.kinds and self._is_new(event)):
                return event
        while True:
            with self._lock:
                self._unread = 0
                if self._lost:
                    return self._take_lost()
                if not self._buffer:
                    return self._take_last()
                _, event = self._buffer.popleft()
            if self._is_new(event):
                return event

    def _is_new(self, event: BusEvent) -> bool:
        """Whether an event is new: the journal is still being written while it is read."""
        who, place = event.identity, event.sequence
        assert who is not None and place is not None
        key = (who.tenant, who.user, who.session)
        before = self._seen.get(key)
        if (
            before is not None
            and place <= before[0]
            and not _has_new_owner(before[1], event.cursor)
        ):
            return False
        if before is None and len(self._seen) >= MAX_SESSIONS:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = (place, event.cursor)
        return True

    def _take_lost(self) -> BusEvent:
        lost = self._lost
        self._lost = {}
        return count_lost(
            [LostEvents(session, *about) for session, about in lost.items()], self._now()
        )

    def _take_last(self) -> BusEvent | None:
        if not self._ended or self._over:
            return None
        self._over = True
        body = encode_json({"reason": self._ended})
        return seal(CLOSED, body, identity=None, time=self._now(), place=None)

    def close(self) -> None:
        """End the subscription; a waiting reader gets no event.

        May be called from any thread, any number of times.
        """
        with self._lock:
            self._ended = self._ended or "closed"
            self._over = True
            self._buffer.clear()
            self._lost.clear()
            self._past.clear()
            self._replay.clear()
            self._kept = []
            loop = self._loop_to_wake()
        self._on_close(self)
        wake_all([(loop, self)] if loop is not None else [])

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _has_new_owner(before: str, cursor: str) -> bool:
    """Whether another process or bus took over the session.

    Its numbers may then start again behind what was written.
    """
    epochs = [text.rpartition("~")[2] for text in (before, cursor) if "~" in text]
    return len(epochs) == 2 and epochs[0] != epochs[1]


def wake_all(readers: list[tuple[asyncio.AbstractEventLoop, Subscription]]) -> None:
    """Wake readers: those of this loop directly, those of another one all at once.

    One whose loop is closed will never read again.
    """
    if not readers:
        return
    here: asyncio.AbstractEventLoop | None
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    by_loop: dict[asyncio.AbstractEventLoop, list[Subscription]] = {}
    for loop, reader in readers:
        if loop is here:
            reader.wake()
        else:
            by_loop.setdefault(loop, []).append(reader)
    for loop, waiting in by_loop.items():
        try:
            loop.call_soon_threadsafe(_wake, waiting)
        except RuntimeError:
            for reader in waiting:
                reader.end("its event loop is closed")


def _wake(waiting: list[Subscription]) -> None:
    for reader in waiting:
        reader.wake()
