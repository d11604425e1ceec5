"""Single engines: what is not the same for all of them, and workers over engines that fail."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from engine_servers import serve
from faulty import Faulty

pytest.importorskip("procrastinate", reason="needs the extra `scale`")

import psycopg
from procrastinate.exceptions import ConnectorException
from procrastinate.manager import JobManager
from psycopg_pool import ConnectionPool

from ferrule.cli.exit_codes import run as ferrule
from ferrule.core.errors import ConfigError, FerruleError
from ferrule.engine.distributed import worker as working
from ferrule.engine.distributed.engines import (
    Do,
    EngineOptions,
    EngineUnreachable,
    GoOnElsewhere,
    Ticket,
    ask_engine,
    open_engine,
    reach,
)
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.jobs import Jobs
from ferrule.engine.distributed.outcomes import OutcomeTable
from ferrule.engine.distributed.worker import Worker, WorkerTimes
from ferrule.job_engines.procrastinate import ProcrastinateEngine
from ferrule.storage.journal.postgres import PostgresJournal
from left_open import kept_by_process

SECONDS = 60
LOST_AFTER = 1.0


@pytest.fixture
def url(cluster: Cluster) -> str:
    name = f"engine_{cluster.free_name()}"
    cluster.sql(f"CREATE DATABASE {name}")
    return f"postgresql:///{name}?host={cluster.folder}&user=ferrule"


def engine_of(url: str, *, is_pooled: bool = False) -> ProcrastinateEngine:
    engine = ProcrastinateEngine(EngineOptions(url, lost_after=LOST_AFTER, is_pooled=is_pooled))
    ask_engine(engine.prepare())
    ask_engine(engine.prepare())
    return engine


def play(
    engine: ProcrastinateEngine, do: Do, until: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    async def whole() -> None:
        # Procrastinate leaves a task that failed to the event loop, which would report it.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        stop = asyncio.Event()
        work = asyncio.create_task(_work(engine, do, stop))
        async with asyncio.timeout(SECONDS):
            await until()
            stop.set()
            await work

    asyncio.run(whole())
    engine.close()


async def _work(engine: ProcrastinateEngine, do: Do, stop: asyncio.Event) -> None:
    """Begin anew when it stops by itself, as a worker does."""
    while not stop.is_set():
        await engine.work(do, concurrency=2, stop=stop)


def sql(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as db:
        cursor = db.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


ONE = Ticket("run-1", "talk", "acme", 0)
TWO = Ticket("run-2", "talk", "acme", 0)


@pytest.mark.parametrize("fails_first", [False, True])
def test_a_job_whose_worker_was_forgotten_is_handed_out_again(
    url: str, monkeypatch: pytest.MonkeyPatch, *, fails_first: bool
) -> None:
    engine = engine_of(url)
    ask_engine(engine.submit([ONE]))
    sql(url, "UPDATE procrastinate_jobs SET status = 'doing'")
    asked = JobManager.get_stalled_jobs
    failures = [True] if fails_first else []

    async def ask(self: JobManager, *rest: Any, **more: Any) -> Any:
        if failures:
            failures.pop()
            raise ConnectorException("the database restarts")
        return await asked(self, *rest, **more)

    monkeypatch.setattr(JobManager, "get_stalled_jobs", ask)
    done = asyncio.Event()

    async def do(run: str) -> None:
        assert run == "run-1"
        done.set()

    play(engine, do, lambda: _wait(done))
    assert sql(url, "SELECT * FROM procrastinate_jobs") == []


def test_a_job_whose_end_was_not_recorded_holds_up_nothing_and_comes_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(url)
    ask_engine(engine.submit([ONE, TWO]))
    finish = JobManager.finish_job
    failures = [True]

    async def fail(self: JobManager, *rest: Any, **more: Any) -> Any:
        if failures:
            failures.pop()
            raise ConnectorException("the connection broke")
        return await finish(self, *rest, **more)

    monkeypatch.setattr(JobManager, "finish_job", fail)
    done: list[str] = []

    def do_until(count: int) -> None:
        enough = asyncio.Event()

        async def do(run: str) -> None:
            done.append(run)
            if len(done) == count:
                enough.set()

        play(engine, do, lambda: _wait(enough))

    do_until(2)
    assert done == ["run-1", "run-2"]
    # It was taken by a worker that has ended.
    do_until(3)
    assert done == ["run-1", "run-2", "run-1"], "delivered twice, which is harmless"
    assert sql(url, "SELECT * FROM procrastinate_jobs") == []


@pytest.mark.parametrize("error", [GoOnElsewhere(), ValueError("a bug")])
def test_a_job_that_goes_on_elsewhere_is_handed_out_again(url: str, error: Exception) -> None:
    engine = engine_of(url)
    ask_engine(engine.submit([ONE]))
    times: list[float] = []
    again = asyncio.Event()

    async def do(run: str) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            raise error
        again.set()

    play(engine, do, lambda: _wait(again))
    assert sql(url, "SELECT * FROM procrastinate_jobs") == []


def test_behind_a_pooler_nothing_is_listened_to_and_jobs_are_found(url: str) -> None:
    engine = engine_of(url, is_pooled=True)
    done = asyncio.Event()
    listening: list[Any] = []

    async def do(run: str) -> None:
        ask = "SELECT query FROM pg_stat_activity WHERE query ILIKE 'LISTEN%'"
        listening.extend(await asyncio.to_thread(sql, url, ask))
        listening.extend(
            await asyncio.to_thread(sql, url, "SELECT name FROM pg_prepared_statements")
        )
        done.set()

    async def submit() -> None:
        await asyncio.to_thread(ask_engine, engine.submit([ONE]))
        await done.wait()

    play(engine, do, submit)
    assert listening == []


def test_an_engine_whose_database_is_away_or_read_only_says_so(url: str) -> None:
    with pytest.raises(EngineUnreachable, match="cannot be reached"):
        away = ProcrastinateEngine(EngineOptions("postgresql://nobody@localhost:1/none"))
        ask_engine(away.prepare())
    name = sql(url, "SELECT current_database()")[0][0]
    sql(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(EngineUnreachable, match="read-only") as refused:
        ask_engine(ProcrastinateEngine(EngineOptions(url)).prepare())
    assert "name the primary" in refused.value.hint


class Deaf:
    """An engine that never returns, as a library does whose server answers no more."""

    def __init__(self) -> None:
        self.working = threading.Event()

    async def prepare(self) -> None:
        """Nothing is needed."""

    async def submit(self, *rest: object, **more: object) -> None:
        """Nobody listens."""

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        self.working.set()
        await asyncio.Event().wait()

    def close(self) -> None:
        """Nothing is open."""


def test_a_worker_stops_though_its_engine_does_not_answer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "END_SECONDS", 0.1)
    engine = Deaf()
    made: Any = None
    worker = Worker(url, made, engine=engine, times=WorkerTimes(grace=0))
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert engine.working.wait(SECONDS)
    worker.stop()
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_look_at_what_was_left_behind_that_fails_is_told_and_repeated(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[object] = []
    again = threading.Event()

    def fail(*given: object) -> None:
        looks.append(given)
        if len(looks) > 1:
            again.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(working, "tend", fail)
    monkeypatch.setattr(working, "LOOK_SECONDS", 0.01)
    made: Any = None
    worker = Worker(url, made, engine=Deaf(), times=WorkerTimes(grace=0))
    monkeypatch.setattr(working, "END_SECONDS", 0.1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert again.wait(SECONDS)
    worker.stop()
    thread.join(SECONDS)
    assert "looked for again later: can't start new thread" in caplog.text


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


# ---- a database that is not as it should be


@pytest.mark.parametrize(
    ("change", "reason", "hint"),
    [
        (
            "ALTER DATABASE {name} SET default_transaction_read_only = on",
            "read-only",
            "name the primary",
        ),
        ("ALTER DATABASE {name} CONNECTION LIMIT 0", "too many connections", "fewer workers"),
        ("ALTER DATABASE {name} RENAME TO {name}_away", "does not exist", "create it"),
    ],
    ids=["read-only", "full", "away"],
)
def test_a_database_that_takes_no_jobs_says_why_and_what_to_do(
    url: str, cluster: Cluster, change: str, reason: str, hint: str
) -> None:
    name = str(sql(url, "SELECT current_database()")[0][0])
    Jobs(url).close()
    # Bounds do not hold for superusers.
    clerk = f"clerk_{name}"
    cluster.sql(f"CREATE ROLE {clerk} LOGIN")
    sql(url, f"GRANT ALL ON SCHEMA ferrule, public TO {clerk}")
    sql(url, f"GRANT ALL ON ALL TABLES IN SCHEMA ferrule, public TO {clerk}")
    cluster.sql(change.format(name=name))
    with pytest.raises(FerruleError, match=reason) as refused:
        Jobs(url.replace("user=ferrule", f"user={clerk}")).submit(Job("x"))
    assert hint in refused.value.hint
    assert refused.value.retryable


def test_a_worker_over_a_database_that_is_read_only_says_so_while_it_waits(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    Jobs(url).close()
    with PostgresJournal(url) as journal:
        journal.find_known([])
    name = sql(url, "SELECT current_database()")[0][0]
    sql(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    made: Any = None
    worker = Worker(url, made)
    thread = threading.Thread(target=worker.run)
    thread.start()
    end = time.monotonic() + SECONDS
    while "asked again" not in caplog.text and time.monotonic() < end:
        time.sleep(0.05)
    worker.stop()
    thread.join(SECONDS)
    assert "read-only transaction" in caplog.text
    assert "name the primary" in caplog.text


@pytest.mark.parametrize(
    ("part", "engine", "error"),
    [("queue", "procrastinate", "queue_newer"), ("journal", "procrastinate", "journal_newer")],
)
def test_tables_of_a_newer_version_are_left_alone(
    url: str, part: str, engine: str, error: str
) -> None:
    Jobs(url, engine=engine).close()
    with PostgresJournal(url) as journal:
        journal.find_known([])
    sql(url, f"INSERT INTO ferrule.versions VALUES ('{part}', 99)")
    made: Any = None
    with pytest.raises(FerruleError, match="newer version") as refused:
        Worker(url, made, engine=engine).run()
    assert refused.value.code == error
    assert "use that version" in refused.value.hint


def test_tables_of_an_engine_of_another_version_are_named_and_the_job_is_kept(url: str) -> None:
    jobs = Jobs(url)
    sql(url, "ALTER FUNCTION procrastinate_defer_jobs_v1 RENAME TO before_it")
    with pytest.raises(EngineUnreachable, match="procrastinate_defer_jobs_v1") as refused:
        jobs.submit(Job("x", run="kept"))
    assert "of another version" in refused.value.hint
    sql(url, "ALTER FUNCTION before_it RENAME TO procrastinate_defer_jobs_v1")
    sql(url, "ALTER TABLE procrastinate_jobs RENAME TO before_it")
    with pytest.raises(EngineUnreachable, match="already exists") as refused:
        Jobs(url)
    assert "of another version" in refused.value.hint
    sql(url, "ALTER TABLE before_it RENAME TO procrastinate_jobs")
    jobs.submit(Job("x", run="kept"))
    jobs.close()
    assert len(sql(url, "SELECT 1 FROM procrastinate_jobs")) == 1


def test_jobs_that_an_engine_lost_are_handed_to_it_or_to_another_one(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pgqueuer", reason="needs the extra `pgqueuer`")
    queued = "SELECT count(*) FROM procrastinate_jobs"
    with Jobs(url) as jobs:
        jobs.submit_all([Job("x", run=f"r{n}") for n in range(5)])
        jobs.cancel("r4")
        sql(url, "DELETE FROM procrastinate_jobs")
        table = OutcomeTable(url)
        for run in ("r0", "r1"):
            assert table.begin(run, "w", per_tenant=None).answer == "begin"
        table.close()
        with PostgresJournal(url) as journal:
            journal.lease("r0")
            assert jobs.resubmit() == 3, "all but the one that is worked and the one that has ended"
        assert sql(url, queued) == [(3,)]
    assert ferrule(["submit", "--resubmit", "--database", url, "--engine", "pgqueuer"]) == 0
    assert capsys.readouterr().out == "4 jobs handed to the engine\n"
    assert sql(url, "SELECT count(*) FROM pgqueuer") == [(4,)]


def test_a_disk_that_is_full_is_named_though_a_library_wraps_the_error() -> None:
    full = psycopg.errors.DiskFull("could not extend file: No space left on device")
    with (
        pytest.raises(EngineUnreachable, match="cannot be reached") as refused,
        reach("the jobs", ConnectorException),
    ):
        raise ConnectorException from full
    assert "free some space" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "library", "hint"),
    [
        ("temporal:127.0.0.1:1", "temporalio", "--engine temporal:HOST:7233"),
        ("restate", "restate", "RESTATE_INGRESS_URL"),
    ],
)
def test_a_server_that_is_away_is_named_with_what_names_it(
    url: str, name: str, library: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library, reason=f"needs the extra of `{name}`")
    monkeypatch.setenv("RESTATE_ADMIN_URL", "http://127.0.0.1:1")
    with kept_by_process(), pytest.raises(EngineUnreachable, match="cannot be reached") as refused:
        Jobs(url, engine=name)
    assert hint in refused.value.hint and refused.value.retryable


@pytest.mark.parametrize(
    "address", ["workers.example.com:9080", "http://workers.example.com", "http://workers:port"]
)
def test_an_address_that_is_not_a_whole_url_is_refused_before_anything_is_served(
    address: str,
) -> None:
    pytest.importorskip("restate", reason="needs the extra `restate`")
    with pytest.raises(ConfigError, match=re.escape(f"`{address}`")) as refused:
        open_engine(f"restate:{address}", EngineOptions(""))
    assert "`http://127.0.0.1:9080`" in refused.value.hint


def test_an_engine_whose_first_connection_failed_connects_later(
    url: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = ConnectionPool.wait

    def wait_shortly(self: ConnectionPool[Any], timeout: float = 0) -> None:
        wait(self, 0.5)

    monkeypatch.setattr(ConnectionPool, "wait", wait_shortly)
    engine = engine_of(url)
    name = str(sql(url, "SELECT current_database()")[0][0])
    cluster.sql(f"ALTER DATABASE {name} RENAME TO {name}_away")
    with pytest.raises(EngineUnreachable):
        ask_engine(engine.submit([ONE]))
    cluster.sql(f"ALTER DATABASE {name}_away RENAME TO {name}")
    ask_engine(engine.submit([ONE]))
    engine.close()
    assert sql(url, "SELECT count(*) FROM procrastinate_jobs") == [(1,)]


def test_names_that_are_long_in_any_script_reach_an_engine_that_bounds_them() -> None:
    longest = "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 333
    with serve("temporal") as server:
        engine = open_engine(server.engine, EngineOptions(""))
        with kept_by_process():
            ask_engine(engine.submit([Ticket(longest, "talk", longest, 0)]))


LEAVING_AGENT = """
import os, sys, threading
from ferrule import Agent, Scripted, Storage
from ferrule.testing import says

