"""What of a tool is searched: its name, what it says of itself, and what it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ferrule.tools.definition import Tool

DEEPEST = 4
"""Levels of a schema that are read."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, also of an object within: `values` are the texts it may have, if they are counted up."""

    name: str
    description: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A tool as its searchers see it. `labels` are further words it is found by."""

    name: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    labels: tuple[str, ...] = ()

    def text(self) -> str:
        """Name, description, and `parameter: description` for each: the corpus of systems.md §2.1."""
        rows = (f"{one.name}: {one.description}" for one in self.parameters)
        return " ".join((self.name, self.description, *rows, *self.labels))


def document_of(tool: Tool) -> Document:
    """The document of a tool. A namespace is part of its name."""
    return Document(tool.full_name, tool.description, tuple(_parameters(tool.arguments.schema)))


def _parameters(schema: Mapping[str, Any], depth: int = 0) -> Iterator[Parameter]:
    if depth >= DEEPEST:
        return
    for name, found in _object(schema.get("properties")).items():
        inner = _object(found)
        element = _object(inner.get("items"))
        about = str(inner.get("description") or "")
        yield Parameter(name, about, (*_values(inner), *_values(element)))
        yield from _parameters(inner, depth + 1)
        yield from _parameters(element, depth + 1)


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _values(schema: Mapping[str, Any]) -> list[str]:
    values = schema.get("enum")
    return [str(value) for value in cast("list[Any]", values)] if isinstance(values, list) else []
