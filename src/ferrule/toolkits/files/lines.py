"""Text as lines: what it means to replace or insert some, to the byte. No I/O.

A line ends with LF; the CR of a CRLF file stays with its line, and nothing else (form feed, U+2028)
breaks lines. The rules for edits:

* New content is a number of whole lines: the newline at its end may be there or not, the result is
  the same.
* A text that ended with a newline still does, and one that did not still does not (but for a
  text that was empty, which takes the new content as it is).
* In a text whose lines mostly end with CRLF, new lines do too.
* All other bytes stay as they are: `decode` and `encode` carry bytes that are not UTF-8 through
  unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed

_LONE_LF = re.compile(r"(?<!\r)\n")


def decode(data: bytes) -> str:
    """Text that `encode` turns back into the same bytes, whatever they were."""
    return data.decode(errors="surrogateescape")


def encode(text: str) -> bytes:
    """The bytes of a text from `decode`, with edits of a `checked` text in it."""
    return text.encode(errors="surrogateescape")


def checked(text: str, parameter: str) -> str:
    """Text from a model, refused if it is no Unicode text: half a surrogate pair would become a raw
    byte.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, f"`{parameter}` is not valid Unicode text"
        ) from None
    return text


def split(text: str) -> list[str]:
    """The lines with their ends; the last may have none. Joined they are the text."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def ending(text: str) -> str:
    """What most lines end with: CRLF or LF."""
    crlf = text.count("\r\n")
    return "\r\n" if crlf * 2 > text.count("\n") else "\n"


def with_ending(text: str, end: str) -> str:
    """New text for a file whose lines end so. LF files take text as it comes."""
    return _LONE_LF.sub("\r\n", text) if end == "\r\n" else text


def replaced(text: str, first: int, last: int, new: str) -> str:
    """`text` with lines `first` to `last` (from 1, inclusive) replaced by those of `new`; none if
    it is empty.

    `last = first - 1` inserts before `first`. The caller has checked the range.
    """
    lines, end = split(text), ending(text)
    before, after = "".join(lines[: first - 1]), "".join(lines[last:])
    block = with_ending(new, end)
    if block and after and not block.endswith("\n"):
        block += end
    if block and before and not before.endswith("\n"):
        before += end
    result = before + block + after
    if not text or not result:
        return result
    return _closed(result, end) if text.endswith("\n") else _opened(result, text)


def _closed(result: str, end: str) -> str:
    return result if result.endswith("\n") else result + end


def _opened(result: str, text: str) -> str:
    if not result.endswith("\n") or text.endswith("\n"):
        return result
    return result.removesuffix("\n").removesuffix("\r")


def numbered(lines: Iterable[str], first: int = 1) -> str:
    """`N: line`, one below the other, without their own line ends."""
    return "\n".join(
        f"{n}: {line.removesuffix(chr(10)).removesuffix(chr(13))}"
        for n, line in enumerate(lines, first)
    )
