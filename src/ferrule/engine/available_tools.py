"""Names of the tools that a run may use, for handlers that list them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ferrule.core.frozen import frozen

if TYPE_CHECKING:
    from .dispatcher import Dispatcher


class DispatchingSession(Protocol):
    """A session, as far as its dispatcher goes: it may get another one."""

    @property
    def dispatcher(self) -> Dispatcher: ...


@frozen
class Usable:
    """One session's tools, with its rights as they are at that moment.
    `context.resource(Usable)` finds it.
    """

    session: DispatchingSession

    def has(self, name: str) -> bool:
        """Whether there is a tool with this full name and it may be called."""
        dispatcher = self.session.dispatcher
        tool = dispatcher.catalog.get(name)
        return tool is not None and dispatcher.usable(tool)

    def names(self) -> list[str]:
        """Return the full names of all usable tools, sorted.

        Left out are tools that are denied, need a scope that is not held, or are for other tools
        only.
        """
        dispatcher = self.session.dispatcher
        return sorted(tool.full_name for tool in dispatcher.catalog if dispatcher.usable(tool))
