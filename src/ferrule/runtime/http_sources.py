"""The HTTP tools of a run, from settings, the person's folder and a trusted repository."""

from __future__ import annotations

from ferrule.connectors.http import HttpToolSettings, LoadedTools, load_tools
from ferrule.storage import paths
from ferrule.storage.settings.settings import Settings


def load_http_tools(settings: Settings) -> LoadedTools:
    """Return the HTTP tools of a run.

    Raises:
        ConfigError: A manifest or document cannot be used.
    """
    return load_tools(http_tool_settings(settings), settings.repository)


def http_tool_settings(settings: Settings) -> HttpToolSettings:
    """Collect what the person's settings say about HTTP tools."""
    return HttpToolSettings(
        tuple(settings["tools.http_manifests"]),
        settings["tools.openapi"] or None,
        tuple(settings["tools.http_hosts"]),
        tuple(settings["tools.http_secrets"]),
        paths.config(),
    )
