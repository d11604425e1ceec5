"""Cron expressions: when they are due, and what is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.engine.distributed.cron import parse_cron

FRIDAY = datetime(2026, 7, 31, 22, 59, 30, tzinfo=UTC)


@pytest.mark.proves("scale.schedule")
@pytest.mark.parametrize(
    ("expression", "due"),
    [
        ("* * * * *", "2026-07-31 23:00:00"),
        ("*/2 * * * * *", "2026-07-31 22:59:32"),
        ("0 3 * * *", "2026-08-01 03:00:00"),
        ("15,45 9-17/4 * * mon-fri", "2026-08-03 09:15:00"),
        ("0 0 1 jan *", "2027-01-01 00:00:00"),
        ("30 6 * * 7", "2026-08-02 06:30:00"),
        ("30 6 * * 0", "2026-08-02 06:30:00"),
        ("0 12 29 2 *", "2028-02-29 12:00:00"),
        ("0 0 13 * fri", "2026-08-07 00:00:00"),
        ("0 0 */10 * fri", "2026-08-21 00:00:00"),
        ("5/20 * * * *", "2026-07-31 23:05:00"),
    ],
)
def test_a_schedule_is_due_at_the_next_time_that_matches(expression: str, due: str) -> None:
    assert f"{parse_cron(expression).next_after(FRIDAY):%Y-%m-%d %H:%M:%S}" == due


@pytest.mark.proves("scale.errors")
@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "0 fields"),
        ("every day", "2 fields"),
        ("60 * * * *", "0 to 59"),
        ("* 24 * * *", "0 to 23"),
        ("* * 0 * *", "1 to 31"),
        ("* * * 13 *", "1 to 12"),
        ("* * * * 8", "0 to 7"),
        ("*/0 * * * *", "the step"),
        ("5-1 * * * *", "0 to 59"),
        ("a * * * *", "no minute"),
        ("* * * mon *", "no month"),
        ("1,,2 * * * *", "no minute"),
        ("-1 * * * *", "no minute"),
        ("0 0 31 2 *", "never due"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_cron(expression)


FIELD = st.sampled_from(["*", "*/7", "3", "1-9/2", "2,5"])


@pytest.mark.proves("scale.schedule")
@settings(max_examples=50, deadline=None)
@given(st.tuples(*[FIELD] * 3), st.integers(0, 10**6))
def test_no_time_that_matches_is_left_out(fields: tuple[str, ...], seconds: int) -> None:
    # Hours, days and months are open: within an hour or three a simple search finds the time.
    expression = parse_cron(f"{fields[0]} {fields[1]} * * * *")
    start = FRIDAY + timedelta(seconds=seconds)
    wanted = start + timedelta(seconds=1)
    while not (wanted.second in expression.seconds and wanted.minute in expression.minutes):
        wanted += timedelta(seconds=1)
    assert expression.next_after(start) == wanted
