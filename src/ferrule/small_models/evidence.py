"""What speaks for a piece of a request as the value of a text slot, besides the model's choice.

Pure, and the same for every tool.

    listed    the description itself lists values (`e.g. 'vegan'`, `can be summary or detailed`),
              and the request has one
    label     the piece stands right after the parameter's own word (`medium to oil`,
              `user id 43523`, `artist: Bach`)
    kind      the parameter is the kind of a thing, and the piece is the word before that thing
    place     the parameter is a place, and the piece is a name after `in`, `at`, `near`, `from`...
    maker     the parameter is a maker, and the piece is a name after `by`
    direction the parameter is a start or an end, and the piece stands after `from`, `to`...
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ferrule.tools.word_stems import FUNCTION_WORDS, content_stems, stem, stems, words

from .dates import is_calendar_name
from .request import Request
from .slots import Slot, Value, keep_outermost
from .spans import Atom, Span, parse_number
from .units import is_unit

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
_JOINING = frozenset(
    ["is", "as", "to", "called", "named", "titled", "of", "with", "for", "-", "–", "be"]
)
_BEFORE_JOINING = frozenset(["should", "must", "will", "shall", "can", "set", "being"])
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
_PARTS = frozenset(map(stem, ["city", "town", "country", "state", "province"]))
_LONGER_FORM = re.compile(r"[A-Z]\w+, ?[A-Z]|[Cc]ity,")
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
    """Return whether a slot is for a place, by its name."""
    named = content_stems(slot.name)
    return slot.kind == "string" and bool(named) and (named[-1] in _PLACES or named[0] in _PLACES)


def is_maker(slot: Slot) -> bool:
    """Return whether a slot is for an artist, an author or a brand, by its name."""
    return slot.kind == "string" and not _MAKERS.isdisjoint(content_stems(slot.name))


def find_values_in_description(about: str) -> list[str]:
    """Return the values that a description names: quoted, or in a list after `e.g.` and so on."""
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


def find_listed_values(slot: Slot, request: Request) -> list[Value]:
    """Return the values that the description lists and the request has.

    Those whose piece is a part of another one's are left out.
    """
    found: list[Value] = []
    for text in find_values_in_description(slot.about):
        span = _find_free(text, request)
        if span is None and ", " in text:
            # `e.g. Chicago, IL` shows the form that is wanted; the request may have `Chicago`.
            span = _find_free(text.split(",")[0], request)
        if span is not None:
            found.append(Value(text, span))
    for text, meaning in _ALIAS.findall(slot.about):
        span = _find_free(meaning, request)
        if span is None or any(value.span and value.span.overlaps(span) for value in found):
            continue
        found.append(Value(text, span))
    return keep_outermost(found)


def _find_free(text: str, request: Request) -> Span | None:
    """Return where a value stands in the request, by stems. Short ones must stand as they are."""
    if len(text) < 3:
        return next((s for s in request.free_atoms("word", "quoted") if s.text == text), None)
    wanted = stems(text)
    if not wanted:
        return None
    return next((span for span in find_occurrences(wanted, request) if request.is_free(span)), None)


def _roots(text: str) -> list[str]:
    """Return stems of stems, by which `ratings` and `rating` are one."""
    return [stem(word) for word in stems(text)]


def find_occurrences(wanted: Sequence[str], request: Request) -> Iterator[Span]:
    """Yield the runs of atoms that consist of these words.

    A hyphen or an underscore separates words.
    """
    parts = [_roots(atom.text) for atom in request.atoms]
    wanted = [stem(word) for word in wanted]
    for first in range(len(parts)):
        have: list[str] = []
        for last in range(first, min(first + len(wanted), len(parts))):
            have += parts[last]
            begins_with = have[: len(wanted)] == list(wanted)
            if begins_with and (len(have) == len(wanted) or first == last):
                yield _make_span(request, first, last, "run")
                break


def _make_span(request: Request, first: int, last: int, kind: str) -> Span:
    text = request.text[request.atoms[first].start : request.atoms[last].end]
    return Span(text, first, last, kind)


def find_labelled(slot: Slot, request: Request, offered: Sequence[Span]) -> list[Span]:
    """Return the longest of the pieces right after the parameter's own word.

    If there is none, the one right before its whole name.
    """
    named = content_stems(slot.name)
    own = [word for word in named if word not in _GENERIC]
    starts = _starts_after_labels(own, named[len(own) :], request)
    names = {(n.first, n.last) for n in request.names}
    near = [s for s in offered if s.first in starts and (starts[s.first] or _is_marked(s, names))]
    if not near and len(own) > 1:
        heads = {p.first - 1 for p in find_occurrences(own, request)}
        near = [s for s in offered if s.first == s.last and s.first in heads and s.kind == "word"]
    # A quotation right behind the label is the value, and what follows it is not.
    near = [s for s in near if s.kind == "quoted"] or near
    return [max(near, key=lambda s: s.last - s.first)] if near else []


def find_kind(slot: Slot, request: Request) -> list[Span]:
    """Return the word before a thing, for the kind of the thing: `a single room`, `room_type`."""
    thing = _thing_of_kind(slot)
    if not thing:
        return []
    for index, word in enumerate(request.stems):
        if index and word == thing and _is_description(request, index - 1):
            found = Span(request.atoms[index - 1].text, index - 1, index - 1, "word")
            return [found] if request.is_free(found) else []
    return []


def _thing_of_kind(slot: Slot) -> str:
    """Return the stem of the thing whose kind a slot is for; "" if it is for something else."""
    named = content_stems(slot.name)
    if not named:
        return ""
    is_kind = named[-1] in _KINDS
    if is_kind and len(named) > 1:
        return named[-2]
    match = _KIND_OF.match(slot.about)
    thing = stem(match.group(1)) if match else ""
    return thing if is_kind or thing not in named else ""


def _is_description(request: Request, index: int) -> bool:
    """Return whether an atom is a common word that is neither a verb at the head nor the tool's."""
    atom = request.atoms[index]
    if atom.kind != "word" or atom.text.lower() in FUNCTION_WORDS:
        return False
    if parse_number(atom.text) is not None or request.is_sentence_start(index):
        return False
    return not request.tool_words.issuperset(content_stems(atom.text))


