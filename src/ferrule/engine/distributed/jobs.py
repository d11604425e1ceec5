"""Jobs: one message for one session, in a queue; and how they are submitted, watched and cancelled.

    jobs = Jobs("postgresql://ferrule@db/ferrule")
    job = jobs.submit(Job("Tidy up the changelog", tenant="acme", user="ines"))
    jobs.outcome(job.run)      # waits; {"stop": "done", "text": ...}, as `build_outcome` makes it

The queue is a table (`job_queue`): submitting jobs is one statement, and a job is worked until it
has an outcome, whatever happens to workers. The key of a job is its run's id: submitting the same
job twice gives one run.

Not protected: whoever may write the queue's tables decides what workers do, for any tenant. Who may
submit what is for the program that calls `Jobs` to decide.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.value_class import frozen
from ferrule.storage.journal.postgres_connection import is_storable

from .cron import parse_cron
from .job_queue import JobQueue, StoredJob

MAX_PRIORITY = 2**31 - 1
POLL_SECONDS = 0.2
"""Seconds between two polls for an outcome."""
MAX_WORKERS = 20
"""A job is given up after this many workers ended while working it: it may be what ends them."""


class DistributedExtraMissing(FerruleError):
    """The extra `scale` is not installed."""

    code = "extra_missing"


class QueueUnreachable(FerruleError):
    """The database of the queue does not answer, or refuses the connection."""

    code = "queue_unreachable"


class UnknownJob(FerruleError):
    """No job with this id was submitted."""

    code = "job_unknown"


@frozen
class Job:
    """One message for a session.

    Attributes:
        text: The message.
        session: The session's id; a new one if empty.
        priority: 1 is first; 0 goes before all others.
        options: Settings by key, for workers that create their agents from settings.
        workspace: A folder on the worker's machine.
    """

    text: str
    session: str = ""
    run: str = ""
    tenant: str = "local"
    user: str = "worker"
    workspace: str = ""
    model: str = ""
    priority: int = 0
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not (self.tenant.strip() and self.user.strip()):
            raise ConfigError("a job needs a tenant and a user", code="identity_blank")
        names = (self.run, self.session, self.tenant, self.user)
        if not is_storable("".join(names)):
            raise ConfigError(f"unusable name in {names!r}", code="job_name")
        if not 0 <= self.priority <= MAX_PRIORITY:
            raise ConfigError(
                f"priority = {self.priority}", hint=f"use 0 to {MAX_PRIORITY}; 1 goes first"
            )

    def with_name(self) -> Job:
        """Return the job with ids, if it has none.

        A new session gets the id of its first run: the same key is the same session.
        """
        run = self.run or uuid4().hex
        return replace(self, run=run, session=self.session or run)

    def as_dict(self) -> dict[str, Any]:
        """Return the job as it is stored in the queue."""
        return asdict(self)

    @staticmethod
    def of(values: Mapping[str, Any]) -> Job:
        """Load a job from the queue; fields of a newer version are dropped."""
        known = {name: values[name] for name in Job.__dataclass_fields__ if name in values}
        return Job(**known)


def build_outcome(
    job: Job, stop: str, *, text: str = "", code: str = "", detail: str = "", **usage: int
) -> dict[str, Any]:
    """Build an outcome.

    `stop` is `done`, `limit`, `failed` or `cancelled`; `usage` counts the tokens of the run. The
    outcome of an agent with an `output_type` also has the JSON value as `output`; that of a run
    whose model gave no answer has `error`, with `code` and, if known, `status`, `retryable` and
    `retry_after` in seconds.
    """
    return {
        "stop": stop,
        "text": text,
        "code": code,
        "detail": detail,
        "session": job.session,
        "run": job.run,
        "usage": {"input": 0, "output": 0, "cached": 0, **usage},
    }


@frozen
class WaitingJob:
    """Summary of a job in the queue.

    `state` is `waiting`, `working`, `done`, `failed` or `cancelled`; `worker` is who works it.
    """

    run: str
    state: str
    tenant: str
    text: str
    worker: str


class Jobs:
    """The queue, for those who submit jobs. `database` is a PostgreSQL URL.

    Raises DistributedExtraMissing if the extra is missing, and QueueUnreachable.
    """

    def __init__(self, database: str) -> None:
        check_connection(database)
        self._queue = JobQueue(libpq_url(database))

    def submit(self, job: Job, *, delay: float = 0) -> Job:
        """Submit a job, and return it with its ids. `delay` is in seconds.

        A run that exists already stays as it is.
        """
        return self.submit_all([job], delay=delay)[0]

    def submit_all(self, jobs: Sequence[Job], *, delay: float = 0) -> list[Job]:
        """Submit jobs, all of them or none, and return them with their ids."""
        named = [job.with_name() for job in jobs]
        self._queue.submit([job.as_dict() for job in named], delay)
        return named

    def outcome(self, run: str) -> dict[str, Any]:
        """Wait for a job's outcome (`build_outcome`). Raises UnknownJob."""
        while True:
            found = self._find(run)
            if found.outcome is not None:
                return found.outcome
            if found.state == "cancelled":
                job = Job.of(found.job)
                return build_outcome(job, "cancelled", detail="the job was cancelled")
            time.sleep(POLL_SECONDS)

    def cancel(self, run: str) -> None:
        """Stop a job. Raises UnknownJob.

        A waiting job is never started; the run of one that is being worked ends as cancelled, with
        a result for every call, within about a second. If its worker is gone, the run stays open in
        its session until that is resumed.
        """
        self._find(run)
        self._queue.cancel(run)

    def _find(self, run: str) -> StoredJob:
        found = self._queue.find(run)
        if found is None:
            raise UnknownJob(f"there is no job `{run}`", hint="`ferrule submit --list` lists them")
        return found

    def recent(self, limit: int = 20) -> Iterator[WaitingJob]:
        """Return jobs, the newest first."""
        for found in self._queue.list_recent(limit):
            state = found.state
            if state == "ended":
                state = found.stop if found.stop in ("done", "cancelled") else "failed"
            job = Job.of(found.job)
            yield WaitingJob(found.run, state, job.tenant, job.text, found.worker)

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
        try:
            due = parse_cron(cron).next_after(datetime.now(UTC))
        except ValueError as error:
            raise ConfigError(
                f"schedule `{cron}`: {error}", hint="use `0 3 * * *`: each night at three"
            ) from error
        self._queue.schedule(name, cron, job.as_dict(), due)

    def unschedule(self, name: str) -> None:
        """Remove a schedule."""
        self._queue.unschedule(name)

    def close(self) -> None:
        """Close the connection."""
        self._queue.close()


def libpq_url(database: str) -> str:
    """Return the URL in the form of libpq. Raises ConfigError if it is not a PostgreSQL URL."""
    for start in ("postgresql+psycopg://", "postgresql://", "postgres://"):
        if database.startswith(start):
            return f"postgresql://{database.removeprefix(start)}"
    raise ConfigError("a queue lives in PostgreSQL", hint="use `postgresql://user@host/database`")


def check_connection(database: str) -> None:
    """Connect once, so that a problem is reported in one line.

    Raises DistributedExtraMissing, QueueUnreachable.
    """
    try:
        import psycopg
    except ImportError as error:
        raise DistributedExtraMissing(
            "queues need the extra `scale`", hint="pip install 'ferrule[scale]'"
        ) from error
    try:
        psycopg.connect(libpq_url(database), connect_timeout=5).close()
    except psycopg.Error as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise QueueUnreachable(
            f"the database of the queue cannot be reached: {first}",
            hint=(
                "is it up, and may this user connect? A password belongs into ~/.pgpass or "
                "PGPASSWORD"
            ),
            retryable=True,
        ) from error
