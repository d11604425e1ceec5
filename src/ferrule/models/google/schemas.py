"""What Gemini reads of a JSON Schema, and what it passes over.

Schemas are sent as they are (`parametersJsonSchema`, `responseJsonSchema`). Google applies a part
of JSON Schema and ignores the rest, so what a schema asks for and a model is not held to is said
once, as a notice. Nothing is lost by it: every call and every output is checked here.

Source: Google's reference of `responseJsonSchema` (supported properties).

Not known to us: limits of depth and size, which Google does not publish. A schema beyond them is
refused with the server's own words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from ferrule.core.calls import parse_json

APPLIED = frozenset(
    {
        *("$id", "$defs", "$ref", "$anchor", "$schema", "type", "format", "title", "description"),
        *("enum", "items", "prefixItems", "minItems", "maxItems", "minimum", "maximum"),
        *("anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering"),
    }
)
"""The keywords that Gemini applies, and those that ask for nothing."""

_SILENT = frozenset({"default", "examples", "example", "$comment", "deprecated", "definitions"})
"""Keywords that hold a value to nothing: passing them over changes nothing."""

_SCHEMA_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")


@lru_cache(maxsize=4096)
def find_ignored(schema: str) -> tuple[str, ...]:
    """Return what Gemini passes over in a schema: keywords, and what they may not hold.

    Args:
        schema: A JSON Schema as JSON. One that cannot be read has nothing to say.
    """
    try:
        root: Any = parse_json(schema)
    except ValueError:
        return ()
    found: dict[str, None] = {}
    for part in _schemas_in(root):
        found.update(dict.fromkeys(_ignored_in(part)))
    return tuple(found)


def _ignored_in(schema: Mapping[str, Any]) -> Iterator[str]:
    for keyword in schema:
        if keyword not in APPLIED and keyword not in _SILENT:
            yield f"`{keyword}`"
    if "$ref" in schema and any(not name.startswith("$") for name in schema):
        yield "what stands beside a `$ref`"
    values: Any = schema.get("enum")
    if isinstance(values, list):
        plain = (str, int, float)
        listed = cast("list[Any]", values)
        if any(isinstance(one, bool) or not isinstance(one, plain) for one in listed):
            yield "an `enum` of anything but text and numbers"


def _schemas_in(root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas in it, in the order in which they are written."""
    waiting = [root]
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        fields = cast("dict[str, Any]", schema)
        yield fields
        inner: list[Any] = []
        for name in _SCHEMA_MAPS:
            named = fields.get(name)
            if isinstance(named, dict):
                inner += cast("dict[str, Any]", named).values()
        for name in _SCHEMA_LISTS:
            listed = fields.get(name)
            if isinstance(listed, list):
                inner += cast("list[Any]", listed)
        inner += [fields.get(name) for name in _SCHEMAS]
        waiting += reversed(inner)


def describe_ignored(schemas: Mapping[str, str]) -> str:
    """Return a sentence about what Gemini passes over in schemas, by their names; "" for nothing.

    Args:
        schemas: JSON Schemas as JSON, by the names of what they describe.
    """
    owners: dict[str, list[str]] = {}
    for name, schema in schemas.items():
        for ignored in find_ignored(schema):
            owners.setdefault(ignored, []).append(name)
    if not owners:
        return ""
    parts = [f"{what} ({_name_some(names)})" for what, names in owners.items()]
    return (
        f"Gemini passes over {', '.join(parts)}: the model is not held to it, "
        "and what it writes is checked here as always"
    )


def _name_some(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3])
    more = len(names) - 3
    return f"{shown} and {more} more" if more > 0 else shown
