"""Procrastinate: jobs in tables of the database that the journal is in.

It has priorities and delays, and announces new jobs to workers. What is due later is looked for
every `POLL_SECONDS`. Its locks, which would keep the order within a session, are not used: nobody
is told when one becomes free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector, RetryStrategy, SyncPsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from procrastinate.schema import SchemaManager
from procrastinate.worker import Worker
from psycopg_pool import AsyncConnectionPool

from ferrule.engine.distributed.engines import RETRY_SECONDS, Do, EngineOptions, Ticket, reach
from ferrule.storage.journal.postgres_connection import KEEPALIVES

from .coroutines import call_when, repeat, run_with

QUEUE, TASK = "ferrule", "ferrule.run"
WHOSE = "the jobs of Procrastinate"
POLL_SECONDS = {False: 30.0, True: 5.0}
"""Without and behind a pooler, where nothing can be announced."""
_LOCK = "SELECT pg_advisory_xact_lock(1178948178)"
_WAKE = f"""SELECT pg_notify('procrastinate_queue_v1#{QUEUE}', '{{"type": "job_inserted"}}')"""


class ProcrastinateEngine:
    """The engine of one database."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        # A pooler may stand before the database.
        self._kept: dict[str, Any] = {
            "prepare_threshold": None,
            "connect_timeout": 10,
            **KEEPALIVES,
        }
        self._connecting: dict[str, Any] = {"conninfo": options.database, "kwargs": self._kept}
        self._app: App | None = None

    async def prepare(self) -> None:
        with (
            reach(WHOSE, psycopg.Error),
            psycopg.connect(self._options.database, **self._kept) as db,
        ):
            db.execute(_LOCK)
            found = db.execute("SELECT to_regclass('procrastinate_jobs')").fetchone()
            if found == (None,):
                db.execute(SchemaManager.get_schema().encode())

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        with reach(WHOSE, ConnectorException):
            self._open().batch_defer_jobs([_as_job(ticket) for ticket in tickets])

    def _open(self) -> JobManager:
        if self._app is None:
            connector = SyncPsycopgConnector(min_size=1, max_size=1, timeout=10, **self._connecting)
            self._app = App(connector=connector)
            self._app.open()
        return self._app.job_manager

    def close(self) -> None:
        if self._app is not None:
            self._app.close()
        self._app = None

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        every, is_pooled = self._options.lost_after, self._options.is_pooled
        # No connection is checked before its use: that would double what an idle worker asks.
        pool = AsyncConnectionPool(
            min_size=1, max_size=4, configure=_commit_each, open=False, **self._connecting
        )
        async with pool, App(connector=PsycopgConnector()).open_async(pool) as app:

            @app.task(name=TASK, queue=QUEUE, retry=RetryStrategy(wait=RETRY_SECONDS))
            async def work(run: str) -> None:
                await do(run)

            worker = Worker(
                app,
                queues=[QUEUE],
                concurrency=concurrency,
                listen_notify=not is_pooled,
                fetch_job_polling_interval=min(every, POLL_SECONDS[is_pooled]),
                abort_job_polling_interval=3600,
                # Where it stops by itself, runs go on, and their jobs come again.
                shutdown_graceful_timeout=0,
                update_heartbeat_interval=every / 2,
                stalled_worker_timeout=every,
                delete_jobs="always",
                install_signal_handlers=False,
            )

            def leave() -> None:
                worker.shutdown_graceful_timeout = None
                worker.stop()

            rescue = repeat(partial(_rescue, app, every), every)
            async with run_with(call_when(stop, leave), rescue):
                await worker.run()


async def _rescue(app: App, every: float) -> None:
    """Hand out again the jobs of lost workers."""
    manager = app.job_manager
    # Another worker may be quicker; then it goes on with the others, too.
    with suppress(ConnectorException):
        for job in await manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=every):
            await manager.retry_job(job)
            await app.connector.execute_query_async(_WAKE)


async def _commit_each(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.set_autocommit(True)


def _as_job(ticket: Ticket) -> Job:
    return Job(
        id=None,
        queue=QUEUE,
        lock=None,
        queueing_lock=None,
        task_name=TASK,
        priority=-ticket.priority,
        task_kwargs={"run": ticket.run},
        scheduled_at=ticket.due if ticket.delay else None,
    )
