"""Jobs: one message for one session, in a queue; and how they are submitted, watched and cancelled.

    jobs = Jobs("postgresql://ferrule@db/ferrule")
    job = jobs.submit(Job("Tidy up the changelog", tenant="acme", user="ines"))
    jobs.outcome(job.run)      # waits; {"stop": "done", "text": ...}, as `build_outcome` makes it

The queue is DBOS's (durable workflows in PostgreSQL): submitting a job is one transaction, and a
job is worked until it has an outcome, whatever happens to workers. The run's id is the workflow's:
submitting the same job twice gives one run.

Not protected: whoever may write the queue's tables decides what workers do (jobs are stored
pickled), for any tenant. Who may submit what is for the program that calls `Jobs` to decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.value_class import frozen

if TYPE_CHECKING:
    from dbos import DBOSClient

QUEUE = "ferrule.runs"
WORKFLOW = "ferrule.run"
SCHEDULED = "ferrule.scheduled"
APPLICATION = "ferrule"
VERSION = "1"
"""Version of a job in the queue.

Workers take jobs of their own version only, so it changes with the form of a job and not with a
build.
"""
SCHEMA = "ferrule_queue"
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
    def of(values: dict[str, Any]) -> Job:
        """Load a job from the queue; fields of a newer version are dropped."""
        known = {name: values[name] for name in Job.__dataclass_fields__ if name in values}
        return Job(**known)


def queue_options(job: Job, delay: float = 0) -> dict[str, Any]:
    """Return how a named job is put into the queue."""
    return {
        "queue_name": QUEUE,
        "workflow_name": WORKFLOW,
        "workflow_id": job.run,
        "app_version": VERSION,
        "queue_partition_key": job.tenant,
        **({"priority": job.priority} if job.priority else {}),
        **({"delay_seconds": delay} if delay else {}),
    }


def build_outcome(
    job: Job, stop: str, *, text: str = "", code: str = "", detail: str = "", **usage: int
) -> dict[str, Any]:
    """Build an outcome.

    `stop` is `done`, `limit`, `failed` or `cancelled`; `usage` counts the tokens of the run. The
    outcome of an agent with an `output_type` also has the JSON value as `output`.
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


_STATES = {
    "ENQUEUED": "waiting",
    "DELAYED": "waiting",
    "PENDING": "working",
    "CANCELLED": "cancelled",
}


class Jobs:
    """The queue, for those who submit jobs. `database` is a PostgreSQL URL.

    Raises DistributedExtraMissing if the extra is missing, and QueueUnreachable.
    """

    def __init__(self, database: str) -> None:
        try:
            from dbos import DBOSClient, run_dbos_database_migrations
        except ImportError as error:
            raise DistributedExtraMissing(
                "queues need the extra `scale`", hint="pip install 'ferrule[scale]'"
            ) from error
        check_connection(database)
        address = driver_url(database)
        run_dbos_database_migrations(address, schema=SCHEMA)
        self._client: DBOSClient = DBOSClient(
            system_database_url=address, dbos_system_schema=SCHEMA, application_name=APPLICATION
        )

    def submit(self, job: Job, *, delay: float = 0) -> Job:
        """Submit a job, and return it with its ids. `delay` is in seconds.

        A run that exists already stays as it is.
        """
        job = job.with_name()
        handed: Any = queue_options(job, delay)
        self._client.enqueue(handed, job.as_dict())
        return job

    def outcome(self, run: str) -> dict[str, Any]:
        """Wait for a job's outcome (`build_outcome`). Raises UnknownJob."""
        from dbos import error as errors

        handle = self._handle(run)
        try:
            return handle.get_result(polling_interval_sec=POLL_SECONDS)
        except errors.DBOSAwaitedWorkflowCancelledError:
            return build_outcome(
                self._job(handle.get_status()), "cancelled", detail="the job was cancelled"
            )
        except errors.DBOSAwaitedWorkflowMaxRecoveryAttemptsExceeded:
            detail = f"given up: {MAX_WORKERS} workers ended while they worked it"
            return build_outcome(
                self._job(handle.get_status()), "failed", code="job_given_up", detail=detail
            )

    def cancel(self, run: str) -> None:
        """Stop a job. Raises UnknownJob.

        A waiting job is never started; the run of one that is being worked ends as cancelled, with
        a result for every call, within about a second. If its worker is gone, the run stays open in
        its session until that is resumed.
        """
        self._handle(run)
        self._client.cancel_workflow(run)

    def _handle(self, run: str) -> Any:
        from dbos import error as errors

        client: Any = self._client
        try:
            return client.retrieve_workflow(run)
        except errors.DBOSNonExistentWorkflowError as error:
            raise UnknownJob(
                f"there is no job `{run}`", hint="`ferrule submit --list` lists them"
            ) from error

    @staticmethod
    def _job(status: Any) -> Job:
        given: Any = status.input
        return Job.of(given["args"][0]) if given and given.get("args") else Job("?")

    def recent(self, limit: int = 20) -> Iterator[WaitingJob]:
        """Return jobs, the newest first."""
        for status in self._client.list_workflows(name=WORKFLOW, limit=limit, sort_desc=True):
            job, state = self._job(status), _STATES.get(status.status, "failed")
            if status.status == "SUCCESS":
                output: Any = status.output
                state = output["stop"] if output["stop"] in ("done", "cancelled") else "failed"
            yield WaitingJob(
                status.workflow_id, state, job.tenant, job.text, status.executor_id or ""
            )

    def schedule(self, name: str, cron: str, job: Job) -> None:
        """Submit the job repeatedly, at the times of a cron expression.

        The expression is in UTC and has five fields, or six with seconds first. Each time is a new
        run, in a new session unless the job names one. A schedule of the same name is replaced.
        Workers see it within five seconds; times at which no worker runs are skipped. Raises
        ConfigError.
        """
        if not name.strip():
            raise ConfigError("a schedule needs a name", hint="use `--cron 'nightly=0 3 * * *'`")
        if job.run:
            raise ConfigError("a scheduled job gets a new id each time", hint="leave its id out")
        schedule: Any = {
            "schedule_name": name,
            "workflow_name": SCHEDULED,
            "schedule": cron,
            "context": job.as_dict(),
        }
        from dbos import error as errors

        try:
            self._client.apply_schedules([schedule])
        except errors.DBOSException as error:
            raise ConfigError(
                f"schedule `{cron}`: {error}", hint="use `0 3 * * *`: each night at three"
            ) from error

    def unschedule(self, name: str) -> None:
        """Remove a schedule."""
        self._client.delete_schedule(name)

    def close(self) -> None:
        """Close the connections."""
        self._client.destroy()


def libpq_url(database: str) -> str:
    """Return the URL in the form of libpq. Raises ConfigError if it is not a PostgreSQL URL."""
    for start in ("postgresql+psycopg://", "postgresql://", "postgres://"):
        if database.startswith(start):
            return f"postgresql://{database.removeprefix(start)}"
    raise ConfigError("a queue lives in PostgreSQL", hint="use `postgresql://user@host/database`")


def driver_url(database: str) -> str:
    """Return the URL in the form of SQLAlchemy, with psycopg 3."""
    return libpq_url(database).replace("postgresql://", "postgresql+psycopg://", 1)


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
