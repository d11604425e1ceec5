"""A session whose tools are small ones of ours, and a script over them: every call goes through the
real gate and journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ferrule.core.calls import ToolResult
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.models.scripted import Scripted
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.code_mode import CodeLimits, code_tool
from ferrule.tools.decorator import tool
from ferrule.tools.definition import Tool


@dataclass
class World:
    """What the tools of a test did: `seen` in the order it happened, `most` how many ran at a
    time.
    """

    seen: list[str] = field(default_factory=list[str])
    running: int = 0
    most: int = 0
    journal: SqliteJournal = field(default_factory=lambda: SqliteJournal(":memory:"))
    together: int = 0
    arrived: asyncio.Event | None = None

    def tools(self) -> list[Tool]:
        @tool(side_effect="read", risk="safe")
        async def look(name: str, times: int = 1) -> list[str]:
            """Give a name back, several times. More words that no script needs."""
            await self._enter(f"look {name}")
            return [name] * times

        @tool(side_effect="read", risk="safe", namespace="shop")
        def price(item: str) -> dict[str, float]:
            """What an item costs."""
            self.seen.append(f"price {item}")
            return {"pear": 1.5, "plum": 0.25}

        @tool(side_effect="write", risk="safe")
        async def put(name: str) -> str:
            """Write something down."""
            await self._enter(f"put {name}")
            return f"wrote {name}"

        return [look, price, put]

    async def _enter(self, what: str) -> None:
        self.seen.append(what)
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running >= self.together and self.arrived:
            self.arrived.set()
        if self.arrived and what.startswith("look"):
            await asyncio.wait_for(self.arrived.wait(), 20)
        self.running -= 1

    def run(
        self,
        code: str,
        *,
        limits: CodeLimits | None = None,
        read_only: bool = False,
        hooks: Sequence[Any] = (),
        deny: Sequence[str] = (),
    ) -> ToolResult:
        """One script in a session of its own."""

        async def once() -> ToolResult:
            if self.together:
                self.arrived = asyncio.Event()
            tools = [one for one in self.tools() if not read_only or one.side_effect != "write"]
            given = [*self.tools(), code_tool(tools, limits=limits, read_only=read_only)]
            agent = Agent(
                Scripted([]),
                given,
                storage=Storage(journal=self.journal),
                plugins=[Parts(hooks=hooks)],
                permissions=Permissions(deny=deny),
            )
            session = agent.session()
            self.session = session.id
            try:
                return await session.call("run_code", code=code)
            finally:
                await session.close()

        return asyncio.run(once())


@pytest.fixture
def world() -> World:
    pytest.importorskip("pydantic_monty")
    return World()
