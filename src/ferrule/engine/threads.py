"""Threads for blocking handlers.

Not `concurrent.futures`: its threads are joined when the interpreter ends, so one handler that
hangs past its timeout would keep the process alive for ever; and asyncio's default pool has only a
few threads on a small machine. These are daemon threads, started when none is idle and reused.

Most handlers take less time than it takes to wake an event loop for their result. So a call that is
alone is waited for in place, for as long as that (`WAKE_UP`); a handler that takes longer does not
hold the loop up.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ferrule.tools.forking import make_lock, watch_forks

T = TypeVar("T")
THREAD_NAME = "ferrule-tool"
"""Name of the pool's threads. Idle ones are kept: they wait for the next job of the process."""
MAX_THREADS = 128
"""Maximum number of threads; further calls wait for one."""
WAKE_UP = 0.0001
"""Seconds that a lone call is waited for in place."""

_Job = tuple["_LoopResults", "asyncio.Future[Any]", Callable[[], Any]]
_Result = tuple["asyncio.Future[Any]", Any, "BaseException | None"]


class _LoopResults:
    """Results of threads for one event loop.

    The first one wakes the loop, and others come along until it looks: each wake-up is a system
    call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ready: SimpleQueue[_Result] = SimpleQueue()
        self._woken = threading.Lock()

    def add(self, future: asyncio.Future[Any], outcome: Any, raised: BaseException | None) -> None:
        """Add a result, from any thread. Raises RuntimeError if the loop is closed."""
        self._ready.put((future, outcome, raised))
        if self._woken.acquire(blocking=False):
            self.loop.call_soon_threadsafe(self._settle)

    def hold(self) -> bool:
        """Have the next results wait for `wait` instead of waking the loop. False: they cannot."""
        return self._woken.acquire(blocking=False)

    def wait(self, seconds: float) -> None:
        """Wait for a result, after `hold`. Called in the event loop."""
        try:
            first = self._ready.get(timeout=seconds)
        except Empty:
            self._settle()
        else:
            # Not at once: what the thread asked of the loop, and timers that are due, come first.
            self.loop.call_soon(self._settle, first)

    def _settle(self, first: _Result | None = None) -> None:
        """Give their results to all futures that have one. Called in the event loop."""
        # Release the lock first: a result that comes in between is settled now, and wakes the loop
        # once more for nothing.
        self._woken.release()
        if first is not None:
            _settle(*first)
        while not self._ready.empty():
            _settle(*self._ready.get_nowait())


class Threads:
    """A pool that grows with the number of waiting jobs.

    Args:
        most: Maximum number of threads.
        patience: Seconds that a lone job is waited for in place.
    """

    def __init__(self, most: int = MAX_THREADS, patience: float = 0.0) -> None:
        self._most = most
        self._patience = patience
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = make_lock()
        watch_forks(self)
        self._threads = 0
        self._unfinished = 0
        self._answers: _LoopResults | None = None

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` in a thread, with the caller's context variables.

        Cancelling the future keeps a function from starting that still waits for a thread; it does
        not stop one that runs.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        with self._lock:
            answers = self._answers
            if answers is None or answers.loop is not loop:
                answers = self._answers = _LoopResults(loop)
            self._unfinished += 1
            is_alone = self._unfinished == 1
            grow = self._threads < min(self._unfinished, self._most)
            self._threads += grow
        waits = is_alone and self._patience > 0 and answers.hold()
        self._jobs.put((answers, future, lambda: context.run(function)))
        if grow:
            threading.Thread(target=self._work, name=THREAD_NAME, daemon=True).start()
        if waits:
            answers.wait(self._patience)
        return future

    def after_fork(self) -> None:
        """Begin anew in a forked child: its parent's threads and jobs are not here."""
        self._jobs = SimpleQueue()
        self._threads = 0
        self._unfinished = 0
        self._answers = None

    def _work(self) -> None:
        """Do one job after another; the body of a thread."""
        while True:
            answers, future, job = self._jobs.get()
            outcome: Any = None
            raised: BaseException | None = None
            try:
                if not future.cancelled():
                    outcome = job()
            except BaseException as error:  # noqa: BLE001  a handler's sys.exit must not end the thread silently
                raised = error
            with self._lock:
                self._unfinished -= 1
            try:
                answers.add(future, outcome, raised)
            except RuntimeError:
                # The loop is closed: the run is gone and nobody waits for this answer.
                continue
            finally:
                # A thread that waits for its next job must not keep the last one's values alive.
                del answers, future, job, outcome, raised


def _settle(future: asyncio.Future[Any], outcome: Any, error: BaseException | None) -> None:
    """Give a future its result or exception, unless it was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(outcome)
    elif isinstance(error, StopIteration | GeneratorExit):
        # Thrown into coroutines, these mean something to Python itself: the first cannot pass, and
        # the second closes every coroutine that waits.
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
    else:
        future.set_exception(error)


run_blocking = Threads(patience=WAKE_UP).run
"""Run a function in the process's own pool. Creating the pool starts no thread."""
