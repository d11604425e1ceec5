"""A job, and the outcome that it ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Any
from uuid import uuid4

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import Event, ModelFailed, RunFinished, RunStarted
from ferrule.core.value_class import options
from ferrule.storage.journal.postgres_connection import is_storable

MAX_PRIORITY = 2**31 - 1
MAX_NAME_BYTES = 1000
"""Bytes of an id, tenant or user: what an index of PostgreSQL and the engines take."""


@options
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
        for name in (self.run, self.session, self.tenant, self.user):
            if not is_storable(name) or len(name.encode()) > MAX_NAME_BYTES:
                raise ConfigError(
                    f"unusable name {name[:40]!r}",
                    hint=f"ids, tenants and users have up to {MAX_NAME_BYTES} bytes and no NUL",
                    code="job_name",
                )
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
        """Return the job as it is stored."""
        return asdict(self)

    @staticmethod
    def of(values: Mapping[str, Any]) -> Job:
        """Load a job that was stored; fields of a newer version are dropped."""
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


class JobEnd:
    """Finds how a job ends in the events of its run.

    Attributes:
        job: The job.
        has_begun: Whether its run has started.
        outcome: Its outcome (`build_outcome`), once that is in the journal or in the table.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.has_begun = False
        self.outcome: dict[str, Any] | None = None
        self._is_typed = False
        self._failed: ModelFailed | None = None

    def is_of(self, tenant: str, user: str, session: str) -> bool:
        """Whether a session is that of the job, and not one of somebody else with its name."""
        return (tenant, user, session) == (self.job.tenant, self.job.user, self.job.session)

    def read(self, event: Event) -> dict[str, Any] | None:
        """Read the next event. Return the outcome if the run ends with it."""
        if isinstance(event, RunStarted):
            self.has_begun = True
            self._is_typed = event.output_request is not None
        elif isinstance(event, ModelFailed):
            self._failed = event
        elif isinstance(event, RunFinished) and self.has_begun:
            return self._describe(event)
        return None

    def note(self, outcome: dict[str, Any] | None) -> None:
        """Keep the outcome: it is in the journal or in the table."""
        self.outcome = outcome

    def _describe(self, end: RunFinished) -> dict[str, Any]:
        used = {"input": end.usage.input, "output": end.usage.output, "cached": end.usage.cached}
        outcome = build_outcome(
            self.job, end.stop, text=end.text, code=end.code, detail=end.detail, **used
        )
        failed = self._failed
        if failed is not None and failed.code == end.code:
            outcome["error"] = ProviderError(
                failed.detail,
                code=failed.code,
                status=failed.status,
                retryable=failed.retryable,
                retry_after=failed.retry_after,
            ).to_fields()
        if self._is_typed and end.stop == "done":
            outcome["output"] = parse_json(end.output_json)
        return outcome
