"""Temporal: jobs on a Temporal server, one workflow with one activity each.

`temporal:HOST:PORT`, or `temporal` alone with Temporal's own variables and profile
(TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TLS). The workflow's id is that of the run.
The server shares places fairly among tenants where it can; the order within a session is Ferrule's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import Priority, RetryPolicy, WorkflowIDConflictPolicy
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from ferrule.engine.distributed.engines import Do, EngineOptions, EngineUnreachable, Ticket

from .blocking import run_blocking

TASK_QUEUE, ACTIVITY, WORKFLOW = "ferrule", "ferrule-run", "ferrule-job"
RETRY_SECONDS = 5.0
MOST_DAYS = 365
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


class TemporalEngine:
    """The engine of one Temporal namespace."""

    keeps_order = False

    def __init__(self, options: EngineOptions) -> None:
        self._lost_after = options.lost_after
        self._connecting: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
        if options.address or "target_host" not in self._connecting:
            self._connecting["target_host"] = options.address or "localhost:7233"

    async def _connect(self) -> Client:
        try:
            return await Client.connect(**self._connecting)
        except (RuntimeError, RPCError) as error:
            raise self._unreachable(error) from error

    def prepare(self) -> None:
        run_blocking(self._connect())

    def submit(self, tickets: Sequence[Ticket], *, delay: float = 0) -> None:
        run_blocking(self._submit(tickets, delay))

    async def _submit(self, tickets: Sequence[Ticket], delay: float) -> None:
        client = await self._connect()
        try:
            for ticket in tickets:
                await client.start_workflow(
                    WORKFLOW,
                    args=[ticket.run, self._lost_after],
                    id=ticket.run,
                    task_queue=TASK_QUEUE,
                    start_delay=timedelta(seconds=delay) if delay else None,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    priority=Priority(
                        priority_key=min(5, ticket.priority + 1), fairness_key=ticket.tenant[:60]
                    ),
                )
        except RPCError as error:
            raise self._unreachable(error) from error

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        @activity.defn(name=ACTIVITY)
        async def work(run: str) -> None:
            beating = asyncio.create_task(_beat(self._lost_after / 3))
            try:
                await do(run)
            except Exception as error:
                seconds = getattr(error, "seconds", RETRY_SECONDS)
                delay = timedelta(seconds=max(0.05, seconds))
                raise ApplicationError(str(error), next_retry_delay=delay) from error
            finally:
                beating.cancel()

        async with Worker(
            await self._connect(),
            task_queue=TASK_QUEUE,
            workflows=[JobWorkflow],
            activities=[work],
            max_concurrent_activities=concurrency,
            # A worker that leaves has its runs left before that.
            graceful_shutdown_timeout=timedelta(hours=1),
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            await stop.wait()

    def close(self) -> None:
        """Nothing stays open."""

    def _unreachable(self, error: Exception) -> EngineUnreachable:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return EngineUnreachable(
            f"Temporal at {self._connecting['target_host']} cannot be reached: {reason}",
            hint="is the server up? Name it: `--engine temporal:HOST:7233`",
            retryable=True,
        )


async def _beat(every: float) -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(every)
