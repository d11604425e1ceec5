"""PgQueuer: jobs in tables of the database that the journal is in; many are taken at once.

It is the fastest of the engines. It does not keep the order within a session: Ferrule sends away
what comes too early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg as untyped_asyncpg
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.errors import PgqException, RetryRequested
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from ferrule.engine.distributed.engines import Do, EngineOptions, EngineUnreachable, Ticket

from .blocking import run_blocking

asyncpg: Any = untyped_asyncpg
ENTRYPOINT = "ferrule"
POLL_SECONDS, RETRY_SECONDS = 30.0, 5.0
_LOCK = "SELECT pg_advisory_lock(1178948178)"


class PgQueuerEngine:
    """The engine of one database."""

    keeps_order = False

    def __init__(self, options: EngineOptions) -> None:
        self._database = options.database
        self._lost_after = timedelta(seconds=options.lost_after)
        if options.is_pooled:
            raise EngineUnreachable(
                "PgQueuer listens on its connection, which a pooler shares with others",
                hint="give it a direct address of the database, or use `--engine procrastinate`",
            )

    def prepare(self) -> None:
        run_blocking(self._ask([], 0))

    def submit(self, tickets: Sequence[Ticket], *, delay: float = 0) -> None:
        run_blocking(self._ask(tickets, delay))

    async def _ask(self, tickets: Sequence[Ticket], delay: float) -> None:
        """Submit jobs; without any, make the tables."""
        try:
            due: list[timedelta | None] = [timedelta(seconds=delay)] * len(tickets)
            db = await asyncpg.connect(self._database, timeout=10)
            try:
                queries = Queries(AsyncpgDriver(db))
                if tickets:
                    await queries.enqueue(
                        [ENTRYPOINT] * len(tickets),
                        list[bytes | None](ticket.run.encode() for ticket in tickets),
                        [-ticket.priority for ticket in tickets],
                        due,
                    )
                else:
                    await db.execute(_LOCK)
                    if not await queries.schema_is_installed():
                        await queries.install()
            finally:
                await db.close()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, PgqException, OSError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise EngineUnreachable(
                f"the jobs of PgQueuer cannot be reached: {reason}",
                hint="is the database up, and may this user create and change its tables?",
                retryable=True,
            ) from error

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        places = asyncio.Semaphore(concurrency)
        async with asyncpg.create_pool(self._database, min_size=2, max_size=3) as pool:
            manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))

            @manager.entrypoint(ENTRYPOINT)
            async def work(job: Job) -> None:
                try:
                    async with places:
                        await do((job.payload or b"").decode())
                except Exception as error:
                    seconds = getattr(error, "seconds", RETRY_SECONDS)
                    raise RetryRequested(timedelta(seconds=seconds)) from error

            stopping = asyncio.create_task(_stop_on(stop, manager))
            try:
                await manager.run(
                    dequeue_timeout=timedelta(seconds=POLL_SECONDS),
                    batch_size=max(1, min(32, concurrency // 2)),
                    max_concurrent_tasks=max(2, concurrency),
                    heartbeat_timeout=self._lost_after,
                    shutdown_on_listener_failure=True,
                )
            finally:
                stopping.cancel()

    def close(self) -> None:
        """Nothing stays open."""


async def _stop_on(stop: asyncio.Event, manager: QueueManager) -> None:
    await stop.wait()
    manager.shutdown.set()
