"""Rank the pieces of a request as values of a text slot, and give them out to several slots.

    candidates   every piece of the request, dates and times in the form that is asked for, values
                 that the description lists, and to leave the slot out, if it is optional and
                 nothing says by itself what its value is (a label, a listed value, a date ...)
    features     what can be seen of a candidate without knowing its meaning: its form, the words
                 and marks around it, how far the parameter's own word is, what is said of the slot
    score        the sum of the features' weights. They are data (`value_weights.json`), fitted by
                 `evals/fit_values.py` on development halves
    assignment   the likeliest values of all slots together that do not overlap

Pure, and the same for every tool.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import cast

from ferrule.core.calls import parse_json
from ferrule.core.value_class import frozen
from ferrule.tools.word_stems import (
    FUNCTION_WORDS,
    content_stems,
    first_sentence,
    stem,
    words,
)

from .action_check import find_commands
from .dates import is_calendar_name, requested_format, requested_time_format
from .evidence import find_listed_values, find_slot_dates, find_values_in_description
from .request import Request
from .slots import FOLDER_WORDS, PATH_WORDS, Slot, Value
from .spans import NUMBER_WORDS, Atom, Span

MAX_LENGTH = 14
"""Atoms of a candidate. Longer texts are offered only where they are quoted or follow a colon."""

MAX_LOOKED_AT = 200
"""Atoms of a request whose runs are candidates; behind them only quotations and paths are."""

MAX_STATES = 24
MAX_RANKED = 14
"""Bounds of the assignment: states that are followed, and candidates of a slot."""

UNFILLED_COST = 9.0
UNFILLED_OPTIONAL_COST = 3.0
"""Costs, in log probability, of a slot that no piece is left for."""

ORDER_COST = 0.7
"""Cost of two pieces that stand in another order than their slots."""

CLOSE = 1.0
"""Difference of log probabilities within which the model decides between two pieces.

Of 139 such pairs of development halves SmolLM2 had 105 right, the ranking 87.
"""

_SLOT_CLASSES: Mapping[str, frozenset[str]] = {
    name: frozenset(map(stem, text.split()))
    for name, text in {
        "place": (
            "city location place country state region town destination area venue county address"
        ),
        "maker": "artist author composer writer director painter creator brand",
        "person": (
            "actor actress cast star singer player guest member participant attendee passenger "
            "person celebrity customer"
        ),
        "named": (
            "name company organization team league club university school band museum hotel "
            "airline manufacturer store"
        ),
        "code": "id number code zip phone isbn identifier",
        "kind": "type kind category style class genre",
        "formula": "function formula expression equation polynomial",
        "mail": "email mail",
        "web": "url link website webpage",
        "start": "from start origin source departure begin initial base",
        "end": "to end destination target arrival final",
    }.items()
}
"""Classes of slots, by the words of their names."""

_GENERIC = frozenset(
    map(stem, words("name type kind data value list info information text format number string id"))
)
_JOINING = frozenset(["is", "as", "to", "called", "named", "titled", "of", "be", "should"])
_PLACING = frozenset(["in", "at", "near", "around", "from", "to", "within", "into", "for"])
_INSIDE = frozenset(["in", "under", "below", "inside", "within", "from", "into"])
_ARTICLES = frozenset(["the", "a", "an", "my", "our"])
_MARKS = ':="(,.?!;\n'
_FILE_ENDING = re.compile(r"\w\.[A-Za-z]\w{0,4}$")
_HOUR_FORM = re.compile(r"\bHH\b")


@frozen
class Candidate:
    """What may become of a slot: a value, or None to leave it out; and its features."""

    value: Value | None
    features: tuple[str, ...]


@frozen
class RankedValue:
    """A candidate's value with its log probability."""

    value: Value | None
    score: float


@cache
def load_weights() -> Mapping[str, float]:
    """Return the weights of features, read once."""
    text = resources.files("ferrule_local.small_models").joinpath("value_weights.json").read_text()
    return cast("dict[str, float]", parse_json(text))


