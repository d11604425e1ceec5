"""Lists in a request: `1, 2 and 3`, `'a', 'b'`, `price and rating`, `[[1, 2], [3, 4]]`. Pure.

What it cannot see: where a list of plain words begins and ends if no function word says so; then
there are several readings, and the model chooses. A list is copied, so it ends where the request
does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from ferrule.tools.word_stems import FUNCTION_WORDS, stem, stems

from .evidence import places_of, told
from .numbers import numbers
from .request import Request
from .slots import Slot, Value
from .spans import Span

_BRACKETED = re.compile(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|\{[^{}]*\}")
_BETWEEN = re.compile(r"[\s,;&/'\"]*(?:and|or|,|&|as well as)?[\s'\"]*")
_PARTED = re.compile(r"\s*(?:[,;&]|,?\s*\b(?:and|or)\b)\s*")

List = tuple[list[Any], list[Span]]
"""A list's values, and the pieces they were read from."""


def lists(slot: Slot, request: Request) -> list[List]:
    """Readings of the request as a list for an array slot, best first."""
    item = slot.item
    if item is None:
        return []
    if written := _written(slot, request):
        return [written]
    if item.kind == "enum":
        named = chosen(item, request)
        return [named] if named[0] else []
    if item.kind in ("integer", "number"):
        found = numbers(item, request)
        found = [v for v in found if v.span and not v.span.text.isalpha()] or found
        return [
            ([_typed(item, v.value) for v in run], _spans(run)) for run in _runs(found, request)
        ]
    if item.kind != "string":
        return []
    if quoted := request.single("quoted"):
        runs = _runs([Value(s.text, s) for s in quoted], request)
        return [([v.value for v in run], _spans(run)) for run in runs]
    mentioned = told(slot, request)
    if len(mentioned) > 1:
        mentioned.sort(key=lambda v: v.span.first if v.span else 0)
        return [([v.value for v in mentioned], _spans(mentioned))]
    return enumerations(request, slot.words)


def chosen(item: Slot, request: Request) -> List:
    """Every choice of an enumeration that the request names, in the request's order."""
    found: list[tuple[int, Any, Span]] = []
    for choice in item.choices:
        standing = (s for s in places_of(stems(str(choice)), request) if request.is_free(s))
        standing = (s for s in standing if not request.in_name(s))
        span = next(standing, None) or _shortened(str(choice), request)
        if span is not None:
            found.append((span.first, choice, span))
    found.sort(key=lambda one: one[0])
    return [choice for _, choice, _ in found], [span for *_, span in found]


def _shortened(choice: str, request: Request) -> Span | None:
    """A word of which a choice of one word is a part, or that it begins with: `carbs` for
    `Carbohydrates`.
    """
    if not choice.isalpha():
        return None
    for span in request.single("word"):
        if request.in_name(span):
            continue
        begun = stem(span.text)
        if stem(choice) in stems(span.text) or (
            len(begun) >= 4 and choice.lower().startswith(begun)
        ):
            return span
    return None


def _typed(item: Slot, value: Any) -> Any:
    return float(value) if item.kind == "number" and isinstance(value, int) else value


def _spans(values: Sequence[Value]) -> list[Span]:
    return [v.span for v in values if v.span]


def _written(slot: Slot, request: Request) -> List | None:
    """A list written as JSON, where it has the depth that is asked for."""
    for match in _BRACKETED.finditer(request.text):
        inside = [i for i, a in enumerate(request.atoms) if match.start() <= a.start < match.end()]
        span = Span(match.group(), inside[0], inside[-1], "run") if inside else None
        if span is None or not request.is_free(span):
            continue
        try:
            value = json.loads(match.group().replace("'", '"'))
        except (ValueError, RecursionError):
            continue
        if (
            isinstance(value, list)
            and (made := _fitting(slot, cast("list[Any]", value))) is not None
        ):
            return made, [span]
    return None


def _fitting(slot: Slot, value: list[Any]) -> list[Any] | None:
    """The list with its items typed; None if they are of another kind."""
    item = slot.item
    if item is None:
        return None
    if item.kind == "array":
        inner = [
            _fitting(item, cast("list[Any]", v)) if isinstance(v, list) else None for v in value
        ]
        return None if any(v is None for v in inner) else inner
    kinds: dict[str, tuple[type, ...]] = {
        "integer": (int,),
        "number": (int, float),
        "string": (str,),
        "enum": (str,),
    }
    if not all(isinstance(v, kinds.get(item.kind, ())) and not isinstance(v, bool) for v in value):
        return None
    return [_typed(item, v) for v in value]


def _runs(pieces: Sequence[Value], request: Request) -> list[list[Value]]:
    """Pieces that stand together."""
    runs: list[list[Value]] = []
    for piece in pieces:
        if runs and _adjoins(request, runs[-1][-1].span, piece.span):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs


def _adjoins(request: Request, left: Span | None, right: Span | None) -> bool:
    if left is None or right is None:
        return False
    between = request.text[request.atoms[left.last].end : request.atoms[right.first].start]
    return _BETWEEN.fullmatch(between) is not None


def enumerations(request: Request, own: frozenset[str] = frozenset()) -> list[List]:
    """Plain words that are counted up: short free pieces with commas, `and` or `or` between them.
    Longest first.
    """
    atoms = request.atoms
    groups: list[list[Span]] = []
    at = 0
    while at < len(atoms):
        group, after = _group(request, at)
        if len(group) > 1:
            groups.append(group)
        at = max(after, at + 1)
    named = [[_without(request, span, own) for span in group] for group in groups]
    return sorted((([s.text for s in g], g) for g in named), key=lambda one: -len(one[0]))


def _without(request: Request, span: Span, own: frozenset[str]) -> Span:
    """A piece without the parameter's own word at its end: `engine size and fuel economy
    variables`.
    """
    last = span.last
    while last > span.first and request.atoms[last].text.islower() and request.stems[last] in own:
        last -= 1
    if last == span.last:
        return span
    return Span(
        request.text[request.atoms[span.first].start : request.atoms[last].end],
        span.first,
        last,
        "run",
    )


def _group(request: Request, first: int) -> tuple[list[Span], int]:
    """The pieces counted up from here, and the atom after them."""
    found: list[Span] = []
    at = first
    while (piece := _piece(request, at)) is not None:
        found.append(piece)
        at = piece.last + 1
        while at < len(request.atoms) and request.atoms[at].text.lower() in (
            "and",
            "or",
            "the",
            "a",
            "an",
        ):
            at += 1
        if at >= len(request.atoms):
            break
        between = request.text[request.atoms[piece.last].end : request.atoms[at].start]
        if not re.search(r",|;|&|\band\b|\bor\b", between):
            break
    return found, at


def _piece(request: Request, first: int) -> Span | None:
    """The longest piece from here without a function word, a comma or a border of sentences, at
    most four atoms.
    """
    atoms, last = request.atoms, first - 1
    while last + 1 < len(atoms) and last - first < 3:
        atom = atoms[last + 1]
        if atom.text.lower() in FUNCTION_WORDS or not request.is_free(
            Span("", last + 1, last + 1, "")
        ):
            break
        if last >= first and not request.text[atoms[last].end : atom.start].isspace():
            break
        last += 1
    if last < first or (request.heads(first) and first == last):
        return None
    return Span(
        request.text[atoms[first].start : atoms[last].end] if last > first else atoms[first].text,
        first,
        last,
        "run",
    )
