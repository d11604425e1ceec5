"""Run coroutines for callers without an event loop, and close what a `with` block was for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class ClosedByAsyncWith(ABC):
    """Something that is closed at the end of an `async with` block, however it ends."""

    @abstractmethod
    async def close(self) -> None:
        """Release what it holds."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except Exception as later:  # noqa: BLE001  boundary: what ended the block is what went wrong
            _hide_behind(error, later)


class ClosedByWith(ClosedByAsyncWith):
    """Something that is closed at the end of an `async with` block, or of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            run_in_new_loop(self.close)
        except Exception as later:  # noqa: BLE001  boundary: what ended the block is what went wrong
            _hide_behind(error, later)


def _hide_behind(error: BaseException | None, later: Exception) -> None:
    """Raise an error of closing, unless another one ended the block: that one gets a note of it."""
    if error is None:
        raise later
    error.add_note(f"then, on closing: {later}")


def run_in_new_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run for a caller without an event loop; inside one, in a thread of its own.

    What interrupts the caller stops the work, and reaches the caller once that has ended.
    """
    if _has_running_loop():
        return _RunInThread(work).wait()
    return asyncio.run(work())


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_POLL_SECONDS = 0.05
"""Seconds between two looks at whether the caller of a run in another thread was cancelled."""


class _RunInThread(Generic[T]):
    """Work on an event loop in a thread of its own, with the caller's context variables."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._outcome: list[T | BaseException] = []
        self._is_interrupted = False
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        context = contextvars.copy_context()
        # A daemon: a second interrupt ends the program also if the work does not end.
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name="ferrule-run-sync", daemon=True
        )

    def wait(self) -> T:
        """Return what the work returns. Raises what it raises, and what interrupts the caller."""
        caller = asyncio.current_task()
        cancels = 0 if caller is None else caller.cancelling()
        try:
            self._thread.start()  # it waits for the thread, so it can be interrupted as well
            # Not `join`: an interrupted one takes the thread for ended (Python 3.11).
            while not self._ended.wait(_POLL_SECONDS):
                # `asyncio.run` makes of Ctrl-C a cancellation, which cannot reach a blocked task.
                if caller is not None and caller.cancelling() > cancels:
                    self._interrupt()
        except BaseException:  # Ctrl-C, or what a handler of another signal raises
            self._interrupt()
            if self._thread.is_alive():  # otherwise the work has not begun, and never will
                self._ended.wait()
            raise
        finally:
            if self._ended.is_set():
                self._thread.join()
        outcome = self._outcome[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _run(self) -> None:
        try:
            self._outcome.append(asyncio.run(self._begin()))
        except BaseException as error:  # noqa: BLE001  carried to the caller's thread, where it is raised
            self._outcome.append(error)
        finally:
            self._ended.set()

    async def _begin(self) -> T:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        if self._is_interrupted:
            raise asyncio.CancelledError
        return await self._work()

    def _interrupt(self) -> None:
        if self._is_interrupted:
            return
        self._is_interrupted = True
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # it has ended meanwhile
                self._loop.call_soon_threadsafe(self._task.cancel)
