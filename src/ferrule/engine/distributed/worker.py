"""A worker: has an engine hand it jobs, works many at once, and ends nobody's run when it stops.

    Worker("postgresql://ferrule@db/ferrule", make_agent, concurrency=16).run()

Everything is done in one event loop: the engine's calls (`engines`), the runs (`runner`), a look
every `LOOK_SECONDS` for jobs that nobody told the engine of and for outcomes that are too old. All
jobs share the worker's journal, and with it their writes (`engine.write_batching`); a thread renews
the leases of their sessions, and learns with it which jobs somebody wants cancelled.

A dead worker cannot be told from one that is frozen or cut off for longer than `lost_after`: the
engine gives its jobs to others, and the leases of its sessions ensure that it writes nothing if it
comes back. A second worker in one process is another worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from contextlib import closing
from functools import partial
from uuid import uuid4

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.threads import Threads
from ferrule.storage.journal.postgres import PostgresJournal
from ferrule.storage.journal.postgres_connection import choose_hint

from .engines import (
    DEFAULT_ENGINE,
    LOST_AFTER,
    Engine,
    EngineOptions,
    ask_engine,
    find_reason,
    open_engine,
)
from .handing_in import Intake, wait_until
from .job_run import MakeAgent
from .jobs import libpq_url
from .outcomes import SCHEMA, OutcomeTable
from .runner import Runner
from .schedules import restart_schedules

LEASE_SECONDS = 15.0
"""How long sessions stay with a worker that is gone; a third of it until a job is cancelled."""
END_SECONDS = 10.0
"""Seconds that an engine may take to end once all jobs are left."""
LOOK_SECONDS = 60.0
"""Seconds between two looks at what was left behind."""
RETRY_SECONDS = 1.0
"""Seconds before the engine is asked again after it could not be reached."""
_log = logging.getLogger(__name__)
_run_in_thread = Threads().run


@frozen
class WorkerTimes:
    """How long a worker waits for what.

    Attributes:
        lost_after: Seconds after which a worker that is not heard of has lost its jobs.
        grace: Seconds that jobs may take to end once the worker is asked to stop.
        keep_days: Days that outcomes are kept.
    """

    lost_after: float = LOST_AFTER
    grace: float = 5.0
    keep_days: float = 30.0


class Worker:
    """The worker of one process.

    Args:
        database: The PostgreSQL database of the jobs.
        make: Makes the agent of a job.
        engine: The engine that hands out jobs: `NAME`, `NAME:ADDRESS` of its server, or itself.
        concurrency: How many jobs to work at once.
        per_tenant: How many jobs of a tenant are worked anywhere at once; None is no limit. Give
            all workers the same.
        times: How long it waits for what.
        journal: The journal in that database, if it is to be another than the default.
        name: The worker's name; one that nobody else has if empty.

    Raises:
        ConfigError: The database URL is invalid, or the journal is in another schema.
    """

    def __init__(
        self,
        database: str,
        make: MakeAgent,
        *,
        engine: str | Engine = DEFAULT_ENGINE,
        concurrency: int = 16,
        per_tenant: int | None = None,
        times: WorkerTimes = WorkerTimes(),  # noqa: B008  frozen
        journal: PostgresJournal | None = None,
        name: str = "",
    ) -> None:
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._url = libpq_url(database)
        self._make = make
        self._engine = engine
        self._concurrency = concurrency
        self._per_tenant = per_tenant
        self._times = times
        if journal is not None and journal.schema != SCHEMA:
            raise ConfigError(
                f"the journal of a worker is in schema `{journal.schema}`",
                hint=f"its outcomes are written with it: use schema `{SCHEMA}`",
            )
        self._journal = journal
        self._stop_early = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None

    def run(self) -> None:
        """Work until `stop`, or SIGTERM or SIGINT. End its program with `end_process`.

        Raises ConfigError or EngineExtraMissing if an extra is missing, and at the start QueueError
        and EngineUnreachable; later the database and the engine may disappear and come back.
        """
        journal = self._journal or PostgresJournal(self._url, lease_seconds=LEASE_SECONDS)
        with closing(journal), closing(OutcomeTable(self._url)) as table:
            table.check()
            # Whether it can be used is to be said before a job begins.
            journal.find_known([])
            if table.is_pooled:
                _log.warning(
                    "the database is behind a pooler, where jobs cannot be announced: they are "
                    "looked for every few seconds. A direct address for workers avoids that"
                )
            options = EngineOptions(
                self._url, lost_after=self._times.lost_after, is_pooled=table.is_pooled
            )
            with closing(open_engine(self._engine, options)) as engine:
                ask_engine(engine.prepare())
                asyncio.run(self._run(Intake(table, engine), journal))

    def stop(self) -> None:
        """Stop working; jobs that are not done are taken over by others. Safe in any thread."""
        self._stop_early = True
        if self._loop is not None and self._stopped is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def _run(self, intake: Intake, journal: PostgresJournal) -> None:
        self._loop = asyncio.get_running_loop()
        stopped = self._stopped = asyncio.Event()
        if self._stop_early:
            stopped.set()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, stopped.set)
        runner = Runner(
            self.name,
            intake,
            journal,
            self._make,
            concurrency=self._concurrency,
            per_tenant=self._per_tenant,
        )
        journal.watch_jobs(runner)
        looking = asyncio.create_task(self._look(intake))
        working = asyncio.create_task(self._work(intake.engine, runner, stopped))
        working.add_done_callback(lambda _: stopped.set())
        await stopped.wait()
        looking.cancel()
        await runner.leave(self._times.grace)
        # Its library may wait for a server that does not answer any more.
        await asyncio.wait([working], timeout=END_SECONDS)
        working.cancel()
        await asyncio.wait([working, looking], timeout=END_SECONDS)

    async def _work(self, engine: Engine, runner: Runner, stopped: asyncio.Event) -> None:
        """Have the engine hand out jobs, also when it was away."""
        while not stopped.is_set():
            try:
                await engine.work(runner, concurrency=self._concurrency, stop=stopped)
            except Exception as error:  # noqa: BLE001  boundary: libraries of engines raise what they like while their server is away
                if not stopped.is_set():
                    reason = f"{find_reason(error)}; {choose_hint(error, 'see its log')}"
                    _log.warning("the engine is away and will be asked again: %s", reason)
            # One that stops by itself has lost its server.
            await wait_until(stopped, RETRY_SECONDS)

    async def _look(self, intake: Intake) -> None:
        """Tell the engine of jobs whose submitter died before it could, and remove old outcomes."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await _run_in_thread(partial(tend, intake, self._times.keep_days))
            except Exception as error:  # noqa: BLE001  boundary: this loop must not end unnoticed
                _log.warning("what was left behind is looked for again later: %s", error)


def tend(intake: Intake, keep_days: float) -> None:
    """Hand in what was left behind, and remove outcomes that are older than `keep_days`."""
    intake.hand_in(intake.table.look(LOOK_SECONDS, keep_days))
    restart_schedules(intake)
