"""Collect the mistakes in settings, so that a person sees all of them at once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ferrule.core.errors import ConfigError


@dataclass(slots=True)
class Mistakes:
    """Mistakes in the order in which they were found. What is wrong is left out meanwhile."""

    errors: list[ConfigError] = field(default_factory=list[ConfigError])

    @contextmanager
    def collect(self) -> Generator[None]:
        """Keep a ConfigError of the block instead of raising it."""
        try:
            yield
        except ConfigError as error:
            self.errors.append(error)

    def raise_all(self) -> None:
        """Raise the mistakes as one ConfigError, a line each; do nothing if there are none."""
        if not self.errors:
            return
        first = self.errors[0]
        if len(self.errors) == 1:
            raise first
        lines = ["; ".join(filter(None, (one.detail, one.hint))) for one in self.errors]
        hint = f"correct all {len(lines)} of them; nothing was done"
        raise ConfigError("\n".join(lines), code=first.code, hint=hint)
