"""Temporal: jobs on a Temporal server, one workflow with one activity each.

`temporal:HOST:PORT`, or `temporal` alone with Temporal's own variables and profile
(TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TLS). The workflow's id is that of the run.
The server shares places fairly among tenants where it can; the order within a session is Ferrule's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import Priority, RetryPolicy, WorkflowIDConflictPolicy
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from ferrule.engine.distributed.engines import Do, Engine, EngineOptions, Ticket, reach

from .coroutines import repeat, run_with

TASK_QUEUE, ACTIVITY, WORKFLOW = "ferrule", "ferrule-run", "ferrule-job"
MOST_DAYS = 365
HINT = "is the server up? Name it: `--engine temporal:HOST:7233`"
# Polls of a frozen worker are still answered, so a job may go to it several times.
_RETRIES = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1)


@workflow.defn(name=WORKFLOW)
class JobWorkflow:
    """A job: the activity, until it has returned."""

    @workflow.run
    async def run(self, run: str, lost_after: float) -> None:
        await workflow.execute_activity(
            ACTIVITY,
            run,
            heartbeat_timeout=timedelta(seconds=lost_after),
            start_to_close_timeout=timedelta(days=MOST_DAYS),
            retry_policy=_RETRIES,
        )


class TemporalEngine(Engine):
    """The engine of one Temporal namespace."""

    def __init__(self, options: EngineOptions) -> None:
        self._lost_after = options.lost_after
        self._connecting: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
        if options.address or "target_host" not in self._connecting:
            self._connecting["target_host"] = options.address or "localhost:7233"

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Client]:
        whose = f"Temporal at {self._connecting['target_host']}"
        with reach(whose, RuntimeError, RPCError, hint=HINT):
            yield await Client.connect(**self._connecting)

    async def prepare(self) -> None:
        async with self._connect():
            pass

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        async with self._connect() as client:
            for ticket in tickets:
                await client.start_workflow(
                    WORKFLOW,
                    args=[ticket.run, self._lost_after],
                    id=ticket.run,
                    task_queue=TASK_QUEUE,
                    start_delay=timedelta(seconds=ticket.delay) if ticket.delay else None,
                    # A worker hands in again what it leaves, before it has returned.
                    id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
                    priority=Priority(
                        priority_key=min(5, ticket.priority + 1),
                        # The server takes so many bytes, not characters.
                        fairness_key=ticket.tenant.encode()[:64].decode(errors="ignore"),
                    ),
                )

    async def withdraw(self, tickets: Sequence[Ticket]) -> None:
        async with self._connect() as client:
            for ticket in tickets:
                # It may have ended by now.
                with suppress(RPCError):
                    await client.get_workflow_handle(ticket.run).terminate("the job was cancelled")

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        @activity.defn(name=ACTIVITY)
        async def work(run: str) -> None:
            async with run_with(repeat(activity.heartbeat, self._lost_after / 3)):
                await do(run)

        async with self._connect() as client:
            worker = Worker(
                client,
                task_queue=TASK_QUEUE,
                workflows=[JobWorkflow],
                activities=[work],
                max_concurrent_activities=concurrency,
                # A worker that leaves has its runs left before that. Where it stops by itself, runs
                # go on, and their jobs come again.
                graceful_shutdown_timeout=timedelta(minutes=1),
                workflow_runner=UnsandboxedWorkflowRunner(),
            )
            async with worker:
                await stop.wait()
