"""An agent whose tools are the typed ones: every call of a test goes through the gate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.calls import ToolResult
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.models.scripted import Scripted
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.stdlib import stdlib_tools

Caller = Callable[..., ToolResult]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def ask(workspace: Path) -> Caller:
    """Calls one typed tool in a session of its own and gives its result."""

    def call(
        tool: str, /, *, resources: Any = (), allow: Any = (), deny: Any = (), **arguments: Any
    ) -> ToolResult:
        async def once() -> ToolResult:
            agent = Agent(
                Scripted([]),
                stdlib_tools(),
                workspace=workspace,
                storage=Storage(journal=SqliteJournal(":memory:")),
                plugins=[Parts(resources=resources)],
                permissions=Permissions(allow=allow, deny=deny),
            )
            session = agent.session()
            try:
                return await session.call(tool, **arguments)
            finally:
                await session.close()

        return asyncio.run(once())

    return call
