"""PgQueuer: jobs in tables of the database that the journal is in; many are taken at once.

It is the fastest of the engines. It does not keep the order within a session: Ferrule sets aside
what comes too early. Jobs are announced, and it knows when the next is due; the jobs of a worker
that was lost are found when jobs come, or after three times `lost_after` at the most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg as untyped_asyncpg
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.errors import PgqException, RetryRequested
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from ferrule.engine.distributed.engines import (
    RETRY_SECONDS,
    Do,
    Engine,
    EngineOptions,
    EngineUnreachable,
    Ticket,
    reach,
)

from .coroutines import call_when, run_with
from .database import SILENT_SECONDS, make_tables

asyncpg: Any = untyped_asyncpg
ENTRYPOINT = "ferrule"
WHOSE = "the jobs of PgQueuer"


class PgQueuerEngine(Engine):
    """The engine of one database."""

    def __init__(self, options: EngineOptions) -> None:
        self._database = options.database
        self._lost_after = timedelta(seconds=options.lost_after)
        if options.is_pooled:
            raise EngineUnreachable(
                "PgQueuer listens on its connection, which a pooler shares with others",
                hint="give it a direct address of the database, or use `--engine procrastinate`",
            )

    async def prepare(self) -> None:
        make_tables(
            self._database, WHOSE, "pgqueuer", QueryBuilderEnvironment().build_install_query
        )

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        with reach(WHOSE, asyncpg.PostgresError, asyncpg.InterfaceError, PgqException, OSError):
            db = await asyncpg.connect(self._database, timeout=10)
            try:
                await Queries(AsyncpgDriver(db)).enqueue(
                    [ENTRYPOINT] * len(tickets),
                    [ticket.run.encode() for ticket in tickets],
                    [-ticket.priority for ticket in tickets],
                    [timedelta(seconds=ticket.delay) for ticket in tickets],
                )
            finally:
                await db.close()

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        connecting = asyncpg.create_pool(
            self._database,
            min_size=2,
            max_size=3,
            reset=_leave_as_it_is,
            timeout=SILENT_SECONDS,
            command_timeout=SILENT_SECONDS,
        )
        async with connecting as pool:
            manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))

            @manager.entrypoint(ENTRYPOINT)
            async def work(job: Job) -> None:
                try:
                    await do((job.payload or b"").decode())
                except Exception as error:
                    raise RetryRequested(timedelta(seconds=RETRY_SECONDS)) from error

            async with run_with(call_when(stop, manager.shutdown.set)):
                await manager.run(
                    dequeue_timeout=2 * self._lost_after,
                    batch_size=max(1, min(32, concurrency // 2)),
                    max_concurrent_tasks=max(2, concurrency),
                    heartbeat_timeout=self._lost_after,
                    shutdown_on_listener_failure=True,
                )


async def _leave_as_it_is(connection: Any) -> None:
    """Spare a statement after each: PgQueuer sets nothing on its connections."""
