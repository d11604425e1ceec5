"""A PostgreSQL server of our own for the tests of this folder: private, on a socket in a temporary
folder, one per worker.

Where there is none, the server is installed from Debian's packages, if we are root and have apt;
else these tests are skipped and say so. A cluster takes a second to make, so workers do not share
one. It dies with the process that started it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cluster import Cluster, installed
from faulty import Faulty

from left_open import kept_by_process


class KeptCluster(Cluster):
    """A cluster that stays for other modules of tests when one of them has restarted it."""

    def start(self) -> None:
        with kept_by_process():
            super().start()


@cache
def why_not() -> str:
    """Why there can be no server here; "" if there can."""
    if sys.platform != "linux":
        return "PostgreSQL is started on Linux only"
    if installed() is not None:
        return ""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "there is no PostgreSQL server, and installing one takes root and apt"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "postgresql"],
    ):
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        if ran.returncode:
            return f"PostgreSQL cannot be installed: {ran.stderr.strip().splitlines()[-1:]}"
    return "" if installed() is not None else "PostgreSQL was installed and cannot be found"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("psycopg", reason="needs the extra `scale`")
    if reason := why_not():
        pytest.skip(reason)
    # Not below pytest's folders: the server runs as another user, who cannot enter these.
    folder = Path(tempfile.mkdtemp(prefix="ferrule-pg-", dir="/tmp"))
    running = KeptCluster(folder)
    try:
        running.make()
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def dsn(cluster: Cluster) -> str:
    """The server's default database, as its superuser."""
    return cluster.dsn()


@pytest.fixture
def schema(cluster: Cluster) -> Iterator[str]:
    """A name for a schema of this test alone."""
    name = cluster.free_name()
    yield name
    cluster.sql(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@pytest.fixture
def sql(cluster: Cluster, schema: str) -> Callable[..., list[tuple[object, ...]]]:
    """Statements of somebody with all rights, in the schema of this test."""

    def run(statement: str, *values: object) -> list[tuple[object, ...]]:
        return cluster.sql(statement, *values, schema=schema)

    return run


@pytest.fixture
def faulty(cluster: Cluster) -> Iterator[Faulty]:
    """A line to the server that breaks on command."""
    with tempfile.TemporaryDirectory(prefix="ferrule-line-", dir="/tmp") as folder:
        line = Faulty(Path(folder), cluster.folder)
        yield line
        line.close()
