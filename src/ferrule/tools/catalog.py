"""Hold the tools of a run: unique names, sorted, byte-stable in requests, thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from ferrule.core.errors import ToolDefinitionError
from ferrule.tools.forking import make_lock

from .decorator import tool_from_function
from .define import define_tool
from .definition import Tool
from .names import make_api_names

ToolLike = Tool | Callable[..., Any] | Mapping[str, Any]
"""A tool, a function, or a dictionary with the arguments of `define_tool`."""


def as_tool(item: ToolLike) -> Tool:
    """Make a `Tool` of a tool, a function or a dictionary.

    Raises:
        ToolDefinitionError: The function or dictionary cannot be a tool.
    """
    if isinstance(item, Tool):
        return item
    if isinstance(item, Mapping):
        return _from_dictionary(cast("Mapping[str, Any]", item))
    return tool_from_function(item)


def _from_dictionary(item: Mapping[str, Any]) -> Tool:
    fields = dict(item)
    name = fields.pop("name", None)
    description = fields.pop("description", "")
    if not isinstance(name, str):
        listed = ", ".join(map(repr, item))
        raise ToolDefinitionError(
            f"a tool given as a dictionary has no `name`; its keys: {listed or 'none'}",
            hint=(
                "write {'name': …, 'description': …, 'parameters': …, 'handler': …}, as for "
                "`define_tool`"
            ),
        )
    return define_tool(name, description, **fields)


class Catalog:
    """A set of tools by full name.

    `add` checks all tools first and then adds all of them or none. Readers never wait: they see the
    tools that were there when they looked.
    """

    def __init__(self, tools: Iterable[ToolLike] = ()) -> None:
        self._lock = make_lock()
        self._tools: dict[str, Tool] = {}
        self.version = 0
        """Counts changes; whatever was derived from the tools is valid while this is the same."""
        self._by_api_name: dict[str, str] | None = None
        self.add(*tools)

    def add(self, *tools: ToolLike) -> None:
        """Register tools; functions and dictionaries are made into tools first.

        Raises:
            ToolDefinitionError: An item cannot be a tool, or its name is not free.
        """
        made = [as_tool(item) for item in tools]
        with self._lock:
            joined = dict(self._tools)
            for item in made:
                earlier = joined.get(item.full_name)
                if earlier is not None:
                    raise ToolDefinitionError(
                        f"two tools are named `{item.full_name}` (from {earlier.source} and "
                        f"{item.source})",
                        hint="rename one, or give it a namespace",
                    )
                joined[item.full_name] = item
            self._tools = dict(sorted(joined.items()))
            self._by_api_name = None
            self.version += 1

    def get(self, name: str) -> Tool | None:
        """Return the tool with this full name or API name, or None."""
        found = self._tools.get(name)
        if found is None:
            found = self._tools.get(self._name_table().get(name, ""))
        return found

    def names(self) -> list[str]:
        """Return the full names of all tools, for the message about an unknown one."""
        return list(self._tools)

    def api_name(self, tool: Tool) -> str:
        """Return the name under which providers see this tool."""
        return _swap(self._name_table())[tool.full_name]

    def api_names(self) -> dict[str, str]:
        """Return the API name of every tool by its full name, sorted by full name."""
        return _swap(self._name_table())

    def _name_table(self) -> dict[str, str]:
        """Return the full name of every tool by its API name."""
        table = self._by_api_name
        if table is None:
            # Under the lock: a table of earlier tools must not be stored after `add` dropped it.
            with self._lock:
                table = self._by_api_name = _swap(make_api_names(self._tools))
        return table

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools


def _swap(table: dict[str, str]) -> dict[str, str]:
    return {value: key for key, value in table.items()}
