"""Jobs through DBOS, in the database of the journal (`dbos`): one workflow a job.

DBOS recovers the workflows of another process once it is told that this is gone: each worker says
each second that it lives, and the others look for those that do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import psycopg
from dbos import DBOS, DBOSClient, run_dbos_database_migrations
from dbos._recovery import recover_pending_workflows

from ferrule.jobs import Do, Engine, EngineOptions, GoOnElsewhere, Ticket

TABLE = "CREATE TABLE IF NOT EXISTS ferrule_beats (name text PRIMARY KEY, seen timestamptz)"
BEAT = """INSERT INTO ferrule_beats VALUES (%s, now())
ON CONFLICT (name) DO UPDATE SET seen = excluded.seen"""
LOST = "SELECT name FROM ferrule_beats WHERE seen < now() - %s * interval '1 second'"
FORGET = "DELETE FROM ferrule_beats WHERE name = ANY(%s)"
JOB = {"queue_name": "ferrule", "workflow_name": "ferrule", "app_version": "1"}


class DbosEngine(Engine):
    def __init__(self, options: EngineOptions) -> None:
        self._options = options

    async def prepare(self) -> None:
        run_dbos_database_migrations(system_database_url=self._options.database)
        with psycopg.connect(self._options.database) as db:
            db.execute(TABLE)

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        client = DBOSClient(system_database_url=self._options.database)
        for ticket in tickets:
            client.enqueue({**JOB, "delay_seconds": ticket.delay or None}, ticket.run)
        client.destroy()

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        loop, me = asyncio.get_running_loop(), uuid4().hex
        database = {"name": "ferrule", "system_database_url": self._options.database}
        dbos = DBOS(config={**database, "executor_id": me, "application_version": "1"})

        @DBOS.workflow(name="ferrule", max_recovery_attempts=1000)
        async def work(run: str) -> None:
            try:
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(do(run), loop))
            except GoOnElsewhere:
                await asyncio.to_thread(asyncio.run, self.submit([Ticket(run, "", "", 0)]))

        await asyncio.to_thread(DBOS.launch)
        # Its async calls give this loop an executor of DBOS, which ends with `destroy`.
        await asyncio.to_thread(DBOS.register_queue, "ferrule", worker_concurrency=concurrency)
        try:
            while not stop.is_set():
                await asyncio.to_thread(self._beat, me, dbos)
                await asyncio.sleep(1)
        finally:
            await asyncio.to_thread(DBOS.destroy)

    def _beat(self, me: str, dbos: DBOS) -> None:
        """Say that this worker lives, and take over the workflows of those that do not."""
        with psycopg.connect(self._options.database, autocommit=True) as db:
            db.execute(BEAT, [me])
            lost = [name for (name,) in db.execute(LOST, [self._options.lost_after])]
            if lost:
                recover_pending_workflows(dbos, lost)
                db.execute(FORGET, [lost])
