"""Turn what a handler returned into a result of bounded size."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

from ferrule.core.calls import encode_json


def jsonable(value: Any) -> Any:
    """Return a value as JSON values.

    Text and JSON values stay as they are; dataclasses, models, sets, paths and the like are
    converted.

    Raises:
        TypeError: The value has no faithful JSON form (bytes, open files, arbitrary objects).
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value)
        return {str(key): jsonable(item) for key, item in items.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in cast("list[Any]", value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: jsonable(getattr(value, f.name)) for f in dataclasses.fields(value)}
    other: Any = value
    if isinstance(other, Enum):
        return jsonable(other.value)
    if hasattr(other, "model_dump"):
        return other.model_dump(mode="json")
    if hasattr(other, "isoformat"):
        return other.isoformat()
    if hasattr(other, "__fspath__"):
        return str(other.__fspath__())
    raise TypeError(
        f"a {type(value).__name__} cannot be written as JSON; return text, numbers, lists or dicts"
    )


@dataclasses.dataclass(slots=True)
class Bounded:
    """A value that fits the limit.

    `size` is the whole value's size in bytes; `notes` say what was cut.
    """

    data: Any
    size: int
    partial: bool
    notes: tuple[str, ...]


def bound_text(value: Any, cap: int) -> Bounded:
    """Convert a value to JSON (`jsonable`), cut to `cap` bytes of UTF-8 on a character boundary."""
    if type(value) is int:
        text = int.__repr__(value)
    else:
        if type(value) is not str:
            value = jsonable(value)
        text = value if isinstance(value, str) else encode_json(value)
    if text.isascii() and len(text) <= cap:
        return Bounded(value, len(text), False, ())
    # A character takes at least one byte, so no more than `cap` of them need to be encoded.
    raw = text[: cap + 1].encode("utf-8", "replace")
    if len(raw) <= cap:
        return Bounded(_clean(value, text, raw), len(raw), False, ())
    # A value that is cut is no longer JSON: it becomes text, and the note says so.
    head = raw[:cap].decode("utf-8", "ignore")
    size = _size(text)
    return Bounded(head, size, True, (f"[output truncated at {cap} bytes of {size}]",))


def _size(text: str) -> int:
    """Return the size of a text in UTF-8, counted in pieces.

    Encoded whole it may not fit in memory.
    """
    if text.isascii():
        return len(text)
    piece = 1 << 20
    return sum(
        len(text[start : start + piece].encode("utf-8", "replace"))
        for start in range(0, len(text), piece)
    )


def _clean(value: Any, text: str, raw: bytes) -> Any:
    """Replace lone surrogates (from file names that are not UTF-8) by `?`.

    They cannot be journaled or sent.
    """
    clean = raw.decode("utf-8")
    if clean == text:
        return value
    return clean if isinstance(value, str) else json.loads(clean)
