"""The plugin `git`."""

from __future__ import annotations

from typing import ClassVar, Literal

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, Setup

from .git_command import TOOLS


@frozen
class Git:
    """Git as tools.

    Attributes:
        tools: `command`: `git_command`, which reads; `read`: also a tool for each reading
            operation; `write`: also for those that change something; `toolbox`: also two tools
            that find and run an operation.
    """

    name: ClassVar[str] = "git"
    tools: Literal["command", "read", "write", "toolbox"] = "command"

    def setup(self, setup: Setup) -> Parts:
        """Return the tools."""
        if self.tools == "command":
            return Parts(tools=TOOLS)
        # An agent without single operations loads none of them.
        from .tools import git_toolbox_tools, git_tools

        if self.tools == "toolbox":
            return Parts(tools=(*TOOLS, *git_toolbox_tools()))
        changing = git_tools(enabled_tools=["mutation"]) if self.tools == "write" else ()
        return Parts(tools=(*TOOLS, *git_tools(), *changing))
