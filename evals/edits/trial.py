"""Sends a spoiled change as a tool would receive it, and says what came of it."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from ferrule.core.errors import ToolFailed

from .changes import Change, find_lines
from .forms import ALL_IN_ONE, FORMS, PATCHES
from .mistakes import Mistake

OUTCOMES = ("right", "shown", "not shown", "wrong")
_ROW = re.compile(r"^(\d+): ", re.MULTILINE)
_NAMED = re.compile(r"lines? (\d+)((?:, \d+|-\d+)*)")


@dataclass(frozen=True)
class Outcome:
    """One of `OUTCOMES`, the refusal if it is one, and the change."""

    kind: str
    detail: str
    change: Change


def make_case(mistake: Mistake, change: Change, seed: int, form: str) -> Change | None:
    """Return a change with a mistake; None where the mistake cannot be made in this form."""
    rng = random.Random(f"{seed} {mistake.name} {change.source}")
    prepared = mistake.prepare(rng, change)
    spoiled = mistake.spoil(rng, prepared) if prepared is not None else None
    if prepared is None or spoiled is None or is_another_request(prepared, spoiled, form):
        return None
    return spoiled


def send(mistake: Mistake, change: Change, seed: int, form: str = ALL_IN_ONE) -> Outcome | None:
    """Return what came of a change with a mistake; None where the mistake cannot be made."""
    spoiled = make_case(mistake, change, seed, form)
    return None if spoiled is None else send_case(spoiled, form)


def send_case(spoiled: Change, form: str = ALL_IN_ONE) -> Outcome:
    """Return what came of a change that has its mistake, in one of `FORMS`."""
    try:
        text = FORMS[form](spoiled.before, spoiled.edits)
    except ToolFailed as failure:
        shown = _shows(failure.message, spoiled)
        return Outcome("shown" if shown else "not shown", failure.message, spoiled)
    return Outcome("right" if text == spoiled.after else "wrong", "", spoiled)


def is_another_request(change: Change, spoiled: Change, form: str) -> bool:
    """Return whether an edit fits exactly, and once, where something else than its place is.

    Nobody can know then that this is not meant. The old text of a patch is whole lines: it fits
    where these lines are, and not where one of them is only the end of another line.
    """
    if spoiled.before != change.before:
        return False
    fits_elsewhere = _lines_fit_elsewhere if form in PATCHES else _text_fits_elsewhere
    return any(
        fits_elsewhere(change.before, edit.old, meant.old)
        for edit, meant in zip(spoiled.edits, change.edits, strict=True)
    )


def _text_fits_elsewhere(text: str, old: str, meant: str) -> bool:
    return text.count(old) == 1 and old not in meant and meant not in old


def _lines_fit_elsewhere(text: str, old: str, meant: str) -> bool:
    rows = text.removesuffix("\n").split("\n")
    wanted = old.removesuffix("\n").split("\n")
    places = [
        number
        for number in range(1, len(rows) - len(wanted) + 2)
        if rows[number - 1 : number - 1 + len(wanted)] == wanted
    ]
    return len(places) == 1 and places[0] not in find_lines(text, [meant])


def _shows(message: str, change: Change) -> bool:
    """Return whether a refusal names or shows a line of an edit's place."""
    named = {int(number) for number in _ROW.findall(message)}
    for first, rest in _NAMED.findall(message):
        named |= {int(first), *(int(number) for number in re.findall(r"\d+", rest))}
    return bool(named & change.lines)
