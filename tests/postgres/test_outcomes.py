"""The table of outcomes: when a job may begin, how it ends, and what is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from cluster import Cluster
from faulty import AFTER, Faulty

pytest.importorskip("psycopg", reason="needs the extra `scale`")

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ferrule.core.errors import ConfigError, JournalError
from ferrule.core.events import Event, Noticed, RunFinished, RunStarted
from ferrule.core.identity import Identity
from ferrule.engine.distributed import jobs as waiting
from ferrule.engine.distributed.engines import (
    EngineOptions,
    EngineUnreachable,
    Ticket,
    open_engine,
)
from ferrule.engine.distributed.figures import report_jobs
from ferrule.engine.distributed.handing_in import Intake
from ferrule.engine.distributed.job import Job, JobEnd, build_outcome
from ferrule.engine.distributed.jobs import Jobs
from ferrule.engine.distributed.outcomes import JobFigures, OutcomeTable, QueueError
from ferrule.engine.distributed.worker import Worker, tend
from ferrule.storage.journal.postgres import PostgresJournal


@pytest.fixture
def url(cluster: Cluster) -> str:
    name = f"queue_{cluster.free_name()}"
    cluster.sql(f"CREATE DATABASE {name}")
    return f"postgresql:///{name}?host={cluster.folder}&user=ferrule"


@pytest.fixture
def journal(url: str) -> Iterator[PostgresJournal]:
    with PostgresJournal(url) as opened:
        opened.find_known([])
        yield opened


@pytest.fixture
def table(url: str, journal: PostgresJournal) -> Iterator[OutcomeTable]:
    opened = OutcomeTable(url)
    yield opened
    opened.close()


class Engine:
    """Remembers what it was told of."""

    def __init__(self) -> None:
        self.tickets: list[tuple[str, float]] = []
        self.withdrawn: list[str] = []
        self.error: Exception | None = None
        self.is_closed = False

    async def prepare(self) -> None:
        """Nothing is needed."""

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        if self.error is not None:
            raise self.error
        self.tickets += [(ticket.run, ticket.delay) for ticket in tickets]

    async def withdraw(self, tickets: Sequence[Ticket]) -> None:
        if self.error is not None:
            raise self.error
        self.withdrawn += [ticket.run for ticket in tickets]

    async def work(self, *rest: object, **more: object) -> None:
        """Nobody works."""

    def close(self) -> None:
        self.is_closed = True


def jobs(count: int, tenant: str = "acme", **more: Any) -> list[dict[str, Any]]:
    named = [Job(f"job {n}", run=f"{tenant}-{n}", tenant=tenant, **more) for n in range(count)]
    return [job.with_name().as_dict() for job in named]


def begin(table: OutcomeTable, run: str, *, per_tenant: int | None = None) -> str:
    return table.begin(run, "w", per_tenant=per_tenant).answer


def test_workers_that_begin_at_once_keep_to_the_bound_of_each_tenant(
    table: OutcomeTable, url: str
) -> None:
    for tenant in ("a", "b", "c"):
        table.submit(jobs(8, tenant))

    def work(worker: str) -> list[str]:
        mine = OutcomeTable(url)
        runs = [f"{tenant}-{n}" for tenant in "abc" for n in range(8) if n % 4 == int(worker)]
        begun = [run for run in runs if mine.begin(run, worker, per_tenant=3).answer == "begin"]
        mine.close()
        return begun

    with ThreadPoolExecutor(4) as pool:
        begun = [run for runs in pool.map(work, "0123") for run in runs]
    assert sorted(run[0] for run in begun) == [*"aaabbbccc"]


def test_of_jobs_that_wait_for_a_place_the_first_by_priority_gets_it(table: OutcomeTable) -> None:
    table.submit(jobs(1, "acme"))
    named = [Job("wait", run=f"w-{p}", tenant="acme", priority=p) for p in (9, 1, 5)]
    table.submit([job.with_name().as_dict() for job in named])
    assert begin(table, "acme-0", per_tenant=1) == "begin"
    for run in ("w-9", "w-5", "w-1"):
        assert begin(table, run, per_tenant=1) == "full"
    table.end("acme-0", "w", build_outcome(named[0], "done"))
    assert [begin(table, run, per_tenant=1) for run in ("w-9", "w-5", "w-1")] == [
        "full",
        "full",
        "begin",
    ]
    assert table.begin("w-9", "w", per_tenant=1).ahead == 1


def test_a_job_whose_worker_is_gone_takes_no_place(table: OutcomeTable, url: str) -> None:
    table.submit(jobs(2))
    assert begin(table, "acme-0", per_tenant=1) == "begin"
    assert begin(table, "acme-1", per_tenant=1) == "full"
    with psycopg.connect(url, autocommit=True) as db:
        # Begun long ago, and no session of it is leased.
        db.execute("UPDATE ferrule.outcomes SET begun = begun - interval '1 minute'")
    assert begin(table, "acme-1", per_tenant=1) == "begin"


def test_a_job_waits_for_the_earlier_ones_of_its_session(table: OutcomeTable) -> None:
    table.submit(jobs(2, session="talk"))
    assert begin(table, "acme-1") == "early"
    assert begin(table, "acme-0") == "begin"
    assert begin(table, "acme-1") == "early"
    table.end("acme-0", "w", build_outcome(Job("x"), "done"))
    assert begin(table, "acme-1") == "begin"


def test_a_delayed_job_holds_up_its_session_from_when_it_is_due(
    table: OutcomeTable, url: str
) -> None:
    table.submit(jobs(1, session="talk"), delay=3600)
    table.submit(jobs(2, "later", session="talk"))
    assert begin(table, "later-0") == "begin"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE ferrule.outcomes SET due = clock_timestamp() WHERE run = 'acme-0'")
        db.execute("UPDATE ferrule.outcomes SET begun = begun - interval '1 minute'")
    beginning = table.begin("later-1", "w", per_tenant=None)
    assert (beginning.answer, beginning.ahead) == ("early", 2)
    assert 60 <= beginning.blocked < 90


def test_a_job_of_a_newer_version_is_left_to_newer_workers(table: OutcomeTable, url: str) -> None:
    table.submit(jobs(1))
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE ferrule.outcomes SET version = version + 1")
    assert begin(table, "acme-0") == "newer"
    found = table.find("acme-0")
    assert found is not None and not found.worker


def test_an_outcome_is_set_once_and_by_the_worker_that_has_the_job(table: OutcomeTable) -> None:
    table.submit(jobs(1))
    job = Job("x")
    table.begin("acme-0", "slow", per_tenant=None)
    table.begin("acme-0", "quick", per_tenant=None)
    assert not table.end("acme-0", "slow", build_outcome(job, "failed"))
    found = table.find("acme-0")
    assert found is not None and found.outcome is None
    assert table.end("acme-0", "quick", build_outcome(job, "done"))
    assert table.end("acme-0", "quick", build_outcome(job, "failed"))
    assert table.end("acme-0", "slow", build_outcome(job, "failed"))
    assert table.submit(jobs(1)) == []
    found = table.find("acme-0")
    assert found is not None and found.state == "done"
    assert begin(table, "acme-0") == "ended"


def test_a_job_counts_the_workers_that_began_it_and_says_whether_one_has_it(
    table: OutcomeTable, journal: PostgresJournal
) -> None:
    table.submit(jobs(1))

    def ask(*, is_again: bool) -> tuple[int, bool]:
        beginning = table.begin("acme-0", "w", per_tenant=None, is_again=is_again)
        return beginning.attempt, beginning.is_held

    assert [ask(is_again=is_again) for is_again in (False, True, False)] == [
        (1, False),
        (1, False),
        (2, False),
    ]
    journal.append_batches([(ME, [RunStarted("x")])])
    assert ask(is_again=True) == (2, True)
    journal.release("acme-0")
    assert ask(is_again=True) == (2, False)


def test_cancelling_ends_what_was_never_begun_and_asks_for_the_rest(table: OutcomeTable) -> None:
    table.submit(jobs(2))
    assert begin(table, "acme-0") == "begin"
    for run in ("acme-0", "acme-1"):
        table.cancel(run, build_outcome(Job("x"), "cancelled"))
    states = [found.state for run in ("acme-0", "acme-1") if (found := table.find(run))]
    assert states == ["working", "cancelled"]
    assert begin(table, "acme-1") == "ended"


def test_a_renewal_of_leases_tells_what_is_to_be_cancelled(table: OutcomeTable, url: str) -> None:
    table.submit(jobs(2))
    for run in ("acme-0", "acme-1"):
        assert begin(table, run) == "begin"
    table.cancel("acme-1", build_outcome(Job("x"), "cancelled"))
    watch = Watch()
    with PostgresJournal(url, lease_seconds=0.3) as journal:
        journal.watch_jobs(watch)
        journal.append("s", "r", [Noticed("test", "x")], identity=Identity("t", "u", "s", "r"))
        assert watch.is_told.wait(30)
    assert watch.cancelled[0] == ["acme-1"]


# ---- the end of a run and the outcome of its job

ME = Identity("acme", "ines", "acme-0", "acme-0")


class Watch:
    """Who works one job (`JobWatch`): it began with the events that it is asked about."""

    def __init__(self) -> None:
        self.end = JobEnd(Job("x", run="acme-0", session="acme-0", tenant="acme", user="ines"))
        self.noted: list[str] = []
        self.cancelled: list[list[str]] = []
        self.is_told = threading.Event()

    def list_runs(self) -> list[str]:
        return ["acme-0", "acme-1"]

    def cancel_runs(self, runs: list[str]) -> None:
        self.cancelled.append(runs)
        self.is_told.set()

    def find_ends(self, batches: Sequence[tuple[Identity, Sequence[Event]]]) -> dict[str, Any]:
        found = [self.end.read(event) for _, events in batches for event in events]
        return {outcome["run"]: outcome for outcome in found if outcome is not None}

    def note_ends(self, outcomes: Mapping[str, Any]) -> None:
        self.noted += outcomes


def test_the_outcome_is_written_in_the_statement_that_ends_the_run(
    table: OutcomeTable, journal: PostgresJournal, url: str
) -> None:
    table.submit(jobs(1, user="ines"))
    assert begin(table, "acme-0") == "begin"
    watch = Watch()
    journal.watch_jobs(watch)
    journal.append_batches([(ME, [RunStarted("x")])])
    assert watch.noted == []
    journal.append_batches([(ME, [RunFinished("done", "an \0 answer")])])
    assert watch.noted == ["acme-0"]
    found = table.find("acme-0")
    assert found is not None and found.outcome is not None
    assert (found.outcome["stop"], found.outcome["text"]) == ("done", "an \0 answer")
    with psycopg.connect(url, autocommit=True) as db:
        # A transaction has one number, and rows that it wrote bear it.
        rows = db.execute(
            "SELECT xmin FROM ferrule.outcomes UNION SELECT xmin FROM ferrule.records"
            " WHERE kind = 'run.finished'"
        ).fetchall()
    assert len(rows) == 1


def test_an_end_that_is_not_recorded_writes_no_outcome(
    table: OutcomeTable, journal: PostgresJournal, url: str
) -> None:
    table.submit(jobs(1, user="ines"))
    assert begin(table, "acme-0") == "begin"
    watch = Watch()
    journal.watch_jobs(watch)
    journal.append_batches([(ME, [RunStarted("x")])])
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE ferrule.sessions SET token = token + 1")
    with pytest.raises(JournalError):
        journal.append_batches([(ME, [RunFinished("done", "late")])])
    assert watch.noted == []
    found = table.find("acme-0")
    assert found is not None and found.outcome is None


def test_a_journal_that_stops_writing_gives_its_leases_back_and_records_nothing(
    journal: PostgresJournal, url: str
) -> None:
    journal.append_batches([(ME, [RunStarted("x")])])
    journal.stop_writing()
    for write in (
        lambda: journal.append_batches([(ME, [RunFinished("cancelled")])]),
        lambda: journal.append("acme-0", "acme-0", [RunFinished("cancelled")], identity=ME),
        lambda: journal.lease("another"),
    ):
        with pytest.raises(JournalError, match="others continue its runs") as stopped:
            write()
        assert stopped.value.code == "journal_left"
    assert [type(record.event) for record in journal.records("acme-0")] == [RunStarted]
    journal.release("acme-0")
    with PostgresJournal(url) as other:
        other.append("acme-0", "acme-0", [RunFinished("done")], identity=ME)


# ---- submitting


def test_jobs_that_are_submitted_together_reach_the_worker_as_they_were_written(
    table: OutcomeTable, url: str
) -> None:
    engine = Engine()
    handed = Jobs(url, engine=engine)
    odd = 'a NUL \0, a lone \ud800 and "quotes"'
    named = handed.submit_all([Job(odd), *(Job(str(n)) for n in range(50))])
    assert [run for run, _ in engine.tickets] == [job.run for job in named]
    found = table.begin(named[0].run, "w", per_tenant=None)
    assert found.job is not None and Job.of(found.job) == named[0]
    handed.close()


def test_jobs_that_the_engine_was_not_told_of_are_handed_in_by_a_worker(
    table: OutcomeTable, url: str
) -> None:
    engine = Engine()
    engine.error = RuntimeError("its server is away")
    handed = Jobs(url, engine=engine)
    with pytest.raises(EngineUnreachable, match=r"away.*Stored all the same: `a`, `b`") as refused:
        handed.submit_all([Job("a", run="a"), Job("b", run="b")], delay=3600)
    assert "a worker hands them in" in refused.value.hint
    with pytest.raises(EngineUnreachable, match="away"):
        handed.schedule("nightly", "0 3 * * *", Job("x"))
    handed.unschedule("nightly")
    engine.error = None
    tend(Intake(table, engine), 30)
    assert engine.tickets == [], "whoever submitted them may be about to"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE ferrule.outcomes SET submitted = submitted - interval '1 hour'")
    tend(Intake(table, engine), 30)
    assert [run for run, _ in engine.tickets] == ["a", "b"]
    assert all(3500 < delay <= 3600 for _, delay in engine.tickets)
    tend(Intake(table, engine), 30)
    assert len(engine.tickets) == 2
    handed.submit(Job("a", run="a"))
    assert len(engine.tickets) == 2, "the engine knows of it"
    handed.close()


def test_a_key_twice_in_one_list_is_one_job(table: OutcomeTable, url: str) -> None:
    engine = Engine()
    handed = Jobs(url, engine=engine)
    handed.submit_all([Job("a", run="a"), Job("a", run="a")])
    assert [run for run, _ in engine.tickets] == ["a"]
    handed.close()


def test_outcomes_are_kept_for_so_many_days_and_open_jobs_for_ever(
    table: OutcomeTable, url: str
) -> None:
    table.submit(jobs(2))
    assert begin(table, "acme-0") == "begin"
    table.end("acme-0", "w", build_outcome(Job("x"), "done"))
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "UPDATE ferrule.outcomes SET ended = ended - interval '31 days',"
            " handed = true, submitted = submitted - interval '31 days'"
        )
    tend(Intake(table, Engine()), 32)
    assert table.find("acme-0") is not None
    tend(Intake(table, Engine()), 30)
    assert table.find("acme-0") is None and table.find("acme-1") is not None


def test_many_old_outcomes_are_removed_in_parts(table: OutcomeTable, url: str) -> None:
    table.submit(jobs(12_000))
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE ferrule.outcomes SET ended = clock_timestamp() - interval '31 days'")
        for left in (2_000, 0):
            tend(Intake(table, Engine()), 30)
            assert db.execute("SELECT count(*) FROM ferrule.outcomes").fetchone() == (left,)


def test_a_job_that_was_set_aside_by_a_worker_that_died_is_handed_in_by_another(
    table: OutcomeTable, url: str
) -> None:
    engine = Engine()
    handed = Jobs(url, engine=engine)
    handed.submit_all([Job("a", run="a", session="s"), Job("b", run="b", session="s", priority=3)])
    beginning = table.begin("b", "w", per_tenant=None)
    assert (beginning.answer, beginning.ahead) == ("early", 1)
    assert beginning.unhanded is not None
    assert replace(beginning.unhanded, as_of="") == Ticket("b", "s", "local", 3)
    tend(Intake(table, engine), 30)
    assert len(engine.tickets) == 2, "its worker may be about to"
    with psycopg.connect(url, autocommit=True) as db:
        past = "- interval '1 hour'"
        db.execute(f"UPDATE ferrule.outcomes SET submitted = submitted {past}, came = came {past}")
    tend(Intake(table, engine), 30)
    assert engine.tickets[2:] == [("b", 0)]
    tend(Intake(table, engine), 30)
    assert len(engine.tickets) == 3
    handed.close()


def test_a_job_that_is_set_aside_while_the_engine_is_told_of_it_does_not_count_as_handed_in(
    table: OutcomeTable, url: str
) -> None:
    table.submit(jobs(2, session="talk"))
    first = table.begin("acme-1", "w", per_tenant=None).unhanded
    assert first is not None
    # The engine hands it out before the table has been told that it was handed in.
    again = table.begin("acme-1", "other", per_tenant=None).unhanded
    assert again is not None
    table.mark_handed([first])
    handed = "SELECT handed FROM ferrule.outcomes WHERE run = 'acme-1'"
    with psycopg.connect(url, autocommit=True) as db:
        assert db.execute(handed).fetchone() == (False,)
        table.mark_handed([again])
        assert db.execute(handed).fetchone() == (True,)


def test_a_job_that_is_given_back_is_handed_in_unless_another_worker_has_it(
    table: OutcomeTable,
) -> None:
    table.submit(jobs(1))
    assert begin(table, "acme-0") == "begin"
    assert table.give_back("acme-0", "another") == []
    [ticket] = table.give_back("acme-0", "w")
    assert (ticket.run, ticket.delay) == ("acme-0", 0)
    assert table.begin("acme-0", "other", per_tenant=None).attempt == 1


@pytest.mark.parametrize("is_away", [False, True])
def test_a_job_that_is_cancelled_before_it_began_is_withdrawn_from_the_engine(
    table: OutcomeTable, url: str, *, is_away: bool
) -> None:
    engine = Engine()
    handed = Jobs(url, engine=engine)
    handed.submit_all([Job("x", run="begun"), Job("x", run="waits")], delay=600)
    assert begin(table, "begun") == "begin"
    engine.error = EngineUnreachable("away") if is_away else None
    for run in ("begun", "waits"):
        handed.cancel(run)
    assert engine.withdrawn == ([] if is_away else ["waits"])
    assert handed.outcome("waits")["stop"] == "cancelled"
    handed.close()


# ---- figures


def test_there_are_figures_before_the_first_worker(url: str) -> None:
    with Jobs(url, engine=Engine()) as handed:
        handed.submit(Job("x"))
        found = handed.measure()
    assert (found.waiting, found.working, found.leases) == (1, 0, 0)


def test_an_engine_that_cannot_be_prepared_is_closed_again(url: str) -> None:
    class Unprepared(Engine):
        async def prepare(self) -> None:
            raise EngineUnreachable("away")

    engine = Unprepared()
    with pytest.raises(EngineUnreachable):
        Jobs(url, engine=engine)
    assert engine.is_closed


def test_a_worker_refuses_a_journal_that_its_outcomes_cannot_be_written_with(url: str) -> None:
    made: Any = None
    with pytest.raises(ConfigError, match="in schema `other`") as refused:
        Worker(url, made, journal=PostgresJournal(url, schema="other"))
    assert "use schema `ferrule`" in refused.value.hint


def test_jobs_that_wait_and_that_are_worked_are_counted_whatever_the_engine(
    table: OutcomeTable, url: str
) -> None:
    handed = Jobs(url, engine=Engine())
    assert handed.measure() == JobFigures(0, 0, 0, 0, 0)
    table.submit(jobs(4))
    table.submit(jobs(2, "later"), delay=3600)
    for run, worker in (("acme-0", "v"), ("acme-1", "w"), ("acme-2", "w")):
        assert table.begin(run, worker, per_tenant=None).answer == "begin"
    table.end("acme-2", "w", build_outcome(Job("x"), "done"))
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE ferrule.outcomes SET due = due - interval '1 minute'")
    with PostgresJournal(url) as journal:
        journal.append("s", "r", [Noticed("test", "x")], identity=Identity("t", "u", "s", "r"))
        found = handed.measure()
        gauges = collect_gauges(handed)
    assert (found.waiting, found.working, found.workers, found.leases) == (1, 2, 2, 1)
    assert 60 <= found.oldest < 90
    assert 60 <= gauges.pop("ferrule.jobs.oldest") < 90
    assert gauges == {
        "ferrule.jobs.waiting": 1,
        "ferrule.jobs.working": 2,
        "ferrule.jobs.workers": 2,
        "ferrule.jobs.leases": 1,
    }
    handed.close()


def collect_gauges(handed: Jobs) -> dict[str, float]:
    """Report to OpenTelemetry, and return what it collects."""
    sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="needs the extra `otel`")
    reader = sdk.export.InMemoryMetricReader()
    report_jobs(handed, meter_provider=sdk.MeterProvider(metric_readers=[reader]))
    data: Any = reader.get_metrics_data()
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    return {metric.name: metric.data.data_points[0].value for metric in metrics}


# ---- waiting


@pytest.mark.parametrize("is_pooled", [False, True])
def test_whoever_waits_hears_of_the_end(
    table: OutcomeTable, url: str, monkeypatch: pytest.MonkeyPatch, *, is_pooled: bool
) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 3600)
    handed = Jobs(url, engine=Engine())
    handed._table._db._is_pooled = is_pooled  # pyright: ignore[reportPrivateUsage]
    handed.submit(Job("a", run="a"))
    assert begin(table, "a") == "begin"
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(handed.outcome, "a")
        with psycopg.connect(url, autocommit=True) as db:
            end = time.monotonic() + 30
            awaited = "SELECT 1 FROM ferrule.outcomes WHERE awaited"
            while not (is_pooled or db.execute(awaited).fetchone()):
                assert time.monotonic() < end
            listens = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'"
            listening = db.execute(listens).fetchone()
        table.end("a", "w", build_outcome(Job("x"), "done"))
        assert outcome.result(30)["stop"] == "done"
    assert listening is not None and bool(listening[0]) != is_pooled
    handed.close()


def test_an_end_that_nobody_waits_for_is_not_announced(table: OutcomeTable, url: str) -> None:
    table.submit(jobs(2))
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("LISTEN ferrule_outcomes")
        table.mark_awaited("acme-1")
        for run in ("acme-0", "acme-1"):
            assert begin(table, run) == "begin"
            table.end(run, "w", build_outcome(Job("x"), "done"))
        told = [told.payload for told in db.notifies(timeout=30, stop_after=1)]
    assert told == [waiting.build_announcement("acme-1")]


def test_looking_for_an_end_again_writes_nothing(table: OutcomeTable, url: str) -> None:
    table.submit(jobs(1))
    with psycopg.connect(url, autocommit=True) as db:
        versions: list[Any] = []
        for _ in range(2):
            table.mark_awaited("acme-0")
            versions.append(db.execute("SELECT xmin FROM ferrule.outcomes").fetchone())
    assert versions[0] == versions[1]


# ---- the connection


def test_a_role_that_lacks_a_right_learns_what_grants_it(url: str, cluster: Cluster) -> None:
    from ferrule.storage.journal import postgres_schema

    poor = f"poor_{cluster.free_name()}"
    cluster.sql(f"CREATE ROLE {poor} LOGIN")
    with pytest.raises(QueueError, match="lacks a right") as refused:
        Jobs(url.replace("user=ferrule", f"user={poor}"), engine=Engine())
    named = refused.value.hint.split("`")[1]
    assert named in vars(postgres_schema)


@pytest.mark.proves("scale.taken-once")
def test_a_beginning_whose_answer_was_lost_is_asked_for_again(
    table: OutcomeTable, url: str, faulty: Faulty
) -> None:
    table.submit(jobs(1))
    name = conninfo_to_dict(url)["dbname"]
    far = OutcomeTable(f"{faulty.dsn.replace('dbname=postgres', '')} dbname={name}")
    far.check()
    faulty.plan.extend([AFTER])
    assert begin(far, "acme-0") == "begin"
    far.close()


def test_a_connection_whose_other_end_is_gone_is_noticed_within_half_a_minute(url: str) -> None:
    for more, interval in (("", "5"), ("&keepalives_interval=7", "7")):
        table = OutcomeTable(url + more)
        table.check()
        connection = table._db._connection  # pyright: ignore[reportPrivateUsage]
        assert connection is not None
        used = connection.info.get_parameters()
        names = ("keepalives_idle", "keepalives_interval", "keepalives_count")
        assert [used[name] for name in names] == ["15", interval, "3"]
        table.close()


def test_a_database_that_is_away_is_an_error_within_its_bound() -> None:
    away = OutcomeTable("postgresql://me:s3cret@127.0.0.1:1/none")
    away._db.seconds = 1  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(QueueError, match="cannot be reached") as refused:
        away.submit(jobs(1))
    assert refused.value.retryable and "s3cret" not in str(refused.value)


def test_jobs_of_the_queue_of_version_1_are_not_dropped_while_they_wait(url: str) -> None:
    from ferrule.storage.journal import postgres_schema

    first = postgres_schema.MIGRATIONS["queue"][0].format(schema="ferrule")
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(postgres_schema.create_script("ferrule", "journal").encode())
        db.execute(first.encode())
        db.execute("INSERT INTO ferrule.versions (part, version) VALUES ('queue', 1)")
        db.execute(
            "INSERT INTO ferrule.jobs (run, tenant, priority, version, job, due)"
            " VALUES ('r', 't', 0, 1, '{}', now())"
        )
        table = OutcomeTable(url)
        with pytest.raises(QueueError, match="let workers of that version finish them"):
            table.check()
        db.execute("UPDATE ferrule.jobs SET state = 'ended'")
        table.check()
        table.close()


def test_an_engine_that_nobody_brings_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no engine is called `kafka`") as refused:
        open_engine("kafka:broker:9092", EngineOptions(""))
    assert "procrastinate" in refused.value.hint
