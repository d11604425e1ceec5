"""Finds the places of a text that an edit means, by grades, and never by guessing. No I/O.

What a model copies differs from the file in few ways. Each is a grade; the first grade at which
anything fits decides:

1. `exact`: the text as it is. In a file whose lines end with CRLF, bare newlines mean these.
2. `line endings`: other line ends; the last line of the file may lack its own.
3. `trailing white space`: also blanks at the ends of lines.
4. `look-alikes`: also quotes, dashes and spaces that look alike (`LOOKALIKES`).
5. `indentation`: whole lines that are all indented further, or less, by the same width, or by tabs
   where the file has spaces. One line alone must have the same width.
6. `line numbers`: whole lines behind the consecutive numbers that a reading shows.

What fits below `exact` is carried over to the new text by `edit_carryover`. An edit that fits at
several places of its grade is the caller's to refuse.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Literal

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

from . import lines

Grade = Literal[
    "exact",
    "line endings",
    "trailing white space",
    "look-alikes",
    "indentation",
    "line numbers",
]

BLANKS = " \t\r"
"""Characters at the end of a line that nobody sees."""
MAX_MATCHES = 10_000
"""Most places that are looked for; a text that fits more often is the caller's to count."""
TAB_WIDTHS = (4, 8, 2, 3)
LOOKALIKES = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′ʼ", "'"),
        **dict.fromkeys("“”„‟″", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("\xa0\u1680\u202f\u205f\u3000", " "),
        **{chr(code): " " for code in range(0x2000, 0x200B)},
        # Bytes that are not UTF-8 are surrogates in the text of a file; a reading shows U+FFFD.
        **{chr(code): "\ufffd" for code in range(0xDC80, 0xDD00)},
    }
)
"""Characters that are taken for another one, each by one character so that columns stay."""

_NUMBER = compile_lazily(r"(?:| *(?=\d+[\t→]))(\d+)(?:: |:(?=\r?$)|\t|→)")
"""`12: ` as `read_file` shows it, and what `cat -n` and other readers put before a line."""


@frozen
class Edit:
    """A text and what takes its place; `everywhere` replaces every occurrence."""

    old: str
    new: str
    everywhere: bool = False


