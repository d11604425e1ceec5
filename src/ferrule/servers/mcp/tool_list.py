"""Tools in the protocol's JSON: `tools/list`.

The list holds what the client's session may use: no tools for other tools, none that rules deny
outright, none that need a scope. Deferred tools are included, marked in `_meta`: clients with many
tools search on their side, and our tool search is not listed. The order is that of the catalog, the
names are those that providers accept, and a tool's side effect becomes the protocol's annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ferrule.core.calls import encode_json, parse_json
from ferrule.tools.definition import Loading, SideEffect, Tool

PAGE_SIZE = 200
"""Tools per page."""
TRUNCATED_SCHEMA = {
    "type": "object",
    "properties": {"truncated": {"const": True}},
    "required": ["truncated"],
}
"""Schema of what replaces a value that is too large."""


def tool_to_json(name: str, tool: Tool, *, modern: bool) -> dict[str, Any]:
    """Return one tool as in `tools/list`."""
    about: dict[str, Any] = {
        "name": name,
        "description": tool.description,
        "inputSchema": {"type": "object", **tool.arguments.schema},
        "annotations": tool_annotations(tool),
        "_meta": _meta(tool),
    }
    output = output_schema(tool, modern=modern)
    return about if output is None else {**about, "outputSchema": output}


def tool_annotations(tool: Tool) -> dict[str, bool]:
    """Return the protocol's hints. Undeclared side effects count as the worst."""
    if tool.side_effect in (SideEffect.NONE, SideEffect.READ):
        return {"readOnlyHint": True, "openWorldHint": False}
    return {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": tool.idempotent,
        "openWorldHint": tool.side_effect is not SideEffect.WRITE,
    }


def output_schema(tool: Tool, *, modern: bool) -> dict[str, Any] | None:
    """Return the schema of a tool's structured results: its own schema, or `CUT`.

    None if this version of the protocol cannot express it.
    """
    if tool.output is None:
        return None
    schema = tool.output.schema
    if schema.get("type") != "object" and not modern:
        return None
    return _schema_or_cut(encode_json(schema))


@lru_cache(maxsize=4096)
def _schema_or_cut(schema: str) -> dict[str, Any] | None:
    own: dict[str, Any] = parse_json(schema)
    shared = {key: own.pop(key) for key in ("$schema", "$defs") if key in own}
    if any(not one.startswith("#/$defs/") for one in _references(own, shared)):
        # A reference in it would point elsewhere inside a larger schema.
        return None
    root = {"type": "object"} if own.get("type") == "object" else {}
    return {**root, "anyOf": [own, TRUNCATED_SCHEMA], **shared}


def _references(*values: Any) -> list[str]:
    found: list[str] = []
    for value in values:
        if isinstance(value, Mapping):
            entries: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]  JSON
            for key, one in entries.items():
                found += [str(one)] if key in ("$ref", "$dynamicRef") else _references(one)
        elif isinstance(value, list):
            items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]  JSON
            found += _references(*items)
    return found


def _meta(tool: Tool) -> dict[str, str]:
    about = {"ferrule/risk": str(tool.risk), "ferrule/side_effect": str(tool.side_effect)}
    if tool.loading is Loading.DEFERRED:
        about["ferrule/loading"] = str(tool.loading)
    return about
