"""Rows of a search: how matching lines are shown to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from unicodedata import category

WIDTH = 400
"""Characters of a line that are shown; the rest is cut around the match, and the cut is marked."""
NAMES = 20
"""File names that are listed at the most."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file. `number` counts from 1; a row that is not a `match` is context.

    `column` is the character of the line where the match begins, counted from 1; 0 where there is
    none.
    """

    path: str
    number: int
    text: str
    match: bool = True
    column: int = 0

    def shown(self) -> str:
        """`file:line:text`, context as `file-line-text` (the form of grep)."""
        mark = ":" if self.match else "-"
        return f"{printable(self.path)}{mark}{self.number}{mark}{self.text}"


@dataclass(slots=True)
class Found:
    """What a search came to. Counts are of files, but for `matches`."""

    rows: list[Row] = field(default_factory=list[Row])
    names: list[str] = field(default_factory=list[str])
    matches: int = 0
    searched: int = 0
    large: int = 0
    withheld: list[str] = field(default_factory=list[str])
    unreadable: int = 0
    warnings: list[str] = field(default_factory=list[str])


def cut(line: str, start: int) -> str:
    """The part of a line around character `start`, printable."""
    if len(line) <= WIDTH:
        return printable(line)
    begin = max(0, min(start - WIDTH // 4, len(line) - WIDTH))
    end = begin + WIDTH
    return f"{'…' * bool(begin)}{printable(line[begin:end])}{'…' * (end < len(line))}"


def printable(text: str) -> str:
    """Control characters and bytes that are no UTF-8 become U+FFFD: a row must stay one row."""
    if text.isprintable():
        return text
    return "".join(
        c if c == "\t" or c.isprintable() or category(c) == "Zs" else "\ufffd" for c in text
    )


def report(found: Found, headline: str) -> str:
    """The whole answer: headline, names of files, rows in groups of files, counts, warnings."""
    parts = [headline]
    if found.names:
        more = f"\n(and {len(found.names) - NAMES} more)" if len(found.names) > NAMES else ""
        parts.append(
            "file names that match:\n" + "\n".join(map(printable, found.names[:NAMES])) + more
        )
    parts += _groups(found.rows)
    parts.append(_counts(found))
    return "\n\n".join(parts)


def _groups(rows: Sequence[Row]) -> list[str]:
    groups: list[list[str]] = []
    last = ("", 0)
    for row in rows:
        if not groups or row.path != last[0]:
            groups.append([])
        elif row.number > last[1] + 1 and any(not r.match for r in rows):
            groups[-1].append("--")
        groups[-1].append(row.shown())
        last = (row.path, row.number)
    return ["\n".join(group) for group in groups]


def _counts(found: Found) -> str:
    files = len({row.path for row in found.rows})
    first = (
        f"{_many(found.matches, 'match', 'matches')} in {_many(files, 'file')} "
        f"({_many(found.searched, 'file')} searched)"
    )
    notes = [
        (found.large, "larger than 10 MB skipped"),
        (len(found.withheld), "not searched because tools may not read it or what is in it"),
        (found.unreadable, "skipped because it cannot be opened"),
    ]
    told = [f"{count} {what}" for count, what in notes if count]
    return "\n".join(["; ".join([first, *told]), *(f"[{warning}]" for warning in found.warnings)])


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"
