"""How often and how long a call is tried. Applied exactly once per call, by the dispatcher's shell.

`max_attempts` counts all attempts. None means: four for tools that only read or are idempotent, one for
all others. Classes that can be retried: `transient` (a `ToolFailed(..., transient=True)`, a
connection that broke), `timeout`, `server` (a 5xx answer). A plain domain error is never retried, and an
effect whose outcome is unknown is never repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

RETRY_CLASSES = ("transient", "timeout", "server")


@dataclass(frozen=True, slots=True)
class Reliability:
    """`timeout` in seconds per attempt (None: the run's default); waits are `backoff * factor**n`, at most
    `backoff_max`, each varied by up to `jitter` (a share of the wait)."""

    timeout: float | None = None
    max_attempts: int | None = None
    backoff: float = 0.2
    factor: float = 2.0
    backoff_max: float = 10.0
    jitter: float = 0.25
    retry_on: tuple[str, ...] = RETRY_CLASSES

    def __post_init__(self) -> None:
        for name in self.retry_on:
            if name not in RETRY_CLASSES:
                raise ValueError(f"retry_on: {name!r} is not one of {', '.join(RETRY_CLASSES)}")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError("max_attempts counts all attempts: it must be at least 1")
        if self.timeout is not None and self.timeout <= 0:
            raise ValueError("timeout must be more than 0 seconds")

    def attempts(self, repeatable: bool) -> int:
        """Total attempts for a tool that may (`repeatable`) or may not be run again by itself."""
        if self.max_attempts is not None:
            return self.max_attempts
        return 4 if repeatable else 1

    def wait(self, attempt: int, spread: float) -> float:
        """Seconds before attempt `attempt + 1`; `spread` in [-1, 1] is the caller's dice."""
        base = min(self.backoff * self.factor ** (attempt - 1), self.backoff_max)
        return base * (1 + self.jitter * spread)
