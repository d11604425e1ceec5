"""Makes `command_world` importable for the tests of this folder, and a world for each."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from command_world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "sub").mkdir()
    made = World(tmp_path)
    yield made
    for closer in reversed(made.closers):
        await closer()
    assert made.list_left_files() == []
