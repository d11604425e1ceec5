"""Which of the tools that ship a model is offered, and the names of tools that a run may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

from ferrule.engine import background
from ferrule.engine.artifacts import tools as artifact_tools
from ferrule.engine.delegation.sub_agent import DELEGATE
from ferrule.engine.plugins.plugin_set import PluginSet
from ferrule.models.registry import find_provider
from ferrule.storage.plugins.installed import find_installed_manifests
from ferrule.storage.plugins.manifests import read_shipped_manifests
from ferrule.storage.settings.settings import Settings
from ferrule.tools.definition import Loading, Tool

from .deferred_tools import FINDERS, configured_tool_names


def list_default_names() -> tuple[str, ...]:
    """Return the names of the tools of plugins that are on by default."""
    manifests = read_shipped_manifests().values()
    return tuple(chain.from_iterable((*one.coding, *one.all) for one in manifests))


def list_known_names() -> tuple[str, ...]:
    """Return the names of tools that a run may have, whatever this one has."""
    manifests = (*read_shipped_manifests().values(), *find_installed_manifests().values())
    return (*chain.from_iterable(one.tools for one in manifests), *names_added_by_runs())


def choose_profile(settings: Settings, model: str) -> str:
    """Return the profile of a run: the one that the settings name, or the default of the model.

    Very small models are led from tool to tool and never read the descriptions of all; they do
    better with a tool of its own for each thing. A list of the only tools there are takes the place
    of a profile.
    """
    if settings["tools.allowed"] is not None:
        return "all"
    if settings["tools.profile"]:
        return settings["tools.profile"]
    row = find_provider(model)
    return "all" if row is not None and row.is_small else "coding"


def list_named_tools(settings: Settings) -> frozenset[str]:
    """Return the tools that the settings name. A model gets them whatever the profile."""
    required = chain.from_iterable(name.split("|") for name in settings["tools.required"])
    return frozenset((*configured_tool_names(settings), *required))


def apply_profile(
    plugins: PluginSet, profile: str, is_named: Callable[[str], bool]
) -> tuple[Tool, ...]:
    """Return the tools of the plugins, with those outside the profile kept from the model.

    A tool that is kept from the model can still be called by people, scripts and other tools. Only
    tools of plugins that are on by default belong to a profile: what a file puts in their place
    stays.

    Args:
        plugins: The plugins, set up.
        profile: `coding` or `all`.
        is_named: Whether settings or agents name a tool.
    """
    if profile == "all":
        return plugins.tools
    owners = {name: one.name for one in read_shipped_manifests().values() for name in one.all}

    def is_outside(tool: Tool) -> bool:
        name = tool.full_name
        owner = owners.get(name)
        return owner is not None and owner == plugins.sources.get(name) and not is_named(name)

    return tuple(
        replace(tool, loading=Loading.INTERNAL) if is_outside(tool) else tool
        for tool in plugins.tools
    )


def names_added_by_runs() -> tuple[str, ...]:
    """Return the names of tools that a run adds itself when it needs them.

    These read artifacts, find deferred tools, follow background tasks, delegate to sub-agents and
    open what a sandbox refused.
    """
    from ferrule.toolkits.commands.refused_access import OPENING_TOOL

    tools = (*artifact_tools.TOOLS, *background.TASK_TOOLS)
    names = (tool.full_name for tool in tools)
    return (*names, *FINDERS, DELEGATE, OPENING_TOOL.name)
