"""What others offer to a run: tools with names of their own, what a person should know about them,
and an end to it all.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from ferrule.tools.definition import Tool


class Closes(Protocol):
    """One of those who offer something, in a run."""

    async def close(self) -> None:
        """Let go of it; it comes back if it is asked again."""
        ...


Live = TypeVar("Live", bound=Closes)


class Offered(ABC, Generic[Live]):
    """`tools` and `notices` say what there is; nobody is asked before `open`, or a tool's call.
    `taken` are names of the run's other tools.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = frozenset(taken)
        self._live: dict[str, Live] = {}
        self._unseen: list[Live] = []
        self._made: dict[str, Tool] = {}
        self._notices: list[str] = []

    @property
    def tools(self) -> tuple[Tool, ...]:
        """For a catalog, sorted by name."""
        return tuple(self._made[name] for name in sorted(self._made))

    @property
    def notices(self) -> tuple[str, ...]:
        """For the person: what waits for approval, was left out, or shadows something."""
        return tuple(self._notices)

    def note(self, *said: str) -> None:
        """Add to what a person is told: entries that could not be used."""
        self._notices += said

    @abstractmethod
    async def open(self) -> Self:
        """Look at those of a program that were never seen: these, and only these, are asked."""

    async def close(self) -> None:
        """End what runs, and hang up. Tools begin again if they are called later."""
        await asyncio.gather(*(live.close() for live in self._live.values()))

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
        """Offer one more tool, or say that its name is taken."""
        if tool.full_name in self._taken or tool.full_name in self._made:
            self._notices.append(f"`{tool.full_name}` is left out: another tool has its name")
            return False
        self._made[tool.full_name] = tool
        return True
