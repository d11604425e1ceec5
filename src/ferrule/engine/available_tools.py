"""What a run may use, for handlers that list it: names only, as its rights are at that moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrule.core.frozen import frozen

if TYPE_CHECKING:
    from .dispatcher import Dispatcher


@frozen
class Usable:
    """A session's. `context.resource(Usable)` finds it."""

    dispatcher: Callable[[], Dispatcher]

    def has(self, name: str) -> bool:
        """Whether a tool with this full name is there and may be called."""
        dispatcher = self.dispatcher()
        tool = dispatcher.catalog.get(name)
        return tool is not None and dispatcher.usable(tool)

    def names(self) -> list[str]:
        """Full names, sorted; without tools that are denied, need a scope that is not held, or are
        for other tools only.
        """
        dispatcher = self.dispatcher()
        return sorted(tool.full_name for tool in dispatcher.catalog if dispatcher.usable(tool))
