"""Patches: `*** Begin Patch` (V4A, what `apply_patch` takes) and unified diffs, as file changes.

    parse_patch(text)              -> [FileChange(...), ...]; no I/O
    find_edits(text, change, ...)  -> the arguments of one `edit_file` for a change of this text

Hunks of V4A have no line numbers: a hunk is where its context and removed lines are, after the
hunk before it and after the lines that its `@@` names. What fits several places without that is
refused. Line numbers of a unified diff are not used: context decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

from .edit_matching import Edit, Match, find_matches
from .edits import invalid_arguments

_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_AT_END = "*** End of File"
_FILE = compile_lazily(r"\*\*\* (Add|Update|Delete) File: (.+)")
_MOVE = compile_lazily(r"\*\*\* Move to: (.+)")
_OLD_FILE = compile_lazily(r"--- (?:a/)?([^\t\n]+)")
_NEW_FILE = compile_lazily(r"\+\+\+ (?:b/)?([^\t\n]+)")
_RANGES = compile_lazily(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?")

Action = Literal["add", "update", "delete"]


@frozen
class Hunk:
    """Lines that become others. `anchors` stand before it; `at_end`: it ends the file."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    anchors: tuple[str, ...] = ()
    at_end: bool = False


@frozen
class FileChange:
    """What a patch does to one file: `content` of a new one, hunks and a new name of an old one."""

    action: Action
    path: str
    target: str = ""
    content: str = ""
    hunks: tuple[Hunk, ...] = ()


def parse_patch(text: str) -> list[FileChange]:
    """Parse a patch.

    Raises:
        RetryCall: It is no patch; the message names the line.
    """
    lines = text.strip("\n").split("\n")
    if lines[0].strip() == _BEGIN:
        changes = list(_parse_v4a(lines))
    elif any(_OLD_FILE.match(line) for line in lines):
        changes = list(_parse_unified(lines))
    else:
        raise _problem(1, lines[0], f"a patch begins with `{_BEGIN}`")
    if not changes:
        raise RetryCall("the patch changes no file")
    return changes


def _problem(number: int, line: str, expected: str) -> RetryCall:
    return RetryCall(f"line {number} of the patch: found {line[:80]!r}; {expected}")


def _parse_v4a(lines: Sequence[str]) -> Iterator[FileChange]:
    position = 1
    while position < len(lines) and lines[position].strip() != _END:
        header = _FILE.fullmatch(lines[position].rstrip())
        if header is None:
            expected = "expected `*** Add File: `, `*** Update File: ` or `*** Delete File: `"
            raise _problem(position + 1, lines[position], expected)
        first = position + 1
        position = first
        while position < len(lines) and not _is_file_mark(lines[position]):
            position += 1
        yield _read_change(header[1].lower(), header[2].strip(), lines[first:position], first + 1)


def _is_file_mark(line: str) -> bool:
    return line.strip() == _END or _FILE.fullmatch(line.rstrip()) is not None


def _read_change(action: str, path: str, body: Sequence[str], first: int) -> FileChange:
    if action == "delete":
        return FileChange("delete", path)
    if action == "add":
        for number, line in enumerate(body):
            if not line.startswith("+"):
                raise _problem(first + number, line, "each line of a new file begins with `+`")
        return FileChange("add", path, content="".join(f"{line[1:]}\n" for line in body))
    target = _MOVE.fullmatch(body[0].rstrip()) if body else None
    skipped = 1 if target else 0
    hunks = _read_hunks(body[skipped:], first + skipped)
    if not hunks and target is None:
        raise RetryCall(f"the patch says nothing of what to change in `{path}`")
    return FileChange("update", path, target[1].strip() if target else "", hunks=hunks)


def _read_hunks(body: Sequence[str], first: int) -> tuple[Hunk, ...]:
    reader = _HunkReader()
    for number, line in enumerate(body):
        if not reader.take(line):
            expected = "each line of a hunk begins with ` `, `+`, `-` or `@@`"
            raise _problem(first + number, line, expected)
    reader.finish()
    return tuple(reader.hunks)


class _HunkReader:
    """Collects hunks line by line."""

    def __init__(self) -> None:
        self.hunks: list[Hunk] = []
        self._old: list[str] = []
        self._new: list[str] = []
        self._anchors: list[str] = []

    def take(self, line: str) -> bool:
        """Take a line. Return whether it can be part of a hunk."""
        if line.rstrip() == _AT_END:
            self.finish(at_end=True)
        elif line.startswith("@@"):
            self.finish()
            anchor = _RANGES.sub("", line).removeprefix("@@").strip()
            self._anchors += [anchor] if anchor else []
        elif line[:1] in ("", " ", "+", "-"):
            self._old += [] if line.startswith("+") else [line[1:]]
            self._new += [] if line.startswith("-") else [line[1:]]
        else:
            return line.startswith("\\ No newline")
        return True

    def finish(self, *, at_end: bool = False) -> None:
        """End a hunk, if one has begun and changes something."""
        if self._old != self._new:
            old, new = tuple(self._old), tuple(self._new)
            self.hunks.append(Hunk(old, new, tuple(self._anchors), at_end))
        if self._old or self._new:
            self._anchors.clear()
        self._old.clear()
        self._new.clear()


