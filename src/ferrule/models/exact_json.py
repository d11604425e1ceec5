"""JSON text cut into its parts without being spelled anew, and what a provider must get back byte
for byte.

Blocks and items of an answer (signed thinking, encrypted reasoning, results of hosted tools) go
back as they came: a provider checks signatures over them, and its cache compares what it sees. So
they are cut out of the text that arrived, kept as text in the journal, and put into the next
request as text.

What is kept is sealed: `{"wire": ..., "calls": [ids], "content": [...]}`. Another wire, or a
history in which other calls stand than the ones the blocks hold, does not open the seal and is sent
what the message itself says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from json.decoder import scanstring  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
from typing import Any, cast

from ferrule.core.calls import compact

_BLANK = " \t\n\r"
_scan = json.JSONDecoder().raw_decode
_text: Any = cast(Any, scanstring)


def members(text: str) -> dict[str, str]:
    """The members of a JSON object, each value as the text it was. Raises ValueError if it is no
    object.
    """
    at = _past(text, 0, "{")
    found: dict[str, str] = {}
    if text[at : at + 1] == "}":
        return found
    while True:
        if text[at : at + 1] != '"':
            raise ValueError("a name must follow")
        name, at = _text(text, at + 1, False)
        start = _past(text, _skip(text, at), ":")
        _, at = _scan(text, start)
        found[name] = text[start:at]
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return found
        at = _past(text, at, ",")


def elements(text: str) -> list[str]:
    """The elements of a JSON array, each as the text it was. Raises ValueError if it is no
    array.
    """
    at = _past(text, 0, "[")
    found: list[str] = []
    if text[at : at + 1] == "]":
        return found
    while True:
        _, end = _scan(text, at)
        found.append(text[at:end])
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            return found
        at = _past(text, at, ",")


def utf8(text: str) -> bytes:
    """As bytes; a lone surrogate (half an emoji out of a broken stream) becomes `?`."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def seal(wire: str, calls: Sequence[str], content: str, **more: str) -> str:
    """`content` (a JSON array as text) for `ModelAnswered.raw`; `more` are further members, JSON
    text each.
    """
    rest = "".join(f",{compact(name)}:{value}" for name, value in more.items())
    return f'{{"wire":{compact(wire)},"calls":{compact(list(calls))},"content":{content}{rest}}}'


def unseal(raw: str | None, wire: str, calls: Sequence[str]) -> dict[str, str] | None:
    """The members of a seal that this wire made for these calls; None for any other, and for what
    is none.
    """
    if not raw or not raw.startswith('{"wire":'):
        return None
    try:
        found = members(raw)
        same = json.loads(found["wire"]) == wire and json.loads(found["calls"]) == list(calls)
        return found if same and found["content"] else None
    except (ValueError, KeyError, RecursionError):
        return None


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _BLANK:
        at += 1
    return at


def _past(text: str, at: int, mark: str) -> int:
    """The place after `mark` and the blanks around it."""
    at = _skip(text, at)
    if text[at : at + 1] != mark:
        raise ValueError(f"`{mark}` must follow")
    return _skip(text, at + 1)
