"""The plugin `files`."""

from __future__ import annotations

from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, Setup

from . import browse, tools


@frozen
class Files:
    """Tools that read, write, edit and list the files of the workspace."""

    name: ClassVar[str] = "files"

    def setup(self, setup: Setup) -> Parts:
        """Return the tools."""
        return Parts(tools=(*tools.TOOLS, *browse.TOOLS))
