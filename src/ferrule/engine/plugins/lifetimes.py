"""What plugins keep open: entered before the first session starts, left when the agent is closed.

Both happen in one task that is kept for it: a task group, for example, can only be left in the task
that entered it. When the event loop ends first, as with `run_sync`, they are left with it and
entered again in the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.engine.driver import Driver, DriverExtension
from ferrule.tools.forking import make_lock

LifetimeMaker = Callable[[], AbstractAsyncContextManager[object]]

_warn = logging.getLogger(__name__).warning

MOST_SECONDS = 10.0
"""Seconds for entering one lifetime, and for leaving it."""


class PluginLifetimes:
    """The lifetimes of an agent's plugins, each with the plugin's name.

    Copies of an agent share this object.
    """

    def __init__(
        self,
        makers: tuple[tuple[str, LifetimeMaker], ...] = (),
        notice: Callable[[str], None] = _warn,
        *,
        seconds: float = MOST_SECONDS,
    ) -> None:
        self._makers = makers
        self._notice = notice
        self._seconds = seconds
        self._lock = make_lock()
        self._current: _Lifetime | None = None

    def __bool__(self) -> bool:
        return bool(self._makers)

    async def enter(self) -> None:
        """Enter all lifetimes in order, unless they are entered already.

        Raises:
            ConfigError: One could not be entered; those before it were left. The next call tries
                again.
        """
        if not self._makers:
            return
        with self._lock:
            current = self._current
            if current is None or current.is_over:
                current = _Lifetime(self._makers, self._notice, self._seconds)
                self._current = current
        await asyncio.shield(asyncio.wrap_future(current.entered))

    async def close(self) -> None:
        """Leave all lifetimes in reverse order, each within its seconds, whatever the others do."""
        with self._lock:
            current = self._current
            self._current = None
        if current is not None:
            await current.close()


class _Lifetime:
    """One time from entering to leaving, in a task of the running event loop."""

    def __init__(
        self,
        makers: tuple[tuple[str, LifetimeMaker], ...],
        notice: Callable[[str], None],
        seconds: float,
    ) -> None:
        self.entered: Future[None] = Future()
        self._left: Future[None] = Future()
        self._makers = makers
        self._notice = notice
        self._seconds = seconds
        self._open: list[tuple[str, LifetimeMaker, AbstractAsyncContextManager[object]]] = []
        self._closing = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._live(), name="ferrule-plugins")

    @property
    def is_over(self) -> bool:
        """Whether everything was left, or the event loop is gone."""
        return self._left.done() or self._loop.is_closed()

    async def close(self) -> None:
        """Leave, and wait for it. Does nothing if the event loop is gone."""
        if self.is_over:
            return
        self._loop.call_soon_threadsafe(self._closing.set)
        await asyncio.shield(asyncio.wrap_future(self._left))

    async def _live(self) -> None:
        try:
            await self._enter()
            if not self.entered.exception():
                await self._closing.wait()
        finally:
            # Also where the event loop ends and cancels its tasks.
            await self._leave()
            if not self.entered.done():
                self.entered.set_exception(FerruleError("the plugins were stopped while starting"))
            self._left.set_result(None)

    async def _enter(self) -> None:
        for name, make in self._makers:
            try:
                manager = make()
                async with asyncio.timeout(self._seconds):
                    await manager.__aenter__()
            except Exception as error:  # noqa: BLE001  boundary: code of a plugin
                problem = ConfigError(
                    f"the plugin `{name}` did not start: {_describe(error, make, self._seconds)}",
                    code="plugin_failed",
                    hint="leave it out, or report it to its author",
                )
                problem.__cause__ = error
                self.entered.set_exception(problem)
                return
            self._open.append((name, make, manager))
        self.entered.set_result(None)

    async def _leave(self) -> None:
        while self._open:
            name, make, manager = self._open.pop()
            try:
                async with asyncio.timeout(self._seconds):
                    await manager.__aexit__(None, None, None)
            except Exception as error:  # noqa: BLE001  boundary: one must not keep the others open
                problem = _describe(error, make, self._seconds)
                self._notice(f"the plugin `{name}` could not be closed: {problem}")


class StartPlugins(DriverExtension):
    """Enters the plugins' lifetimes before anything is done in a session."""

    def __init__(self, driver: Driver, lifetimes: PluginLifetimes) -> None:
        super().__init__(driver)
        self._lifetimes = lifetimes

    async def start(self) -> None:
        await self._lifetimes.enter()


def _describe(error: Exception, make: LifetimeMaker, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"it took more than {seconds:g} s"
    from .failures import describe_failure  # loaded only where something failed

    return describe_failure(error, getattr(make, "__module__", ""))
