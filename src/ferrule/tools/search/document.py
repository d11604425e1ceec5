"""Turn a tool into the text that is searched: its name, description and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from ferrule.tools.definition import Tool

MAX_SCHEMA_DEPTH = 4
"""Nested levels of a schema that are read."""


class Document(NamedTuple):
    """A tool as a search sees it.

    `parameters` are names and descriptions, including those of nested objects; `values` are the
    enumerated values of parameters.
    """

    name: str
    description: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    values: tuple[str, ...] = ()

    def text(self) -> str:
        """Return name, description and `parameter: description` of each (systems.md §2.1)."""
        return " ".join((self.name, self.description, *map(": ".join, self.parameters)))


def make_document(tool: Tool) -> Document:
    """Make the document of a tool. A namespace is part of the name."""
    parameters: list[tuple[str, str]] = []
    values: list[str] = []
    _read_schema(tool.arguments.schema, parameters, values, MAX_SCHEMA_DEPTH)
    return Document(tool.full_name, tool.description, tuple(parameters), tuple(values))


def _read_schema(
    schema: Mapping[str, Any], parameters: list[tuple[str, str]], values: list[str], levels: int
) -> None:
    properties = schema.get("properties")
    if not levels or not isinstance(properties, dict):
        return
    for name, found in cast("dict[str, Any]", properties).items():
        parameter = _mapping_or_empty(found)
        parameters.append((name, str(parameter.get("description") or "")))
        element = _mapping_or_empty(parameter.get("items"))
        for part in (parameter, element):
            enumerated = part.get("enum")
            if isinstance(enumerated, list):
                values += map(str, cast("list[Any]", enumerated))
        for part in (parameter, element):
            if part:
                _read_schema(part, parameters, values, levels - 1)


def _mapping_or_empty(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
