"""What a person has to see of a call before they say yes, as text. Every interface takes it here.

A preview may stand for the arguments that can be read in it, never for others: what is approved are
the arguments, so each of them is in one or the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.calls import read_arguments
from ferrule.core.invisible_characters import escape_for_approval

from .approvals import ApprovalRequest

_PREVIEWED = frozenset(
    (
        *("path", "file_path", "command", "pattern", "query", "url", "task", "subcommand", "name"),
        *("old_string", "new_string", "old_text", "new_text", "content", "new_content", "text"),
    )
)
"""Arguments that previews show: what a call works on, and what it writes.

Others (`mode="a"`) may stand in a preview by chance.
"""


def describe_call(request: ApprovalRequest, most: int | None = None) -> str:
    """Return the arguments of a call and what would happen, with nothing that is not drawn.

    Arguments come first, so that a long preview does not hide them.

    Args:
        request: The question about the call.
        most: Characters to show at most. A text that is cut says so.
    """
    arguments = list_unshown_arguments(request)
    if request.preview_error:
        parts = [arguments, f"[{request.preview_error}]"]
    else:
        parts = [arguments, request.preview]
    shown = escape_for_approval("\n".join(part for part in parts if part))
    if most is None or len(shown) <= most:
        return shown
    return f"{shown[:most]}\n[shown: {most} of {len(shown)} characters]"


def list_unshown_arguments(request: ApprovalRequest) -> str:
    """Return the arguments that the preview does not show, as JSON; "" if it shows all of them."""
    if not request.preview:
        return encode_arguments(request)
    values = _find_values(request)
    if values is None:
        return request.call.arguments
    left = {
        name: value
        for name, value in values.items()
        if name not in _PREVIEWED or not _is_in(value, request.preview)
    }
    return _encode(left) if left else ""


def encode_arguments(request: ApprovalRequest) -> str:
    """Return all arguments as they would run, as JSON: a hook may have changed what was sent.

    Defaults that the model did not send are left out.
    """
    values = _find_values(request)
    return request.call.arguments if values is None else _encode(values)


def _find_values(request: ApprovalRequest) -> dict[str, Any] | None:
    """Return the arguments as they would run; None if there are only those that were sent."""
    sent = read_arguments(request.call.arguments)
    if not request.values:
        return sent
    properties: Any = request.tool.arguments.schema.get("properties") or {}
    return {
        name: value
        for name, value in request.values.items()
        if name in (sent or {}) or not _is_default(value, properties.get(name))
    }


def _is_default(value: object, schema: Any) -> bool:
    """Return whether a value is what an argument has that was not sent: its default, or null."""
    default = cast("dict[str, Any]", schema).get("default") if isinstance(schema, dict) else None
    return value == default


def _encode(values: Mapping[str, Any]) -> str:
    try:
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError, RecursionError):
        return repr(values)


def _is_in(value: object, preview: str) -> bool:
    """Return whether a text, or each of a list of words, can be read in a preview."""
    texts = cast("list[object]", value) if isinstance(value, list) else [value]
    return all(
        isinstance(text, str) and all(line in preview for line in text.splitlines())
        for text in texts
    )
