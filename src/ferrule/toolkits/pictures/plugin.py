"""The plugin `pictures`."""

from __future__ import annotations

from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, Setup

from . import TOOLS


@frozen
class Pictures:
    """Tools that make pictures of web pages and of pages of PDFs."""

    name: ClassVar[str] = "pictures"

    def setup(self, setup: Setup) -> Parts:
        """Return the tools."""
        return Parts(tools=TOOLS)
