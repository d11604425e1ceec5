"""The same complaint about many lines of a file, said once with all its places.

    a.py:5: error: "x" is not defined          a.py:5: error: "x" is not defined [also at 9, 13]
    a.py:9: error: "x" is not defined      ->
    a.py:13: error: "x" is not defined

Type checkers and linters write a line, or a line and others below it, for each place. Nothing is
lost: file, place and words of each can still be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LEAST_EQUAL = 3
"""Places from which on a complaint is said once."""
_WORDS = r"(?P<words>(?:error|warning|note|info|information|hint)\b.*|[A-Z]{1,4}\d{2,5}\b.*)"
_FORMS = (
    # mypy, ruff and flake8 in one line each, gcc; pyright indents it and has a dash.
    re.compile(r"(?P<file>\s*[^\s:][^:]*):(?P<place>\d+(?::\d+)?)(?P<mark>: | - )" + _WORDS),
    # tsc without a terminal.
    re.compile(r"(?P<file>[^\s(][^(]*)\((?P<place>\d+,\d+)\)(?P<mark>: )" + _WORDS),
    # eslint: the file is a line of its own above.
    re.compile(r"(?P<file>)\s+(?P<place>\d+:\d+)(?P<mark>\s+)" + _WORDS),
)


@dataclass(slots=True)
class _Complaint:
    """What is said of one place, or of several: the lines of the first, the other places."""

    lines: list[str]
    place: str
    others: list[str] = field(default_factory=list[str])

    def merge_lines(self) -> Iterator[str]:
        head, *below = self.lines
        yield f"{head} [also at {', '.join(self.others)}]"
        yield from below


def merge_equal(lines: Sequence[str]) -> list[str]:
    """Return the lines, with complaints that only differ in their place as one."""
    items = list(_read_items(lines))
    groups: dict[tuple[object, ...], list[_Complaint]] = {}
    for key, item in items:
        if key is not None:
            groups.setdefault(key, []).append(item)
    merged: list[str] = []
    for key, item in items:
        group = groups[key] if key is not None else []
        if len(group) < LEAST_EQUAL:
            merged += item.lines
        elif item is group[0]:
            item.others = [other.place for other in group[1:]]
            merged += item.merge_lines()
    return merged


def _read_items(lines: Sequence[str]) -> Iterator[tuple[tuple[object, ...] | None, _Complaint]]:
    """Yield complaints with all that must be equal, and other lines with None."""
    section = 0
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        found = _match(line)
        if found is None:
            section += 0 if line.startswith((" ", "\t")) else 1
            yield None, _Complaint([line], "")
            continue
        below: list[str] = []
        while number < len(lines) and _belongs(lines[number]):
            below.append(lines[number])
            number += 1
        # A line between them, such as the name of the next file, ends what can be one.
        key = (section, found["file"], found["mark"].strip(), found["words"], *below)
        yield key, _Complaint([line, *below], found["place"])


def _match(line: str) -> re.Match[str] | None:
    return next((found for form in _FORMS if (found := form.fullmatch(line))), None)


def _belongs(line: str) -> bool:
    return bool(line.strip()) and line.startswith((" ", "\t")) and _match(line) is None
