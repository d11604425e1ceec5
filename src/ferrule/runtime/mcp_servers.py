"""The MCP servers that the settings and `mcp.json` files name, for a run or a command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ferrule.connectors.mcp import (
    LaunchSettings,
    McpServer,
    McpServers,
    ServerApprovals,
    connect,
    load_servers,
)
from ferrule.connectors.mcp.configuration import LoadedServers, read_server
from ferrule.connectors.mcp.definitions import Manifest
from ferrule.connectors.mcp.server_client import ServerClient
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage import paths
from ferrule.storage.settings.settings import Settings
from ferrule.tools.reliability import POLICY_ERROR

from .configured_sources import MCP_FILE
from .sandbox_policy import make_sandbox_policy


def connect_servers(
    settings: Settings,
    confine: SandboxPolicy,
    taken: Iterable[str],
    editor_entries: Mapping[str, Any] | None = None,
) -> McpServers:
    """Return the MCP servers of a run; close them with the agent. None of them is started.

    Args:
        settings: The settings in force.
        confine: The sandbox policy of commands; servers get the same limits.
        taken: The names of the other tools of the run.
        editor_entries: Entries from the editor that the person works in. An entry is used only if
            the person approved the same one before; otherwise a notice names it.

    Raises:
        ConfigError: A tool policy cannot be read. A server must not run with another policy than
            the one that was written.
    """
    loaded = load_configured_servers(settings)
    if loaded.policy_errors:
        raise ConfigError("\n".join(loaded.policy_errors), code=POLICY_ERROR)
    ground = server_ground(settings, confine)
    more, problems = _select_approved(editor_entries or {}, loaded.servers)
    servers = connect((*loaded.servers, *more), launch=ground, taken_names=taken, optional=True)
    servers.add_notices(*loaded.problems, *problems)
    return servers


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
            file = paths.config() / MCP_FILE
            problems.append(
                f"server `{name}` from the editor is not started: you have not approved it; "
                f"write it into `{file}` and run `ferrule mcp approve {name}`"
            )
        else:
            used.append(server)
    return tuple(used), problems


def load_configured_servers(settings: Settings, *, as_trusted: bool = False) -> LoadedServers:
    """Read the servers that the settings and files name.

    Args:
        settings: The settings in force.
        as_trusted: Read the repository's file even if the repository is not trusted, to check it.
    """
    return load_servers(
        settings.repository,
        paths.config(),
        settings.values.get("mcp_servers") or None,
        as_trusted=as_trusted,
    )


def server_ground(settings: Settings, confine: SandboxPolicy | None = None) -> LaunchSettings:
    """Return where servers are started and how they are sandboxed, as the settings say.

    Args:
        settings: The settings in force.
        confine: The sandbox policy of commands; by default that of the settings.
    """
    policy = confine or make_sandbox_policy(settings, names=settings.names)
    return LaunchSettings(
        policy.root,
        protected_names=policy.names,
        on_missing_protection=settings["sandbox.mode"],
        bounds=policy.limits,
        allow_env=tuple(settings["env.allow"]),
        commands=policy,
    )


async def list_server_tools(
    settings: Settings, server: McpServer, listener: Callable[[str, str], None] | None = None
) -> Manifest:
    """Start a server and return what it offers.

    Args:
        settings: The settings in force.
        server: The server.
        listener: Hears what the server writes on standard error while it starts.

    Raises:
        ConfigError: It cannot be started, or does not answer.
    """
    ground = replace(server_ground(settings), listener=listener)
    live = ServerClient(server, ground, ServerApprovals(), None)
    try:
        return await live.fetch_manifest()
    except ToolFailed as error:
        raise ConfigError(error.message, code="mcp_server") from error
    finally:
        await live.close()
