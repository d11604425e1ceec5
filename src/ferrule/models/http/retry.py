"""Retries before the first byte of an answer.

Nothing is repeated once a byte of an answer was seen: its text may already be on a screen. The
waiting and the random numbers can be replaced in tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ferrule.core.errors import ProviderError

T = TypeVar("T")


def random_fraction() -> float:
    """Return a random number between 0 and 1.

    Most runs need none, so the library is imported by the first call.
    """
    import random

    return random.random()


ATTEMPTS = 4
"""Most attempts, including the first."""
BACKOFF = 0.25
"""Seconds before the second attempt; doubled for each one after it, varied by a quarter."""
BACKOFF_MAX = 8.0
"""Most seconds of backoff between two attempts."""
RETRY_AFTER_MAX = 60.0
"""Most seconds that a server may ask us to wait; beyond that the error is raised at once."""

RETRY_STATUS = frozenset({408, 429, 500, 502, 503, 504, 529})
"""HTTP status codes after which a retry may help."""


async def retry(
    attempt: Callable[[], Awaitable[T]],
    *,
    notice: Callable[[str, str], None] | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    random_fraction: Callable[[], float] = random_fraction,
) -> T:
    """Return the first answer that is not a retryable ProviderError, or raise the last error.

    Args:
        attempt: Makes one attempt. It must raise a retryable error only while nothing of an answer
            has been seen.
        notice: Receives a line for each retry.
        sleep: Waits for a number of seconds, at least the `retry_after` of the error.
        random_fraction: Returns random numbers between 0 and 1.
    """
    for number in range(1, ATTEMPTS + 1):
        try:
            return await attempt()
        except ProviderError as error:
            if not error.retryable or number == ATTEMPTS:
                raise
            retry_after = error.retry_after or 0.0
            if retry_after > RETRY_AFTER_MAX:
                error.hint = f"the server asks to wait {retry_after:.0f} s; try again then"
                raise
            backoff = min(BACKOFF * 2 ** (number - 1), BACKOFF_MAX) * (
                0.75 + 0.5 * random_fraction()
            )
            wait = max(backoff, retry_after)
            if notice:
                text = f"{error.detail}; attempt {number + 1} of {ATTEMPTS} in {wait:.1f} s"
                notice("retry", text)
            await sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Parse a `Retry-After` value into seconds; None if it cannot be read.

    RFC 9110, section 10.2.3: the value is seconds or a date. `now` is the wall time in seconds
    since 1970.
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
    except (ValueError, OverflowError):
        return None
