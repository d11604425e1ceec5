"""Text as lines: replacing and inserting lines, exact to the byte. No I/O.

A line ends with LF; the CR of a CRLF file stays with its line, and nothing else (form feed, U+2028)
breaks lines. The rules for edits:

* New content is a number of whole lines: the newline at its end may be there or not, the result is
  the same.
* A text that ended with a newline still does, and one that did not still does not (except a text
  that was empty, which takes the new content as it is).
* In a text whose lines mostly end with CRLF, new lines do too.
* All other bytes stay as they are: `decode` and `encode` carry bytes that are not UTF-8 through
  unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.lazy_patterns import compile_lazily

MAX_SHOWN_LINE = 2000
"""Characters of a line that `cut_middle` shows."""
_LONE_LF = compile_lazily(r"(?<!\r)\n")


def decode(data: bytes) -> str:
    """Decode bytes to a text that `encode` turns back into the same bytes, whatever they were."""
    return data.decode(errors="surrogateescape")


def encode(text: str) -> bytes:
    """Encode a text from `decode`, which may contain edits that `check_unicode` passed."""
    return text.encode(errors="surrogateescape")


def check_unicode(text: str, parameter: str) -> str:
    """Return a text from a model. Raises ToolFailed if it is not valid Unicode.

    Half a surrogate pair would otherwise become a raw byte.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, f"`{parameter}` is not valid Unicode text"
        ) from None
    return text


def is_unicode(text: str) -> bool:
    """Return whether a text from `decode` is UTF-8 throughout."""
    return not any("\udc80" <= character <= "\udcff" for character in text)


def check_encoding(old: str, new: str, where: str) -> None:
    """Refuse an edit that would put characters of UTF-8 into a file of another encoding.

    Which encoding that is cannot be known, and a program would read the new characters wrong.

    Args:
        old: The text from `decode`.
        new: What it would become.
        where: The file's name for messages.

    Raises:
        ToolFailed: The file is not UTF-8, and the edit adds a character beyond ASCII.
    """
    if new.isascii() or is_unicode(old):
        return
    known = set(old)
    added = [one for one in new if not one.isascii() and is_unicode(one) and one not in known]
    if added:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED,
            f"{where} is not UTF-8, so `{added[0]}` cannot be written into it; nothing was "
            "written. Use ASCII characters alone, or convert the file first, with its encoding: "
            "`iconv -f WINDOWS-1252 -t UTF-8`",
        )


def split_lines(text: str) -> list[str]:
    """Split a text into lines with their ends; the last may have none. Joined they are the text."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def detect_line_ending(text: str) -> str:
    """Return the line ending that most lines have: CRLF or LF."""
    crlf = text.count("\r\n")
    return "\r\n" if crlf * 2 > text.count("\n") else "\n"


def convert_line_endings(text: str, end: str) -> str:
    """Convert new text to the line ending of a file. LF files take text as it comes."""
    return _LONE_LF.sub("\r\n", text) if end == "\r\n" else text


def replace_lines(text: str, first: int, last: int, new: str) -> str:
    """Replace lines `first` to `last` of a text (from 1, inclusive) by those of `new`.

    An empty `new` deletes them; `last = first - 1` inserts before `first`. The caller has checked
    the range.
    """
    lines = split_lines(text)
    end = detect_line_ending(text)
    before = "".join(lines[: first - 1])
    after = "".join(lines[last:])
    block = convert_line_endings(new, end)
    if block and after and not block.endswith("\n"):
        block += end
    if block and before and not before.endswith("\n"):
        before += end
    result = before + block + after
    if not text or not result:
        return result
    if text.endswith("\n"):
        return result if result.endswith("\n") else result + end
    return result.removesuffix("\n").removesuffix("\r") if result.endswith("\n") else result


def number_lines(lines: Iterable[str], first: int = 1) -> str:
    """Format lines as `N: line`, one below the other, without their own line ends."""
    without_ends = [line.removesuffix("\n").removesuffix("\r") for line in lines]
    return "\n".join([f"{number}: {line}" for number, line in enumerate(without_ends, first)])


def cut_middle(line: str) -> str:
    """Cut the middle out of a long line and say how long it is. Its end of line stays."""
    if len(line) <= MAX_SHOWN_LINE:
        return line
    text = line.rstrip("\r\n")
    if len(text) <= MAX_SHOWN_LINE:
        return line
    head = MAX_SHOWN_LINE * 3 // 4
    tail = MAX_SHOWN_LINE - head
    left_out = len(text) - MAX_SHOWN_LINE
    mark = f"[... {left_out:,} of {len(text):,} characters left out ...]"
    return f"{text[:head]}{mark}{text[-tail:]}{line[len(text) :]}"
