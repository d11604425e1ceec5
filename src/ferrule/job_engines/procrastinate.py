"""Procrastinate: jobs in tables of the database that the journal is in.

It keeps the order within a session (a lock), priorities and delays, and announces jobs to workers.
What is due later is looked for every `POLL_SECONDS`, and announced by the worker that sent it away.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from procrastinate import App, BaseRetryStrategy, JobContext, PsycopgConnector, RetryDecision
from procrastinate import SyncPsycopgConnector as Connector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job as Row
from procrastinate.schema import SchemaManager
from procrastinate.worker import Worker
from psycopg_pool import AsyncConnectionPool

from ferrule.engine.distributed.engines import Do, EngineOptions, EngineUnreachable, Ticket

QUEUE, TASK = "ferrule", "ferrule.run"
POLL_SECONDS, RETRY_SECONDS = 30.0, 5.0
KEEPALIVES = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A connection whose other end is gone is noticed within half a minute."""
_LOCK = "SELECT pg_advisory_xact_lock(1178948178)"
_WAKE = f"""SELECT pg_notify('procrastinate_queue_v1#{QUEUE}', '{{"type": "job_inserted"}}')"""


class ProcrastinateEngine:
    """The engine of one database."""

    keeps_order = True

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._is_ahead = timedelta(0)
        # A pooler may stand before the database.
        kept: dict[str, Any] = {"prepare_threshold": None, **KEEPALIVES}
        self._connecting: dict[str, Any] = {"conninfo": options.database, "kwargs": kept}
        self._submitting: App | None = None

    def prepare(self) -> None:
        try:
            with psycopg.connect(self._options.database, prepare_threshold=None) as db:
                db.execute(_LOCK)
                found = db.execute("SELECT to_regclass('procrastinate_jobs'), clock_timestamp()")
                table, now = found.fetchone() or (None, datetime.now(UTC))
                self._is_ahead = now - datetime.now(UTC)
                if table is None:
                    db.execute(SchemaManager.get_schema().encode())
        except psycopg.Error as error:
            raise _unreachable(error) from error

    def submit(self, tickets: Sequence[Ticket], *, delay: float = 0) -> None:
        try:
            if self._submitting is None:
                connector = Connector(min_size=1, max_size=1, timeout=10, **self._connecting)
                self._submitting = App(connector=connector)
                self._submitting.open()
            due = self._later(delay) if delay else None
            self._submitting.job_manager.batch_defer_jobs([_as_row(one, due) for one in tickets])
        except ConnectorException as error:
            raise _unreachable(error) from error

    def close(self) -> None:
        if self._submitting is not None:
            self._submitting.close()
        self._submitting = None

    def _later(self, seconds: float) -> datetime:
        return datetime.now(UTC) + self._is_ahead + timedelta(seconds=seconds)

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        connector = PsycopgConnector(
            min_size=1,
            max_size=4,
            configure=_commit_each_statement,
            pool_factory=_make_pool,
            **self._connecting,
        )
        async with App(connector=connector).open_async() as app:
            await _Working(app, self._options, self._later, do, concurrency).run(stop)


class _Working(BaseRetryStrategy):
    """One worker. As the strategy of its task, it has every job that raises come again."""

    def __init__(
        self,
        app: App,
        options: EngineOptions,
        later: Callable[[float], datetime],
        do: Do,
        at_once: int,
    ) -> None:
        self._app, self._later, self._do = app, later, do
        self._every = options.lost_after
        self._running: set[int] = set()
        self._suspects: set[int | None] = set()
        self._waking: set[float] = set()
        app.task(name=TASK, queue=QUEUE, retry=self, pass_context=True)(self._work)
        self._worker = Worker(
            app,
            queues=[QUEUE],
            concurrency=at_once,
            listen_notify=not options.is_pooled,
            fetch_job_polling_interval=min(POLL_SECONDS, self._every),
            abort_job_polling_interval=3600,
            # Where it stops by itself, runs go on, and their jobs come again.
            shutdown_graceful_timeout=0,
            update_heartbeat_interval=self._every / 2,
            stalled_worker_timeout=self._every,
            delete_jobs="always",
            install_signal_handlers=False,
        )

    async def run(self, stop: asyncio.Event) -> None:
        beside = [asyncio.create_task(self._stop_on(stop)), asyncio.create_task(self._rescue())]
        try:
            await self._worker.run()
            await self._wake()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)

    async def _stop_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._worker.shutdown_graceful_timeout = None
        self._worker.stop()

    async def _work(self, context: JobContext, run: str) -> None:
        self._running.add(context.job.id or 0)
        try:
            await self._do(run)
        finally:
            self._running.discard(context.job.id or 0)

    async def _rescue(self) -> None:
        """Hand out again the jobs of lost workers, and those whose end was not recorded."""
        while True:
            await asyncio.sleep(self._every)
            with suppress(ConnectorException):
                await self._hand_out_again()

    async def _hand_out_again(self) -> None:
        jobs = self._app.job_manager
        mine = await jobs.list_jobs_async(
            queue=QUEUE, status="doing", worker_id=self._worker.worker_id
        )
        idle = [job for job in mine if job.id not in self._running]
        lost = [job for job in idle if job.id in self._suspects]
        self._suspects = {job.id for job in idle}
        lost += await jobs.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=self._every)
        for job in lost:
            await jobs.retry_job(job)
        if lost:
            await self._wake()

    def get_retry_decision(self, *, exception: BaseException, job: Row) -> RetryDecision:
        seconds = getattr(exception, "seconds", RETRY_SECONDS)
        if seconds:
            self._wake_after(seconds)
        return RetryDecision(retry_at=self._later(seconds) if seconds else None)

    def _wake_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        due = round(loop.time() + seconds + 0.1, 1)
        if due not in self._waking:
            self._waking.add(due)
            loop.call_at(due, lambda: loop.create_task(self._wake()))

    async def _wake(self) -> None:
        """Have workers look for jobs."""
        now = asyncio.get_running_loop().time()
        self._waking = {due for due in self._waking if due > now}
        with suppress(ConnectorException):
            await self._app.connector.execute_query_async(_WAKE)


def _make_pool(**given: Any) -> AsyncConnectionPool[Any]:
    given["check"] = _check_unasked
    return AsyncConnectionPool(**given)


async def _check_unasked(connection: psycopg.AsyncConnection[Any]) -> None:
    """Check a connection only where its server has said something unasked, such as good-bye.

    Asking each time would double what an idle worker asks.
    """
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    if waiting.poll(0):
        await AsyncConnectionPool.check_connection(connection)


async def _commit_each_statement(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.set_autocommit(True)


def _as_row(ticket: Ticket, due: datetime | None) -> Row:
    return Row(
        id=None,
        queue=QUEUE,
        lock=ticket.session,
        queueing_lock=None,
        task_name=TASK,
        priority=-ticket.priority,
        task_kwargs={"run": ticket.run},
        scheduled_at=due,
    )


def _unreachable(error: Exception) -> EngineUnreachable:
    reason = (str(error.__cause__ or error).strip().splitlines() or [type(error).__name__])[0]
    return EngineUnreachable(
        f"the jobs of Procrastinate cannot be reached: {reason}",
        hint="is the database up, and may this user create and change its tables?",
        retryable=True,
    )
