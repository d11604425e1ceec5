"""How often a step is tried. Nothing is retried by itself: without `retry` a step runs once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import Any, Literal

from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen

Backoff = Literal["constant", "linear", "exponential"]
RetryCheck = Callable[[dict[str, Any]], bool | Awaitable[bool]]
RetryAction = Callable[[dict[str, Any]], object]

MAX_DELAY_MS = 3_600_000
"""In milliseconds."""


@frozen
class Retry:
    """When and how often a step is tried again.

    Before attempt n + 1 it waits `delay_ms` (constant), n times that (linear) or 2 to the power of
    n - 1 times that (exponential), at most an hour. There is no jitter: a step behaves the same way
    each time.

    Attributes:
        max_attempts: Counts the first attempt.
        should_retry: Called with the step's record after each failure; default: yes, unless the
            command was refused. May be a coroutine function.
        before_retry: Called with the record after the wait. May be a coroutine function.
    """

    max_attempts: int = 1
    delay_ms: int = 0
    backoff: Backoff = "constant"
    should_retry: RetryCheck | None = None
    before_retry: RetryAction | None = None

    def __post_init__(self) -> None:
        for name, low in (("max_attempts", 1), ("delay_ms", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < low:
                raise ConfigError(
                    f"retry: {name} = {value!r}", hint=f"a whole number, at least {low}"
                )
        if self.backoff not in ("constant", "linear", "exponential"):
            raise ConfigError(
                f"retry: backoff = {self.backoff!r}",
                hint="use `constant`, `linear` or `exponential`",
            )

    @staticmethod
    def from_value(given: Retry | Mapping[str, Any] | None) -> Retry:
        """Make it from a mapping with the same names. Raises ConfigError, for `jitter` too."""
        if given is None:
            return Retry()
        if isinstance(given, Retry):
            return given
        known = [known_field.name for known_field in fields(Retry)]
        for key in given:
            if key == "jitter":
                raise ConfigError(
                    "retry: there is no `jitter`",
                    hint="a step is repeatable; choose `delay_ms` and `backoff`",
                )
            if key not in known:
                hint = suggest_names(key, known, f"known: {', '.join(known)}")
                raise ConfigError(f"retry: unknown key `{key}`", hint=hint)
        return Retry(**given)

    def compute_delay(self, failed: int) -> int:
        """Return the milliseconds to wait after this many failed attempts."""
        factors = {"constant": 1, "linear": failed, "exponential": 2 ** min(failed - 1, 32)}
        factor = factors[self.backoff]
        return min(self.delay_ms * factor, MAX_DELAY_MS)
