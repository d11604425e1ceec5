"""Diagnostics after edits: the checkers and language servers that the settings name."""

from __future__ import annotations

from ferrule.extensions.diagnostics.hook import diagnose_changes
from ferrule.extensions.diagnostics.server_settings import read_servers
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage.settings.settings import Settings


class RunDiagnostics:
    """The hook of one assembly, and what it starts.

    Args:
        settings: The settings of the run.
        workspace: The workspace, with the deny rules of the run. Closed with this.
        confine: The sandbox policy of commands; checkers and servers get no network.

    Raises:
        ConfigError: The settings name a checker that there is not, or describe a server wrongly.
    """

    def __init__(self, settings: Settings, workspace: Workspace, confine: SandboxPolicy) -> None:
        self._workspace = workspace
        self._commands = HookCommandRunner(workspace.root, policy=confine)
        self.hook = diagnose_changes(
            settings["diagnostics.checkers"],
            workspace=workspace,
            commands=self._commands,
            servers=read_servers(settings["diagnostics.servers"]),
            seconds=settings["diagnostics.timeout"],
        )

    async def close(self) -> None:
        """End what runs."""
        await self._commands.close()
        self._workspace.close()
