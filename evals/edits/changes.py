"""Changes of a text as edits: what a careful model would send."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ferrule.toolkits.files.edit_matching import Edit

MAX_LINES = 3000
MAX_HUNK = 40
MAX_CONTEXT = 6
MAX_SAVED = 40
MAX_SAVED_CHARACTERS = 4000


Hunk = tuple[str, int, int, int, int]
"""What `SequenceMatcher.get_opcodes` gives: its tag, then the lines before and after."""


@dataclass(frozen=True)
class Change:
    """A change of a file: `edits` make `after` of `before`; `lines` are those they find."""

    source: str
    before: str
    after: str
    edits: tuple[Edit, ...]
    lines: frozenset[int]


def save_changes(path: Path, changes: Iterable[Change]) -> None:
    """Write changes of small files, as many as a test takes, as lines of JSON."""
    small = [
        change
        for change in changes
        if len(change.before) <= MAX_SAVED_CHARACTERS
        and make_after(change.before, change.edits) == change.after
    ]
    rows = [
        {
            "source": change.source,
            "before": change.before,
            "edits": [[edit.old, edit.new] for edit in change.edits],
        }
        for change in small[:MAX_SAVED]
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def load_changes(path: Path) -> list[Change]:
    """Read what `save_changes` wrote."""
    changes: list[Change] = []
    for line in path.read_text().split("\n")[:-1]:
        row = json.loads(line)
        edits = tuple(Edit(old, new) for old, new in row["edits"])
        found = find_lines(row["before"], [edit.old for edit in edits])
        changes.append(
            Change(row["source"], row["before"], make_after(row["before"], edits), edits, found)
        )
    return changes


def make_after(before: str, edits: Iterable[Edit]) -> str:
    """Make edits that fit exactly, one after the other."""
    for edit in edits:
        before = before.replace(edit.old, edit.new, 1)
    return before


def split_change(change: Change) -> list[Change]:
    """Return each edit of a change as one of its own, of the file as the edits before left it."""
    if len(change.edits) == 1:
        return [change]
    parts: list[Change] = []
    before = change.before
    for number, edit in enumerate(change.edits, 1):
        # What an earlier edit wrote may hold the old text of this one: then it is another request.
        if before.count(edit.old) != 1:
            continue
        after = before.replace(edit.old, edit.new)
        found = find_lines(before, [edit.old])
        parts.append(Change(f"{change.source} edit {number}", before, after, (edit,), found))
        before = after
    return parts


def find_changes(source: str, before: str, after: str) -> Iterator[Change]:
    """Yield each hunk of a difference as a change of its own, then up to five together."""
    old = before.splitlines(keepends=True)
    new = after.splitlines(keepends=True)
    if max(len(old), len(new)) > MAX_LINES or "".join(old) != before or before == after:
        return
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    hunks: list[Hunk] = [
        code
        for code in matcher.get_opcodes()
        if code[0] != "equal" and max(code[2] - code[1], code[4] - code[3]) <= MAX_HUNK
    ]
    single = [_make_change(source, before, old, new, [hunk]) for hunk in hunks[:8]]
    yield from (change for change in single if change is not None)
    if len(hunks) > 1:
        several = _make_change(source, before, old, new, _keep_apart(hunks)[:5])
        if several is not None and len(several.edits) > 1:
            yield several


def _keep_apart(
    hunks: list[Hunk],
) -> list[Hunk]:
    kept = hunks[:1]
    for hunk in hunks[1:]:
        if hunk[1] - kept[-1][2] > 2 * MAX_CONTEXT:
            kept.append(hunk)
    return kept


def _make_change(
    source: str,
    before: str,
    old: list[str],
    new: list[str],
    hunks: list[Hunk],
) -> Change | None:
    edits: list[Edit] = []
    after: list[str] = []
    position = 0
    for _, first, last, new_first, new_last in hunks:
        edit = _widen(before, old, new[new_first:new_last], first, last)
        if edit is None:
            return None
        edits.append(edit)
        after += old[position:first] + new[new_first:new_last]
        position = last
    text = "".join(after + old[position:])
    found = find_lines(before, [edit.old for edit in edits])
    return Change(source, before, text, tuple(edits), found)


def find_lines(text: str, parts: list[str]) -> frozenset[int]:
    """Return the numbers of all lines of parts of a text."""
    numbers: set[int] = set()
    for part in parts:
        first = text.count("\n", 0, text.find(part)) + 1
        numbers |= set(range(first, first + len(part.splitlines())))
    return frozenset(numbers)


def _widen(before: str, old: list[str], added: list[str], first: int, last: int) -> Edit | None:
    """Return the edit with little context that occurs once."""
    # One to three lines of context, or more where these occur elsewhere.
    for context in range(1 + first % 3, MAX_CONTEXT + 1):
        head = old[max(0, first - context) : first]
        tail = old[last : last + context]
        text = "".join(head + old[first:last] + tail)
        if text.strip() and before.count(text) == 1:
            return Edit(text, "".join(head + added + tail))
    return None
