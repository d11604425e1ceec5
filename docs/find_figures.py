"""Print measured figures without their command: `make lab NAME=figures ARGS="docs/speed.md"`.

A help for writers, not a gate, like `find_habits.py`, whose pages and prose it reads. A figure is a
share, a ratio, a time that something takes, or a number after *about*; a default or a bound is not
one. It has its command if its section, from one heading to the next, names a program that prints
it or a test that holds it. A figure that nothing prints any more should go.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from find_habits import FENCE, ROOT, find_pages

FIGURE = re.compile(
    r"\b(?:about|some|around|roughly|nearly) \d[\d.,]*(?! ?(?:and|or)\b)(?: [a-zA-Z/]+)?"
    r"|\b\d[\d.,]*(?: to \d[\d.,]*)? ?(?:%|ms\b|times (?:as|the)\b|(?:runs|events|deltas|calls)/s\b)"
    r"|\b(?:half|a third|a quarter|a tenth|a fifth) (?:of )?an? (?:second|minute|hour)\b"
    r"|\b(?:less than|within) a (?:second|minute|hour)\b|\ba (?:minute|second) and a half\b",
    re.IGNORECASE,
)
COMMAND = re.compile(
    r"make (?:lab|demo|test|readme|release)|\bpython [\w/]+\.py|[\w/]+\.py`|tests?/|\ba test\b"
    r"|<!-- (?:figures|table|tables|reported|turns|faults|outputs|bench|peers|growth)",
)
HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)


def split_sections(text: str) -> Iterator[tuple[int, str]]:
    """Yield each part of a page between two headings, with its first line."""
    starts = [0, *(match.start() for match in HEADING.finditer(text)), len(text)]
    for start, end in itertools.pairwise(starts):
        if end > start:
            yield text.count("\n", 0, start) + 1, text[start:end]


def find_figures(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and words of each figure whose section names no command."""
    # Blocks keep their lines, so that a heading in one does not begin a section.
    plain = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    plain = re.sub(r"`[^`\n]*`", "`", plain)
    for line, section in split_sections(plain):
        last = line + section.count("\n")
        whole = "\n".join(text.splitlines()[line - 1 : last])
        if COMMAND.search(whole):
            continue
        for match in FIGURE.finditer(section):
            yield line + section.count("\n", 0, match.start()), " ".join(match[0].split())


def main(names: list[str]) -> int:
    """Print the places and their number, and return 0, whatever was found."""
    count = 0
    for path in find_pages(names):
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path)
        for line, words in find_figures(path.read_text(encoding="utf-8")):
            print(f"{shown}:{line}: {words}")
            count += 1
    print(f"\n{count} figures without a command")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
