"""The table of outcomes: a row for each job, whatever engine hands it out.

A row is written before the engine is told of the job. If whoever submits it dies between the two, a
worker tells the engine later (`look`), so nothing is lost and a job of the same session waits for
no ghost. The row says what the job is, who works it, and how it ended. The end comes with
the batch that ends the run in the journal (`JobEnd`); of a job that never became a run, the
worker writes it (`end`).

Every call is one statement, and may be repeated: an outcome is set once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import md5
from typing import Any

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.storage.journal.postgres_append_statement import OUTCOME_CHANNEL
from ferrule.storage.journal.postgres_connection import PostgresConnection, Rows, Values

from .engines import Ticket
from .job import Job

SCHEMA = "ferrule"
VERSION = 1
"""Version of a job in the table. Workers leave jobs of a newer version to newer workers."""

_TICKET = """
run, session, tenant, priority,
greatest(0, extract(epoch FROM due - clock_timestamp()))::double precision, due,
clock_timestamp()::text
"""
"""The columns of a `Ticket`."""
_SUBMIT = """
INSERT INTO {s}.outcomes AS here
    (run, session, tenant, priority, version, job, schedule, due)
SELECT run, session, tenant, priority, %(version)s, job, %(schedule)s,
    clock_timestamp() + %(delay)s * interval '1 second'
FROM ROWS FROM (
    json_array_elements_text(%(runs)s::json), json_array_elements_text(%(sessions)s::json),
    json_array_elements_text(%(tenants)s::json), unnest(%(priorities)s::integer[]),
    json_array_elements(%(jobs)s::json)
) AS given (run, session, tenant, priority, job)
ON CONFLICT (run) DO UPDATE SET run = excluded.run WHERE NOT here.handed
RETURNING {ticket}
"""
_HANDED = """
UPDATE {s}.outcomes SET handed = true
FROM unnest(%s::text[], %s::timestamptz[]) AS told (run, as_of)
WHERE outcomes.run = told.run AND NOT handed AND (came IS NULL OR came <= as_of)
"""
_UNHAND = """
UPDATE {s}.outcomes SET handed = false
WHERE handed AND ended IS NULL AND (worker IS NULL OR NOT EXISTS (
    SELECT FROM {s}.sessions AS held
    WHERE held.session = outcomes.session AND until > clock_timestamp()))
RETURNING {ticket}
"""
_LOOK = """
WITH old AS (
    DELETE FROM {s}.outcomes WHERE no = ANY (ARRAY(
        SELECT no FROM {s}.outcomes WHERE ended < clock_timestamp() - %(days)s * interval '1 day'
        ORDER BY ended LIMIT 10000))
)
SELECT {ticket} FROM {s}.outcomes
WHERE NOT handed AND ended IS NULL
    AND greatest(submitted, came) < clock_timestamp() - %(seconds)s * interval '1 second'
ORDER BY no LIMIT 1000
"""
"""Bounded, because a statement that takes too long would hand in nothing either."""
_BEGIN = """
SELECT {s}.begin_job(%s, %s, %s, %s, %s),
    EXISTS (SELECT FROM {s}.outcomes WHERE run = %s AND cancelled)
"""
_END = """
WITH done AS (
    UPDATE {s}.outcomes SET stop = %s, outcome = %s::json, ended = clock_timestamp()
    WHERE run = %s AND worker = %s AND ended IS NULL RETURNING run, awaited
)
SELECT EXISTS (SELECT FROM done)
    OR NOT EXISTS (SELECT FROM {s}.outcomes WHERE run = %s AND ended IS NULL),
    (SELECT count(pg_notify(%s, md5(run))) FROM done WHERE awaited)
"""
_GIVE_BACK = """
UPDATE {s}.outcomes SET worker = NULL, attempts = attempts - 1, handed = false,
    came = clock_timestamp()