class AbortsTheInterpretersEnd:
    # In place of a native thread that asks for the interpreter while that ends.
    def __del__(self, abort=os.abort):
        abort()

def make(job, journal):
    sys.left = AbortsTheInterpretersEnd()
    threading.Thread(target=threading.Event().wait).start()
    storage = Storage(journal=journal, tenant=job.tenant, user=job.user)
    return Agent(Scripted([says("done")]), storage=storage)
"""


def test_the_worker_command_ends_well_whatever_threads_its_libraries_leave(
    url: str, tmp_path: Path
) -> None:
    (tmp_path / "leaving.py").write_text(LEAVING_AGENT)
    command = [sys.executable, "-c", "from ferrule.cli.entry import main; main()", "worker"]
    command += ["--database", url, "--agent", "leaving:make"]
    with Jobs(url) as jobs, subprocess.Popen(command, cwd=tmp_path) as worker:
        try:
            job = jobs.submit(Job("end well", tenant="acme"))
            assert jobs.outcome(job.run)["text"] == "done"
            worker.terminate()
            assert worker.wait(timeout=SECONDS) == 0
        finally:
            worker.kill()


@pytest.mark.parametrize(
    ("name", "module"), [("procrastinate", "database"), ("pgqueuer", "pgqueuer")]
)
def test_a_worker_whose_connections_fall_silent_gives_them_up_and_goes_on(
    url: str,
    faulty: Faulty,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    module: str,
) -> None:
    pytest.importorskip(name)
    monkeypatch.setattr(f"ferrule.job_engines.{module}.SILENT_SECONDS", 4.0)
    through = url.replace(str(cluster.folder), faulty.dsn.split()[0].removeprefix("host="))
    engine = open_engine(name, EngineOptions(through, lost_after=LOST_AFTER))
    direct = open_engine(name, EngineOptions(url, lost_after=LOST_AFTER))
    ask_engine(direct.prepare())
    ask_engine(direct.submit([ONE]))
    begun = {ONE.run: asyncio.Event(), TWO.run: asyncio.Event()}

    async def do(run: str) -> None:
        begun[run].set()  # The first job may come twice: what ends it may be lost in the silence.

    async def work(stop: asyncio.Event) -> None:
        while not stop.is_set():
            # As a worker does.
            with suppress(Exception):
                await engine.work(do, concurrency=2, stop=stop)

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        stop = asyncio.Event()
        working = asyncio.create_task(work(stop))
        async with asyncio.timeout(SECONDS):
            await begun[ONE.run].wait()
        faulty.stalled.set()
        await asyncio.to_thread(direct_submit)
        assert await asyncio.to_thread(faulty.given_up.wait, SECONDS)
        faulty.stalled.clear()
        async with asyncio.timeout(2 * SECONDS):
            await begun[TWO.run].wait()
        stop.set()
        # As a worker does: its library may wait for a connection that it gave up.
        await asyncio.wait([working], timeout=10)
        working.cancel()
        await asyncio.wait([working], timeout=SECONDS)

    def direct_submit() -> None:
        ask_engine(direct.submit([TWO]))

    asyncio.run(whole())
    for each in (engine, direct):
        each.close()
