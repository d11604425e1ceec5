"""Read lists in a request: `1, 2 and 3`, `'a', 'b'`, `price and rating`, `[[1, 2], [3, 4]]`.

Pure. A list is copied, so it ends where the request does. What this cannot see: where a list of
plain words begins and ends if no function word says so. Then there are several readings, the best
of which comes first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from ferrule.core.calls import parse_json
from ferrule.tools.word_stems import FUNCTION_WORDS, stem, stems

from .evidence import find_listed_values, find_occurrences
from .numbers import find_numbers
from .request import Request
from .slots import Slot, Value
from .spans import Span

_BRACKETED = re.compile(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|\{[^{}]*\}")
_BETWEEN = re.compile(r"[\s,;&/'\"]*(?:and|or|,|&|as well as)?[\s'\"]*")

_BETWEEN_WORDS = ("and", "or", "the", "a", "an")

ListReading = tuple[list[Any], list[Span]]
"""The values of a list, and the pieces they were read from."""


def read_lists(slot: Slot, request: Request) -> list[ListReading]:
    """Return the readings of a request as a list for an array slot, best first."""
    item = slot.item
    if item is None:
        return []
    written = _find_json(slot, request)
    if written:
        return [written]
    if item.kind == "enum":
        named = read_choices(item, request)
        return [named] if named[0] else []
    if item.kind in ("integer", "number"):
        found = find_numbers(item, request)
        found = [v for v in found if v.span and not v.span.text.isalpha()] or found
        runs = _runs(found, request)
        return [([_convert(item, v.value) for v in run], _spans(run)) for run in runs]
    if item.kind != "string":
        return []
    return _string_lists(slot, request)


def _string_lists(slot: Slot, request: Request) -> list[ListReading]:
    quoted = request.free_atoms("quoted")
    if quoted:
        runs = _runs([Value(span.text, span) for span in quoted], request)
        return [([v.value for v in run], _spans(run)) for run in runs]
    listed = find_listed_values(slot, request)
    if len(listed) > 1:
        listed.sort(key=lambda v: v.span.first if v.span else 0)
        return [([v.value for v in listed], _spans(listed))]
    return read_enumerations(request, slot.words)


def read_choices(item: Slot, request: Request) -> ListReading:
    """Return every choice of an enum that the request names, in the request's order."""
    found: list[tuple[Any, Span]] = []
    for choice in item.choices:
        spans = find_occurrences(stems(str(choice)), request)
        free = (span for span in spans if request.is_free(span) and not request.is_in_name(span))
        span = next(free, None) or _find_shortened(str(choice), request)
        if span is not None:
            found.append((choice, span))
    found.sort(key=lambda pair: pair[1].first)
    return [choice for choice, _ in found], [span for _, span in found]


def _find_shortened(choice: str, request: Request) -> Span | None:
    """Return a word that has a one-word choice as a part, or that the choice begins with.

    For instance `carbs` for `Carbohydrates`.
    """
    if not choice.isalpha():
        return None
    for span in request.free_atoms("word"):
        if request.is_in_name(span):
            continue
        start = stem(span.text)
        is_start = len(start) >= 4 and choice.lower().startswith(start)
        if is_start or stem(choice) in stems(span.text):
            return span
    return None


def _convert(item: Slot, value: Any) -> Any:
    return float(value) if item.kind == "number" and isinstance(value, int) else value


def _spans(values: Sequence[Value]) -> list[Span]:
    return [v.span for v in values if v.span]


def _find_json(slot: Slot, request: Request) -> ListReading | None:
    """Return a list that is written as JSON, if its items are what the slot takes."""
    for match in _BRACKETED.finditer(request.text):
        inside = [i for i, a in enumerate(request.atoms) if match.start() <= a.start < match.end()]
        span = Span(match.group(), inside[0], inside[-1], "run") if inside else None
        if span is None or not request.is_free(span):
            continue
        try:
            value = parse_json(match.group().replace("'", '"'))
        except ValueError:
            continue
        items = _convert_items(slot, cast("list[Any]", value)) if isinstance(value, list) else None
        if items is not None:
            return items, [span]
    return None


_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "enum": (str,),
}


def _convert_items(slot: Slot, items: list[Any]) -> list[Any] | None:
    """Return a list with its items converted; None if they are of another kind."""
    item = slot.item
    if item is None:
        return None
    converted: list[Any] = []
    for value in items:
        if item.kind == "array":
            inner = (
                _convert_items(item, cast("list[Any]", value)) if isinstance(value, list) else None
            )
            if inner is None:
                return None
            converted.append(inner)
        elif isinstance(value, _TYPES.get(item.kind, ())) and not isinstance(value, bool):
            converted.append(_convert(item, value))
        else:
            return None
    return converted


def _runs(pieces: Sequence[Value], request: Request) -> list[list[Value]]:
    """Return the pieces, grouped by which of them stand together."""
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


def read_enumerations(request: Request, own: frozenset[str] = frozenset()) -> list[ListReading]:
    """Return lists of plain words: short free pieces with commas, `and` or `or` between them.

    The longest list comes first. `own` are the slot's own words: a piece does not end with them.
    """
    atoms = request.atoms
    groups: list[list[Span]] = []
    at = 0
    while at < len(atoms):
        group, after = _group(request, at)
        if len(group) > 1:
            groups.append(group)
        at = max(after, at + 1)
    found: list[ListReading] = []
    for group in groups:
        pieces = [_strip_own_words(request, span, own) for span in group]
        found.append(([piece.text for piece in pieces], pieces))
    return sorted(found, key=lambda one: -len(one[0]))


def _strip_own_words(request: Request, span: Span, own: frozenset[str]) -> Span:
    """Return a piece without the slot's own word at its end.

    For instance `variables` in `engine size and fuel economy variables`.
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
    """Return the pieces of a list that begins here, and the atom after them."""
    found: list[Span] = []
    at = first
    while (piece := _piece(request, at)) is not None:
        found.append(piece)
        at = piece.last + 1
        while at < len(request.atoms) and request.atoms[at].text.lower() in _BETWEEN_WORDS:
            at += 1
        if at >= len(request.atoms):
            break
        between = request.text[request.atoms[piece.last].end : request.atoms[at].start]
        if not re.search(r",|;|&|\band\b|\bor\b", between):
            break
    return found, at


def _piece(request: Request, first: int) -> Span | None:
    """Return the longest piece from here, of at most four atoms.

    It has no function word, no comma and no end of a sentence inside.
    """
    atoms = request.atoms
    last = first - 1
    while last + 1 < len(atoms) and last - first < 3:
        atom = atoms[last + 1]
        if atom.text.lower() in FUNCTION_WORDS:
            break
        if not request.is_free(Span("", last + 1, last + 1, "")):
            break
        if last >= first and not request.text[atoms[last].end : atom.start].isspace():
            break
        last += 1
    if last < first or (request.is_sentence_start(first) and first == last):
        return None
    text = atoms[first].text
    if last > first:
        text = request.text[atoms[first].start : atoms[last].end]
    return Span(text, first, last, "run")