WHERE run = %s AND worker = %s AND ended IS NULL RETURNING {ticket}
"""
_CANCEL = """
WITH done AS (
    UPDATE {s}.outcomes SET cancelled = true,
        stop = CASE WHEN begun IS NULL THEN 'cancelled' END,
        outcome = CASE WHEN begun IS NULL THEN %(outcome)s::json END,
        ended = CASE WHEN begun IS NULL THEN clock_timestamp() END
    WHERE run = %(run)s AND ended IS NULL RETURNING *
)
SELECT {ticket}, (SELECT count(pg_notify(%(channel)s, md5(run))) FROM done WHERE awaited)
FROM done WHERE ended IS NOT NULL
"""
_AWAIT = """
UPDATE {s}.outcomes SET awaited = true WHERE run = %s AND ended IS NULL AND NOT awaited
"""
_COLUMNS = """
job, CASE WHEN ended IS NULL AND worker IS NULL THEN 'waiting' WHEN ended IS NULL THEN 'working'
    WHEN stop IN ('done', 'cancelled') THEN stop ELSE 'failed' END, coalesce(worker, ''), submitted,
extract(epoch FROM coalesce(ended, clock_timestamp()) - begun)::double precision, outcome
"""
_FIND = f"SELECT {_COLUMNS} FROM {{s}}.outcomes WHERE run = %s"
_RECENT = f"SELECT {_COLUMNS} FROM {{s}}.outcomes ORDER BY no DESC LIMIT %s"
_MEASURE = """
SELECT count(*) FILTER (WHERE worker IS NULL AND due <= clock_timestamp()),
    coalesce(extract(epoch FROM clock_timestamp() - min(due) FILTER (
        WHERE worker IS NULL AND due <= clock_timestamp())), 0)::double precision,
    count(worker), count(DISTINCT worker),
    (SELECT count(*) FROM {s}.sessions WHERE until > clock_timestamp())
FROM {s}.outcomes WHERE ended IS NULL
"""
_REMOVE = "DELETE FROM {s}.outcomes WHERE run = %s"
_FORGET_WAITING = """
WITH forgotten AS (
    DELETE FROM {s}.outcomes WHERE schedule = %(name)s AND begun IS NULL
        AND (ended IS NULL OR due > clock_timestamp())
)
"""
"""The jobs of a schedule that wait for their time, those that were cancelled included."""
_SCHEDULE = f"""{_FORGET_WAITING}
INSERT INTO {{s}}.schedules VALUES (%(name)s, %(cron)s, %(job)s, %(due)s)
ON CONFLICT (name) DO UPDATE SET cron = excluded.cron, job = excluded.job, due = excluded.due
"""
_UNSCHEDULE = f"{_FORGET_WAITING} DELETE FROM {{s}}.schedules WHERE name = %(name)s"
_FIND_SCHEDULE = "SELECT cron, job, due, clock_timestamp() FROM {s}.schedules WHERE name = %s"
_STOPPED = """
SELECT name, cron, plan.job, plan.due, clock_timestamp(), last.ended IS NOT NULL
FROM {s}.schedules AS plan LEFT JOIN {s}.outcomes AS last
    ON run = name || to_char(plan.due AT TIME ZONE 'UTC', '"-"YYYYMMDD"T"HH24MISS')
