"""The tools that the command line gives to a run."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from ferrule.core.errors import ConfigError
from ferrule.toolkits import clock, commands, tasks
from ferrule.toolkits.files import browse
from ferrule.toolkits.files import tools as files
from ferrule.toolkits.git import command
from ferrule.toolkits.search import search_files
from ferrule.tools.definition import SideEffect, Tool

_READS = (SideEffect.NONE, SideEffect.READ)


PACKS = ("typed", "git", "git_write", "git_toolbox", "code")
"""What `tools.packs` may name."""


def shipped(packs: Sequence[str] = ()) -> tuple[Tool, ...]:
    """The tools of every run, in the order of their kits, and those of the packs that a person
    named.

    Raises ConfigError for a pack that there is not.
    """
    own = tuple(
        tool
        for kit in (files, browse, search_files, commands, command, tasks, clock)
        for tool in kit.TOOLS
    )
    added = own
    for name in dict.fromkeys(packs):
        added = (*added, *_tools_of(name, own))
    return added


def _tools_of(pack: str, own: Sequence[Tool]) -> tuple[Tool, ...]:
    # Each is loaded by who names it.
    match pack:
        case "typed":
            from ferrule.toolkits.stdlib import stdlib_tools

            return stdlib_tools()
        case "git" | "git_write":
            from ferrule.toolkits.git.tools import git_tools

            return git_tools(enabled_tools=["mutation"]) if pack == "git_write" else git_tools()
        case "git_toolbox":
            from ferrule.toolkits.git.tools import git_toolbox_tools

            return git_toolbox_tools()
        case "code":
            from ferrule.toolkits.code_mode import code_tool

            return (code_tool([tool for tool in own if tool.side_effect in _READS]),)
        case _:
            near = get_close_matches(pack, PACKS, 1)
            said = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(PACKS)}"
            raise ConfigError(f"`tools.packs` names `{pack}`, and there is no such pack", hint=said)


def brought_by_runs() -> tuple[str, ...]:
    """Names of tools that a run brings where it has a use for them: found tools, kept results,
    tasks, sub-agents, skills.
    """
    from ferrule.engine import background
    from ferrule.engine.artifacts import tools as artifact_tools
    from ferrule.engine.delegation.sub_agent import DELEGATE
    from ferrule.extensions.skills.tool import NAME

    from .tool_loading import FINDERS

    tools = (*artifact_tools.TOOLS, *background.TASK_TOOLS)
    return (*(tool.full_name for tool in tools), *FINDERS, DELEGATE, NAME)
