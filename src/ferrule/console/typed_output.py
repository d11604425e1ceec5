"""A typed answer as rows of a page: a list of objects as a table, all else as a tree.

What is larger than the bounds is left out, and said; the JSON itself is the message above.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from ferrule.core.calls import parse_json
from ferrule.core.value_class import frozen

MAX_NODES = 400
"""Values that are shown."""
MAX_DEPTH = 8
MAX_TEXT = 400
"""Characters of one value that are shown."""


@frozen
class Node:
    """One value: a table, an object, a list, or a value that has no parts.

    `children` are (name, node); of a table, the rows, each a list of nodes below `columns`.
    """

    form: Literal["table", "object", "list", "value"]
    text: str = ""
    children: tuple[tuple[str, Node], ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Node, ...], ...] = ()
    left_out: int = 0


def read_output(text: str) -> Node | None:
    """Return a typed answer as a node; None if it is a plain value or no JSON."""
    try:
        value: Any = parse_json(text)
    except ValueError:
        return None
    if not isinstance(value, dict | list) or not value:
        return None
    return _Reading().read(value, 0)


class _Reading:
    def __init__(self) -> None:
        self._left = MAX_NODES

    def read(self, value: Any, depth: int) -> Node:
        self._left -= 1
        if depth >= MAX_DEPTH and isinstance(value, dict | list):
            return Node("value", _shorten(json.dumps(value, ensure_ascii=False)))
        if isinstance(value, dict):
            return self._read_members(
                "object", list(cast("Mapping[str, Any]", value).items()), depth
            )
        if isinstance(value, list):
            items = cast("list[Any]", value)
            columns = _find_columns(items)
            if columns:
                return self._read_table(items, columns, depth)
            return self._read_members(
                "list", [(str(at), one) for at, one in enumerate(items, 1)], depth
            )
        text = value if isinstance(value, str) else json.dumps(value)
        return Node("value", _shorten(text))

    def _read_members(
        self, form: Literal["object", "list"], members: Sequence[tuple[str, Any]], depth: int
    ) -> Node:
        children: list[tuple[str, Node]] = []
        for name, value in members:
            if self._left <= 0:
                break
            children.append((_shorten(name), self.read(value, depth + 1)))
        return Node(form, children=tuple(children), left_out=len(members) - len(children))

    def _read_table(self, items: list[Any], columns: tuple[str, ...], depth: int) -> Node:
        rows: list[tuple[Node, ...]] = []
        for item in items:
            if self._left <= 0:
                break
            cells = (
                self.read(item[name], depth + 1) if name in item else Node("value")
                for name in columns
            )
            rows.append(tuple(cells))
        return Node("table", columns=columns, rows=tuple(rows), left_out=len(items) - len(rows))


def _find_columns(items: list[Any]) -> tuple[str, ...]:
    """Return the names of all members of objects; nothing if not all are objects, or too many."""
    names: dict[str, None] = {}
    for item in items:
        if not isinstance(item, dict):
            return ()
        names.update(dict.fromkeys(cast("Mapping[str, Any]", item)))
    return tuple(names) if 0 < len(names) <= 12 else ()


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
