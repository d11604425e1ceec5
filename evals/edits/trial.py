"""Sends a spoiled change as `edit_file` would receive it, and says what came of it."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from ferrule.core.errors import ToolFailed
from ferrule.toolkits.files.edit_application import apply_edits

from .changes import Change
from .mistakes import Mistake

OUTCOMES = ("right", "shown", "not shown", "wrong")
_ROW = re.compile(r"^(\d+): ", re.MULTILINE)
_NAMED = re.compile(r"lines? (\d+)((?:, \d+|-\d+)*)")


@dataclass(frozen=True)
class Outcome:
    """One of `OUTCOMES`, the grades at which the edits fitted or the refusal, and the change."""

    kind: str
    detail: str
    change: Change


def send(mistake: Mistake, change: Change, seed: int) -> Outcome | None:
    """Return what came of a change with a mistake; None where the mistake cannot be made."""
    rng = random.Random(f"{seed} {mistake.name} {change.source}")
    prepared = mistake.prepare(rng, change)
    spoiled = mistake.spoil(rng, prepared) if prepared is not None else None
    if prepared is None or spoiled is None or is_another_request(prepared, spoiled):
        return None
    try:
        applied = apply_edits(spoiled.before, spoiled.edits, "`f`")
    except ToolFailed as failure:
        shown = _shows(failure.message, spoiled)
        return Outcome("shown" if shown else "not shown", failure.message, spoiled)
    grades = ", ".join(each[0].grade for each in applied.replacements)
    return Outcome("right" if applied.text == spoiled.after else "wrong", grades, spoiled)


def is_another_request(change: Change, spoiled: Change) -> bool:
    """Return whether an edit fits exactly, and once, where something else than its place is.

    Nobody can know then that this is not meant.
    """
    return spoiled.before == change.before and any(
        spoiled.before.count(edit.old) == 1
        and edit.old not in meant.old
        and meant.old not in edit.old
        for edit, meant in zip(spoiled.edits, change.edits, strict=True)
    )


def _shows(message: str, change: Change) -> bool:
    """Return whether a refusal names or shows a line of an edit's place."""
    named = {int(number) for number in _ROW.findall(message)}
    for first, rest in _NAMED.findall(message):
        named |= {int(first), *(int(number) for number in re.findall(r"\d+", rest))}
    return bool(named & change.lines)
