"""Replace names of tools inside descriptions when a tool is renamed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from .definition import Arguments, CheckedArguments, Tool


def rename_mentions(tool: Tool, names: Mapping[str, str]) -> Tool:
    """Return the tool with names replaced in its description and those of its parameters.

    A name is replaced if it is alone in back-ticks; without them only if it contains a `_`, since
    `read` and `search` are also ordinary words. All are replaced at once, so two names may swap.
    """
    if not names:
        return tool
    description = replace_names(tool.description, names)
    schema = _rename_in_schema(tool.arguments.schema, names)
    if description == tool.description and schema == tool.arguments.schema:
        return tool
    return replace(
        tool, description=description, arguments=_RewordedArguments(tool.arguments, schema)
    )


def replace_names(text: str, names: Mapping[str, str]) -> str:
    """Return a text with names of tools replaced."""
    if not names:
        return text
    any_name = "|".join(re.escape(name) for name in names)
    quoted = rf"(?<=`)(?:{any_name})(?=`)"
    words = [name for name in names if "_" in name]
    # The longest first: a name may continue after a dot where another name ends.
    any_word = "|".join(re.escape(name) for name in sorted(words, key=len, reverse=True))
    pattern = quoted
    if words:
        pattern += rf"|(?<![\w./:-])(?:{any_word})(?![\w/:-])"
    return re.sub(pattern, lambda match: names[match[0]], text)


def _rename_in_schema(schema: Any, names: Mapping[str, str]) -> Any:
    """Replace names in texts under `description` only.

    Enumerations, defaults and names of properties are not prose.
    """
    if isinstance(schema, list):
        return [_rename_in_schema(item, names) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    changed: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", schema).items():
        if key == "description" and isinstance(value, str):
            changed[key] = replace_names(value, names)
        else:
            changed[key] = _rename_in_schema(value, names)
    return changed


class _RewordedArguments:
    """Arguments with other descriptions in their schema; they are checked as before."""

    def __init__(self, arguments: Arguments, schema: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._schema = schema

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        return self._arguments.check(arguments)
