"""The queue: a table of jobs in PostgreSQL, and what is done with it.

A job waits, is worked, and ends with an outcome, or is cancelled. Many jobs go through one
statement: a worker gives the outcomes of those that ended, and takes as many as it has places for,
at once (`exchange`). So the number of commits does not grow with that of the jobs.

Every call is one statement, so a worker that is frozen in the middle of it holds up nobody. One
whose connection broke may have been carried out. Everything here can be repeated: an
outcome is set once, and a worker is given again what it took without hearing of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.storage.journal.postgres_connection import (
    PostgresConnection,
    Rows,
    Values,
)

SCHEMA = "ferrule"
VERSION = 1
"""Version of a job in the queue.

Workers take jobs of their own version only, so it changes with the form of a job and not with a
build.
"""

_SUBMIT = """
INSERT INTO {s}.jobs (run, tenant, priority, version, job, due)
SELECT run, tenant, priority, %(version)s, job,
    clock_timestamp() + %(delay)s * interval '1 second'
FROM ROWS FROM (
    json_array_elements_text(%(runs)s::json), json_array_elements_text(%(tenants)s::json),
    unnest(%(priorities)s::integer[]), json_array_elements(%(jobs)s::json)
) AS given (run, tenant, priority, job)
ON CONFLICT DO NOTHING
"""
_ANY_TENANT = """
    SELECT no FROM {s}.jobs
    WHERE state = 'waiting' AND version = %(version)s AND due <= clock_timestamp()
    ORDER BY priority, no
    LIMIT greatest(0, %(free)s - (SELECT count(*) FROM unheard)) FOR UPDATE SKIP LOCKED
"""
_PER_TENANT = """
    SELECT no FROM {s}.choose_jobs(%(version)s::integer, %(per_tenant)s::integer,
        greatest(0, %(free)s - (SELECT count(*) FROM unheard)))
"""
_EXCHANGE = """
WITH ended AS (
    UPDATE {{s}}.jobs SET state = 'ended', stop = given.stop, outcome = given.outcome,
        ended = clock_timestamp()
    FROM ROWS FROM (
        json_array_elements_text(%(runs)s::json), json_array_elements_text(%(stops)s::json),
        json_array_elements(%(outcomes)s::json)
    ) AS given (run, stop, outcome)
    WHERE jobs.run = given.run AND worker = %(worker)s AND state = 'working'
), unheard AS (
    SELECT no, priority, job, attempts FROM {{s}}.jobs
    WHERE state = 'working' AND worker = %(worker)s AND run <> ALL(%(known)s::text[])
), chosen AS ({chosen}), taken AS (
    UPDATE {{s}}.jobs SET state = 'working', worker = %(worker)s, attempts = attempts + 1
    FROM chosen WHERE jobs.no = chosen.no AND state = 'waiting'
    RETURNING jobs.no, priority, job, attempts
), mine AS (
    SELECT no, priority, job, attempts FROM taken
    UNION ALL SELECT no, priority, job, attempts FROM unheard
)
SELECT (SELECT json_agg(json_build_array(job, attempts) ORDER BY priority, no) FROM mine),
    (SELECT json_agg(run) FROM {{s}}.jobs
        WHERE run = ANY(%(known)s::text[]) AND state = 'cancelled')
