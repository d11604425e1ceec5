"""A unified diff that a person can trust: nothing is invisible, cuts are stated. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ferrule.core.invisible_characters import escape_for_approval

from . import lines

MAX_LINES = 400
MAX_COLUMNS = 500
_MAX_COMPARED_LINES = 3000
"""Most lines on either side that are compared line by line.

Above that, old and new are shown as two blocks.
"""


def unified_diff(name: str, old: str, new: str, *, context: int = 3) -> str:
    """Return the unified diff of a file; an empty `old` means that the file is new.

    At most `MAX_LINES` lines of `MAX_COLUMNS` characters; what is cut is counted.
    """
    if old == new:
        return f"{name}: no change"
    shown = [f"--- {name if old else '/dev/null'}", f"+++ {name}"]
    body = list(_hunks(_split_without_ends(old, new), _split_without_ends(new, old), context))
    shown += [_make_visible(line) for line in body[:MAX_LINES]]
    if len(body) > MAX_LINES:
        shown.append(f"[{len(body) - MAX_LINES} more lines of this diff are not shown]")
    return "\n".join(shown)


def _split_without_ends(text: str, other: str) -> list[str]:
    """Split a text into lines without their ends.

    A CR is dropped only if both sides are all CRLF, so that a changed line end shows.
    """
    same_ends = all(one.count("\n") == one.count("\r\n") for one in (text, other))
    found = [line.removesuffix("\n") for line in lines.split_lines(text)]
    if same_ends:
        found = [line.removesuffix("\r") for line in found]
    if found and not text.endswith("\n"):
        found[-1] += "\n\\ No newline at end of file"
    return found


def _hunks(old: list[str], new: list[str], context: int) -> Iterator[str]:
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    stop = 0
    while stop < min(len(old), len(new)) - start and old[-1 - stop] == new[-1 - stop]:
        stop += 1
    # Only the part that differs is compared, so that one changed line in a long file stays quick.
    first = max(0, start - context)
    old_part = old[first : len(old) - max(0, stop - context)]
    new_part = new[first : len(new) - max(0, stop - context)]
    for group in _groups(old_part, new_part, start - first, context):
        old_range = _range(first + group[0][1], first + group[-1][2])
        new_range = _range(first + group[0][3], first + group[-1][4])
        yield f"@@ -{old_range} +{new_range} @@"
        for tag, old_start, old_stop, new_start, new_stop in group:
            if tag == "equal":
                yield from (" " + line for line in old_part[old_start:old_stop])
            else:
                yield from ("-" + line for line in old_part[old_start:old_stop])
                yield from ("+" + line for line in new_part[new_start:new_stop])


def _groups(
    old: list[str], new: list[str], same: int, context: int
) -> Iterator[list[tuple[str, int, int, int, int]]]:
    if max(len(old), len(new)) <= _MAX_COMPARED_LINES:
        yield from difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(context)
        return
    yield [("equal", 0, same, 0, same), ("replace", same, len(old), same, len(new))]


def _range(start: int, stop: int) -> str:
    """Write the range of a hunk as POSIX diff -u does: an empty one names the line before it."""
    length = stop - start
    if length == 1:
        return f"{start + 1}"
    return f"{start + (length > 0)},{length}"


def _make_visible(line: str) -> str:
    """Make every character of a line visible and bound its length."""
    text = escape_for_approval(line)
    if len(text) <= MAX_COLUMNS:
        return text
    return f"{text[:MAX_COLUMNS]}[{len(text) - MAX_COLUMNS} more characters]"