class RequestView:
    """What features need to know of a request, seen once for all slots."""

    def __init__(self, request: Request) -> None:
        self.request = request
        atoms = request.atoms
        self.words = [atom.text.lower() if atom.kind == "word" else "" for atom in atoms]
        self.stems = [stem(word) if word else "" for word in self.words]
        self.forms = [_form(atom) for atom in atoms]
        ends = [0, *(atom.end for atom in atoms)]
        starts = [*(atom.start for atom in atoms), len(request.text)]
        self.marks = [
            _mark(request.text[end:start]) for end, start in zip(ends, starts, strict=True)
        ]
        self.dates = [span for span, _ in request.dates]
        self.spans = [span for span in request.spans if _is_looked_at(span)]
        self._seen: dict[tuple[int, int], tuple[str, list[str]]] = {}

    def describe(self, span: Span) -> tuple[str, list[str]]:
        """Return the form of a piece, and the features that it has for every slot."""
        place = (span.first, span.last)
        if place not in self._seen:
            self._seen[place] = self._describe(span)
        return self._seen[place]

    def _describe(self, span: Span) -> tuple[str, list[str]]:
        length = span.last - span.first + 1
        form = self._form_of_run(span)
        found = [f"length {_rough(length)}", f"form {form}", f"name {self.relation(span)}"]
        if length > 1:
            joints = [w for w in self.words[span.first + 1 : span.last] if w in FUNCTION_WORDS]
            found += [f"{form} length {min(length, 4)}", f"{form} joints {min(3, len(joints))}"]
            found += [f"joint {word}" for word in set(joints)]
            marks = set(self.marks[span.first + 1 : span.last + 1]) - {""}
            found += [f"{form} mark {mark}" for mark in marks]
        if self.request.is_sentence_start(span.first):
            found.append("begins sentence" if length > 1 else "begins sentence alone")
        if span.last == len(self.words) - 1 or self.marks[span.last + 1] in tuple(".?!\n"):
            found.append("ends sentence")
        if any(span.overlaps(day) for day in self.dates):
            found.append("in date")
        if is_calendar_name(self.request.atoms[span.first].text):
            found.append("calendar")
        return form, found

    def _form_of_run(self, span: Span) -> str:
        """Return the form of a piece: of its one atom, or of the atoms with content in it."""
        forms = self.forms[span.first : span.last + 1]
        if len(forms) == 1:
            return forms[0]
        content = [form for form in forms if form != "function"]
        if all(form in ("Capital", "CAPITALS") for form in content):
            return "Capitals"
        if all(form == "lower" for form in content):
            return "lowers"
        if content and content[0] in ("Capital", "CAPITALS"):
            return "Capital mixed"
        for form in ("quoted", "number"):
            if form in content:
                return f"{form} mixed"
        return "lower Capital" if "Capital" in content else "mixed"

    def name_of(self, span: Span) -> Span | None:
        """Return the name that a piece overlaps."""
        return next((name for name in self.request.names if span.overlaps(name)), None)

    def relation(self, span: Span) -> str:
        """Return how a piece lies to the name that it overlaps."""
        name = self.name_of(span)
        if name is None:
            return "none"
        if (span.first, span.last) == (name.first, name.last):
            return "whole"
        if span.is_inside(name):
            return "inside"
        return "around" if name.is_inside(span) else "cut"


def _is_looked_at(span: Span) -> bool:
    if span.last < MAX_LOOKED_AT:
        return span.last - span.first < MAX_LENGTH
    return span.first == span.last and span.kind in ("quoted", "path", "url")


def _form(atom: Atom) -> str:
    text = atom.text
    if atom.kind == "number":
        return "number" if any(map(str.isdigit, text)) else "number word"
    if atom.kind != "word":
        return atom.kind
    if text.lower() in FUNCTION_WORDS:
        return "function"
    if re.search(r"\d", text):
        return "code"
    if "_" in text:
        return "identifier"
    if len(text) > 1 and text.isupper():
        return "CAPITALS"
    return "Capital" if text[:1].isupper() else "lower"


def _mark(gap: str) -> str:
    if "'s" in gap or "’s" in gap:
        return "'s"
    return next((mark for mark in _MARKS if mark in gap), "")


def _rough(length: int) -> int:
    return next((limit for limit in (1, 2, 3, 4, 6, 9) if length <= limit), 10)


