"""Compiles a tool's schema into the strict subset, or says why that is impossible.

For a strict schema a provider promises arguments that fit it. Source: OpenAI's guide "Structured
Outputs" (supported schemas). In the subset the root is an object; every object lists all its
properties as required and allows no others; what is optional may be null instead; there is no
`allOf`, `not`, `if`, and no open map.

Three verdicts:

* `clean`: the schema is in the subset already.
* `rewritten`: optional parameters became nullable, and keywords that only narrow a value were
  removed (they are still checked where every call is validated, before it runs).
* `not_strict`: the subset cannot express it, with the reason; the tool is then sent unchanged,
  without the promise.

Nulls that stand for "left out" are removed from arguments again (`CompiledSchema.drop_nulls`), so a
handler sees what its own schema describes.

Not checked: whether a model follows a pattern's dialect, and limits that a provider changes without
saying so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.value_class import frozen

MAX_PROPERTIES = 5_000
MAX_DEPTH = 10
MAX_ENUM_VALUES = 1_000
MAX_CHARACTERS = 120_000
"""Limits of a whole schema; the last one counts the characters of names and values."""

LONG_ENUM = 250
MAX_LONG_ENUM_CHARACTERS = 15_000
"""Characters of the values of one enum that has more than `LONG_ENUM` of them."""

FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)

_KEPT_KEYWORDS = frozenset(
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
_NARROWING_KEYWORDS = frozenset(
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
_UNSUPPORTED_KEYWORDS = (
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
_STRUCTURAL_KEYWORDS = frozenset(
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

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")

Schema = dict[str, Any]


@frozen
class CompiledSchema:
    """A compiled schema.

    `schema` is the JSON to send; `changes` say what was rewritten, `reasons` why it is not strict.
    Both are sentences for people, each beginning with its place (a JSON pointer, `/` for the root).
    """

    verdict: str
    schema: str
    changes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    original: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_strict(self) -> bool:
        """Whether the schema is sent strict."""
        return self.verdict != "not_strict"

    def drop_nulls(self, arguments: str) -> str:
        """Return arguments without the nulls that stand for "left out".

        Any other text is returned byte for byte.
        """
        if self.verdict != "rewritten" or "null" not in arguments:
            return arguments
        try:
            value: Any = parse_json(arguments)
        except ValueError:
            return arguments
        restored = _NullRemover(self.original).restore(value)
        return arguments if restored == value else encode_json(restored)

    def report_lines(self) -> list[str]:
        """Return the report, one line each: the verdict, then what was changed, or why not."""
        return [
            self.verdict.replace("_", " "),
            *(f"  {line}" for line in (*self.reasons, *self.changes)),
        ]


@lru_cache(maxsize=2048)
def compile_strict(schema: str) -> CompiledSchema:
    """Compile a schema given as JSON text.

    Never raises: what cannot be compiled is `not_strict` with a reason.
    """
    try:
        given: Any = parse_json(schema) if schema else {"type": "object", "properties": {}}
    except ValueError:
        return CompiledSchema("not_strict", schema, reasons=("/: the schema is not JSON",))
    if not isinstance(given, dict):
        return CompiledSchema("not_strict", schema, reasons=("/: the schema is not an object",))
    root = cast(Schema, given)
    compiler = _SchemaCompiler(root)
    if root.get("type") != "object":
        compiler.refuse("", "the root must be of type `object`")
        compiled: Schema = {}
    else:
        compiled = compiler.compile(root, "", 0, root=True)
        compiler.add_definitions(compiled)
        compiler.check_limits()
    if compiler.reasons:
        return CompiledSchema("not_strict", schema, reasons=tuple(compiler.reasons))
    if not compiler.changes:
        return CompiledSchema("clean", schema, original=root)
    return CompiledSchema(
        "rewritten", encode_json(compiled), tuple(compiler.changes), original=root
    )


def build_reply_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the format of a reply that must fit a schema, strict if it is in the strict subset."""
    named: dict[str, Any] = {"name": "reply", "schema": schema}
    if compile_strict(encode_json(schema)).verdict == "clean":
        named["strict"] = True
    return named


