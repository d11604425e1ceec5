"""Schemas of an OpenAPI document as self-contained JSON Schema: references filled in, bounded.

Nothing is in them but what checks or explains. A schema that refers to itself is filled in once
more within itself, and is open below that: the service checks what is further in. The same happens
where an operation's schemas go beyond their bounds (`ALL_BOUNDS`). An open schema accepts any
value, so nothing that the service would accept is refused here.

OpenAPI 3.0 differs from JSON Schema in `nullable` and in exclusive bounds that are flags; both are
rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferrule.connectors.json_values import list_or_empty, mapping_or_empty
from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.value_class import frozen

from .document import Document, Object


@frozen
class SchemaBounds:
    """Bounds of one operation: levels, schemas within its schemas, characters of descriptions."""

    depth: int
    nodes: int
    description: int


ALL_BOUNDS = (
    SchemaBounds(12, 600, 300),
    SchemaBounds(8, 400, 120),
    SchemaBounds(5, 200, 60),
    SchemaBounds(2, 60, 0),
)
"""What is tried in turn, until an operation's schema is small enough for a tool."""
_MAX_LISTED = 100
"""The most values of an `enum` and names of `required` or `properties`."""

_COPIED_KEYWORDS = (
    "type",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "const",
)
_LIST_KEYWORDS = {
    "oneOf": "anyOf",
    "anyOf": "anyOf",
    "allOf": "allOf",
    "prefixItems": "prefixItems",
}
"""`oneOf` becomes `anyOf`: if alternatives are left open, more than one of them fits.

`not` is left to the service for the same reason.
"""
_SCHEMA_KEYWORDS = ("items", "additionalProperties")
_FORMATS = frozenset(
    {
        "date-time",
        "date",
        "time",
        "duration",
        "email",
        "uri",
        "uuid",
        "hostname",
        "ipv4",
        "ipv6",
        "int32",
        "int64",
        "float",
        "double",
    }
)


class SchemaConverter:
    """Converts the schemas of one operation, which share a bound."""

    def __init__(self, document: Document, bounds: SchemaBounds = ALL_BOUNDS[0]) -> None:
        self._document = document
        self._bounds = bounds
        self._nodes_left = bounds.nodes

    def convert(self, value: Any, *, for_request: bool = True) -> dict[str, Any]:
        """Return a schema that stands on its own.

        Args:
            value: A schema of the document, or a reference to one.
            for_request: Whether it is for a request, which has no `readOnly` properties.

        Raises:
            UnusablePart: A reference leads nowhere.
        """
        return self._convert(value, (), 0, for_request)

    def _convert(
        self, value: Any, followed: tuple[str, ...], depth: int, writing: bool
    ) -> dict[str, Any]:
        given = mapping_or_empty(value)
        reference = given.get("$ref")
        self._nodes_left -= 1
        if depth > self._bounds.depth or self._nodes_left < 0:
            return {}
        if isinstance(reference, str):
            if followed.count(reference) > 1 or len(followed) > 2 * self._bounds.depth:
                return {}
            target = self._convert(
                self._document.resolve_reference(reference), (*followed, reference), depth, writing
            )
            own_description = self._description(given)
            return {**target, **own_description}
        converted = self._description(given)
        for key in _COPIED_KEYWORDS:
            plain = given.get(key)
            # A keyword without a value, as YAML allows it, is null: it says nothing.
            says = plain is not None or (key == "const" and key in given)
            if says and _is_plain(plain):
                converted[key] = plain
        if isinstance(converted.get("type"), list):
            # In YAML, `null` without quotes is no text.
            converted["type"] = ["null" if one is None else one for one in converted["type"]]
        enum = given.get("enum")
        if isinstance(enum, list):
            values = list_or_empty(enum)
            if len(values) <= _MAX_LISTED and all(map(_is_plain, values)):
                converted["enum"] = values
        if "default" in given and _is_plain(given["default"]):
            converted["default"] = given["default"]
        self._convert_inner(given, converted, followed, depth, writing)
        return _adapt(converted, given, self._document.is_version_3_0)

    def _description(self, given: Object) -> dict[str, Any]:
        most = self._bounds.description
        description = given.get("description") or given.get("title")
        if not isinstance(description, str) or not most:
            return {}
        # A document has far more text than is kept: only its beginning is cleaned.
        text = " ".join(clean_text(" ".join(description[: 4 * most].split())).split())
        if not text:
            return {}
        return {"description": text if len(text) <= most else text[:most] + "…"}

    def _convert_inner(
        self,
        given: Object,
        converted: dict[str, Any],
        followed: tuple[str, ...],
        depth: int,
        writing: bool,
    ) -> None:
        hidden: set[str] = set()
        hidden_flag = "readOnly" if writing else "writeOnly"
        listed_properties = given.get("properties")
        if isinstance(listed_properties, Mapping):
            properties: dict[str, Any] = {}
            for name, subschema in list(mapping_or_empty(listed_properties).items())[:_MAX_LISTED]:
                if mapping_or_empty(subschema).get(hidden_flag) is True:
                    hidden.add(name)
                else:
                    properties[clean_text(name)] = self._convert(
                        subschema, followed, depth + 1, writing
                    )
            converted["properties"] = properties
        names = [
            name
            for name in list_or_empty(given.get("required"))
            if isinstance(name, str) and name not in hidden
        ]
        if names:
            converted["required"] = list(dict.fromkeys(names))[:_MAX_LISTED]
        for key, target in _LIST_KEYWORDS.items():
            if isinstance(given.get(key), list) and given[key] and target not in converted:
                converted[target] = [
                    self._convert(subschema, followed, depth + 1, writing)
                    for subschema in list_or_empty(given[key])[:_MAX_LISTED]
                ]
        for key in _SCHEMA_KEYWORDS:
            if isinstance(given.get(key), bool):
                converted[key] = given[key]
            elif isinstance(given.get(key), Mapping):
                converted[key] = self._convert(given[key], followed, depth + 1, writing)


def _is_plain(value: Any) -> bool:
    """Return whether a value is a scalar, or a short list of them (the `type` of 3.1)."""
    if isinstance(value, list):
        items = list_or_empty(value)
        return len(items) <= 10 and all(
            item is None or isinstance(item, (str, int, float)) for item in items
        )
    return value is None or (isinstance(value, (str, int, float)) and len(str(value)) <= 1000)


def _adapt(converted: dict[str, Any], given: Object, old: bool) -> dict[str, Any]:
    """Rewrite what 3.0 writes differently, and drop formats that checkers disagree on."""
    if converted.get("format") not in _FORMATS:
        converted.pop("format", None)
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(converted.get(flag), bool):
            exclusive = converted.pop(flag)
            if exclusive and bound in converted:
                converted[flag] = converted.pop(bound)
    if old and given.get("nullable") is True:
        if isinstance(converted.get("type"), str):
            converted["type"] = [converted["type"], "null"]
            if "enum" in converted and None not in converted["enum"]:
                converted["enum"] = [*converted["enum"], None]
        elif any(key in converted for key in ("oneOf", "anyOf", "allOf")):
            inner = {key: converted.pop(key) for key in list(converted) if key != "description"}
            converted["anyOf"] = [inner, {"type": "null"}]
    return converted
