"""A worker: takes jobs from the queue, works many at once, and takes over those of lost workers.

    Worker("postgresql://ferrule@db/ferrule", make_agent, concurrency=16).run()

DBOS does the queue, retries of the database, the distribution of jobs and their outcomes.
`heartbeats` finds out whose jobs are taken over. A worker that was only frozen may come back: its
sessions' leases have gone to others by then, so it can write nothing, and waits for their outcome
(`work`).

A worker that is asked to stop takes no more jobs, lets those that it works end for `grace` seconds,
stops the others where they are (`draining`), releases its leases, and marks itself as gone. There
is one worker in a process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ferrule.core.errors import FerruleError
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.locations import create_journal

from .draining import DrainingJournal
from .heartbeats import Heartbeats
from .job_run import MakeAgent, SessionTurns, run_job
from .jobs import (
    APPLICATION,
    MAX_WORKERS,
    QUEUE,
    SCHEDULED,
    SCHEMA,
    VERSION,
    WORKFLOW,
    DistributedExtraMissing,
    Job,
    build_outcome,
    check_connection,
    driver_url,
    libpq_url,
    queue_options,
)

if TYPE_CHECKING:
    from dbos import DBOS

HEARTBEAT_SECONDS = 2.0
"""Seconds between two heartbeats."""


class Worker:
    """The worker of one process.

    `per_tenant` limits how many jobs of a tenant are worked anywhere at once; None is no limit. All
    workers of a queue should use the same value: that of the latest one to start applies.
    `lost_after` and `grace` are seconds.

    Raises ConfigError for an invalid database URL.
    """

    def __init__(
        self,
        database: str,
        make: MakeAgent,
        *,
        concurrency: int = 16,
        per_tenant: int | None = None,
        lost_after: float = 15.0,
        grace: float = 5.0,
        journal: Journal | None = None,
        name: str = "",
    ) -> None:
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self.journal = DrainingJournal(journal or create_journal(libpq_url(database)))
        self._database = database
        self._make = make
        self._concurrency = concurrency
        self._per_tenant = per_tenant
        self._grace = grace
        self._lost_after = lost_after
        self._beats = Heartbeats(database, self.name, lost_after)
        self._turns = SessionTurns()
        self._working = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        """Work until `stop`, or SIGTERM or SIGINT.

        Raises DistributedExtraMissing if the extra is missing, and QueueUnreachable at the start;
        later the database may disappear and come back.
        """
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
        dbos = self._launch()
        try:
            while not self._stopped.wait(min(HEARTBEAT_SECONDS, self._lost_after / 4)):
                self._beats.beat()
        finally:
            self._leave(dbos)

    def stop(self) -> None:
        """Stop working; jobs that are not done are taken over by others."""
        self._stopped.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # The thread that this interrupts may hold the lock that setting the event needs.
        threading.Thread(target=self.stop, name="ferrule-stop").start()

    def _leave(self, dbos: DBOS) -> None:
        from dbos import DBOS

        for event in dbos.background_thread_stop_events:
            event.set()
        end = time.monotonic() + self._grace
        while self._working and time.monotonic() < end:
            time.sleep(0.05)
        self.journal.leave()
        DBOS.destroy()
        self.journal.close()
        self._beats.leave()

    def _launch(self) -> DBOS:
        try:
            from dbos import DBOS
        except ImportError as error:
            raise DistributedExtraMissing(
                "workers need the extra `scale`", hint="pip install 'ferrule[scale]'"
            ) from error
        check_connection(self._database)
        self._beats.begin()
        dbos = DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": driver_url(self._database),
                "dbos_system_schema": SCHEMA,
                "application_version": VERSION,
                "executor_id": self.name,
                # DBOS warns, with a traceback, of each job that is stopped because its worker
                # leaves.
                "log_level": "ERROR",
                "use_listen_notify": True,
                "scheduler_polling_interval_sec": 5.0,
            }
        )
        logging.getLogger("dbos").addFilter(_is_worth_logging)
        self._register()
        DBOS.launch()
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=self._concurrency,
            partition_concurrency=self._per_tenant,
            polling_interval_sec=0.2,
            on_conflict="always_update",
        )
        return dbos

    def _register(self) -> None:
        from dbos import DBOS

        @DBOS.step(name="ferrule.work", preemptible=True)
        async def step(job: dict[str, Any]) -> dict[str, Any]:
            return await self._work(job)

        @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=MAX_WORKERS)
        async def workflow(job: dict[str, Any]) -> dict[str, Any]:
            return await step(job)

        @DBOS.workflow(name=SCHEDULED)
        async def enqueue_scheduled(at: datetime, job: dict[str, Any]) -> None:
            due = Job.of({**job, "run": f"{DBOS.workflow_id}-run"}).with_name()
            handed: Any = queue_options(due)
            await DBOS.enqueue_workflow_with_options_async(handed, due.as_dict())

        del workflow, enqueue_scheduled

    async def _work(self, given: dict[str, Any]) -> dict[str, Any]:
        """Work a job and return its outcome.

        A job that can never start has failed, whatever the reason: trying again would not help.
        """
        job = Job.of(given)
        self._working += 1
        try:
            return await run_job(job, self.journal, self._make, self._turns)
        except Exception as error:  # noqa: BLE001  boundary: somebody's code makes the agent, and its error is the job's outcome
            return self._fail(job, error)
        finally:
            self._working -= 1

    def _fail(self, job: Job, error: Exception) -> dict[str, Any]:
        if self.journal.left:
            # Not an outcome: the job stays in the queue, and another worker continues it.
            raise asyncio.CancelledError from error
        if isinstance(error, FerruleError):
            return build_outcome(job, "failed", code=error.code, detail=str(error))
        return build_outcome(
            job, "failed", code="job_failed", detail=f"{type(error).__name__}: {error}"
        )


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Whether DBOS should log a record; it logs a cancelled job as an error with a traceback."""
    from dbos import error as errors

    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, errors.DBOSAwaitedWorkflowCancelledError)
