"""Procrastinate: jobs in tables of the database that the journal is in.

It has priorities and delays, and announces new jobs to workers. What is due later is looked for
every `POLL_SECONDS`. Its locks, which would keep the order within a session, are not used: nobody
is told when one becomes free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import psycopg
from procrastinate import App, PsycopgConnector, RetryStrategy, SyncPsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import JobDeferrer
from procrastinate.schema import SchemaManager
from procrastinate.worker import Worker

from ferrule.engine.distributed.engines import RETRY_SECONDS, Do, EngineOptions, Ticket, reach

from .coroutines import call_when, repeat, run_with
from .database import CONNECTING, make_pool, make_tables

QUEUE, TASK = "ferrule", "ferrule.run"
WHOSE = "the jobs of Procrastinate"
POLL_SECONDS = {False: 30.0, True: 5.0}
"""Without and behind a pooler, where nothing can be announced."""
_WAKE = f"""SELECT pg_notify('procrastinate_queue_v1#{QUEUE}', '{{"type": "job_inserted"}}')"""


class ProcrastinateEngine:
    """The engine of one database."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        connector = SyncPsycopgConnector(
            conninfo=options.database, kwargs=CONNECTING, min_size=1, max_size=1, timeout=10
        )
        self._submitting = App(connector=connector)

    async def prepare(self) -> None:
        make_tables(self._options.database, WHOSE, "procrastinate_jobs", SchemaManager.get_schema)

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        with reach(WHOSE, psycopg.Error, ConnectorException), ExitStack() as undo:
            # A pool that could not be opened stays closed: then the next call makes another.
            undo.callback(self.close)
            app = self._submitting.open()
            undo.pop_all()
            app.job_manager.batch_defer_jobs([_configure(app, one).job for one in tickets])

    def close(self) -> None:
        self._submitting.close()

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        every = self._options.lost_after
        is_pooled = self._options.is_pooled
        pool = make_pool(self._options.database)
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

            # Another worker may be quicker, or the database away: then it is done the next time.
            rescue = repeat(partial(_rescue, app, every), every, but=ConnectorException)
            async with run_with(call_when(stop, leave), rescue):
                await worker.run()


async def _rescue(app: App, every: float) -> None:
    """Hand out again the jobs of lost workers."""
    for job in await app.job_manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=every):
        await app.job_manager.retry_job(job)
        await app.connector.execute_query_async(_WAKE)


def _configure(app: App, ticket: Ticket) -> JobDeferrer:
    return app.configure_task(
        TASK,
        queue=QUEUE,
        priority=-ticket.priority,
        schedule_at=ticket.due if ticket.delay else None,
        task_kwargs={"run": ticket.run},
    )
