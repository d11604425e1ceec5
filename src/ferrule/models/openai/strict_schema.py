"""A tool's schema in the strict subset, in which a provider promises arguments that fit it; or why
it cannot be.

Source: OpenAI's guide "Structured Outputs" (supported schemas). The subset: the root is an object;
every object lists all its properties as required and takes no others; what is optional may be null
instead; no `allOf`, `not`, `if`, open maps.

Three verdicts. `clean`: the schema is in the subset as it stands. `rewritten`: optional parameters
became nullable, and keywords that only narrow a value were left out (they are still checked where
every call is validated, before it runs).
`not_strict`: something the subset cannot say, with the reason; the tool is then sent as it is,
without the promise. Nulls that stand for "left out" are dropped again (`restored`), so a handler
sees what its own schema describes.

Not seen here: whether a model follows a pattern's dialect, and limits that a provider changes
without saying so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, cast

from ferrule.core.calls import compact
from ferrule.core.frozen import frozen

PROPERTIES = 5_000
DEPTH = 10
ENUM_VALUES = 1_000
NAME_CHARACTERS = 120_000
"""Bounds of a whole schema: properties, objects within objects, values of enums, characters of
names and values.
"""

FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)

_KEPT = frozenset(
    {
        "type",
        "description",
        "title",
        "enum",
        "const",
        "pattern",
        "format",
        "multipleOf",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "minItems",
        "maxItems",
    }
)
_NARROWING = frozenset(
    {
        "minLength",
        "maxLength",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "contains",
        "minContains",
        "maxContains",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "propertyNames",
        "not",
    }
)
_UNSAYABLE = (
    "allOf",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "patternProperties",
    "prefixItems",
    "additionalItems",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
)
_STRUCTURE = frozenset(
    {
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "oneOf",
        "$ref",
        "$defs",
        "definitions",
    }
)

Schema = dict[str, Any]


@frozen
class Strict:
    """What came of a schema. `schema` is the JSON to send; `changes` say what was rewritten,
    `reasons` why it is not strict.

    Both are sentences for people, each beginning with the place (a JSON pointer, `/` for the root).
    """

    verdict: str
    schema: str
    changes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def strict(self) -> bool:
        return self.verdict != "not_strict"

    def restored(self, arguments: str) -> str:
        """Arguments without the nulls that stand for "left out"; any other text as it is, byte for
        byte.
        """
        if self.verdict != "rewritten" or "null" not in arguments:
            return arguments
        try:
            value: Any = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
        dropped = _Dropping(self.given)
        dropped.visit(value, self.given, 0)
        return compact(value) if dropped.count else arguments

    def lines(self) -> list[str]:
        """The report, a line each: the verdict, then what was changed, or why not."""
        return [
            self.verdict.replace("_", " "),
            *(f"  {line}" for line in (*self.reasons, *self.changes)),
        ]


@lru_cache(maxsize=2048)
def compile_strict(schema: str) -> Strict:
    """Compile a schema given as JSON text. Never raises: what cannot be compiled is `not_strict`
    with a reason.
    """
    try:
        given: Any = json.loads(schema) if schema else {"type": "object", "properties": {}}
    except (ValueError, RecursionError):
        return Strict("not_strict", schema, reasons=("/: the schema is no JSON",))
    if not isinstance(given, dict):
        return Strict("not_strict", schema, reasons=("/: the schema is no object",))
    root = cast(Schema, given)
    compiling = _Compiling(root)
    if root.get("type") != "object":
        compiling.refuse("", "the root must be of type `object`")
        made: Schema = {}
    else:
        made = compiling.definitions(compiling.schema(root, "", 0, root=True))
        compiling.bounds()
    if compiling.reasons:
        return Strict("not_strict", schema, reasons=tuple(compiling.reasons))
    if not compiling.changes:
        return Strict("clean", schema, given=root)
    return Strict("rewritten", compact(made), tuple(compiling.changes), given=root)


class _Compiling:
    """One schema on its way: what it became, and what is to be said of that."""

    def __init__(self, root: Schema) -> None:
        self.changes: list[str] = []
        self.reasons: list[str] = []
        self._root = root
        self._properties = self._values = self._characters = 0

    def refuse(self, place: str, why: str) -> None:
        self.reasons.append(f"{place or '/'}: {why}")

    def change(self, place: str, what: str) -> None:
        self.changes.append(f"{place or '/'}: {what}")

    def schema(self, given: object, place: str, depth: int, *, root: bool = False) -> Schema:
        """The schema in the subset. What cannot be in it is refused, and stands for itself."""
        if not isinstance(given, dict) or not given:
            self.refuse(place, "takes any value")
            return {}
        schema = cast(Schema, given)
        if depth > DEPTH:
            self.refuse(place, f"objects lie more than {DEPTH} deep")
            return {}
        schema = self._single(schema, place)
        made = self._keywords(schema, place)
        if "$ref" in schema:
            return self._reference(schema, made, place)
        alternatives = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(alternatives, list):
            if root:
                self.refuse(place, "the root offers alternatives")
            if "oneOf" in schema:
                self.change(place, "`oneOf` became `anyOf`")
            made["anyOf"] = [
                self.schema(part, f"{place}/anyOf/{n}", depth)
                for n, part in enumerate(cast(list[Any], alternatives))
            ]
        self._by_type(schema, made, place, depth)
        return made

    def definitions(self, made: Schema) -> Schema:
        """Add what `$ref`s point to."""
        for name in ("$defs", "definitions"):
            listed = self._root.get(name)
            if isinstance(listed, dict):
                made[name] = {
                    key: self.schema(part, f"/{name}/{_escaped(key)}", 0)
                    for key, part in cast(dict[str, Any], listed).items()
                }
        return made

    def bounds(self) -> None:
        for count, most, what in (
            (self._properties, PROPERTIES, "properties"),
            (self._values, ENUM_VALUES, "enum values"),
            (self._characters, NAME_CHARACTERS, "characters of names and values"),
        ):
            if count > most:
                self.refuse("", f"{count} {what}, at most {most} are allowed")

    def _single(self, schema: Schema, place: str) -> Schema:
        """`allOf` of one schema is that schema: some generators write it so."""
        parts = schema.get("allOf")
        if not isinstance(parts, list) or len(cast(list[Any], parts)) != 1:
            return schema
        only: Any = cast(list[Any], parts)[0]
        rest = {name: value for name, value in schema.items() if name != "allOf"}
        if not isinstance(only, dict) or set(cast(Schema, only)) & set(rest):
            return schema
        self.change(place, "`allOf` of one schema became that schema")
        return {**rest, **cast(Schema, only)}

    def _keywords(self, schema: Schema, place: str) -> Schema:
        made: Schema = {}
        for name, value in schema.items():
            if name in _UNSAYABLE:
                self.refuse(place, f"`{name}` cannot be said strictly")
            elif name == "format" and str(value) not in FORMATS:
                self.change(place, f"`format: {value}` was left out")
            elif name in _KEPT:
                made[name] = value
            elif name in _NARROWING:
                self.change(place, f"`{name}` was left out; calls are still checked for it")
            elif name not in _STRUCTURE:
                self.change(place, f"`{name}` was left out")
        if "default" in schema:
            self._default(schema, made)
        for value in _listed(schema.get("enum")):
            self._values += 1
            self._characters += len(value) if isinstance(value, str) else 0
        return made

    @staticmethod
    def _default(schema: Schema, made: Schema) -> None:
        """A default has no place in the subset; the model still learns of it."""
        said = str(schema.get("description") or "")
        if schema["default"] is not None and "default" not in said.lower():
            made["description"] = f"{said} Default: {compact(schema['default'])}.".strip()

    def _reference(self, schema: Schema, made: Schema, place: str) -> Schema:
        target = schema["$ref"]
        if not isinstance(target, str) or not (
            target == "#" or _found(self._root, target) is not None
        ):
            self.refuse(place, f"`$ref` to `{target}` leads nowhere in this schema")
        # Words beside a reference are refused; around it they are not.
        return {**made, "anyOf": [{"$ref": target}]} if made else {"$ref": target}

    def _by_type(self, schema: Schema, made: Schema, place: str, depth: int) -> None:
        types = _types(schema)
        if not types and not {"enum", "const", "anyOf"} & made.keys():
            self.refuse(place, "names no type")
        if "object" in types:
            self._object(schema, made, place, depth)
        if "array" in types:
            items = schema.get("items")
            made["items"] = self.schema(items, f"{place}/items", depth)

    def _object(self, schema: Schema, made: Schema, place: str, depth: int) -> None:
        listed = schema.get("properties")
        properties = cast(Schema, listed) if isinstance(listed, dict) else {}
        others = schema.get("additionalProperties")
        if others not in (None, False) or (
            not properties and others is None and "properties" not in schema
        ):
            self.refuse(place, "takes keys that it does not name")
            return
        if others is None:
            self.change(place, "takes no other keys")
        required = {name for name in _listed(schema.get("required")) if isinstance(name, str)}
        made["properties"] = {
            name: self._property(name, part, name in required, f"{place}/{_escaped(name)}", depth)
            for name, part in properties.items()
        }
        made["required"] = list(properties)
        made["additionalProperties"] = False
        if unknown := sorted(required - properties.keys()):
            self.refuse(place, f"requires `{unknown[0]}`, which it does not describe")

    def _property(self, name: str, given: object, required: bool, place: str, depth: int) -> Schema:
        self._properties += 1
        self._characters += len(name)
        made = self.schema(given, place, depth + 1)
        if required or not made:
            return made
        self.change(place, "is optional and may be null instead")
        return made if takes_null(made, self._root) else _nullable(made)


class _Dropping:
    """Takes out of a value the nulls of properties that the given schema leaves optional and lets
    be no null.

    Where a schema offers alternatives, the ones that name a key decide about it together.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.count = 0

    def visit(self, value: Any, schema: object, depth: int) -> None:
        if not isinstance(schema, dict) or depth > 4 * DEPTH:
            return
        found = _resolved(cast(Schema, schema), self._root)
        for part in _parts(found):
            self.visit(value, part, depth + 1)
        if isinstance(value, list) and "items" in found:
            for item in cast(list[Any], value):
                self.visit(item, found["items"], depth + 1)
        properties = found.get("properties")
        if isinstance(value, dict) and isinstance(properties, dict):
            self._object(
                cast(Schema, value), cast(Schema, properties), _listed(found.get("required")), depth
            )

    def _object(self, value: Schema, properties: Schema, required: Any, depth: int) -> None:
        for name, part in properties.items():
            if name not in value:
                continue
            if value[name] is not None:
                self.visit(value[name], part, depth + 1)
            elif name not in required and not takes_null(part, self._root):
                del value[name]
                self.count += 1