"""
_CANCEL = """
UPDATE {s}.jobs SET state = 'cancelled', ended = clock_timestamp()
WHERE run = %s AND state IN ('waiting', 'working')
"""
_REQUEUE = """
UPDATE {s}.jobs SET state = 'waiting', worker = NULL
WHERE state = 'working' AND worker = ANY(%s)
"""
_FIND = "SELECT state, job, outcome FROM {s}.jobs WHERE run = %s"
_RECENT = (
    "SELECT run, state, job, coalesce(stop, ''), coalesce(worker, '') FROM {s}.jobs"
    " ORDER BY no DESC LIMIT %s"
)
_BEAT = """
INSERT INTO {s}.workers VALUES (%s, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET beat = excluded.beat
"""
_LOST = (
    "SELECT name FROM {s}.workers WHERE name <> %s"
    " AND beat < clock_timestamp() - %s * interval '1 second'"
)
_FORGET = """
DELETE FROM {s}.workers WHERE name = ANY(%s) AND NOT EXISTS (
    SELECT FROM {s}.jobs WHERE state = 'working' AND worker = workers.name)
"""
_SCHEDULE = """
INSERT INTO {s}.schedules VALUES (%s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE SET cron = excluded.cron, job = excluded.job, due = excluded.due
"""
_UNSCHEDULE = "DELETE FROM {s}.schedules WHERE name = %s"
_DUE = """
SELECT name, cron, job, due, clock_timestamp() FROM {s}.schedules WHERE due <= clock_timestamp()
"""
_MOVE = "UPDATE {s}.schedules SET due = %s WHERE name = %s AND due = %s"


class QueueError(FerruleError):
    """The queue cannot be read or written."""


@frozen
class StoredJob:
    """A job as it is in the queue.

    `state` is `waiting`, `working`, `ended` or `cancelled`; `stop` that of the outcome, if any.
    """

    run: str
    state: str
    job: Mapping[str, Any]
    stop: str = ""
    worker: str = ""
    outcome: dict[str, Any] | None = None


class JobQueue:
    """The queue in one database. Every call may raise QueueError, and may be repeated."""

    def __init__(self, database: str) -> None:
        self._db = PostgresConnection(
            database, part="queue", kind=QueueError, prefix="queue", schema=SCHEMA
        )

    def submit(self, jobs: Iterable[Mapping[str, Any]], delay: float = 0) -> None:
        """Add jobs (`Job.as_dict`). One whose run is there already stays as it is."""
        given = list(jobs)
        values = {
            "runs": json.dumps([job["run"] for job in given]),
            "tenants": json.dumps([job["tenant"] for job in given]),
            "priorities": [job["priority"] for job in given],
            "jobs": json.dumps(given),
            "version": VERSION,
            "delay": delay,
        }
        self._run(_SUBMIT, values, "submitting")

    def exchange(
        self,
        worker: str,
        ended: Mapping[str, Mapping[str, Any]],
        known: Sequence[str],
        free: int,
        per_tenant: int | None = None,
    ) -> tuple[list[tuple[dict[str, Any], int]], list[str]]:
        """Give outcomes of jobs, and take others.

        Args:
            worker: Who asks.
            ended: The outcomes by run. One of a job that another worker has by now is dropped.
            known: Runs that the worker has, those that ended included.
            free: How many jobs to take at most.
            per_tenant: How many jobs of a tenant may be worked at once anywhere.

        Returns:
            The jobs taken, each with the number of times that it was taken, and the known runs that
            were cancelled.
        """
        values: dict[str, Any] = {
            "worker": worker,
            "runs": json.dumps(list(ended)),
            "stops": json.dumps([outcome["stop"] for outcome in ended.values()]),
            "outcomes": json.dumps(list(ended.values())),
            "known": list(known),
            "free": free,
            "version": VERSION,
        }
        chosen = _ANY_TENANT if per_tenant is None else _PER_TENANT
        values["per_tenant"] = per_tenant
        rows = self._run(_EXCHANGE.format(chosen=chosen), values, "taking jobs")
        taken, cancelled = rows[0]
        return [(job, attempts) for job, attempts in taken or ()], list(cancelled or ())

    def requeue(self, workers: Sequence[str]) -> None:
        """Let others take the jobs of these workers."""
        self._run(_REQUEUE, (list(workers),), "requeuing jobs")

    def cancel(self, run: str) -> None:
        """Cancel a job that waits or is worked."""
        self._run(_CANCEL, (run,), f"cancelling `{run}`")

    def find(self, run: str) -> StoredJob | None:
        rows = self._run(_FIND, (run,), f"looking for `{run}`")
        if not rows:
            return None
        state, job, outcome = rows[0]
        return StoredJob(run, state, job, outcome=outcome)

    def list_recent(self, limit: int) -> list[StoredJob]:
        """Return jobs, the newest first."""
        rows = self._run(_RECENT, (limit,), "listing jobs")
        return [StoredJob(run, state, job, stop, by) for run, state, job, stop, by in rows]

    # ---- workers

    def beat(self, worker: str) -> None:
        """Leave a heartbeat."""
        self._run(_BEAT, (worker,), "leaving a heartbeat")

    def find_lost(self, worker: str, seconds: float) -> list[str]:
        """Return the workers, other than this one, that were not heard of for so long."""
        return [row[0] for row in self._run(_LOST, (worker, seconds), "looking for workers")]

    def forget(self, workers: Sequence[str]) -> None:
        """Forget workers that have no jobs any more."""
        self._run(_FORGET, (list(workers),), "forgetting workers")

    # ---- schedules

    def schedule(self, name: str, cron: str, job: Mapping[str, Any], due: Any) -> None:
        """Add a schedule, or replace the one of this name."""
        self._run(_SCHEDULE, (name, cron, json.dumps(job), due), f"scheduling `{name}`")

    def unschedule(self, name: str) -> None:
        self._run(_UNSCHEDULE, (name,), f"removing the schedule `{name}`")

    def list_due(self) -> Rows:
        """Return `(name, cron, job, due, now)` of the schedules whose time has come."""
        return self._run(_DUE, (), "looking for schedules")

    def move_schedule(self, name: str, due: Any, following: Any) -> None:
        """Make `following` the next time of a schedule, unless another worker has."""
        self._run(_MOVE, (following, name, due), f"scheduling `{name}`")

    def close(self) -> None:
        self._db.close()

    def _run(self, sql: str, values: Values, doing: str) -> Rows:
        return self._db.query(sql.format(s=f'"{SCHEMA}"'), values, doing=doing)
