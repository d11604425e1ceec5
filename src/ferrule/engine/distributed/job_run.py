"""How a job becomes exactly one run: a worker continues from where the journal says that it is.

A worker may die, freeze or be cut off at any point, and another gets the same job. The journal
decides what is left to do: a run that has ended is only reported, one that was started is resumed
(effects that may have happened are checked by their tools' probes, `engine.recovery`), one that was
not started starts. If two workers have one job, the session's lease lets one of them write
(`storage.journal.postgres_lease`); the other waits for the end of the run, and reports the same. If
an earlier run of the session was left open, that one is finished first.

A journal lets its own process write a session as often as it likes, so jobs of one session take
turns here (`Turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from ferrule.core.calls import parse_json
from ferrule.core.errors import FerruleError, JournalError, ProviderError, SessionNotFound
from ferrule.core.events import ModelFailed, RunFinished, RunStarted
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.engine.threads import run_blocking
from ferrule.storage.journal.protocols import Journal

from .jobs import Job, build_outcome

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
        self._waiting: dict[str, list[object]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def of(self, session: str) -> AsyncGenerator[bool]:
        """Wait for the turn, and keep it until the end of the block.

        Yields whether there was nobody to wait for.
        """
        lock = self._locks.setdefault(session, asyncio.Lock())
        here = self._waiting.setdefault(session, [])
        me = object()
        is_first = not here
        here.append(me)
        try:
            async with lock:
                yield is_first
        finally:
            here.remove(me)
            if not here:
                del self._waiting[session], self._locks[session]


async def run_job(
    job: Job,
    journal: Journal,
    make: MakeAgent,
    turns: SessionTurns | None = None,
    *,
    is_new: bool = False,
) -> dict[str, Any]:
    """Run a job to its end, or find that it has ended, and return its outcome (`build_outcome`).

    It waits while the journal is unreachable or another worker has the session.

    Args:
        job: The job.
        journal: The journal of its session.
        make: Makes the agent.
        turns: The turns of jobs of one session.
        is_new: Whether the journal was asked just now, and has no such session.

    Raises:
        FerruleError: The run could not be started or continued.
    """
    async with (turns or SessionTurns()).of(job.session) as is_first:
        is_new = is_new and is_first
        while True:
            begun: bool | None = None
            outcome: dict[str, Any] | None = None
            try:
                if not is_new:
                    begun, outcome = await run_blocking(partial(find_outcome, journal, job))
                if outcome is None:
                    outcome = await _continue(job, make(job, journal), begun)
                if outcome is not None:
                    return outcome
            except JournalError as error:
                was_opened_meanwhile = begun is None and error.code == "journal_conflict"
                if not (was_opened_meanwhile or error.code in TRANSIENT_ERRORS) or _is_cancelled():
                    raise
                await asyncio.sleep(RETRY_SECONDS)
            except FerruleError:
                # How the run ended is in the journal; what never became a run is raised.
                found = await run_blocking(partial(find_outcome, journal, job))
                if found[1] is None:
                    raise
            is_new = False


def _is_cancelled() -> bool:
    """Whether this job was cancelled while the journal was unreachable: the run stays open."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def find_outcome(journal: Journal, job: Job) -> tuple[bool | None, dict[str, Any] | None]:
    """Return whether the run was started, and its outcome if it has ended.

    The first is None if not even its session exists.
    """
    begun = False
    typed = False
    failed: ModelFailed | None = None
    try:
        for record in journal.records(job.session):
            # The session may be somebody else's: then nothing is disclosed, and resuming it fails.
            if record.run != job.run or (record.tenant, record.user) != (job.tenant, job.user):
                continue
            if isinstance(record.event, RunStarted):
                begun = True
                typed = record.event.output_request is not None
            if isinstance(record.event, ModelFailed):
                failed = record.event
            if isinstance(record.event, RunFinished):
                return True, describe_end(job, record.event, failed, typed=typed)
    except SessionNotFound:
        return None, None
    return begun, None


def describe_end(
    job: Job, end: RunFinished, failed: ModelFailed | None, *, typed: bool
) -> dict[str, Any]:
    """Return the outcome of a run that has ended.

    `failed` is the last failure of its model, and `typed` whether its agent has an `output_type`.
    """
    used = {"input": end.usage.input, "output": end.usage.output, "cached": end.usage.cached}
    outcome = build_outcome(job, end.stop, text=end.text, code=end.code, detail=end.detail, **used)
    if failed is not None and failed.code == end.code:
        outcome["error"] = ProviderError(
            failed.detail,
            code=failed.code,
            status=failed.status,
            retryable=failed.retryable,
            retry_after=failed.retry_after,
        ).to_fields()
    if typed and end.text:
        outcome["output"] = parse_json(end.text)
    return outcome


async def _continue(job: Job, agent: Agent[Any, Any], begun: bool | None) -> dict[str, Any] | None:
    """Work a run until it ends.

    Returns:
        The outcome of a run that began here and ended well; None if the journal must be asked.
    """
    try:
        session = agent.open_session(job.session) if begun is None else agent.resume(job.session)
        try:
            if begun:
                await session.resume(WORKER_LOST)
                return None
            if begun is not None:
                await _finish_others(session)
            result = await session.run(job.text, run=job.run)
        finally:
            await session.close()
    finally:
        await agent.disconnect()
    who = session.identity
    # A run that was continued is told of as it ended first.
    is_whole = (who.tenant, who.user, who.run) == (job.tenant, job.user, job.run)
    if result.stop != "done" or not is_whole:
        return None
    end = RunFinished(result.stop, result.text, usage=result.usage)
    return describe_end(job, end, None, typed=session.ends_with_value)


async def _finish_others(session: Session[Any]) -> None:
    """Finish a run of another job that was left open. Its outcome goes to that job's callers."""
    try:
        await session.resume(WORKER_LOST)
    except FerruleError:
        if session.has_open_run:
            raise
