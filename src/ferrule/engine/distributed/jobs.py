"""Jobs: one message for one session, and how they are submitted, watched and cancelled.

    jobs = Jobs("postgresql://ferrule@db/ferrule")
    job = jobs.submit(Job("Tidy up the changelog", tenant="acme", user="ines"))
    jobs.outcome(job.run)      # waits; {"stop": "done", "text": ...} (`job.build_outcome`)

A job is a row in a table (`outcomes`) and is handed to workers by an engine (`engines`). It is
worked until it has an outcome, whatever happens to workers. The key of a job is its run's id:
submitting the same job twice gives one run.

Not protected: whoever may write the table decides what workers do, for any tenant. Who may submit
what is for the program that calls `Jobs` to decide.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.storage.journal.postgres_append_statement import OUTCOME_CHANNEL

from .engines import (
    DEFAULT_ENGINE,
    Engine,
    EngineOptions,
    EngineUnreachable,
    WithdrawingEngine,
    ask_engine,
    open_engine,
)
from .handing_in import Intake
from .job import Job, build_outcome
from .outcomes import JobFigures, JobState, OutcomeTable, build_announcement
from .schedules import build_run_id, find_next_time, submit_scheduled

if TYPE_CHECKING:
    from psycopg import Connection

POLL_SECONDS = 0.5
"""Seconds between two looks for an outcome behind a pooler, where nothing can be listened to."""
LOOK_SECONDS = 5.0
"""Seconds between two looks for an outcome that is announced: the announcement may be lost."""


class UnknownJob(FerruleError):
    """No job with this id was submitted."""

    code = "job_unknown"


class Jobs:
    """The jobs of one database, for those who submit them.

    Args:
        database: A PostgreSQL URL.
        engine: The engine that hands jobs to workers: `NAME`, `NAME:ADDRESS` of its server, or
            itself. The same for all workers.

    Raises:
        ConfigError: No engine has this name, the database is not a PostgreSQL URL, or the extra
            `scale` is missing.
        EngineExtraMissing: The extra of the engine is missing.
        QueueError, EngineUnreachable: The database or the engine cannot be used.
    """

    def __init__(self, database: str, *, engine: str | Engine = DEFAULT_ENGINE) -> None:
        self._url = libpq_url(database)
        self._listening: Connection[Any] | None = None
        with ExitStack() as opened:
            self._table = opened.enter_context(closing(OutcomeTable(self._url)))
            self._table.check()
            options = EngineOptions(self._url, is_pooled=self._table.is_pooled)
            engine_here = opened.enter_context(closing(open_engine(engine, options)))
            ask_engine(engine_here.prepare())
            self._intake = Intake(self._table, engine_here)
            self._opened = opened.pop_all()

    def submit(self, job: Job, *, delay: float = 0) -> Job:
        """Submit a job, and return it with its ids. `delay` is in seconds.

        A run that exists already stays as it is.
        """
        return self.submit_all([job], delay=delay)[0]

    def submit_all(self, jobs: Sequence[Job], *, delay: float = 0) -> list[Job]:
        """Submit jobs, all of them or none, and return them with their ids.

        Raises:
            QueueError: The table cannot be written.
            EngineUnreachable: The engine takes none. They are stored, as the error says, and a
                worker hands them in later.
        """
        named = [job.with_name() for job in jobs]
        rows = [job.as_dict() for job in named]
        tickets = self._table.submit(rows, delay=delay)
        try:
            self._intake.hand_in(tickets)
        except FerruleError as error:
            runs = ", ".join(f"`{ticket.run}`" for ticket in tickets[:3])
            raise error.reword(
                f"{error.detail}. Stored all the same: {runs}{', ...' if tickets[3:] else ''}",
                f"a worker hands them in within minutes once this is mended: {error.hint}",
            ) from error
        return named

    def resubmit(self) -> int:
        """Hand all open jobs in again, after the engine has lost them or another took its place.

        Those that are worked now are left out. One that the engine has all the same comes twice,
        which is harmless.

        Returns:
            How many there were.
        """
        tickets = self._table.unhand()
        self._intake.hand_in(tickets)
        return len(tickets)

    def outcome(self, run: str) -> dict[str, Any]:
        """Wait for a job's outcome (`build_outcome`). Raises UnknownJob."""
        while True:
            listening = self._listen()
            if listening is not None:
                # Before the table is read: what ends after that is announced.
                self._table.mark_awaited(run)
            found = self._find(run)
            if found.outcome is not None:
                return found.outcome
            if listening is not None:
                self._wait_for(listening, build_announcement(run))
            else:
                time.sleep(POLL_SECONDS)

    def cancel(self, run: str) -> None:
        """Stop a job. Raises UnknownJob.

        A waiting job is never started; the run of one that is being worked ends as cancelled, with
        a result for every call, when its worker renews its leases: within some seconds. If its
        worker is gone, that is up to the worker that gets the job next.
        """
        job = self._find(run).job
        outcome = build_outcome(job, "cancelled", detail="the job was cancelled")
        ended = self._table.cancel(run, outcome)
        if isinstance(self._intake.engine, WithdrawingEngine):
            # A worker would find that it has ended, too.
            with suppress(EngineUnreachable):
                ask_engine(self._intake.engine.withdraw(ended))

    def _find(self, run: str) -> JobState:
        found = self._table.find(run)
        if found is None:
            raise UnknownJob(f"there is no job `{run}`", hint="`ferrule submit --list` lists them")
        return found

    def recent(self, limit: int = 20) -> list[JobState]:
        """Return jobs, the newest first."""
        return self._table.list_recent(limit)

    def measure(self) -> JobFigures:
        """Count the jobs that have not ended."""
        return self._table.measure()

    def schedule(self, name: str, cron: str, job: Job) -> None:
        """Submit the job repeatedly, at the times of a cron expression.

        The expression is in UTC and has five fields, or six with seconds first. Each time is a new
        run, in a new session unless the job names one. A schedule of the same name is replaced.
        Times at which no worker runs are skipped. Raises ConfigError.
        """
        if not name.strip():
            raise ConfigError("a schedule needs a name", hint="use `--cron 'nightly=0 3 * * *'`")
        if job.run:
            raise ConfigError("a scheduled job gets a new id each time", hint="leave its id out")
        now = datetime.now(UTC)
        due = find_next_time(cron, now)
        # Nothing is stored if the ids of its jobs cannot be used.
        replace(job, run=build_run_id(name, due))
        self._table.schedule(name, cron, job.as_dict(), due)
        submit_scheduled(self._intake, name, job.as_dict(), due, now)

    def unschedule(self, name: str) -> None:
        """Remove a schedule."""
        self._table.unschedule(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The end of a `with` block does."""
        self._hang_up()
        self._opened.close()

    # ---- announcements

    def _listen(self) -> Connection[Any] | None:
        """Listen for the ends of jobs. Return None if they will not be heard of."""
        import psycopg

        if self._table.is_pooled:
            return None
        if self._listening is not None and not self._listening.closed:
            return self._listening
        try:
            self._listening = psycopg.connect(self._url, autocommit=True, connect_timeout=5)
            self._listening.execute(f"LISTEN {OUTCOME_CHANNEL}".encode())
        except psycopg.Error:
            self._hang_up()
        return self._listening

    def _wait_for(self, listening: Connection[Any], announcement: str) -> None:
        """Wait until a job's end is announced, but look at the table now and then."""
        import psycopg

        try:
            for told in listening.notifies(timeout=LOOK_SECONDS):
                if told.payload == announcement:
                    return
        except psycopg.Error:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._listening is not None:
            self._listening.close()
        self._listening = None


def libpq_url(database: str) -> str:
    """Return the URL in the form of libpq. Raises ConfigError if it is not a PostgreSQL URL."""
    for start in ("postgresql+psycopg://", "postgresql://", "postgres://"):
        if database.startswith(start):
            return f"postgresql://{database.removeprefix(start)}"
    raise ConfigError(
        "the database of jobs is PostgreSQL", hint="use `postgresql://user@host/database`"
    )
