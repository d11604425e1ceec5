"""Parameters as slots: what their schema, name and description say of what may fill them. Pure, the
same for every tool.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast

from ferrule.core.frozen import frozen
from ferrule.tools.word_stems import content, first_sentence, stem, stems

from .spans import Span

PATHS = frozenset(
    stem(w) for w in ["path", "file", "folder", "directory", "dir", "filename", "filepath"]
)
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
    """A parameter. `kind` is string, integer, number, boolean, enum, array, object; `role` is path,
    text or "".
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
    """A possible value and, where it was copied, the piece of the request it was copied from."""

    value: Any
    span: Span | None = None


def outermost(found: Sequence[Value]) -> list[Value]:
    """Values whose piece is no part of another's."""
    spans = [value.span for value in found if value.span]
    return [v for v in found if v.span is None or not any(v.span.inside(one) for one in spans)]


def read_slots(schema: Mapping[str, Any]) -> list[Slot]:
    """The parameters of a tool's schema, in its order."""
    properties = cast(Mapping[str, Mapping[str, Any]], schema.get("properties") or {})
    required = frozenset(cast(Sequence[str], schema.get("required") or ()))
    return [read_slot(name, part, name in required) for name, part in properties.items()]


def read_slot(name: str, schema: Mapping[str, Any], required: bool) -> Slot:
    part = _plainest(schema)
    about = str(schema.get("description") or part.get("description") or "")
    kind = _kind(part)
    choices = tuple(part.get("enum") or (() if "const" not in part else (part["const"],)))
    item = None
    if kind == "array":
        item = read_slot(
            name,
            cast(Mapping[str, Any], part.get("items") or {"type": "string"}),
            required,
        )
    words = frozenset(content(name)) | frozenset(content(first_sentence(about)))
    role = _role(name, about) if kind == "string" else ""
    default = schema.get("default", part.get("default"))
    return Slot(name, kind, required, about, role, choices, default, part, item, words)


def _plainest(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first alternative that is not null: what a small model can manage."""
    for key in ("anyOf", "oneOf"):
        for part in cast(Sequence[Mapping[str, Any]], schema.get(key) or ()):
            if part.get("type") != "null":
                return _plainest(part)
    return schema


def _kind(part: Mapping[str, Any]) -> str:
    if "enum" in part or "const" in part:
        return "enum"
    kind = part.get("type", "string")
    if isinstance(kind, list):
        named = [str(k) for k in cast(list[object], kind) if k != "null"]
        kind = named[0] if named else "string"
    # Spellings of other dialects, as met in catalogs that were not made for JSON Schema.
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
    named, head = set(stems(name)), set(stems(_HEAD_ENDS.split(about, maxsplit=1)[0]))
    if named & PATHS or (head & PATHS and not named & _TEXTS):
        return "path"
    return "text" if (named | head) & _TEXTS else ""
