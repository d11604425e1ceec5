"""A short notation for the JSON Schema of an object: `name str, age int, tags [str]: its topics`.

The fields stand one to a line, or with commas between them. A field is a name, a type (`str`,
`int`, `float`, `bool`, or one of them in brackets for a list; `str` if there is none), and a
description after a colon. All fields are required.
"""

from __future__ import annotations

from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily

_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_FIELD = compile_lazily(
    r"(?P<name>[A-Za-z_][\w-]*)(?:\s+(?P<type>\[?\w+\]?))?(?:\s*:\s*(?P<about>.+))?"
)


def parse_schema_notation(text: str) -> dict[str, Any]:
    """Return the JSON Schema of an object with these fields.

    Raises:
        ConfigError: A field cannot be read, or is there twice.
    """
    separator = "\n" if "\n" in text.strip() else ","
    properties: dict[str, Any] = {}
    for part in text.split(separator):
        field = part.strip()
        if not field:
            continue
        name, schema = _parse_field(field)
        if name in properties:
            raise ConfigError(f"the field `{name}` is there twice", code="schema_notation")
        properties[name] = schema
    if not properties:
        raise ConfigError("the schema has no fields", code="schema_notation", hint=_HINT)
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_HINT = "write fields as in `name str, age int, tags [str]: its topics`"


def _parse_field(field: str) -> tuple[str, dict[str, Any]]:
    match = _FIELD.fullmatch(field)
    if match is None:
        raise ConfigError(f"`{field}` is not a field", code="schema_notation", hint=_HINT)
    written = match["type"] or "str"
    is_list = written.startswith("[") and written.endswith("]")
    plain = _TYPES.get(written.strip("[]"))
    if plain is None or (not is_list and written.strip("[]") != written):
        raise ConfigError(
            f"`{field}`: there is no type `{written}`",
            code="schema_notation",
            hint=f"use {', '.join(_TYPES)}, or a list of one, such as `[str]`",
        )
    schema: dict[str, Any] = {"type": plain}
    if is_list:
        schema = {"type": "array", "items": schema}
    if match["about"]:
        schema["description"] = match["about"].strip()
    return match["name"], schema
