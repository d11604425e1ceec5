"""What the description of a slot says of its values, and where the request has them.

Pure, and the same for every tool.

    listed    the description itself lists values (`e.g. 'vegan'`, `can be summary or detailed`),
              and the request has one
    coded     the description has numbers for things, and the request has one of the things
    dates     the dates of the request, in the form that the description asks for
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ferrule.tools.word_stems import FUNCTION_WORDS, content_stems, stem, stems

from .dates import (
    ISO_FORMAT,
    format_date,
    requested_format,
    requested_time_format,
)
from .request import Request
from .slots import Slot, Value, keep_outermost
from .spans import Span

_QUOTED = re.compile(r"(?<![\w])['\"‘“`]([^'\"‘’“”`]{1,40})['\"’”`](?!\w)")
_LISTED = re.compile(
    (
        r"(?:\be\.?g\.?,?|\bsuch as|\blike|\bfor example,?|\bcan be|\bincluding|\boptions(?: "
        r"are)?:?|\beither)\s+([^.;()]{2,120})"
    ),
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r",\s*(?:and\s+|or\s+)?|\s+or\s+|\s+and\s+|/|\betc\b")
_PAIR = re.compile(r"[A-Z]\w+/[A-Z]\w+")
_ALIAS = re.compile(
    r"['\"]([\w+#-]{1,20})['\"]\s*(?:for|refers to|means|is|=|:)\s*(?:an?\s+|the\s+)?([A-Za-z]{3,})"
)
_CODED = re.compile(
    r"\b(\d{1,4})['\"]?\s*"
    r"(?:for|(?:corresponds |refers )?to|represents|means|stands for|denotes|is|=|:)\s+"
    r"(?:an?\s+|the\s+)?([A-Za-z]{3,})"
)
_DATE = stem("date")


def find_values_in_description(about: str) -> list[str]:
    """Return the values that a description names: quoted, or in a list after `e.g.` and so on."""
    found = [text.strip() for text in _QUOTED.findall(about)]
    for part in _LISTED.findall(about):
        if re.fullmatch(r"[A-Z][\w .]+, [A-Z]{2}", part.strip()):
            found.append(part.strip())
        elif not _QUOTED.search(part):
            found += _PAIR.findall(part)
            part = _PAIR.sub("", part)
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


def find_coded_number(slot: Slot, request: Request) -> Value | None:
    """Return the number that the description has for what is said: `1 for Oslo, 2 for Bergen`.

    None unless the description lists several and the request has one of them.
    """
    codes = _CODED.findall(slot.about) if slot.kind in ("integer", "number", "enum") else []
    said = [(int(code), _find_free(meaning, request)) for code, meaning in codes]
    found = [
        Value(code, span)
        for code, span in said
        if span is not None and (slot.kind != "enum" or _is_number_in(slot.choices, code))
    ]
    return found[0] if len(codes) > 1 and len(found) == 1 else None


def _is_number_in(choices: Sequence[Any], number: int) -> bool:
    return any(choice == number for choice in choices if not isinstance(choice, bool))


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
    """Return the first time of day behind a date, else the first of all, else midnight."""
    if form is None:
        return ""
    if not request.times:
        return form.format(hour=0, minute=0)
    at = request.atoms[day.first].start
    behind = [time for time in request.times if time[0] > at] or request.times
    _, hour, minute = behind[0]
    return form.format(hour=hour, minute=minute)
