"""What tools want done at a session's end: end a program, delete a folder, say goodbye to a
server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .session_log import Log

Closer = Callable[[], Awaitable[None]]
"""Gives one thing back. It may be cancelled when its time is over."""

CLOSE_SECONDS = 10.0
"""For all closers of a session together."""


class Closers:
    """One session's. Each runs once, the last registered first, because later things may need
    earlier ones.

    Nothing is swallowed: what fails, and what was cut off or not begun in time, is a notice in the
    journal. While something is registered, this is in `unclosed`, so that whoever owns that set can
    close what was forgotten.
    """

    def __init__(self, log: Log, unclosed: set[Closers], seconds: float = CLOSE_SECONDS) -> None:
        self._log = log
        self._unclosed = unclosed
        self._seconds = seconds
        self._closers: list[Closer] = []

    def add(self, closer: Closer) -> None:
        """Run this at the end."""
        self._closers.append(closer)
        self._unclosed.add(self)

    def drop(self, closer: Closer) -> None:
        """Do not run this at the end, if it was to be."""
        if closer in self._closers:
            self._closers.remove(closer)

    async def run(self) -> None:
        """Run what is registered; what is registered meanwhile runs too. Then all that was said is
        written.
        """
        bound = asyncio.timeout(self._seconds)
        try:
            async with bound:
                while self._closers and not bound.expired():
                    await self._one(self._closers.pop())
        except TimeoutError:
            if not bound.expired():
                raise
        self._unclosed.discard(self)
        if bound.expired():
            left, self._closers = len(self._closers), []
            more = f"; {left} more were not begun" if left else ""
            self._log.notice(
                "close", f"something did not end within {self._seconds:g} s and was left{more}"
            )
        if self._log.begun:
            self._log.flush()

    async def _one(self, closer: Closer) -> None:
        try:
            await closer()
        except Exception as error:  # noqa: BLE001  boundary: one that fails must not keep the others from closing
            self._log.notice(
                "close", f"something could not be closed: {type(error).__name__}: {error}"
            )
