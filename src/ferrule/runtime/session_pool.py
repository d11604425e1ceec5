"""A pool of open sessions, with a size limit, eviction and closing of idle ones.

The console and the MCP, ACP, OpenAI and A2A servers each keep sessions open between requests, so
that background tasks of their tools go on. They differ in the key of a session and in what they
keep with it; the limit, eviction, closing of idle sessions and waiting for one that is being closed
are the same for all.

Everything happens in one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from ferrule.core.errors import FerruleError


class PooledSession(Protocol):
    """What the pool needs of a session. It owns the session until `remove` or `close`."""

    @property
    def is_busy(self) -> bool:
        """Whether a run is in progress; a busy session is never evicted."""
        ...

    async def cancel(self) -> None:
        """Cancel the run in progress; its calls are settled and journaled."""
        ...

    async def close(self) -> None:
        """Close the session; the journal keeps everything. Called once, when it is not busy."""
        ...


class PoolFull(FerruleError):
    """No further session can be opened: the pool is full, and none can be evicted."""

    code = "sessions_full"


K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=PooledSession)


class SessionPool(Generic[K, S]):
    """Open sessions by key, the least recently used first.

    Args:
        max_open: How many may be open. A new one evicts the least recently used that is not busy.
        idle_seconds: How long an unused session stays open; None for as long as there is room.
        evicts: Whether a new session may evict another one; otherwise it is refused.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        max_open: int,
        idle_seconds: float | None = None,
        *,
        evicts: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_open = max_open
        self.idle_seconds = idle_seconds
        self._evicts = evicts
        self._clock = clock
        self._sessions: dict[K, S] = {}
        self._used: dict[K, float] = {}
        self._closing: dict[K, asyncio.Task[None]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[S]:
        return iter([*self._sessions.values()])

    def open_keys(self) -> list[K]:
        """Return the keys of all open sessions, the least recently used first."""
        return [*self._sessions]

    def count_busy(self) -> int:
        """Return how many sessions are busy."""
        return sum(session.is_busy for session in self._sessions.values())

    def find(self, key: K) -> S | None:
        """Return an open session without marking it as used; None if there is none."""
        return self._sessions.get(key)

    def use(self, key: K) -> S | None:
        """Return an open session and mark it as used now; None if there is none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._sessions[key] = session
            self._used[key] = self._clock()
        return session

    def add(self, key: K, session: S) -> None:
        """Add a session, marked as used now. Call `make_room` first."""
        self._sessions[key] = session
        self._used[key] = self._clock()
        self._plan_sweep()

    def remove(self, key: K) -> S | None:
        """Take a session out of the pool and return it, still open; None if there is none."""
        self._used.pop(key, None)
        return self._sessions.pop(key, None)

    def make_room(self) -> None:
        """Evict the least recently used session that is not busy, if there is no room.

        Raises:
            PoolFull: All sessions are busy, or eviction is off.
        """
        while len(self._sessions) >= self.max_open:
            if not self._evicts:
                raise PoolFull(
                    f"{self.max_open} sessions are open already",
                    code=PoolFull.code,
                    hint="close one",
                )
            idle = next((key for key, one in self._sessions.items() if not one.is_busy), None)
            if idle is None:
                raise PoolFull(
                    f"{self.max_open} sessions are at work already",
                    code=PoolFull.code,
                    hint="try again later",
                )
            self.close_soon(idle)

    # ---- closing

    def close_soon(self, key: K) -> None:
        """Take a session out of the pool; cancel and close it in the background."""
        session = self.remove(key)
        if session is None:
            return
        previous = self._closing.get(key)
        task = asyncio.create_task(_close(session, previous), name=f"close session {key}")
        self._closing[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    async def close(self, key: K) -> None:
        """Cancel and close a session, if it is open. Exceptions of closing it are raised here."""
        self.close_soon(key)
        await self.wait_closed(key)

    async def wait_closed(self, key: K) -> None:
        """Wait until a session that is being closed has released its lease.

        Whoever opens it before that would lose the lease again.
        """
        closing = self._closing.get(key)
        if closing is not None:
            await asyncio.shield(closing)

    async def close_all(self) -> None:
        """Cancel and close all sessions, and wait for those that are being closed."""
        if self._sweep is not None:
            self._sweep.cancel()
        for key in self.open_keys():
            self.close_soon(key)
        ended = await asyncio.gather(*self._closing.values(), return_exceptions=True)
        # Raised once all have ended: one that fails must not leave the others behind.
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    def sweep(self) -> None:
        """Close the sessions that have been idle for too long."""
        if self.idle_seconds is None:
            return
        deadline = self._clock() - self.idle_seconds
        for key in self.open_keys():
            if self._used[key] <= deadline and not self._sessions[key].is_busy:
                self.close_soon(key)
        self._plan_sweep()

    def _plan_sweep(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self.idle_seconds is None or not self._sessions:
            return
        oldest = self._used[next(iter(self._sessions))]
        until_idle = oldest + self.idle_seconds - self._clock()
        # A busy session is checked again, but not at once: sweeps must not take the loop's time.
        shortest = min(1.0, max(self.idle_seconds, 0.01))
        self._sweep = asyncio.get_running_loop().call_later(max(until_idle, shortest), self.sweep)

    def _forget(self, key: K, done: asyncio.Task[None]) -> None:
        if self._closing.get(key) is done:
            del self._closing[key]


async def _close(session: PooledSession, previous: asyncio.Task[None] | None) -> None:
    if previous is not None:
        await asyncio.wait([previous])
    if session.is_busy:
        await session.cancel()
    await session.close()
