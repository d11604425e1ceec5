"""Telling the engine of jobs: new ones, those that may not begin yet, and those left behind.

The table says of each job whether the engine knows of it (`handed`). The engine is told first and
the table after that, so a job is told of twice rather than not at all. One that may not begin yet
is forgotten by the engine, and waits in the memory of the worker that it came to (`SetAside`);
should that worker die, others find it in the table (`worker.tend`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.engine.threads import Threads

from .engines import RETRY_SECONDS, Engine, Ticket, ask_engine
from .outcomes import OutcomeTable

MOST_JOBS = 100
"""Jobs that the engine is told of before the table is: so many are told of again at the most."""
DUE_SECONDS = 0.25
"""Seconds between two looks at which of the jobs that were set aside are due."""

_run_in_thread = Threads().run


@frozen
class Intake:
    """Where jobs go: the table that keeps them, and the engine that hands them out."""

    table: OutcomeTable
    engine: Engine

    def hand_in(self, tickets: Sequence[Ticket]) -> None:
        """Tell the engine of jobs, and the table that it knows of them."""
        for start in range(0, len(tickets), MOST_JOBS):
            part = tickets[start : start + MOST_JOBS]
            ask_engine(self.engine.submit(part))
            self.table.mark_handed(part)


class SetAside:
    """Jobs that came to this worker and may not begin yet, until they are due."""

    def __init__(self, intake: Intake, leaving: asyncio.Event) -> None:
        self._intake = intake
        self._leaving = leaving
        self._waiting: dict[str, tuple[float, Ticket]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, ticket: Ticket, seconds: float) -> None:
        """Hand a job in again after so many seconds."""
        due = asyncio.get_running_loop().time() + seconds
        self._waiting[ticket.run] = (due, ticket)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    def hasten(self, session: str, tenant: str) -> None:
        """Hand in now what waits for a job of this session or a place of this tenant."""
        here = [ticket for _, ticket in self._waiting.values()]
        first = sorted((one for one in here if one.tenant == tenant), key=lambda one: one.priority)
        for ticket in (*first[:1], *(one for one in here if one.session == session)):
            self._waiting[ticket.run] = (0, ticket)

    async def finish(self, seconds: float) -> None:
        """Wait until all of them are handed in, which they are once the worker leaves.

        After so many seconds they are left to other workers.
        """
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)

    async def _work(self) -> None:
        while self._waiting:
            await wait_until(self._leaving, DUE_SECONDS)
            due = self._take_due()
            try:
                await _run_in_thread(partial(self._intake.hand_in, due))
            except FerruleError:
                # The table or the engine is away. Other workers find them once this one has left.
                if self._leaving.is_set():
                    return
                for ticket in due:
                    self.add(ticket, RETRY_SECONDS)

    def _take_due(self) -> list[Ticket]:
        now = math.inf if self._leaving.is_set() else asyncio.get_running_loop().time()
        due = [run for run, (at, _) in self._waiting.items() if at <= now]
        return [self._waiting.pop(run)[1] for run in due]


async def wait_until(event: asyncio.Event, seconds: float) -> None:
    """Wait until something has happened, but no longer than so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