WHERE run IS NULL OR last.ended IS NOT NULL
"""
"""Schedules whose next job is not there or has ended; its id is that of `build_run_id`."""
_MOVE = "UPDATE {s}.schedules SET due = %s WHERE name = %s AND due = %s"


class QueueError(FerruleError):
    """The table of jobs cannot be read or written."""


@frozen
class JobState:
    """A job and how far it has come.

    Attributes:
        job: The job.
        state: `waiting`, `working`, `done`, `failed` or `cancelled`.
        worker: Who works it or has worked it; "" if it has not begun.
        submitted: When it was submitted.
        seconds: How long it has been worked, in seconds; None if it has not begun.
        outcome: Its outcome (`build_outcome`), once it has ended.
    """

    job: Job
    state: str
    worker: str
    submitted: datetime
    seconds: float | None
    outcome: dict[str, Any] | None


@frozen
class Beginning:
    """Whether a job begins.

    Attributes:
        answer: `begin`, or why not: it has `ended` (or is not known), is `newer` than this worker,
            comes too `early` in its session, or its tenant's places are `full`.
        unhanded: The job, if it may not begin yet: the engine forgets it.
        ahead: How many jobs go first, of its session or, waiting for a place, of its tenant.
        blocked: For how many seconds what it waits for has been worked.
        job: The job, if it begins.
        attempt: How many workers have begun it, this one included.
        was_begun: Whether any worker had begun it before.
        schedule: The name of the schedule that it comes from.
        is_known: Whether its session is in the journal.
        is_held: Whether some process may write its session now.
        is_cancelled: Whether somebody wants it cancelled.
    """

    answer: str
    unhanded: Ticket | None = None
    ahead: int = 0
    blocked: float = 0
    job: Mapping[str, Any] | None = None
    attempt: int = 0
    was_begun: bool = False
    schedule: str | None = None
    is_known: bool = True
    is_held: bool = False
    is_cancelled: bool = False


@frozen
class JobFigures:
    """How many jobs there are that have not ended.

    Attributes:
        waiting: Jobs that are due and that no worker has.
        oldest: For how many seconds the oldest of these has been due.
        working: Jobs that a worker has, which may be gone by now.
        workers: How many workers have any.
        leases: How many sessions some process may write now.
    """

    waiting: int
    oldest: float
    working: int
    workers: int
    leases: int


class OutcomeTable:
    """The table in one database. Every call may raise QueueError, and may be repeated."""

    def __init__(self, database: str) -> None:
        self._db = PostgresConnection(
            database, part="queue", kind=QueueError, prefix="queue", schema=SCHEMA
        )

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler shares connections to the database; known after the first call."""
        return self._db.is_pooled

    def check(self) -> None:
        """Connect, and make the tables if they are missing."""
        self._run("SELECT 1", (), "connecting")

    # ---- submitting

    def submit(
        self, jobs: Sequence[Mapping[str, Any]], *, delay: float = 0, schedule: str | None = None
    ) -> list[Ticket]:
        """Add jobs (`Job.as_dict`). Return those that the engine may not know of yet."""
        given = {job["run"]: job for job in jobs}
        if not given:
            return []
        rows = list(given.values())
        values = {
            "runs": json.dumps(list(given)),
            "sessions": json.dumps([job["session"] for job in rows]),
            "tenants": json.dumps([job["tenant"] for job in rows]),
            "priorities": [job["priority"] for job in rows],
            "jobs": json.dumps(rows),
            "version": VERSION,
            "schedule": schedule,
            "delay": delay,
        }
        return _read_tickets(self._run(_SUBMIT, values, "submitting"))

    def mark_handed(self, tickets: Sequence[Ticket]) -> None:
        """Take note that the engine knows of these jobs, unless they were set aside since then."""
        runs = [ticket.run for ticket in tickets]
        times = [ticket.as_of for ticket in tickets]
        self._run(_HANDED, (runs, times), "submitting")

    def unhand(self) -> list[Ticket]:
        """Take note that the engine knows of no job, but for those that are worked now."""
        return _read_tickets(self._run(_UNHAND, (), "submitting again"))

    def look(self, seconds: float, days: float) -> list[Ticket]:
        """Return jobs that the engine has not been told of for so long; remove old outcomes.

        Args:
            seconds: Since the job was submitted or set aside.
            days: That outcomes are kept.
        """
        values = {"seconds": seconds, "days": days}
        return _read_tickets(self._run(_LOOK, values, "looking for jobs"))

    # ---- working

    def begin(
        self, run: str, worker: str, *, per_tenant: int | None, is_again: bool = False
    ) -> Beginning:
        """Begin a job, if it may begin now; else it is set aside.

        Args:
            run: The job's run.
            worker: Who works it.
            per_tenant: How many jobs of a tenant may be worked at once anywhere.
            is_again: Whether this worker tries again: that is no further attempt.
        """
        values = (run, worker, VERSION, per_tenant, is_again, run)
        found, is_cancelled = self._run(_BEGIN, values, f"beginning `{run}`")[0]
        if found["answer"] == "ended":
            return Beginning("ended")
        named = {name: found.pop(name) for name in ("session", "tenant", "priority", "as_of")}
        if found["answer"] == "begin":
            return Beginning(**found, is_cancelled=is_cancelled)
        ticket = Ticket(run, **named)
        return Beginning(found["answer"], ticket, found["ahead"], found["blocked"])

    def end(self, run: str, worker: str, outcome: Mapping[str, Any]) -> bool:
        """Set the outcome of a job, unless it has one or another worker has it by now.

        Returns:
            Whether the job has an outcome.
        """
        values = (outcome["stop"], json.dumps(outcome), run, worker, run, OUTCOME_CHANNEL)
        return bool(self._run(_END, values, f"ending `{run}`")[0][0])

    def give_back(self, run: str, worker: str) -> list[Ticket]:
        """Leave a job to others, unless another worker has it by now."""
        return _read_tickets(self._run(_GIVE_BACK, (run, worker), f"giving `{run}` back"))

    def remove(self, run: str) -> None:
        """Remove a job as if it had never been submitted."""
        self._run(_REMOVE, (run,), f"removing `{run}`")

    # ---- asking

    def cancel(self, run: str, outcome: Mapping[str, Any]) -> list[Ticket]:
        """Ask for a job's end. One that has not begun ends at once, with this outcome.

        Returns:
            The job, if it has ended so.
        """
        values = {"run": run, "outcome": json.dumps(outcome), "channel": OUTCOME_CHANNEL}
        return _read_tickets(self._run(_CANCEL, values, f"cancelling `{run}`"))

    def mark_awaited(self, run: str) -> None:
        """Have the end of a job announced, if it has not ended."""
        self._run(_AWAIT, (run,), f"waiting for `{run}`")

    def find(self, run: str) -> JobState | None:
        found = _read_states(self._run(_FIND, (run,), f"looking for `{run}`"))
        return found[0] if found else None

    def list_recent(self, limit: int) -> list[JobState]:
        """Return jobs, the newest first."""
        return _read_states(self._run(_RECENT, (limit,), "listing jobs"))

    def measure(self) -> JobFigures:
        return JobFigures(*self._run(_MEASURE, (), "counting jobs")[0])

    # ---- schedules

    def schedule(self, name: str, cron: str, job: Mapping[str, Any], due: Any) -> None:
        """Add a schedule, or replace the one of this name and its jobs that wait."""
        values = {"name": name, "cron": cron, "job": json.dumps(job), "due": due}
        self._run(_SCHEDULE, values, f"scheduling `{name}`")

    def unschedule(self, name: str) -> None:
        self._run(_UNSCHEDULE, {"name": name}, f"removing the schedule `{name}`")

    def find_schedule(self, name: str) -> tuple[Any, ...] | None:
        """Return `(cron, job, due, now)` of a schedule."""
        rows = self._run(_FIND_SCHEDULE, (name,), f"looking for the schedule `{name}`")
        return rows[0] if rows else None

    def find_stopped_schedules(self) -> Rows:
        """Return `(name, cron, job, due, now, has_ended)` of schedules that no job goes on with."""
        return self._run(_STOPPED, (), "looking for schedules")

    def move_schedule(self, name: str, due: Any, following: Any) -> None:
        """Make `following` the next time of a schedule, unless it has been changed."""
        self._run(_MOVE, (following, name, due), f"scheduling `{name}`")

    def close(self) -> None:
        self._db.close()

    def _run(self, sql: str, values: Values, doing: str) -> Rows:
        return self._db.query(sql.format(s=f'"{SCHEMA}"', ticket=_TICKET), values, doing=doing)


def _read_tickets(rows: Rows) -> list[Ticket]:
    # A statement may also return what it announced.
    return [Ticket(*row[:7]) for row in rows]


def _read_states(rows: Rows) -> list[JobState]:
    return [JobState(Job.of(job), *others) for job, *others in rows]


def build_announcement(run: str) -> str:
    """Return what is sent when an awaited job ends."""
    return md5(run.encode(), usedforsecurity=False).hexdigest()
