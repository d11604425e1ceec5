"""Sessions over one PostgreSQL journal share their writes: fewer of them, and nothing else differs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from faulty import AFTER, BEFORE, PASS, Faulty
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule import Agent, Storage, tool
from ferrule.core.errors import JournalError
from ferrule.core.events import Event, Noticed, RunFinished, RunStarted, Unknown
from ferrule.core.identity import Identity
from ferrule.engine.distributed import job_run
from ferrule.engine.distributed.job import Job
from ferrule.engine.session_log import SessionLog
from ferrule.engine.write_batching import WriteBatch
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.scripted import Scripted, ScriptedExchange, calls, says
from ferrule.storage.journal.postgres import PostgresJournal
from ferrule.storage.journal.postgres_append_statement import (
    APPEND_BATCHES,
    BatchEntry,
    build_values,
)
from ferrule.storage.journal.postgres_lease import RELEASE
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.context import Context

Sql = Callable[..., list[tuple[Any, ...]]]
LONG = 3600.0
RUNS = 24
SECONDS = 30


@pytest.fixture
def journal(dsn: str, schema: str) -> Iterator[PostgresJournal]:
    with PostgresJournal(dsn, schema=schema, lease_seconds=LONG, seconds=60) as one:
        yield one


@pytest.fixture
def other(dsn: str, schema: str) -> Iterator[PostgresJournal]:
    with PostgresJournal(dsn, schema=schema, lease_seconds=LONG, seconds=60) as one:
        yield one


def identity(session: str, run: str = "r1") -> Identity:
    return Identity("local", "me", session, run)


def note(text: str) -> list[Event]:
    return [Noticed("n", text)]


def texts(journal: PostgresJournal, session: str) -> list[str]:
    found = (record.event for record in journal.records(session))
    return [event.text for event in found if isinstance(event, Noticed)]


class Afresh(Scripted):
    """Each session has the script from its beginning."""

    def __init__(self) -> None:
        super().__init__([])

    def open(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ScriptedExchange:
        script = [calls(("pay", {"n": n})) for n in range(3)]
        return Scripted([*script, says("done")]).open(system, tools, options)


@tool(side_effect="external", risk="safe")
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


# ---- runs


async def test_runs_at_once_need_less_than_one_commit_each_and_are_whole(
    journal: PostgresJournal, sql: Sql
) -> None:
    # A run alone writes seven times, opens its session and releases it.
    agent = Agent(Afresh(), [pay], storage=Storage(journal=journal))
    await asyncio.gather(*(agent.run(f"go {n}") for n in range(RUNS)))
    ((commits, sessions),) = sql(
        "SELECT count(DISTINCT xmin::text), count(DISTINCT no) FROM records"
    )
    assert sessions == RUNS and commits < RUNS
    assert sql("SELECT 1 FROM sessions WHERE holder IS NOT NULL") == []
    for info in journal.sessions():
        journal.verify(info.session)
        kinds = [record.event.kind for record in journal.records(info.session)]
        assert kinds.count("call.started") == kinds.count("call.answered") == 3
        assert (kinds[0], kinds[-1]) == ("session.opened", "run.finished")


async def test_the_event_loop_goes_on_while_the_server_writes(
    journal: PostgresJournal, cluster: Any, schema: str
) -> None:
    import psycopg

    agent = Agent(Afresh(), [pay], storage=Storage(journal=journal))
    await agent.run("go")
    with psycopg.connect(cluster.dsn()) as locking:
        locking.execute(f'LOCK TABLE "{schema}".records IN ACCESS EXCLUSIVE MODE'.encode())
        running = asyncio.create_task(agent.run("go"))
        waiting = f"SELECT 1 FROM pg_locks WHERE NOT granted AND relation = '\"{schema}\".records'::regclass"
        while not locking.execute(waiting.encode()).fetchall():
            await asyncio.sleep(0)
        assert not running.done()
        locking.rollback()
    assert (await running).text == "done"


async def test_runs_cancelled_while_they_wait_for_a_write_are_settled_and_not_doubled(
    journal: PostgresJournal,
) -> None:
    agent = Agent(Afresh(), [pay], storage=Storage(journal=journal))
    for turns in range(1, 40, 3):
        tasks = [asyncio.create_task(agent.run("go")) for _ in range(6)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for info in journal.sessions():
        journal.verify(info.session)
        told = [record.event for record in journal.records(info.session)]
        begun = sum(isinstance(event, RunStarted) for event in told)
        assert begun == sum(isinstance(event, RunFinished) for event in told) == 1


async def test_what_a_handler_records_while_a_write_is_under_way_follows_it_once(
    journal: PostgresJournal,
) -> None:
    batch = WriteBatch.of(journal)
    log = SessionLog(journal, identity("s1"), batch)
    begun, go_on = threading.Event(), threading.Event()
    write = journal.append_batches

    def slow(batches: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)
        write(batches)

    journal.append_batches = slow  # type: ignore[method-assign]
    log.add(Noticed("n", "one"))
    writing = asyncio.create_task(log.flush_together())
    while not begun.is_set():
        await asyncio.sleep(0)
    threading.Timer(0, go_on.set).start()
    log.record(Noticed("n", "two"))
    await writing
    assert texts(journal, "s1") == ["one", "two"] and log.unwritten == []
    journal.verify("s1")


async def test_where_one_session_was_taken_over_only_its_run_fails(
    journal: PostgresJournal, other: PostgresJournal, sql: Sql
) -> None:
    taken: list[str] = []

    @tool(side_effect="external", risk="safe")
    async def pay(n: int, context: Context) -> str:
        """Pay."""
        if not taken:
            taken.append(context.identity.session)
            sql("UPDATE sessions SET until = '-infinity' WHERE session = %s", taken[0])
            other.lease(taken[0])
        return "paid"

    agent = Agent(Afresh(), [pay], storage=Storage(journal=journal))
    found = await asyncio.gather(*(agent.run("go") for _ in range(8)), return_exceptions=True)
    failed = [one for one in found if isinstance(one, BaseException)]
    assert len(failed) == 1 and "taken over" in str(failed[0])
    for info in journal.sessions():
        journal.verify(info.session)
        assert (info.state == "done") is (info.session != taken[0])


async def test_of_many_sessions_one_waits_for_a_server_that_is_gone(
    faulty: Faulty, schema: str
) -> None:
    with PostgresJournal(faulty.dsn, schema=schema, lease_seconds=LONG, seconds=60) as journal:
        batch = WriteBatch.of(journal)
        logs = [SessionLog(journal, identity(f"s{n}"), batch) for n in range(5)]
        for log in logs:
            log.add(Noticed("n", "one"))
        await asyncio.gather(*(log.flush_together() for log in logs))
        for log in logs:
            log.add(Noticed("n", "two"))
        faulty.plan.extend([AFTER, *[BEFORE] * 500])
        journal._db.seconds = 0.3
        found = await asyncio.gather(
            *(log.flush_together() for log in logs), return_exceptions=True
        )
        assert {getattr(one, "code", None) for one in found} == {"journal_unsure"}
        assert len(faulty.plan) > 480, "not each of them tried for as long"
        faulty.plan.clear()
        journal._db.seconds = 60
        await asyncio.gather(*(log.flush_together() for log in logs))
        for log in logs:
            assert texts(journal, log.identity.session) == ["one", "two"]
            journal.verify(log.identity.session)


# ---- the statement


NASTY = st.one_of(
    st.text(st.characters(), max_size=20),
    st.sampled_from(["\0", "\ud800", "\\u0000", '"', "\\", "'", "{}", "\n", "\u2028", "}" * 9]),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(NASTY, max_size=3), min_size=1, max_size=5))
def test_a_batch_has_the_same_hashes_as_in_sqlite_and_is_verified(
    dsn: str, schema: str, batches: list[list[str]]
) -> None:
    salt = uuid4().hex
    with (
        PostgresJournal(
            dsn, schema=schema, lease_seconds=LONG, seconds=60, now=lambda: 1.0
        ) as many,
        SqliteJournal(":memory:", now=lambda: 1.0) as one,
    ):
        for turn in range(2):
            given: list[tuple[Identity, list[Event]]] = [
                (
                    identity(f"{salt}-{n}", f"r{turn}"),
                    [event for text in batch for event in (Noticed("n", text), RunStarted(text))],
                )
                for n, batch in enumerate(batches)
            ]
            many.append_batches(given)
            one.append_batches(given)
        for n, batch in enumerate(batches):
            if batch:
                assert list(many.records(f"{salt}-{n}")) == list(one.records(f"{salt}-{n}"))
                many.verify(f"{salt}-{n}")
        many.release_batch([f"{salt}-{n}" for n in range(len(batches))])


def test_an_event_of_an_unknown_kind_keeps_its_name(journal: PostgresJournal) -> None:
    odd = Unknown('of "another" \\ kind, {1}', {"a": 1})
    journal.append_batches([(identity("s1"), [odd]), (identity("s2"), note("x"))])
    assert [record.event for record in journal.records("s1")] == [odd]
    journal.verify("s1")


def test_a_batch_is_all_or_nothing_where_one_session_has_moved(
    journal: PostgresJournal, other: PostgresJournal, sql: Sql
) -> None:
    journal.append_batches([(identity("s1"), note("a")), (identity("s2"), note("a"))])
    sql("UPDATE sessions SET until = '-infinity' WHERE session = 's2'")
    other.append("s2", "r1", note("theirs"), identity=identity("s2"))
    third = (identity("s3"), note("a"))
    with pytest.raises(JournalError) as refused:
        journal.append_batches([(identity("s1"), note("b")), (identity("s2"), note("b")), third])
    assert refused.value.code == "journal_conflict"
    assert texts(journal, "s1") == ["a"] and texts(journal, "s2") == ["a", "theirs"]
    assert [info.session for info in journal.sessions()] == ["s2", "s1"]
    with pytest.raises(JournalError, match="taken over"):
        journal.append("s2", "r1", note("b"), identity=identity("s2"))
    journal.append_batches([(identity("s1"), note("b")), third])
    for session in ("s1", "s2", "s3"):
        journal.verify(session)


def test_a_session_that_another_process_opened_is_not_opened_again(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    other.append("s1", "r1", note("theirs"), identity=identity("s1"))
    with pytest.raises(JournalError):
        journal.append_batches([(identity("s1"), note("ours")), (identity("s2"), note("ours"))])
    with pytest.raises(JournalError, match="in use"):
        journal.append("s1", "r1", note("ours"), identity=identity("s1"))
    assert texts(other, "s1") == ["theirs"]


async def test_a_session_that_was_opened_since_it_was_looked_for_is_not_opened_again(
    journal: PostgresJournal, other: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_run, "RETRY_SECONDS", 0)

    def make(job: Job, journal: Any) -> Agent:
        storage = Storage(journal=journal, tenant=job.tenant, user=job.user)
        return Agent(Afresh(), [pay], storage=storage)

    first = Job("go", run="r1", session="s1", tenant="local", user="me")
    second = Job("go", run="r2", session="s1", tenant="local", user="me")
    assert journal.find_known(["s1", "none", "\0"]) == set()
    told = await job_run.run_job(first, other, make, is_new=True)
    assert journal.find_known(["s1", "none", "\0"]) == {"s1"}
    # Both were looked for before the session was there.
    assert await job_run.run_job(first, journal, make, is_new=True) == told
    assert (await job_run.run_job(second, journal, make, is_new=True))["stop"] == "done"
    kinds = [record.event.kind for record in journal.records("s1")]
    assert [kinds.count(kind) for kind in ("session.opened", "run.finished")] == [1, 2]
    journal.verify("s1")


def test_sessions_are_looked_up_by_their_number_however_many_there_are(
    journal: PostgresJournal, cluster: Any, schema: str
) -> None:
    import psycopg

    for n in range(4):
        journal.append_batches([(identity(f"s{n}-{at}"), note("x")) for at in range(100)])
    entry = BatchEntry(
        "s", "r", ("local", "me"), 7, 1, (1, b"a"), (2, b"b"), [(2, 0, 0, "n", "{}", b"c")]
    )
    appended = {**build_values([entry] * 3), "holder": uuid4(), "seconds": 1}
    released = {"nos": [5, 6, 7], "holder": uuid4()}
    # As often as the driver runs a statement before the server plans it once for all values.
    plans: list[str] = []
    with psycopg.connect(cluster.dsn(), autocommit=True) as db:
        db.execute("SET plan_cache_mode = force_generic_plan")
        for statement, values in ((APPEND_BATCHES, appended), (RELEASE, released)):
            explain = f"EXPLAIN {statement.format(s=schema)}".encode()
            plans += [str(row[0]) for row in db.execute(explain, values).fetchall()]
    assert any("Index Scan using sessions_pkey" in row for row in plans)
    assert [row for row in plans if "Seq Scan on sessions" in row] == []


WORDS = st.lists(st.sampled_from([PASS, BEFORE, AFTER]), max_size=4)


@pytest.mark.proves("postgres.exactly-once")
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(1, 3), WORDS), min_size=1, max_size=4))
def test_however_the_line_breaks_each_event_of_a_batch_is_recorded_once(
    faulty: Faulty, schema: str, writes: list[tuple[int, list[str]]]
) -> None:
    salt = uuid4().hex
    faulty.plan.clear()
    with PostgresJournal(faulty.dsn, schema=schema, lease_seconds=LONG, seconds=60) as journal:
        journal.lease(f"{salt}-0")

        async def write() -> list[SessionLog]:
            batch = WriteBatch.of(journal)
            logs = [SessionLog(journal, identity(f"{salt}-{n}"), batch) for n in range(3)]
            for turn, (count, plan) in enumerate(writes):
                for log in logs[:count]:
                    log.add(Noticed("n", f"{turn}"))
                faulty.plan.extend(plan)
                await asyncio.gather(*(log.flush_together() for log in logs))
            faulty.plan.clear()
            return logs

        for n, log in enumerate(asyncio.run(write())):
            assert log.unwritten == []
            wanted = [str(turn) for turn, (count, _) in enumerate(writes) if count > n]
            if wanted:
                assert texts(journal, log.identity.session) == wanted
                journal.verify(log.identity.session)
