"""Tell which sources of tools the settings name, before the library behind one is loaded."""

from __future__ import annotations

from ferrule.storage import paths
from ferrule.storage.settings.settings import Settings

MCP_FILE = "mcp.json"
HTTP_FOLDER = "http"
_HTTP_ROOTS = (".ferrule/http/", ".harness/http/")


def has_mcp_servers(settings: Settings) -> bool:
    """Return whether a file or a setting names an MCP server."""
    repository = settings.repository
    in_repository = repository.state == "trusted" and ".mcp.json" in repository.files
    has_file = (paths.config() / MCP_FILE).exists()
    return in_repository or has_file or bool(settings.values.get("mcp_servers"))


def has_peers(settings: Settings) -> bool:
    """Return whether the settings name an A2A agent."""
    return bool(settings.values.get("a2a_peers"))


def has_http_tools(settings: Settings) -> bool:
    """Return whether a file or a setting declares HTTP tools."""
    repository = settings.repository
    in_repository = repository.state == "trusted" and any(
        name.startswith(_HTTP_ROOTS) for name in repository.files
    )
    in_settings = settings["tools.http_manifests"] or settings["tools.openapi"]
    return bool(in_repository or in_settings or (paths.config() / HTTP_FOLDER).is_dir())
