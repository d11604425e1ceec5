"""1,000 simulated workers against one PostgreSQL: what it is asked, how late it answers, what it costs.

    python benchmarks/durable/simulated_workers.py [--workers 1000] [--rates 0,25,50,100,200] [--seconds 30]

A simulated worker has no process. It asks what a real one asks, when a real one asks it: the
heartbeats and looks of Procrastinate, the renewal of leases and the look at what was left behind;
and for each job the statements that submit, take, begin, journal and end it, through the same
classes. So many lanes of connections do it all, as a pooler's would; an event that comes later than
it is due counts as late. `clock s` are seconds of the processors of all database processes.

The last lines are the same figures for other numbers of machines. They are arithmetic, not measured.
Needs a PostgreSQL server (Debian: `postgresql`).
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "postgres"))
# The other `cluster` of this folder is that of the durable runs.
sys.path.remove(str(Path(__file__).parent))

import psycopg  # noqa: E402
from cluster import Cluster  # noqa: E402

from ferrule.core.events import RunFinished, RunStarted, SessionOpened  # noqa: E402
from ferrule.core.identity import Identity  # noqa: E402
from ferrule.engine.distributed.job import Job, build_outcome  # noqa: E402
from ferrule.engine.distributed.jobs import Jobs  # noqa: E402
from ferrule.engine.distributed.outcomes import OutcomeTable  # noqa: E402
from ferrule.engine.distributed.worker import LEASE_SECONDS, LOOK_SECONDS  # noqa: E402
from ferrule.job_engines.procrastinate import POLL_SECONDS  # noqa: E402
from ferrule.storage.journal.postgres import PostgresJournal  # noqa: E402

LANES = 24
HEARTBEAT = 15.0
CONNECTIONS = 4
"""Of a worker: journal, table of jobs, and two or more of Procrastinate."""
WORKING_SHARE = 0.5
"""Share of the workers that hold leases, if jobs come at all."""
EVERY = {"heartbeat": HEARTBEAT, "poll": POLL_SECONDS[False], "look": LOOK_SECONDS}


@dataclass
class Lane:
    """Connections that one thread uses for any worker."""

    url: str
    late: list[float] = field(default_factory=list)
    jobs_done: int = 0

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.url)
        self.table = OutcomeTable(self.url)
        self.journal = PostgresJournal(self.url, lease_seconds=3600)
        self.db = psycopg.connect(self.url, autocommit=True)

    def do(self, kind: str, worker: int) -> None:
        if kind == "heartbeat":
            self.db.execute("SELECT procrastinate_update_heartbeat_v1(%s)", (worker,))
        elif kind == "poll":
            self.db.execute("SELECT id FROM procrastinate_fetch_job_v2(%s, NULL)", (["none"],))
        elif kind == "look":
            self.table.look(LOOK_SECONDS, 30)
            self.table.find_stopped_schedules()
        elif kind == "renew":
            self.db.execute(
                "UPDATE ferrule.sessions SET until = clock_timestamp() + interval '15 seconds'"
                " WHERE session = %s",
                (f"held-{worker}",),
            )
        else:
            self._work(worker)

    def _work(self, worker: int) -> None:
        job = self.jobs.submit(Job("x" * 200, tenant=f"t{worker % 50}"))
        taken = self.db.execute(
            "SELECT id FROM procrastinate_fetch_job_v2(%s, %s)", (["ferrule"], worker)
        ).fetchall()
        if self.table.begin(job.run, f"w{worker}", per_tenant=None).answer != "begin":
            raise AssertionError(job)
        who = Identity(job.tenant, job.user, job.session, job.run)
        for events in (
            [SessionOpened(model="m", workspace="", system="s")],
            [RunStarted(job.text)],
            [RunStarted("y" * 1500)],
            [RunFinished("done", "z" * 300)],
        ):
            self.journal.append_batches([(who, events)])
        self.table.end(job.run, f"w{worker}", build_outcome(job, "done", text="z" * 300))
        self.journal.release(job.session)
        for (one,) in taken:
            self.db.execute("SELECT procrastinate_finish_job_v1(%s, 'succeeded', true)", (one,))
        self.jobs_done += 1


def simulate(lanes: list[Lane], workers: int, rate: float, seconds: float) -> None:
    """Do what workers ask within so many seconds, each event when it is due."""
    events: list[tuple[float, str, int]] = []
    kinds = {**EVERY, **({"renew": LEASE_SECONDS / 3} if rate else {})}
    for kind, every in kinds.items():
        share = WORKING_SHARE if kind == "renew" else 1
        for worker in range(1, int(workers * share) + 1):
            first = random.uniform(0, every)
            events += [(first + n * every, kind, worker) for n in range(int(seconds / every) + 1)]
    events += [
        (random.uniform(0, seconds), "job", random.randint(1, workers))
        for _ in range(int(rate * seconds))
    ]
    heapq.heapify(events)
    queue: SimpleQueue[tuple[float, str, int] | None] = SimpleQueue()
    started = time.monotonic()

    def serve(lane: Lane) -> None:
        while (event := queue.get()) is not None:
            lane.do(event[1], event[2])
            lane.late.append(time.monotonic() - started - event[0])

    threads = [threading.Thread(target=serve, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    while events:
        due = heapq.heappop(events)
        if due[0] > seconds:
            break
        time.sleep(max(0, started + due[0] - time.monotonic()))
        queue.put(due)
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()


def measure_server(cluster: Cluster, url: str) -> tuple[float, int, int]:
    """Return the processor seconds of the server, its committed transactions and its WAL bytes."""
    ticks = 0
    assert cluster.server is not None
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(text[1]) == cluster.server.pid or stat.parent.name == str(cluster.server.pid):
            ticks += int(text[11]) + int(text[12])
    with psycopg.connect(url, autocommit=True) as db:
        (row,) = db.execute(
            "SELECT xact_commit, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
            " FROM pg_stat_database WHERE datname = current_database()"
        ).fetchall()
    return ticks / os.sysconf("SC_CLK_TCK"), row[0], row[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--rates", default="0,25,50,100,200")
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ferrule-simulated-", dir="/tmp"))
    cluster = Cluster(folder, "max_connections=300", "autovacuum=on", "shared_buffers=256MB")
    cluster.make()
    cluster.start()
    try:
        cluster.sql("CREATE DATABASE simulated")
        url = f"postgresql:///simulated?host={cluster.folder}&user=ferrule"
        lanes = [Lane(url) for _ in range(LANES)]
        for worker in range(1, given.workers + 1):
            lanes[0].db.execute("SELECT procrastinate_register_worker_v1()")
            if worker <= given.workers * WORKING_SHARE:
                name = f"held-{worker}"
                held = Identity("t", "u", name, "r")
                lanes[0].journal.append_batches([(held, [RunStarted("x")])])
                lanes[0].journal.release(name)
        print(f"{given.workers} workers, {LANES} lanes, load {os.getloadavg()[0]:.1f}")
        print(
            "| jobs/s asked | done | late p50 ms | late p99 ms | transactions/s | clock s/s | WAL KiB/s |"
        )
        print("|--:|--:|--:|--:|--:|--:|--:|", flush=True)
        rows: list[tuple[float, float, float, float]] = []
        for rate in map(float, given.rates.split(",")):
            for lane in lanes:
                lane.late, lane.jobs_done = [], 0
            before, began = measure_server(cluster, url), time.monotonic()
            simulate(lanes, given.workers, rate, given.seconds)
            took = time.monotonic() - began
            after = measure_server(cluster, url)
            late = sorted(1000 * one for lane in lanes for one in lane.late)
            done = sum(lane.jobs_done for lane in lanes) / took
            clock, commits, wal = ((b - a) / took for a, b in zip(before, after, strict=True))
            p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
            rows.append((done, commits, clock, wal))
            print(
                f"| {rate:.0f} | {done:.0f} | {p50:.0f} | {p99:.0f} | {commits:.0f} |"
                f" {clock:.2f} | {wal / 1024:.0f} |",
                flush=True,
            )
        extrapolate(given.workers, rows)
    finally:
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)


def extrapolate(workers: int, rows: list[tuple[float, float, float, float]]) -> None:
    """Print what other numbers of machines would ask, from the first row and the last."""
    _, idle_commits, idle_clock, _ = rows[0]
    done, commits, clock, wal = rows[-1]
    job_clock = (clock - idle_clock) / done if done else 0
    job_commits = (commits - idle_commits) / done if done else 0
    job_wal = wal / done if done else 0
    print(
        f"\none job: {job_commits:.1f} transactions, {1000 * job_clock:.1f} ms of processor,",
        end=" ",
    )
    print(f"{job_wal / 1024:.1f} KiB of WAL; an idle worker: {idle_commits / workers:.2f} a second")
    print(
        "\n| machines | connections | idle transactions/s | cores for idling | cores for one job a minute each |"
    )
    print("|--:|--:|--:|--:|--:|")
    for machines in (100, 1000, 10_000):
        share = machines / workers
        print(
            f"| {machines} | {machines * CONNECTIONS} | {idle_commits * share:.0f} |"
            f" {idle_clock * share:.1f} | {job_clock * machines / 60:.1f} |"
        )


if __name__ == "__main__":
    main()
