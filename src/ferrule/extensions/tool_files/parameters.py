"""`parameters` of a tool file: the JSON Schema that the model sees and arguments are checked
against.

    parameters:                                    parameters:
      path: { type: string, required: true }         path:
                                                       type: string
                                                       required: true

Order is kept. A parameter is required only if it says `required: true` (systems.md §6.2).
Requirement 003 knows `type`, `description` and `required`; beyond it, `properties`, `items`, `enum`
and JSON Schema's bounds may be nested as deep as wanted. Arguments that nobody declared pass,
unless the file is `strict`; within objects the same holds.
"""

from __future__ import annotations

from typing import Any

from ferrule.extensions.front_matter import Warned, field, plain, text_of, unknown_keys
from ferrule.storage.settings.yaml_tree import Node

TYPES = ("string", "number", "integer", "boolean", "object", "array")
_COPIED = (
    "enum",
    "default",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
)
KEYS = ("type", "description", "required", "properties", "items", *_COPIED)


def parse_parameters(node: Node | None, *, strict: bool) -> tuple[dict[str, Any], list[Warned]]:
    """The schema of the whole, and what was ignored. Raises ConfigError with the place."""
    warned: list[Warned] = []
    schema: dict[str, Any] = {"type": "object"}
    if node is not None:
        if node.pairs is None:
            raise node.error(
                "`parameters` must be a mapping of names to parameters",
                hint="write `path: { type: string }`",
            )
        schema |= _object(node, strict, warned)
    schema.setdefault("properties", {})
    if strict:
        schema["additionalProperties"] = False
    return schema, warned


def _object(node: Node, strict: bool, warned: list[Warned]) -> dict[str, Any]:
    """`properties` and `required` of a mapping from names to parameters."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, (key, value) in (node.pairs or {}).items():
        if not name:
            raise key.error("a parameter without a name")
        properties[name] = _parameter(name, value, strict, warned)
        if _required(value):
            required.append(name)
    return {"properties": properties} | ({"required": required} if required else {})


def _parameter(name: str, node: Node, strict: bool, warned: list[Warned]) -> dict[str, Any]:
    if node.pairs is None:
        raise node.error(
            f"the parameter `{name}` must be a mapping", hint="write `{ type: string }`"
        )
    kind = _kind(name, node)
    schema: dict[str, Any] = {"type": kind}
    if description := text_of(node, "description"):
        schema["description"] = description
    for key in _COPIED:
        if (found := field(node, key)) is not None:
            schema[key] = plain(found)
    if (below := field(node, "properties")) is not None:
        if below.pairs is None or kind != "object":
            raise below.error(f"`properties` of `{name}` must be a mapping, and its type `object`")
        schema |= _object(below, strict, warned)
        schema["required"] = _listed(node) or schema.get("required", [])
        if strict:
            schema["additionalProperties"] = False
    if (items := field(node, "items")) is not None:
        if kind != "array":
            raise items.error(f"`items` of `{name}`: its type must be `array`")
        schema["items"] = _parameter(f"{name}[]", items, strict, warned)
    warned += unknown_keys(node, KEYS, "a parameter")
    return schema


def _kind(name: str, node: Node) -> str:
    kind = text_of(node, "type")
    if kind not in TYPES:
        place = field(node, "type") or node
        said = f"has the type `{kind}`" if kind else "has no type"
        raise place.error(f"the parameter `{name}` {said}", hint=f"use one of {', '.join(TYPES)}")
    return kind


def _required(node: Node) -> bool:
    found = field(node, "required")
    if found is None or found.items is not None:
        return False
    if not isinstance(found.value, bool):
        raise found.error("`required` must be true or false")
    return found.value


def _listed(node: Node) -> list[str]:
    """JSON Schema's own spelling: `required: [a, b]` beside `properties`."""
    found = field(node, "required")
    if found is None or found.items is None:
        return []
    names: list[Any] = [item.value for item in found.items]
    known = (field(node, "properties") or node).pairs or {}
    if missing := [name for name in names if name not in known]:
        raise found.error(f"`required` names `{missing[0]}`, which is no property")
    return names
