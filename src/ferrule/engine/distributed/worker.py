"""A worker: takes jobs from the queue, works many at once, and takes over those of lost workers.

    Worker("postgresql://ferrule@db/ferrule", make_agent, concurrency=16).run()

Jobs run in the event loop of a thread of their own. One statement after the other gives the
outcomes of those that ended and takes as many as there are places (`job_queue`): at once where jobs
may wait for a place, else with what ends within `GATHER_SECONDS`; while nothing ends, the queue is
looked at every `POLL_SECONDS`. All jobs share the worker's journal, and with it their writes
(`engine.write_batching`).

The main thread leaves heartbeats, requeues the jobs of workers whose heartbeats are too old, and
submits what schedules are due; a job that blocks the event loop does not keep it from that. A dead
worker cannot be told from one that is frozen or cut off for longer than `lost_after`: its jobs go
to others, and the leases of its sessions ensure that it writes nothing if it comes back. What it
then says of these jobs is dropped.

A worker that is asked to stop takes no more jobs, lets those that it works end for `grace` seconds,
stops the others where they are (`draining`), releases its leases, and gives its jobs back. A second
worker in one process is another worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import Any
from uuid import uuid4

from ferrule.core.errors import FerruleError, JournalError
from ferrule.engine.threads import Threads
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.locations import create_journal

from .cron import parse_cron
from .draining import DrainingJournal, DrainingRemoteJournal, make_draining
from .job_queue import JobQueue, QueueError
from .job_run import MakeAgent, SessionTurns, run_job
from .jobs import MAX_WORKERS, Job, build_outcome, check_connection, libpq_url

HEARTBEAT_SECONDS = 2.0
"""Seconds between two heartbeats."""
POLL_SECONDS = 0.1
"""Seconds between two looks at the queue while nothing ends."""
GATHER_SECONDS = 0.025
"""Seconds that an outcome waits for others if no job may wait for its place."""
RETRY_SECONDS = 1.0
"""Seconds before the queue is asked again after it could not be reached."""
SKIPPED_SECONDS = 60.0
"""A time of a schedule that is past for longer is left out: no worker ran."""

_run_in_thread = Threads().run


class Worker:
    """The worker of one process.

    `per_tenant` limits how many jobs of a tenant are worked anywhere at once; None is no limit.
    Give all workers of a queue the same. `lost_after` and `grace` are seconds.

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
        self._database = libpq_url(database)
        self.journal = make_draining(journal or create_journal(self._database))
        self._lost_after = lost_after
        self._stopped = threading.Event()
        self._jobs = JobLoop(
            self.name,
            self._database,
            self.journal,
            make,
            concurrency=concurrency,
            per_tenant=per_tenant,
            grace=grace,
        )

    def run(self) -> None:
        """Work until `stop`, or SIGTERM or SIGINT.

        Raises DistributedExtraMissing if the extra is missing, and QueueUnreachable at the start;
        later the database may disappear and come back.
        """
        check_connection(self._database)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
        queue = JobQueue(self._database)
        # Before any job is taken: an unknown worker is never missed.
        queue.beat(self.name)
        working = threading.Thread(target=self._work, name="ferrule-worker")
        working.start()
        try:
            while not self._stopped.wait(min(HEARTBEAT_SECONDS, self._lost_after / 4)):
                self._beat(queue)
        finally:
            self._stopped.set()
            self._jobs.stop()
            working.join()
            self.journal.close()
            self._give_back(queue)

    def stop(self) -> None:
        """Stop working; jobs that are not done are taken over by others."""
        self._stopped.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # The thread that this interrupts may hold the lock that setting the event needs.
        threading.Thread(target=self.stop, name="ferrule-stop").start()

    def _work(self) -> None:
        try:
            asyncio.run(self._jobs.run())
        finally:
            self._stopped.set()

    def _beat(self, queue: JobQueue) -> None:
        """Leave a heartbeat, requeue the jobs of lost workers, and submit what is due."""
        try:
            queue.beat(self.name)
            lost = queue.find_lost(self.name, self._lost_after)
            if lost:
                queue.requeue(lost)
                queue.forget(lost)
            submit_due(queue)
        except QueueError:
            # The database is not reachable, and neither is the queue. Try again later.
            return

    def _give_back(self, queue: JobQueue) -> None:
        """Let others take what is left here. If the database is away, they wait for it."""
        try:
            queue.requeue([self.name])
            queue.forget([self.name])
        except QueueError:
            pass
        finally:
            queue.close()


def submit_due(queue: JobQueue) -> None:
    """Submit the jobs of schedules whose time has come. Two workers that do it submit one job."""
    for name, cron, given, due, now in queue.list_due():
        expression = parse_cron(cron)
        following: datetime = due.astimezone(UTC)
        jobs: list[dict[str, Any]] = []
        while following <= now:
            if following > now - timedelta(seconds=SKIPPED_SECONDS):
                job = Job.of({**given, "run": f"{name}-{following:%Y%m%dT%H%M%S}"})
                jobs.append(job.with_name().as_dict())
                following = expression.next_after(following)
            else:
                following = expression.next_after(now - timedelta(seconds=SKIPPED_SECONDS))
        queue.submit(jobs)
        queue.move_schedule(name, due, following)


