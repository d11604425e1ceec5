"""The tools of one session: its agent's, and after them what the session has gained since it began.

What was there keeps its place, its name on the wire and its bytes, so that a provider's cache holds what it held; what is new
stands at the end, in the order in which it came. A name that is taken stays with whoever had it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

from ferrule.core.errors import ToolDefinitionError
from ferrule.models.wire import ToolSpec
from ferrule.tools.catalog import Catalog
from ferrule.tools.decorator import make
from ferrule.tools.definition import Tool
from ferrule.tools.names import wire_name_beside


class SessionCatalog(Catalog):
    """A catalog over another one, which it never changes. `version` counts what was added here."""

    version: int

    def __init__(self, base: Catalog) -> None:
        self._base = base
        self._adding = threading.Lock()
        self._added: dict[str, tuple[Tool, str]] = {}
        """Tool and wire name, by full name, in the order in which they came."""
        super().__init__()

    @property
    def added(self) -> tuple[Tool, ...]:
        """What this session has gained, the oldest first."""
        return tuple(tool for tool, _ in self._added.values())

    def add(self, *tools: Tool | Callable[..., Any]) -> None:
        """Add tools for this session, all or none. Raises ToolDefinitionError for a name that is taken, here or on the wire."""
        made = [item if isinstance(item, Tool) else make(item) for item in tools]
        if not made:
            return
        with self._adding:
            joined = dict(self._added)
            taken = {*self._base.wire_table().values(), *(wire for _, wire in joined.values())}
            for item in made:
                earlier = self._base.get(item.full_name) or _tool(joined.get(item.full_name))
                if earlier is not None or item.full_name in taken:
                    source = f", from {earlier.source}" if earlier is not None else ""
                    raise ToolDefinitionError(
                        f"there is a tool `{item.full_name}` already{source}", hint="choose another name"
                    )
                wire = wire_name_beside(item.full_name, taken)
                joined[item.full_name] = (item, wire)
                taken.add(wire)
            self._added = joined
            self.version += 1

    def specs(self, shown: Callable[[Tool], bool]) -> tuple[ToolSpec, ...]:
        """What was added, as a model gets it: to be put behind what it has."""
        return tuple(
            ToolSpec(tool.full_name, wire, tool.description, tool.schema_json(), tool.examples)
            for tool, wire in self._added.values()
            if shown(tool)
        )

    def get(self, name: str) -> Tool | None:
        """As of any catalog."""
        found = self._base.get(name) or _tool(self._added.get(name))
        if found is not None:
            return found
        return next((tool for tool, wire in self._added.values() if wire == name), None)

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """As of any catalog."""
        return get_close_matches(name, [tool.full_name for tool in self], n=count, cutoff=0.5)

    def wire_name(self, tool: Tool) -> str:
        """As of any catalog."""
        return self.wire_table()[tool.full_name]

    def wire_table(self) -> dict[str, str]:
        """As of any catalog; what was added comes last."""
        return {**self._base.wire_table(), **{name: wire for name, (_, wire) in self._added.items()}}

    def __iter__(self) -> Iterator[Tool]:
        yield from self._base
        yield from self.added

    def __len__(self) -> int:
        return len(self._base) + len(self._added)

    def __contains__(self, name: object) -> bool:
        return name in self._base or name in self._added


def _tool(entry: tuple[Tool, str] | None) -> Tool | None:
    return entry[0] if entry is not None else None
