"""What an engine calls for each job: begins it, works it to its end and writes its outcome.

The same for every engine (`engines.Do`). A job that may not begin yet is set aside (`handing_in`):
its tenant has enough at work, an earlier job of its session has not ended, or it is of a newer
version. One that is worked here already is joined. What cannot begin at all has failed, and is not
tried again.

A worker that leaves ends nobody's run (`PostgresJournal.stop_writing`): its jobs are handed in for
others. The engine's own cancelling, such as that of a library at its shutdown, does not reach a run
either. The end of a run that began here carries the outcome of its job with it, in one statement.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ferrule.core.errors import ConfigError, FerruleError, JournalError
from ferrule.core.events import Event
from ferrule.core.identity import Identity
from ferrule.engine.threads import Threads
from ferrule.storage.journal.postgres import PostgresJournal

from .engines import RETRY_SECONDS, GoOnElsewhere
from .handing_in import Intake, SetAside, wait_until
from .job import Job, JobEnd, build_outcome
from .job_run import TRANSIENT_ERRORS, MakeAgent, SessionTurns, read_end, run_job
from .outcomes import Beginning, QueueError
from .schedules import begin_scheduled

AGAIN_SECONDS = 0.5
"""Seconds after which a job that may not begin comes again; longer if others go first."""
MOST_SECONDS = 30.0
"""Seconds that any job stays away at the most."""
LEAVE_SECONDS = 10.0
"""Seconds that a worker which leaves waits for its runs, and then for its engine."""
MAX_WORKERS = 20
"""A job is given up after this many workers ended while working it: it may be what ends them."""

_log = logging.getLogger(__name__)
_run_in_thread = Threads().run


class Runner:
    """Works the jobs of one worker; it is the `JobWatch` of their journal.

    Args:
        name: The worker.
        intake: Where outcomes are written, and jobs handed in again.
        journal: The journal of all jobs, in the database of the table.
        make: Makes the agent of a job.
        concurrency: How many jobs may be worked at once here.
        per_tenant: How many jobs of a tenant may be worked at once anywhere.
    """

    def __init__(
        self,
        name: str,
        intake: Intake,
        journal: PostgresJournal,
        make: MakeAgent,
        *,
        concurrency: int,
        per_tenant: int | None,
    ) -> None:
        self._name = name
        self._intake = intake
        self._journal = journal
        self._make = make
        self._per_tenant = per_tenant
        self._turns = SessionTurns()
        self._loop = asyncio.get_running_loop()
        self._places = asyncio.Semaphore(concurrency)
        self._leaving = asyncio.Event()
        self._set_aside = SetAside(intake, self._leaving)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._ends: dict[str, JobEnd] = {}

    async def __call__(self, run: str) -> None:
        """Work a job (`engines.Do`)."""
        if self._leaving.is_set():
            raise GoOnElsewhere
        task = self._tasks.get(run)
        if task is None:
            task = self._tasks[run] = asyncio.create_task(self._insist(run))
            task.add_done_callback(partial(self._forget, run))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            raise GoOnElsewhere from None

    def _forget(self, run: str, task: asyncio.Task[None]) -> None:
        del self._tasks[run]
        if not task.cancelled():
            # Whoever called may have been cancelled, and asks no more.
            task.exception()

    # ---- for the journal, in any thread

    def list_runs(self) -> list[str]:
        return list(self._running)

    def cancel_runs(self, runs: list[str]) -> None:
        self._loop.call_soon_threadsafe(self.cancel, runs)

    def find_ends(
        self, batches: Sequence[tuple[Identity, Sequence[Event]]]
    ) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for identity, events in batches:
            end = self._ends.get(identity.run)
            if end is None or not end.is_of(identity.tenant, identity.user, identity.session):
                continue
            for event in events:
                outcome = end.read(event)
                if outcome is not None:
                    found[identity.run] = outcome
        return found

    def note_ends(self, outcomes: Mapping[str, Any]) -> None:
        for run, outcome in outcomes.items():
            if run in self._ends:
                self._ends[run].note(outcome)

    def cancel(self, runs: list[str]) -> None:
        """End these runs as cancelled."""
        for run in runs:
            task = self._running.get(run)
            if task is not None and not task.cancelling():
                task.cancel()

    async def leave(self, grace: float) -> None:
        """Let jobs end for `grace` seconds, and leave the others to other workers.

        A database or an engine that does not answer is waited for no longer than `LEAVE_SECONDS`.
        """
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=grace)
        self._journal.stop_writing()
        self._leaving.set()
        for task in self._running.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=LEAVE_SECONDS)
        await self._set_aside.finish(LEAVE_SECONDS)

    # ---- one job

    async def _insist(self, run: str) -> None:
        """Work a job, also when the table or the engine was away."""
        is_again = False
        async with self._places:
            while not self._leaving.is_set():
                try:
                    await self._work(run, is_again=is_again)
                    return
                except FerruleError as error:
                    _log.warning("job `%s` waits: %s", run, error)
                    is_again = True
                    await wait_until(self._leaving, RETRY_SECONDS)
        raise GoOnElsewhere

    async def _work(self, run: str, *, is_again: bool) -> None:
        beginning = await _run_in_thread(partial(self._begin, run, is_again=is_again))
        if beginning.answer == "newer":
            _log.warning("job `%s` waits for a worker of the newer version that wrote it", run)
        if beginning.unhanded is not None:
            self._set_aside.add(beginning.unhanded, self._choose_pause(beginning))
        if beginning.job is None:
            return
        try:
            outcome = await self._run(run, beginning)
        except GoOnElsewhere:
            await _run_in_thread(partial(self._hand_to_others, run))
            return
        if outcome is not None:
            end = partial(self._intake.table.end, run, self._name, outcome)
            if not await _run_in_thread(end):
                # Another worker has it, and may be gone: what the engine gave here must come again.
                raise GoOnElsewhere
        self._set_aside.hasten(beginning.job["session"], beginning.job["tenant"])

    def _hand_to_others(self, run: str) -> None:
        self._intake.hand_in(self._intake.table.give_back(run, self._name))

    def _choose_pause(self, beginning: Beginning) -> float:
        if beginning.answer == "newer":
            return MOST_SECONDS
        before = beginning.ahead
        if beginning.answer == "full":
            before = 1 + beginning.ahead // (self._per_tenant or 1)
        # What has taken long may take long: then a tenth of that is soon enough.
        return min(MOST_SECONDS, max(AGAIN_SECONDS * before, beginning.blocked / 10))

    def _begin(self, run: str, *, is_again: bool) -> Beginning:
        """Begin a job. Without a job in it, there is nothing to do now."""
        beginning = self._intake.table.begin(
            run, self._name, per_tenant=self._per_tenant, is_again=is_again
        )
        if begin_scheduled(self._intake, run, beginning):
            return beginning
        self._intake.table.remove(run)
        return Beginning("ended")

    async def _run(self, run: str, beginning: Beginning) -> dict[str, Any] | None:
        """Run a job to its end. Return its outcome, unless that is written."""
        try:
            job = Job.of(beginning.job or {})
        except (ConfigError, TypeError) as error:
            return _describe_failure(Job("", run=run), error)
        if beginning.attempt > MAX_WORKERS:
            if beginning.is_held:
                # It came to many workers, and one of them works it, or died just now.
                raise QueueError("another worker has its session", retryable=True)
            detail = f"given up: {MAX_WORKERS} workers ended while they worked it"
            return build_outcome(job, "failed", code="job_given_up", detail=detail)
        end = self._ends[job.run] = JobEnd(job)
        work = run_job(
            job,
            self._journal,
            self._make,
            self._turns,
            end=end,
            is_new=not beginning.is_known,
            is_cancelled=beginning.is_cancelled,
        )
        running = self._running[job.run] = asyncio.create_task(work)
        try:
            await asyncio.wait([running])
        finally:
            del self._running[job.run], self._ends[job.run]
        if end.outcome is not None:
            return None
        error = None if running.cancelled() else running.exception()
        if self._leaving.is_set() and (running.cancelled() or error is not None):
            raise GoOnElsewhere
        if isinstance(error, JournalError) and error.code in TRANSIENT_ERRORS:
            # The journal is away; that is not how the run ends.
            raise error
        if running.cancelled():
            found = await _run_in_thread(partial(read_end, self._journal, job))
            if found is not None and found.has_begun and found.outcome is None:
                # It was begun elsewhere, and cancelled before it went on here. Left open, the next
                # job of its session would go on with it.
                raise QueueError("its run is open until this worker may write it", retryable=True)
            cancelled = build_outcome(job, "cancelled", detail="the job was cancelled")
            return cancelled if found is None else found.outcome or cancelled
        return running.result() if error is None else _describe_failure(job, error)


def _describe_failure(job: Job, error: BaseException) -> dict[str, Any]:
    if isinstance(error, FerruleError):
        return build_outcome(job, "failed", code=error.code, detail=str(error))
    detail = f"{type(error).__name__}: {error}"
    return build_outcome(job, "failed", code="job_failed", detail=detail)
