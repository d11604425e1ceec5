"""Which lines of a text match an expression of `safe_patterns`.

Lines end with LF; a CR before it belongs to the line end. Bytes that are not UTF-8 match nothing.

RE2 cannot be stopped while it matches, so a text is matched in pieces of whole lines, and between
two of them it is asked whether there is time left. A line that is longer than a piece is one piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ferrule.core.value_class import frozen

from .safe_patterns import compile_pattern

PIECE = 256 * 1024
"""Bytes of a piece, and up to the end of the line that they end in."""


class OutOfTime(Exception):
    """There was no time left for all lines."""


@frozen
class Hit:
    """A line that matches: `number` from 1, `start` the first matching character."""

    number: int
    start: int


def compile_for_lines(pattern: str, *, ignore_case: bool = False) -> Any:
    """Compile an expression for `find_hits`.

    Raises:
        PatternError: It is no expression, or too large.
    """
    return compile_pattern(
        pattern.encode("utf-8", "surrogatepass"),
        ignore_case=ignore_case,
        multiline=True,
        within_lines=True,
    )


def find_hits(
    pattern: Any, content: bytes, *, wanted: int, is_over: Callable[[], bool] = lambda: False
) -> list[Hit]:
    """Return the lines of `content` that match, at most `wanted`.

    Args:
        pattern: What `compile_for_lines` returned.
        content: The text, in UTF-8.
        wanted: Most hits.
        is_over: Whether to stop; never, if left out.

    Raises:
        OutOfTime: `is_over` said so before the end.
    """
    hits: list[Hit] = []
    number = 1
    for piece in _split_pieces(content):
        if is_over():
            raise OutOfTime
        hits += _find_in_piece(pattern, piece, number, wanted - len(hits))
        if len(hits) >= wanted:
            break
        number += piece.count(b"\n")
    return hits


_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
"""Half of a character in the form of UTF-8, which RE2 takes for a character and UTF-8 forbids."""


def _split_pieces(content: bytes) -> Iterator[bytes]:
    if b"\xed" in content:
        content = _SURROGATE.sub(b"\xff\xff\xff", content)
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n")
        if content.endswith(b"\r"):
            content = content[:-1] + b"\n"
    begin = 0
    while begin < len(content):
        end = content.find(b"\n", begin + PIECE) + 1 or len(content)
        yield content[begin:end]
        begin = end


def _find_in_piece(pattern: Any, piece: bytes, number: int, wanted: int) -> list[Hit]:
    hits: list[Hit] = []
    begin = 0
    while begin < len(piece) and len(hits) < wanted:
        match = pattern.search(piece, begin)
        # Behind the last line end there is no line.
        if match is None or (match.start() == len(piece) and piece.endswith(b"\n")):
            break
        number += piece.count(b"\n", begin, match.start())
        line = piece.rfind(b"\n", 0, match.start()) + 1
        before = piece[line : match.start()]
        hits.append(Hit(number, len(before.decode("utf-8", "surrogateescape"))))
        begin = piece.find(b"\n", match.start()) + 1 or len(piece)
        number += 1
    return hits
