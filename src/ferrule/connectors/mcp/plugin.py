"""The plugin `mcp`: the tools of the MCP servers that files and settings name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Any, ClassVar

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, Setup
from ferrule.sandbox.backends.reduced_protection import SandboxMode
from ferrule.storage import paths
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool
from ferrule.tools.reliability import POLICY_ERROR

from .configuration import PERSONAL_FILE, load_servers, read_server
from .server_approvals import ServerApprovals
from .server_client import ServerStatus
from .servers import McpServers, connect
from .spec import McpServer
from .stdio import LaunchSettings


@frozen
class Mcp:
    """The tools of MCP servers: of `mcp.json` files, of the settings and of an editor.

    A program that names its servers itself uses `connect_mcp`.

    Attributes:
        servers: Entries by name, as `mcp_servers` has them.
        editor: Entries of the editor that the person works in. One is used only if the person
            approved the same one before; otherwise a notice names it.
        sandbox: What to do where the machine cannot give the required protection.
        allow_env: Variables that a repository's servers may refer to.
    """

    name: ClassVar[str] = "mcp"
    servers: Any = None
    editor: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sandbox: SandboxMode = "ask"
    allow_env: tuple[str, ...] = ()

    def setup(self, setup: Setup) -> Parts:
        """Read the entries. No server is started.

        Raises:
            ConfigError: A tool policy cannot be read. A server must not run with another policy
                than the one that was written.
        """
        loaded = load_servers(
            setup.internals.repository, setup.internals.settings_folder, self.servers or None
        )
        if loaded.policy_errors:
            raise ConfigError("\n".join(loaded.policy_errors), code=POLICY_ERROR)
        more, problems = _select_approved(self.editor, loaded.servers)
        launch = None
        if setup.confine is not None:
            launch = LaunchSettings.for_policy(setup.confine, self.sandbox, self.allow_env)
        running = RunServers((*loaded.servers, *more), launch)

        def make_tools(tools: Catalog) -> tuple[Tool, ...]:
            connected = running.connect(tools)
            for text in (*connected.notices, *loaded.problems, *problems):
                setup.notice(text)
            if connected.summary:
                setup.internals.remark(connected.summary)
            return connected.tools

        @asynccontextmanager
        async def live() -> AsyncGenerator[None]:
            yield
            await running.close()

        return Parts(resources=(running,), lifetime=live, catalog=CatalogChanges(add=make_tools))


class RunServers:
    """The MCP servers of a run, and their state."""

    def __init__(self, servers: tuple[McpServer, ...], launch: LaunchSettings | None) -> None:
        self._servers = servers
        self._launch = launch
        self._connected: McpServers | None = None

    def connect(self, others: Catalog) -> McpServers:
        """Return the servers, whose tools have other names than these. None is started."""
        names = [tool.full_name for tool in others]
        self._connected = connect(
            self._servers, launch=self._launch, taken_names=names, optional=True
        )
        return self._connected

    def status(self) -> tuple[ServerStatus, ...]:
        """Return the status of each server, without asking it."""
        return () if self._connected is None else self._connected.status()

    async def close(self) -> None:
        """Close every connection. They open again if a tool is called later."""
        if self._connected is not None:
            await self._connected.close()


def _select_approved(
    handed: Mapping[str, Any], known: tuple[McpServer, ...]
) -> tuple[tuple[McpServer, ...], list[str]]:
    """Return the editor's entries that the person approved, and a notice for each other one."""
    used: list[McpServer] = []
    problems: list[str] = []
    approvals = ServerApprovals()
    own = {server.name: server for server in known}
    for name, entry in handed.items():
        try:
            server = read_server(name, entry, f"the server `{name}` from the editor")
        except ConfigError as error:
            problems.append(error.detail)
            continue
        if server is None or (name in own and own[name].digest() == server.digest()):
            continue
        if name in own:
            problems.append(
                f"server `{name}` from the editor is not used: you have one of the same name"
            )
        elif approvals.get(server).manifest is None:
            file = paths.config() / PERSONAL_FILE
            problems.append(
                f"server `{name}` from the editor is not started: you have not approved it; "
                f"write it into `{file}` and run `ferrule mcp approve {name}`"
            )
        else:
            used.append(server)
    return tuple(used), problems
