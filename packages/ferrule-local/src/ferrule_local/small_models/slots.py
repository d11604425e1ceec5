"""Parameters as slots: what their schema, name and description say of what may fill them.

Pure, and the same for every tool.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast

from ferrule.core.value_class import frozen
from ferrule.tools.word_stems import content_stems, first_sentence, stem, stems

from .spans import Span

PATH_WORDS = frozenset(
    stem(w) for w in ["path", "file", "folder", "directory", "dir", "filename", "filepath"]
)
FOLDER_WORDS = frozenset(map(stem, ["folder", "directory", "dir"]))
_TEXTS = frozenset(
    stem(w)
    for w in [
        "text",
        "content",
        "message",
        "body",
        "string",
        "line",
        "lines",
        "note",
        "comment",
        "title",
        "code",
        "command",
        "query",
        "sentence",
    ]
)
_HEAD_ENDS = re.compile(
    r"\b(?:of|to|in|for|with|at|that|which|whose|where|from|such|when)\b|[,.:;(]"
)


@frozen
class Slot:
    """A parameter of a tool.

    Attributes:
        name: The parameter's name.
        kind: string, integer, number, boolean, enum, array or object.
        required: Whether the tool requires it.
        about: Its description.
        role: What a string is for: path, text or "".
        choices: The values of an enum.
        default: The default value.
        schema: Its JSON Schema; of several alternatives the first that is not null.
        item: The slot of an array's items.
        words: Stems of its name and of the first sentence of its description.
    """

    name: str
    kind: str
    required: bool
    about: str
    role: str = ""
    choices: tuple[Any, ...] = ()
    default: Any = None
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    item: Slot | None = None
    words: frozenset[str] = frozenset()


@frozen
class Value:
    """A possible value and, if it was copied, the piece of the request it was copied from."""

    value: Any
    span: Span | None = None


def keep_outermost(found: Sequence[Value]) -> list[Value]:
    """Return the values whose piece is no part of another value's piece."""
    spans = [value.span for value in found if value.span]
    return [v for v in found if v.span is None or not any(v.span.is_inside(span) for span in spans)]


def read_slots(schema: Mapping[str, Any]) -> list[Slot]:
    """Return the parameters of a tool's schema, in its order."""
    properties = cast(Mapping[str, Any], schema.get("properties") or {})
    required = frozenset(cast(Sequence[str], schema.get("required") or ()))
    return [read_slot(name, part, name in required) for name, part in properties.items()]


def read_slot(name: str, value_schema: Any, required: bool) -> Slot:
    """Return a parameter as a slot."""
    schema = read_schema(value_schema)
    part = first_alternative(schema)
    about = str(schema.get("description") or part.get("description") or "")
    kind = _kind(part)
    choices = tuple(part.get("enum") or ())
    if not choices and "const" in part:
        choices = (part["const"],)
    item = None
    if kind == "array":
        item = read_slot(name, part.get("items"), required)
    words = frozenset(content_stems(name)) | frozenset(content_stems(first_sentence(about)))
    role = _role(name, about) if kind == "string" else ""
    default = schema.get("default", part.get("default"))
    return Slot(name, kind, required, about, role, choices, default, part, item, words)


def read_schema(schema: Any) -> Mapping[str, Any]:
    """Return a schema as an object: `true` asks for nothing, and neither does what is no schema."""
    return cast(Mapping[str, Any], schema) if isinstance(schema, Mapping) else {}


def first_alternative(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first alternative that is not null, which is what a small model can manage."""
    for key in ("anyOf", "oneOf"):
        for part in map(read_schema, cast(Sequence[Any], schema.get(key) or ())):
            if part.get("type") != "null":
                return first_alternative(part)
    return schema


def _kind(part: Mapping[str, Any]) -> str:
    if "enum" in part or "const" in part:
        return "enum"
    kind = part.get("type", "string")
    if isinstance(kind, list):
        named = [str(k) for k in cast(list[object], kind) if k != "null"]
        kind = named[0] if named else "string"
    # Other spellings are found in catalogs that were not made for JSON Schema.
    known = {
        "float": "number",
        "double": "number",
        "dict": "object",
        "tuple": "array",
        "list": "array",
        "any": "string",
    }
    return known.get(str(kind), str(kind))


def _role(name: str, about: str) -> str:
    named = set(stems(name))
    head = set(stems(_HEAD_ENDS.split(about, maxsplit=1)[0]))
    if named & PATH_WORDS or (head & PATH_WORDS and not named & _TEXTS):
        return "path"
    return "text" if (named | head) & _TEXTS else ""
