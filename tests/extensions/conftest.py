"""Makes `script_runs` and `script_sessions` importable for the tests of this folder, and gives them
workers of their own.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ferrule.extensions.starlark.pool import WorkerPool

sys.path.insert(0, str(Path(__file__).parent))

from script_runs import Runs
from script_sessions import ScriptSession


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
async def script_session(
    tmp_path: Path, shared_workers: WorkerPool
) -> AsyncIterator[ScriptSession]:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"one\r\ntwo\n\nlast")
    (folder / ".env").write_text("SECRET=1")
    made = ScriptSession(folder, shared_workers)
    yield made
    if made.session is not None:
        await made.session.close()
