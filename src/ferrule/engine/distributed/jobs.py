"""A job: one message for one session, as it waits in a queue; and how jobs are handed in, watched
and cancelled.

    jobs = Jobs("postgresql://ferrule@db/ferrule")
    job = jobs.submit(Job("Tidy up the changelog", tenant="acme", user="ines"))
    jobs.outcome(job.run)                                  # waits; {"stop": "done", "text": ...}, as `told` makes it

The queue is DBOS's (durable workflows in PostgreSQL): handing a job in is one transaction, and a
job is worked until it has an outcome, whatever becomes of workers. The run's id is the workflow's:
handing the same job in twice gives one run.

Not protected: whoever may write the queue's tables decides what workers do (jobs are kept pickled),
for any tenant. Who may hand in what is for the program that calls `Jobs` to say.
"""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dbos import DBOSClient

QUEUE = "ferrule.runs"
WORKFLOW = "ferrule.run"
SCHEDULED = "ferrule.scheduled"
APPLICATION = "ferrule"
VERSION = "1"
"""Of what stands in a queue. Workers take jobs of their own version only, so it changes with the
form of a job and not with a build.
"""
SCHEMA = "ferrule_queue"
MOST_PRIORITY = 2**31 - 1


POLL = 0.2
"""Seconds between two looks at a job that is waited for."""
MOST_WORKERS = 20
"""So many workers may end while they work a job; then it is given up, because it may be what ends
them.
"""


class NoScale(FerruleError):
    """The extra is not installed."""

    code = "extra_missing"


class QueueUnreachable(FerruleError):
    """The database of the queue does not answer, or refuses us."""

    code = "queue_unreachable"


class UnknownJob(FerruleError):
    """No job of this id was handed in."""

    code = "job_unknown"


@frozen
class Job:
    """`text` for a session, new if `session` is empty. `priority`: 1 is first, 0 goes before all
    others. `options` are settings by key (`limits.max_rounds`), for workers that assemble their
    agents from settings; `workspace` is a folder there.
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
        if not 0 <= self.priority <= MOST_PRIORITY:
            raise ConfigError(
                f"priority = {self.priority}", hint=f"use 0 to {MOST_PRIORITY}; 1 goes first"
            )

    def named(self) -> Job:
        """With ids, where it has none. A new session is called as its first run is: the same key is
        the same session.
        """
        run = self.run or uuid4().hex
        return replace(self, run=run, session=self.session or run)

    def as_dict(self) -> dict[str, Any]:
        """As it stands in the queue."""
        return asdict(self)

    @staticmethod
    def of(values: dict[str, Any]) -> Job:
        """From the queue; what a newer version added is dropped."""
        known = {name: values[name] for name in Job.__dataclass_fields__ if name in values}
        return Job(**known)


def options(job: Job, delay: float = 0) -> dict[str, Any]:
    """How a named job is put into the queue."""
    return {
        "queue_name": QUEUE,
        "workflow_name": WORKFLOW,
        "workflow_id": job.run,
        "app_version": VERSION,
        "queue_partition_key": job.tenant,
        **({"priority": job.priority} if job.priority else {}),
        **({"delay_seconds": delay} if delay else {}),
    }


def told(
    job: Job, stop: str, *, text: str = "", code: str = "", detail: str = "", **usage: int
) -> dict[str, Any]:
    """An outcome. `stop` is `done`, `limit`, `failed` or `cancelled`; `usage` counts the tokens of
    the run.
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
class Waiting:
    """A job at a glance. `state` is `waiting`, `working`, `done`, `failed` or `cancelled`; `worker`
    who has it.
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
    """The queue, from outside. `database` is a PostgreSQL URL. Raises NoScale if the extra is
    missing, and QueueUnreachable.
    """

    def __init__(self, database: str) -> None:
        try:
            from dbos import DBOSClient, run_dbos_database_migrations
        except ImportError as error:
            raise NoScale(
                "queues need the extra `scale`", hint="pip install 'ferrule[scale]'"
            ) from error
        reach(database)
        address = driver_url(database)
        run_dbos_database_migrations(address, schema=SCHEMA)
        self._client: DBOSClient = DBOSClient(
            system_database_url=address, dbos_system_schema=SCHEMA, application_name=APPLICATION
        )

    def submit(self, job: Job, *, delay: float = 0) -> Job:
        """Hand a job in; the same job with its ids. `delay` in seconds. A run that is there already
        stays as it is.
        """
        job = job.named()
        handed: Any = options(job, delay)
        self._client.enqueue(handed, job.as_dict())
        return job

    def outcome(self, run: str) -> dict[str, Any]:
        """What a job came to (`told`); waits until it has. Raises UnknownJob."""
        from dbos import error as errors

        handle = self._handle(run)
        try:
            return handle.get_result(polling_interval_sec=POLL)
        except errors.DBOSAwaitedWorkflowCancelledError:
            return told(self._job(handle.get_status()), "cancelled", detail="the job was cancelled")
        except errors.DBOSAwaitedWorkflowMaxRecoveryAttemptsExceeded:
            detail = f"given up: {MOST_WORKERS} workers ended while they worked it"
            return told(
                self._job(handle.get_status()), "failed", code="job_given_up", detail=detail
            )

    def cancel(self, run: str) -> None:
        """Stop a job. One that waits is never begun; the run of one that is worked ends as
        cancelled, with a result for every call, within about a second. Where its worker is gone,
        the run stays open in its session until that is resumed. Raises UnknownJob.
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

    def recent(self, limit: int = 20) -> Iterator[Waiting]:
        """Jobs, the newest first."""
        for status in self._client.list_workflows(name=WORKFLOW, limit=limit, sort_desc=True):
            job, state = self._job(status), _STATES.get(status.status, "failed")
            if status.status == "SUCCESS":
                output: Any = status.output
                state = output["stop"] if output["stop"] in ("done", "cancelled") else "failed"
            yield Waiting(status.workflow_id, state, job.tenant, job.text, status.executor_id or "")

    def schedule(self, name: str, cron: str, job: Job) -> None:
        """Hand the job in again and again, at the times of a cron expression (UTC; five fields, or
        six with seconds first), each time as a new run, in a new session unless it names one. A
        schedule of that name is replaced. Workers see it within five seconds; times at which no
        worker runs are left out. Raises ConfigError.
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
        """End a schedule."""
        self._client.delete_schedule(name)

    def close(self) -> None:
        """Give the connections back."""
        self._client.destroy()


def libpq_url(database: str) -> str:
    """The URL as libpq wants it. Raises ConfigError for what is no PostgreSQL."""
    for start in ("postgresql+psycopg://", "postgresql://", "postgres://"):
        if database.startswith(start):
            return f"postgresql://{database.removeprefix(start)}"
    raise ConfigError("a queue lives in PostgreSQL", hint="use `postgresql://user@host/database`")


def driver_url(database: str) -> str:
    """The URL as SQLAlchemy wants it, with psycopg 3."""
    return libpq_url(database).replace("postgresql://", "postgresql+psycopg://", 1)


def reach(database: str) -> None:
    """Connect once, so that what is wrong is said in a line. Raises NoScale, QueueUnreachable."""
    try:
        import psycopg
    except ImportError as error:
        raise NoScale(
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
