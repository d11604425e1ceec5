"""Turn what a handler returned into a result of bounded size."""

from __future__ import annotations

from typing import Any

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.value_class import mutable

_SPELLED_NOTE = (
    "[note: the result has numbers that JSON does not have; they are given as text: `NaN` or "
    "`Infinity`]"
)


@mutable
class Bounded:
    """A value that fits the limit.

    `size` is the whole value's size in bytes; `notes` say what was cut.
    """

    data: Any
    size: int
    partial: bool
    notes: tuple[str, ...]


def bound_text(value: Any, cap: int) -> Bounded:
    """Convert a value to JSON, cut to `cap` bytes of UTF-8 on a character boundary.

    Numbers that JSON does not have become texts, with a note.
    """
    notes: tuple[str, ...] = ()
    if type(value) is int:
        text = int.__repr__(value)
    else:
        if type(value) is not str:
            # Not loaded where all results are text.
            from ferrule.tools.json_conversion import to_json_value

            spelled: list[str] = []
            value = to_json_value(value, spelled)
            if spelled:
                notes = (_SPELLED_NOTE,)
        text = value if isinstance(value, str) else encode_json(value)
    if text.isascii() and len(text) <= cap:
        return Bounded(value, len(text), False, notes)
    # A character takes at least one byte, so no more than `cap` of them need to be encoded.
    raw = text[: cap + 1].encode("utf-8", "replace")
    if len(raw) <= cap:
        return Bounded(_clean(value, text, raw), len(raw), False, notes)
    # A value that is cut is no longer JSON: it becomes text, and the note says so.
    head = raw[:cap].decode("utf-8", "ignore")
    size = _size(text)
    return Bounded(head, size, True, (*notes, f"[output truncated at {cap} bytes of {size}]"))


def _size(text: str) -> int:
    """Return the size of a text in UTF-8, counted in pieces.

    Encoded whole it may not fit in memory.
    """
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
    return clean if isinstance(value, str) else parse_json(clean)
