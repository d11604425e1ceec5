"""Which tools of a run are deferred, and how the model finds those."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import find_similar_names, suggest_names
from ferrule.storage.settings.settings import Settings
from ferrule.tools.definition import Loading, Tool
from ferrule.tools.search.options import ToolSearch

FINDERS = ("tool_search", "tool_get")
"""Tools that the agent adds if any tool is deferred. Settings may name them before they exist."""

_SERVER_MARK = "__"
"""Part of the names of MCP servers' tools. A server that does not start must not stop the run."""

_NEARLY = 0.8
"""How alike a name must be to one of a tool, from 0 to 1, to be a misspelling of it."""


def set_loading_modes(settings: Settings, tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools with the loading mode that `tools.entries` gives them.

    A person's own file may name tools of other folders, but not by a name that is nearly one of
    these: it is taken for a misspelling.

    Raises:
        ConfigError: An entry names a tool that does not exist.
    """
    given = list(tools)
    modes = {name: Loading(mode) for name, mode in settings["tools.entries"]}
    names = {tool.full_name for tool in given}
    origin = settings.origin("tools.entries")
    for name in modes:
        if name in names or _SERVER_MARK in name:
            continue
        if origin.layer != "user" or find_similar_names(name, names, cutoff=_NEARLY):
            raise ConfigError(
                f"{origin.where}: `tools.entries` names a tool `{name}`, and there is none",
                hint=suggest_names(
                    name, names, "`ferrule tools list` lists them", count=3, cutoff=0.5
                ),
            )
    result: list[Tool] = []
    for tool in given:
        mode = modes.get(tool.full_name)
        if mode is None or tool.loading is Loading.INTERNAL:
            result.append(tool)
        else:
            result.append(replace(tool, loading=mode))
    return result


def configured_tool_names(settings: Settings) -> tuple[str, ...]:
    """Return the tool names in the settings on loading, so that unknown ones can be reported."""
    return (*settings["tools.always_loaded"], *(name for name, _ in settings["tools.entries"]))


def tool_search_option(settings: Settings) -> ToolSearch | bool:
    """Return the value of `ToolCalling(search=...)` that the settings ask for.

    With `auto` there is a search only if some tool is deferred.
    """
    choice = settings["tools.tool_search"]
    if choice == "off" or FINDERS[0] in settings["tools.denied"]:
        return False
    options: dict[str, Any] = {
        "mode": settings["tools.search_mode"],
        "budget_tokens": settings["tools.search_budget"],
        "always_loaded": (
            *settings["tools.always_loaded"],
            *(name for name, mode in settings["tools.entries"] if mode == Loading.ALWAYS),
        ),
        "defer_above": settings["tools.defer_above"],
        "only_if_deferred": choice == "auto",
    }
    variant = "" if choice in ("auto", "on") else choice
    return ToolSearch(variant=variant, **options)
