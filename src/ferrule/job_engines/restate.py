"""Restate: jobs on a Restate server, which dials the workers.

`restate:URL` names where it finds them: each worker listens on the port of this URL, and something
before them, or the kernel where they share a machine, spreads connections. RESTATE_INGRESS_URL and
RESTATE_ADMIN_URL name the server, RESTATE_IDENTITY_KEYS the keys that it signs requests with. The
server has another licence than Ferrule and comes from its makers.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import restate
from hypercorn.asyncio import serve  # pyright: ignore[reportUnknownVariableType]  in part
from hypercorn.config import Config
from restate.retry_policy import InvocationRetryPolicy
from restate.server import install_shutdown_hook

from ferrule.engine.distributed.engines import (
    Do,
    Engine,
    EngineOptions,
    EngineUnreachable,
    Ticket,
    reach,
)

from .coroutines import repeat, run_with

SERVICE, HANDLER = "ferrule", "run"
HINT = (
    "is the server up, and has a worker told it where the workers are? Name it: "
    "RESTATE_INGRESS_URL and RESTATE_ADMIN_URL"
)
YEAR = timedelta(days=365)
_RETRIES = InvocationRetryPolicy(
    initial_interval=timedelta(seconds=1), exponentiation_factor=1, max_attempts=1_000_000_000
)


class RestateEngine(Engine):
    """The engine of one Restate server."""

    def __init__(self, options: EngineOptions) -> None:
        self._workers = options.parse_url("http://127.0.0.1:9080")
        self._ingress = os.environ.get("RESTATE_INGRESS_URL", "http://127.0.0.1:8080")
        self._admin = os.environ.get("RESTATE_ADMIN_URL", "http://127.0.0.1:9070")

    async def prepare(self) -> None:
        self._ask(f"{self._admin}/health")

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            delay = f"?delay={round(ticket.delay * 1000)}ms" if ticket.delay else ""
            self._ask(f"{self._ingress}/{SERVICE}/{HANDLER}/send{delay}", ticket.run)

    def _ask(self, url: str, body: object = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        request = Request(url, data, {"Content-Type": "application/json"})
        with reach(f"Restate at {self._ingress}", OSError, hint=HINT):
            try:
                urlopen(request, timeout=10).close()
            except HTTPError as error:
                error.close()
                raise

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        # A job may take as long as it likes: that its worker is gone is seen at the connection.
        service = restate.Service(
            SERVICE, inactivity_timeout=YEAR, abort_timeout=YEAR, invocation_retry_policy=_RETRIES
        )

        @service.handler(HANDLER)
        async def work(context: restate.Context, run: str) -> None:
            await do(run)

        keys = os.environ.get("RESTATE_IDENTITY_KEYS", "").split() or None
        serving: Any = restate.app([service], identity_keys=keys)
        # The library takes over SIGTERM, in the main thread, when it is first asked.
        with suppress(RuntimeError, ValueError):
            install_shutdown_hook(asyncio.get_running_loop(), stop.set)
        registering = repeat(self._register, 1, but=EngineUnreachable)
        async with run_with(registering):
            await serve(serving, self._configure(concurrency), shutdown_trigger=stop.wait)

    def _configure(self, concurrency: int) -> Config:
        is_here = self._workers.hostname in ("127.0.0.1", "localhost")
        config = Config()
        config.bind = [f"{'127.0.0.1' if is_here else '0.0.0.0'}:{self._workers.port}"]
        config.workers = 2  # so that the workers of a machine may share the port
        config.h2_max_concurrent_streams = concurrency
        config.graceful_timeout = 60
        return config

    async def _register(self) -> bool:
        """Tell the server where the workers are, once this one listens."""
        deployment = {"uri": self._workers.geturl(), "force": True}
        await asyncio.to_thread(self._ask, f"{self._admin}/deployments", deployment)
        return True
