"""`make lab NAME=scale`: many workers, one PostgreSQL, and faults: nothing is lost and nothing is done
twice.

    python benchmarks/scale.py [runs] [workers] [faults]      # 500 runs of 5 calls with effects, 4 workers

Workers are processes. Two are killed with `kill -9`, one is frozen for longer than its lease and
let go on, the database is restarted once. Then every run must have ended, and every call must stand
in the table of effects exactly once. Before that, the same without faults for 1, 2 and 4 workers,
for the throughput. Needs a PostgreSQL server (Debian: `postgresql`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "postgres"))

from cluster import Cluster, installed  # noqa: E402  beside the tests that it is for

from ferrule.engine.distributed.job import Job  # noqa: E402
from ferrule.engine.distributed.jobs import Jobs  # noqa: E402

WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from scale_agent import DATABASE, make
from ferrule.engine.distributed.worker import Worker, WorkerTimes
from ferrule.storage.journal.postgres import PostgresJournal
journal = PostgresJournal(DATABASE, lease_seconds=6)
times = WorkerTimes(lost_after=8)
Worker(DATABASE, make, concurrency=int(sys.argv[2]), times=times, journal=journal).run()
"""
CALLS = 5
LEASE = 6.0


class Fleet:
    """Workers as processes, and their database."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        cluster.sql(f"CREATE DATABASE {name}")
        self.url = f"postgresql:///{name}?host={cluster.folder}&user=ferrule"
        self.cluster = cluster
        self.name = name
        self.workers: list[subprocess.Popen[bytes]] = []
        self.sql("CREATE TABLE effects (call text PRIMARY KEY)")
        self.sql("CREATE TABLE attempts (call text)")
        self.jobs = Jobs(self.url)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        import psycopg

        for _ in range(300):
            try:
                with psycopg.connect(self.url, autocommit=True) as db:
                    cursor = db.execute(statement.encode())
                    return cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:
                time.sleep(0.1)
        raise SystemExit("the database does not come back")

    def start(self, count: int) -> None:
        environment = {**os.environ, "SCALE_DATABASE": self.url}
        for _ in range(count):
            command = [sys.executable, "-c", WORKER, str(HERE), "25"]
            with (self.cluster.folder / "workers.log").open("ab") as log:
                started = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stderr=log
                )
            self.workers.append(started)

    def effects(self) -> int:
        return int(str(self.sql("SELECT count(*) FROM effects")[0][0]))

    def until(self, done: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise SystemExit(f"not within {seconds:.0f} s: {self.effects()} effects")
            time.sleep(0.2)

    def stop(self) -> None:
        self.jobs.close()
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.wait()


def steady(cluster: Cluster, workers: int, runs: int) -> float:
    """Runs per second without faults, from when the first effect is seen."""
    fleet = Fleet(cluster, f"steady_{workers}")
    try:
        fleet.start(workers)
        first = fleet.jobs.submit(Job("warm up"))
        fleet.jobs.outcome(first.run)
        for number in range(runs):
            fleet.jobs.submit(Job(f"pay {number}", tenant=f"t{number % 10}"))
        started = time.monotonic()
        fleet.until(lambda: fleet.effects() == (runs + 1) * CALLS, 600)
        return runs / (time.monotonic() - started)
    finally:
        fleet.stop()


def hurt(cluster: Cluster, workers: int, runs: int) -> bool:
    """The run with faults: what was found. True if it is as it should be."""
    fleet = Fleet(cluster, "hurt")
    try:
        fleet.start(workers)
        jobs = [
            fleet.jobs.submit(Job(f"pay {number}", tenant=f"t{number % 10}"))
            for number in range(runs)
        ]
        whole = runs * CALLS
        for share, what in ((0.1, "kill"), (0.3, "freeze"), (0.45, "restart"), (0.6, "kill")):
            fleet.until(lambda share=share: fleet.effects() >= share * whole, 600)
            _fault(fleet, what)
        # By now others have its sessions, and it goes on as if nothing had happened.
        time.sleep(2 * LEASE)
        os.kill(fleet.workers[1].pid, signal.SIGCONT)
        print(f"  the frozen worker goes on at {fleet.effects()} effects")
        outcomes = [fleet.jobs.outcome(job.run) for job in jobs]
        ended = sum(outcome["stop"] == "done" for outcome in outcomes)
        attempts = int(str(fleet.sql("SELECT count(*) FROM attempts")[0][0]))
        per_run = fleet.sql(
            "SELECT count(*) FROM effects GROUP BY split_part(call, '/', 1) HAVING count(*) <> 5"
        )
        unknown = sum(outcome["text"] != f"paid {CALLS} times" for outcome in outcomes)
        effects = fleet.effects()
        print(f"{runs} runs, {workers} workers: 2 killed, 1 frozen, database restarted once")
        print(f"  ended: {ended} of {runs}; without their five results: {unknown}")
        print(
            f"  effects: {effects} of {whole}; lost {whole - effects}; runs with another "
            f"number than 5: {len(per_run)}"
        )
        print(
            f"  attempts at an effect: {attempts}; {attempts - effects} were made again and "
            "found done by their key"
        )
        return ended == runs and effects == whole and not per_run and not unknown
    finally:
        fleet.stop()


def _fault(fleet: Fleet, what: str) -> None:
    print(f"  {what} at {fleet.effects()} effects")
    if what == "restart":
        fleet.cluster.restart()
    elif what == "freeze":
        os.kill(fleet.workers[1].pid, signal.SIGSTOP)
    else:
        alive = [
            number
            for number, worker in enumerate(fleet.workers)
            if number != 1 and worker.poll() is None
        ]
        fleet.workers[alive[0]].kill()
        fleet.workers[alive[0]].wait()


def main(runs: int = 500, workers: int = 4) -> int:
    """Run it all and print what was found. 0 if nothing was lost or doubled."""
    if installed() is None:
        print("there is no PostgreSQL server here (Debian: apt-get install postgresql)")
        return 1
    folder = Path(tempfile.mkdtemp(prefix="ferrule-scale-", dir="/tmp"))
    cluster = Cluster(folder)
    cluster.make()
    cluster.start()
    try:
        for count in (1, 2, 4) if "faults" not in sys.argv else ():
            print(
                (
                    f"{count} workers: {steady(cluster, count, min(runs, 200)):.1f} runs/s of "
                    f"{CALLS} calls with an effect"
                ),
                flush=True,
            )
        return 0 if hurt(cluster, workers, runs) else 1
    finally:
        cluster.stop(signal.SIGKILL)


if __name__ == "__main__":
    raise SystemExit(main(*(int(word) for word in sys.argv[1:] if word.isdecimal())))