class _SchemaCompiler:
    """Compiles one schema, and collects its changes and the reasons why it is not strict."""

    def __init__(self, root: Schema) -> None:
        self.changes: list[str] = []
        self.reasons: list[str] = []
        self._root = root
        self._properties = 0
        self._enum_values = 0
        self._characters = 0

    def refuse(self, place: str, reason: str) -> None:
        self.reasons.append(f"{place or '/'}: {reason}")

    def change(self, place: str, what: str) -> None:
        self.changes.append(f"{place or '/'}: {what}")

    def compile(self, given: object, place: str, depth: int, *, root: bool = False) -> Schema:
        """Return a schema in the subset. What cannot be in it is refused."""
        if not isinstance(given, dict) or not given:
            self.refuse(place, "takes any value")
            return {}
        schema = cast(Schema, given)
        if depth > MAX_DEPTH:
            self.refuse(place, f"objects are nested more than {MAX_DEPTH} deep")
            return {}
        schema = self._merge_single_all_of(schema, place)
        compiled = self._compile_keywords(schema, place)
        if "$ref" in schema:
            return self._compile_reference(schema, compiled, place)
        alternatives = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(alternatives, list):
            if root:
                self.refuse(place, "the root offers alternatives")
            if "oneOf" in schema:
                self.change(place, "`oneOf` became `anyOf`")
            compiled["anyOf"] = [
                self.compile(part, f"{place}/anyOf/{number}", depth)
                for number, part in enumerate(cast(list[Any], alternatives))
            ]
        self._compile_by_type(schema, compiled, place, depth)
        return compiled

    def add_definitions(self, compiled: Schema) -> None:
        """Add the definitions that `$ref`s point to."""
        for name in ("$defs", "definitions"):
            listed = self._root.get(name)
            if isinstance(listed, dict):
                compiled[name] = {
                    key: self.compile(part, f"/{name}/{_escape_pointer(key)}", 0)
                    for key, part in cast(dict[str, Any], listed).items()
                }

    def check_limits(self) -> None:
        """Check the limits of the whole schema."""
        for count, most, what in (
            (self._properties, MAX_PROPERTIES, "properties"),
            (self._enum_values, MAX_ENUM_VALUES, "enum values"),
            (self._characters, MAX_CHARACTERS, "characters of names and values"),
        ):
            if count > most:
                self.refuse("", f"{count} {what}, at most {most} are allowed")

    def _merge_single_all_of(self, schema: Schema, place: str) -> Schema:
        """Replace `allOf` of one schema by that schema. Some generators write it so."""
        parts = schema.get("allOf")
        if not isinstance(parts, list) or len(cast(list[Any], parts)) != 1:
            return schema
        only: Any = cast(list[Any], parts)[0]
        rest = {name: value for name, value in schema.items() if name != "allOf"}
        if not isinstance(only, dict) or set(cast(Schema, only)) & set(rest):
            return schema
        self.change(place, "`allOf` of one schema became that schema")
        return {**rest, **cast(Schema, only)}

    def _compile_keywords(self, schema: Schema, place: str) -> Schema:
        compiled: Schema = {}
        for name, value in schema.items():
            if name in _UNSUPPORTED_KEYWORDS:
                self.refuse(place, f"`{name}` is not supported in strict schemas")
            elif name == "format" and str(value) not in FORMATS:
                self.change(place, f"`format: {value}` was left out")
            elif name in _KEPT_KEYWORDS:
                compiled[name] = value
            elif name in _NARROWING_KEYWORDS:
                self.change(place, f"`{name}` was left out; calls are still checked for it")
            elif name not in _STRUCTURAL_KEYWORDS:
                self.change(place, f"`{name}` was left out")
        if "default" in schema:
            self._mention_default(schema, compiled)
        values = _as_list(schema.get("enum"))
        characters = sum(len(value) for value in values if isinstance(value, str))
        if len(values) > LONG_ENUM and characters > MAX_LONG_ENUM_CHARACTERS:
            most = f"{MAX_LONG_ENUM_CHARACTERS} are allowed for more than {LONG_ENUM} values"
            self.refuse(place, f"its enum has {characters} characters; at most {most}")
        self._enum_values += len(values)
        self._characters += characters
        return compiled

    @staticmethod
    def _mention_default(schema: Schema, compiled: Schema) -> None:
        """Mention a default in the description: it has no place in the subset."""
        description = str(schema.get("description") or "")
        if schema["default"] is not None and "default" not in description.lower():
            default = encode_json(schema["default"])
            compiled["description"] = f"{description} Default: {default}.".strip()

    def _compile_reference(self, schema: Schema, compiled: Schema, place: str) -> Schema:
        target = schema["$ref"]
        leads_somewhere = target == "#" or (
            isinstance(target, str) and _look_up(self._root, target) is not None
        )
        if not leads_somewhere:
            self.refuse(place, f"`$ref` to `{target}` leads nowhere in this schema")
        if not compiled:
            return {"$ref": target}
        # The API refuses keywords beside a reference, but not around it.
        return {**compiled, "anyOf": [{"$ref": target}]}

    def _compile_by_type(self, schema: Schema, compiled: Schema, place: str, depth: int) -> None:
        types = _types_of(schema)
        if not types and not {"enum", "const", "anyOf"} & compiled.keys():
            self.refuse(place, "names no type")
        if "object" in types:
            self._compile_object(schema, compiled, place, depth)
        if "array" in types:
            items = schema.get("items")
            compiled["items"] = self.compile(items, f"{place}/items", depth)

    def _compile_object(self, schema: Schema, compiled: Schema, place: str, depth: int) -> None:
        listed = schema.get("properties")
        properties = cast(Schema, listed) if isinstance(listed, dict) else {}
        others = schema.get("additionalProperties")
        is_open = others is None and "properties" not in schema
        if others not in (None, False) or is_open:
            self.refuse(place, "takes keys that it does not name")
            return
        if others is None:
            self.change(place, "takes no other keys")
        required = {name for name in _as_list(schema.get("required")) if isinstance(name, str)}
        compiled["properties"] = {
            name: self._compile_property(
                name, part, name in required, f"{place}/{_escape_pointer(name)}", depth
            )
            for name, part in properties.items()
        }
        compiled["required"] = list(properties)
        compiled["additionalProperties"] = False
        unknown = sorted(required - properties.keys())
        if unknown:
            self.refuse(place, f"requires `{unknown[0]}`, which it does not describe")

    def _compile_property(
        self, name: str, given: object, required: bool, place: str, depth: int
    ) -> Schema:
        self._properties += 1
        self._characters += len(name)
        compiled = self.compile(given, place, depth + 1)
        if required or not compiled:
            return compiled
        self.change(place, "is optional and may be null instead")
        return compiled if takes_null(compiled, self._root) else _make_nullable(compiled)


