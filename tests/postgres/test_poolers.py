"""A pooler between Ferrule and the server: what it shares with other programs is left as it was."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import psycopg
import pytest
from bouncer import look_at, run_bouncer
from cluster import Cluster
from faulty import Faulty

from ferrule import Agent, Scripted, Storage
from ferrule.core.errors import JournalError
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.engine.distributed.engines import EngineUnreachable
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.jobs import Jobs
from ferrule.engine.distributed.worker import Worker
from ferrule.models.scripted import says
from ferrule.storage.journal.postgres import PostgresJournal
from ferrule.storage.journal.postgres_connection import PostgresConnection
from ferrule.storage.journal.protocols import Journal

ME = Identity("t", "u", "s1", "r")
SHOWN = (
    "SELECT name, setting, reset_val FROM pg_settings"
    " WHERE name IN ('statement_timeout', 'lock_timeout') ORDER BY name"
)


def connect(dsn: str, schema: str) -> PostgresConnection:
    return PostgresConnection(
        dsn, part="journal", kind=JournalError, prefix="journal", schema=schema
    )


def test_behind_a_pooler_nothing_is_set_and_nothing_prepared(faulty: Faulty, schema: str) -> None:
    faulty.refuses_options = True
    with PostgresJournal(faulty.dsn, schema=schema) as journal:
        for number in range(20):
            journal.append("s1", "r", [Noticed("test", str(number))], identity=ME)
        shown = journal._db.query(SHOWN, doing="looking")  # pyright: ignore[reportPrivateUsage]
        prepared = journal._db.query(  # pyright: ignore[reportPrivateUsage]
            "SELECT count(*) FROM pg_prepared_statements", doing="looking"
        )
    assert shown == [("lock_timeout", "0", "0"), ("statement_timeout", "0", "0")]
    assert prepared == [(0,)]


def test_a_connection_of_our_own_has_the_bounds_from_its_beginning(dsn: str, schema: str) -> None:
    connection = connect(dsn, schema)
    try:
        shown = connection.query(SHOWN, doing="looking")
    finally:
        connection.close()
    # `RESET ALL` and `DISCARD ALL` keep what a connection began with.
    assert shown == [("lock_timeout", "10000", "10000"), ("statement_timeout", "10000", "10000")]


def test_options_of_the_address_hold_beside_ours(dsn: str, schema: str) -> None:
    connection = connect(f"{dsn} options='-c work_mem=5MB'", schema)
    try:
        rows = connection.query("SHOW work_mem", doing="looking")
        assert connection.query(SHOWN, doing="looking")[1][1] == "10000"
    finally:
        connection.close()
    assert rows == [("5MB",)]


# ---- PgBouncer itself, whose one server connection all clients share


@pytest.fixture(params=["extra_float_digits", "options"], ids=["refuses options", "drops options"])
def pooled(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database behind it."""
    name = f"pooled_{cluster.free_name()}"
    cluster.sql(f"CREATE DATABASE {name}")
    with run_bouncer(cluster, ignored=request.param) as place:
        yield f"postgresql:///{name}?{place}"


def make(job: Job, journal: Journal) -> Agent:
    storage = Storage(journal=journal, tenant=job.tenant, user=job.user)
    return Agent(Scripted([says("done")]), storage=storage)


@pytest.mark.proves("scale.pooled")
def test_jobs_are_worked_through_pgbouncer_and_its_connection_is_left_as_it_was(
    pooled: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = look_at(pooled)
    assert before["prepared"] == before["channels"] == before["locks"] == []
    jobs = Jobs(pooled)
    named = jobs.submit_all([Job("x", tenant=f"t{n % 3}") for n in range(12)])
    worker = Worker(pooled, make, per_tenant=2)
    with caplog.at_level(logging.WARNING):
        working = threading.Thread(target=worker.run)
        working.start()
        try:
            outcomes = [jobs.outcome(job.run) for job in named]
        finally:
            worker.stop()
            working.join(60)
    jobs.close()
    assert [outcome["stop"] for outcome in outcomes] == ["done"] * 12
    assert not working.is_alive()
    assert look_at(pooled) == before, "the same server connection, as it was"
    assert "behind a pooler" in caplog.text and "direct address" in caplog.text


@pytest.mark.proves("scale.pooled")
def test_an_engine_that_listens_refuses_to_work_behind_pgbouncer(pooled: str) -> None:
    with pytest.raises(EngineUnreachable, match="which a pooler shares") as refused:
        Jobs(pooled, engine="pgqueuer")
    assert "direct address" in refused.value.hint
    with psycopg.connect(pooled, autocommit=True) as db:
        assert db.execute("SELECT to_regclass('pgqueuer')").fetchone() == (None,)


@pytest.mark.proves("scale.pooled")
def test_a_pooler_whose_server_is_away_is_told_in_one_line(cluster: Cluster) -> None:
    with run_bouncer(cluster) as place, pytest.raises(JournalError, match="pooled_none") as refused:
        journal = PostgresJournal(f"postgresql:///pooled_none?{place}")
        journal.append("s1", "r", [Noticed("test", "x")], identity=ME)
    assert "cannot be reached" in str(refused.value)
