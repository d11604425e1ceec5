"""`dates::add`, `dates::between`, `dates::describe`: arithmetic on the calendar.

The calendar is that of ISO 8601: proleptic Gregorian, years 1 to 9999. A date stays a date unless
hours, minutes or seconds are added. A time with an offset keeps that offset: rules of time zones
(and so the hour that is lost or gained in one) are not applied, and leap seconds do not exist.
Months and years are added first, and a day that the month does not have becomes its last; then
weeks and days; then hours, minutes and seconds.
"""

from __future__ import annotations

import calendar
import re
from datetime import date, datetime, time, timedelta
from typing import Annotated, TypedDict, TypeVar

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed

from .typed import typed_tool

Day = TypeVar("Day", bound=date)

MAX_COUNT = 10_000_000_000
"""The largest count of a unit: more seconds leave the calendar, or nearly do."""
_WRITTEN = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_WHEN = (
    "A date `2026-02-28`, or a time `2026-02-28T09:30:00`, which may end in `Z` or an offset "
    "such as `+01:00`."
)


class Moved(TypedDict):
    """The date that was reached.

    `clamped`: its month does not have the day, so the last day of the month was taken.
    """

    result: str
    weekday: str
    clamped: bool


class Distance(TypedDict):
    """The distance from `start` to `end`, negative if `end` is earlier.

    `days` are whole days and `rest_seconds` the rest with the same sign; `seconds` are both.
    `years`, `months` and `month_days` are the same distance by the calendar: whole years, then
    whole months, then days.
    """

    days: int
    rest_seconds: float
    seconds: float
    years: int
    months: int
    month_days: int


class Described(TypedDict):
    """Facts about one date; weeks are those of ISO 8601."""

    date: str
    weekday: str
    iso_year: int
    iso_week: int
    iso_weekday: int
    day_of_year: int
    days_in_month: int
    quarter: int
    leap_year: bool


@typed_tool(
    "dates",
    name="add",
    examples=[
        {
            "request": "Which date is 90 days after 2026-01-15?",
            "arguments": {"start": "2026-01-15", "days": 90},
        }
    ],
)
async def add_to_date(
    start: Annotated[str, _WHEN],
    years: Annotated[int, "May be negative, like all of these."] = 0,
    months: int = 0,
    weeks: int = 0,
    days: int = 0,
    hours: int = 0,
    minutes: int = 0,
    seconds: int = 0,
) -> Moved:
    """Add to a date or time, or subtract with negative numbers. Returns it in ISO 8601 with its
    weekday.
    """
    counts = {
        "years": years,
        "months": months,
        "weeks": weeks,
        "days": days,
        "hours": hours,
        "minutes": minutes,
        "seconds": seconds,
    }
    for name, count in counts.items():
        if abs(count) > MAX_COUNT:
            raise RetryCall(f"`{name}` must be from -{MAX_COUNT} to {MAX_COUNT}, found {count}")
    begin = parse_date(start, "start")
    try:
        moved, clamped = _add_months(begin, 12 * years + months)
        moved += timedelta(weeks=weeks, days=days)
        if hours or minutes or seconds:
            moved = _as_time(moved) + timedelta(hours=hours, minutes=minutes, seconds=seconds)
    except (OverflowError, ValueError):
        raise ToolFailed(
            ErrorType.LIMIT,
            f"from {start} that leads out of the years 1 to 9999; add or subtract less",
        ) from None
    return Moved(result=moved.isoformat(), weekday=_weekday(moved), clamped=clamped)


def _add_months(begin: Day, months: int) -> tuple[Day, bool]:
    """Raise ValueError or OverflowError outside of the calendar."""
    if not months:
        return begin, False
    year, month = divmod(begin.year * 12 + begin.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError(year)
    last = calendar.monthrange(year, month + 1)[1]
    moved = begin.replace(year=year, month=month + 1, day=min(begin.day, last))
    return moved, begin.day > last


@typed_tool(
    "dates",
    examples=[
        {
            "request": "Days from 2026-01-01 to 2026-12-24",
            "arguments": {"start": "2026-01-01", "end": "2026-12-24"},
        }
    ],
)
async def between(start: Annotated[str, _WHEN], end: Annotated[str, _WHEN]) -> Distance:
    """The distance between two dates or times: in days and seconds, and in years, months and
    days.
    """
    first = _as_time(parse_date(start, "start"))
    last = _as_time(parse_date(end, "end"))
    first, last = _with_same_offset(first, last)
    backwards = last < first
    earlier, later = (last, first) if backwards else (first, last)
    distance = later - earlier
    months = _whole_months(earlier, later)
    rest = (later - _add_months(earlier, months)[0]).days
    sign = -1 if backwards else 1
    within = distance.seconds + distance.microseconds / 1_000_000
    return Distance(
        days=sign * distance.days,
        # Zero has no sign.
        rest_seconds=sign * within or 0.0,
        seconds=sign * distance.total_seconds() or 0.0,
        years=sign * (months // 12),
        months=sign * (months % 12),
        month_days=sign * rest,
    )


def _whole_months(earlier: datetime, later: datetime) -> int:
    months = (later.year - earlier.year) * 12 + later.month - earlier.month
    reached, _ = _add_months(earlier, months)
    return months - 1 if reached > later else months


def _with_same_offset(first: datetime, last: datetime) -> tuple[datetime, datetime]:
    if (first.tzinfo is None) != (last.tzinfo is None):
        raise RetryCall(
            "one of `start` and `end` has an offset from UTC and the other has none; give "
            "both or neither"
        )
    if first.tzinfo is None:
        return first, last
    # Months are counted by the calendar of the first.
    try:
        return first, last.astimezone(first.tzinfo)
    except OverflowError:
        raise ToolFailed(
            ErrorType.LIMIT,
            "with the offset of `start`, `end` is outside of the years 1 to 9999; use closer "
            "offsets",
        ) from None


@typed_tool(
    "dates",
    examples=[{"request": "Which weekday was 2000-02-29?", "arguments": {"date": "2000-02-29"}}],
)
async def describe(date: Annotated[str, _WHEN]) -> Described:
    """Facts of a date: weekday, ISO week, day of the year, days in its month, leap year."""
    day = parse_date(date, "date")
    year, week, weekday = day.isocalendar()
    return Described(
        date=day.isoformat()[:10],
        weekday=_weekday(day),
        iso_year=year,
        iso_week=week,
        iso_weekday=weekday,
        day_of_year=day.timetuple().tm_yday,
        days_in_month=calendar.monthrange(day.year, day.month)[1],
        quarter=(day.month + 2) // 3,
        leap_year=calendar.isleap(day.year),
    )


def parse_date(text: str, where: str) -> date:
    """Read a date, or a datetime (which is one) if the text has a time.

    Raises:
        RetryCall: The text is neither; the message names `where`.
    """
    text = text.strip()
    try:
        # `fromisoformat` accepts any character between date and time, and any number of digits
        # after it.
        if not _WRITTEN.fullmatch(text):
            raise ValueError(text)
        return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
    except ValueError:
        raise RetryCall(
            f"`{where}` must be a date such as 2026-02-28 or a time such as "
            f"2026-02-28T09:30:00+01:00 that exists, found `{text[:40]}`"
        ) from None


def _as_time(day: date) -> datetime:
    return day if isinstance(day, datetime) else datetime.combine(day, time())


def _weekday(day: date) -> str:
    return _WEEKDAYS[day.weekday()]


# Not `calendar.day_name`, which uses the language of the machine.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
