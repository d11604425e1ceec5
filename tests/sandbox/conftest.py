"""Makes `shelled` importable for the tests of this folder, and gives them a sandbox."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrule.sandbox.sandbox import Sandbox
from unheld import open_unheld

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
async def plain_sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox that holds nothing."""
    sandbox = open_unheld()
    yield sandbox
    await sandbox.close()
