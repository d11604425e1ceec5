"""The tools that a run may use, for handlers that list them or check a call against its rights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ferrule.core.value_class import frozen
from ferrule.permissions.rule_evaluation import Decision
from ferrule.tools.definition import Tool

from .dispatcher import Dispatcher


class DispatchingSession(Protocol):
    """A session, as far as its dispatcher is concerned: it may be replaced."""

    @property
    def dispatcher(self) -> Dispatcher: ...


@frozen
class UsableTools:
    """The tools of one session, with its current rights.

    `context.resource(UsableTools)` finds it.
    """

    session: DispatchingSession

    def has(self, name: str) -> bool:
        """Whether a tool with this full name exists and may be called."""
        dispatcher = self.session.dispatcher
        tool = dispatcher.catalog.get(name)
        return tool is not None and dispatcher.is_usable(tool)

    def decide(self, tool: Tool, values: Mapping[str, Any]) -> Decision:
        """Return what the session's rules say of a call with these checked values."""
        return self.session.dispatcher.gate.decide(tool, values)

    def start_in(self, tool: Tool, folder: str, unless: tuple[str, ...]) -> None:
        """Have commands of a tool judged as started in a folder; see `PermissionGate.start_in`."""
        self.session.dispatcher.gate.start_in(tool, folder, unless)

    def names(self) -> list[str]:
        """Return the full names of all usable tools, sorted.

        Left out are tools that are denied, need a scope that is not held, or are for other tools
        only.
        """
        dispatcher = self.session.dispatcher
        return sorted(tool.full_name for tool in dispatcher.catalog if dispatcher.is_usable(tool))
