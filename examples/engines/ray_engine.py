"""Jobs through an actor of a Ray cluster (`ray`; RAY_ADDRESS names it): a queue in memory.

Where it starts anew, it reads from the table of jobs which have not ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import psycopg
import ray

from ferrule.jobs import Do, Engine, EngineOptions, EngineUnreachable, Ticket

LEFT = "SELECT run FROM ferrule.outcomes WHERE handed AND ended IS NULL"


@ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)
class Waiting:
    """When each job is due: one that is worked is due again unless its worker renews it."""

    def __init__(self, database: str, lost_after: float) -> None:
        self._lost_after = lost_after
        with psycopg.connect(database) as db:
            self._due = dict.fromkeys((run for (run,) in db.execute(LEFT)), 0.0)

    def put(self, delays: dict[str, float]) -> None:
        self._due |= {run: time.time() + delay for run, delay in delays.items()}

    def take(self, count: int, working: list[str], ended: list[str]) -> list[str]:
        now = time.time()
        self._due = {run: at for run, at in self._due.items() if run not in ended}
        taken = [run for run, at in self._due.items() if at <= now and run not in working][:count]
        self._due |= {run: now + self._lost_after for run in (*taken, *working) if run in self._due}
        return taken


class RayEngine(Engine):
    def __init__(self, options: EngineOptions) -> None:
        self._options = options

    async def prepare(self) -> None:
        try:
            ray.init("auto", ignore_reinit_error=True, namespace="ferrule", log_to_driver=False)
        except ConnectionError as error:
            raise EngineUnreachable(f"Ray cannot be reached: {error}") from error

    def _find(self) -> Any:
        shared = Waiting.options(name="waiting", lifetime="detached", get_if_exists=True)
        return shared.remote(self._options.database, self._options.lost_after)

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        await self._find().put.remote({ticket.run: ticket.delay for ticket in tickets})

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        tasks: dict[str, asyncio.Task[None]] = {}
        while not stop.is_set() or tasks:
            over = [run for run, task in tasks.items() if task.done()]
            ended = [run for run in over if tasks.pop(run).exception() is None]
            free = 0 if stop.is_set() else concurrency - len(tasks)
            for run in await self._find().take.remote(free, list(tasks), ended):
                tasks[run] = asyncio.create_task(do(run))
            await asyncio.sleep(0.2)
