r"""Parts of an artifact: lines, the end, matching lines, a JSON value, rows of CSV.

They work with any store, in bounded memory and time. What is read line by line passes through
memory a piece at a time; the rest of a line longer than `MAX_LINE_BYTES` is dropped, and the result
says so. JSON has to be read as a whole and is therefore limited in size. Text that is not UTF-8 is
read with `\ufffd` in it.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from ferrule.tools.line_matching import PIECE, compile_for_lines, find_hits
from ferrule.tools.safe_patterns import check_length

MAX_LINE_BYTES = 1 << 20
"""Bytes of a line that are kept."""
MAX_JSON_BYTES = 16 << 20
"""Bytes of a JSON text that can be read."""
MAX_MATCHED_BYTES = 65_536
"""Bytes of a line that are searched for a match."""
SECONDS = 10.0
"""How long one reading may take; then its result says where it stopped."""
_MOST_LINES = 512
"""Lines that are matched at once, between two checks of the clock."""


class UnreadableArtifact(ValueError):
    """The artifact cannot be read in this way. The text says why, and which way there is."""


@dataclass(slots=True)
class LinePage:
    """Lines with their numbers, from 1. `next` is the first one that was not read, 0 at the end."""

    found: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    next: int = 0
    out_of_time: bool = False


def split_lines(pieces: Iterable[bytes], skip: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yield the lines after the first `skip`, without line ends, and how many bytes each lost."""
    rest = b""
    dropped = 0
    for piece in pieces:
        if skip:
            # In pieces before the first wanted line, lines are counted, not split.
            ends = piece.count(b"\n")
            if ends < skip:
                skip -= ends
                continue
            piece = piece.split(b"\n", skip)[-1]
            skip = 0
        *whole, last = piece.split(b"\n")
        for line in whole:
            line, rest = rest + line, b""
            yield line[:MAX_LINE_BYTES], dropped + max(0, len(line) - MAX_LINE_BYTES)
            dropped = 0
        rest += last
        if len(rest) > MAX_LINE_BYTES:
            dropped += len(rest) - MAX_LINE_BYTES
            rest = rest[:MAX_LINE_BYTES]
    if rest:
        yield rest, dropped


def read_lines(pieces: Iterable[bytes], first: int, fits: Callable[[str], bool]) -> LinePage:
    """Read lines from number `first` (counted from 1) on, while `fits` accepts another one."""
    read = LinePage()
    for number, (line, dropped) in enumerate(split_lines(pieces, first - 1), first):
        text = _line_text(line, dropped)
        if not fits(text):
            read.next = number
            break
        read.found.append((number, text))
    return read


def read_last_lines(data: bytes, whole: bool, most: int) -> tuple[list[str], bool]:
    """Return the last `most` lines of `data`, and whether the first of them is cut.

    `data` is the end of an artifact; with `whole` it is all there is.
    """
    found = [line.decode("utf-8", "replace") for line, _ in split_lines([data])]
    cut = not whole and len(found) <= most
    return found[-most:], cut


def search_lines(
    pieces: Iterable[bytes],
    pattern: str,
    first: int,
    fits: Callable[[str], bool],
    *,
    seconds: float = SECONDS,
    now: Callable[[], float] = time.monotonic,
) -> LinePage:
    """Read the lines from number `first` on that match an expression.

    The expression is looked for in the first `MAX_MATCHED_BYTES` bytes of a line.
    The time of one match is linear in the line (`tools.safe_patterns`); that of all is limited to
    `seconds`. Raises UnreadableArtifact.
    """
    try:
        check_length(pattern)
        compiled = compile_for_lines(pattern)
    except ValueError as error:
        raise UnreadableArtifact(str(error)) from error
    read = LinePage()
    deadline = now() + seconds
    for number, lines in _number_blocks(split_lines(pieces, first - 1), first):
        if now() > deadline:
            read.next = number
            read.out_of_time = True
            break
        text = b"".join(line[:MAX_MATCHED_BYTES] + b"\n" for line, _ in lines)
        for hit in find_hits(compiled, text, wanted=len(lines)):
            shown = _line_text(*lines[hit.number - 1])
            if not fits(shown):
                read.next = number + hit.number - 1
                return read
            read.found.append((number + hit.number - 1, shown))
    return read


