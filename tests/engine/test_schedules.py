"""Schedules: when they are due, what is none, and how a job submits the one that follows it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("croniter", reason="needs the extra `scale`")

from ferrule.core.errors import ConfigError
from ferrule.engine.distributed.handing_in import Intake
from ferrule.engine.distributed.outcomes import Beginning
from ferrule.engine.distributed.schedules import begin_scheduled, build_run_id, find_next_time

FRIDAY = datetime(2026, 7, 31, 22, 59, 30, tzinfo=UTC)


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
    ],
)
def test_a_schedule_is_due_at_the_next_time_that_matches(expression: str, due: str) -> None:
    assert f"{find_next_time(expression, FRIDAY):%Y-%m-%d %H:%M:%S}" == due


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "0 fields"),
        ("every day", "2 fields"),
        ("* * * * * * 2030", "7 fields"),
        ("60 * * * *", "out of range"),
        ("* * * 13 *", "out of range"),
        ("a * * * *", "not acceptable"),
        ("0 0 31 2 *", "next date"),
    ],
)
def test_an_unreadable_expression_is_refused_with_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        find_next_time(expression, FRIDAY)


class Table:
    """One schedule, each minute, and what is submitted."""

    def __init__(self, due: datetime, now: datetime) -> None:
        self.due, self.now = due, now
        self.is_there = True
        self.submitted: list[datetime] = []

    def find_schedule(self, name: str) -> tuple[Any, ...] | None:
        return ("* * * * *", {"text": "tidy up"}, self.due, self.now) if self.is_there else None

    def move_schedule(self, name: str, due: datetime, following: datetime) -> None:
        if self.due == due:
            self.due = following

    def submit(self, jobs: list[Mapping[str, Any]], *, delay: float, schedule: str) -> list[Any]:
        due = datetime.strptime(jobs[0]["run"], f"{schedule}-%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        assert delay == max(0, (due - self.now).total_seconds())
        self.submitted.append(due)
        # The engine knows of it, as far as the table is asked.
        return []

    def begin(self, due: datetime, *, was_begun: bool = False) -> bool:
        table: Any = self
        nobody: Any = None
        beginning = Beginning("begin", schedule="tidy", was_begun=was_begun)
        return begin_scheduled(Intake(table, nobody), build_run_id("tidy", due), beginning)


NOON = datetime(2026, 7, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_job_submits_the_next_of_its_schedule_once() -> None:
    table = Table(NOON, NOON)
    assert table.begin(NOON)
    assert (table.submitted, table.due) == ([NOON + MINUTE], NOON + MINUTE)
    assert table.begin(NOON, was_begun=True), "its first worker died after that"
    assert table.submitted == [NOON + MINUTE]


def test_a_job_whose_schedule_was_removed_or_changed_is_not_wanted() -> None:
    table = Table(NOON + MINUTE, NOON)
    assert not table.begin(NOON)
    table.is_there = False
    assert not table.begin(NOON + MINUTE)
    assert table.submitted == []


def test_times_at_which_no_worker_ran_are_left_out() -> None:
    late = NOON + timedelta(days=3, seconds=30)
    table = Table(NOON, late)
    assert not table.begin(NOON)
    (following,) = table.submitted
    assert abs(following - late) <= MINUTE
