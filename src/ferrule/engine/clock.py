"""The engine's clock: the one place that reads time. Tests replace it."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Protocol


class Clock(Protocol):
    """Time for the engine.

    `now` is seconds since 1970, `monotonic` seconds from an arbitrary start, `sleep` waits that
    many seconds.
    """

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> Awaitable[None]: ...


class SystemClock:
    """The system's clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float, /) -> Awaitable[None]:
        """Wait. `asyncio` is loaded with the first session, not with the engine's options."""
        import asyncio

        return asyncio.sleep(seconds)
