"""What speaks for a piece of a request as the value of a text slot, besides a model's feeling.
Pure, the same for every tool.

told      the description itself lists values (`e.g. 'vegan'`, `can be summary or detailed`), and the request has one
labelled  the piece stands right after the parameter's own word (`medium to oil`, `user id 43523`, `artist: Bach`)
placed    the parameter is a place, and the piece is a name after `in`, `at`, `near`, `from`, `to`
by        the parameter is a maker, and the piece is a name after `by`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ferrule.tools.word_stems import FUNCTION_WORDS, content, stem, stems, words

from .request import Request
from .slots import Slot, Value, outermost
from .spans import Span, number

_QUOTED = re.compile(r"(?<![\w])['\"‘“`]([^'\"‘’“”`]{1,40})['\"’”`](?!\w)")
_LISTED = re.compile(
    (
        r"(?:\be\.?g\.?,?|\bsuch as|\blike|\bfor example,?|\bcan be|\bincluding|\boptions(?: "
        r"are)?:?|\beither)\s+([^.;()]{2,120})"
    ),
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r",\s*(?:and\s+|or\s+)?|\s+or\s+|\s+and\s+|/|\betc\b")
_ALIAS = re.compile(
    r"['\"]([\w+#-]{1,20})['\"]\s*(?:for|refers to|means|is|=|:)\s*(?:an?\s+|the\s+)?([A-Za-z]{3,})"
)
_JOINING = frozenset(["is", "as", "to", "called", "named", "titled", "of", "with", "for"])
_GENERIC = frozenset(
    map(
        stem,
        [
            "name",
            "type",
            "kind",
            "data",
            "value",
            "list",
            "info",
            "information",
            "text",
            "format",
            "number",
            "string",
        ],
    )
)
_KINDS = frozenset(map(stem, ["type", "kind", "category", "style", "class"]))
_KIND_OF = re.compile(
    r"(?:the |optional\W+)*(?:type|kind|category|style) of (?:the |an? )?([A-Za-z]+)", re.IGNORECASE
)
_BEGINS = frozenset(["from", "start", "origin", "source", "departure", "begin", "initial", "base"])
_ENDS = frozenset(["to", "end", "destination", "target", "arrival", "final"])
_PLACES = frozenset(
    map(
        stem,
        [
            "city",
            "location",
            "place",
            "country",
            "state",
            "region",
            "town",
            "destination",
            "area",
            "venue",
            "county",
            "address",
        ],
    )
)
_PLACING = frozenset(
    [
        "in",
        "at",
        "near",
        "around",
        "from",
        "to",
        "of",
        "nearby",
        "for",
        "within",
        "between",
        "into",
    ]
)
_MAKERS = frozenset(
    map(
        stem,
        [
            "artist",
            "author",
            "composer",
            "writer",
            "director",
            "painter",
            "creator",
            "brand",
        ],
    )
)


def is_place(slot: Slot) -> bool:
    named = content(slot.name)
    return slot.kind == "string" and bool(named) and (named[-1] in _PLACES or named[0] in _PLACES)


def is_maker(slot: Slot) -> bool:
    return slot.kind == "string" and not _MAKERS.isdisjoint(content(slot.name))


def listed_in(about: str) -> list[str]:
    """Values that a description names: quoted, or in a list after `e.g.` and the like."""
    found = [text.strip() for text in _QUOTED.findall(about)]
    for part in _LISTED.findall(about):
        if re.fullmatch(r"[A-Z][\w .]+, [A-Z]{2}", part.strip()):
            found.append(part.strip())
        elif not _QUOTED.search(part):
            pieces = [piece.strip(" :'\"`") for piece in _SEPARATOR.split(part)]
            found += [
                p for p in pieces if p and len(p.split()) <= 3 and p.lower() not in FUNCTION_WORDS
            ]
    return list(dict.fromkeys(found))


def told(slot: Slot, request: Request) -> list[Value]:
    """Values that the description lists and the request has; those that others lie in are left
    out.
    """
    found: list[Value] = []
    for text in listed_in(slot.about):
        if span := _standing(text, request):
            found.append(Value(text, span))
        elif ", " in text and (span := _standing(text.split(",")[0], request)):
            found.append(Value(text, span))  # `e.g. Chicago, IL`: the form that is wanted
    for text, meaning in _ALIAS.findall(slot.about):
        if (span := _standing(meaning, request)) and not any(
            v.span and v.span.overlaps(span) for v in found
        ):
            found.append(Value(text, span))
    return outermost(found)


def _standing(text: str, request: Request) -> Span | None:
    """Where a value stands in the request, by stems; short ones must stand as they are."""
    if len(text) < 3:
        return next((s for s in request.single("word", "quoted") if s.text == text), None)
    wanted = stems(text)
    return (
        next((s for s in places_of(wanted, request) if request.is_free(s)), None)
        if wanted
        else None
    )


def _roots(text: str) -> list[str]:
    """Stems of stems: `ratings` and `rating` are one."""
    return [stem(word) for word in stems(text)]


def places_of(wanted: Sequence[str], request: Request) -> Iterator[Span]:
    """Runs of atoms whose words are these; a hyphen or an underscore parts words."""
    parts = [_roots(atom.text) for atom in request.atoms]
    wanted = [stem(word) for word in wanted]
    for first in range(len(parts)):
        have: list[str] = []
        for last in range(first, min(first + len(wanted), len(parts))):
            have += parts[last]
            if have[: len(wanted)] == list(wanted) and (len(have) == len(wanted) or first == last):
                yield Span(
                    request.text[request.atoms[first].start : request.atoms[last].end],
                    first,
                    last,
                    "run",
                )
                break


def labelled(slot: Slot, request: Request, offered: Sequence[Span]) -> list[Span]:
    """Of the pieces offered, the longest right after the parameter's own word; or right before its
    whole name.
    """
    own = [word for word in content(slot.name) if word not in _GENERIC]
    starts = _after_labels(own[-1:], request)
    names = {(n.first, n.last) for n in request.names}
    near = [s for s in offered if s.first in starts and (starts[s.first] or _marked(s, names))]
    if not near and len(own) > 1:
        heads = {p.first - 1 for p in places_of(own, request)}
        near = [s for s in offered if s.first == s.last and s.first in heads and s.kind == "word"]
    return [max(near, key=lambda s: s.last - s.first)] if near else []


def kinds(slot: Slot, request: Request) -> list[Span]:
    """For the kind of a thing, the word before the thing: `a single room` for `room_type`."""
    named = content(slot.name)
    match = _KIND_OF.match(slot.about)
    if named[-1:] and named[-1] in _KINDS and len(named) > 1:
        thing = named[-2]
    elif match and named and (named[-1] in _KINDS or stem(match.group(1)) not in named):
        thing = stem(match.group(1))
    else:
        return []
    for index, word in enumerate(request.stems):
        if index and word == thing and _describes(request, index - 1):
            found = Span(request.atoms[index - 1].text, index - 1, index - 1, "word")
            return [found] if request.is_free(found) else []
    return []


def _describes(request: Request, index: int) -> bool:
    atom = request.atoms[index]
    common = (
        atom.kind == "word"
        and atom.text.lower() not in FUNCTION_WORDS
        and number(atom.text) is None
    )
    return common and not request.heads(index) and not request.own.issuperset(content(atom.text))


def begins(slot: Slot) -> bool:
    """Whether it is named as where something starts."""
    named = {w.lower() for w in words(slot.name)}
    return not named.isdisjoint(_BEGINS) and named.isdisjoint(_ENDS)


def directed(slot: Slot, offered: Sequence[Value], request: Request) -> list[Value]:
    """Of the values offered, those that stand where the slot begins or ends: `from Rome to Bonn`,
    `between a and b`.
    """
    start, ends = begins(slot), not _ENDS.isdisjoint(w.lower() for w in words(slot.name))
    if not start and not ends:
        return []
    marks = ("from", "between", "starting", "since") if start else ("to", "until", "till")
    found = [v for v in offered if v.span and _before(v.span, request) in marks]
    if not found and ends:
        found = [v for v in offered if v.span and _ends_between(v.span, request)]
    if not found and start:  # an amount is told in the unit it is converted from
        found = [v for v in offered if v.span and number(_before(v.span, request)) is not None]
        found = sorted(found, key=lambda v: -len(str(v.value)))[:1]
    return found if len(found) == 1 else []


def _ends_between(span: Span, request: Request) -> bool:
    before = [a.text.lower() for a in request.atoms[max(0, span.first - 6) : span.first]]
    return before[-1:] == ["and"] and "between" in before


def _marked(span: Span, names: set[tuple[int, int]]) -> bool:
    """Whether it is seen to be a value: a name, a quotation, a path, digits."""
    digits = span.kind == "number" and any(map(str.isdigit, span.text))
    return (span.first, span.last) in names or span.kind in ("quoted", "url", "path") or digits


def _after_labels(own: Sequence[str], request: Request) -> dict[int, bool]:
    """Where a value may begin, and whether a joining word says that it does."""
    starts: dict[int, bool] = {}
    said = [a.text.lower() for a in request.atoms] + ["", "", ""]
    for index, atom in enumerate(request.atoms):
        label = atom.kind == "word" or (atom.kind == "quoted" and " " not in atom.text)
        if not label or stem(atom.text) not in own:
            continue
        starts[index + 1] = (
            request.text[atom.end : atom.end + 3].strip("'\" ").startswith((":", "="))
        )
        if said[index + 1] in _JOINING:
            sure = said[index + 1] not in ("of", "for", "with")
            starts[index + 2] = sure
            if said[index + 2] in ("a", "an", "the"):
                starts[index + 3] = sure
    return starts


def placed(slot: Slot, request: Request, others: Sequence[Slot] = ()) -> list[Span]:
    """Names that a place stands for, after a word of place. `Rome, Italy` is one place unless
    another slot wants a part.
    """
    if not is_place(slot):
        return []
    days = [day for day, _ in request.days]
    found = [
        n for n in request.names if request.is_free(n) and not any(n.overlaps(d) for d in days)
    ]
    found = [_after_of(n, request) for n in found if " of " in n.text or _in_place(n, request)]
    found = [n for n in found if _in_place(n, request)]
    if any(is_place(other) for other in others):
        return found
    return _with_commas(found, request)


def _in_place(name: Span, request: Request) -> bool:
    before = next((n for n in request.names if n.last == name.first - 1), None)
    if before is not None and request.text[request.atoms[before.last].end :].startswith(","):
        return _before(before, request) in _PLACING
    return _before(name, request) in _PLACING


def _with_commas(names: Sequence[Span], request: Request) -> list[Span]:
    joined: list[Span] = []
    for name in names:
        last = joined[-1] if joined else None
        if last is not None and last.last == name.first - 1:
            gap = request.text[request.atoms[last.last].end : request.atoms[name.first].start]
            if gap.strip() == ",":
                text = request.text[request.atoms[last.first].start : request.atoms[name.last].end]
                joined[-1] = Span(text, last.first, name.last, "name")
                continue
        joined.append(name)
    return joined


def _after_of(name: Span, request: Request) -> Span:
    """`France` of `King of France`."""
    words = [a.text for a in request.atoms[name.first : name.last + 1]]
    if "of" not in words[1:-1]:
        return name
    first = name.first + words.index("of") + 1
    return Span(
        request.text[request.atoms[first].start : request.atoms[name.last].end],
        first,
        name.last,
        "name",
    )


def _before(span: Span, request: Request) -> str:
    at = span.first - 1
    while at >= 0 and request.atoms[at].text.lower() in ("the", "a", "an"):
        at -= 1
    return request.atoms[at].text.lower() if at >= 0 else ""


def by(slot: Slot, request: Request) -> list[Span]:
    """Names that a maker stands for."""
    if not is_maker(slot):
        return []
    return [n for n in request.names if request.is_free(n) and _before(n, request) == "by"]
