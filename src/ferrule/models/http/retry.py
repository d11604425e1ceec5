"""Trying again before the first byte of an answer. Time and dice are given, so tests take none.

Nothing is repeated once a byte of an answer was seen: its words may already be on a screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ferrule.core.errors import ProviderError

T = TypeVar("T")


def dice() -> float:
    """A number between 0 and 1. Nothing is thrown in most runs, so the library is loaded by the
    first throw.
    """
    import random

    return random.random()


ATTEMPTS = 4
"""Attempts in total."""
BACKOFF = 0.25
"""Seconds before the second attempt; doubled for each one after it, varied by a quarter."""
BACKOFF_MAX = 8.0
PATIENCE = 60.0
"""Seconds that a server may ask us to wait. If it asks for more, the error is raised at once and
says so.
"""

RETRY_STATUS = frozenset({408, 429, 500, 502, 503, 504, 529})


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    *,
    notice: Callable[[str, str], None] | None = None,
    attempts: int = ATTEMPTS,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    dice: Callable[[], float] = dice,
) -> T:
    """The first answer that is no retryable ProviderError; the last error if there is none.

    `attempt` must raise a retryable error only while nothing of an answer has been seen.
    `retry_after` of an error (seconds) is waited at least. `notice` gets a line per retry.
    """
    for number in range(1, attempts + 1):
        try:
            return await attempt()
        except ProviderError as error:
            asked = error.retry_after or 0.0
            if not error.retryable or number == attempts:
                raise
            if asked > PATIENCE:
                error.hint = f"the server asks to wait {asked:.0f} s; try again then"
                raise
            backoff = min(BACKOFF * 2 ** (number - 1), BACKOFF_MAX) * (0.75 + 0.5 * dice())
            wait = max(backoff, asked)
            if notice:
                notice(
                    "retry", f"{error.detail}; attempt {number + 1} of {attempts} in {wait:.1f} s"
                )
            await sleep(wait)
    raise AssertionError("attempts must be at least 1")


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait from a `Retry-After` value (RFC 9110, section 10.2.3: seconds or a date),
    None if unreadable.

    `now` is the wall time in seconds since 1970.
    """
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return None
