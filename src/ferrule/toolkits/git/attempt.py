"""The state of one call of a git tool while it runs, so that a failure has a receipt as well.

An `Attempt` is made for each call and reaches the operation as a resource of its context. For
operations that change something the references are read before and after, by git.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.tools.context import Context

_MAX_SHOWN = 20

_CATEGORIES = {
    ErrorType.PERMISSION_DENIED: "refused",
    ErrorType.VALIDATION_FAILED: "refused",
    ErrorType.NOT_FOUND: "not_found",
    ErrorType.TIMEOUT: "timeout",
    ErrorType.LIMIT: "limit",
}


@frozen
class GitResult:
    """The result of one git: status, output, and complaints. `hooks` are those that it ran.

    `is_cut`: it would have printed more.
    """

    argv: tuple[str, ...]
    code: int
    output: bytes
    complaint: str
    hooks: tuple[str, ...] = ()
    is_cut: bool = False

    @property
    def text(self) -> str:
        """The output as text; bytes that are not UTF-8 are replaced."""
        return self.output.decode("utf-8", "replace")

    def names(self) -> list[str]:
        """Return the output of `-z` as names of files."""
        return [os.fsdecode(name) for name in self.output.split(b"\0") if name]


@dataclass(slots=True)
class Attempt:
    """One call. An operation sets `category` if it knows better than its error how it ended."""

    results: list[GitResult] = field(default_factory=list[GitResult])
    category: str = ""
    _before: dict[str, str] | None = None
    _after: dict[str, str] | None = None

    @staticmethod
    def from_context(context: Context) -> Attempt:
        """Return the attempt of this call."""
        found = context.resources.get(Attempt)
        return found if isinstance(found, Attempt) else Attempt()

    def begin(self, references: dict[str, str]) -> None:
        """Note the references, by full name, before something is changed."""
        self._before = references

    def end(self, references: dict[str, str]) -> None:
        """Note the references after it."""
        self._after = references

    @property
    def refs(self) -> dict[str, dict[str, str | None]] | None:
        """`HEAD` before and after, and every other reference that differs.

        None if nothing was opened to be changed.
        """
        if self._before is None:
            return None
        before = self._before
        after = before if self._after is None else self._after
        differing = sorted(
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        )
        names = ["HEAD", *(name for name in differing if name != "HEAD")][: _MAX_SHOWN + 1]
        return {
            "before": {name: before.get(name) for name in names},
            "after": {name: after.get(name) for name in names},
        }

    def describe_end(self, failure: ToolFailed) -> dict[str, Any]:
        """Return how the call ended, for the receipt of a failure."""
        last = self.results[-1] if self.results else None
        return {
            "status": "failed",
            "exit_category": self.category or _CATEGORIES.get(failure.error_type, "failed"),
            "exit_code": None if last is None else last.code,
            "argv": [] if last is None else list(last.argv),
        }
