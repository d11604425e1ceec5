"""Decode JSON as models write it: strictly first, then with repairs that lose nothing.

Each repair is reported. Repaired are raw line breaks in strings, single quotes,
`True`/`False`/`None`, commas before a closing bracket, and backslashes that escape nothing. What is
missing (quotes, brackets, values) is not made up.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from ferrule.core.calls import encode_json

from .brackets import find_closing_bracket


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
_SPACE = re.compile(r"\s*")
_TOKEN = re.compile(
    r"""(?P<double>"(?:[^"\\]|\\.)*") | (?P<single>'(?:[^'\\]|\\.)*') |
        (?P<word>\b(?:True|False|None)\b) | (?P<comma>,(?=\s*[}\]])) | (?P<open>["'])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r'\\(u[0-9a-fA-F]{4}|.)|(")|([\x00-\x1f])', re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null"}


def decode_strictly(text: str, at: int = 0) -> tuple[Any, int] | None:
    """Return the JSON value at an offset and where it ends, or None.

    White space before it is skipped.
    """
    start = _SPACE.match(text, at)
    try:
        return _DECODER.raw_decode(text, start.end() if start else at)
    except (ValueError, RecursionError):
        return None


def decode_leniently(text: str) -> tuple[Any, list[str]] | None:
    """Return the one value that a text holds, and the repairs.

    None if it cannot be decoded without guessing.
    """
    text = text.strip()
    found = decode_strictly(text)
    if found is not None and found[1] == len(text):
        return found[0], []
    repaired = _repair(text)
    if repaired is None:
        return None
    mended, repairs = repaired
    found = decode_strictly(mended)
    if found is None or found[1] != len(mended):
        return None
    return found[0], repairs


def decode_leniently_at(text: str, at: int) -> tuple[Any, int, list[str]] | None:
    """Return the value at an offset, where it ends, and the repairs, or None.

    Like `decode_strictly`, but an object or a list that is only nearly JSON is repaired.
    """
    found = decode_strictly(text, at)
    if found is not None:
        return found[0], found[1], []
    start = _SPACE.match(text, at)
    begin = start.end() if start else at
    end = find_closing_bracket(text, begin)
    if end is None:
        return None
    decoded = decode_leniently(text[begin:end])
    if decoded is None:
        return None
    value, repairs = decoded
    return value, end, repairs


def _repair(text: str) -> tuple[str, list[str]] | None:
    """Return a text that may be JSON, and the repairs; None where a quote never closes."""
    pieces: list[str] = []
    repairs: set[str] = set()
    at = 0
    for match in _TOKEN.finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        token = match.group()
        if match.lastgroup == "open":
            return None
        if match.lastgroup == "comma":
            repairs.add("a comma before a closing bracket")
        elif match.lastgroup == "word":
            repairs.add("Python's words for true, false and null")
            pieces.append(_WORDS[token])
        else:
            is_single = match.lastgroup == "single"
            pieces.append(_repair_string(token[1:-1], single=is_single, repairs=repairs))
    pieces.append(text[at:])
    return "".join(pieces), sorted(repairs)


def _repair_string(inner: str, *, single: bool, repairs: set[str]) -> str:
    """Return a string's text as JSON, and add to the repairs."""
    if single:
        repairs.add("single quotes")

    def mend(match: re.Match[str]) -> str:
        escaped, quote, control = match.group(1), match.group(2), match.group(3)
        if quote:
            return '\\"'
        if control:
            repairs.add("raw line breaks or tabs in a string")
            return f"\\u{ord(control):04x}"
        if escaped == "'":
            repairs.add("an escaped apostrophe")
            return "'"
        if escaped[0] in '"\\/bfnrt' or len(escaped) == 5:
            return match.group()
        if escaped in "uxUN\n":
            return match.group()  # an escape of Python: what it stands for would be a guess
        repairs.add("a backslash that escapes nothing")
        return "\\" + match.group()

    return '"' + _ESCAPE.sub(mend, inner) + '"'


def encode(value: Any) -> str:
    """Encode a value as compact JSON.

    Lone halves of a surrogate pair stay escaped, since they have no UTF-8.
    """
    text = encode_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def encode_arguments(value: Any) -> str:
    """Return arguments as a call carries them.

    An object is encoded, text stays as it is, and nothing becomes `{}`.
    """
    if value is None or value == "":
        return "{}"
    return value if isinstance(value, str) else encode(value)


def as_object(value: object) -> dict[str, Any] | None:
    """Return the value if it is a JSON object, or None."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    """Return the value if it is a JSON list, or None."""
    return cast("list[Any]", value) if isinstance(value, list) else None
