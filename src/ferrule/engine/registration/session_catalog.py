"""The tools of one session: its agent's, and behind them those that the session has gained.

Tools are registered (`engine.registration.registration`), gained by their source
(`Tool.find_more`: a server that announces others) or, being the agent's but deferred, discovered
(`engine.tool_search.discovery`); the model cannot tell the difference. Existing tools
keep their place, their name in requests and their bytes, so that the provider's cache stays valid;
new ones come last, in the order in which they were gained. Only a budget for discovered tools takes
some away again. A name that is taken stays with its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from ferrule.core.errors import ToolDefinitionError
from ferrule.models.client import ToolSpec
from ferrule.tools.catalog import Catalog, ToolLike, as_tool
from ferrule.tools.definition import Tool
from ferrule.tools.forking import make_lock
from ferrule.tools.names import make_free_api_name


class SessionCatalog(Catalog):
    """A catalog over another one, which it never changes.

    `version` counts the changes of what it adds to that catalog.
    """

    version: int

    def __init__(self, base: Catalog) -> None:
        self._base = base
        self._adding = make_lock()
        self._added: dict[str, tuple[Tool, str]] = {}
        """Tool and name in requests, by full name, in the order in which they were added."""
        self._gained: tuple[str, ...] = ()
        """Full names of all tools that are shown behind the base catalog's, the oldest first."""
        self._finders = tuple(dict.fromkeys(tool.find_more for tool in base if tool.find_more))
        super().__init__()

    @property
    def added(self) -> tuple[Tool, ...]:
        """The tools that were registered in this session, the oldest first."""
        return tuple(tool for tool, _ in self._added.values())

    @property
    def discovered(self) -> tuple[str, ...]:
        """Full names of the agent's deferred tools that were discovered, the oldest first."""
        return tuple(name for name in self._gained if name not in self._added)

    def add(self, *tools: ToolLike) -> None:
        """Add tools for this session, all or none.

        Raises ToolDefinitionError for a name that is taken, here or in requests.
        """
        made = [as_tool(item) for item in tools]
        if not made:
            return
        with self._adding:
            joined = dict(self._added)
            taken = {
                *self._base.api_names().values(),
                *(api_name for _, api_name in joined.values()),
            }
            for item in made:
                earlier = self._base.get(item.full_name) or _tool(joined.get(item.full_name))
                if earlier is not None or item.full_name in taken:
                    source = f", from {earlier.source}" if earlier is not None else ""
                    raise ToolDefinitionError(
                        f"there is a tool `{item.full_name}` already{source}",
                        hint="choose another name",
                    )
                api_name = make_free_api_name(item.full_name, taken)
                joined[item.full_name] = (item, api_name)
                taken.add(api_name)
            self._gained += tuple(name for name in joined if name not in self._added)
            self._added = joined
            self.version += 1

    async def gather(self) -> None:
        """Add the tools that the sources of its tools have gained (`Tool.find_more`)."""
        for find_more in self._finders:
            for tool in await find_more():
                # A name that is taken stays with its owner.
                with suppress(ToolDefinitionError):
                    self.add(tool)

    def discover(self, names: Sequence[str]) -> None:
        """Show exactly these of the agent's deferred tools.

        Those that are shown already keep their places, new ones come last.
        """
        with self._adding:
            kept = [name for name in self._gained if name in self._added or name in names]
            new = [name for name in dict.fromkeys(names) if name not in kept and name in self._base]
            gained = (*kept, *new)
            if gained != self._gained:
                self._gained = gained
                self.version += 1

    def specs(self, shown: Callable[[Tool], bool]) -> tuple[ToolSpec, ...]:
        """Return the gained tools as a model gets them, to be put behind the others."""
        names = self.api_names() if self._gained else {}
        found = ((self.get(name), names.get(name, "")) for name in self._gained)
        return tuple(
            ToolSpec(
                tool.full_name,
                api_name,
                tool.offered_description,
                tool.schema_json(),
                tool.examples,
                side_effect=tool.declared_side_effect,
            )
            for tool, api_name in found
            if tool is not None and shown(tool)
        )

    def get(self, name: str) -> Tool | None:
        """See `Catalog.get`."""
        found = self._base.get(name) or _tool(self._added.get(name))
        if found is not None:
            return found
        return next((tool for tool, api_name in self._added.values() if api_name == name), None)

    def names(self) -> list[str]:
        """See `Catalog.names`."""
        return [tool.full_name for tool in self]

    def api_name(self, tool: Tool) -> str:
        """See `Catalog.api_name`."""
        return self.api_names()[tool.full_name]

    def api_names(self) -> dict[str, str]:
        """See `Catalog.api_names`; added tools come last."""
        return {
            **self._base.api_names(),
            **{name: api_name for name, (_, api_name) in self._added.items()},
        }

    def __iter__(self) -> Iterator[Tool]:
        yield from self._base
        yield from self.added

    def __len__(self) -> int:
        return len(self._base) + len(self._added)

    def __contains__(self, name: object) -> bool:
        return name in self._base or name in self._added


def _tool(entry: tuple[Tool, str] | None) -> Tool | None:
    return entry[0] if entry is not None else None
