"""Find the values of a request for slots that are not for texts (`value_ranking` has those).

Pure, and the same for every tool. What stays open (several values would do) is left to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ferrule.tools.word_stems import stem, stems

from .action_check import find_synonyms
from .evidence import find_listed_values, find_occurrences
from .lists import read_lists
from .numbers import find_numbers
from .request import Request
from .slots import Slot, Value, keep_outermost
from .spans import Span
from .units import is_unit

_SWITCHES = frozenset(
    stem(w)
    for w in [
        "include",
        "show",
        "use",
        "is",
        "with",
        "has",
        "want",
        "get",
        "allow",
        "enable",
        "do",
        "add",
        "return",
    ]
)
_NEGATIONS = frozenset(["no", "not", "without", "don't", "never", "except"])
_ONES = frozenset(["next", "last", "past", "a", "an", "each", "every", "per", "one", "coming"])


def find_values(slot: Slot, request: Request) -> list[Value]:
    """Return what a request offers for a slot, in the request's order; empty if nothing."""
    if slot.kind == "enum":
        named = find_named_choices(slot, request) or _find_choices(slot, request, in_names=True)
        others = [Value(c) for c in slot.choices if c not in [value.value for value in named]]
        return [*named, *others] if not named or is_opening_verb(named, request) else named
    if slot.kind == "boolean":
        return read_boolean(slot, request, any) or [Value(True), Value(False)]
    if slot.kind in ("integer", "number"):
        return find_numbers(slot, request) or _count_as_one(slot, request)
    return []


def _count_as_one(slot: Slot, request: Request) -> list[Value]:
    """Return 1 for one of the unit that the slot counts: `the next month`, `every hour`."""
    for index, word in enumerate(request.stems[1:], 1):
        before = request.atoms[index - 1].text.lower()
        if word in slot.words and is_unit(word) and before in _ONES:
            return [Value(1)]
    return []


def find_named_choices(slot: Slot, request: Request) -> list[Value]:
    """Return the choices that the request names.

    The verb that the request begins with is the weakest naming.
    """
    return _find_choices(slot, request) or _find_choice_by_verb(slot, request)


def is_opening_verb(named: Sequence[Value], request: Request) -> bool:
    """Return whether all that names a choice is the first word, which may only be the verb.

    `Show the history` need not be for `show`.
    """
    span = named[0].span if len(named) == 1 else None
    return span is not None and span.first == span.last == 0 and len(request.atoms) > 1


def _find_choice_by_verb(slot: Slot, request: Request) -> list[Value]:
    """Return the one choice whose kind of action the request asks for: `remove` for `delete`."""
    verbs = {str(choice): find_synonyms(str(choice)) for choice in slot.choices}
    found = [
        Value(choice)
        for choice in slot.choices
        if not verbs[str(choice)].isdisjoint(a.text.lower() for a in request.atoms)
    ]
    return found if len(found) == 1 else []


def _find_choices(slot: Slot, request: Request, *, in_names: bool = False) -> list[Value]:
    """Return the choices whose words stand in the request, and not within a longer name."""
    found: list[Value] = []
    for choice in slot.choices:
        for span in find_occurrences(stems(str(choice)), request):
            if in_names or not request.is_in_name(span):
                found.append(Value(choice, span))
                break
    if len(found) > 1:
        later = [v for v in found if v.span and (v.span.first > 0 or v.span.last > 0)]
        found = later or found
        # Of two units the one that stands behind a number: `a large cup, 16 ounces`.
        counted = [v for v in found if v.span and _follows_number(request, v.span)]
        found = counted if len(counted) == 1 else found
        found = keep_outermost(found) or found
    return found


def _follows_number(request: Request, span: Span) -> bool:
    return span.first > 0 and request.atoms[span.first - 1].kind == "number"


def read_boolean(
    slot: Slot, request: Request, enough: Callable[[Iterable[bool]], bool] = all
) -> list[Value]:
    """Return what the request says of a boolean; empty if it says nothing.

    True where the slot's words stand in the request, False where they are denied. `enough` says
    whether all of them must stand there or `any`.
    """
    named = [w for w in stems(slot.name) if w not in _SWITCHES and len(w) > 1]
    if not named or not enough(w in request.stems for w in named):
        return []
    at = min(request.stems.index(w) for w in named if w in request.stems)
    is_denied = any(a.text.lower() in _NEGATIONS for a in request.atoms[max(0, at - 3) : at])
    return [Value(not is_denied)]


def find_mentioned_values(slot: Slot, request: Request) -> list[Value]:
    """Return the values of an optional slot that the request gives evidence for.

    If there are none, the slot is left out.
    """
    if slot.kind == "enum":
        return find_named_choices(slot, request)
    if slot.kind == "boolean":
        return [v for v in read_boolean(slot, request) if v.value or slot.default]
    if slot.kind in ("integer", "number"):
        digits = [
            v for v in find_numbers(slot, request) if v.span and any(map(str.isdigit, v.span.text))
        ]
        return [v for v in digits if v.span and request.distance_to(v.span, slot.words, 3) <= 3]
    if slot.kind == "array" and slot.item:
        return _mentioned_lists(slot, slot.item, request)
    return []


def _mentioned_lists(slot: Slot, item: Slot, request: Request) -> list[Value]:
    if item.kind == "enum":
        return [
            Value(items, enclosing_span(pieces)) for items, pieces in read_lists(slot, request)[:1]
        ]
    if item.kind != "string":
        return []
    listed = find_listed_values(slot, request)
    if listed:
        return [Value([value.value for value in listed], listed[0].span)]
    found = request.free_atoms("path", "quoted", "url")
    return [Value([s.text for s in found], enclosing_span(found))] if found else []


def enclosing_span(pieces: Sequence[Span]) -> Span:
    """Return one span over pieces that stand apart."""
    return Span("", min(p.first for p in pieces), max(p.last for p in pieces), "run")
