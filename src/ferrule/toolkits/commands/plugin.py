"""The plugin `commands`."""

from __future__ import annotations

from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, Setup

from . import TOOLS


@frozen
class Commands:
    """The tool that runs commands, as the `CommandPolicy` among the agent's resources says."""

    name: ClassVar[str] = "commands"

    def setup(self, setup: Setup) -> Parts:
        """Return the tool."""
        return Parts(tools=TOOLS)
