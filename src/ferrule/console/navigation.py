"""The areas of the console, in the order of its menu; the pages of plugins come last."""

from __future__ import annotations

from typing import NamedTuple

from ferrule.runtime.chosen_plugins import list_used
from ferrule.storage.settings.settings import Settings

PLUGIN_PAGES = "/x"
"""Where the pages of plugins are."""


class Area(NamedTuple):
    """An entry of the menu.

    `path` is the beginning of the paths of all its pages; `key` opens it after `g`; "" for none.
    """

    path: str
    name: str
    key: str


AREAS = (
    Area("/runs", "Runs", "r"),
    Area("/playground", "Playground", "p"),
    Area("/tools", "Tools", "t"),
    Area("/events", "Events", "e"),
    Area("/artifacts", "Artifacts", "f"),
    Area("/policy", "Policy", "y"),
    Area("/servers", "MCP servers", "m"),
    Area("/audit", "Audit", "a"),
    Area("/costs", "Costs", "c"),
)


def list_areas(settings: Settings) -> tuple[Area, ...]:
    """Return the entries of the menu, with the pages of installed plugins that are on."""
    pages = (
        Area(f"{PLUGIN_PAGES}/{name}", entry.text, "")
        for manifest in list_used(settings)
        for name, entry in manifest.pages.items()
    )
    return (*AREAS, *pages)
