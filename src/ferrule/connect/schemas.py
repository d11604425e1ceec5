"""Schemas that a stranger wrote: bounded before anything checks arguments with them.

Three ways to be wrong, three answers. A schema that is too large, too deep, no JSON Schema or refers to another address is refused,
and with it the tool. One that could cost more than it is worth (it refers to itself, or its references multiply) is shown to the
model, while arguments are only looked at from the outside: names of required ones, types of each; the server checks the rest, as it has to
anyway. All others are checked in full by jsonschema-rs, which never fetches anything.

The cost is the number of subschemas after every reference is followed: what a checker can be made to visit for one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ferrule.core.calls import compact
from ferrule.core.errors import ToolDefinitionError
from ferrule.tools.define import SchemaArguments
from ferrule.tools.definition import Arguments, Checked

from .values import list_of, mapping_of

MAX_BYTES = 32 * 1024
MAX_DEPTH = 32
MAX_COST = 20_000

_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
    "null": lambda value: value is None,
}


def arguments_of(tool: str, schema: Mapping[str, Any]) -> Arguments:
    """What checks the arguments of a tool. Raises ToolDefinitionError saying what is wrong with the schema."""
    found = problem_of(schema)
    if found:
        raise ToolDefinitionError(f"tool `{tool}`: its schema {found}")
    if not bounded(schema):
        return OuterArguments(schema)
    return SchemaArguments(tool, dict(schema))


def problem_of(schema: Mapping[str, Any]) -> str:
    """Why a schema cannot be offered, or nothing."""
    depth = depth_of(schema)
    if depth > MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} deep"
    size = len(compact(schema).encode("utf-8", "replace"))
    if size > MAX_BYTES:
        return f"has {size} bytes, more than {MAX_BYTES}"
    if schema.get("type", "object") != "object":
        return f"describes a {schema.get('type')!r}, where arguments are an object"
    for reference in _references(schema):
        if not reference.startswith("#"):
            return f"refers to `{reference[:100]}`, which would have to be fetched"
    return ""


def depth_of(value: Any, most: int = MAX_DEPTH + 1) -> int:
    """How deeply a JSON value is nested, counted no further than `most`. Does not recurse."""
    layer, depth = [value], 0
    while layer and depth <= most:
        nested: list[Any] = []
        for one in layer:
            nested.extend(_children(one))
        layer, depth = nested, depth + 1
    return depth


def bounded(schema: Mapping[str, Any]) -> bool:
    """Whether checking one value with this schema visits a bounded number of subschemas. False for what cannot be told."""
    try:
        return _cost(schema, schema, {}, set()) <= MAX_COST
    except _Unbounded:
        return False


class _Unbounded(Exception):
    """It refers to itself, multiplies, or refers by a way that is not followed here."""


def _cost(node: Any, root: Mapping[str, Any], known: dict[int, int], on_way: set[int]) -> int:
    """Nodes are told apart by identity: a schema is a tree, and only references make it visit one twice."""
    key = id(node)
    if key in known:
        return known[key]
    if key in on_way:
        raise _Unbounded
    fields = mapping_of(node)
    if not fields and not isinstance(node, list):
        return 1
    if "$dynamicRef" in fields or "$recursiveRef" in fields:
        raise _Unbounded
    on_way.add(key)
    total = 1
    if isinstance(reference := fields.get("$ref"), str):
        total += _cost(_followed(reference, root), root, known, on_way)
    for child in _children(node):
        total += _cost(child, root, known, on_way)
    if total > MAX_COST:
        raise _Unbounded
    on_way.discard(key)
    known[key] = total
    return total


def _followed(reference: str, root: Mapping[str, Any]) -> Any:
    """What a local pointer names (RFC 6901). Names (`$anchor`) are not followed: such a schema counts as unbounded."""
    node: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if key in mapping_of(node):
            node = mapping_of(node)[key]
        elif key.isdigit() and int(key[:6]) < len(list_of(node)):
            node = list_of(node)[int(key)]
        else:
            raise _Unbounded
    if reference not in ("#", "") and not reference.startswith("#/"):
        raise _Unbounded
    return node


def _children(value: Any) -> Iterator[Any]:
    yield from mapping_of(value).values()
    yield from list_of(value)


def _references(schema: Any) -> Iterator[str]:
    nodes = [schema]
    while nodes:
        node = nodes.pop()
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(found := mapping_of(node).get(key), str):
                yield found
        nodes.extend(_children(node))


class OuterArguments:
    """`tools.definition.Arguments` that looks at names and types of the outermost level only."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._properties = mapping_of(schema.get("properties"))
        self._required = [name for name in list_of(schema.get("required")) if isinstance(name, str)]

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> Checked:
        problems = [f"`{name}` is required" for name in self._required if name not in arguments]
        for name, value in arguments.items():
            kind = mapping_of(self._properties.get(name)).get("type")
            fits = _TYPES.get(kind) if isinstance(kind, str) else None
            if fits is not None and not fits(value):
                problems.append(f"`{name}`: found {type(value).__name__}, expected {kind}")
        return Checked(dict(arguments), problems, [])