class _NullRemover:
    """Removes from a value the nulls of properties that are optional and not nullable.

    Places in the schema are JSON pointers (RFC 6901). Of alternatives the first one decides that
    the value then fits, and nothing is removed from what fits as it is; where no alternative fits,
    all that name a key decide about it together.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._restored: dict[tuple[str, int], tuple[Any, Any]] = {}
        self._validators: dict[str, Any] = {}

    def restore(self, value: Any, place: str = "", depth: int = 0) -> Any:
        """Return the value that is meant where the schema at `place` describes it."""
        if not _is_structure(value) or depth > 4 * MAX_DEPTH:
            return value
        key = (place, id(value))
        if key not in self._restored:
            # An alternative that leads back to itself adds nothing. The value is kept beside what
            # came of it: its number is not another's as long as it lives.
            self._restored[key] = value, value
            self._restored[key] = value, self._restore(value, place, depth + 1)
        return self._restored[key][1]

    def _restore(self, value: Any, place: str, depth: int) -> Any:
        place, schema = self._follow_references(place)
        chosen = self._choose_alternative(value, place, schema, depth)
        if isinstance(chosen, list) and "items" in schema:
            items = cast(list[Any], chosen)
            return [self.restore(item, f"{place}/items", depth) for item in items]
        properties = schema.get("properties")
        if not isinstance(chosen, dict) or not isinstance(properties, dict):
            return cast(Any, chosen)
        described = cast(Schema, properties)
        required = _as_list(schema.get("required"))
        return {
            name: self.restore(part, f"{place}/properties/{_escape_pointer(name)}", depth)
            for name, part in cast(Schema, chosen).items()
            if part is not None
            or name not in described
            or name in required
            or takes_null(described[name], self._root)
        }

    def _follow_references(self, place: str) -> tuple[str, Schema]:
        for _ in range(MAX_DEPTH):
            schema = _look_up(self._root, f"#{place}") or {}
            target = schema.get("$ref")
            if not isinstance(target, str):
                return place, schema
            place = target.removeprefix("#")
        return place, {}

    def _choose_alternative(self, value: Any, place: str, schema: Schema, depth: int) -> Any:
        parts = [
            f"{place}/{name}/{number}"
            for name in _ALTERNATIVES
            for number in range(len(_as_list(schema.get(name))))
        ]
        if not parts or self._fits(value, place):
            return value
        for part in parts:
            restored = self.restore(value, part, depth)
            if self._fits(restored, part):
                return restored
        for part in parts:
            value = self.restore(value, part, depth)
        return value

    def _fits(self, value: object, place: str) -> bool:
        import jsonschema_rs

        if place not in self._validators:
            document = "urn:schema-of-the-tool"
            try:
                self._validators[place] = jsonschema_rs.validator_for(
                    {"$ref": f"{document}#{quote(place)}"},
                    registry=jsonschema_rs.Registry([(document, dict(self._root))]),
                )
            except (ValueError, jsonschema_rs.ValidationError):
                self._validators[place] = None
        validator = self._validators[place]
        return validator is not None and validator.is_valid(value)


def takes_null(schema: object, root: Mapping[str, Any], depth: int = 0) -> bool:
    """Return whether null fits a schema, by its type, enum, const and alternatives."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return False
    found = _resolve_references(cast(Schema, schema), root)
    if "enum" in found and None not in _as_list(found["enum"]):
        return False
    if "const" in found:
        return found["const"] is None
    parts = _alternatives(found)
    if parts:
        return any(takes_null(part, root, depth + 1) for part in parts)
    return "null" in _types_of(found) or ("enum" in found and "type" not in found)


