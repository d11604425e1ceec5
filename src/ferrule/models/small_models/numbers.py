"""Which number of a request fills which slot: by the words they stand near, their units, years,
then in the order of both.

Pure. All numbers and all numeric slots are looked at together, optional ones as well: a number that
stands beside an optional parameter's own word is not free for the others.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from ferrule.core.frozen import frozen
from ferrule.tools.word_stems import content

from .request import Request
from .slots import Slot, Value
from .spans import Span, number
from .units import agrees, is_unit

_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PERCENT = re.compile(r"percent", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal|\b0?\.\d|between 0 and 1", re.IGNORECASE)
_COUNTS = frozenset(["count", "number", "num", "limit", "top", "total", "quantity", "max", "n"])

FAR = 4
"""Atoms between a number and a word, from which on they have nothing to do with each other."""
UNFILLED, OPTIONAL, ORDER = 9.0, 3.2, 0.4
"""Costs: of a required slot without a number, of an optional one, of two numbers in the other
order.
"""
MOST_SLOTS, MOST_NUMBERS = 7, 9


def numbers(slot: Slot, request: Request) -> list[Value]:
    """The numbers that may fill a slot, in the request's order. Number words only where there are
    no digits, or before a noun.
    """
    found: list[Value] = []
    pieces = [s for s in request.single("number", "word") if number(s.text) is not None]
    digits = any(c.isdigit() for s in pieces for c in s.text)
    for span in pieces:
        if digits and span.text.isalpha() and not _counts(slot, request, span):
            continue
        if any(span.overlaps(formula) for formula in request.formulas):
            continue
        if (value := _value(slot, request, span)) is not None:
            found.append(Value(value, span))
    return found


def _counts(slot: Slot, request: Request, span: Span) -> bool:
    """Whether a number word stands before what the slot counts: `two tickets`."""
    counted = not _COUNTS.isdisjoint(content(slot.name)) and not any(map(str.isdigit, slot.name))
    return counted and span.text.lower() != "one" and request.near(span, slot.words, 3) <= 3


def _value(slot: Slot, request: Request, span: Span) -> float | int | None:
    value = number(span.text)
    if value is None or (
        any(day.overlaps(span) for day, _ in request.days) and not _yearly(slot, value)
    ):
        return None
    value = value * _SCALES.get(request.after(span), 1)
    share = _DECIMAL.search(slot.about) or not _PERCENT.search(slot.about + slot.name)
    if (
        slot.kind == "number"
        and share
        and (span.text.endswith("%") or request.after(span) == "percent")
    ):
        value = value / 100
    if slot.kind == "integer" and value != int(value):
        return None
    value = int(value) if slot.kind == "integer" else value
    low, high = slot.schema.get("minimum"), slot.schema.get("maximum")
    return value if (low is None or value >= low) and (high is None or value <= high) else None


def _yearly(slot: Slot, value: float) -> bool:
    return "year" in content(slot.name) and 1000 <= value <= 2999


@frozen
class _Numeric:
    """A slot with the words of its name and its description that no other slot has."""

    slot: Slot
    name: frozenset[str]
    words: frozenset[str]


def assign(slots: Sequence[Slot], request: Request) -> dict[str, Value]:
    """Numbers for numeric slots, all at once. Only what is settled: the rest is left to the model.

    Raises nothing; with too many slots or numbers it settles nothing.
    """
    offered = {slot.name: [v for v in numbers(slot, request) if v.span] for slot in slots}
    pieces = {v.span.first for found in offered.values() for v in found if v.span}
    required = [s for s in slots if s.required]
    if not pieces or len(slots) > MOST_SLOTS or len(pieces) > MOST_NUMBERS:
        return {}
    if enumerated := _respectively(required, offered, request):
        return enumerated
    chosen = _cheapest([_numeric(s, slots) for s in slots], offered, request)
    enough = len(pieces) <= len(required)
    found: dict[str, Value] = {}
    for slot in slots:
        value = chosen.get(slot.name)
        if value is None:
            continue
        cost = distance(_numeric(slot, slots), value, request)
        alone = len(offered[slot.name]) == 1
        if cost <= 3 or (slot.required and (alone or (enough and len(required) > 1))):
            found[slot.name] = value
    return found


def _numeric(slot: Slot, slots: Sequence[Slot]) -> _Numeric:
    name = frozenset(content(slot.name))
    others = [s for s in slots if s is not slot]
    names = frozenset(w for o in others for w in content(o.name))
    words = frozenset(w for o in others for w in o.words)
    return _Numeric(slot, (name - names) or name, slot.words - words - names | (name - names))


def distance(numeric: _Numeric, value: Value, request: Request) -> float:
    """How far a number is from being this slot's: 0 by its unit or as a year, else atoms to the
    nearest own word.
    """
    span = value.span
    if span is None:
        return UNFILLED
    cost = min(
        float(request.near(span, numeric.name, FAR)),
        request.near(span, numeric.words, FAR) + 0.5,
    )
    unit, words = request.unit(span), numeric.slot.words
    agreed = agrees(unit, words)
    cost = cost if agreed is None else min(cost, 0.6) if agreed else cost + 2
    if span.text.isdigit() and len(span.text) == 4 and 1900 <= int(span.text) <= 2100:
        cost = (
            min(cost, 0.5)
            if "year" in words
            else cost + 3 * (request.before(span) in ("in", "of", "since"))
        )
    counted = request.after(span)
    if numeric.name & _COUNTS and span.text.isalpha():
        cost = min(cost, 2.0)
    if numeric.name & _COUNTS and counted.isalpha() and counted.endswith("s") and not is_unit(unit):
        cost = min(cost, 2.0)
    return cost


def _cheapest(
    numerics: Sequence[_Numeric], offered: dict[str, list[Value]], request: Request
) -> dict[str, Value]:
    """The assignment of least cost: branch and bound over the slots in their order."""
    best: tuple[float, dict[str, Value]] = (math.inf, {})

    def go(at: int, cost: float, used: tuple[int, ...], made: dict[str, Value]) -> None:
        nonlocal best
        if cost >= best[0]:
            return
        if at == len(numerics):
            best = (cost, made)
            return
        numeric = numerics[at]
        for value in offered[numeric.slot.name]:
            if value.span is None or value.span.first in used:
                continue
            more = distance(numeric, value, request) + ORDER * sum(
                u > value.span.first for u in used
            )
            go(
                at + 1,
                cost + more,
                (*used, value.span.first),
                {**made, numeric.slot.name: value},
            )
        go(at + 1, cost + (UNFILLED if numeric.slot.required else OPTIONAL), used, made)

    go(0, 0.0, (), {})
    return best[1]


def _respectively(
    slots: Sequence[Slot], offered: dict[str, list[Value]], request: Request
) -> dict[str, Value]:
    """`base and height as 6 cm and 10 cm`: all the slots' words first, then as many numbers as a
    list.
    """
    pieces = sorted(
        {v.span.first: v.span for f in offered.values() for v in f if v.span}.values(),
        key=lambda s: s.first,
    )
    if len(slots) < 2 or len(pieces) != len(slots):
        return {}
    places: list[tuple[int, Slot]] = []
    for slot in slots:
        own = _numeric(slot, slots).name
        at = [i for i, word in enumerate(request.stems[: pieces[0].first]) if word in own]
        if not at:
            return {}
        places.append((at[-1], slot))
    between = [request.stems[a.last + 1 : b.first] for a, b in itertools.pairwise(pieces)]
    if len({at for at, _ in places}) < len(slots) or any(len(words) > 2 for words in between):
        return {}
    found: dict[str, Value] = {}
    for piece, (_, slot) in zip(pieces, sorted(places, key=lambda p: p[0]), strict=True):
        value = next((v for v in offered[slot.name] if v.span == piece), None)
        if value is None:
            return {}
        found[slot.name] = value
    return found