class SlotView:
    """What features need to know of a slot, beside a request."""

    def __init__(self, slot: Slot, view: RequestView, slots: Sequence[Slot]) -> None:
        self.slot = slot
        self.view = view
        named = content_stems(slot.name)
        self.own = frozenset(w for w in named if w not in _GENERIC) or frozenset(named)
        self.phrase = [stem(word) for word in words(slot.name)]
        others = frozenset(w for o in slots if o is not slot for w in content_stems(o.name))
        self._named = frozenset(named)
        self._others = others - self._named
        self._beginnings = frozenset(w[:4] for w in self.own if len(w) >= 4)
        self.relations = [self._relation(word) for word in view.request.stems]
        self.labels = [i for i, relation in enumerate(self.relations) if relation == "own"]
        self.keys = [f"named {word}" for word in named]
        self.keys += [f"about {w}" for w in content_stems(first_sentence(slot.about))[:6]]
        self.classes = [f"last {named[-1] if named else ''}", f"role {slot.role}"]
        self.classes += [f"class {name}" for name in _classes_of(slot)]
        listed = find_values_in_description(slot.about)
        self.listed = {text.casefold() for text in listed}
        self.patterns = {_pattern(text) for text in listed}
        self.shows_comma = any("," in pattern for pattern in self.patterns)
        self.signs: set[str] = set()
        """What says by itself that a candidate is its value. With any, it is not left out."""

    def _relation(self, word: str) -> str:
        """Return what a word of the request is to the slot."""
        if not word:
            return ""
        if word in self.own:
            return "own"
        if word in self._named:
            return "general"
        if word in self._others:
            return "other's"
        if len(word) >= 4 and word[:4] in self._beginnings:
            return "like own"
        if word in self.slot.words:
            return "described"
        return "tool's" if word in self.view.request.tool_words else ""

    def token(self, index: int) -> str:
        """Return an atom as a feature: a function word, a relation to the slot, or a form."""
        if index < 0:
            return "start"
        if index >= len(self.relations):
            return "end"
        word = self.view.words[index]
        if word in FUNCTION_WORDS:
            return word
        return self.relations[index] or f"<{self.view.forms[index]}>"


def _classes_of(slot: Slot) -> list[str]:
    named = frozenset(content_stems(slot.name)) | {word.lower() for word in words(slot.name)}
    found = [name for name, members in _SLOT_CLASSES.items() if named & members]
    if stem("date") in named or requested_format(slot.about):
        found.append("date")
    if _is_time(slot):
        found.append("time")
    return found or ["none"]


def _is_time(slot: Slot) -> bool:
    if stem("time") in content_stems(slot.name) or requested_time_format(slot.about):
        return True
    return bool(_HOUR_FORM.search(slot.about))


def _pattern(text: str) -> str:
    """Return the form of an example value: `Aa, AA` for `Oslo, NO`."""
    for pattern, sign in (
        (r"[A-Z][a-z]+", "Aa"),
        (r"\d+", "0"),
        (r"[a-z]+", "a"),
        (r"[A-Z]{2,}", "AA"),
    ):
        text = re.sub(pattern, sign, text)
    return text[:12]


_SIGNS = frozenset(
    [
        "labelled",
        "placed",
        "made by",
        "path",
        "address",
        "exemplified",
        "date",
        "time",
        "listed and said",
    ]
)
"""Features by which the request says by itself that a piece is the slot's value."""


def find_candidates(slot: Slot, view: RequestView, slots: Sequence[Slot]) -> list[Candidate]:
    """Return what may become of a text slot; `slots` are all of the tool's."""
    seen = SlotView(slot, view, slots)
    found = [*_find_formed(seen), *_find_written(seen)]
    if slot.required:
        return found
    if seen.signs:
        return [one for one in found if not _SIGNS.isdisjoint(one.features)]
    return [*found, Candidate(None, _features_of_leaving_out(seen))]


def _find_written(seen: SlotView) -> list[Candidate]:
    """Return the pieces of the request, as they stand there."""
    request = seen.view.request
    found = [
        Candidate(Value(span.text, span), _features_of_piece(seen, span))
        for span in seen.view.spans
        if not _leaves_own_word(seen, span)
    ]
    special = [(span, "formula") for span in request.formulas]
    special += [(span, "command") for span in find_commands(request)]
    special += [(span, "rest") for span in _rest_after_colon(request)]
    for span, kind in special:
        features = (kind, *(f"{kind} {name}" for name in seen.classes + seen.keys))
        found.append(Candidate(Value(span.text, span), _features_of_piece(seen, span) + features))
    return found