def _make_nullable(compiled: Schema) -> Schema:
    """Return the schema, or null, as one schema."""
    null = {"type": "null"}
    if "anyOf" in compiled:
        return {**compiled, "anyOf": [*compiled["anyOf"], null]}
    if "$ref" in compiled or "const" in compiled:
        labels = {name: compiled[name] for name in ("title", "description") if name in compiled}
        rest = {name: value for name, value in compiled.items() if name not in labels}
        return {**labels, "anyOf": [rest, null]}
    nullable = dict(compiled)
    if "type" in compiled:
        nullable["type"] = [*sorted(_types_of(compiled), key=str), "null"]
    if "enum" in compiled:
        nullable["enum"] = [*_as_list(compiled["enum"]), None]
    return nullable


def _types_of(schema: Schema) -> set[str]:
    named: Any = schema.get("type")
    if isinstance(named, str):
        return {named}
    return {name for name in _as_list(named) if isinstance(name, str)}


def _is_structure(value: object) -> bool:
    return isinstance(value, dict | list)


def _as_list(value: object) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


def _alternatives(schema: Schema) -> list[Any]:
    return [part for name in _ALTERNATIVES for part in _as_list(schema.get(name))]


def _resolve_references(schema: Schema, root: Mapping[str, Any]) -> Schema:
    """Follow a chain of references; return an empty schema if it leads nowhere."""
    for _ in range(MAX_DEPTH):
        target = schema.get("$ref")
        if not isinstance(target, str):
            return schema
        schema = _look_up(root, target) or {}
    return {}


def _look_up(root: Mapping[str, Any], target: str) -> Schema | None:
    if not target.startswith("#"):
        return None
    value: Any = root
    for part in target[1:].split("/")[1:]:
        if isinstance(value, list) and part.isdecimal():
            listed = cast(list[Any], value)
            value = listed[int(part)] if int(part) < len(listed) else None
        elif isinstance(value, dict):
            value = cast(Schema, value).get(part.replace("~1", "/").replace("~0", "~"))
        else:
            return None
    return cast(Schema, value) if isinstance(value, dict) else None


def _escape_pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
