"""A form for the arguments of a tool, made from its JSON Schema, and the values that were typed.

Text, numbers, booleans, and a choice among constants have fields of their own; lists and objects
are written as JSON. What a field cannot express (an argument that the schema does not name, an
empty text where omitting it would mean something else) is written as JSON in `ADDITIONAL`. This
module only reads what was typed: whether the values fit is decided by the tool's own check, as for
every call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from ferrule.core.calls import parse_json
from ferrule.core.value_class import frozen

Kind = Literal["text", "integer", "number", "boolean", "choice", "either", "json"]
"""Kind of a field. `either`: text, or JSON of another type that the schema also accepts."""
PREFIX = "arg."
"""Prefix of a field's name in the form."""
ADDITIONAL = "more"
"""The field of further arguments, as one JSON object."""
_KINDS: dict[str, Kind] = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}
_MAX_REFERENCES = 8
"""References that are followed to find the type of a field."""


@frozen
class Field:
    """One argument.

    `choices` and `value` are as they appear in the form; a choice is the JSON of its constant.
    """

    name: str
    kind: Kind
    required: bool
    description: str = ""
    choices: tuple[str, ...] = ()
    value: str = ""
    hint: str = ""


def build_fields(schema: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> list[Field]:
    """Return the fields of an object's schema, required ones first.

    `values` fill them in; without them, the schema's defaults do.
    """
    named = cast("Mapping[str, Any]", schema.get("properties") or {})
    required = set(cast("list[str]", schema.get("required") or []))
    fields: list[Field] = []
    for name, part in named.items():
        shape = _resolve(part, schema)
        field = _field(name, shape, name in required)
        given = (values or {}).get(name, shape.get("default") if values is None else None)
        fields.append(field if given is None else replace(field, value=_to_text(field, given)))
    return sorted(fields, key=lambda field: not field.required)


def _resolve(part: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an argument's schema with references resolved and `null` removed."""
    if not isinstance(part, dict):
        return {}
    shape: dict[str, Any] = cast("dict[str, Any]", part)
    for _ in range(_MAX_REFERENCES):
        if "$ref" in shape:
            shape = {**_follow_reference(schema, str(shape["$ref"])), **_without(shape, "$ref")}
            continue
        several = _alternatives(shape)
        if len(several) != 1:
            break
        shape = {**several[0], **_without(shape, "anyOf", "oneOf")}
    return shape


def _without(shape: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in shape.items() if key not in keys}


def _alternatives(shape: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a value may be besides null, if the schema lists alternatives."""
    listed: list[Any] = [*(shape.get("anyOf") or ()), *(shape.get("oneOf") or ())]
    return [
        cast("dict[str, Any]", one)
        for one in listed
        if isinstance(one, dict) and one != {"type": "null"}
    ]


def _follow_reference(schema: Mapping[str, Any], reference: str) -> dict[str, Any]:
    found: Any = schema
    for step in reference.removeprefix("#/").split("/"):
        found = cast("dict[str, Any]", found).get(step) if isinstance(found, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _field(name: str, shape: dict[str, Any], required: bool) -> Field:
    said = str(shape.get("description") or "")
    constants = shape.get("enum") or ([shape["const"]] if "const" in shape else None)
    if isinstance(constants, list):
        spelled = [json.dumps(one, ensure_ascii=False) for one in cast("list[Any]", constants)]
        return Field(name, "choice", required, said, tuple(one for one in spelled if one != "null"))
    given = shape.get("type")
    listed = cast("list[Any]", given) if isinstance(given, list) else [given]
    listed += [one.get("type") for one in _alternatives(shape)]
    types = list(dict.fromkeys(str(one) for one in listed if one not in (None, "null")))
    kind: Kind = "json"
    if len(types) == 1:
        kind = _KINDS.get(types[0], "json")
    elif "string" in types:
        kind = "either"
    return Field(name, kind, required, said, hint=_describe_bounds(shape, kind, types))


def _describe_bounds(shape: Mapping[str, Any], kind: Kind, types: list[str]) -> str:
    """Describe in a few words what else the schema requires of a value."""
    if kind in ("json", "either"):
        return " or ".join(types) or "any value"
    words = {
        "minimum": "at least {}",
        "exclusiveMinimum": "more than {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "less than {}",
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
        "pattern": "like {}",
        "format": "{}",
    }
    return ", ".join(
        text.format(shape[key]) for key, text in words.items() if shape.get(key) is not None
    )


def _to_text(field: Field, value: Any) -> str:
    if field.kind in ("text", "either") and isinstance(value, str):
        return value
    if field.kind == "boolean" and isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)


def read_values(
    fields: list[Field], form: Mapping[str, str]
) -> tuple[dict[str, Any], list[Field], list[str]]:
    """Read what was typed: the values, the fields as typed, and a sentence for each problem.

    An empty field is omitted; a required text may be empty. Where text is one of several types,
    input that begins like a list or an object is read as JSON.
    """
    values: dict[str, Any] = {}
    typed: list[Field] = []
    problems: list[str] = []
    for field in fields:
        text = form.get(PREFIX + field.name, "").replace("\r\n", "\n")
        typed.append(replace(field, value=text))
        if not text and not (field.required and field.kind == "text"):
            continue
        try:
            values[field.name] = _read_value(field, text)
        except ValueError as error:
            what = "a number" if field.kind in ("integer", "number") else "JSON"
            problems.append(f"`{field.name}` must be {what}: {error}")
    more, wrong = _read_additional(form.get(ADDITIONAL, ""))
    return {**values, **more}, typed, problems + wrong


def _read_value(field: Field, text: str) -> Any:
    """Return what was typed as a value. Raises ValueError."""
    if field.kind == "text":
        return text
    if field.kind == "either" and text.lstrip()[:1] not in ("[", "{"):
        return text
    return parse_json(text)


def _read_additional(text: str) -> tuple[dict[str, Any], list[str]]:
    if not text.strip():
        return {}, []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, [f"the additional arguments are not JSON: {error}"]
    if not isinstance(found, dict):
        return {}, ["the additional arguments must be one JSON object"]
    return cast("dict[str, Any]", found), []
