"""The tools that the command line gives to a run."""

from __future__ import annotations

from ferrule.toolkits import browse, clock, commands, files, git, search, tasks
from ferrule.tools.definition import Tool


def shipped() -> tuple[Tool, ...]:
    """All of them, in the order of their kits."""
    return tuple(tool for kit in (files, browse, search, commands, git, tasks, clock) for tool in kit.TOOLS)


def brought_by_runs() -> tuple[str, ...]:
    """Names of tools that a run brings where it has a use for them: found tools, kept results, tasks, sub-agents, skills."""
    from ferrule.engine import artifact_tools, background
    from ferrule.engine.sub_agent import DELEGATE
    from ferrule.extend.skills.tool import NAME

    from .tool_loading import FINDERS

    tools = (*artifact_tools.TOOLS, *background.TASK_TOOLS)
    return (*(tool.full_name for tool in tools), *FINDERS, DELEGATE, NAME)
