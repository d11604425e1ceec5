"""`dates::add`, `dates::between`, `dates::describe`."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.toolkits.stdlib.dates import add_to_date, between


@pytest.mark.parametrize(
    ("arguments", "result", "weekday", "clamped"),
    [
        ({"start": "2026-01-15", "days": 90}, "2026-04-15", "Wednesday", False),
        ({"start": "2026-01-31", "months": 1}, "2026-02-28", "Saturday", True),
        ({"start": "2024-02-29", "years": 1}, "2025-02-28", "Friday", True),
        ({"start": "2024-02-29", "years": 4}, "2028-02-29", "Tuesday", False),
        ({"start": "2026-03-01", "months": -13}, "2025-02-01", "Saturday", False),
        ({"start": "2026-01-15", "weeks": -1}, "2026-01-08", "Thursday", False),
        ({"start": "2026-01-15", "hours": 25}, "2026-01-16T01:00:00", "Friday", False),
        (
            {"start": "2026-01-15T23:00:00Z", "minutes": 90},
            "2026-01-16T00:30:00+00:00",
            "Friday",
            False,
        ),
        (
            {"start": "2026-01-15T23:00:00+02:00", "seconds": 1},
            "2026-01-15T23:00:01+02:00",
            "Thursday",
            False,
        ),
        ({"start": "1900-02-28", "days": 1}, "1900-03-01", "Thursday", False),
        ({"start": "2026-01-15"}, "2026-01-15", "Thursday", False),
    ],
)
def test_dates_are_moved_by_the_calendar(
    ask: Any, arguments: dict[str, Any], result: str, weekday: str, clamped: bool
) -> None:
    assert ask("dates::add", **arguments).data == {
        "result": result,
        "weekday": weekday,
        "clamped": clamped,
    }


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"start": "9999-12-31", "days": 1}, "limit"),
        ({"start": "0001-01-01", "months": -1}, "limit"),
        ({"start": "2026-01-01", "years": 10**10}, "limit"),
        ({"start": "2026-01-01", "weeks": 10**10}, "limit"),
        ({"start": "2026-01-01", "seconds": 10**11}, "validation_failed"),
        ({"start": "2026-02-30"}, "validation_failed"),
        ({"start": "yesterday"}, "validation_failed"),
        ({"start": ""}, "validation_failed"),
        ({"start": "2026-01-01" + "0" * 10_000}, "validation_failed"),
    ],
)
def test_what_leads_out_of_the_calendar_or_is_no_date_is_refused(
    ask: Any, arguments: dict[str, Any], error: str
) -> None:
    answer = ask("dates::add", **arguments)
    assert (answer.success, answer.error_type) == (False, error)


def test_a_distance_is_in_days_and_by_the_calendar(ask: Any) -> None:
    assert ask("dates::between", start="2026-01-31", end="2027-03-01").data == {
        "days": 394,
        "rest_seconds": 0.0,
        "seconds": 394 * 86400.0,
        "years": 1,
        "months": 1,
        "month_days": 1,
    }
    backwards = ask("dates::between", start="2026-03-01T12:00:00", end="2026-02-01").data
    assert (backwards["days"], backwards["rest_seconds"], backwards["months"]) == (
        -28,
        -43200.0,
        -1,
    )


def test_offsets_count_and_one_without_the_other_is_refused(ask: Any) -> None:
    same = ask("dates::between", start="2026-01-01T00:00:00Z", end="2026-01-01T01:00:00+01:00").data
    assert same["seconds"] == 0
    mixed = ask("dates::between", start="2026-01-01T00:00:00Z", end="2026-01-01")
    assert mixed.error_type == "validation_failed"
    assert "both or neither" in mixed.error_message


def test_a_date_is_described(ask: Any) -> None:
    assert ask("dates::describe", date="2027-01-01").data == {
        "date": "2027-01-01",
        "weekday": "Friday",
        "iso_year": 2026,
        "iso_week": 53,
        "iso_weekday": 5,
        "day_of_year": 1,
        "days_in_month": 31,
        "quarter": 1,
        "leap_year": False,
    }


@given(st.dates(), st.dates())
def test_adding_the_distance_leads_from_one_date_to_the_other(start: date, end: date) -> None:
    async def check() -> None:
        distance = await between(start=start.isoformat(), end=end.isoformat())
        moved = await add_to_date(start=start.isoformat(), days=distance["days"])
        assert moved["result"] == end.isoformat()
        assert end - start == timedelta(days=distance["days"])

    asyncio.run(check())


@given(st.dates(), st.dates())
def test_years_months_and_days_lead_from_the_earlier_date_to_the_later(
    start: date, end: date
) -> None:
    start, end = min(start, end), max(start, end)

    async def check() -> None:
        distance = await between(start=start.isoformat(), end=end.isoformat())
        parts = {
            "years": distance["years"],
            "months": distance["months"],
            "days": distance["month_days"],
        }
        assert all(count >= 0 for count in parts.values())
        assert (await add_to_date(start=start.isoformat(), **parts))["result"] == end.isoformat()

    asyncio.run(check())
