"""Applies edits to a text, all or none of them. No I/O.

Every edit is found in the text as it is before any of them, so their order does not matter and
line numbers in messages are those of the file. An edit is refused, with all that come with it, if
it fits nowhere, at several places, has been made already, or changes what another one changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ferrule.core.value_class import frozen

from . import edit_refusals, lines
from .edit_carryover import write_replacement
from .edit_matching import (
    MAX_MATCHES,
    Edit,
    Grade,
    Match,
    find_matches,
    line_number,
    measure,
    split_indent,
)


@frozen
class Replacement:
    """What an edit does: `text[start:end]` becomes `new`; `line` is its first line, from 1.

    `count` occurrences are in it: more than one where they are too many to be kept one by one.
    """

    start: int
    end: int
    line: int
    grade: Grade
    new: str
    count: int = 1


@frozen
class Applied:
    """A text after its edits; one tuple of replacements for each edit, in their order."""

    text: str
    replacements: tuple[tuple[Replacement, ...], ...]


def apply_edits(text: str, edits: Sequence[Edit], where: str) -> Applied:
    """Apply all edits to a text.

    Args:
        text: Content of the file.
        edits: What to replace; each is found in `text`, not in the result of the others.
        where: Names the file in messages.

    Raises:
        ToolFailed: `validation_failed` if any edit cannot be made; the message says why.
    """
    names = edit_refusals.EditNames(where, len(edits))
    made = [
        tuple(_find_replacements(text, edit, names.at(number))) for number, edit in enumerate(edits)
    ]
    spans = [
        _narrow(text, replacement, number)
        for number, replacements in enumerate(made)
        for replacement in replacements
    ]
    spans.sort(key=lambda span: (span.start, span.end))
    for span, following in itertools.pairwise(spans):
        is_same = (span.start, span.end) == (following.start, following.end)
        if following.start < span.end or is_same:
            first, second = sorted((span.edit, following.edit))
            line = line_number(text, following.start)
            raise edit_refusals.refuse_overlap(first, second, line, where)
    parts: list[str] = []
    position = 0
    for span in spans:
        parts += [text[position : span.start], span.new]
        position = span.end
    return Applied("".join([*parts, text[position:]]), tuple(made))


@frozen
class _Span:
    """What a replacement really changes, and the edit, counted from 0, that it belongs to."""

    start: int
    end: int
    new: str
    edit: int


def _find_replacements(text: str, edit: Edit, name: edit_refusals.EditName) -> list[Replacement]:
    if not edit.old:
        raise edit_refusals.refuse_empty(name)
    if edit.old == edit.new:
        raise edit_refusals.refuse_identical(name)
    found = find_matches(text, edit)
    if not found:
        raise edit_refusals.refuse_missing(text, edit, name)
    if len(found) > 1 and not edit.everywhere:
        raise edit_refusals.refuse_ambiguous(text, found, name)
    if len(found) == MAX_MATCHES:
        return [_replace_between(text, found[0], name)]
    replacements: list[Replacement] = []
    position = 0
    for match in found:
        if match.start < position:
            continue  # Occurrences that overlap: the first is replaced, as `str.replace` does.
        position = match.end
        replacements.append(_make_replacement(text, match, edit, name))
    return replacements


def _replace_between(text: str, first: Match, name: edit_refusals.EditName) -> Replacement:
    """Replace all occurrences of a text that occurs very often, as one replacement."""
    if first.grade != "exact":
        raise edit_refusals.refuse_too_many(name)
    end = text.rfind(first.old) + len(first.old)
    new = text[first.start : end].replace(first.old, first.new)
    return Replacement(
        first.start, end, first.line, "exact", new, text.count(first.old, first.start)
    )


def _make_replacement(
    text: str, match: Match, edit: Edit, name: edit_refusals.EditName
) -> Replacement:
    new = write_replacement(text, match)
    if new is None:
        raise edit_refusals.refuse_missing(text, edit, name)
    if not edit.everywhere:
        if _is_applied(text, match, new):
            raise edit_refusals.refuse_applied(text, match, name)
        if _is_indentation_unclear(text, match, new):
            raise edit_refusals.refuse_unclear_indentation(text, match, name)
    return Replacement(match.start, match.end, match.line, match.grade, new)


def _narrow(text: str, replacement: Replacement, edit: int) -> _Span:
    """Leave out the lines that a replacement keeps at either end."""
    old_lines = lines.split_lines(text[replacement.start : replacement.end])
    new_lines = lines.split_lines(replacement.new)
    most = min(len(old_lines), len(new_lines))
    head = 0
    while head < most and old_lines[head] == new_lines[head]:
        head += 1
    tail = 0
    while tail < most - head and old_lines[-1 - tail] == new_lines[-1 - tail]:
        tail += 1
    start = replacement.start + len("".join(old_lines[:head]))
    end = replacement.end - len("".join(old_lines[len(old_lines) - tail :]))
    return _Span(start, end, "".join(new_lines[head : len(new_lines) - tail]), edit)


def _is_applied(text: str, match: Match, new: str) -> bool:
    """Return whether the match is part of what the edit would make of it.

    This is so where an edit that adds something is sent twice. Where an edit fits only loosely, a
    new text that is found elsewhere means the same.
    """
    found = text[match.start : match.end]
    added = new.replace(found, "", 1) if found in new else ""
    # Blanks within a line are beside a text for many reasons; a blank line is something added.
    if added.strip() or "\n" in added:
        offset = new.find(found)
        while offset != -1:
            start = match.start - offset
            if start >= 0 and text.startswith(new, start) and _begins_alike(text, start, match):
                return True
            offset = new.find(found, offset + 1)
    written = match.new.strip("\n")
    if match.grade == "exact" or not written.strip():
        return False
    if match.grade != "indentation" and not _adds_line(found, new):
        return False
    before = text.find(written)
    return before != -1 and not match.start <= before < match.end


def _begins_alike(text: str, start: int, match: Match) -> bool:
    """Return whether `start` begins a line if the match does.

    A newline with which the new text begins is a blank line then, not the end of another line.
    """
    match_begins_line = match.start == 0 or text[match.start - 1] == "\n"
    return not match_begins_line or start == 0 or text[start - 1] == "\n"


def _adds_line(found: str, new: str) -> bool:
    known = {line.strip() for line in found.splitlines()}
    return any(line.strip() and line.strip() not in known for line in new.splitlines())


def _is_indentation_unclear(text: str, match: Match, new: str) -> bool:
    """Return whether new lines could be meant absolutely or from where the old text begins.

    The old text begins behind the indentation of its line, none of its other lines shows which
    indentation is meant, and the new text begins with that indentation itself or has lines that are
    indented less.
    """
    line_start = text.rfind("\n", 0, match.start) + 1
    before = text[line_start : match.start]
    if not before or before.strip():
        return False
    found = text[match.start : match.end].split("\n")
    if any(line.strip() for line in found[1:]):
        return False
    if new.startswith(before):
        return True
    indent, _ = split_indent(text[line_start : match.end])
    known = set(found)
    return any(
        measure(split_indent(line)[0], 8) < measure(indent, 8)
        for line in new.split("\n")[1:]
        if line.strip() and line not in known
    )
