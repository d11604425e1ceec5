"""The plugin `search`."""

from __future__ import annotations

from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, Setup

from .search_files import TOOLS


@frozen
class Search:
    """The tool that searches for text in the files of the workspace."""

    name: ClassVar[str] = "search"

    def setup(self, setup: Setup) -> Parts:
        """Return the tool."""
        return Parts(tools=TOOLS)
