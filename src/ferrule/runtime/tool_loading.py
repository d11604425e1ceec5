"""How the tools of a command-line run are loaded: which are deferred, and how the model finds
those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError
from ferrule.storage.settings.settings import Settings
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Loading, Tool

if TYPE_CHECKING:
    from ferrule.tools.search.options import ToolSearch

FINDERS = ("tool_search", "tool_get")
"""Tools that the agent adds itself where something is deferred: settings may name them though they
are not there yet.
"""

_OF_SERVERS = "__"
"""Part of the names of MCP servers' tools: a server that does not start today takes no command line
with it.
"""


def loaded(settings: Settings, tools: Iterable[Tool]) -> list[Tool]:
    """The tools, loaded as `tools.entries` says. Raises ConfigError for an entry that names
    none.
    """
    given = list(tools)
    modes = {name: Loading(mode) for name, mode in settings["tools.entries"]}
    names = {tool.full_name for tool in given}
    for name in modes:
        if name not in names and _OF_SERVERS not in name:
            near = ", ".join(f"`{one}`" for one in Catalog(given).nearest(name))
            raise ConfigError(
                (
                    f"{settings.origin('tools.entries').where}: `tools.entries` names a tool "
                    f"`{name}`, and there is none"
                ),
                hint=f"nearest: {near}" if near else "`ferrule tools list` lists them",
            )
    return [
        replace(tool, loading=modes[tool.full_name])
        if tool.full_name in modes and tool.loading is not Loading.INTERNAL
        else tool
        for tool in given
    ]


def named_for_loading(settings: Settings) -> tuple[str, ...]:
    """Names of tools that these settings hold, for a notice where there is no such tool."""
    return (*settings["tools.always_loaded"], *(name for name, _ in settings["tools.entries"]))


def search_of(settings: Settings, catalog: Catalog) -> ToolSearch | bool | None:
    """What the settings say for `Agent(tool_search=...)`; `auto` and whatever refines it count
    where something is deferred.
    """
    word = settings["tools.tool_search"]
    if word == "off" or FINDERS[0] in settings["tools.denied"]:
        return False
    given: dict[str, Any] = {
        "mode": settings["tools.search_mode"],
        "budget_tokens": settings["tools.search_budget"],
        "always_loaded": settings["tools.always_loaded"],
    }
    if word == "auto" and not any(tool.loading is Loading.DEFERRED for tool in catalog):
        return None
    from ferrule.tools.search.options import ToolSearch

    return ToolSearch(variant="" if word in ("auto", "on") else word, **given)
