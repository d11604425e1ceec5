"""Finds the lines that match. A script of its own: `python -I -S -W ignore matcher.py`.

It is a separate process because an expression with nested repeats can take years on one line. It
ends itself with status `EXIT_STUCK` if one line takes more than `SECONDS_PER_LINE` of processor
time, and its parent ends it when the whole search has had its time.

Standard input: the expression (length in 4 bytes, UTF-8), one byte `i` or `-` (ignore case or not),
the number of matches wanted (4 bytes), then files: length (4 bytes) and content. Standard output:
for each file one line of `LINE:CHARACTER` for its matches, both as places in the text (lines from
1, characters from 0), separated by blanks; an empty line for none. Numbers are big-endian.

Lines end with LF; a CR before it belongs to the line end. Bytes that are not UTF-8 are characters
of their own that only `.` and negated classes match.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from types import FrameType

SECONDS_PER_LINE = 0.25
EXIT_STUCK = 75


def main() -> None:
    """Read everything from standard input, then answer file by file."""
    data = sys.stdin.buffer.read()
    size = int.from_bytes(data[:4], "big")
    flags = re.IGNORECASE if data[4 + size : 5 + size] == b"i" else 0
    search = re.compile(data[4 : 4 + size].decode(), flags).search
    wanted = int.from_bytes(data[5 + size : 9 + size], "big")
    position = 9 + size
    lines_begun = _start_watchdog()
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        found: list[str] = []
        for number, line in enumerate(split_lines(data[position + 4 : end]), 1):
            lines_begun[0] += 1
            match = search(line) if wanted else None
            if match:
                found.append(f"{number}:{match.start()}")
                wanted -= 1
        # Unbuffered: if a later file never ends, the answers before it have been sent.
        os.write(1, " ".join(found).encode() + b"\n")
        position = end


def _start_watchdog() -> list[int]:
    """Return a counter of the lines begun; if it stands still, this process ends."""
    lines_begun = [0]
    seen = [0]

    def check(number: int, frame: FrameType | None) -> None:
        # `re` lets signal handlers run while it matches.
        if lines_begun[0] == seen[0] and lines_begun[0]:
            os._exit(EXIT_STUCK)
        seen[0] = lines_begun[0]

    signal.signal(signal.SIGVTALRM, check)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_PER_LINE / 2, SECONDS_PER_LINE / 2)
    return lines_begun


def split_lines(data: bytes) -> Iterator[str]:
    """Yield the lines of a text without their ends."""
    pieces = data.decode("utf-8", "surrogateescape").split("\n")
    if not pieces[-1]:
        pieces.pop()
    for piece in pieces:
        yield piece[:-1] if piece.endswith("\r") else piece


if __name__ == "__main__":
    main()
