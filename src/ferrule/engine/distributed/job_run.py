"""How a job becomes exactly one run: a worker continues from where the journal says that it is.

A worker may die, freeze or be cut off at any point, and another gets the same job. The journal
decides what is left to do: a run that has ended is only reported, one that was started is resumed
(effects that may have happened are checked by their tools' probes, `engine.recovery`), one that was
not started starts. If two workers have one job, the session's lease lets one of them write
(`storage.journal.postgres_lease`); the other waits for the end of the run, and reports the same. If
an earlier run of the session was left open, that one is finished first.

A journal lets its own process write a session as often as it likes, so jobs of one session take
turns here (`SessionTurns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from ferrule.core.errors import FerruleError, JournalError, SessionNotFound
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.engine.threads import run_blocking
from ferrule.storage.journal.protocols import Journal

from .job import Job, JobEnd

RETRY_SECONDS = 1.0
"""Seconds between two attempts to lease a session, or to reach the journal."""
TRANSIENT_ERRORS = ("journal_leased", "journal_unreachable", "journal_unsure")
"""Errors of the journal that are retried: another worker has the session, or it is unreachable."""
WORKER_LOST = "the worker that ran this is gone"

MakeAgent = Callable[[Job, Journal], Agent[Any, Any]]
"""Creates the agent for a job, with this journal, for the job's tenant and user."""


class SessionTurns:
    """Lets jobs of one process work on a session one at a time, in the order they came."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, session: str) -> AsyncGenerator[bool]:
        """Wait for the turn, and keep it until the end of the block.

        Yields whether there was nobody to wait for.
        """
        is_first = session not in self._locks
        lock = self._locks.setdefault(session, asyncio.Lock())
        async with lock:
            yield is_first


async def run_job(
    job: Job,
    journal: Journal,
    make: MakeAgent,
    turns: SessionTurns | None = None,
    *,
    end: JobEnd | None = None,
    is_new: bool = False,
    is_cancelled: bool = False,
) -> dict[str, Any]:
    """Run a job to its end, or find that it has ended, and return its outcome (`build_outcome`).

    It waits while the journal is unreachable or another worker has the session.

    Args:
        job: The job.
        journal: The journal of its session.
        make: Makes the agent.
        turns: The turns of jobs of one session.
        end: Whoever writes the outcome with the end of the run notes it here.
        is_new: Whether the journal was asked just now, and has no such session.
        is_cancelled: Whether somebody wants it cancelled: then its run is only ended.

    Raises:
        FerruleError: The run could not be started or continued.
    """
    end = end or JobEnd(job)
    async with (turns or SessionTurns()).of(job.session) as is_first:
        found: JobEnd | None = None
        while end.outcome is None:
            try:
                if not (is_new and is_first):
                    found = await run_blocking(partial(read_end, journal, job))
                    if found is not None and found.outcome is not None:
                        return found.outcome
                await _continue(job, partial(make, job, journal), found, is_cancelled=is_cancelled)
            except JournalError as error:
                was_opened_meanwhile = found is None and error.code == "journal_conflict"
                if not (was_opened_meanwhile or error.code in TRANSIENT_ERRORS) or _is_cancelled():
                    raise
                await asyncio.sleep(RETRY_SECONDS)
            except SystemExit as error:
                # It would end the worker, and with that everything else that is worked there.
                raise FerruleError(f"SystemExit: {error}", code="job_failed") from error
            except FerruleError:
                # How the run ended is in the journal; what never became a run is raised.
                if end.outcome is None:
                    found = await run_blocking(partial(read_end, journal, job))
                    if found is None or found.outcome is None:
                        raise
            is_new = False
    return end.outcome


def _is_cancelled() -> bool:
    """Whether this job was cancelled while the journal was unreachable: the run stays open."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def read_end(journal: Journal, job: Job) -> JobEnd | None:
    """Read from the journal how far a job has come. Return None if its session is not there."""
    end = JobEnd(job)
    try:
        for record in journal.records(job.session):
            # The session may be somebody else's: then nothing is disclosed, and resuming it fails.
            if record.run == job.run and end.is_of(record.tenant, record.user, job.session):
                end.note(end.read(record.event))
                if end.outcome is not None:
                    break
    except SessionNotFound:
        return None
    return end


async def _continue(
    job: Job, make: Callable[[], Agent[Any, Any]], found: JobEnd | None, *, is_cancelled: bool
) -> None:
    """Work a run, as far as it was found, until it ends."""
    has_begun = found is not None and found.has_begun
    if is_cancelled and not has_begun:
        raise asyncio.CancelledError
    agent = make()
    try:
        session = agent.open_session(job.session) if found is None else agent.resume(job.session)
        try:
            if has_begun:
                task = asyncio.current_task()
                if is_cancelled and task is not None:
                    # Now that its session may be written: the run is settled, and ends so.
                    task.cancel()
                await session.resume(WORKER_LOST)
                return
            if found is not None:
                await _finish_others(session)
            await session.run(job.text, run=job.run)
        finally:
            await session.close()
    finally:
        await agent.disconnect()


async def _finish_others(session: Session[Any]) -> None:
    """Finish a run of another job that was left open. Its outcome goes to that job's callers."""
    try:
        await session.resume(WORKER_LOST)
    except FerruleError:
        if session.has_open_run:
            raise
