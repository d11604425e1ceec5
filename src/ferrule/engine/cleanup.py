"""What tools want done when a session ends: end a program, delete a folder, disconnect a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .session_log import SessionLog

Closer = Callable[[], Awaitable[None]]
"""Releases one thing. It may be cancelled when its time is over."""

CLOSE_SECONDS = 10.0
"""Seconds for all closers of a session together."""


class Cleanup:
    """The closers of one session. Each runs once, in reverse order of registration.

    Later things may need earlier ones, hence the order. Nothing is swallowed: a failure, and what
    was cut off or not started in time, is a notice in the journal. While something is registered,
    this object is in `unclosed`, so that the owner of that set can close what was forgotten.
    """

    def __init__(
        self, log: SessionLog, unclosed: set[Cleanup], seconds: float = CLOSE_SECONDS
    ) -> None:
        self._log = log
        self._unclosed = unclosed
        self._seconds = seconds
        self._closers: list[Closer] = []

    def add(self, closer: Closer) -> None:
        """Run this closer at the end."""
        self._closers.append(closer)
        self._unclosed.add(self)

    def remove(self, closer: Closer) -> None:
        """Do not run this closer at the end; nothing happens if it is not registered."""
        if closer in self._closers:
            self._closers.remove(closer)

    async def run(self) -> None:
        """Run all closers, also those registered meanwhile; then flush the journal."""
        bound = asyncio.timeout(self._seconds)
        try:
            async with bound:
                while self._closers and not bound.expired():
                    await self._close(self._closers.pop())
        except TimeoutError:
            if not bound.expired():
                raise
        self._unclosed.discard(self)
        if bound.expired():
            left = len(self._closers)
            self._closers = []
            more = f"; {left} more were not begun" if left else ""
            self._log.notice(
                "close", f"something did not end within {self._seconds:g} s and was left{more}"
            )
        if self._log.is_recorded:
            self._log.flush()

    async def _close(self, closer: Closer) -> None:
        try:
            await closer()
        except Exception as error:  # noqa: BLE001  boundary: one that fails must not keep the others from closing
            self._log.notice(
                "close", f"something could not be closed: {type(error).__name__}: {error}"
            )
