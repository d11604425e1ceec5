"""Find out whether a request asks for one call several times, with other values each time.

    `the weather in Paris, Oslo and Rome`             a list of values
    `a radius of 5 and a height of 10, and another    values of the same kinds, once more
    with a radius of 7 and a height of 12`
    `Ann and Bob, for 10 and 20 days respectively`    lists that belong together

Every repetition becomes a request of its own: what stands before the first values and behind the
last ones stays, and of the values one set is left. A request is taken apart only if one call has no
place for all of its values, and each of the calls has one for its own and lacks nothing.

Pure but for the fillings that are tried, in which no model is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from ferrule.core.value_class import frozen
from ferrule.tools.word_stems import content_stems, stem, words

from .argument_filling import ArgumentFiller, WithoutModel
from .candidates import find_named_choices
from .lists import read_enumerations
from .request import Request
from .slots import Slot
from .spans import Span

MAX_PERIOD = 6
"""Values of one repetition."""

MAX_TRIED = 12
"""Ways to take a request apart that are tried."""

MAX_VALUES = 24
"""With more values than these in a request it is left whole."""

_JOINING_WORD = r"\b(?:and|or|also|then|versus|vs)\b"
_SEPARATOR = re.compile(rf"[,;.?\n]|{_JOINING_WORD}", re.IGNORECASE)
_JOINT = re.compile(rf"[,;]|{_JOINING_WORD}", re.IGNORECASE)
_CONJUNCTION = re.compile(rf"{_JOINING_WORD}|;", re.IGNORECASE)
_COUNTING = frozenset(
    map(stem, words("another second third fourth last finally lastly also next one other"))
)
_BEFORE_WORDS = frozenset(words("of for in on with from to about between"))
_RESPECTIVELY = re.compile(r"\brespectively\b", re.IGNORECASE)


@frozen
class _Piece:
    """A value of a text: where it begins and ends, and what kind it is."""

    start: int
    end: int
    kind: str


_Region = list[list[_Piece]]
"""Repetitions that follow each other, each as its values."""


async def find_repeated_requests(
    text: str, name: str, description: str, schema: Any, slots: Sequence[Slot]
) -> list[str]:
    """Return the requests that a text makes of one tool; only itself, if they are not several."""
    pieces = find_pieces(Request(text), slots)
    ways = list(_find_ways(text, pieces))[:MAX_TRIED]
    if not ways:
        return [text]
    filler = ArgumentFiller(WithoutModel(), name, description, schema)
    _, covered = await _try(filler, text)
    found = [text]
    most = 0
    for regions in ways:
        within = [piece for region in regions for values in region for piece in values]
        if len(within) <= most or all(map(covered, within)):
            continue
        several = [_rewrite(text, regions, number) for number in range(len(regions[0]))]
        if await _are_calls(filler, several, slots):
            found = [one for one, _ in several]
            most = len(within)
    return found


def find_pieces(request: Request, slots: Sequence[Slot]) -> list[_Piece]:
    """Return the values of a request, in its order: none overlaps another."""
    marked = request.free_atoms("quoted", "path", "url")
    spans = [(span, span.kind) for span in marked if not _is_unit(request, span)]
    spans += [(span, "date") for span, _ in request.dates]
    spans += [(span, "formula") for span in request.formulas]
    for slot in slots:
        named = find_named_choices(slot, request) if slot.kind == "enum" else []
        spans += [(value.span, f"choice {slot.name}") for value in named if value.span]
    spans += [(span, "name") for span in request.names]
    spans += [(s, _kind_of_number(s)) for s in request.free_atoms("number") if _has_digit(s)]
    spans += [(span, "code") for span in request.free_atoms("word") if _has_digit(span)]
    for _, listed in read_enumerations(request):
        if request.word_before(listed[0]) in _BEFORE_WORDS:
            spans += [(span, "word") for span in listed]
    taken: list[Span] = []
    found: list[_Piece] = []
    for span, kind in spans:
        if not any(span.overlaps(other) for other in taken):
            taken.append(span)
            start, end = request.atoms[span.first].start, request.atoms[span.last].end
            found.append(_Piece(start, end, kind))
    return sorted(found, key=lambda piece: piece.start)


def _is_unit(request: Request, span: Span) -> bool:
    """Return whether what looks like a path stands behind a number: `15 m/s`."""
    return span.first > 0 and request.atoms[span.first - 1].kind == "number"


def _kind_of_number(span: Span) -> str:
    return "number" + "".join(mark for mark in "$€£%" if mark in span.text)


def _has_digit(span: Span) -> bool:
    return any(map(str.isdigit, span.text))


def _find_ways(text: str, pieces: Sequence[_Piece]) -> Iterator[list[_Region]]:
    """Yield the ways to see repetitions in a text: what holds most values comes first."""
    if len(pieces) > MAX_VALUES:
        return
    regions = _find_regions(text, pieces)
    regions += _find_regions(text, [piece for piece in pieces if piece.kind != "word"])
    if _RESPECTIVELY.search(text):
        for left in regions:
            for right in regions:
                is_behind = left[-1][-1].end < right[0][0].start
                if is_behind and len(left) == len(right) and len(left[0]) == len(right[0]) == 1:
                    yield [left, right]
    for region in sorted(regions, key=lambda r: (-len(r) * len(r[0]), len(r))):
        yield [region]


def _find_regions(text: str, pieces: Sequence[_Piece]) -> list[_Region]:
    found: list[_Region] = []
    for first in range(len(pieces)):
        for period in range(1, MAX_PERIOD + 1):
            region = _region_at(text, pieces, first, period)
            if len(region) > 1:
                found.append(region)
    return found


def _region_at(text: str, pieces: Sequence[_Piece], first: int, period: int) -> _Region:
    """Return the repetitions of so many values that begin with a value."""
    kinds = [piece.kind for piece in pieces[first : first + period]]
    found: _Region = []
    for at in range(first, len(pieces) - period + 1, period):
        values = list(pieces[at : at + period])
        if [piece.kind for piece in values] != kinds:
            break
        if found and not _is_joint(text, found, values[0].start):
            break
        if found and _differ_in_words(text, found[0], values):
            break
        found.append(values)
    if period == 1 and len(found) == 2:
        between = text[found[0][0].end : found[1][0].start]
        if not _CONJUNCTION.search(between):
            return []  # `Paris, France` is one place.
    return found


def _is_joint(text: str, found: _Region, start: int) -> bool:
    """Return whether what stands before the next repetition joins it to the last one.

    Between single values stand only words that were said before the first, or that count them.
    """
    between = text[found[-1][-1].end : start]
    if len(found[0]) > 1:
        return _SEPARATOR.search(between) is not None
    said = {*content_stems(text[: found[0][0].start]), *_COUNTING}
    new = set(content_stems(_after_unit(between))) - said
    return _JOINT.search(between) is not None and not new


def _differ_in_words(text: str, left: Sequence[_Piece], right: Sequence[_Piece]) -> bool:
    """Return whether both sets of values have words between them, and none in common."""
    ours, theirs = (
        {
            word
            for one, other in pairwise(values)
            for word in content_stems(_after_unit(text[one.end : other.start]))
        }
        for values in (left, right)
    )
    return bool(ours and theirs) and ours.isdisjoint(theirs)


def _after_unit(between: str) -> str:
    """Return what stands between two values, without the word behind the first one."""
    return re.sub(r"^\s*\w+(?=\s*,|\s+and\b)", "", between)


def _rewrite(text: str, regions: Sequence[_Region], number: int) -> tuple[str, list[_Piece]]:
    """Return the text with one of the repetitions, and where its values stand in it."""
    parts: list[str] = []
    places: list[_Piece] = []
    at = 0
    length = 0
    for region in regions:
        values = region[number]
        before = text[at : region[0][0].start]
        kept = text[values[0].start : values[-1].end]
        shift = length + len(before) - values[0].start
        places += [_Piece(v.start + shift, v.end + shift, v.kind) for v in values]
        parts += [before, kept]
        length += len(before) + len(kept)
        at = region[-1][-1].end
    return "".join([*parts, text[at:]]), places


async def _try(filler: ArgumentFiller, text: str) -> tuple[dict[str, Any], Any]:
    """Return the arguments for a text, and whether a piece of it is one of their values."""
    request = filler.read(text)
    arguments = await filler.fill_from(request)
    taken = [
        (request.atoms[span.first].start, request.atoms[span.last].end) for span in request.taken
    ]

    def is_covered(piece: _Piece) -> bool:
        return any(start < piece.end and piece.start < end for start, end in taken)

    return arguments, is_covered


async def _are_calls(
    filler: ArgumentFiller, several: Sequence[tuple[str, list[_Piece]]], slots: Sequence[Slot]
) -> bool:
    """Return whether every text makes a call with all that is needed, each another one."""
    made: list[dict[str, Any]] = []
    for text, places in several:
        arguments, is_covered = await _try(filler, text)
        lacks = any(arguments.get(s.name) in (None, "", []) for s in slots if s.required)
        if lacks or arguments in made or not all(map(is_covered, places)):
            return False
        made.append(arguments)
    return all(one.keys() == other.keys() for one, other in pairwise(made))
