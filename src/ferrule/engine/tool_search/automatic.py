"""Deferral of tools that are too many, by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import SEARCH_TOOLS_SOURCE, Tool
from ferrule.tools.search.options import ToolSearch

from .discovery import is_deferred

_REMOTE = ("mcp ", "http ")
"""Beginnings of the sources of tools that servers and documents bring, dozens at a time."""
_SEARCH_TOOLS = 2
"""Number of tools that a search adds."""


def defer_many(
    given: ToolSearch | None,
    catalog: Catalog,
    usable: Callable[[Tool], bool],
    bound: int | None,
) -> ToolSearch | None:
    """Return a search in which tools that are too many are deferred.

    Above `defer_above`, those of servers and documents are. If more than `bound` are left, which is
    what the provider takes, others are, too, the last by name first.
    """
    option = given or ToolSearch()
    pinned = option.always_loaded
    loaded = [
        tool
        for tool in catalog
        if tool.source != SEARCH_TOOLS_SOURCE and usable(tool) and not is_deferred(tool, option)
    ]
    free = [tool for tool in loaded if tool.full_name not in pinned and tool.name not in pinned]
    names: list[str] = []
    if option.defer_above is not None and len(loaded) > option.defer_above:
        names = [tool.full_name for tool in free if tool.source.startswith(_REMOTE)]
    left = len(loaded) - len(names)
    if bound is not None and left > bound:
        # Half of the places are for what a search finds.
        excess = left - (bound // 2 - _SEARCH_TOOLS)
        others = [tool.full_name for tool in free if tool.full_name not in names]
        names += others[::-1][:excess]
    if not names:
        return given
    mode = option.mode
    if len(names) == len(loaded) and mode == "auto":
        mode = "client"  # providers that search want one tool that is loaded
    return replace(option, mode=mode, also_deferred=(*option.also_deferred, *names))
