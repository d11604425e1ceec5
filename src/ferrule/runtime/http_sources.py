"""HTTP tools of a run: what settings, folders and a trusted repository name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.storage import paths
from ferrule.storage.settings.settings import Settings

if TYPE_CHECKING:
    from ferrule.connectors.http import Loaded, Wanted

FOLDER = "http"
_ROOTS = (".ferrule/http/", ".harness/http/")


def http_tools_of(settings: Settings) -> Loaded | None:
    """The HTTP tools of a run; None, and nothing loaded for it, where nobody names any. Raises
    ConfigError for what cannot be used.
    """
    seen = settings.repository
    theirs = seen.state == "trusted" and any(name.startswith(_ROOTS) for name in seen.files)
    named = settings["tools.http_manifests"] or settings["tools.openapi"]
    if not theirs and not named and not (paths.config() / FOLDER).is_dir():
        return None
    from ferrule.connectors.http import load_tools

    return load_tools(wanted_of(settings), seen)


def wanted_of(settings: Settings) -> Wanted:
    """What the person's settings say of HTTP tools."""
    from ferrule.connectors.http import Wanted

    return Wanted(
        tuple(settings["tools.http_manifests"]),
        settings["tools.openapi"] or None,
        tuple(settings["tools.http_hosts"]),
        tuple(settings["tools.http_secrets"]),
        paths.config(),
    )
