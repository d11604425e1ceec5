"""The areas of the console, in the order of its menu."""

from __future__ import annotations

from typing import NamedTuple


class Area(NamedTuple):
    """An entry of the menu.

    `path` is the beginning of the paths of all its pages; `key` opens it after `g`.
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
