"""Makes `script_runs` and `script_rooms` importable for the tests of this folder, and gives them
workers of their own.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ferrule.extensions.starlark.pool import WorkerPool

sys.path.insert(0, str(Path(__file__).parent))

from script_rooms import Room
from script_runs import Runs


@pytest.fixture(scope="module")
def shared_workers() -> Iterator[WorkerPool]:
    """Workers for the tests of one file that leave them as they were."""
    pool = WorkerPool(warm=1)
    yield pool
    pool.close()


@pytest.fixture
def run(shared_workers: WorkerPool) -> Runs:
    return Runs(shared_workers)


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    """Workers of one test alone."""
    made = WorkerPool()
    yield made
    made.close()


@pytest.fixture
async def room(tmp_path: Path, shared_workers: WorkerPool) -> AsyncIterator[Room]:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"one\r\ntwo\n\nlast")
    (folder / ".env").write_text("SECRET=1")
    made = Room(folder, shared_workers)
    yield made
    if made.session is not None:
        await made.session.close()
