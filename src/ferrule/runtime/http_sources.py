"""The HTTP tools of a run, from settings, the person's folder and a trusted repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.storage import paths
from ferrule.storage.settings.settings import Settings

if TYPE_CHECKING:
    from ferrule.connectors.http import HttpToolSettings, LoadedTools

FOLDER = "http"
_ROOTS = (".ferrule/http/", ".harness/http/")


def load_http_tools(settings: Settings) -> LoadedTools | None:
    """Return the HTTP tools of a run.

    Returns:
        None, with no library loaded, if there are none.

    Raises:
        ConfigError: A manifest or document cannot be used.
    """
    repository = settings.repository
    in_repository = repository.state == "trusted" and any(
        name.startswith(_ROOTS) for name in repository.files
    )
    in_settings = settings["tools.http_manifests"] or settings["tools.openapi"]
    if not in_repository and not in_settings and not (paths.config() / FOLDER).is_dir():
        return None
    from ferrule.connectors.http import load_tools

    return load_tools(http_tool_settings(settings), repository)


def http_tool_settings(settings: Settings) -> HttpToolSettings:
    """Collect what the person's settings say about HTTP tools."""
    from ferrule.connectors.http import HttpToolSettings

    return HttpToolSettings(
        tuple(settings["tools.http_manifests"]),
        settings["tools.openapi"] or None,
        tuple(settings["tools.http_hosts"]),
        tuple(settings["tools.http_secrets"]),
        paths.config(),
    )
