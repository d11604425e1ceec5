"""The plugin `diagnostics`: the checkers and language servers that the settings name."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, Setup
from ferrule.extensions.hooks.commands import HookCommandRunner

from .hook import diagnose_changes
from .server_settings import read_servers


@frozen
class Diagnostics:
    """What linters, type checkers and language servers say of a change, with its result.

    Checkers and servers run in the sandbox of commands, without a network.

    Attributes:
        checkers: Their names; `auto` stands for those that the project has configured.
        servers: Language servers, as `server_settings` describes them.
        timeout: Seconds for one run of a checker, or one answer of a server.
    """

    name: ClassVar[str] = "diagnostics"
    checkers: tuple[str, ...] = ()
    servers: object = ()
    timeout: float = 20.0

    def setup(self, setup: Setup) -> Parts:
        """Return the hook. Raises ConfigError for an unknown checker or a wrong server."""
        servers = read_servers(self.servers)
        workspace = setup.workspace
        if workspace is None or not (self.checkers or servers):
            return Parts()
        confine = setup.confine and replace(setup.confine, network=())
        commands = HookCommandRunner(workspace.root, policy=confine)
        hook = diagnose_changes(
            self.checkers,
            workspace=workspace,
            commands=commands,
            servers=servers,
            seconds=self.timeout,
        )

        @asynccontextmanager
        async def live() -> AsyncGenerator[None]:
            yield
            await commands.close()

        return Parts(hooks=(hook,), lifetime=live)
