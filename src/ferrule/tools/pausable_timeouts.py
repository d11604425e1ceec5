"""The timeouts of a call, which stand still while a person is asked."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Protocol


class PausableTimeout(Protocol):
    """A limit that can be moved: an `asyncio.Timeout`."""

    def when(self) -> float | None: ...

    def reschedule(self, when: float | None) -> None: ...


class PausableTimeouts:
    """The limits that bound a call's current attempt: the engine's, and those of its handler."""

    def __init__(self) -> None:
        self._limits: list[PausableTimeout] = []
        self._seconds_left: list[tuple[PausableTimeout, float]] = []
        self._pauses = 0

    def add(self, limit: PausableTimeout) -> None:
        """Add a limit that has been entered. One that is over is no longer paused."""
        self._limits.append(limit)

    @contextmanager
    def pause(self) -> Generator[None]:
        """Pause the limits while a person is asked, whose time is not the tool's.

        Several questions at once pause them until the last is answered.
        """
        self._pauses += 1
        if self._pauses == 1:
            self._stop()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._go_on()

    def _stop(self) -> None:
        now = _loop_time()
        for limit in self._limits:
            when = limit.when()
            if when is None:
                continue
            with suppress(RuntimeError):  # it is over
                limit.reschedule(None)
                self._seconds_left.append((limit, when - now))

    def _go_on(self) -> None:
        now = _loop_time()
        for limit, seconds in self._seconds_left:
            with suppress(RuntimeError):  # it is over
                limit.reschedule(now + seconds)
        self._seconds_left.clear()


def _loop_time() -> float:
    # Whoever defines tools need not have loaded it; a call in progress has.
    from asyncio import get_running_loop

    return get_running_loop().time()
