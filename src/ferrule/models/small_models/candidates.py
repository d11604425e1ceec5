"""Which pieces of a request may fill a slot, and whether an optional one was spoken of.

Pure, and the same for every tool. What stays open (several pieces would do) is left to the model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ferrule.tools.word_stems import FUNCTION_WORDS, content, stem, stems

from .dates import ISO, form_of, in_form
from .evidence import by, directed, is_maker, is_place, kinds, labelled, placed, places_of, told
from .lists import lists
from .numbers import numbers
from .request import Request
from .slots import PATHS, Slot, Value, outermost
from .spans import Atom, Span
from .units import is_unit

_EXAMPLES = re.compile(r"(?<!^)(?<![.!?] )\b[A-Z][a-z]{2,}\b|(?<=['`\"])\w+(?=['`\"])")
_PLACES = frozenset(["in", "under", "below", "inside", "within", "from", "into"])
_JOINTS = frozenset(
    [
        "and",
        "or",
        "then",
        "with",
        "from",
        "by",
        "for",
        "in",
        "on",
        "at",
        "to",
        "into",
        "of",
        "using",
        "within",
        "between",
        "about",
        "after",
        "before",
        "since",
        "until",
        "under",
        "over",
        "near",
        "through",
        "during",
        "via",
        "as",
        "where",
        "that",
        "which",
        "who",
        "while",
        "if",
    ]
)
_BREAKS = (_JOINTS | FUNCTION_WORDS) - {"of", "the"}
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
_DATE = stem("date")
_FORMULAS = frozenset(map(stem, ["function", "formula", "expression", "equation", "polynomial"]))
_DESIGNATED = frozenset(map(stem, ["id", "number", "code", "zip", "phone", "isbn", "identifier"]))


def values(slot: Slot, request: Request, others: Sequence[Slot] = ()) -> list[Value]:
    """What the request offers for a slot, in its order; empty if it offers nothing. `others` are
    still unfilled.
    """
    if slot.kind == "enum":
        return named_choices(slot, request) or [Value(choice) for choice in slot.choices]
    if slot.kind == "boolean":
        return switched(slot, request) or [Value(True), Value(False)]
    if slot.kind in ("integer", "number"):
        return numbers(slot, request) or _single(slot, request)
    if slot.kind != "string":
        return []
    if slot.role == "path":
        return [Value(span.text, span) for span in _paths(slot, request)]
    if dated := days(slot, request):
        alike = [o for o in others if days(o, request)]
        return directed(slot, dated, request) or (
            dated[:1] if len(dated) == len(alike) + 1 else dated
        )
    written = slot.role == "text" and request.single("quoted")
    if not written and (mentioned := told(slot, request)):
        alone = len({v.value for v in mentioned}) == 1
        return mentioned[:1] if alone else directed(slot, mentioned, request) or mentioned
    found = [Value(span.text, span) for span in _texts(slot, request, others)]
    return directed(slot, found, request) or found


def _single(slot: Slot, request: Request) -> list[Value]:
    """`the next month`, `every hour`: one of the unit that the slot counts."""
    for index, word in enumerate(request.stems[1:], 1):
        if word in slot.words and is_unit(word) and request.atoms[index - 1].text.lower() in _ONES:
            return [Value(1)]
    return []


def named_choices(slot: Slot, request: Request) -> list[Value]:
    """The choices that the request names. The verb it begins with is the weakest naming."""
    found: list[Value] = []
    for choice in slot.choices:
        standing = (s for s in places_of(stems(str(choice)), request) if not request.in_name(s))
        if span := next(standing, None):
            found.append(Value(choice, span))
    if len(found) > 1:
        later = [v for v in found if v.span and (v.span.first > 0 or v.span.last > 0)]
        found = later or found
        longest = outermost(found)
        found = longest or found
    return found


def switched(slot: Slot, request: Request) -> list[Value]:
    """What the request says of a switch: on where its words stand, off where they are denied; empty
    if it says nothing.
    """
    named = [w for w in stems(slot.name) if w not in _SWITCHES and len(w) > 1]
    if not named or not all(w in request.stems for w in named):
        return []
    at = min(request.stems.index(w) for w in named)
    denied = any(a.text.lower() in _NEGATIONS for a in request.atoms[max(0, at - 3) : at])
    return [Value(not denied)]


def days(slot: Slot, request: Request) -> list[Value]:
    """Dates of the request in the form that the description asks for (else ISO 8601), where the
    slot is for a date.
    """
    form = form_of(slot.about)
    if form is None and _DATE not in content(slot.name):
        return []
    free = [(span, day) for span, day in request.days if request.is_free(span)]
    if free or form:
        return [
            Value(in_form(day, form or ISO) if form or day.day else span.text, span)
            for span, day in free
        ]
    return [Value(span.text, span) for span in request.relative_days if request.is_free(span)]


def _paths(slot: Slot, request: Request) -> list[Span]:
    """Paths if there are any; else single words, those first that stand beside a word for files and
    folders.
    """
    if found := request.single("path", "url"):
        return list({span.text: span for span in reversed(found)}.values())[::-1]
    singles = [s for s in request.single("word", "quoted", "number") if " " not in s.text]
    singles = [s for s in singles if s.kind == "quoted" or stem(s.text) not in slot.words | PATHS]
    beside = [s for s in singles if request.near(s, PATHS, 2) <= 2 and s.first > 0]
    return beside or [s for s in singles if s.first > 0] or singles


def _texts(slot: Slot, request: Request, others: Sequence[Slot]) -> list[Span]:
    texts = [o for o in others if o.kind == "string" and o.role != "path"]
    quoted = request.single("quoted")
    free = [
        s for s in request.free() if not any(s.overlaps(d) for d, _ in request.days)
    ] or request.free()
    if strong := labelled(slot, request, _loose(free, slot, request)) or by(slot, request):
        return strong
    if typical := kinds(slot, request):
        return typical
    if _DESIGNATED & frozenset(content(slot.name)[-1:]) and (coded := _codes(request)):
        return coded
    if quoted and (slot.role == "text" or len(quoted) > len(texts) or not request.names):
        return quoted
    if located := placed(slot, request, others):
        return located
    if _FORMULAS & slot.words and (formulas := [f for f in request.formulas if request.is_free(f)]):
        return formulas
    if any(o.role == "path" for o in others) and len(request.single("path")) <= sum(
        o.role == "path" for o in others
    ):
        free = [s for s in free if s.kind != "path" and not _holds(request, s, "path")]
    return _plain(slot, request, free)


def evident(slot: Slot, request: Request) -> list[Span]:
    """The piece that the request itself says is this slot's: labelled, or a maker after `by`."""
    if slot.kind != "string" or slot.role == "path":
        return []
    return labelled(slot, request, _loose(request.free(), slot, request)) or by(slot, request)


