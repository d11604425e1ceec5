"""Find the pieces of a request that may fill a slot, and whether an optional slot is mentioned.

Pure, and the same for every tool. What stays open (several pieces would do) is left to the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from ferrule.tools.word_stems import FUNCTION_WORDS, content_stems, stem, stems

from .action_check import find_commands, find_synonyms
from .dates import ISO_FORMAT, format_date, requested_format, requested_time_format
from .evidence import (
    find_directed,
    find_kind,
    find_labelled,
    find_listed_values,
    find_makers,
    find_occurrences,
    find_places,
    is_maker,
    is_place,
)
from .lists import read_lists
from .names import find_names, find_names_in_role, split_place
from .numbers import find_numbers
from .request import Request
from .slots import PATH_WORDS, Slot, Value, keep_outermost
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
_COMMAND = stem("command")
_DATE = stem("date")
_FORMULAS = frozenset(map(stem, ["function", "formula", "expression", "equation", "polynomial"]))
_CAPITALS = re.compile(r"[A-Z]{3,}")
_MAIL = frozenset(map(stem, ["email", "mail"]))
_WEB = frozenset(map(stem, ["url", "link", "website", "webpage"]))
_DESIGNATED = frozenset(map(stem, ["id", "number", "code", "zip", "phone", "isbn", "identifier"]))


def find_values(slot: Slot, request: Request, others: Sequence[Slot] = ()) -> list[Value]:
    """Return what a request offers for a slot, in the request's order; empty if nothing.

    `others` are the slots that are still unfilled.
    """
    if slot.kind == "enum":
        named = find_named_choices(slot, request) or _find_choices(slot, request, in_names=True)
        return named or [Value(choice) for choice in slot.choices]
    if slot.kind == "boolean":
        return read_boolean(slot, request, any) or [Value(True), Value(False)]
    if slot.kind in ("integer", "number"):
        return find_numbers(slot, request) or _count_as_one(slot, request)
    if slot.kind != "string":
        return []
    if slot.role == "path":
        return _values(_paths(slot, request))
    return _strings(slot, request, others)


def _strings(slot: Slot, request: Request, others: Sequence[Slot]) -> list[Value]:
    dates = find_slot_dates(slot, request)
    if dates:
        in_direction = find_directed(slot, dates, request)
        if in_direction:
            return in_direction
        alike = [other for other in others if find_slot_dates(other, request)]
        return dates[:1] if len(dates) == len(alike) + 1 else dates
    has_quoted_text = slot.role == "text" and request.free_atoms("quoted")
    listed = [] if has_quoted_text else find_listed_values(slot, request)
    if listed:
        if len({value.value for value in listed}) == 1:
            return listed[:1]
        return find_directed(slot, listed, request) or listed
    found = _values(_texts(slot, request, others))
    return find_directed(slot, found, request) or found


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


def find_slot_dates(slot: Slot, request: Request) -> list[Value]:
    """Return the dates of the request, if the slot is for a date.

    They are written in the format that the description asks for, else as in ISO 8601.
    """
    form = requested_format(slot.about)
    time_form = requested_time_format(slot.about)
    if time_form and form is None:
        form = ISO_FORMAT
    if form is None and _DATE not in content_stems(slot.name):
        return []
    free = [(span, day) for span, day in request.dates if request.is_free(span)]
    if form:
        return [
            Value(format_date(day, form) + _format_time(time_form, request, span), span)
            for span, day in free
        ]
    if free:
        # A month without a day stays as it was written.
        return [
            Value(format_date(day, ISO_FORMAT) if day.day else span.text, span)
            for span, day in free
        ]
    return [Value(span.text, span) for span in request.relative_dates if request.is_free(span)]


def _format_time(form: str | None, request: Request, day: Span) -> str:
    """Return the first time of day behind a date, else the first of all, in a format."""
    if form is None or not request.times:
        return ""
    at = request.atoms[day.first].start
    behind = [time for time in request.times if time[0] > at] or request.times
    _, hour, minute = behind[0]
    return form.format(hour=hour, minute=minute)


def _paths(slot: Slot, request: Request) -> list[Span]:
    """Return the paths of the request.

    If there are none: single words, those first that stand beside a word for files and folders.
    """
    found = request.free_atoms("path", "url")
    if found:
        first_of_each = {span.text: span for span in reversed(found)}
        return list(first_of_each.values())[::-1]
    singles = [s for s in request.free_atoms("word", "quoted", "number") if " " not in s.text]
    singles = [
        s for s in singles if s.kind == "quoted" or stem(s.text) not in slot.words | PATH_WORDS
    ]
    beside = [s for s in singles if request.distance_to(s, PATH_WORDS, 2) <= 2 and s.first > 0]
    return beside or [s for s in singles if s.first > 0] or singles


def _texts(slot: Slot, request: Request, others: Sequence[Slot]) -> list[Span]:
    """Return the pieces that may be the text of a slot: those with the best evidence alone."""
    links = _find_links(slot, request)
    if links:
        return links
    if slot.role == "text" and _COMMAND in content_stems(slot.name):
        commands = [span for span in find_commands(request) if request.is_free(span)]
        if commands and not request.free_atoms("quoted"):
            return commands[:1]
    free = request.free_spans()
    free = [s for s in free if not any(s.overlaps(date) for date, _ in request.dates)] or free
    found = find_labelled(slot, request, _unbroken(free, slot, request)) or find_makers(
        slot, request
    )
    found = found or find_kind(slot, request)
    if not found and _DESIGNATED & frozenset(content_stems(slot.name)[-1:]):
        found = _codes(request)
    found = found or _find_quotations(slot, request, others)
    found = found or split_place(slot, find_places(slot, request, others), request)
    found = found or find_names(slot, request) or _find_rest_after_colon(slot, request)
    if not found and _FORMULAS & slot.words:
        found = [formula for formula in request.formulas if request.is_free(formula)]
    if found:
        return found
    path_slots = sum(other.role == "path" for other in others)
    if path_slots and len(request.free_atoms("path")) <= path_slots:
        free = [s for s in free if s.kind != "path" and not _holds(request, s, "path")]
    return _plain_words(slot, request, free)


def _find_links(slot: Slot, request: Request) -> list[Span]:
    """Return the addresses of mail or of the web, if the slot is for one."""
    links = request.free_atoms("url")
    if not _MAIL.isdisjoint(slot.words):
        return [link for link in links if "@" in link.text]
    if not _WEB.isdisjoint(content_stems(slot.name)):
        return [link for link in links if "://" in link.text]
    return []


def _find_rest_after_colon(slot: Slot, request: Request) -> list[Span]:
    """Return what follows a colon up to the end, if the slot is for a text: `Say it: good day`."""
    if slot.role != "text":
        return []
    for index, atom in enumerate(request.atoms[1:], 1):
        between = request.text[request.atoms[index - 1].end : atom.start]
        if re.fullmatch(r":\s+", between):
            last = len(request.atoms) - 1
            text = request.text[atom.start : request.atoms[last].end]
            rest = Span(text, index, last, "run")
            return [rest] if request.is_free(rest) else []
    return []


def _find_quotations(slot: Slot, request: Request, others: Sequence[Slot]) -> list[Span]:
    """Return the quotations, if they rather than names are what the slot is for."""
    quoted = request.free_atoms("quoted")
    texts = [other for other in others if other.kind == "string" and other.role != "path"]
    if slot.role == "text" or len(quoted) > len(texts) or not request.names:
        return quoted
    return []


def find_evident(slot: Slot, request: Request) -> list[Span]:
    """Return the piece that the request itself assigns to the slot: labelled, or a maker."""
    if slot.kind != "string" or slot.role == "path":
        return []
    free = [s for s in request.free_spans() if not any(s.overlaps(d) for d, _ in request.dates)]
    return find_labelled(slot, request, _unbroken(free, slot, request)) or find_makers(
        slot, request
    )


def _unbroken(free: Sequence[Span], slot: Slot, request: Request) -> list[Span]:
    """Return the pieces that a label can stand before."""
    if slot.role == "text":
        return list(free)
    return [s for s in free if not _is_joined(request, s) and not _cuts_name(request, s)]


def _codes(request: Request) -> list[Span]:
    """Return the single pieces that have a digit, as ids and codes do, else those in capitals."""
    single = request.free_atoms("number", "word", "quoted")
    single = [s for s in single if " " not in s.text]
    found = [s for s in single if any(c.isdigit() for c in s.text) and not _is_time(request, s)]
    found = [s for s in found if s.kind == "quoted"] or found
    return found or [s for s in single if _CAPITALS.fullmatch(s.text)]


def _is_time(request: Request, span: Span) -> bool:
    start = request.atoms[span.first].start
    return any(time[0] == start for time in request.times)


def _plain_words(slot: Slot, request: Request, free: list[Span]) -> list[Span]:
    """Return plain words.

    If there are others, these are left out: the verb at the head, what is cut out of a name or
    broken by a joint, and what has the slot's own word at an end.
    """
    last = len(request.atoms) - 1
    free = [
        s for s in free if s.first > 0 or _is_entity(request.atoms[0]) or s.last == last
    ] or free
    phrases = [s for s in free if _is_of_phrase(request, s)]
    free = [s for s in free if not _has_own_word_at_end(slot, request, s)] or free
    free = [s for s in free if not _is_tool_name(request, s)] or free
    free = [s for s in free if not _is_parameter_name(request, s)] or free
    if slot.role == "text":
        return free
    free = [s for s in free if not _is_joined(request, s)] or free
    free = [s for s in free if not _cuts_name(request, s)] or free
    free = [
        s for s in free if not _has_amount(request, s) and not _is_before_quoted(request, s)
    ] or free
    free = [s for s in free if not any(s.is_inside(p) for p in phrases)] or free
    return free + [p for p in phrases if p not in free]


def _is_of_phrase(request: Request, span: Span) -> bool:
    """Return whether it is a thing with a name of common words: `the theory of evolution`."""
    inside = [a.text for a in request.atoms[span.first : span.last + 1]]
    if not 3 <= len(inside) <= 4 or inside[1] != "of" or request.word_before(span) != "the":
        return False
    common = [w for w in inside if w != "of"]
    if request.tool_words.issuperset(content_stems(inside[0])):
        return False
    return all(w.isalpha() and w.islower() and w not in FUNCTION_WORDS | _JOINTS for w in common)


def _is_before_quoted(request: Request, span: Span) -> bool:
    """Return whether a quotation follows. Such a word says what it is: `the weapon 'Sting'`."""
    after = span.last + 1
    return after < len(request.atoms) and request.atoms[after].kind == "quoted"


def _is_tool_name(request: Request, span: Span) -> bool:
    """Return whether it holds nothing but words of the tool's name."""
    inside = request.atoms[span.first : span.last + 1]
    if any(a.kind != "word" or not a.text.islower() for a in inside):
        return False
    return request.tool_words.issuperset(word for a in inside for word in content_stems(a.text))


