"""A worker that ends once no job waits: the program of a Kubernetes Job (`kubernetes_job.yaml`).

    python kubernetes_worker.py shop.agents:make

The Job starts it when there is work, by a CronJob or by KEDA's ScaledJob, and its pods go away
after that. A pod that is evicted leaves its runs to others, as any worker does.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from importlib import import_module

from ferrule.jobs import Jobs, QueueError, Worker, end_process

IDLE_SECONDS = float(os.environ.get("IDLE_SECONDS", "10"))


def stop_when_idle(worker: Worker, database: str, engine: str) -> None:
    jobs = Jobs(database, engine=engine)
    looks_empty = 0
    while looks_empty < 2:
        time.sleep(IDLE_SECONDS)
        try:
            figures = jobs.measure()
        except QueueError:
            # The database is away, as it may be for a while: whether jobs wait is not known.
            continue
        # What others work may come back, if they are lost.
        looks_empty = looks_empty + 1 if figures.waiting == figures.working == 0 else 0
    jobs.close()
    worker.stop()


if __name__ == "__main__":
    database = os.environ["FERRULE_DATABASE"]
    engine = os.environ.get("FERRULE_ENGINE", "procrastinate")
    module, _, name = sys.argv[1].partition(":")
    worker = Worker(database, getattr(import_module(module), name), engine=engine)
    watching = threading.Thread(target=stop_when_idle, args=(worker, database, engine), daemon=True)
    watching.start()
    worker.run()
    end_process()