def takes_null(schema: object, root: Mapping[str, Any], depth: int = 0) -> bool:
    """Whether null fits a schema, by its type, enum, const and alternatives."""
    if not isinstance(schema, dict) or depth > DEPTH:
        return False
    found = _resolved(cast(Schema, schema), root)
    if "enum" in found and None not in _listed(found["enum"]):
        return False
    if "const" in found:
        return found["const"] is None
    parts = _parts(found)
    if parts:
        return any(takes_null(part, root, depth + 1) for part in parts)
    return "null" in _types(found) or ("enum" in found and "type" not in found)


def _nullable(made: Schema) -> Schema:
    """The same, or null."""
    null = {"type": "null"}
    if "anyOf" in made:
        return {**made, "anyOf": [*made["anyOf"], null]}
    if "$ref" in made or "const" in made:
        words = {name: made[name] for name in ("title", "description") if name in made}
        return {
            **words,
            "anyOf": [{name: value for name, value in made.items() if name not in words}, null],
        }
    nullable = dict(made)
    if "type" in made:
        nullable["type"] = [*sorted(_types(made), key=str), "null"]
    if "enum" in made:
        nullable["enum"] = [*_listed(made["enum"]), None]
    return nullable


def _types(schema: Schema) -> set[str]:
    named: Any = schema.get("type")
    return (
        {named}
        if isinstance(named, str)
        else {name for name in _listed(named) if isinstance(name, str)}
    )


def _listed(value: object) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


def _parts(schema: Schema) -> list[Any]:
    parts: list[Any] = []
    for name in ("anyOf", "oneOf", "allOf"):
        parts += _listed(schema.get(name))
    return parts


def _resolved(schema: Schema, root: Mapping[str, Any]) -> Schema:
    """What a chain of references leads to; an empty schema if it leads nowhere."""
    for _ in range(DEPTH):
        target = schema.get("$ref")
        if not isinstance(target, str):
            return schema
        schema = _found(root, target) or {}
    return {}


def _found(root: Mapping[str, Any], target: str) -> Schema | None:
    if not target.startswith("#"):
        return None
    at: Any = root
    for part in target[1:].split("/")[1:]:
        at = (
            cast(Schema, at).get(part.replace("~1", "/").replace("~0", "~"))
            if isinstance(at, dict)
            else None
        )
    return cast(Schema, at) if isinstance(at, dict) else None


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