def _number_blocks(
    lines: Iterator[tuple[bytes, int]], first: int
) -> Iterator[tuple[int, list[tuple[bytes, int]]]]:
    """Yield lines in blocks of about `PIECE` bytes, each with the number of its first line."""
    block: list[tuple[bytes, int]] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line[0])
        if size > PIECE or len(block) == _MOST_LINES:
            yield first, block
            first += len(block)
            block, size = [], 0
    if block:
        yield first, block


def _line_text(line: bytes, dropped: int) -> str:
    text = line.removesuffix(b"\r").decode("utf-8", "replace")
    return f"{text} [{dropped} more bytes in this line]" if dropped else text


def read_json_pointer(pieces: Iterable[bytes], size: int, pointer: str) -> Any:
    """Return the value at a JSON pointer (RFC 6901; "" is the whole document).

    Raises UnreadableArtifact, naming the place where the pointer leads no further.
    """
    if size > MAX_JSON_BYTES:
        raise UnreadableArtifact(
            f"{size} bytes of JSON are more than the {MAX_JSON_BYTES} that can be read; use lines "
            f"or "
            "grep"
        )
    try:
        value: Any = json.loads(b"".join(pieces))
    except (ValueError, RecursionError) as error:
        raise UnreadableArtifact(f"it is not JSON ({error}); use lines or grep") from error
    if pointer and not pointer.startswith("/"):
        raise UnreadableArtifact(
            f"`{pointer[:200]}` is not a JSON pointer: it begins with `/`, as in `/items/0/name`"
        )
    where = ""
    for part in pointer.split("/")[1:]:
        value = _resolve_key(value, part.replace("~1", "/").replace("~0", "~"), where or "the top")
        where += f"/{part}"
    return value


def _resolve_key(value: Any, key: str, where: str) -> Any:
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        if key in known:
            return known[key]
        some = ", ".join(f"`{name[:60]}`" for name in list(known)[:20])
        raise UnreadableArtifact(
            f"there is no `{key[:200]}` at {where}; there are: {some or 'no keys'}"
        )
    if isinstance(value, list):
        items = cast("list[Any]", value)
        # An index in RFC 6901: ASCII digits without a leading zero.
        is_index = key.isascii() and key.isdigit() and str(int(key[:12])) == key
        if is_index and int(key) < len(items):
            return items[int(key)]
        raise UnreadableArtifact(
            f"at {where} is a list of {len(items)}; name an index from 0 on, found `{key[:200]}`"
        )
    raise UnreadableArtifact(f"at {where} is a {type(value).__name__}, which has nothing below it")


@dataclass(slots=True)
class RowPage:
    """Rows of a table.

    `next` is the first row that was not read (from 1, the header not counted), 0 at the end.
    """

    columns: list[str]
    rows: list[list[str]] = field(default_factory=list[list[str]])
    next: int = 0
    out_of_time: bool = False


def read_csv_rows(
    pieces: Iterable[bytes],
    first: int,
    fits: Callable[[list[str]], bool],
    *,
    seconds: float = SECONDS,
    now: Callable[[], float] = time.monotonic,
) -> RowPage:
    """Read the header and the rows from number `first` on.

    The delimiter is the one that the header contains most often. Raises UnreadableArtifact.
    """
    texts = _csv_lines(pieces)
    head = next(texts, "")
    reader = csv.reader(_prepend(head, texts), delimiter=guess_delimiter(head))
    deadline = now() + seconds
    try:
        read = RowPage(next(reader, list[str]()))
        for number, row in enumerate(reader, 1):
            if number % _MOST_LINES == 0 and now() > deadline:
                if number < first:
                    # Rows are counted from the start each time: another try would get no further.
                    raise UnreadableArtifact(
                        f"row {first} is too far in to be counted in {seconds:g} s; use lines"
                    )
                read.next = number
                read.out_of_time = True
                break
            if number < first:
                continue
            if not fits(row):
                read.next = number
                break
            read.rows.append(row)
    except csv.Error as error:
        raise UnreadableArtifact(f"it cannot be read as CSV ({error}); use lines") from error
    return read


def guess_delimiter(head: str) -> str:
    """Return what separates the columns of a header."""
    return max(",\t;|", key=head.count)


def _csv_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    for number, (line, dropped) in enumerate(split_lines(pieces)):
        if dropped:
            raise UnreadableArtifact(
                f"row {number} is longer than {MAX_LINE_BYTES} bytes; use artifact_fetch"
            )
        text = line.decode("utf-8", "replace") + "\n"
        yield text.removeprefix("\ufeff") if number == 0 else text


def _prepend(head: str, texts: Iterator[str]) -> Iterator[str]:
    if head:
        yield head
        yield from texts
