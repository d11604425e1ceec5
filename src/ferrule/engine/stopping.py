"""Stopping: a level that is looked at before each step, and a bound on waiting for its end.

Cancelling an asyncio task is an edge: code that catches `CancelledError` goes on as if nothing had
happened. So a run, each direct call and each attempt of a handler has a `Stop`, which stays
requested. It is looked at before each question to the model, each call and each attempt
(`check_stop`), whatever a handler or a library in it swallowed. What is started in the context of a
`Stop` (another agent's run in a handler, also in a thread or on another event loop) is stopped with
it.

Work that does not end when it is stopped is left behind after `Host.stop_seconds`: nobody waits for
it any more, its outcome is called unknown, and its own calls and questions are refused.
"""

from __future__ import annotations

import asyncio
from asyncio import tasks as asyncio_tasks
from collections.abc import Coroutine
from contextvars import ContextVar, Token
from typing import Any, TypeVar

from ferrule.core.errors import ConfigError
from ferrule.core.events import Cancelled, LimitHit

T = TypeVar("T")

STOP_SECONDS = 5.0
"""Seconds that a stopped handler may take to end; by default (`Host.stop_seconds`)."""
RUN_SECONDS = 5.0
"""Seconds more that the rest of a stopped run may take: hooks, a model client, an approver."""
LEFT_BEHIND = "left_behind"
"""The topic of notices in the journal about what did not end when it was stopped."""
STOPPED = "stopped by a person or the caller"
_STOPPED_ABOVE = "what started it was stopped"

_current: ContextVar[Stop | None] = ContextVar("ferrule_stop", default=None)


class Stop:
    """Whether some work was told to stop.

    Attributes:
        event: What the work is ended with; None as long as it may go on. `Cancelled` replaces
            `LimitHit`, nothing replaces `Cancelled`.
        was_left: Whether the work did not end in time and nobody waits for it any more.
    """

    def __init__(self, *, of_current_task: bool = False) -> None:
        self.event: Cancelled | LimitHit | None = None
        self.was_left = False
        self._is_over = False
        self._parts: set[Stop] = set()
        # A task may be used again after it was cancelled, to clean up for example.
        self._task = asyncio.current_task() if of_current_task else None
        self._earlier_cancels = 0 if self._task is None else self._task.cancelling()
        above = _current.get()
        self._above = above
        if above is not None:
            above._adopt(self)

    def _adopt(self, part: Stop) -> None:
        self._parts.add(part)
        if self.event is not None and (self.was_left or not self._is_over):
            part.event = Cancelled(_STOPPED_ABOVE)

    @property
    def is_requested(self) -> bool:
        """Whether the work must not go on."""
        return self.event is not None

    def request(self, event: Cancelled | LimitHit) -> None:
        """Have the work stop, and everything that it started. Callable from any thread."""
        if self.event is None or not isinstance(self.event, Cancelled):
            self.event = event
        for part in list(self._parts):
            part.request(Cancelled(_STOPPED_ABOVE))

    def mark_left(self) -> None:
        """Take note that the work did not end in time."""
        self.was_left = True

    def clear(self) -> None:
        """Let the work go on: what ended it was dealt with."""
        self.event = None

    def close(self) -> None:
        """The work has ended, or was left behind."""
        self._is_over = True
        if self._above is not None:
            self._above._parts.discard(self)

    def enter(self) -> Token[Stop | None]:
        """Make it the `Stop` of what is started from now on, until `leave`."""
        return _current.set(self)

    @staticmethod
    def leave(token: Token[Stop | None]) -> None:
        """Undo `enter`."""
        _current.reset(token)

    def covers(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a task was cancelled since this began, even if its code swallowed that."""
        if task is None:
            return False
        earlier = self._earlier_cancels if task is self._task else 0
        return task.cancelling() > earlier


class RunStop(Stop):
    """The `Stop` of work in a task of its own, which a caller awaits with `run`.

    Args:
        seconds: How long stopped work is waited for.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = require_asyncio()
        super().__init__()
        self.was_caller_cancelled = False
        self._seconds = seconds
        self._work: asyncio.Task[Any] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def request(self, event: Cancelled | LimitHit) -> None:
        super().request(event)
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._cancel()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        work = self._work
        if work is None or work.done():
            return
        work.cancel()
        if self._deadline is None:
            self._deadline = self._loop.call_later(self._seconds, self._give_up)

    def clear(self) -> None:
        super().clear()
        while self._work is not None and self._work.cancelling():
            self._work.uncancel()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self.was_left = True
        self._wake()

    def _wake(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Carry out work, and return its task once it is done or was left behind.

        Cancelling the caller stops the work; the caller then goes on when it has ended
        (`was_caller_cancelled`).
        """
        token = self.enter()
        try:
            task = self._work = self._loop.create_task(work)
        finally:
            self.leave(token)
        task.add_done_callback(self._wake)
        if self.event is not None:
            self._cancel()
        while not task.done() and not self.was_left:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self.was_caller_cancelled = True
                self.request(Cancelled(STOPPED))
        if self._deadline is not None:
            self._deadline.cancel()
        self.was_left = not task.done()
        if self.was_left:
            leave_behind(task)
        self.close()
        return task


def require_asyncio() -> asyncio.AbstractEventLoop:
    """Return the running event loop. Raises ConfigError outside asyncio, in trio for example."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError(
            "Ferrule runs on asyncio, and no asyncio event loop runs here",
            code="no_event_loop",
            hint=(
                "in trio, `await trio.to_thread.run_sync(agent.run_sync, text)`; with anyio, "
                'choose the backend "asyncio"; without an event loop, `agent.run_sync(text)`'
            ),
        ) from None


def get_stop() -> Stop | None:
    """Return the `Stop` of the current context; None outside any work."""
    return _current.get()


def is_stopped() -> bool:
    """Whether what is going on here was told to stop."""
    stop = _current.get()
    if stop is None:
        return False
    return stop.event is not None or stop.covers(asyncio.current_task())


def check_stop() -> None:
    """Raise CancelledError if what is going on here was told to stop, whoever swallowed that."""
    if is_stopped():
        raise asyncio.CancelledError


def enter_no_stop() -> Token[Stop | None]:
    """Have what is started from now on outlive what starts it, until `Stop.leave`."""
    return _current.set(None)


def leave_behind(task: asyncio.Task[Any]) -> None:
    """Stop waiting for a task that does not let itself be stopped.

    `asyncio.run` waits at its end for every task that it knows, for ever if need be. So it must not
    know this one.
    """
    asyncio_tasks._unregister_task(task)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]  documented for "extending asyncio"
    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]  it is known to be pending, and was reported
    task.add_done_callback(_ignore_outcome)


def _ignore_outcome(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


async def end_within(work: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for stopped work to end. Return False if it did not.

    Being cancelled once more changes nothing: it is being stopped already.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not work.done():
        left = deadline - loop.time()
        if left <= 0:
            return False
        try:
            await asyncio.wait({work}, timeout=left)
        except asyncio.CancelledError:
            continue
    return True
