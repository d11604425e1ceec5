"""Parse the fields of a new tool, as a person types them: `name:type[?][=default][,description]`.

    city:string                    required text
    'unit:c|f=c,Celsius or Fahrenheit'     one of these words, with a default
    'days:int?'                    an optional whole number
    'tags:list[string]=["a", "b"],What it is about'

Types are `string`, `int`, `float`, `bool`, `list[...]` of one of them, and words joined by `|`. A
field is required unless it has a `?` or a default. A default ends at the first comma; one that
begins with `"` or `[` is JSON and may hold commas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen

SYNTAX = "name:type[?][=default][,description]"
TYPES = {
    "string": "string", "str": "string", "text": "string", "int": "integer", "integer": "integer",
    "float": "number", "number": "number", "bool": "boolean", "boolean": "boolean",
}  # fmt: skip
"""The names of types that may be written, and their JSON Schema types."""
_PYTHON: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}
_SAMPLES: dict[str, Any] = {"string": "text", "integer": 3, "number": 1.5, "boolean": True}
_WORD = re.compile(r"[\w.+-]+(?: [\w.+-]+)*")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")


@frozen
class FieldType:
    """The type of a field.

    Attributes:
        name: The type's name in JSON Schema.
        choices: The words of an enumeration.
        items: The type of a list's items.
    """

    name: str
    choices: tuple[str, ...] = ()
    items: FieldType | None = None

    def to_schema(self) -> dict[str, Any]:
        """Return the type as JSON Schema."""
        made: dict[str, Any] = {"type": self.name}
        if self.choices:
            made["enum"] = list(self.choices)
        if self.items is not None:
            made["items"] = self.items.to_schema()
        return made

    def to_annotation(self) -> str:
        """Return the type as a Python annotation."""
        if self.choices:
            words = ", ".join(json.dumps(word, ensure_ascii=False) for word in self.choices)
            return f"Literal[{words}]"
        if self.items is not None:
            return f"list[{self.items.to_annotation()}]"
        return _PYTHON[self.name].__name__

    def make_sample(self) -> Any:
        """Return an example value of this type."""
        if self.items is not None:
            return [self.items.make_sample()]
        return self.choices[0] if self.choices else _SAMPLES[self.name]

    def accepts(self, value: Any) -> bool:
        """Whether a JSON value is of this type."""
        if self.items is not None:
            return isinstance(value, list) and all(map(self.items.accepts, value))  # pyright: ignore[reportUnknownArgumentType]  JSON
        if self.choices:
            return value in self.choices
        if isinstance(value, bool) or self.name == "boolean":
            return isinstance(value, bool) and self.name == "boolean"
        return isinstance(value, (int, float) if self.name == "number" else _PYTHON[self.name])


@frozen
class Field:
    """One parameter of a new tool. `default` is None where there is none."""

    name: str
    type: FieldType
    required: bool
    default: Any = None
    description: str = ""


def parse_fields(texts: Sequence[str]) -> tuple[Field, ...]:
    """Parse all fields of a tool.

    Raises:
        ConfigError: A field cannot be read, or two have the same name.
    """
    fields = tuple(map(parse_field, texts))
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"there are two fields `{name}`", hint="give each field its own name")
    return fields


def parse_field(text: str) -> Field:
    """Parse one field.

    Raises:
        ConfigError: It cannot be read; the error names the field and what is expected.
    """
    name, colon, rest = text.partition(":")
    if not colon:
        raise _wrong(text, "it does not begin with a name and a colon")
    if not _NAME.fullmatch(name):
        raise _wrong(text, f"`{name}` is not a valid name")
    if not text.isprintable():
        raise _wrong(text, "it holds invisible characters")
    end = re.search(r"[?=,]|$", rest)
    assert end is not None
    kind = _kind(text, rest[: end.start()])
    rest = rest[end.start() :]
    optional = rest.startswith("?")
    rest = rest.removeprefix("?")
    default: Any = None
    if rest.startswith("="):
        default, rest = _default(text, kind, rest[1:])
    if rest[:1] not in ("", ","):
        raise _wrong(text, f"`{rest}` does not belong there")
    return Field(name, kind, not optional and default is None, default, rest[1:].strip())


def _kind(text: str, written: str) -> FieldType:
    if inner := re.fullmatch(r"list\[(.+)\]", written):
        return FieldType("array", items=_kind(text, inner[1]))
    if "|" in written:
        words = tuple(written.split("|"))
        if not all(map(_WORD.fullmatch, words)) or len(set(words)) < len(words):
            raise _wrong(text, f"`{written}` must be different words with `|` between them")
        return FieldType("string", words)
    if written not in TYPES:
        known = [*TYPES, "list[string]"]
        meant = suggest_names(written, known, f"known: {', '.join(known)}", cutoff=0.4)
        raise _wrong(text, f"there is no type `{written}`; {meant}")
    return FieldType(TYPES[written])


def _default(text: str, kind: FieldType, rest: str) -> tuple[Any, str]:
    """Parse the default. Return it and the text after it."""
    if rest[:1] in ('"', "["):
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError) as error:
            raise _wrong(text, f"its default is not JSON: {error}") from error
        rest = rest[end:]
    else:
        word, comma, after = rest.partition(",")
        rest = comma + after
        value = word if kind.name == "string" else _json(word)
    if not kind.accepts(value):
        shown = json.dumps(value, ensure_ascii=False)
        raise _wrong(text, f"its default {shown} is not of type {kind.to_annotation()}")
    return value, rest


def _json(word: str) -> Any:
    try:
        return parse_json(word, parse_constant=str)
    except ValueError:
        return word


def _wrong(text: str, why: str) -> ConfigError:
    types = ", ".join(("string", "int", "float", "bool", "list[string]", "a|b|c"))
    return ConfigError(
        f"the field {text!r} cannot be read: {why}",
        code="field",
        hint=f"write {SYNTAX}; types: {types}",
    )
