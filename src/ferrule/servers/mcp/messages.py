"""Tell messages of the protocol from what is none, and answer that with an error.

The library drops an invalid line of standard streams without an answer, and takes a request whose
id is not usable for a notification. So each text is checked here first, over both transports.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

PARSE_ERROR = -32700
INVALID_REQUEST = -32600


@dataclass(frozen=True, slots=True)
class InvalidMessage:
    """A text that is no message: what is wrong with it, and the id of the request, if known."""

    code: int
    reason: str
    id: int | str | None = None

    def encode_answer(self) -> bytes:
        """Return the error that its sender gets."""
        error = {"code": self.code, "message": self.reason}
        return json.dumps({"jsonrpc": "2.0", "id": self.id, "error": error}).encode()


def read_message(text: bytes) -> dict[str, Any] | InvalidMessage:
    """Return a message as the library reads it, or what is wrong with it."""
    from pydantic_core import from_json

    try:
        message: object = from_json(text)
    except ValueError:
        return _explain(text)
    return _check(message)


def _explain(text: bytes) -> InvalidMessage:
    """Say why a text cannot be read: it is no JSON, or has half of a surrogate pair in a text."""
    try:
        message: object = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        return InvalidMessage(PARSE_ERROR, f"Parse error: {why}")
    request_id = cast("dict[str, Any]", message).get("id") if isinstance(message, dict) else None
    reason = "Invalid request: a text in it has half of a surrogate pair"
    return InvalidMessage(INVALID_REQUEST, reason, _read_id(request_id))


def _check(message: object) -> dict[str, Any] | InvalidMessage:
    if not isinstance(message, dict):
        reason = "a batch is not supported" if isinstance(message, list) else "it is no object"
        return InvalidMessage(INVALID_REQUEST, f"Invalid request: {reason}")
    given = cast("dict[str, Any]", message)
    problem = _find_problem(given)
    if not problem:
        return given
    # The id of an answer is one of ours: an error with it would look like an answer to ourselves.
    request_id = _read_id(given.get("id")) if "method" in given else None
    return InvalidMessage(INVALID_REQUEST, f"Invalid request: {problem}", request_id)


def _find_problem(message: dict[str, Any]) -> str:
    """Return what is wrong with an object; "" if it is a message."""
    if message.get("jsonrpc") != "2.0":
        return '`jsonrpc` must be "2.0"'
    if "method" not in message:
        return _find_answer_problem(message)
    if type(message["method"]) is not str:
        return "`method` must be a string"
    if "id" in message and type(message["id"]) not in (int, str):
        return "`id` must be a string or a whole number"
    params = message.get("params")
    if params is not None and not isinstance(params, dict):
        return "`params` must be an object"
    return ""


def _find_answer_problem(message: dict[str, Any]) -> str:
    request_id = message.get("id")
    if isinstance(message.get("result"), dict):
        return "" if type(request_id) in (int, str) else "`id` must be a string or a whole number"
    error: Any = message.get("error")
    if not isinstance(error, dict):
        return "it has neither `method` nor `result` nor `error`"
    if request_id is not None and type(request_id) not in (int, str):
        return "`id` must be a string or a whole number"
    fields = cast("dict[str, Any]", error)
    is_error = type(fields.get("code")) is int and type(fields.get("message")) is str
    return "" if is_error else "`error` must have a whole number as `code` and a `message`"


def _read_id(request_id: object) -> int | str | None:
    """Return an id that can be written into an answer, else None."""
    return request_id if type(request_id) in (int, str) else None  # type: ignore[return-value]
