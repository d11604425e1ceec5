"""The tools that other systems offer to a run: unique names, notices for a person, and cleanup."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from ferrule.tools.definition import Tool


class Closable(Protocol):
    """A remote system that a run uses."""

    async def close(self) -> None:
        """Release it. It is opened again if it is used again."""
        ...


Client = TypeVar("Client", bound=Closable)


class RemoteTools(ABC, Generic[Client]):
    """The tools of several remote systems, in one run.

    `tools` and `notices` say what there is. No remote system is contacted before `open` or a call
    of a tool.

    Args:
        taken_names: Names of the run's other tools.
    """

    def __init__(self, taken_names: Iterable[str]) -> None:
        self._taken = frozenset(taken_names)
        self._clients: dict[str, Client] = {}
        self._never_seen: list[Client] = []
        self._tools: dict[str, Tool] = {}
        self._notices: list[str] = []

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools for a catalog, sorted by name."""
        return tuple(self._tools[name] for name in sorted(self._tools))

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences for a person: what waits for approval, was left out, or shadows something."""
        return tuple(self._notices)

    def add_notices(self, *messages: str) -> None:
        """Add notices, for instance about entries that could not be used."""
        self._notices += messages

    @abstractmethod
    async def open(self) -> Self:
        """Contact the systems that a program names and that were never seen, and only these."""

    async def close(self) -> None:
        """Close every connection. They open again if a tool is called later."""
        await asyncio.gather(*(live.close() for live in self._clients.values()))

    async def __aenter__(self) -> Self:
        try:
            return await self.open()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _add(self, tool: Tool) -> bool:
        """Add a tool, or add a notice and return False if its name is taken."""
        if tool.full_name in self._taken or tool.full_name in self._tools:
            self._notices.append(f"`{tool.full_name}` is left out: another tool has this name")
            return False
        self._tools[tool.full_name] = tool
        return True
