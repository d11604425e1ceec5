"""Ferrule's workers: jobs are handed in one by one, then the table of outcomes is looked at until all have an outcome."""

import asyncio
import os
import subprocess
import sys
import time

import psycopg
from model import prompt

from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.jobs import Jobs

DATABASE = os.environ["BENCH_DATABASE"]
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "200"))


def make(job, journal):
    from ferrule_one import TOOLS, model

    from ferrule import Agent, Storage

    storage = Storage(journal=journal, tenant=job.tenant, user=job.user)
    return Agent(model(), TOOLS, storage=storage, tool_calling="native")


class System:
    async def start(self):
        self.jobs = Jobs(DATABASE)
        me = [os.environ.get("BENCH_WORKER_PYTHON", sys.executable), __file__]
        self.workers = [
            subprocess.Popen(me, stdin=subprocess.DEVNULL, stdout=sys.stderr)
            for _ in range(int(os.environ["BENCH_WORKERS"]))
        ]

    async def runs(self, ids):
        began = time.perf_counter()
        for one in ids:
            self.jobs.submit(Job(prompt(one), run=one))
        handed = time.perf_counter() - began
        with psycopg.connect(DATABASE, autocommit=True) as db:
            ask = "SELECT count(*) FROM ferrule.outcomes WHERE ended IS NOT NULL AND run = ANY(%s)"
            while db.execute(ask, (ids,)).fetchone()[0] < len(ids):
                await asyncio.sleep(0.05)
                if time.perf_counter() - began > 120 or any(
                    worker.poll() is not None for worker in self.workers
                ):
                    return ["late, or a worker has ended"] * len(ids)
        print(
            f"handing in: {handed:.2f} s; all: {time.perf_counter() - began:.2f} s",
            file=sys.stderr,
            flush=True,
        )
        return [self.jobs.outcome(one)["text"] for one in ids[:3]]

    async def stop(self):
        self.jobs.close()
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait(30)


if __name__ == "__main__":
    from ferrule.engine.distributed.worker import Worker

    Worker(DATABASE, make, concurrency=CONCURRENCY).run()