def _leaves_own_word(seen: SlotView, span: Span) -> bool:
    """Return whether a piece is the beginning of a name that goes on with the slot's own word.

    The Metropolitan Museum of Art is not cut down to its first word where a museum is wanted.
    """
    name = seen.view.name_of(span)
    if name is None or not span.is_inside(name) or span.last == name.last:
        return False
    return seen.relations[span.last + 1] == "own"


def _rest_after_colon(request: Request) -> list[Span]:
    """Return what follows the first colon, up to the end: `Say it: good day`."""
    last = len(request.atoms) - 1
    for index in range(1, last + 1):
        gap = request.text[request.atoms[index - 1].end : request.atoms[index].start]
        if re.fullmatch(r":\s+", gap):
            text = request.text[request.atoms[index].start : request.atoms[last].end]
            return [Span(text, index, last, "run")]
    return []


def _find_formed(seen: SlotView) -> list[Candidate]:
    """Return values that are written in another form than in the request, or stand elsewhere."""
    slot, request = seen.slot, seen.view.request
    found: list[Candidate] = []
    form = "asked" if requested_format(slot.about) else "plain"
    for value in find_slot_dates(slot, request):
        kind = form if any(map(str.isdigit, str(value.value))) else "relative"
        features = ("date", f"date {kind}", *(f"date {name}" for name in seen.classes))
        found.append(Candidate(value, _features_at(seen, value.span) + features))
        seen.signs.add("dated")
    for value in find_listed_values(slot, request):
        if value.span and _is_cut_quotation(value, request):
            continue
        features = ("listed and said", f"listed and said {_need(slot)}")
        found.append(Candidate(value, _features_at(seen, value.span) + features))
        seen.signs.add("listed and said")
    for place, hour, minute in request.times if _is_time(slot) else ():
        at = next((i for i, a in enumerate(request.atoms) if a.start <= place < a.end), 0)
        features = ("time", f"time form {bool(_HOUR_FORM.search(slot.about))}")
        seen.signs.add("time")
        span = Span("", at, at, "time")
        found.append(Candidate(Value(f"{hour:02}:{minute:02}", span), features))
    for span in request.free_atoms("number", "word"):
        number = NUMBER_WORDS.get(span.text.lower())
        if number is not None:
            features = ("number as text", *(f"number as text {key}" for key in seen.keys))
            found.append(Candidate(Value(str(number), span), features))
    listed = find_values_in_description(slot.about)[:12]
    found += [Candidate(Value(text), ("listed", f"listed {_need(slot)}")) for text in listed]
    if isinstance(slot.default, str):
        found.append(Candidate(Value(slot.default), ("default",)))
    return found


def _is_cut_quotation(value: Value, request: Request) -> bool:
    """Return whether a value is only a part of a quotation, which is taken as it stands."""
    span = value.span
    if span is None or request.atoms[span.first].kind != "quoted":
        return False
    return str(value.value).casefold() != span.text.casefold()


def _features_at(seen: SlotView, span: Span | None) -> tuple[str, ...]:
    return _features_of_piece(seen, span) if span is not None else ()


def _need(slot: Slot) -> str:
    return "required" if slot.required else "optional"


