"""Assign the numbers of a request to slots.

Pure. What counts is the words that a number stands near, its unit, and whether it is a year; then
the order of numbers and slots. All numbers and all numeric slots are looked at together, optional
ones as well: a number beside an optional parameter's own word is not free for the others.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from ferrule.core.value_class import frozen
from ferrule.tools.word_stems import content_stems, stem

from .request import Request
from .slots import Slot, Value
from .spans import Span, parse_number
from .units import is_unit, is_unit_for

_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PERCENT = re.compile(r"percent", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal|\b0?\.\d|between 0 and 1", re.IGNORECASE)
_COUNTS = frozenset(["count", "number", "num", "limit", "top", "total", "quantity", "max", "n"])

_FIRSTS = frozenset(["first", "top"])
_STARTS = frozenset(map(stem, ["start", "begin", "first", "from"]))

MAX_DISTANCE = 4
"""Atoms between a number and a word from which on they have nothing to do with each other."""

UNFILLED_COST = 9.0
"""Cost of a required slot without a number."""

UNFILLED_OPTIONAL_COST = 3.2
"""Cost of an optional slot without a number."""

ORDER_COST = 0.4
"""Cost of two numbers that stand in another order than their slots."""

MAX_SLOTS = 7
MAX_NUMBERS = 9
"""With more slots or numbers than these nothing is assigned."""


def find_numbers(slot: Slot, request: Request) -> list[Value]:
    """Return the numbers that may fill a slot, in the request's order.

    Numbers in words count only if there are no digits, or before what the slot counts.
    """
    found: list[Value] = []
    pieces = [
        span for span in request.free_atoms("number", "word") if parse_number(span.text) is not None
    ]
    has_digits = any(any(map(str.isdigit, span.text)) for span in pieces)
    for span in pieces:
        if has_digits and span.text.isalpha() and not _is_count(slot, request, span):
            continue
        if any(span.overlaps(formula) for formula in request.formulas):
            continue
        value = _value(slot, request, span)
        if value is not None:
            found.append(Value(value, span))
    return found


def _is_count(slot: Slot, request: Request, span: Span) -> bool:
    """Return whether a number in words stands before what the slot counts: `two tickets`."""
    if _COUNTS.isdisjoint(content_stems(slot.name)) or any(map(str.isdigit, slot.name)):
        return False
    return span.text.lower() != "one" and request.distance_to(span, slot.words, 3) <= 3


def _value(slot: Slot, request: Request, span: Span) -> float | int | None:
    """Return a number as the slot's value; None if it cannot be that."""
    value = parse_number(span.text)
    if value is None:
        return None
    is_in_date = any(day.overlaps(span) for day, _ in request.dates)
    if is_in_date and not _is_year(slot, value):
        return None
    value = value * _SCALES.get(request.word_after(span), 1)
    if slot.kind == "number" and _is_percentage(span, request) and not _takes_percent(slot):
        value = value / 100
    if slot.kind == "integer":
        if value != int(value):
            return None
        value = int(value)
    low = slot.schema.get("minimum")
    high = slot.schema.get("maximum")
    if (low is not None and value < low) or (high is not None and value > high):
        return None
    return value


def _is_percentage(span: Span, request: Request) -> bool:
    return span.text.endswith("%") or request.word_after(span) == "percent"


def _takes_percent(slot: Slot) -> bool:
    """Return whether a slot takes 5 for 5%, and not 0.05."""
    if _DECIMAL.search(slot.about):
        return False
    return _PERCENT.search(slot.about + slot.name) is not None


def _is_year(slot: Slot, value: float) -> bool:
    return "year" in content_stems(slot.name) and 1000 <= value <= 2999


@frozen
class _Numeric:
    """A slot, with the words of its name and its description that no other slot has."""

    slot: Slot
    name: frozenset[str]
    words: frozenset[str]


