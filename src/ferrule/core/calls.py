"""Calls and results: what a model asks for and the one answer that each call gets."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from .frozen import frozen


class ErrorType(StrEnum):
    """Why a call has no value. `NONE` is success. The names are part of what models see.

    `TOOL_ERROR`: the tool, or the server that it lives in, said no. `INTERNAL_ERROR`: Ferrule or a
        function of the program is broken.
    """

    NONE = "none"
    NOT_FOUND = "not_found"
    VALIDATION_FAILED = "validation_failed"
    PERMISSION_DENIED = "permission_denied"
    IO_ERROR = "io_error"
    PARSE_ERROR = "parse_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LIMIT = "limit"
    TOOL_ERROR = "tool_error"
    INTERNAL_ERROR = "internal_error"


@frozen
class Call:
    """One request of a model (or a person) to run a tool.

    `arguments` is JSON text exactly as it arrived; a wire that receives an object encodes it
    compactly, once. It may be broken JSON: judging that is the dispatcher's work, not the wire's.
    """

    id: str
    tool: str
    arguments: str = "{}"


@frozen
class Result:
    """The one answer to a call.

    `data` is text or a JSON value, already bounded; on failure None, or what the tool knows of the
    attempt. `size` counts the bytes of the whole value before it was cut; `partial` says that it
    was. `timestamp` is the wall time of the answer in ms since 1970, `duration_ms` the time inside
    the handler. `notes` tell the model what was repaired or what it should change; they follow the
    value in what the model reads.
    """

    call_id: str
    tool: str
    success: bool
    data: Any = None
    error_type: ErrorType = ErrorType.NONE
    error_message: str | None = None
    duration_ms: int = 0
    size: int = 0
    timestamp: int = 0
    partial: bool = False
    notes: tuple[str, ...] = ()

    @staticmethod
    def error(call: Call, error_type: ErrorType, message: str, *, timestamp: int = 0) -> Result:
        """A result without a value."""
        return Result(call.id, call.tool, False, None, error_type, message, timestamp=timestamp)

    def envelope(self) -> dict[str, Any]:
        """The result object as requirement 002 shapes it, plus `partial` where the data was cut."""
        shape: dict[str, Any] = {
            "success": self.success,
            "data": self.data,
            "error_message": self.error_message,
            "error_type": str(self.error_type),
            "metadata": {
                "execution_time_ms": self.duration_ms,
                "data_size_bytes": self.size,
                "timestamp": self.timestamp,
            },
        }
        if self.partial:
            shape["partial"] = True
        return shape

    def text(self, *, envelope: bool = False) -> str:
        """What the model reads: the value on success, the result object on failure or if asked
        for.
        """
        if envelope or not self.success:
            shown = compact(self.envelope())
        else:
            shown = self.data if isinstance(self.data, str) else compact(self.data)
        return "\n".join((shown, *self.notes)) if self.notes else shown


compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""JSON without spaces, non-ASCII kept: the one spelling used wherever Ferrule encodes JSON."""