def _features_of_piece(seen: SlotView, span: Span) -> tuple[str, ...]:
    view = seen.view
    form, found = view.describe(span)
    found = ["piece", *found]
    at = span.first - 1
    while at >= 0 and view.words[at] in _ARTICLES:
        at -= 1
    before, after = seen.token(at), seen.token(span.last + 1)
    mark_before, mark_after = view.marks[span.first], view.marks[span.last + 1]
    found += [
        f"before {before}",
        f"before {before} {form}",
        f"before {before} {mark_before}",
        f"before {seen.token(at - 1)} {before}",
        f"after {after}",
        f"after {after} {form}",
        f"after {after} {mark_after}",
        f"mark before {mark_before}",
        f"mark after {mark_after}",
        f"article {at < span.first - 1} {form}",
    ]
    back = _distance([span.first - label for label in seen.labels if label < span.first])
    ahead = _distance([label - span.last for label in seen.labels if label > span.last])
    found += [f"own back {back}", f"own back {back} {form}"]
    found += [f"own ahead {ahead}", f"own ahead {ahead} {form}"]
    first, last = seen.relations[span.first], seen.relations[span.last]
    found += [f"first {first} {form}", f"last {last} {form}"]
    found += _features_of_name(seen, span, form)
    inside = range(span.first, span.last + 1)
    if all(seen.relations[i] or view.words[i] in FUNCTION_WORDS for i in inside):
        found.append(f"says nothing new {form}")
    for name in seen.classes:
        found += [f"{name} {form}", f"{name} before {before}", f"{name} after {after}"]
        found.append(f"{name} length {min(4, span.last - span.first + 1)}")
    found += [f"{key} {form}" for key in seen.keys]
    for sign in _signs(seen, span, at, mark_before):
        found += [sign, f"{sign} {form}"]
        if form != "lowers":
            seen.signs.add(sign)
    said = view.request.stems[at] if at >= 0 else ""
    if said:
        found += [f"word before {said}", *(f"{name} word before {said}" for name in seen.classes)]
    if span.text.casefold() in seen.listed:
        found += ["as listed", f"as listed {form}"]
    if seen.patterns:
        found.append(f"like example {_pattern(span.text) in seen.patterns} {form}")
    return tuple(found)


def _features_of_name(seen: SlotView, span: Span, form: str) -> list[str]:
    """Return features of the name that a piece is a part of, and of commas in and behind it."""
    view = seen.view
    found: list[str] = []
    name = view.name_of(span)
    if name is not None:
        has_own = "own" in seen.relations[name.first : name.last + 1]
        found.append(f"name {view.relation(span)} own inside {has_own}")
    is_inside = "," in view.marks[span.first + 1 : span.last + 1]
    if is_inside or view.marks[span.last + 1] == ",":
        comma = "comma inside" if is_inside else "comma behind"
        found.append(f"{comma} shown {seen.shows_comma} {form}")
        found += [f"{key} {comma}" for key in seen.keys if key.startswith("named")]
    return found


def _signs(seen: SlotView, span: Span, at: int, mark: str) -> list[str]:
    """Return what in the words before a piece says by itself that it is the slot's value."""
    found = ["labelled"] if _is_labelled(seen, at, mark) else []
    word = seen.view.words[at] if at >= 0 else ""
    if word in _PLACING and "class place" in seen.classes:
        found.append("placed")
    if word == "by" and "class maker" in seen.classes:
        found.append("made by")
    if seen.slot.role == "path" and _is_path(seen, span):
        found.append("path")
    if re.fullmatch(r"[A-Z]\w+/[A-Z]\w+", span.text) and "Aa/Aa" in seen.patterns:
        found.append("exemplified")
    if span.kind == "url":
        kind = "web" if "://" in span.text else "mail"
        if f"class {kind}" in seen.classes:
            found.append("address")
    return found


def _is_path(seen: SlotView, span: Span) -> bool:
    """Return whether a piece is written as a path, or is a bare word that can only be a folder.

    For instance `in src`, `the lib directory`. What ends as a file does is no folder.
    """
    request, slot = seen.view.request, seen.slot
    if span.kind == "path":
        is_for_folders = bool(FOLDER_WORDS & slot.words) and stem("file") not in slot.words
        return not is_for_folders or _FILE_ENDING.search(span.text) is None
    if span.first != span.last:
        return False
    if " " in span.text or stem(span.text) in slot.words | PATH_WORDS:
        return False
    if stem(request.word_after(span)) in PATH_WORDS:
        return True
    is_last = span.last == len(request.atoms) - 1
    is_before_text = not is_last and seen.view.words[span.last + 1] == "for"
    return (is_last or is_before_text) and request.word_before(span) in _INSIDE


def _is_labelled(seen: SlotView, at: int, mark: str) -> bool:
    """Return whether the slot's own word says that a value follows: `material to`, `size:`."""
    length = len(seen.phrase)
    said = seen.view.stems[max(0, at + 1 - length) : at + 1]
    if length > 1 and said == seen.phrase:
        return True
    if seen.token(at) == "own":
        return mark in (":", "=")
    return at >= 0 and seen.view.words[at] in _JOINING and seen.token(at - 1) == "own"


