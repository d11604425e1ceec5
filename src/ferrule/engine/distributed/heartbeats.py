"""Which workers are alive: each leaves heartbeats in the database, and others notice old ones.

A worker that finds another's heartbeat too old requeues that worker's jobs: DBOS leaves it to its
host to notice that an executor is gone. A row stays until none of its worker's jobs is being worked
any more, so a worker that dies while it requeues the jobs of another loses nothing. Requeuing is
idempotent.

A dead worker cannot be told from one that is frozen or cut off for longer than `lost_after`. Its
jobs go to others, and the leases of its sessions ensure that it writes nothing if it comes back.
"""

from __future__ import annotations

from .jobs import SCHEMA, VERSION, libpq_url

_TABLE = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.workers (name text PRIMARY KEY, beat timestamptz NOT NULL)
"""
_BEAT = f"""
INSERT INTO {SCHEMA}.workers VALUES (%s, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET beat = excluded.beat
"""
_LEAVE = f"UPDATE {SCHEMA}.workers SET beat = '-infinity' WHERE name = %s"
_LOST = (
    f"SELECT name FROM {SCHEMA}.workers WHERE beat < clock_timestamp() - %s * interval '1 "
    "second' AND name <> %s"
)
_FORGET = f"""
DELETE FROM {SCHEMA}.workers AS gone
WHERE name = ANY(%s) AND beat < clock_timestamp() - %s * interval '1 second' AND NOT EXISTS (
    SELECT 1 FROM {SCHEMA}.workflow_status AS job
    WHERE job.executor_id = gone.name
        AND job.status = 'PENDING'
        AND job.application_version = '{VERSION}'
)
"""


class Heartbeats:
    """The heartbeats of one worker. `lost_after` is in seconds."""

    def __init__(self, database: str, name: str, lost_after: float) -> None:
        self._database = libpq_url(database)
        self._name = name
        self._lost_after = lost_after

    def begin(self) -> None:
        """Leave the first heartbeat, before any job is taken: an unknown worker is never missed.

        Raises psycopg.Error.
        """
        self._run(_TABLE)
        self._run(_BEAT, self._name)

    def beat(self) -> None:
        """Leave a heartbeat, and requeue the jobs of lost workers."""
        import psycopg
        from dbos import DBOS

        try:
            self._run(_BEAT, self._name)
            lost = [str(row[0]) for row in self._run(_LOST, self._lost_after, self._name)]
            if lost:
                # DBOS has this for its host, without a public name: its own service calls it.
                DBOS._recover_pending_workflows(lost)  # pyright: ignore[reportPrivateUsage]  see above
                self._run(_FORGET, lost, self._lost_after)
        except psycopg.Error:
            # The database is not reachable, and neither are the queues. Try again later.
            return

    def leave(self) -> None:
        """Count as gone from now on: another worker's next heartbeat requeues our jobs.

        If the database cannot be reached, they wait for `lost_after`.
        """
        import psycopg

        try:
            self._run(_LEAVE, self._name)
        except psycopg.Error:
            return

    def _run(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(self._database, autocommit=True, connect_timeout=5) as db:
            cursor = db.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []
