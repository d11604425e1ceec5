"""Jobs through Celery, with Redis or another broker: `celery:redis://HOST:6379/0`.

A task is acknowledged when its job has ended. The broker gives those of a lost worker to others
after `visibility_timeout`; a job that takes longer is delivered twice, which does no harm.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from celery import Celery
from celery.exceptions import Reject
from celery.worker import WorkController
from kombu.exceptions import OperationalError

from ferrule.jobs import Do, Engine, EngineOptions, EngineUnreachable, Ticket


class CeleryEngine(Engine):
    def __init__(self, options: EngineOptions) -> None:
        self._app = Celery("ferrule", broker=options.address or "redis://127.0.0.1:6379/0")
        self._app.conf.update(
            task_acks_late=True,
            task_default_queue="ferrule",
            worker_prefetch_multiplier=1,
            worker_hijack_root_logger=False,
            broker_connection_retry_on_startup=True,
            broker_transport_options={"visibility_timeout": options.lost_after},
        )

    async def prepare(self) -> None:
        await self.submit([])

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        try:
            with self._app.connection_for_write() as broker:
                broker.ensure_connection(max_retries=1, timeout=10)
                for one in tickets:
                    self._app.send_task(
                        "ferrule", [one.run], countdown=one.delay, connection=broker
                    )
        except OperationalError as error:
            raise EngineUnreachable(f"Celery's broker cannot be reached: {error}") from error

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()

        @self._app.task(name="ferrule")
        def work(run: str) -> None:
            try:
                asyncio.run_coroutine_threadsafe(do(run), loop).result()
            except BaseException as error:
                raise Reject(error, requeue=True) from error

        worker: Any = WorkController(app=self._app, pool_cls="threads", concurrency=concurrency)
        thread = threading.Thread(target=worker.start, daemon=True)
        thread.start()
        while not stop.is_set():
            if not thread.is_alive():
                raise EngineUnreachable("Celery's worker has ended, as after a lost broker")
            await asyncio.to_thread(self._restore)
            await asyncio.sleep(1)
        await asyncio.to_thread(worker.stop)

    def _restore(self) -> None:
        """Look for tasks of lost workers; Redis's transport itself looks once in a minute or so."""
        broker = self._app.connection_for_write()
        with broker, suppress(*broker.recoverable_connection_errors):
            restore = getattr(broker.default_channel.qos, "restore_visible", None)
            if restore is not None:
                restore(num=1000, interval=1)