def _parse_unified(lines: Sequence[str]) -> Iterator[FileChange]:
    starts = [
        number
        for number, line in enumerate(lines[:-1])
        if _OLD_FILE.match(line) and _NEW_FILE.match(lines[number + 1])
    ]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        old = _name_in(_OLD_FILE, lines[start])
        new = _name_in(_NEW_FILE, lines[start + 1])
        body = [line for line in lines[start + 2 : end] if not _is_git_header(line)]
        if new == "/dev/null":
            yield FileChange("delete", old)
        elif old == "/dev/null":
            added = [line[1:] for line in body if line.startswith("+")]
            yield FileChange("add", new, content="".join(f"{line}\n" for line in added))
        else:
            target = new if new != old else ""
            yield FileChange("update", old, target, hunks=_read_hunks(body, start + 3))


def _name_in(pattern: re.Pattern[str], line: str) -> str:
    found = pattern.match(line)
    return found[1].strip() if found else ""


def _is_git_header(line: str) -> bool:
    marks = ("diff --git ", "index ", "new file mode ", "deleted file mode ", "similarity index ")
    return line.startswith((*marks, "rename from ", "rename to ", "old mode ", "new mode "))


def find_edits(text: str, change: FileChange, where: str) -> dict[str, Any]:
    """Return `old_string`, `new_string` and `more_edits` that make the change to a text.

    Raises:
        ToolFailed: A hunk fits several places.
    """
    edits: list[dict[str, str]] = []
    position = 0
    for number, hunk in enumerate(change.hunks, 1):
        anchored = _pass_anchors(text, hunk.anchors, position) if hunk.anchors else None
        start = position if anchored is None else anchored
        old = "".join(f"{line}\n" for line in hunk.old)
        new = "".join(f"{line}\n" for line in hunk.new)
        if not hunk.old:
            place = len(text) if anchored is None else anchored
            edits.append(_widen(text, place, place, new))
            continue
        found = find_matches(text, Edit(old, new))
        # A hunk has whole lines: one that fits behind an indentation lacks that indentation.
        whole = [each for each in found if each.start == 0 or text[each.start - 1] == "\n"]
        found = whole or found
        match = _choose(text, found, start, hunk, is_anchored=anchored is not None)
        if match is None and len(found) > 1:
            places = ", ".join(str(each.line) for each in found[:8])
            raise invalid_arguments(
                f"hunk {number} of {where} fits at lines {places}; nothing was changed. Give more "
                "lines of context, or the line above it, such as a function's, after `@@`"
            )
        if match is None or match.grade != "exact" or not whole:
            # The tool finds it by its looser grades, or says why not.
            edits.append({"old_string": old, "new_string": new})
        else:
            edits.append(_widen(text, match.start, match.end, match.new))
        position = match.end if match is not None else start
    first, *more = edits
    return {**first, "more_edits": more} if more else dict(first)


def _pass_anchors(text: str, anchors: Sequence[str], position: int) -> int | None:
    """Return where the text behind the lines named by `@@` begins; None if one is not there."""
    for anchor in anchors:
        for line in text[position:].splitlines(keepends=True):
            position += len(line)
            if line.strip() == anchor:
                break
        else:
            return None
    return position


def _choose(
    text: str, found: Sequence[Match], start: int, hunk: Hunk, *, is_anchored: bool
) -> Match | None:
    """Return the place that is meant: the only one, the only one left, or the first after `@@`."""
    if len(found) == 1:
        return found[0]
    left = [each for each in found if each.start >= start]
    if hunk.at_end:
        left = [each for each in left if each.end >= len(text.rstrip("\n"))]
    is_clear = len(left) == 1 or (is_anchored and bool(left))
    return left[0] if is_clear and found[0].grade == "exact" else None


def _widen(text: str, start: int, end: int, new: str) -> dict[str, str]:
    """Return an edit of this place whose old text is nowhere else: with lines around it."""
    first = text.rfind("\n", 0, start) + 1
    last = end
    if start == end and last:
        first = text.rfind("\n", 0, max(0, start - 1)) + 1
    while text.count(text[first:last]) > 1 and (first > 0 or last < len(text)):
        first = text.rfind("\n", 0, max(0, first - 1)) + 1
        following = text.find("\n", last)
        last = len(text) if following == -1 else following + 1
    before, after = text[first:start], text[end:last]
    if start == end and before and not before.endswith("\n"):
        before = f"{before}\n"
    return {"old_string": text[first:last], "new_string": f"{before}{new}{after}"}


def explain_unfit(path: str) -> ToolFailed:
    """Return the error for a hunk that fits nowhere in a file whose text may not be shown yet."""
    return invalid_arguments(
        f"the patch does not fit `{path}` as it is now; nothing was changed. Read the file, then "
        "send the patch again"
    )
