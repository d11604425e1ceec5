"""A script, its limits, and how it can fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen

BuiltinHandler = Callable[[str, Sequence[Any], Mapping[str, Any]], Awaitable[Any]]
"""`serve(name, positional, named)` answers a built-in (`fs.read`).

It returns a JSON value, or raises ToolFailed.
"""


@frozen
class Script:
    """A Starlark text and where it stands.

    `line` is that of its first line in `file`, so that errors have the file's line numbers.
    """

    source: str
    file: str
    line: int = 1
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        text = f"{self.file}\0{self.line}\0{self.source}"
        object.__setattr__(
            self, "digest", sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        )

    @property
    def padded_source(self) -> str:
        """The text after as many empty lines as it has lines above it in its file."""
        return "\n" * (self.line - 1) + self.source


@frozen
class ScriptLimits:
    """Limits of one call: wall-clock `seconds` (None: no limit), `memory` and `result` in bytes."""

    seconds: float | None = None
    memory: int = 256 << 20
    result: int = 4 << 20


class ScriptFailed(ToolFailed):
    """A script did not return a value.

    `reason` is `compile` (it cannot be parsed, or has recursion), `fail` (it called `fail`),
    `error` (it went wrong), `builtin` (a built-in failed), `timeout`, `memory`, `size` (a result or
    argument is too large), `depth` (nested calls or scripts), or `ended` (its worker was killed
    from outside).
    """

    def __init__(self, reason: str, message: str, error_type: ErrorType | None = None) -> None:
        # Failures of tools that it called were retried there. Only its own timeout is retryable.
        kind = "timeout" if reason == "timeout" else ""
        super().__init__(
            error_type or _TYPES.get(reason, ErrorType.INTERNAL_ERROR), message, kind=kind
        )
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.reason, self.message, self.error_type), self.__dict__)


_TYPES = {
    "compile": ErrorType.PARSE_ERROR,
    "timeout": ErrorType.TIMEOUT,
    "memory": ErrorType.LIMIT,
    "size": ErrorType.LIMIT,
    "depth": ErrorType.LIMIT,
    "fail": ErrorType.TOOL_ERROR,
    "error": ErrorType.TOOL_ERROR,
}
