"""Schedules: a job that submits the next of its kind when it begins.

The next time of a schedule waits in the engine as a job with a delay, so nothing has to look for
times that have come, and any engine that can wait will do. If that job is cancelled or gone,
workers submit the next one when they look for what was left behind (`restart_schedules`). Cron
expressions are read by `croniter`, in UTC: five fields, or six with seconds first.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ferrule.core.errors import ConfigError

from .handing_in import Intake
from .job import Job
from .outcomes import Beginning

SKIPPED_SECONDS = 60.0
"""A time that is past for longer is left out: no worker ran."""


def find_next_time(cron: str, after: datetime) -> datetime:
    """Return the first time after a moment. Raises ConfigError."""
    from croniter import croniter

    fields = len(cron.split())
    try:
        if fields not in (5, 6):
            raise ValueError(f"{fields} fields; it takes 5, or 6 with seconds first")
        times = croniter(cron, after, second_at_beginning=True)
        return times.get_next(datetime).astimezone(UTC)
    except (ValueError, KeyError) as error:
        raise ConfigError(
            f"schedule `{cron}`: {error}", hint="use `0 3 * * *`: each night at three"
        ) from error


def submit_scheduled(
    intake: Intake, name: str, job: Mapping[str, Any], due: datetime, now: datetime
) -> None:
    """Submit the job of a schedule for one of its times."""
    timed = Job.of({**job, "run": build_run_id(name, due)}).with_name()
    delay = max(0.0, (due - now).total_seconds())
    intake.hand_in(intake.table.submit([timed.as_dict()], delay=delay, schedule=name))


def begin_scheduled(intake: Intake, run: str, beginning: Beginning) -> bool:
    """Submit the job that follows this one of a schedule. Return whether this one is still wanted.

    A schedule that was removed or changed meanwhile wants it no more, and neither does one whose
    time is long past. Repeated by another worker, it submits nothing twice.
    """
    name = beginning.schedule
    if name is None:
        return True
    found = intake.table.find_schedule(name)
    if found is None:
        return beginning.was_begun
    cron, job, due, now = found
    if build_run_id(name, due) != run:
        return beginning.was_begun
    _submit_following(intake, name, cron, job, due, now)
    return beginning.was_begun or not _is_past(due, now)


def restart_schedules(intake: Intake) -> None:
    """Submit the next job of schedules that have none, because it was cancelled or is gone."""
    for name, cron, job, due, now, has_ended in intake.table.find_stopped_schedules():
        if has_ended or _is_past(due, now):
            _submit_following(intake, name, cron, job, due, now)
        else:
            submit_scheduled(intake, name, job, due, now)


def _is_past(due: datetime, now: datetime) -> bool:
    return due < now - timedelta(seconds=SKIPPED_SECONDS)


def _submit_following(
    intake: Intake, name: str, cron: str, job: Mapping[str, Any], due: datetime, now: datetime
) -> None:
    earliest = now - timedelta(seconds=SKIPPED_SECONDS)
    following = find_next_time(cron, max(due, earliest).astimezone(UTC))
    submit_scheduled(intake, name, job, following, now)
    intake.table.move_schedule(name, due, following)


def build_run_id(name: str, due: datetime) -> str:
    """Return the id of the run at a time of a schedule: two workers submit one job."""
    return f"{name}-{due.astimezone(UTC):%Y%m%dT%H%M%S}"