def _is_parameter_name(request: Request, span: Span) -> bool:
    """Return whether it is made of parameters' names, or is the unit of the number before it."""
    inside = request.atoms[span.first : span.last + 1]
    if any(a.kind != "word" or not a.text.islower() for a in inside):
        return False
    if request.parameter_words.issuperset(word for a in inside for word in content_stems(a.text)):
        return True
    return _follows_number(request, span) and is_unit(stem(inside[0].text))


def _follows_number(request: Request, span: Span) -> bool:
    return span.first > 0 and request.atoms[span.first - 1].kind == "number"


def _cuts_name(request: Request, span: Span) -> bool:
    """Return whether it does not begin and end where a name does that it overlaps.

    It may be a part of the name, have common words before it, or the tool's own words behind it:
    `Apple stock`.
    """
    for name in request.names:
        if not span.overlaps(name):
            continue
        if span.first != name.first or span.last < name.last:
            return True
        last = request.atoms[span.last].text
        if (
            span.last > name.last
            and last.islower()
            and request.tool_words.issuperset(content_stems(last))
        ):
            return True
    return False


def _has_amount(request: Request, span: Span) -> bool:
    """Return whether it has a number among common words, or a quotation among any words.

    For instance `vehicle driving 1500 miles`.
    """
    inside = request.atoms[span.first : span.last + 1]
    if span.first == span.last:
        return False
    if any(a.kind == "quoted" for a in inside):
        return True
    has_number = any(a.kind == "number" and a.text[:1].isdigit() for a in inside)
    words = [a.text for a in inside if a.kind == "word"]
    return has_number and bool(words) and not any(w[:1].isupper() for w in words)


