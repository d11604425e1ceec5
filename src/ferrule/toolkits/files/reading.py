"""Read lines of a file of any size without holding more of it than asked for; or a picture."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from typing import BinaryIO

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.media import Media
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import READ_LIMIT, check_text
from ferrule.tools.media_types import MAX_BYTES, MediaInvalid, detect_type

MEDIUM_START = 1024
"""Bytes at the beginning of a file that tell whether it is a picture or the like."""
WHOLE_BYTES = 48 * 1024
"""A file up to this size is shown whole."""
PAGE_BYTES = 18 * 1024
"""What is shown of a larger one that is read without a range."""
RANGE_BYTES = 60 * 1024
"""What is shown of a range."""
_TAIL_BYTES = 1024 * 1024
"""Bytes at the end of a large file that are searched for the last lines."""


@frozen
class FilePart:
    """Some lines of a file.

    `first` is the number of the first line (0: not counted), `total` the number of all lines.
    `digest` is the SHA-256 of the whole file, None if it was not read as a whole.
    """

    lines: list[bytes]
    first: int
    total: int
    digest: str | None


def choose_room(file: BinaryIO, *, has_range: bool) -> int:
    """Return how many bytes of a file a reading shows."""
    if has_range:
        return RANGE_BYTES
    return WHOLE_BYTES if os.fstat(file.fileno()).st_size <= WHOLE_BYTES else PAGE_BYTES


def read_lines(
    file: BinaryIO,
    path: str,
    first: int,
    last: int | None,
    *,
    room: int = READ_LIMIT,
    line_size: int = READ_LIMIT,
) -> FilePart:
    """Read lines `first` to `last` (from 1, inclusive; None: to the end), and count all.

    They end before the line with which they would have more than `room` bytes with their numbers,
    where at most `line_size` of a line count; the first is read whatever its size.

    Raises:
        ToolFailed: `parse_error` for a binary file, `limit` if the lines exceed READ_LIMIT bytes.
    """
    _check_is_text(file, path)
    is_full = False
    whole = hashlib.sha256()
    taken: list[bytes] = []
    size = 0
    raw = 0
    number = 0
    continued = False
    while piece := file.readline(READ_LIMIT + 1):
        whole.update(piece)
        number += not continued
        if first <= number <= (last or number):
            shown = min(len(piece), line_size) + len(f"{number}: ")
            is_full = is_full or bool(taken and size + shown > room)
            if not is_full:
                size += shown
                raw += len(piece)
                if raw > READ_LIMIT:
                    raise _too_much(file, path)
                taken.append(piece)
        # A line longer than the limit comes in pieces; it is too much only if it was asked for.
        continued = not piece.endswith(b"\n")
    return FilePart(taken, first, number, whole.hexdigest())


def read_medium(file: BinaryIO, path: str) -> Media:
    """Return a picture, a sound or a PDF.

    Raises:
        ToolFailed: `parse_error` if it is cut, moving, too large, or none after all.
    """
    data = file.read(MAX_BYTES + 1)
    try:
        detect_type(data, quote_path(path))
    except MediaInvalid as error:
        raise ToolFailed(ErrorType.PARSE_ERROR, str(error)) from error
    return Media(data, name=path.rpartition("/")[2])


def read_last_lines(file: BinaryIO, path: str, count: int) -> FilePart:
    """Read the last lines.

    Of a file over READ_LIMIT only the end is read, and its lines have no numbers.
    """
    _check_is_text(file, path)
    size = os.fstat(file.fileno()).st_size
    if size <= READ_LIMIT:
        data = file.read(READ_LIMIT)
        found = _split(data)
        kept = list(deque(found, count))
        first = len(found) - len(kept) + 1
        return FilePart(kept, first, len(found), hashlib.sha256(data).hexdigest())
    file.seek(size - _TAIL_BYTES)
    # The first line may begin before the part that was read.
    complete = _split(file.read(_TAIL_BYTES))[1:]
    return FilePart(complete[-count:], 0, 0, None)


def _split(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    last = parts.pop()
    return [part + b"\n" for part in parts] + ([last] if last else [])


def _check_is_text(file: BinaryIO, path: str) -> None:
    check_text(file.read(8192), path)
    file.seek(0)


def _too_much(file: BinaryIO, path: str) -> ToolFailed:
    size = os.fstat(file.fileno()).st_size
    return ToolFailed(
        ErrorType.LIMIT,
        f"{quote_path(path)} has {size} bytes; at most {READ_LIMIT} can be read at once. "
        "Pass a smaller range in `line_start` and `line_end`, or use `search_files`",
    )
