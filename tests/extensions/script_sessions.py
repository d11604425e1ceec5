"""A session whose tools are made of scripts, for tests of what scripts do in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ferrule import Agent
from ferrule.core.calls import ToolResult
from ferrule.core.events import Event, Noticed
from ferrule.engine.live_events import Progress
from ferrule.engine.session import Session
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.handlers import make_tool
from ferrule.extensions.tool_files.internal_tools import INTERNAL_TOOLS
from ferrule.extensions.tool_files.tool_file import parse_tool
from ferrule.models.scripted import Scripted
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.commands import run_command
from ferrule.toolkits.files import browse
from ferrule.toolkits.files import tools as files
from ferrule.tools.definition import Tool
from grouped_options import grouped


class ScriptSession:
    """A session whose tools are made of scripts. `shown` are lines for the person."""

    def __init__(
        self,
        folder: Path,
        pool: WorkerPool,
        *,
        world: ScriptEnvironment | None = None,
        commands: Any = None,
        **options: Any,
    ) -> None:
        self.folder, self.pool, self.world = folder, pool, world or ScriptEnvironment()
        self.options = {"mode": "bypassPermissions", "workspace": folder} | options
        self.commands = commands or (run_command,)
        self.journal = SqliteJournal(":memory:")
        self.shown: list[str] = []
        self.session: Session | None = None
        self.agent: Agent | None = None

    def tool(self, body: str, name: str = "mine", **fields: str) -> Tool:
        lines = [f"{key}: {value}" for key, value in fields.items()]
        script = "\n".join(f"      {line}" for line in body.splitlines())
        text = (
            "---\n"
            + "\n".join([*lines, "script: |", "  def run(args):", script])
            + "\n---\nMine.\n"
        )
        return make_tool(
            parse_tool(text.encode(), f".harness/tools/{name}.md"), self.world, pool=self.pool
        )

    def open(self, *tools: Tool) -> Session:
        found = [*tools, *INTERNAL_TOOLS, *files.TOOLS, *browse.TOOLS, *self.commands]
        self.agent = Agent(Scripted([]), found, **grouped(journal=self.journal, **self.options))
        self.session = self.agent.session()
        self.session.observe(
            lambda item: self.shown.append(item.text) if isinstance(item, Progress) else None
        )
        return self.session

    async def run(
        self, body: str, arguments: dict[str, Any] | None = None, **fields: str
    ) -> ToolResult:
        if self.session is None:
            self.open(self.tool(body, **fields))
        assert self.session is not None
        return await self.session.call("mine", **(arguments or {}))

    async def value(self, body: str, arguments: dict[str, Any] | None = None) -> Any:
        result = await self.run(body, arguments)
        assert result.success, result.error_message
        return result.data

    def events(self) -> list[Event]:
        """What the journal holds of the session."""
        assert self.session is not None
        self.session.driver.log.flush()
        return [record.event for record in self.journal.records(self.session.id)]

    def notices(self, topic: str) -> list[str]:
        """Texts of the journal's notices on a topic."""
        return [
            event.text
            for event in self.events()
            if isinstance(event, Noticed) and event.topic == topic
        ]
