"""Names of tools inside descriptions: they follow when a tool is called something else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from .definition import Arguments, Checked, Tool


def reworded(tool: Tool, names: Mapping[str, str]) -> Tool:
    """The tool, with these names exchanged in its description and in those of its parameters. All
    at once: two may swap.

    A name is exchanged where it stands alone in back-ticks; without them only if it holds a `_`,
    since `read` and `search` are also ordinary words.
    """
    if not names:
        return tool
    description = exchanged(tool.description, names)
    schema = _reworded_schema(tool.arguments.schema, names)
    if description == tool.description and schema == tool.arguments.schema:
        return tool
    return replace(tool, description=description, arguments=_Reworded(tool.arguments, schema))


def exchanged(text: str, names: Mapping[str, str]) -> str:
    """The text with names of tools exchanged."""
    if not names:
        return text
    any_name = "|".join(map(re.escape, names))
    quoted = rf"(?<=`)(?:{any_name})(?=`)"
    words = [name for name in names if "_" in name]
    # The longest first: a name may go on behind a dot, where another one ends.
    any_word = "|".join(re.escape(name) for name in sorted(words, key=len, reverse=True))
    bare = rf"|(?<![\w./:-])(?:{any_word})(?![\w/:-])" if words else ""
    return re.sub(quoted + bare, lambda found: names[found[0]], text)


def _reworded_schema(schema: Any, names: Mapping[str, str]) -> Any:
    """Only texts under `description` change: enumerations, defaults and names of properties are no
    prose.
    """
    if isinstance(schema, list):
        return [_reworded_schema(item, names) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    items = cast("Mapping[str, Any]", schema).items()
    return {
        key: exchanged(value, names)
        if key == "description" and isinstance(value, str)
        else _reworded_schema(value, names)
        for key, value in items
    }


class _Reworded:
    """Arguments whose schema reads differently; they are checked as before."""

    def __init__(self, arguments: Arguments, schema: Mapping[str, Any]) -> None:
        self._arguments, self._schema = arguments, schema

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> Checked:
        return self._arguments.check(arguments)
