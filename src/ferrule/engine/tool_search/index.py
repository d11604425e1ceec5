"""Indexes over the tools that a run may find, shared by an agent's sessions; and tags of tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from ferrule.tools.definition import Tool
from ferrule.tools.forking import make_lock
from ferrule.tools.search.index import ToolIndex

MAX_INDEXES = 8
"""Maximum number of indexes: one for each set of tools and for each choice of tags."""


class Indexes:
    """The indexes of one agent.

    Sessions that may find the same tools share an index; the least recently used goes first.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], ToolIndex] = {}
        self._lock = make_lock()

    def of(self, tools: Sequence[Tool]) -> ToolIndex:
        """Return the index over these tools. Called in threads; the first caller builds it."""
        # The index keeps its tools alive, so no other tool can have the same identity.
        key = tuple(map(id, tools))
        with self._lock:
            index = self._made.pop(key, None) or ToolIndex(tools)
            self._made[key] = index
            while len(self._made) > MAX_INDEXES:
                del self._made[next(iter(self._made))]
        return index


def tags_of(tool: Tool) -> set[str]:
    """Return the tags by which a search may be narrowed.

    The annotation `tags`, groups, the namespace, the MCP server (`mcp:name`, `name`).
    """
    found = {*_texts(tool.annotations.get("tags")), *_texts(tool.annotations.get("groups"))}
    if tool.namespace:
        found.add(tool.namespace)
    server = _server(tool)
    if server:
        found |= {server, f"mcp:{server}"}
    return found


def group_of(tool: Tool) -> str:
    """Return the tool's group for a provider that groups tools; "" for none.

    Its namespace, or its MCP server.
    """
    return tool.namespace or _server(tool)


def _server(tool: Tool) -> str:
    kind, _, server = tool.source.partition(" ")
    return server if kind == "mcp" else ""


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple, set, frozenset)):
        return tuple(str(one) for one in cast("Iterable[object]", value))
    return ()
