"""Makes `script_runs` importable for the tests of this folder, and gives them workers of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.extend.starlark.pool import Pool

sys.path.insert(0, str(Path(__file__).parent))

from script_runs import Runs


@pytest.fixture(scope="module")
def shared_workers() -> Iterator[Pool]:
    """Workers for the tests of one file that leave them as they were."""
    pool = Pool(warm=1)
    yield pool
    pool.close()


@pytest.fixture
def run(shared_workers: Pool) -> Runs:
    return Runs(shared_workers)


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Workers of one test alone."""
    made = Pool()
    yield made
    made.close()
