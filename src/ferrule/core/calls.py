"""Tool calls and tool results: what a model asks for, and the one answer to each call."""

from __future__ import annotations

import json
from dataclasses import field
from enum import StrEnum
from typing import Any, Literal, cast

from .lazy_patterns import compile_lazily
from .media import MediaReference
from .value_class import frozen
from .vocabulary import Refuser


class ErrorType(StrEnum):
    """Why a call failed. `NONE` means success. Models see these values.

    `TOOL_ERROR` means that the tool, or the server behind it, reported a failure. `INTERNAL_ERROR`
    means that Ferrule or a function of the host program is broken.
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


CallOutcome = ErrorType | Literal["success", "open", "unknown", "not_run"]
"""How a call ended: `success`, or its error type.

`open` has no answer yet; `unknown` started, and nothing says how it ended; `not_run` never began.
"""


@frozen
class ToolCall:
    """A request from a model (or a person) to run a tool.

    `arguments` is JSON text exactly as it arrived. A model client that receives an object encodes
    it compactly, once. It may be invalid JSON: the dispatcher checks that, not the model client.
    """

    id: str
    tool: str
    arguments: str = "{}"


@frozen
class ToolResult:
    """The one answer to a call.

    Attributes:
        data: Text or a JSON value, already bounded in size. On failure None, or what the tool
            knows about the attempt.
        duration_ms: Time spent inside the handler.
        size: Bytes of the whole value before it was cut.
        timestamp: Wall time of the answer, in milliseconds since 1970.
        partial: True if the value was cut.
        notes: Sentences for the model about what was repaired or what it should change. They
            follow the value in the text that the model reads.
        media: Media that the tool returned. The journal's event has them only if there are any.
        refused_by: Who refused the call; empty if nobody did.
        cause: The chain of errors that the tool's error was raised from (`raise ... from`), or
            that it was raised while handling; empty if there is none. For programs and people:
            the model does not read it.
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
    media: tuple[MediaReference, ...] = field(default=(), metadata={"omit_empty": True})
    refused_by: Refuser | Literal[""] = field(default="", metadata={"omit_empty": True})
    cause: str = field(default="", metadata={"omit_empty": True})

    @property
    def outcome(self) -> CallOutcome:
        """`success`, or the error type."""
        return "success" if self.success else self.error_type

    @staticmethod
    def refusal(
        call: ToolCall, refused_by: Refuser, message: str, *, timestamp: int = 0
    ) -> ToolResult:
        """Return the result of a call that somebody refused.

        Args:
            call: The call.
            refused_by: Who refused it.
            message: Why, for the model.
            timestamp: Wall time in milliseconds since 1970.
        """
        return ToolResult(
            call.id,
            call.tool,
            False,
            error_type=ErrorType.PERMISSION_DENIED,
            error_message=message,
            timestamp=timestamp,
            refused_by=refused_by,
        )

    @staticmethod
    def error(
        call: ToolCall, error_type: ErrorType, message: str, *, timestamp: int = 0
    ) -> ToolResult:
        """Return the result of a call that failed."""
        return ToolResult(call.id, call.tool, False, None, error_type, message, timestamp=timestamp)

    def to_envelope(self) -> dict[str, Any]:
        """Return the result object of requirement 002, plus `partial` where the data was cut."""
        envelope: dict[str, Any] = {
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
            envelope["partial"] = True
        return envelope

    def to_text(self, *, envelope: bool = False) -> str:
        """Return what programs read: the value, or the result object if the call failed.

        Args:
            envelope: Always return the result object.
        """
        if envelope or not self.success:
            body = encode_json(self.to_envelope())
        elif isinstance(self.data, str):
            body = self.data
        else:
            body = encode_json(self.data)
        return "\n".join((body, *self.notes)) if self.notes else body

    @property
    def exit_status(self) -> int:
        """The exit status that the result of a command ends with; 0 if it names none.

        A command that failed is a call that succeeded: it was run, and its output is the value.
        """
        if not self.success or not isinstance(self.data, str) or not self.data.endswith("]"):
            return 0
        ending = _EXIT_STATUS.search(self.data, max(0, len(self.data) - _LONGEST_ENDING))
        return int(ending[1]) if ending else 0

    def to_model_text(self) -> str:
        """Return what the model reads: the value, or the error's type and message."""
        if self.success:
            return self.to_text()
        body = f"{self.error_type}: {self.error_message or 'the call failed'}"
        return "\n".join((body, *self.notes))


_EXIT_STATUS = compile_lazily(r"(?:^|\n)\[exit status (\d{1,9})\b[^\n]*\](?:\n\[[^\n]*\])*$")
_LONGEST_ENDING = 2_000

encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Encode a value as JSON without spaces, keeping non-ASCII characters. Used everywhere."""


def parse_json(text: str | bytes | bytearray, **options: Any) -> Any:
    """Parse JSON text of a file, a model, a server or a person.

    Args:
        text: The text.
        options: Those of `json.loads`.

    Raises:
        ValueError: It is not JSON, or nested too deeply to be read.
    """
    try:
        return json.loads(text, **options)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def decode_arguments(text: str) -> tuple[object, bool]:
    """Return the value of a call's arguments, and whether it was JSON text inside JSON text.

    This is the one reader of arguments: a call is shown, counted and kept as it is carried out.
    Nothing at all, and null, are no arguments. Text that is cut off or broken is never completed.

    Raises:
        ValueError: It is not JSON, or nested too deeply to be read.
    """
    if not text.strip():
        return {}, False
    value: object = parse_json(text)
    is_nested = isinstance(value, str)
    if isinstance(value, str):
        value = parse_json(value)
    return ({} if value is None else value), is_nested


def read_arguments(text: str) -> dict[str, Any] | None:
    """Return the arguments of a call as they are carried out; None if they are no JSON object."""
    try:
        values, _ = decode_arguments(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", values) if isinstance(values, dict) else None
