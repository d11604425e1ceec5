"""What of a tool is searched: its name, what it says of itself, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from ferrule.tools.definition import Tool

DEEPEST = 4
"""Levels of a schema that are read."""


class Document(NamedTuple):
    """A tool as its searchers see it.

    `parameters` are names and descriptions, also those of objects within; `values` the texts that a
    parameter may have, where they are counted up.
    """

    name: str
    description: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    values: tuple[str, ...] = ()

    def text(self) -> str:
        """Name, description, and `parameter: description` for each: the corpus of systems.md
        §2.1.
        """
        return " ".join((self.name, self.description, *map(": ".join, self.parameters)))


def document_of(tool: Tool) -> Document:
    """The document of a tool. A namespace is part of its name."""
    parameters: list[tuple[str, str]] = []
    values: list[str] = []
    _read(tool.arguments.schema, parameters, values, DEEPEST)
    return Document(tool.full_name, tool.description, tuple(parameters), tuple(values))


def _read(
    schema: Mapping[str, Any], parameters: list[tuple[str, str]], values: list[str], levels: int
) -> None:
    properties = schema.get("properties")
    if not levels or not isinstance(properties, dict):
        return
    for name, found in cast("dict[str, Any]", properties).items():
        inner = _object(found)
        parameters.append((name, str(inner.get("description") or "")))
        element = _object(inner.get("items"))
        for one in (inner, element):
            if one:
                counted = one.get("enum")
                if isinstance(counted, list):
                    values += map(str, cast("list[Any]", counted))
        for one in (inner, element):
            if one:
                _read(one, parameters, values, levels - 1)


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