def assign_numbers(slots: Sequence[Slot], request: Request) -> dict[str, Value]:
    """Return the numbers of numeric slots, by the slots' names.

    Only what is settled is there; the rest is left to the model. With too many slots or numbers
    nothing is settled.
    """
    offered = {slot.name: [v for v in find_numbers(slot, request) if v.span] for slot in slots}
    pieces = _distinct_spans(offered)
    required = [slot for slot in slots if slot.required]
    if not pieces or len(slots) > MAX_SLOTS or len(pieces) > MAX_NUMBERS:
        return {}
    in_order = _assign_respectively(required, offered, request)
    if in_order:
        return in_order
    chosen = _cheapest([_numeric(slot, slots) for slot in slots], offered, request)
    has_no_spare_numbers = len(required) > 1 and len(pieces) <= len(required)
    found: dict[str, Value] = {}
    for slot in slots:
        value = chosen.get(slot.name)
        if value is None:
            continue
        is_only_one = len(offered[slot.name]) == 1
        is_needed = slot.required and (is_only_one or has_no_spare_numbers)
        if is_needed or measure_distance(_numeric(slot, slots), value, request) <= 3:
            found[slot.name] = value
    return found


def _distinct_spans(offered: dict[str, list[Value]]) -> list[Span]:
    """Return the pieces of all values, each once, in the request's order."""
    spans: dict[int, Span] = {}
    for found in offered.values():
        for value in found:
            if value.span is not None:
                spans[value.span.first] = value.span
    return [spans[first] for first in sorted(spans)]


def _numeric(slot: Slot, slots: Sequence[Slot]) -> _Numeric:
    name = frozenset(content_stems(slot.name))
    others = [other for other in slots if other is not slot]
    other_names = frozenset[str]().union(*(content_stems(other.name) for other in others))
    other_words = frozenset[str]().union(*(other.words for other in others))
    own_name = name - other_names
    return _Numeric(slot, own_name or name, slot.words - other_words - other_names | own_name)


def measure_distance(numeric: _Numeric, value: Value, request: Request) -> float:
    """Return how far a number is from being a slot's value.

    In general it is the number of atoms to the nearest of the slot's own words. It is small for a
    unit that the slot is measured in and for a year that it asks for, and larger for other units.
    """
    span = value.span
    if span is None:
        return UNFILLED_COST
    cost = min(
        float(request.distance_to(span, numeric.name, MAX_DISTANCE)),
        request.distance_to(span, numeric.words, MAX_DISTANCE) + 0.5,
    )
    unit = request.unit_of(span)
    words = numeric.slot.words
    unit_agrees = is_unit_for(unit, words)
    if unit_agrees:
        cost = min(cost, 0.6)
    elif unit_agrees is False:
        cost += 2
    if span.text.isdigit() and len(span.text) == 4 and 1900 <= int(span.text) <= 2100:
        if "year" in words:
            cost = min(cost, 0.5)
        elif request.word_before(span) in ("in", "of", "since"):
            cost += 3
    if request.word_before(span) in _FIRSTS and request.word_after(span).endswith("s"):
        # `the first 20 lines` end at 20.
        cost += 3 if numeric.name & _STARTS else 0
    if numeric.name & _COUNTS:
        counted = request.word_after(span)
        is_plural = counted.isalpha() and counted.endswith("s") and not is_unit(unit)
        if is_plural or span.text.isalpha():
            cost = min(cost, 2.0)
    return cost


def _cheapest(
    numerics: Sequence[_Numeric], offered: dict[str, list[Value]], request: Request
) -> dict[str, Value]:
    """Return the assignment of least cost, by branch and bound over the slots in their order."""
    best: tuple[float, dict[str, Value]] = (math.inf, {})

    def assign_from(
        at: int, cost: float, used: tuple[int, ...], assigned: dict[str, Value]
    ) -> None:
        nonlocal best
        if cost >= best[0]:
            return
        if at == len(numerics):
            best = (cost, assigned)
            return
        slot = numerics[at].slot
        for value in offered[slot.name]:
            if value.span is None or value.span.first in used:
                continue
            place = value.span.first
            out_of_order = sum(other > place for other in used)
            more = measure_distance(numerics[at], value, request) + ORDER_COST * out_of_order
            assign_from(at + 1, cost + more, (*used, place), {**assigned, slot.name: value})
        unfilled = UNFILLED_COST if slot.required else UNFILLED_OPTIONAL_COST
        assign_from(at + 1, cost + unfilled, used, assigned)

    assign_from(0, 0.0, (), {})
    return best[1]


def _assign_respectively(
    slots: Sequence[Slot], offered: dict[str, list[Value]], request: Request
) -> dict[str, Value]:
    """Assign numbers that are listed in the order of the slots' words.

    All the words come first, then as many numbers: `base and height as 6 cm and 10 cm`.
    """
    pieces = _distinct_spans(offered)
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
