"""Schedules: what happens to the jobs that wait for a time of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from cluster import Cluster

pytest.importorskip("psycopg", reason="needs the extra `scale`")

import psycopg

from ferrule.core.errors import ConfigError
from ferrule.engine.distributed.engines import Engine, Ticket
from ferrule.engine.distributed.handing_in import Intake
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.jobs import Jobs
from ferrule.engine.distributed.outcomes import OutcomeTable
from ferrule.engine.distributed.schedules import begin_scheduled
from ferrule.engine.distributed.worker import tend
from ferrule.storage.journal.postgres import PostgresJournal

NIGHTLY = "0 3 * * *"


class Listed(Engine):
    """Remembers what it was told of."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    async def prepare(self) -> None:
        """Nothing is needed."""

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        self.runs += [ticket.run for ticket in tickets]

    async def work(self, *rest: object, **more: object) -> None:
        """Nobody works."""


@pytest.fixture
def url(cluster: Cluster) -> str:
    name = f"schedules_{cluster.free_name()}"
    cluster.sql(f"CREATE DATABASE {name}")
    return f"postgresql:///{name}?host={cluster.folder}&user=ferrule"


@pytest.fixture
def engine() -> Listed:
    return Listed()


@pytest.fixture
def jobs(url: str, engine: Listed) -> Iterator[Jobs]:
    with Jobs(url, engine=engine) as opened:
        yield opened


@pytest.fixture
def table(url: str, jobs: Jobs) -> Iterator[OutcomeTable]:
    with PostgresJournal(url) as journal:
        journal.find_known([])
    opened = OutcomeTable(url)
    yield opened
    opened.close()


def waiting(jobs: Jobs) -> list[tuple[str, str]]:
    return [(one.job.text, one.job.tenant) for one in jobs.recent() if one.state == "waiting"]


def test_a_schedule_that_is_replaced_submits_the_new_job_at_its_next_time(
    jobs: Jobs, engine: Listed
) -> None:
    jobs.schedule("nightly", NIGHTLY, Job("old", tenant="acme"))
    jobs.schedule("nightly", NIGHTLY, Job("new", tenant="other"))
    assert waiting(jobs) == [("new", "other")]
    assert len(engine.runs) == 2, "the engine is told of it once more"
    jobs.schedule("nightly", "0 4 * * *", Job("later", tenant="other"))
    assert waiting(jobs) == [("later", "other")]


def test_a_schedule_that_is_removed_leaves_no_job_that_waits(jobs: Jobs) -> None:
    jobs.schedule("nightly", NIGHTLY, Job("x"))
    jobs.schedule("hourly", "0 * * * *", Job("y"))
    jobs.unschedule("nightly")
    assert [text for text, _ in waiting(jobs)] == ["y"]


def test_cancelling_the_next_job_of_a_schedule_leaves_out_this_one_only(
    jobs: Jobs, table: OutcomeTable, engine: Listed
) -> None:
    jobs.schedule("nightly", NIGHTLY, Job("x"))
    [first] = engine.runs
    jobs.cancel(first)
    tend(Intake(table, engine), 30)
    [_, second] = engine.runs
    assert first < second
    assert jobs.outcome(first)["stop"] == "cancelled"
    assert len(waiting(jobs)) == 1
    tend(Intake(table, engine), 30)
    assert len(engine.runs) == 2
    jobs.cancel(second)
    jobs.schedule("nightly", NIGHTLY, Job("x"))
    assert engine.runs[2:] == [first], "whoever schedules it again wants it again"


def test_a_schedule_without_a_job_gets_one_for_its_next_time(
    jobs: Jobs, table: OutcomeTable, engine: Listed, url: str
) -> None:
    jobs.schedule("nightly", NIGHTLY, Job("x"))
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DELETE FROM ferrule.outcomes")
    tend(Intake(table, engine), 30)
    assert engine.runs == [engine.runs[0]] * 2
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DELETE FROM ferrule.outcomes")
        db.execute("UPDATE ferrule.schedules SET due = due - interval '10 days'")
    tend(Intake(table, engine), 30)
    assert engine.runs == [engine.runs[0]] * 3, "times that are past are left out"
    tend(Intake(table, engine), 30)
    assert len(engine.runs) == 3


def test_a_job_of_a_schedule_that_was_begun_is_not_replaced(
    jobs: Jobs, table: OutcomeTable, engine: Listed
) -> None:
    jobs.schedule("nightly", NIGHTLY, Job("old"))
    [run] = engine.runs
    beginning = table.begin(run, "w", per_tenant=None)
    assert begin_scheduled(Intake(table, engine), run, beginning)
    jobs.schedule("nightly", NIGHTLY, Job("new"))
    jobs.unschedule("nightly")
    found = table.find(run)
    assert found is not None and (found.state, found.job.text) == ("working", "old")


def test_a_schedule_whose_jobs_could_have_no_id_is_refused_and_not_stored(
    jobs: Jobs, table: OutcomeTable
) -> None:
    with pytest.raises(ConfigError, match="unusable name"):
        jobs.schedule("n" * 1000, NIGHTLY, Job("x"))
    assert table.find_stopped_schedules() == []
