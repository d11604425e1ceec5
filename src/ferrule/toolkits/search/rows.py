"""The result of a search, and how its matching lines are shown to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from unicodedata import category

from ferrule.core.value_class import frozen

MAX_WIDTH = 400
"""Characters of a line that are shown; the rest is cut around the match, and the cut is marked."""
MAX_NAMES = 20
"""Most file names that are listed."""


@frozen
class Row:
    """One line of a file. `number` counts from 1; a row that is not a `match` is context.

    `column` is the character of the line at which the match begins, counted from 1; 0 if there is
    none.
    """

    path: str
    number: int
    text: str
    match: bool = True
    column: int = 0

    def format(self) -> str:
        """Format as `file:line:text`, context as `file-line-text` (like grep)."""
        mark = ":" if self.match else "-"
        return f"{make_printable(self.path)}{mark}{self.number}{mark}{self.text}"


@dataclass(slots=True)
class SearchResult:
    """The result of a search. All counts except `matches` are of files."""

    rows: list[Row] = field(default_factory=list[Row])
    names: list[str] = field(default_factory=list[str])
    matches: int = 0
    searched: int = 0
    large: int = 0
    withheld: list[str] = field(default_factory=list[str])
    unreadable: int = 0
    warnings: list[str] = field(default_factory=list[str])


def cut_around(line: str, start: int) -> str:
    """Return the part of a line around character `start`, printable."""
    if len(line) <= MAX_WIDTH:
        return make_printable(line)
    begin = max(0, min(start - MAX_WIDTH // 4, len(line) - MAX_WIDTH))
    end = begin + MAX_WIDTH
    before = "…" if begin else ""
    after = "…" if end < len(line) else ""
    return f"{before}{make_printable(line[begin:end])}{after} [{len(line):,} characters]"


def make_printable(text: str) -> str:
    """Replace control characters and bytes that are not UTF-8 by U+FFFD, so a row stays one row."""
    if text.isprintable():
        return text
    return "".join(character if _is_printable(character) else "\ufffd" for character in text)


def _is_printable(character: str) -> bool:
    return character == "\t" or character.isprintable() or category(character) == "Zs"


def format_report(found: SearchResult, headline: str) -> str:
    """Format the whole answer: headline, file names, rows grouped by file, counts, warnings."""
    parts = [headline]
    if found.names:
        rows = ["file names that match:", *map(make_printable, found.names[:MAX_NAMES])]
        if len(found.names) > MAX_NAMES:
            rows.append(f"(and {len(found.names) - MAX_NAMES} more)")
        parts.append("\n".join(rows))
    parts += _format_groups(found.rows)
    parts.append(_format_counts(found))
    return "\n\n".join(parts)


def _format_groups(rows: Sequence[Row]) -> list[str]:
    groups: list[list[str]] = []
    last_path = ""
    last_number = 0
    has_context = any(not row.match for row in rows)
    for row in rows:
        if not groups or row.path != last_path:
            groups.append([])
        elif row.number > last_number + 1 and has_context:
            groups[-1].append("--")
        groups[-1].append(row.format())
        last_path = row.path
        last_number = row.number
    return ["\n".join(group) for group in groups]


def _format_counts(found: SearchResult) -> str:
    files = len({row.path for row in found.rows})
    first = (
        f"{_format_count(found.matches, 'match', 'matches')} in {_format_count(files, 'file')} "
        f"({_format_count(found.searched, 'file')} searched)"
    )
    notes = [
        (found.large, "larger than 10 MB skipped"),
        (len(found.withheld), "not searched because tools may not read it or what is in it"),
        (found.unreadable, "skipped because it cannot be opened"),
    ]
    skipped = [f"{count} {what}" for count, what in notes if count]
    warnings = [f"[{warning}]" for warning in found.warnings]
    return "\n".join(["; ".join([first, *skipped]), *warnings])


def _format_count(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"
