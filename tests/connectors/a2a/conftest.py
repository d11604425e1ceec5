"""One agent and a person's folders for each test; what they are made of is in `a2a_world.py`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from a2a_world import World


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    from a2a_world import opened

    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "state"))
    async with opened(tmp_path) as made:
        yield made