def _holds(request: Request, span: Span, kind: str) -> bool:
    return any(a.kind == kind for a in request.atoms[span.first : span.last + 1])


def _is_entity(atom: Atom) -> bool:
    """Return whether an atom is no common word."""
    return atom.kind != "word" or bool(re.search(r"[\d_]|(?<=.)[A-Z]", atom.text))


def _has_own_word_at_end(slot: Slot, request: Request, span: Span) -> bool:
    """Return whether it begins or ends with the slot's own word.

    For instance, `the user table` names the table `user`.
    """
    if span.first == span.last:
        return span.kind == "word" and stem(span.text) in slot.words and span.text.islower()
    ends = (request.atoms[span.first], request.atoms[span.last])
    return any(a.text.islower() and stem(a.text) in slot.words for a in ends)


def _is_joined(request: Request, span: Span) -> bool:
    """Return whether a joint (`in`, `and`, a comma) stands inside.

    Between capitals it does not count: `Bank of America`.
    """
    inside = request.atoms[span.first : span.last + 1]
    return any(_is_joint(request, inside, index) for index in range(1, len(inside)))


def _is_joint(request: Request, inside: Sequence[Atom], index: int) -> bool:
    """Return whether an atom, or what stands before it, joins two things."""
    before = inside[index - 1]
    atom = inside[index]
    follows_capital = before.text[:1].isupper()
    gap = request.text[before.end : atom.start]
    if gap.startswith(("'s", "’s")) and atom.text.islower():
        return True
    if "," in gap and not (follows_capital and atom.text[:1].isupper()):
        return True
    if atom.kind == "word" and atom.text in _BREAKS:
        return True
    if atom.text != "of" or index + 1 >= len(inside):
        return False
    named = next((a for a in inside[index + 1 :] if a.text.lower() not in FUNCTION_WORDS), atom)
    return not (follows_capital and named.text[:1].isupper())


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
    if slot.kind == "string":
        found = find_slot_dates(slot, request) or find_listed_values(slot, request)
        return found or _values(_mentioned_strings(slot, request))
    if slot.kind == "array" and slot.item:
        return _mentioned_lists(slot, slot.item, request)
    return []


