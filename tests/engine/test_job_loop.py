"""The loop of a worker and its queue: when outcomes are given, and when the queue is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ferrule.engine.distributed import worker
from ferrule.engine.distributed.draining import make_draining
from ferrule.engine.distributed.jobs import Job
from ferrule.engine.distributed.worker import JobLoop
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal

SECONDS = 20
LONG = 3600.0


class Queue:
    """A queue in memory: what was given at once, and what waits."""

    def __init__(self, waiting: int) -> None:
        self.waiting = [Job("go", run=f"run-{n}").with_name().as_dict() for n in range(waiting)]
        self.given: list[list[str]] = []

    def exchange(
        self,
        name: str,
        ended: Mapping[str, Any],
        known: Sequence[str],
        free: int,
        per_tenant: int | None,
    ) -> tuple[list[tuple[dict[str, Any], int]], list[str]]:
        if ended:
            self.given.append(sorted(ended))
        taken, self.waiting = self.waiting[:free], self.waiting[free:]
        return [(job, 1) for job in taken], []

    def close(self) -> None:
        """Nothing is open."""


class Gates:
    """Jobs that end when they are let go."""

    def __init__(self) -> None:
        self.open: dict[str, asyncio.Event] = {}

    async def work(self, job: Job, *rest: object, is_new: bool) -> dict[str, Any]:
        await self.open.setdefault(job.run, asyncio.Event()).wait()
        return {"stop": "done"}

    async def let_go(self, *runs: str) -> None:
        for run in runs:
            while run not in self.open:
                await asyncio.sleep(0)
            self.open[run].set()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with SqliteJournal(tmp_path / "journal.db") as opened:
        yield opened


async def work(
    journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
    jobs: int,
    places: int,
    *steps: tuple[Sequence[str], int],
) -> Queue:
    """Work jobs: let some go, and wait until so many outcomes were given, step by step."""
    queue = Queue(jobs)
    gates = Gates()
    monkeypatch.setattr(worker, "JobQueue", lambda database: queue)
    monkeypatch.setattr(worker, "run_job", gates.work)
    made: Any = None
    loop = JobLoop(
        "w", "", make_draining(journal), made, concurrency=places, per_tenant=None, grace=0
    )
    running = asyncio.create_task(loop.run())
    async with asyncio.timeout(SECONDS):
        for runs, given in steps:
            await gates.let_go(*runs)
            # Long enough for an outcome to be given that should have been held back.
            for _ in range(50):
                await asyncio.sleep(0.002)
            while sum(map(len, queue.given)) < given:
                await asyncio.sleep(0.002)
        loop.stop()
        await running
    return queue


@pytest.mark.proves("scale.gathered-outcomes")
def test_outcomes_are_given_together_while_no_job_waits_and_at_once_when_nothing_works(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GATHER_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(worker, name, LONG)
    steps = [(["run-0"], 0), (["run-1", "run-2"], 0), (["run-3"], 4)]
    queue = asyncio.run(work(journal, monkeypatch, 4, 9, *steps))
    assert queue.given == [["run-0", "run-1", "run-2", "run-3"]]


@pytest.mark.proves("scale.gathered-outcomes")
def test_outcomes_that_were_gathered_are_given_after_a_while(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", LONG)
    # First nothing, until the queue was looked at for the last time.
    steps = [([], 0), (["run-0", "run-1"], 2), (["run-2"], 3)]
    queue = asyncio.run(work(journal, monkeypatch, 3, 9, *steps))
    assert [run for runs in queue.given for run in runs] == ["run-0", "run-1", "run-2"]


@pytest.mark.proves("scale.gathered-outcomes")
def test_a_job_that_waits_gets_a_place_as_soon_as_there_is_one(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GATHER_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(worker, name, LONG)
    steps = [(["run-0"], 1), (["run-2"], 2), (["run-1"], 3)]
    queue = asyncio.run(work(journal, monkeypatch, 3, 2, *steps))
    assert queue.given == [["run-0"], ["run-2"], ["run-1"]]
