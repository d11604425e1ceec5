"""Indexes over the tools that a run may find, shared by the sessions of an agent; and the tags that
tools are filtered by.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, cast

from ferrule.tools.definition import Tool
from ferrule.tools.search.index import Index

MOST = 8
"""Indexes that are kept: one for each set of tools that sessions may find, and for each choice of
tags.
"""


class Indexes:
    """One agent's. Sessions that may find the same tools share an index; what is not used any more
    goes first.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], Index] = {}
        self._lock = threading.Lock()

    def of(self, tools: Sequence[Tool]) -> Index:
        """The index over these tools. Called in threads; the first to come makes it."""
        # The index holds its tools, so no other tool can have the place in memory of one that is
        # asked for.
        key = tuple(map(id, tools))
        with self._lock:
            index = self._made.pop(key, None) or Index(tools)
            self._made[key] = index
            while len(self._made) > MOST:
                del self._made[next(iter(self._made))]
        return index


def tags_of(tool: Tool) -> set[str]:
    """Words that a search may be narrowed to: the annotation `tags`, groups, the namespace, the MCP
    server (`mcp:name`, `name`).
    """
    found = {*_texts(tool.annotations.get("tags")), *_texts(tool.annotations.get("groups"))}
    if tool.namespace:
        found.add(tool.namespace)
    if server := _server(tool):
        found |= {server, f"mcp:{server}"}
    return found


def group_of(tool: Tool) -> str:
    """What a provider that groups tools shows this one under: its namespace, or the MCP server it
    is from; "" for none.
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