@frozen
class Shift:
    """How the indentation of a model's lines becomes that of the file."""

    tab_width: int
    columns: int
    tabs: bool | None
    """Whether the file indents with tabs; None if the lines found do not show it."""

    def apply(self, indent: str) -> str | None:
        """Return an indentation as the file would have it, None if it would lie left of 0."""
        columns = measure(indent, self.tab_width) + self.columns
        if columns < 0:
            return None
        tabs = "\t" in indent if self.tabs is None else self.tabs
        if not tabs:
            return " " * columns
        return "\t" * (columns // self.tab_width) + " " * (columns % self.tab_width)


@frozen
class Match:
    """A place that fits: `text[start:end]`, from line `line` (from 1).

    `old` and `new` are the edit's, without numbers and line ends of another kind. `shifts` are the
    ways to read the indentation, all of which fit; it is empty at other grades.
    """

    start: int
    end: int
    line: int
    grade: Grade
    old: str
    new: str
    shifts: tuple[Shift, ...] = ()


def find_matches(text: str, edit: Edit) -> list[Match]:
    """Return the places, `MAX_MATCHES` at most, where an edit fits at the first grade that does."""
    end = lines.detect_line_ending(text)
    for old in dict.fromkeys((edit.old, lines.convert_line_endings(edit.old, end))):
        found = list(_find_all(text, old))
        if found:
            new = lines.convert_line_endings(edit.new, end)
            return [
                Match(at, at + len(old), line_number(text, at), "exact", old, new) for at in found
            ]
    old = edit.old.replace("\r\n", "\n")
    new = edit.new.replace("\r\n", "\n")
    if not old.strip():
        return []
    content = FoldableText(text, old.endswith("\n"))
    return (
        _find_folded(content, old, new)
        or _find_shifted(content, old, new)
        or _find_numbered(content, old, new)
    )


def fold(line: str) -> str:
    """Return a line without its end, trailing blanks and look-alikes; columns stay."""
    return line.translate(LOOKALIKES).rstrip(BLANKS)


def split_indent(line: str) -> tuple[str, str]:
    """Split a line into its indentation and the rest."""
    rest = line.lstrip(" \t")
    return line[: len(line) - len(rest)], rest


def measure(indent: str, tab_width: int) -> int:
    """Return the width of an indentation in columns."""
    return len(indent.expandtabs(tab_width))


def line_number(text: str, position: int) -> int:
    """Return the number of the line, from 1, in which a position lies."""
    return text.count("\n", 0, position) + 1


class FoldableText:
    """The lines of a text without their newlines, and where they begin.

    If `ends_line`, a last line without newline is treated as if it had one.
    """

    def __init__(self, text: str, ends_line: bool) -> None:
        self.text = text
        whole = text + "\n" if ends_line and text and not text.endswith("\n") else text
        self.lines = whole.split("\n")
        self.starts = list(_starts(self.lines))

    def make_match(
        self, start: int, end: int, line: int, grade: Grade, old: str, new: str, *shifts: Shift
    ) -> Match:
        """Return a match; line numbers are counted from 0 here."""
        size = len(self.text)
        if end > size:
            # The newline that the file lacks is not put there either.
            return Match(start, size, line + 1, grade, old[:-1], new.removesuffix("\n"), shifts)
        return Match(start, end, line + 1, grade, old, new, shifts)


def _starts(parts: list[str]) -> Iterator[int]:
    position = 0
    for part in parts:
        yield position
        position += len(part) + 1


def _find_all(text: str, wanted: str) -> Iterator[int]:
    """Yield where a text occurs, `MAX_MATCHES` times at most; occurrences may overlap."""
    position = text.find(wanted)
    for _ in range(MAX_MATCHES):
        if position == -1:
            return
        yield position
        position = text.find(wanted, position + 1)


def _drop_end(line: str) -> str:
    return line.removesuffix("\r")


def _drop_blanks(line: str) -> str:
    return line.rstrip(BLANKS)


_FOLDS: tuple[tuple[Grade, Callable[[str], str]], ...] = (
    ("line endings", _drop_end),
    ("trailing white space", _drop_blanks),
    ("look-alikes", fold),
)


def _find_folded(
    content: FoldableText, old: str, new: str, *, whole_lines: bool = False
) -> list[Match]:
    """Find a text, which may begin and end within lines, by the grades that keep columns."""
    for grade, fold_line in _FOLDS:
        found = _find_at_grade(content, old, new, grade, fold_line)
        if whole_lines:
            found = [match for match in found if _has_whole_lines(content.text, match)]
        if found:
            return found
    return []


def _find_at_grade(
    content: FoldableText, old: str, new: str, grade: Grade, fold_line: Callable[[str], str]
) -> list[Match]:
    folded = [fold_line(line) for line in content.lines]
    starts = list(_starts(folded))
    joined = "\n".join(folded)
    parts = old.split("\n")
    wanted = [fold_line(part) for part in parts]
    is_last_blank = not parts[-1].strip()
    if is_last_blank:
        # Blanks behind the last newline are the beginning of a line, not the end of one.
        wanted[-1] = parts[-1]
    # What lost blanks must be the end of a line there too, and a blank line the whole of one.
    at_line_end = len(wanted[-1]) < len(parts[-1])
    at_line_start = not wanted[0]
    needle = "\n".join(wanted)
    found: list[Match] = []
    for position in _find_all(joined, needle):
        stop = position + len(needle)
        first = bisect_right(starts, position) - 1
        last = bisect_right(starts, stop) - 1
        start_column = position - starts[first]
        end_column = stop - starts[last]
        is_line_end = end_column == len(folded[last])
        if (at_line_end and not is_line_end) or (at_line_start and start_column):
            continue
        if is_line_end and not is_last_blank and grade != "line endings":
            end_column = len(_drop_end(content.lines[last]))
        start = content.starts[first] + start_column
        end = content.starts[last] + end_column
        found.append(content.make_match(start, end, first, grade, old, new))
    return found


def _has_whole_lines(text: str, match: Match) -> bool:
    starts_line = match.start == 0 or text[match.start - 1] == "\n"
    ends_line = match.end == 0 or text[match.end - 1] == "\n"
    stop = text.find("\n", match.end)
    rest = text[match.end :] if stop == -1 else text[match.end : stop]
    return starts_line and (ends_line or not rest.strip())


def _find_shifted(content: FoldableText, old: str, new: str) -> list[Match]:
    """Find whole lines whose indentation differs by the same width everywhere."""
    parts = old.removesuffix("\n").split("\n")
    wanted = "\n".join(fold(part).strip() for part in parts)
    keys = [fold(line).strip() for line in content.lines]
    starts = list(_starts(keys))
    found: list[Match] = []
    for position in _find_all("\n".join(["", *keys, ""]), f"\n{wanted}\n"):
        first = bisect_right(starts, position) - 1
        last = first + len(parts)
        shifts = _find_shifts(parts, content.lines[first:last])
        if not shifts:
            continue
        end = content.starts[last - 1] + len(_drop_end(content.lines[last - 1]))
        if old.endswith("\n"):
            end = content.starts[last - 1] + len(content.lines[last - 1]) + 1
        start = content.starts[first]
        found.append(content.make_match(start, end, first, "indentation", old, new, *shifts))
    return found


def _find_shifts(parts: list[str], found: list[str]) -> tuple[Shift, ...]:
    """Return the uniform shifts that make the indentation of `parts` that of `found`.

    One that keeps the width in columns excludes all others.
    """
    pairs = [
        (split_indent(part)[0], split_indent(line)[0])
        for part, line in zip(parts, found, strict=True)
        if part.strip()
    ]
    file_indents = "".join(theirs for _, theirs in pairs)
    tabs = "\t" in file_indents if file_indents else None
    uses_tabs = tabs or any("\t" in ours for ours, _ in pairs)
    shifts: list[Shift] = []
    for width in TAB_WIDTHS if uses_tabs else (TAB_WIDTHS[0],):
        distances = {measure(theirs, width) - measure(ours, width) for ours, theirs in pairs}
        if len(distances) != 1:
            continue
        shift = Shift(width, distances.pop(), tabs)
        if all(shift.apply(ours) == theirs for ours, theirs in pairs):
            shifts.append(shift)
    same_width = [shift for shift in shifts if not shift.columns]
    if same_width or len(pairs) == 1:
        return tuple(same_width)
    return tuple(shifts)


def _find_numbered(content: FoldableText, old: str, new: str) -> list[Match]:
    """Find whole lines that were copied with the numbers of a reading."""
    first, plain_old = strip_numbers(old)
    if first < 1 or not plain_old.strip():
        return []
    plain_new = _strip_new_numbers(new, first, plain_old)
    if plain_new is None:
        return []
    found = _find_folded(content, plain_old, plain_new, whole_lines=True)
    if not found:
        found = _find_shifted(content, plain_old, plain_new)
    # One number is little: text like `1: one` could be meant. It must be the right one.
    is_one_line = "\n" not in plain_old.strip("\n")
    if is_one_line and len(found) == 1 and found[0].line != first:
        return []
    return [
        Match(
            match.start, match.end, match.line, "line numbers", match.old, match.new, match.shifts
        )
        for match in found
    ]


def _strip_new_numbers(new: str, first: int, plain_old: str) -> str | None:
    """Return a new text without numbers, None if it is unclear whether it has any."""
    rows = [line for line in new.split("\n") if line.strip()]
    if not any(_NUMBER.match(row) for row in rows):
        return new
    number, plain = strip_numbers(new)
    if number == first:
        return plain
    # `404: "missing",` can be a line of the file: it is if lines are kept that have no number.
    return new if set(rows) & set(plain_old.split("\n")) else None


def strip_numbers(text: str) -> tuple[int, str]:
    """Remove the line numbers of a reading; return the first number and the text without them.

    The number is 0, and the text as it was, unless all lines have one (those that are blank may
    lack it) and they are consecutive.
    """
    parts = text.removesuffix("\n").split("\n")
    first = 0
    plain: list[str] = []
    for offset, part in enumerate(parts):
        number = _NUMBER.match(part)
        if number is None:
            if part.strip():
                return 0, text
            plain.append(part)
            continue
        first = first or int(number[1]) - offset
        if int(number[1]) != first + offset:
            return 0, text
        plain.append(part[number.end() :])
    return first, "\n".join(plain) + "\n" * text.endswith("\n")
