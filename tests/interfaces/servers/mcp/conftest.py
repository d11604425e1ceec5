"""A place with a served agent for each test, and a person at the client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from mcp_place import Person, Place


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    from mcp_place import Place

    made = Place(tmp_path)
    async with asyncio.timeout(60):
        yield made
        await made.stack.aclose()


@pytest.fixture
def person() -> Person:
    from mcp_place import Person

    return Person()
