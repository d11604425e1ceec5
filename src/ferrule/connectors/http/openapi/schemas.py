"""Schemas of an OpenAPI document as JSON Schema that stands on its own: references filled in,
bounded, nothing in it but what checks or explains.

A schema that refers to itself is filled in once more within itself, and is open below that: the
service checks what is further in. The same where a schema is deeper than `MAX_DEPTH` or an
operation's schemas grow beyond `MAX_NODES`. What is open takes any value, so nothing that the
service would take is refused here.

OpenAPI 3.0 differs from JSON Schema in `nullable` and in exclusive bounds that are flags; both are
rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferrule.connectors.cleaning import clean
from ferrule.connectors.json_values import list_of, mapping_of

from .document import Document, Object

MAX_DEPTH = 12
MAX_NODES = 600
"""Schemas within the schemas of one operation."""
TEXT = 300
"""Characters of a description within a schema."""
_LISTED = 100
"""Values of an `enum` and names of `required` or `properties` at the most."""

_COPIED = (
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
_MANY = {"oneOf": "anyOf", "anyOf": "anyOf", "allOf": "allOf", "prefixItems": "prefixItems"}
"""`oneOf` is taken as `anyOf`: where alternatives are left open, more than one of them fits. `not`
is left to the service for the same reason.
"""
_ONE = ("items", "additionalProperties")
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


class Schemas:
    """Makes the schemas of one operation; they share a bound."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._left = MAX_NODES

    def of(self, value: Any, *, writing: bool = True) -> dict[str, Any]:
        """A schema on its own. `writing`: for a request, which has no properties that are
        `readOnly`. Raises Broken.
        """
        return self._made(value, (), 0, writing)

    def _made(
        self, value: Any, on_way: tuple[str, ...], depth: int, writing: bool
    ) -> dict[str, Any]:
        given = mapping_of(value)
        reference = given.get("$ref")
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            return {}
        if isinstance(reference, str):
            if on_way.count(reference) > 1 or len(on_way) > 2 * MAX_DEPTH:
                return {}
            target = self._made(
                self._document.target(reference), (*on_way, reference), depth, writing
            )
            said = _described(given)
            return {**target, **said}
        made = _described(given)
        for key in _COPIED:
            if key in given and _plain(given[key]):
                made[key] = given[key]
        if (
            isinstance(enum := given.get("enum"), list)
            and len(list_of(enum)) <= _LISTED
            and all(map(_plain, list_of(enum)))
        ):
            made["enum"] = list_of(enum)
        if "default" in given and _plain(given["default"]):
            made["default"] = given["default"]
        self._inner(given, made, on_way, depth, writing)
        return _corrected(made, given, self._document.old)

    def _inner(
        self,
        given: Object,
        made: dict[str, Any],
        on_way: tuple[str, ...],
        depth: int,
        writing: bool,
    ) -> None:
        hidden: set[str] = set()
        if isinstance(listed := given.get("properties"), Mapping):
            properties: dict[str, Any] = {}
            for name, one in list(mapping_of(listed).items())[:_LISTED]:
                if mapping_of(one).get("readOnly" if writing else "writeOnly") is True:
                    hidden.add(name)
                else:
                    properties[clean(name)] = self._made(one, on_way, depth + 1, writing)
            made["properties"] = properties
        names = [
            name
            for name in list_of(given.get("required"))
            if isinstance(name, str) and name not in hidden
        ]
        if names:
            made["required"] = list(dict.fromkeys(names))[:_LISTED]
        for key, meant in _MANY.items():
            if isinstance(given.get(key), list) and given[key] and meant not in made:
                made[meant] = [
                    self._made(one, on_way, depth + 1, writing)
                    for one in list_of(given[key])[:_LISTED]
                ]
        for key in _ONE:
            if isinstance(given.get(key), bool):
                made[key] = given[key]
            elif isinstance(given.get(key), Mapping):
                made[key] = self._made(given[key], on_way, depth + 1, writing)


def _described(given: Object) -> dict[str, Any]:
    said = given.get("description") or given.get("title")
    if not isinstance(said, str) or not said.strip():
        return {}
    text = " ".join(clean(said).split())
    return {"description": text if len(text) <= TEXT else text[:TEXT] + "…"}


def _plain(value: Any) -> bool:
    """A scalar, or a short list of them (the `type` of 3.1)."""
    if isinstance(value, list):
        items = list_of(value)
        return len(items) <= 10 and all(
            isinstance(one, (str, int, float)) or one is None for one in items
        )
    return value is None or (isinstance(value, (str, int, float)) and len(str(value)) <= 1000)


def _corrected(made: dict[str, Any], given: Object, old: bool) -> dict[str, Any]:
    """What 3.0 writes in another way, and formats that nobody checks alike."""
    if made.get("format") not in _FORMATS:
        made.pop("format", None)
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(made.get(flag), bool):
            exclusive = made.pop(flag)
            if exclusive and bound in made:
                made[flag] = made.pop(bound)
    if old and given.get("nullable") is True:
        if isinstance(made.get("type"), str):
            made["type"] = [made["type"], "null"]
            if "enum" in made and None not in made["enum"]:
                made["enum"] = [*made["enum"], None]
        elif any(key in made for key in ("oneOf", "anyOf", "allOf")):
            inner = {key: made.pop(key) for key in list(made) if key != "description"}
            made["anyOf"] = [inner, {"type": "null"}]
    return made
