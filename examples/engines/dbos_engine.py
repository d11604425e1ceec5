"""Jobs through DBOS, in the database of the journal (`dbos`): one workflow a job.

DBOS recovers the workflows of another process once it is told that this is gone: each worker holds
a lock in the database while it lives, and the others look for free ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import psycopg
from dbos import DBOS, DBOSClient, run_dbos_database_migrations
from dbos._recovery import recover_pending_workflows

from ferrule.jobs import Do, Engine, EngineOptions, GoOnElsewhere, Ticket

TABLE = "CREATE TABLE IF NOT EXISTS ferrule_executors (name text PRIMARY KEY)"
LIVE = "INSERT INTO ferrule_executors VALUES (%s) RETURNING pg_advisory_lock(hashtext(name))"
LOST = """DELETE FROM ferrule_executors WHERE name <> %s
AND pg_try_advisory_xact_lock(hashtext(name)) RETURNING name"""
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

        async with await psycopg.AsyncConnection.connect(database["system_database_url"]) as db:
            await db.set_autocommit(True)
            await db.execute(LIVE, [me])
            await asyncio.to_thread(DBOS.launch)
            await DBOS.register_queue_async("ferrule", worker_concurrency=concurrency)
            while not stop.is_set():
                lost = [name for (name,) in await (await db.execute(LOST, [me])).fetchall()]
                if lost:
                    await asyncio.to_thread(recover_pending_workflows, dbos, lost)
                await asyncio.sleep(1)
        await asyncio.to_thread(DBOS.destroy)