def is_start_slot(slot: Slot) -> bool:
    """Return whether a slot is named as where something starts."""
    named = {word.lower() for word in words(slot.name)}
    return not named.isdisjoint(_BEGINS) and named.isdisjoint(_ENDS)


def find_directed(slot: Slot, offered: Sequence[Value], request: Request) -> list[Value]:
    """Return the one value that stands where the slot begins or ends; empty if there is not one.

    For instance `from Rome to Bonn`, or `between a and b`.
    """
    is_start = is_start_slot(slot)
    is_end = not _ENDS.isdisjoint(word.lower() for word in words(slot.name))
    if not is_start and not is_end:
        return []
    marks = ("from", "between", "starting", "since") if is_start else ("to", "until", "till")
    found = [v for v in offered if v.span and _word_before(v.span, request) in marks]
    if not found and is_end:
        found = [v for v in offered if v.span and _ends_between(v.span, request)]
    if not found and is_start:
        # An amount is given in the unit it is converted from.
        found = [
            v for v in offered if v.span and parse_number(_word_before(v.span, request)) is not None
        ]
        found = sorted(found, key=lambda v: -len(str(v.value)))[:1]
    return found if len(found) == 1 else []


def _ends_between(span: Span, request: Request) -> bool:
    """Return whether a piece is the second one of `between a and b`."""
    before = [a.text.lower() for a in request.atoms[max(0, span.first - 6) : span.first]]
    return before[-1:] == ["and"] and "between" in before


def _is_marked(span: Span, names: set[tuple[int, int]]) -> bool:
    """Return whether its form shows that it is a value: a name, a quotation, a path, digits."""
    if (span.first, span.last) in names or span.kind in ("quoted", "url", "path"):
        return True
    return span.kind == "number" and any(map(str.isdigit, span.text))


