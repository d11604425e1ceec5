"""A session to run commands in: its folder, its memory, what it was told, and a way to call its
tools.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import CommandOptions, CommandPolicy, SessionCommands, command_tools
from ferrule.toolkits.commands.policy import Behavior
from ferrule.tools.context import Context
from unheld import share_unheld

PATIENT = 60
"""Seconds that a test waits for an event at the most. None is ever waited for in full."""


class World:
    """One session. `told` are notices to the model; `news` is set when one comes."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.workspace = Workspace(folder)
        self.memory: dict[str, Any] = {}
        self.told: list[str] = []
        self.news = asyncio.Event()
        self.closers: list[Any] = []
        self.resources: dict[type, object] = {Workspace: self.workspace}
        self.set(**options)

    def set(
        self,
        policy: CommandPolicy | None = None,
        behavior: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Other settings and options for the calls that follow."""
        policy = self.resources[CommandPolicy] = policy or CommandPolicy(shell_allowed=True)
        # Held only where a test asks for it: a sandbox for each would say nothing more about the
        # tools.
        self.resources.pop(Sandbox, None)
        if policy.confine is None:
            self.resources[Sandbox] = share_unheld()
        given: dict[str, Any] = {"output_format": "value", "lifecycle": True, **options}
        if behavior is not None:
            given["behavior"] = Behavior.from_mapping(behavior)
        self.tools = {tool.name: tool for tool in command_tools(CommandOptions(**given))}

    def context(
        self, *, session: str = "s", user: str = "u", tenant: str = "t", **more: Any
    ) -> Context:
        return Context(
            Identity(tenant, user, session, "r"),
            "call_1",
            memory=self.memory,
            resources=self.resources,
            tell=self._tell,
            tell_end=self._tell,
            on_close=self.closers.append,
            **more,
        )

    def _tell(self, text: str) -> None:
        self.told.append(text)
        self.news.set()

    async def call(self, name: str, /, context: Context | None = None, **arguments: Any) -> Any:
        """What a tool answers. The arguments are checked as a model's would be."""
        tool = self.tools[name]
        checked = tool.arguments.check(json.loads(json.dumps(arguments)))
        assert not checked.problems, checked.problems
        answer = tool.handler(context=context or self.context(), **checked.values)
        return await answer if asyncio.iscoroutine(answer) else answer

    async def run(self, command: object = None, /, **arguments: Any) -> Any:
        """`run_command`: text goes to a shell, a list does not."""
        if command is not None:
            arguments["command"] = command
        if isinstance(command, str) and "mode" not in arguments:
            arguments["mode"] = "shell"
        return await self.call("run_command", **arguments)

    async def wait(self, record: dict[str, Any]) -> Any:
        return await self.call(
            "wait_command", handle_id=record["handle_id"], timeout_ms=PATIENT * 1000
        )

    async def wait_for_notice(self, word: str) -> str:
        """The first notice with this word in it."""
        async with asyncio.timeout(PATIENT):
            while not (found := [text for text in self.told if word in text]):
                self.news.clear()
                await self.news.wait()
        return found[0]

    @property
    def commands(self) -> SessionCommands:
        return SessionCommands.from_context(self.context())

    def list_left_files(self) -> list[Path]:
        """What lies in the state folder beside locks."""
        above = Path(os.environ["FERRULE_STATE"]) / "commands"
        return [path for path in above.rglob("*") if path.is_file() and path.suffix != ".lock"]
