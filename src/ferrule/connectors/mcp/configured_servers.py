"""The MCP servers that a person's settings and files name, for commands and pages about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage import paths
from ferrule.storage.settings.settings import Settings

from .configuration import LoadedServers, load_servers
from .definitions import Manifest
from .server_approvals import ServerApprovals
from .server_client import ServerClient
from .spec import McpServer
from .stdio import LaunchSettings


def load_configured_servers(settings: Settings) -> LoadedServers:
    """Read the servers that the settings and files name."""
    return load_servers(
        settings.repository, paths.config(), settings.values.get("mcp_servers") or None
    )


async def list_server_tools(
    settings: Settings,
    confine: SandboxPolicy,
    server: McpServer,
    listener: Callable[[str, str], None] | None = None,
) -> Manifest:
    """Start a server and return what it offers.

    Args:
        settings: The settings in force.
        confine: The sandbox policy of commands.
        server: The server.
        listener: Hears what the server writes on standard error while it starts.

    Raises:
        ConfigError: It cannot be started, or does not answer.
    """
    launch = LaunchSettings.for_policy(
        confine, settings["sandbox.mode"], tuple(settings["env.allow"])
    )
    live = ServerClient(server, replace(launch, listener=listener), ServerApprovals(), None)
    try:
        return await live.fetch_manifest()
    except ToolFailed as error:
        raise ConfigError(error.message, code="mcp_server") from error
    finally:
        await live.close()