def _distance(gaps: Sequence[int]) -> str:
    nearest = min(gaps, default=99)
    return str(nearest) if nearest <= 5 else "far"


def _features_of_leaving_out(seen: SlotView) -> tuple[str, ...]:
    slot = seen.slot
    said = frozenset(seen.view.request.stems)
    own = len(seen.own & said)
    share = "all" if own == len(seen.own) else "some" if own else "none"
    return (
        "left out",
        f"left out own {share}",
        f"left out described {min(3, len(slot.words & said))}",
        f"left out default {slot.default is not None}",
        *(f"left out {name}" for name in seen.classes + seen.keys),
    )


def rank_candidates(
    candidates: Sequence[Candidate], weights: Mapping[str, float]
) -> list[RankedValue]:
    """Return candidates with their log probabilities, the likeliest first."""
    totals = [
        sum(weights.get(feature, 0.0) for feature in set(candidate.features))
        for candidate in candidates
    ]
    if not totals:
        return []
    most = max(totals)
    norm = most + math.log(sum(math.exp(total - most) for total in totals))
    ranked = [
        RankedValue(candidate.value, total - norm)
        for candidate, total in zip(candidates, totals, strict=True)
    ]
    return sorted(ranked, key=lambda one: -one.score)


def assign_values(ranked: Mapping[str, Sequence[RankedValue]]) -> dict[str, RankedValue]:
    """Return the likeliest value of every slot such that pieces do not overlap.

    `ranked` is what `rank_slots` returns. The most certain slots are looked at first, and the best
    partial assignments are followed.
    """
    places = {name: place for place, name in enumerate(ranked)}
    order = sorted((name for name in ranked if ranked[name]), key=lambda n: -ranked[n][0].score)
    states: list[tuple[float, dict[str, RankedValue]]] = [(0.0, {})]
    for name in order:
        following: list[tuple[float, dict[str, RankedValue]]] = []
        for total, chosen in states:
            for one in ranked[name]:
                cost = sum(
                    _cost_beside(one, other, places[name] < places[known])
                    for known, other in chosen.items()
                )
                following.append((total + one.score - cost, {**chosen, name: one}))
        following.sort(key=lambda state: -state[0])
        states = following[:MAX_STATES]
    return states[0][1]


def _cost_beside(one: RankedValue, other: RankedValue, comes_first: bool) -> float:
    """Return what it costs that two slots have these values."""
    span = one.value.span if one.value else None
    taken = other.value.span if other.value else None
    if span is None or taken is None:
        return 0.0
    if span.overlaps(taken):
        return math.inf
    return ORDER_COST if (span.first < taken.first) != comes_first else 0.0


def find_close_values(
    chosen: RankedValue, ranked: Sequence[RankedValue], others: Sequence[Value]
) -> list[Value]:
    """Return the chosen value, and the next one if it is about as likely and free of the others."""
    if chosen.value is None:
        return []
    taken = [other.span for other in others if other.span is not None]
    for one in ranked:
        if one.value is None or one.value.value == chosen.value.value:
            continue
        span = one.value.span
        if span is not None and any(span.overlaps(other) for other in taken):
            continue
        is_close = one.score > chosen.score - CLOSE
        return [chosen.value, one.value] if is_close else [chosen.value]
    return [chosen.value]


def rank_slots(
    slots: Sequence[Slot], request: Request, all_slots: Sequence[Slot]
) -> dict[str, list[RankedValue]]:
    """Return the likeliest values of text slots that are free, by the slots' names in their order.

    The last one of each is that nothing is left for the slot.
    """
    view = RequestView(request)
    found: dict[str, list[RankedValue]] = {}
    for slot in slots:
        free = [
            candidate
            for candidate in find_candidates(slot, view, all_slots)
            if candidate.value is None
            or candidate.value.span is None
            or request.is_free(candidate.value.span)
        ]
        ranked = rank_candidates(free, load_weights())[:MAX_RANKED]
        cost = UNFILLED_COST if slot.required else UNFILLED_OPTIONAL_COST
        found[slot.name] = [*ranked, RankedValue(None, -cost)]
    return found
