"""Takes lines out of a file of any size without holding more of it than asked for."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from dataclasses import dataclass
from typing import BinaryIO

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.paths import shown
from ferrule.permissions.filesystem.workspace import READ_LIMIT, check_text

_TAIL = 1024 * 1024
"""Bytes at the end of a large file in which the last lines are looked for."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some lines of a file. `first` is the number of the first (0: not counted), `total` of all
    lines.

    `digest` is the SHA-256 of the whole file, None if it was not read as a whole.
    """

    lines: list[bytes]
    first: int
    total: int
    digest: str | None


def lines_between(file: BinaryIO, path: str, first: int, last: int | None) -> Part:
    """Lines `first` to `last` (from 1, inclusive; None: to the end), and a count of all.

    Raises ToolFailed: parse_error for binary, limit if the lines have more than READ_LIMIT bytes.
    """
    _check_start(file, path)
    whole = hashlib.sha256()
    taken: list[bytes] = []
    size = number = 0
    continued = False
    while piece := file.readline(READ_LIMIT + 1):
        whole.update(piece)
        number += not continued
        if first <= number <= (last or number):
            size += len(piece)
            if size > READ_LIMIT:
                raise _too_much(file, path)
            taken.append(piece)
        # A line longer than the limit comes in pieces; it is too much only if it was asked for.
        continued = not piece.endswith(b"\n")
    return Part(taken, first, number, whole.hexdigest())


def last_lines(file: BinaryIO, path: str, count: int) -> Part:
    """The last lines. Of a file over READ_LIMIT only the end is read, and its lines stay without
    numbers.
    """
    _check_start(file, path)
    size = os.fstat(file.fileno()).st_size
    if size <= READ_LIMIT:
        data = file.read(READ_LIMIT)
        found = _split(data)
        kept = list(deque(found, count))
        return Part(kept, len(found) - len(kept) + 1, len(found), hashlib.sha256(data).hexdigest())
    file.seek(size - _TAIL)
    return Part(_split(file.read(_TAIL))[1:][-count:], 0, 0, None)


def _split(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    last = parts.pop()
    return [part + b"\n" for part in parts] + ([last] if last else [])


def _check_start(file: BinaryIO, path: str) -> None:
    check_text(file.read(8192), path)
    file.seek(0)


def _too_much(file: BinaryIO, path: str) -> ToolFailed:
    size = os.fstat(file.fileno()).st_size
    return ToolFailed(
        ErrorType.LIMIT,
        f"{shown(path)} has {size} bytes; at most {READ_LIMIT} can be read at once. "
        "Pass a smaller range in `line_start` and `line_end`, or use `read_file_tail` or "
        "`search_files`",
    )