class JobLoop:
    """The jobs that a worker has, in its event loop."""

    def __init__(
        self,
        name: str,
        database: str,
        journal: DrainingJournal,
        make: MakeAgent,
        *,
        concurrency: int,
        per_tenant: int | None,
        grace: float,
    ) -> None:
        self._name = name
        self._database = database
        self._journal = journal
        self._make = make
        self._concurrency = concurrency
        self._per_tenant = per_tenant
        self._grace = grace
        self._turns = SessionTurns()
        self._working: dict[str, asyncio.Task[dict[str, Any] | None]] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Event()
        self._gathering: asyncio.TimerHandle | None = None
        self._jobs_may_wait = True
        """Whether the queue may have had more jobs than places when it was looked at last."""
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """Take no more jobs, and end. May be called from any thread."""
        self._stopping = True
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._changed.set)

    async def run(self) -> None:
        """Work until `stop`."""
        self._loop = asyncio.get_running_loop()
        queue = JobQueue(self._database)
        try:
            while not self._stopping:
                await self._wait(await self._exchange(queue, self._concurrency))
            end = self._loop.time() + self._grace
            while self._working and self._loop.time() < end:
                await self._exchange(queue, 0)
                await asyncio.wait(self._working.values(), timeout=POLL_SECONDS)
            self._journal.leave()
            for task in self._working.values():
                task.cancel()
            if self._working:
                await asyncio.wait(self._working.values())
            await self._exchange(queue, 0)
        finally:
            queue.close()

    async def _wait(self, pause: float) -> None:
        """Wait until a job ends, at most for so long."""
        try:
            async with asyncio.timeout(pause):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _exchange(self, queue: JobQueue, places: int) -> float:
        """Give outcomes and take jobs. Return how long to wait for the next time."""
        self._changed.clear()
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        ended = dict(self._ended)
        known = [*self._working, *ended]
        free = max(0, places - len(self._working))
        per_tenant = self._per_tenant

        def work() -> tuple[list[tuple[dict[str, Any], int]], list[str], set[str]]:
            taken, cancelled = queue.exchange(self._name, ended, known, free, per_tenant)
            return taken, cancelled, self._find_new([job["session"] for job, _ in taken])

        try:
            taken, cancelled, new = await _run_in_thread(work)
        except QueueError:
            return RETRY_SECONDS
        for run in ended:
            self._ended.pop(run, None)
        for run in cancelled:
            if run in self._working:
                self._working[run].cancel()
        for given, attempts in taken:
            job = Job.of(given)
            self._begin(job, attempts, is_new=job.session in new)
        self._jobs_may_wait = len(taken) >= free
        # Jobs often come one after the other.
        return GATHER_SECONDS if taken else POLL_SECONDS

    def _find_new(self, sessions: list[str]) -> set[str]:
        """Return those sessions that are certainly not in the journal, asked for all at once."""
        if not sessions or not isinstance(self._journal, DrainingRemoteJournal):
            return set()
        try:
            return set(sessions) - self._journal.find_known(sessions)
        except JournalError:
            # Each job asks for itself, and waits until the journal can be reached.
            return set()

    def _begin(self, job: Job, attempts: int, *, is_new: bool) -> None:
        if attempts > MAX_WORKERS:
            detail = f"given up: {MAX_WORKERS} workers ended while they worked it"
            self._ended[job.run] = build_outcome(job, "failed", code="job_given_up", detail=detail)
            return
        if job.run in self._working:
            # It went to another worker and came back: what is under way here goes on.
            return
        task = asyncio.create_task(self._work(job, is_new))
        self._working[job.run] = task
        # Not at the end of the task's own code: a task that is cancelled at once never begins.
        task.add_done_callback(partial(self._end, job.run))

    def _end(self, run: str, task: asyncio.Task[dict[str, Any] | None]) -> None:
        """Keep the outcome of a job for the queue."""
        del self._working[run]
        outcome = None if task.cancelled() else task.result()
        if outcome is not None:
            self._ended[run] = outcome
        if self._jobs_may_wait or not self._working:
            self._changed.set()
        elif self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_SECONDS, self._changed.set)

    async def _work(self, job: Job, is_new: bool) -> dict[str, Any] | None:
        """Work a job and return its outcome; None if another worker is to go on with it.

        A job that can never start has failed, whatever the reason: trying again would not help.
        """
        try:
            return await run_job(job, self._journal, self._make, self._turns, is_new=is_new)
        except Exception as error:  # noqa: BLE001  boundary: somebody's code makes the agent, and its error is the job's outcome
            return None if self._journal.left else _describe_failure(job, error)


def _describe_failure(job: Job, error: Exception) -> dict[str, Any]:
    if isinstance(error, FerruleError):
        return build_outcome(job, "failed", code=error.code, detail=str(error))
    detail = f"{type(error).__name__}: {error}"
    return build_outcome(job, "failed", code="job_failed", detail=detail)