def _loose(free: Sequence[Span], slot: Slot, request: Request) -> list[Span]:
    """Pieces that a label can stand before: unbroken ones."""
    return [
        s
        for s in free
        if slot.role == "text" or not (_joined(request, s) or _cuts_name(request, s))
    ]


def _codes(request: Request) -> list[Span]:
    """Pieces with a digit that are no amounts."""
    single = request.single("number", "word", "quoted")
    return [s for s in single if any(c.isdigit() for c in s.text) and " " not in s.text]


def _plain(slot: Slot, request: Request, free: list[Span]) -> list[Span]:
    """Plain words: not the verb at the head, not cut out of a name, not broken by a joint, without
    the slot's own word.
    """
    free = [
        s
        for s in free
        if s.first > 0 or _entity(request.atoms[0]) or s.last == len(request.atoms) - 1
    ] or free
    phrases = [s for s in free if _of_phrase(request, s)]
    free = [s for s in free if not _edged(slot, request, s)] or free
    free = [s for s in free if not _own(request, s)] or free
    if slot.role == "text":
        return free
    free = [s for s in free if not _joined(request, s)] or free
    free = [s for s in free if not _cuts_name(request, s)] or free
    free = [s for s in free if not _counted(request, s) and not _before_quoted(request, s)] or free
    free = [s for s in free if not any(s.inside(p) for p in phrases)] or free
    return free + [p for p in phrases if p not in free]


def _of_phrase(request: Request, span: Span) -> bool:
    """`the theory of evolution`: a thing with a name of common words."""
    inside = [a.text for a in request.atoms[span.first : span.last + 1]]
    if not 3 <= len(inside) <= 4 or inside[1] != "of" or request.before(span) != "the":
        return False
    common = [w for w in inside if w != "of"]
    if request.own.issuperset(content(inside[0])):
        return False
    return all(w.isalpha() and w.islower() and w not in FUNCTION_WORDS | _JOINTS for w in common)


def _before_quoted(request: Request, span: Span) -> bool:
    """A word right before a quotation says what it is: `the weapon 'Sting'`."""
    after = span.last + 1
    return after < len(request.atoms) and request.atoms[after].kind == "quoted"


def _own(request: Request, span: Span) -> bool:
    """Whether it holds nothing but words of the tool's name."""
    inside = request.atoms[span.first : span.last + 1]
    if any(a.kind != "word" or not a.text.islower() for a in inside):
        return False
    return request.own.issuperset(word for a in inside for word in content(a.text))


def _cuts_name(request: Request, span: Span) -> bool:
    """Whether it takes a part of a name, or puts common words before one, or the tool's own behind
    it: `Apple stock`.
    """
    for name in request.names:
        if not span.overlaps(name):
            continue
        if span.first != name.first or span.last < name.last:
            return True
        last = request.atoms[span.last].text
        if span.last > name.last and last.islower() and request.own.issuperset(content(last)):
            return True
    return False


