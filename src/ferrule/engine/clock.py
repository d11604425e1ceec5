"""Time, as the engine sees it. The one place that reads a clock; tests put a fake one in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Protocol


class Clock(Protocol):
    """`now` is seconds since 1970, `monotonic` seconds from anywhere, `sleep` waits that many
    seconds.
    """

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> Awaitable[None]: ...


class SystemClock:
    """The machine's own."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)
