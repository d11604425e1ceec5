"""What a model has been shown of a file and still has before it.

A model that reads the same lines of a file again is told that they are as they were, or what
differs, while the earlier reading is in its context as it was: `Context.find_sent_result` knows,
whatever compaction, a rewind or a hook has done to it since. If it asks once more after it was told
that nothing has changed, it gets the text: it may not find the earlier one. Kept in
`Context.memory`. No I/O.

Not seen: a hook on requests that leaves out messages for one request alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.tools.context import Context

_MEMORY_KEY = "files.readings"
MIN_CHARACTERS = 1000
"""A shorter reading is given again: the words instead would save nothing."""
MAX_READINGS = 50
"""Readings that are remembered; the oldest is forgotten first."""
_MAX_COMPARED_LINES = 3000
_LARGEST_SHARE = 0.5
"""Share of the text that the differences may have."""
_AROUND = 2


@frozen
class ShortRereading:
    """A resource of a run: `is_on` says whether unchanged text is left out of a second reading."""

    is_on: bool = True


@frozen
class Reading:
    """What a call of `read_file` shows: the lines from number `first` on, and all of its text."""

    name: str
    first: int
    lines: tuple[str, ...]
    text: str
    note: str = ""


@frozen
class _Earlier:
    """A reading, and what the calls returned that showed it: ids and texts."""

    reading: Reading
    shown: tuple[tuple[str, str], ...]
    was_said: bool = False


def answer_again(context: Context, reading: Reading, last: int | None, *, full: bool) -> str:
    """Return the text of a reading, or what is new in it if that is shorter.

    Args:
        context: The call.
        reading: What the call shows.
        last: The last line that was asked for.
        full: Return all of it.
    """
    option = context.resources.get(ShortRereading)
    if not isinstance(option, ShortRereading) or not option.is_on:
        return reading.text
    readings = cast(
        "dict[tuple[str, int, int | None], _Earlier]", context.memory.setdefault(_MEMORY_KEY, {})
    )
    key = (reading.name, reading.first, last)
    earlier = readings.pop(key, None)
    while len(readings) >= MAX_READINGS:
        del readings[next(iter(readings))]
    readings[key] = _Earlier(reading, ((context.call_id, reading.text),))
    if full or earlier is None or not _is_before_model(context, earlier):
        return reading.text
    if earlier.reading.text == reading.text:
        if earlier.was_said:
            return reading.text
        readings[key] = replace(earlier, was_said=True)
        return _report_unchanged(reading)
    changes = _describe_changes(earlier.reading, reading)
    if not changes or len(changes) > _LARGEST_SHARE * len(reading.text):
        return reading.text
    shown = (*earlier.shown, (context.call_id, changes))
    readings[key] = _Earlier(reading, shown)
    return changes


def _is_before_model(context: Context, earlier: _Earlier) -> bool:
    """Whether all that showed an earlier reading is in what the model is sent, as it was."""
    if len(earlier.reading.text) < MIN_CHARACTERS:
        return False
    return all(text in context.find_sent_result(call_id) for call_id, text in earlier.shown)


def _report_unchanged(reading: Reading) -> str:
    last = reading.first + len(reading.lines) - 1
    return (
        f"[{quote_path(reading.name)}, lines {reading.first}-{last}: not changed since you read "
        "them; the text is in the earlier result. `full: true` shows it again]"
    )


def _describe_changes(old: Reading, new: Reading) -> str:
    """Return the lines that differ with their numbers; empty if there are too many to compare."""
    if max(len(old.lines), len(new.lines)) > _MAX_COMPARED_LINES:
        return ""
    head = (
        f"[{quote_path(new.name)} has changed since you read it. Only what differs is shown, `-` "
        "with old and `+` with new line numbers; `full: true` shows all of it]"
    )
    rows = [head, *_list_changes(old.lines, new.lines, new.first)]
    return "\n".join([*rows, *([new.note] if new.note else [])])


def _list_changes(old: Sequence[str], new: Sequence[str], first: int) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(_AROUND)):
        if number:
            yield "..."
        for tag, old_start, old_stop, new_start, new_stop in group:
            if tag == "equal":
                yield from _number(" ", new, new_start, new_stop, first)
                continue
            yield from _number("-", old, old_start, old_stop, first)
            yield from _number("+", new, new_start, new_stop, first)


def _number(mark: str, lines: Sequence[str], start: int, stop: int, first: int) -> Iterator[str]:
    for place in range(start, stop):
        yield f"{mark}{first + place}: {lines[place]}"
