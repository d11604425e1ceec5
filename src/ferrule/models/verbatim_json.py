"""Splitting JSON text without re-serialising it, for what a provider must get back byte for byte.

Blocks and items of an answer (signed thinking, encrypted reasoning, results of hosted tools) go
back exactly as they came: a provider checks signatures over them, and its cache compares bytes. So
they are cut out of the text that arrived, kept as text in the journal, and put into the next
request as text.

What is kept is sealed: `{"model": ..., "calls": [ids], "content": [...]}`. The seal opens only for
the model that wrote it and for a message with exactly these calls. In any other case `unseal`
returns None, and the client sends the message's own text and calls instead.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from json.decoder import scanstring  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
from typing import Any, cast

from ferrule.core.calls import encode_json

_BLANKS = " \t\n\r"
_scan_value = json.JSONDecoder().raw_decode
_scan_string: Any = cast(Any, scanstring)


def split_members(text: str) -> dict[str, str]:
    """Split a JSON object into its members, each value as the text it was.

    Raises:
        ValueError: The text is not an object.
    """
    position = _skip_mark(text, 0, "{")
    found: dict[str, str] = {}
    if text[position : position + 1] == "}":
        return found
    while True:
        if text[position : position + 1] != '"':
            raise ValueError("a name must follow")
        name, position = _scan_string(text, position + 1, False)
        start = _skip_mark(text, _skip_blanks(text, position), ":")
        _, position = _scan_value(text, start)
        found[name] = text[start:position]
        position = _skip_blanks(text, position)
        if text[position : position + 1] == "}":
            return found
        position = _skip_mark(text, position, ",")


def split_elements(text: str) -> list[str]:
    """Split a JSON array into its elements, each as the text it was.

    Raises:
        ValueError: The text is not an array.
    """
    position = _skip_mark(text, 0, "[")
    found: list[str] = []
    if text[position : position + 1] == "]":
        return found
    while True:
        _, end = _scan_value(text, position)
        found.append(text[position:end])
        position = _skip_blanks(text, end)
        if text[position : position + 1] == "]":
            return found
        position = _skip_mark(text, position, ",")


def seal(model: str, calls: Sequence[str], content: str, **more: str) -> str:
    """Seal `content` (a JSON array as text) for `ModelAnswered.raw`.

    Args:
        model: The model that wrote it, as `provider:model`.
        calls: Ids of the calls in the content.
        content: A JSON array, as text.
        more: Further members, each JSON text.
    """
    rest = "".join(f",{encode_json(name)}:{value}" for name, value in more.items())
    head = f'{{"model":{encode_json(model)},"calls":{encode_json(list(calls))}'
    return f'{head},"content":{content}{rest}}}'


def unseal(raw: str | None, model: str, calls: Sequence[str]) -> dict[str, str] | None:
    """Return the members of a seal made by this model for these calls; None for anything else."""
    if not raw or not raw.startswith('{"model":'):
        return None
    try:
        found = split_members(raw)
        is_same_model = json.loads(found["model"]) == model
        is_same_calls = json.loads(found["calls"]) == list(calls)
        has_content = bool(found["content"])
    except (ValueError, KeyError, RecursionError):
        return None
    return found if is_same_model and is_same_calls and has_content else None


def _skip_blanks(text: str, position: int) -> int:
    while text[position : position + 1] and text[position] in _BLANKS:
        position += 1
    return position


def _skip_mark(text: str, position: int, mark: str) -> int:
    """Return the position after `mark` and the blanks around it."""
    position = _skip_blanks(text, position)
    if text[position : position + 1] != mark:
        raise ValueError(f"`{mark}` must follow")
    return _skip_blanks(text, position + 1)
