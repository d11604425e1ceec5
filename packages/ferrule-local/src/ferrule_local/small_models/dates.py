"""Find dates in a request, and write them in the format that a parameter's description asks for.

Pure. Understood are `2022-08-16`, `2022/08/16`, `08/16/2022` (month first, unless it cannot be),
`16 August 2022`, `August 16th, 2022` and `April 2022`; years have four digits. A date may lack its
year where another one has it (`from May 3 to May 5, 2023`), and takes the time of day with it if
the description asks for one. What it cannot see: dates that must be worked out (`next Friday`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ferrule.core.value_class import frozen

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH = "|".join(f"{m[:3]}(?:{m[3:]})?" if m != "may" else m for m in _MONTHS)
_WRITTEN = re.compile(
    r"\b(?P<y1>\d{4})[-/.](?P<m1>\d{1,2})[-/.](?P<d1>\d{1,2})\b"
    r"|\b(?P<a>\d{1,2})[-/.](?P<b>\d{1,2})[-/.](?P<y2>\d{4})\b"
    rf"|\b(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<m3>{_MONTH})\.?,?\s+(?P<y3>\d{{4}})\b"
    rf"|\b(?P<m4>{_MONTH})[.\s]?\s*(?P<d4>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y4>\d{{4}})\b"
    rf"|\b(?P<m5>{_MONTH})\.?,?\s+(?:of\s+)?(?P<y5>\d{{4}})\b",
    re.IGNORECASE,
)
_WITHOUT_YEAR = re.compile(
    rf"\b(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<m1>{_MONTH})\b(?!\.?,?\s+\d{{4}})"
    rf"|\b(?P<m2>{_MONTH})\.?\s+(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\b(?!,?\s+\d{{4}})",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"\b(?P<h>\d{1,2})(?::(?P<m>\d{2}))?\s*"
    r"(?:(?P<half>[ap])\.?m\b\.?|(?P<part>in the (?:morning|afternoon|evening)))"
    r"|\b(?P<h24>\d{1,2}):(?P<m24>\d{2})\b",
    re.IGNORECASE,
)
_TIME_FORM = re.compile(
    r"(?:[yd]{2}|\d)(?P<mark>[T ])(?:HH:MM(?P<ss>:SS)?|\d{2}:\d{2}(?P<s>:\d{2}))(?P<zone>Z)?",
    re.IGNORECASE,
)
_CALENDAR_NAME = re.compile(
    rf"(?:{_MONTH}|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\.?", re.IGNORECASE
)
_PART = r"y{2,4}|m{2}|d{2}|year|month|day"
_FORM = re.compile(rf"(?i)(?<![a-z])({_PART})([-/. ])({_PART})(?:\2({_PART}))?(?=T|(?![a-z]))")


_RELATIVE = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday"
    r"|(?:this|next|last|coming) "
    r"(?:week|weekend|month|year|(?:mon|tues|wednes|thurs|fri|satur|sun)day))\b",
    re.IGNORECASE,
)


ISO_FORMAT = ("-", "y", "m", "d")
"""The format where none is asked for: the mark between the parts, and their order."""


@frozen
class Date:
    """A date; `day` is 0 where only the month was named."""

    year: int
    month: int
    day: int = 0


def find_dates(text: str) -> Iterator[tuple[int, int, Date]]:
    """Yield start, end and date of what is written as one."""
    found: list[tuple[int, int, Date]] = []
    for match in _WRITTEN.finditer(text):
        day = _read(_named_parts(match))
        if day:
            found.append((*match.span(), day))
    if found and found[0][2].day:
        found += _find_dates_without_year(text, found)
    yield from sorted(found, key=lambda one: one[0])


def _find_dates_without_year(
    text: str, known: list[tuple[int, int, Date]]
) -> Iterator[tuple[int, int, Date]]:
    """Yield the days and months that stand without a year, with that of the first date."""
    for match in _WITHOUT_YEAR.finditer(text):
        is_known = any(start < match.end() and match.start() < end for start, end, _ in known)
        if is_known:
            continue
        parts = _named_parts(match)
        parts["y"] = f"{known[0][2].year}"
        day = _read(parts)
        if day:
            yield (*match.span(), day)


def _named_parts(match: re.Match[str]) -> dict[str, str]:
    return {name: part for name, part in match.groupdict().items() if part}


def find_times(text: str) -> list[tuple[int, int, int]]:
    """Return the times of day in a text: where they begin, hour and minute."""
    found: list[tuple[int, int, int]] = []
    for match in _TIME.finditer(text):
        hour = int(match["h"] or match["h24"])
        minute = int(match["m"] or match["m24"] or 0)
        in_words = (match["part"] or "").lower()
        is_late = (match["half"] or "").lower() == "p" or in_words.endswith(("noon", "evening"))
        is_early = (match["half"] or "").lower() == "a"
        if is_late and hour < 12:
            hour += 12
        if is_early and hour == 12:
            hour = 0
        if hour < 24 and minute < 60:
            found.append((match.start(), hour, minute))
    return found


def requested_time_format(about: str) -> str | None:
    """Return the format of a time of day behind a date that a description asks for, or None.

    It is a format for `str.format` with `hour` and `minute`.
    """
    match = _TIME_FORM.search(about)
    if match is None:
        return None
    seconds = ":00" if match["ss"] or match["s"] else ""
    return f"{match['mark']}{{hour:02}}:{{minute:02}}{seconds}{match['zone'] or ''}"


def is_calendar_name(word: str) -> bool:
    """Return whether a word is the name of a month or a weekday, also shortened."""
    return bool(_CALENDAR_NAME.fullmatch(word))


def find_relative_dates(text: str) -> list[tuple[int, int]]:
    """Return where days are named as seen from today: `tomorrow`, `next week`."""
    return [match.span() for match in _RELATIVE.finditer(text)]


def _read(parts: dict[str, str]) -> Date | None:
    year = int(next(part for name, part in parts.items() if name.startswith("y")))
    if "a" in parts:
        month = int(parts["a"])
        day = int(parts["b"])
        if month > 12:
            month, day = day, month
    else:
        month = _read_month(next(part for name, part in parts.items() if name.startswith("m")))
        day = next((int(part) for name, part in parts.items() if name.startswith("d")), 0)
    return Date(year, month, day) if 1 <= month <= 12 and day <= 31 else None


def _read_month(text: str) -> int:
    if text.isdigit():
        return int(text)
    return 1 + [month[:3] for month in _MONTHS].index(text[:3].lower())


def requested_format(about: str) -> tuple[str, ...] | None:
    """Return the format that a description asks for (`MM-DD-YYYY`), or None.

    It is the mark between the parts, and the order of `y`, `m` and `d`.
    """
    match = _FORM.search(about)
    if match is None:
        return None
    return (match.group(2), *(part[0].lower() for part in match.group(1, 3, 4) if part))


def format_date(day: Date, form: tuple[str, ...]) -> str:
    """Write a date in a format. What it has no value for is left out."""
    mark, *order = form
    parts = {
        "y": f"{day.year:04}",
        "m": f"{day.month:02}",
        "d": f"{day.day:02}" if day.day else "",
    }
    return mark.join(parts[letter] for letter in order if parts[letter])
