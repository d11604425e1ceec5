"""Time, as the engine sees it. The one place that reads a clock; tests put a fake one in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Protocol


class Clock(Protocol):
    """`now` is ms since 1970, `monotonic` seconds from anywhere, `sleep` waits that many seconds."""

    def now(self) -> int: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> Awaitable[None]: ...


class SystemClock:
    """The machine's own."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)
