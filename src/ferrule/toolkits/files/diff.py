"""A unified diff that a person can trust: everything visible, and if something is left out, it says
so. No I/O.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ferrule.core.invisible_characters import exact

from . import lines

MOST_LINES = 400
MOST_COLUMNS = 500
_COMPARED = 3000
"""Lines on either side that are compared line by line; above that, old and new are shown as two
blocks.
"""


def unified(name: str, old: str, new: str, *, context: int = 3) -> str:
    """What changes in a file. Empty `old` is a new file. At most `MOST_LINES` lines of
    `MOST_COLUMNS` characters.
    """
    if old == new:
        return f"{name}: no change"
    shown = [f"--- {name if old else '/dev/null'}", f"+++ {name}"]
    body = list(_body(_lines(old, new), _lines(new, old), context))
    shown += [_shown(line) for line in body[:MOST_LINES]]
    if len(body) > MOST_LINES:
        shown.append(f"[{len(body) - MOST_LINES} more lines of this diff are not shown]")
    return "\n".join(shown)


def _lines(text: str, other: str) -> list[str]:
    """Lines without ends. A CR is dropped only if both sides are all CRLF, so that a changed line
    end shows.
    """
    same_ends = all(t.count("\n") == t.count("\r\n") for t in (text, other))
    found = [line.removesuffix("\n") for line in lines.split(text)]
    if same_ends:
        found = [line.removesuffix("\r") for line in found]
    if found and not text.endswith("\n"):
        found[-1] += "\n\\ No newline at end of file"
    return found


def _body(old: list[str], new: list[str], context: int) -> Iterator[str]:
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    stop = 0
    while stop < min(len(old), len(new)) - start and old[-1 - stop] == new[-1 - stop]:
        stop += 1
    # Only the part that differs is compared, so that one changed line in a long file stays quick.
    first = max(0, start - context)
    a = old[first : len(old) - max(0, stop - context)]
    b = new[first : len(new) - max(0, stop - context)]
    for group in _groups(a, b, start - first, context):
        (a1, a2), (b1, b2) = (group[0][1], group[-1][2]), (group[0][3], group[-1][4])
        yield f"@@ -{_range(first + a1, first + a2)} +{_range(first + b1, first + b2)} @@"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (" " + line for line in a[i1:i2])
            else:
                yield from ("-" + line for line in a[i1:i2])
                yield from ("+" + line for line in b[j1:j2])


def _groups(
    a: list[str], b: list[str], same: int, context: int
) -> Iterator[list[tuple[str, int, int, int, int]]]:
    if max(len(a), len(b)) <= _COMPARED:
        yield from difflib.SequenceMatcher(None, a, b).get_grouped_opcodes(context)
        return
    yield [("equal", 0, same, 0, same), ("replace", same, len(a), same, len(b))]


def _range(start: int, stop: int) -> str:
    """A hunk's range as POSIX diff -u writes it: an empty one names the line before it."""
    length = stop - start
    return f"{start + 1}" if length == 1 else f"{start + (length > 0)},{length}"


def _shown(line: str) -> str:
    """A line that cannot hide a part of itself, of bounded length."""
    text = exact(line)
    return (
        text
        if len(text) <= MOST_COLUMNS
        else f"{text[:MOST_COLUMNS]}[{len(text) - MOST_COLUMNS} more characters]"
    )
