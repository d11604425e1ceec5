"""`parameters` of a tool file: the JSON Schema that the model sees and arguments are checked with.

    parameters:                                    parameters:
      path: { type: string, required: true }         path:
                                                       type: string
                                                       required: true

Order is kept. A parameter is required only if it says `required: true` (systems.md §6.2).
Requirement 003 has `type`, `description` and `required`. In addition, `properties`, `items`, `enum`
and JSON Schema's constraints may be nested to any depth. Undeclared arguments are accepted, unless
the file is `strict`; the same holds within objects.
"""

from __future__ import annotations

from typing import Any

from ferrule.extensions.front_matter import (
    FileWarning,
    find_unknown_keys,
    get_field,
    get_text,
)
from ferrule.storage.settings.yaml_tree import Node, to_plain

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


def parse_parameters(
    node: Node | None, *, strict: bool
) -> tuple[dict[str, Any], list[FileWarning]]:
    """Return the schema of all parameters, and warnings about what was ignored.

    Raises:
        ConfigError: They are invalid. The message has the place.
    """
    warnings: list[FileWarning] = []
    schema: dict[str, Any] = {"type": "object"}
    if node is not None:
        if node.pairs is None:
            raise node.error(
                "`parameters` must be a mapping of names to parameters",
                hint="write `path: { type: string }`",
            )
        schema |= _object_schema(node, strict, warnings)
    schema.setdefault("properties", {})
    if strict:
        schema["additionalProperties"] = False
    return schema, warnings


def _object_schema(node: Node, strict: bool, warnings: list[FileWarning]) -> dict[str, Any]:
    """Return `properties` and `required` of a mapping from names to parameters."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, (key, value) in (node.pairs or {}).items():
        if not name:
            raise key.error("a parameter without a name")
        properties[name] = _parameter_schema(name, value, strict, warnings)
        if _is_required(value):
            required.append(name)
    if not required:
        return {"properties": properties}
    return {"properties": properties, "required": required}


def _parameter_schema(
    name: str, node: Node, strict: bool, warnings: list[FileWarning]
) -> dict[str, Any]:
    if node.pairs is None:
        raise node.error(
            f"the parameter `{name}` must be a mapping", hint="write `{ type: string }`"
        )
    kind = _read_type(name, node)
    schema: dict[str, Any] = {"type": kind}
    description = get_text(node, "description")
    if description:
        schema["description"] = description
    for key in _COPIED:
        value = get_field(node, key)
        if value is not None:
            schema[key] = to_plain(value)
    properties = get_field(node, "properties")
    if properties is not None:
        if properties.pairs is None or kind != "object":
            raise properties.error(
                f"`properties` of `{name}` must be a mapping, and its type `object`"
            )
        schema |= _object_schema(properties, strict, warnings)
        schema["required"] = _required_names(node) or schema.get("required", [])
        if strict:
            schema["additionalProperties"] = False
    items = get_field(node, "items")
    if items is not None:
        if kind != "array":
            raise items.error(f"`items` of `{name}`: its type must be `array`")
        schema["items"] = _parameter_schema(f"{name}[]", items, strict, warnings)
    warnings += find_unknown_keys(node, KEYS, "a parameter")
    return schema


def _read_type(name: str, node: Node) -> str:
    kind = get_text(node, "type")
    if kind not in TYPES:
        place = get_field(node, "type") or node
        found = f"has the type `{kind}`" if kind else "has no type"
        raise place.error(f"the parameter `{name}` {found}", hint=f"use one of {', '.join(TYPES)}")
    return kind


def _is_required(node: Node) -> bool:
    found = get_field(node, "required")
    if found is None or found.items is not None:
        return False
    if not isinstance(found.value, bool):
        raise found.error("`required` must be true or false")
    return found.value


def _required_names(node: Node) -> list[str]:
    """Return the names of JSON Schema's own spelling, `required: [a, b]` beside `properties`."""
    found = get_field(node, "required")
    if found is None or found.items is None:
        return []
    names: list[Any] = [item.value for item in found.items]
    known = (get_field(node, "properties") or node).pairs or {}
    for name in names:
        if name not in known:
            raise found.error(f"`required` names `{name}`, which is no property")
    return names
