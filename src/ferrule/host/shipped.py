"""The tools that the command line gives to a run."""

from __future__ import annotations

from ferrule.toolkits import browse, clock, commands, files, git, search, tasks
from ferrule.tools.definition import Tool


def shipped() -> tuple[Tool, ...]:
    """All of them, in the order of their kits."""
    return tuple(tool for kit in (files, browse, search, commands, git, tasks, clock) for tool in kit.TOOLS)