def _values(found: Sequence[Span]) -> list[Value]:
    return [Value(s.text, s) for s in found]


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


def _mentioned_strings(slot: Slot, request: Request) -> list[Span]:
    if slot.role == "path":
        paths = request.free_atoms("path")
        return paths or [
            s for s in request.free_atoms("word", "quoted") if _is_folder(slot, request, s)
        ]
    examples = {word.lower() for word in _EXAMPLES.findall(slot.about)}
    listed = [s for s in request.free_atoms("word") if s.text.lower() in examples]
    if listed:
        return listed[:1]
    typical = find_kind(slot, request)
    if typical:
        return typical
    if is_place(slot) or is_maker(slot):
        places = split_place(slot, find_places(slot, request), request)
        found = places or find_makers(slot, request) or find_names_in_role(slot, request)
        return found[:1]
    assigned = find_evident(slot, request) or find_names_in_role(slot, request)
    if assigned:
        return assigned
    named = frozenset(content_stems(slot.name))
    near = [
        s
        for s in _texts(slot, request, ())
        if request.distance_to(s, named, 2) <= 2 and s.first > 0
    ]
    return [s for s in near if s.kind == "quoted" or _is_name(request.atoms[s.first : s.last + 1])]


def _is_name(pieces: Sequence[Atom]) -> bool:
    return all(_is_entity(a) or a.text[:1].isupper() for a in pieces)


def _is_folder(slot: Slot, request: Request, span: Span) -> bool:
    """Return whether a bare word can only be a folder: `in src`, `the lib directory`."""
    if " " in span.text or stem(span.text) in slot.words | PATH_WORDS:
        return False
    if stem(request.word_after(span)) in PATH_WORDS:
        return True
    is_last = span.last == len(request.atoms) - 1 or not request.word_after(span)
    return is_last and request.word_before(span) in _PLACES
