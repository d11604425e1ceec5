"""Cron expressions: when a schedule is due next, in UTC.

Five fields (minute, hour, day of the month, month, day of the week), or six with seconds first. A
field is `*`, a value, a range `a-b`, either with a step `/n`, or a list of these; months and days
of the week may be named (`jan`, `mon`), and Sunday is 0 or 7. If both days are restricted, one of
them has to match, as in every cron.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ferrule.core.value_class import frozen

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("second", 0, 59, ()),
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
MAX_DAYS = 366 * 8
"""Days that are searched: the 29th of February may be eight years away."""


@frozen
class CronExpression:
    """The values of each field, and whether either day has to match."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def next_after(self, moment: datetime) -> datetime:
        """Return the first time after a moment, to the second. Raises ValueError: there is none."""
        start = moment.replace(microsecond=0) + timedelta(seconds=1)
        for offset in range(MAX_DAYS):
            midnight = start.replace(hour=0, minute=0, second=0) + timedelta(days=offset)
            if self._has_day(midnight):
                found = self._next_on_day(max(start, midnight))
                if found is not None:
                    return found
        raise ValueError("it is never due")

    def _has_day(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        by_date = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday

    def _next_on_day(self, start: datetime) -> datetime | None:
        earliest = (start.hour, start.minute, start.second)
        for hour in self.hours:
            if hour < start.hour:
                continue
            for minute in self.minutes:
                for second in self.seconds:
                    if (hour, minute, second) >= earliest:
                        return start.replace(hour=hour, minute=minute, second=second)
        return None


def parse_cron(expression: str) -> CronExpression:
    """Parse an expression. Raises ValueError, with the reason."""
    words = expression.split()
    if len(words) == 5:
        words = ["0", *words]
    if len(words) != 6:
        raise ValueError(f"{len(words)} fields; it takes 5, or 6 with seconds first")
    values = [
        _parse_field(word.lower(), *field) for word, field in zip(words, _FIELDS, strict=True)
    ]
    seconds, minutes, hours, days, months, weekdays = values
    parsed = CronExpression(
        tuple(sorted(seconds)),
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(day % 7 for day in weekdays),
        not (words[3].startswith("*") or words[5].startswith("*")),
    )
    parsed.next_after(datetime.fromisoformat("2000-01-01"))
    return parsed


def _parse_field(word: str, name: str, low: int, high: int, names: tuple[str, ...]) -> set[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isascii() and step.isdecimal() and int(step)):
            raise ValueError(f"`{part[:40]}` is no {name}: the step must be a number from 1")
        first, dash, last = span.partition("-")
        if span == "*":
            start, end = low, high
        else:
            start = _parse_value(first, name, low, names)
            end = _parse_value(last, name, low, names) if dash else high if slash else start
        if not low <= start <= end <= high:
            raise ValueError(f"`{part[:40]}` is no {name}: it takes {low} to {high}")
        found.update(range(start, end + 1, int(step or 1)))
    return found


def _parse_value(word: str, name: str, low: int, names: tuple[str, ...]) -> int:
    if word in names:
        return names.index(word) + low
    if not (word.isascii() and word.isdecimal() and len(word) < 3):
        raise ValueError(f"`{word[:40]}` is no {name}")
    return int(word)
