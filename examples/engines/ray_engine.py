"""Jobs through an actor of a Ray cluster (`ray`; RAY_ADDRESS names it): a queue in memory.

Where it starts anew, it reads from the table of jobs which have not ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import psycopg
import ray

from ferrule.jobs import Do, Engine, EngineOptions, EngineUnreachable, Ticket

LEFT = "SELECT run FROM ferrule.outcomes WHERE handed AND ended IS NULL"


@ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)
class Waiting:
    """When each delivery is due: one that is worked is due again unless its worker renews it.

    A job may be handed in again before its delivery has ended, so these have names of their own.
    """

    def __init__(self, database: str, lost_after: float) -> None:
        self._lost_after = lost_after
        with psycopg.connect(database) as db:
            self._due = dict.fromkeys((run for (run,) in db.execute(LEFT)), 0.0)

    def put(self, delays: dict[str, float]) -> None:
        self._due |= {name: time.time() + delay for name, delay in delays.items()}

    def take(self, count: int, working: list[str], ended: list[str]) -> list[str]:
        now = time.time()
        self._due = {name: at for name, at in self._due.items() if name not in ended}
        due = [name for name, at in self._due.items() if at <= now and name not in working]
        taken = due[:count]
        self._due |= {
            name: now + self._lost_after for name in (*taken, *working) if name in self._due
        }
        return taken


class RayEngine(Engine):
    def __init__(self, options: EngineOptions) -> None:
        self._options = options

    async def prepare(self) -> None:
        # A process has one connection, which another engine in it may have closed. Ray would make
        # another one by itself, in a namespace where nobody works.
        try:
            if not ray.is_initialized():
                ray.init("auto", namespace="ferrule", log_to_driver=False)
        except ConnectionError as error:
            raise EngineUnreachable(f"Ray cannot be reached: {error}") from error

    def close(self) -> None:
        ray.shutdown()

    async def _ask(self, method: str, *values: Any) -> Any:
        await self.prepare()
        shared = Waiting.options(name="waiting", lifetime="detached", get_if_exists=True)
        waiting = shared.remote(self._options.database, self._options.lost_after)
        return await getattr(waiting, method).remote(*values)

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        delays = {f"{ticket.run} {uuid4().hex}": ticket.delay for ticket in tickets}
        await self._ask("put", delays)

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        tasks: dict[str, asyncio.Task[None]] = {}
        while not stop.is_set() or tasks:
            over = [name for name, task in tasks.items() if task.done()]
            ended = [name for name in over if tasks.pop(name).exception() is None]
            free = 0 if stop.is_set() else concurrency - len(tasks)
            for name in await self._ask("take", free, list(tasks), ended):
                tasks[name] = asyncio.create_task(do(name.partition(" ")[0]))
            await asyncio.sleep(0.2)