def _starts_after_labels(
    own: Sequence[str], behind: Sequence[str], request: Request
) -> dict[int, bool]:
    """Return where a value may begin, and whether a joining word or mark says that it does.

    `own` are the words of the label; where all of them stand, their last one elsewhere counts
    nothing (`title` beside `meta title`). `behind` are general words that may follow it, as in
    `ticket number`.
    """
    labels = [span.last for span in find_occurrences(own, request)] if len(own) > 1 else []
    if not labels:
        labels = [i for i, atom in enumerate(request.atoms) if _is_label(atom, own[-1:])]
    starts: dict[int, bool] = {}
    said = [atom.text.lower() for atom in request.atoms] + ["", "", "", ""]
    for label in labels:
        at = label + 1
        while stem(said[at]) in behind and at < len(request.atoms):
            at += 1
        end = request.atoms[at - 1].end
        following = request.text[end : end + 3].strip("'\" ")
        starts[at] = following.startswith((":", "="))
        joint = at
        while said[joint] in _BEFORE_JOINING:
            joint += 1
        if said[joint] in _JOINING:
            is_certain = said[joint] not in ("of", "for", "with")
            starts[joint + 1] = is_certain
            if said[joint + 1] in ("a", "an", "the"):
                starts[joint + 2] = is_certain
    return starts


def _is_label(atom: Atom, own: Sequence[str]) -> bool:
    is_word = atom.kind == "word" or (atom.kind == "quoted" and " " not in atom.text)
    return is_word and stem(atom.text) in own


def find_places(slot: Slot, request: Request, others: Sequence[Slot] = ()) -> list[Span]:
    """Return the names after a word of place, if the slot is for a place.

    `Rome, Italy` is one place, unless another slot wants a part of it.
    """
    if not is_place(slot):
        return []
    dates = [span for span, _ in request.dates]
    found = [
        n for n in request.names if request.is_free(n) and not any(n.overlaps(d) for d in dates)
    ]
    found = [_after_of(n, request) for n in found if " of " in n.text or _is_placed(n, request)]
    found = [n for n in found if _is_placed(n, request)]
    found = [n for n in found if not is_calendar_name(n.text) and not is_unit(stem(n.text))]
    if any(is_place(other) for other in others) or wants_part_of_place(slot):
        return found
    return _join_at_commas(found, request)


def wants_part_of_place(slot: Slot) -> bool:
    """Return whether a slot is for a city or a country alone: `Rome` of `Rome, Italy`.

    A slot whose description shows the longer form takes it.
    """
    named = content_stems(slot.name)[-1:]
    return bool(named) and named[0] in _PARTS and not _LONGER_FORM.search(slot.about)


def _is_placed(name: Span, request: Request) -> bool:
    """Return whether a word of place stands before a name, or before the name and comma before."""
    before = next((n for n in request.names if n.last == name.first - 1), None)
    if before is not None and request.text[request.atoms[before.last].end :].startswith(","):
        return _word_before(before, request) in _PLACING
    return _word_before(name, request) in _PLACING


def _join_at_commas(names: Sequence[Span], request: Request) -> list[Span]:
    joined: list[Span] = []
    for name in names:
        last = joined[-1] if joined else None
        if last is not None and last.last == name.first - 1:
            gap = request.text[request.atoms[last.last].end : request.atoms[name.first].start]
            if gap.strip() == ",":
                joined[-1] = _make_span(request, last.first, name.last, "name")
                continue
        joined.append(name)
    return joined


def _after_of(name: Span, request: Request) -> Span:
    """Return `France` for `King of France`, and other names as they are."""
    words = [a.text for a in request.atoms[name.first : name.last + 1]]
    if "of" not in words[1:-1]:
        return name
    return _make_span(request, name.first + words.index("of") + 1, name.last, "name")


def _word_before(span: Span, request: Request) -> str:
    """Return the word before a piece, in lower case, without articles; "" if there is none."""
    at = span.first - 1
    while at >= 0 and request.atoms[at].text.lower() in ("the", "a", "an"):
        at -= 1
    return request.atoms[at].text.lower() if at >= 0 else ""


def find_makers(slot: Slot, request: Request) -> list[Span]:
    """Return the names after `by`, if the slot is for a maker."""
    if not is_maker(slot):
        return []
    return [n for n in request.names if request.is_free(n) and _word_before(n, request) == "by"]
