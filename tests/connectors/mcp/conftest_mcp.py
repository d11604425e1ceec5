"""A person's folders and a workspace of its own for each test, plain servers in it, and sessions
that say yes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ferrule.connectors.mcp import LaunchSettings, McpServer, McpServers, ServerApprovals, connect
from ferrule.core.calls import ToolResult
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.permissions.approvals import AllowlistApprover, Approver
from grouped_options import grouped

HERE = Path(__file__).parent
PYTHON = str(Path(sys.executable).resolve())


_MORE = frozenset({"env", "env_file", "readable", "writable", "network", "cwd"})
"""Fields of a server with which it gets more than commands have."""


@dataclass
class Place:
    """A workspace with the plain server in it, and the person's folders beside it."""

    root: Path
    state: Path
    servers_folder: Path
    ground: LaunchSettings
    approvals: ServerApprovals
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def plain(
        self, era: str = "new", behaviour: str = "good", name: str = "plain", **more: Any
    ) -> McpServer:
        """A plain server, as a program would name it.

        One that gets more than commands have lies where they cannot write.
        """
        script = "plain_server.py"
        if _MORE.intersection(more):
            script = str(self.servers_folder / script)
            more["readable"] = (*more.get("readable", ()), str(self.servers_folder))
        return McpServer(name, command=(PYTHON, script, era, behaviour), **more)

    def behave(self, behaviour: str) -> None:
        """What plain servers of this workspace do from now on."""
        (self.root / "behaviour.txt").write_text(behaviour)

    def seen(self) -> list[dict[str, Any]]:
        """What a plain server was sent."""
        file = self.root / "seen.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [one for one in self.seen() if one.get("method") == method]

    async def servers(self, *specs: McpServer, **more: Any) -> McpServers:
        given = {"optional": True, **more}
        opened = connect(specs, launch=self.ground, approvals=self.approvals, **given)
        return await self._stack.enter_async_context(opened)

    def session(
        self, servers: McpServers, *, approver: Approver | None = None, **more: Any
    ) -> Session:
        """A session whose person says yes to every tool of a server."""
        agent = Agent(
            "scripted:x",
            servers.tools,
            **grouped(
                workspace=self.root,
                approver=approver or AllowlistApprover(["*"]),
                journal=self.state / "journal.db",
                **more,
            ),
        )
        self._stack.push_async_callback(agent.close)
        session = agent.session()
        self._stack.push_async_callback(session.close)
        return session

    async def call(self, spec: McpServer, tool: str, /, **arguments: Any) -> ToolResult:
        """One call to one server, from nothing to its result."""
        session = self.session(await self.servers(spec))
        return await session.call(f"{spec.name}__{tool}", **arguments)

    async def until(self, holds: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait for something that another process does."""
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    root, state, servers = tmp_path / "work", tmp_path / "state", tmp_path / "servers"
    for folder in (root, servers):
        folder.mkdir()
        shutil.copy(HERE / "plain_server.py", folder)
    monkeypatch.setenv("FERRULE_STATE", str(state))
    made = Place(root, state, servers, LaunchSettings(root), ServerApprovals())
    yield made
    await made.close()