def _counted(request: Request, span: Span) -> bool:
    """Whether a number stands among common words (`vehicle driving 1500 miles`), or a quotation
    among any.
    """
    inside = request.atoms[span.first : span.last + 1]
    if span.first == span.last:
        return False
    if any(a.kind == "quoted" for a in inside):
        return True
    numbered = any(a.kind == "number" and a.text[:1].isdigit() for a in inside)
    words = [a.text for a in inside if a.kind == "word"]
    return numbered and bool(words) and not any(w[:1].isupper() for w in words)


def _holds(request: Request, span: Span, kind: str) -> bool:
    return any(a.kind == kind for a in request.atoms[span.first : span.last + 1])


def _entity(atom: Atom) -> bool:
    return atom.kind != "word" or bool(re.search(r"[\d_]|(?<=.)[A-Z]", atom.text))


def _edged(slot: Slot, request: Request, span: Span) -> bool:
    """Whether it begins or ends with the parameter's own word: `the user table` names the table
    `user`.
    """
    if span.first == span.last:
        return span.kind == "word" and stem(span.text) in slot.words and span.text.islower()
    ends = (request.atoms[span.first], request.atoms[span.last])
    return any(a.text.islower() and stem(a.text) in slot.words for a in ends)


def _joined(request: Request, span: Span) -> bool:
    """Whether a joint (`in`, `and`, a comma) stands inside, other than between capitals: `Bank of
    America`.
    """
    inside = request.atoms[span.first : span.last + 1]
    for index in range(1, len(inside)):
        gap = request.text[inside[index - 1].end : inside[index].start]
        atom = inside[index]
        if gap.startswith(("'s", "’s")) and atom.text.islower():
            return True
        if "," in gap and not (inside[index - 1].text[:1].isupper() and atom.text[:1].isupper()):
            return True
        if atom.kind == "word" and atom.text in _BREAKS:
            return True
        if atom.text == "of" and index + 1 < len(inside):
            rest = next(
                (a for a in inside[index + 1 :] if a.text.lower() not in FUNCTION_WORDS),
                atom,
            )
            if not (inside[index - 1].text[:1].isupper() and rest.text[:1].isupper()):
                return True
    return False


def spoken_of(slot: Slot, request: Request) -> list[Value]:
    """Values of an optional slot that the request gives evidence for; empty: leave the slot out."""
    if slot.kind == "enum":
        return named_choices(slot, request)
    if slot.kind == "boolean":
        return [v for v in switched(slot, request) if v.value or slot.default]
    if slot.kind in ("integer", "number"):
        digits = [
            v for v in numbers(slot, request) if v.span and any(map(str.isdigit, v.span.text))
        ]
        return [v for v in digits if v.span and request.near(v.span, slot.words, 3) <= 3]
    if slot.kind == "string":
        return days(slot, request) or told(slot, request) or _values(_spoken_strings(slot, request))
    if slot.kind == "array" and slot.item:
        return _spoken_list(slot, slot.item, request)
    return []


def _values(found: Sequence[Span]) -> list[Value]:
    return [Value(s.text, s) for s in found]


def _spoken_list(slot: Slot, item: Slot, request: Request) -> list[Value]:
    if item.kind == "enum":
        return [Value(made, around(pieces)) for made, pieces in lists(slot, request)[:1]]
    if item.kind != "string":
        return []
    if mentioned := told(slot, request):
        return [Value([v.value for v in mentioned], mentioned[0].span)]
    found = request.single("path", "quoted", "url")
    return [Value([s.text for s in found], around(found))] if found else []


def around(pieces: Sequence[Span]) -> Span:
    """One span over pieces that stand apart."""
    return Span("", min(p.first for p in pieces), max(p.last for p in pieces), "run")


def _spoken_strings(slot: Slot, request: Request) -> list[Span]:
    if slot.role == "path":
        if found := request.single("path"):
            return found
        return [s for s in request.single("word", "quoted") if _placed(slot, request, s)]
    told = {w.lower() for w in _EXAMPLES.findall(slot.about)}
    if listed := [s for s in request.single("word") if s.text.lower() in told]:
        return listed[:1]
    if typical := kinds(slot, request):
        return typical
    if is_place(slot) or is_maker(slot):
        return (placed(slot, request) or by(slot, request))[:1]
    if found := evident(slot, request):
        return found
    named = frozenset(content(slot.name))
    near = [s for s in _texts(slot, request, ()) if request.near(s, named, 2) <= 2 and s.first > 0]
    return [s for s in near if s.kind == "quoted" or _proper(request.atoms[s.first : s.last + 1])]


def _proper(pieces: Sequence[Atom]) -> bool:
    return all(_entity(a) or a.text[:1].isupper() for a in pieces)


def _placed(slot: Slot, request: Request, span: Span) -> bool:
    """`in src`, `the lib directory`: a bare word that can only be a place."""
    if " " in span.text or stem(span.text) in slot.words | PATHS:
        return False
    beside = stem(request.after(span)) in PATHS
    return beside or (
        request.before(span) in _PLACES
        and (span.last == len(request.atoms) - 1 or not request.after(span))
    )
