"""Which names of a request may fill a slot that is for a name, besides the model's choice.

Pure, and the same for every tool. A name is a run of words that is written as one (`request`).

    named      the slot is the name of somebody or something; names after a word of place are left
               to the slots that are for places, and so are dates and units
    in a role  the name stands before or after the slot's own role: `Ann Lee as the director`,
               `with Ann Lee` for somebody who takes part
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ferrule.tools.word_stems import content_stems, first_sentence, stem, stems

from .dates import is_calendar_name
from .evidence import wants_part_of_place
from .request import Request
from .slots import Slot
from .spans import Span
from .units import is_unit

_NAME_OF = re.compile(r"\bnames? of\b|['’]s (?:full |first |last )?name\b|^names?\b", re.IGNORECASE)
_NAMED = frozenset(
    map(
        stem,
        [
            "name",
            "company",
            "organization",
            "team",
            "player",
            "person",
            "celebrity",
            "league",
            "club",
            "brand",
            "university",
            "school",
            "band",
            "singer",
            "actor",
            "actress",
            "artist",
            "author",
            "composer",
            "customer",
            "museum",
            "hotel",
            "airline",
            "manufacturer",
            "religion",
            "store",
        ],
    )
)
_PEOPLE = frozenset(
    map(
        stem,
        [
            "actor",
            "actress",
            "cast",
            "star",
            "singer",
            "player",
            "guest",
            "member",
            "participant",
            "attendee",
            "passenger",
        ],
    )
)
_CITIES = frozenset(map(stem, ["city", "town"]))
_TAKING_PART = frozenset(
    ["with", "starring", "featuring", "including", "include", "stars", "features"]
)
_LOCATING = frozenset(["in", "at", "near", "around", "from", "to", "on", "within"])
_ARTICLES = frozenset(["a", "an", "the"])
_WITHOUT_MEANING = frozenset(map(stem, ["name", "title", "id", "type"]))


def is_named(slot: Slot) -> bool:
    """Return whether a slot is for the name of somebody or something."""
    if slot.kind != "string" or slot.role:
        return False
    named = content_stems(slot.name)
    if named and named[-1] in _NAMED:
        return True
    return bool(_NAME_OF.search(first_sentence(slot.about)))


def find_names(slot: Slot, request: Request) -> list[Span]:
    """Return the names that may fill a slot that is for a name; empty if it is for another thing.

    Those that hold the slot's own word come first (`Hilton Hotel`), and those with a word of
    another parameter last.
    """
    if not is_named(slot):
        return []
    found = [name for name in request.names if _is_usable(name, request)]
    own = frozenset(content_stems(slot.name)) - _WITHOUT_MEANING
    having_own = [name for name in found if not own.isdisjoint(stems(name.text))]
    if having_own:
        return having_own
    found = [name for name in found if not _is_located(name, request)]
    others = request.parameter_words - own
    return [name for name in found if others.isdisjoint(stems(name.text))] or found


def find_names_in_role(slot: Slot, request: Request) -> list[Span]:
    """Return the name that the request gives a role that is the slot's; empty without one."""
    if slot.kind != "string" or slot.role:
        return []
    own = frozenset(content_stems(slot.name)) | _roots(content_stems(slot.name))
    for name in request.names:
        role = _role_of(name, request)
        is_of_people = bool(role & _PEOPLE) and not _PEOPLE.isdisjoint(slot.words)
        if _is_usable(name, request) and (role & own or is_of_people):
            return [name]
    if _PEOPLE.isdisjoint(slot.words):
        return []
    for name in request.names:
        if _is_usable(name, request) and _takes_part(name, request):
            return [name]
    return []


def split_place(slot: Slot, places: Sequence[Span], request: Request) -> list[Span]:
    """Return the parts of places that a slot is for: `Rome` of `Rome, Italy` for a city.

    A slot whose description shows the longer form gets the places as they are.
    """
    if not wants_part_of_place(slot):
        return list(places)
    after_comma = [place for place in places if _follows_comma(place, request)]
    if not _CITIES.issuperset(content_stems(slot.name)[-1:]):
        return after_comma or list(places)
    return [place for place in places if place not in after_comma] or list(places)


def _follows_comma(place: Span, request: Request) -> bool:
    before = next((name for name in request.names if name.last == place.first - 1), None)
    if before is None:
        return False
    return request.text[request.atoms[before.last].end :].startswith(",")


def _is_usable(name: Span, request: Request) -> bool:
    """Return whether a name is free, and neither a date nor a unit."""
    if not request.is_free(name) or any(name.overlaps(day) for day, _ in request.dates):
        return False
    first = request.atoms[name.first].text
    return not is_calendar_name(first) and not is_unit(stem(name.text))


def _role_of(name: Span, request: Request) -> frozenset[str]:
    """Return the stems of the role that follows a name: `as the director`, `as an actor`."""
    at = name.last + 1
    said = [atom.text.lower() for atom in request.atoms[at : at + 3]]
    if said[:1] != ["as"]:
        return frozenset()
    rest = [word for word in said[1:] if word not in _ARTICLES]
    role = stems(rest[0])[:1] if rest else []
    return frozenset(role) | _roots(role)


def _roots(words: Sequence[str]) -> frozenset[str]:
    """Return words without the endings of who does something: `director` and `direct` are one."""
    return frozenset(re.sub(r"(?:or|er)$", "", word) for word in words if len(word) > 5)


def _takes_part(name: Span, request: Request) -> bool:
    after = [atom.text.lower() for atom in request.atoms[name.last + 1 : name.last + 2]]
    if after == ["starring"]:
        return True
    before = [atom.text.lower() for atom in request.atoms[max(0, name.first - 3) : name.first]]
    return bool(_TAKING_PART.intersection(before[-1:])) or (
        bool(_TAKING_PART.intersection(before)) and stem(before[-1]) in _PEOPLE
    )


def _is_located(name: Span, request: Request) -> bool:
    """Return whether a name stands after a word of place, or after the comma of one that does."""
    if _follows_comma(name, request):
        name = next(one for one in request.names if one.last == name.first - 1)
    return _word_before(name, request) in _LOCATING


def _word_before(name: Span, request: Request) -> str:
    at = name.first - 1
    while at >= 0 and request.atoms[at].text.lower() in _ARTICLES:
        at -= 1
    return request.atoms[at].text.lower() if at >= 0 else ""
