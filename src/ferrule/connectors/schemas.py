"""Schemas that a stranger wrote: bounded before anything checks arguments with them.

Three ways to be wrong, three answers. A schema that is too large, too deep, no JSON Schema or
refers to another address is refused, and with it the tool. One that could cost more than it is
worth (its references multiply, or lead nobody knows where) is shown to the model, while arguments
are only looked at from the outside: names of required ones, types of each; the server checks the
rest, as it has to anyway. All others are checked in full by jsonschema-rs, which never fetches
anything; one that refers to itself as far as the depth of the arguments allows.

The cost is the number of subschemas after every reference is followed: what a checker can be made
to visit for one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urljoin

from ferrule.core.calls import compact
from ferrule.core.errors import ToolDefinitionError
from ferrule.tools.define import SchemaArguments
from ferrule.tools.definition import Arguments, Checked

from .json_values import list_of, mapping_of

MAX_BYTES = 32 * 1024
MAX_DEPTH = 32
MAX_COST = 20_000
MAX_VISITS = 2_000_000

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
    """What checks the arguments of a tool. Raises ToolDefinitionError saying what is wrong with the
    schema.
    """
    found = problem_of(schema)
    if found:
        raise ToolDefinitionError(f"tool `{tool}`: its schema {found}")
    try:
        cost, recursive = _measured(schema)
    except _Unbounded:
        return _from_outside(tool, schema)
    whole = SchemaArguments(tool, dict(schema))
    return RecursiveArguments(whole, cost, recursive) if recursive else whole


def _from_outside(tool: str, schema: Mapping[str, Any]) -> OuterArguments:
    """For a schema whose cost is not known. Raises ToolDefinitionError if it cannot be used at all.

    A reference to a part of it that is not there is the server's mistake, and no reason to lose the
    tool.
    """
    try:
        SchemaArguments(tool, dict(schema))
    except ToolDefinitionError as error:
        if not error.detail.endswith("does not exist"):
            raise
    return OuterArguments(schema)


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
    """Whether checking any value with this schema visits a bounded number of subschemas. False for
    what cannot be told.
    """
    try:
        _, recursive = _measured(schema)
    except _Unbounded:
        return False
    return not recursive


class _Unbounded(Exception):
    """It calls itself for the same value, multiplies, or refers by a way that is not followed
    here.
    """


def _measured(schema: Mapping[str, Any]) -> tuple[int, int]:
    """How many subschemas one level of a value is checked with, and how many references lead back.
    Raises _Unbounded.
    """
    try:
        links = _Links(schema)
        links.refuse_loops()
        cost = links.cost(schema)
    except (RecursionError, ValueError) as error:
        # A chain of references without end in sight, or an address that is none.
        raise _Unbounded from error
    if cost > MAX_COST:
        raise _Unbounded
    return cost, links.recursive


_DEEPER = frozenset(
    (
        "properties",
        "patternProperties",
        "additionalProperties",
        "items",
        "prefixItems",
        "contains",
        "unevaluatedItems",
        "unevaluatedProperties",
        "propertyNames",
        "additionalItems",
    )
)
"""Keywords whose schemas are for what is inside of a value, and not for the value itself."""
_ASIDE = frozenset(("$defs", "definitions", "enum", "const", "default", "examples"))
"""Keywords that check nothing where they stand."""


class _Links:
    """Where the references of a schema lead. Nodes are told apart by identity: only references make
    a schema visit one twice.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.recursive = 0
        self._root = root
        self._bases: dict[int, str] = {}
        self._named: dict[str, Any] = {}
        self._nodes: list[Mapping[str, Any]] = []
        self._known: dict[int, tuple[int, bool]] = {}
        self._on_way: set[int] = set()
        self._name(root, "")

    def _name(self, root: Any, base: str) -> None:
        waiting = [(root, base)]
        while waiting:
            node, base = waiting.pop()
            fields = mapping_of(node)
            if isinstance(own := fields.get("$id"), str):
                base = urljoin(base, own).removesuffix("#")
            if fields:
                self._nodes.append(fields)
                self._bases[id(node)] = base
                self._named.setdefault(base, node)
                for key in ("$anchor", "$dynamicAnchor"):
                    if isinstance(name := fields.get(key), str):
                        self._named[f"{base}#{name}"] = node
            waiting += [(child, base) for child in _children(node)]

    def target(self, node: Mapping[str, Any]) -> Any:
        """What a node refers to, or None. Raises _Unbounded where that cannot be told before a
        value is checked.
        """
        if "$dynamicRef" in node or "$recursiveRef" in node:
            raise _Unbounded
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return None
        whole = urljoin(self._bases.get(id(node), ""), reference)
        if not whole.startswith("urn:") and reference.startswith("#"):
            whole = self._bases.get(id(node), "") + reference
        address, _, pointer = whole.partition("#")
        if pointer and not pointer.startswith("/"):
            address, pointer = whole, ""
        if address not in self._named:
            raise _Unbounded
        return _followed(self._named[address], pointer)

    def refuse_loops(self) -> None:
        """Raise _Unbounded if a value could be checked by a schema because it is checked by it."""
        steps = {id(node): list(self._same_value(node)) for node in self._nodes}
        state: dict[int, bool] = {}
        for start in steps:
            way: list[tuple[int, Iterator[int]]] = (
                [(start, iter(steps[start]))] if start not in state else []
            )
            state.setdefault(start, False)
            while way:
                node, left = way[-1]
                after = next(left, None)
                if after is None:
                    state[node] = True
                    way.pop()
                elif after not in state:
                    state[after] = False
                    way.append((after, iter(steps.get(after, ()))))
                elif not state[after]:
                    raise _Unbounded

    def _same_value(self, node: Mapping[str, Any]) -> Iterator[int]:
        """The schemas that a value is checked with when it is checked with this one."""
        target = self.target(node)
        if target is not None:
            yield id(target)
        for key, part in node.items():
            if key in _DEEPER or key in _ASIDE:
                continue
            yield id(part)
            for child in _children(part):
                yield id(child)

    def cost(self, node: Any) -> int:
        """Subschemas after every reference is followed, each that leads back counted as one."""
        return self._cost(node)[0]

    def _cost(self, node: Any) -> tuple[int, bool]:
        key = id(node)
        if key in self._known:
            self.recursive += self._known[key][1]
            return self._known[key]
        if key in self._on_way:
            self.recursive += 1
            return 1, True
        fields = mapping_of(node)
        if not fields and not isinstance(node, list):
            return 1, False
        self._on_way.add(key)
        total, back = 1, False
        target = self.target(fields)
        for part in (*([] if target is None else [target]), *self._checking(node, fields)):
            more, again = self._cost(part)
            total += more
            back = back or again
            if total > MAX_COST:
                raise _Unbounded
        self._on_way.discard(key)
        self._known[key] = (total, back)
        return total, back

    def _checking(self, node: Any, fields: Mapping[str, Any]) -> Iterator[Any]:
        """The parts of a node that may check something. Definitions of a whole schema do so only
        where they are referred to.
        """
        if node is self._root or isinstance(fields.get("$id"), str):
            yield from (part for key, part in fields.items() if key not in ("$defs", "definitions"))
        else:
            yield from _children(node)


def _followed(node: Any, pointer: str) -> Any:
    """What a pointer in the fragment of an address names (RFC 6901, section 6)."""
    for part in unquote(pointer).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if key in mapping_of(node):
            node = mapping_of(node)[key]
        elif key.isdigit() and int(key[:6]) < len(list_of(node)):
            node = list_of(node)[int(key)]
        else:
            raise _Unbounded
    return node


def _children(value: Any) -> Iterator[Any]:
    yield from mapping_of(value).values()
    yield from list_of(value)


class RecursiveArguments:
    """`tools.definition.Arguments` by a schema that refers to itself.

    A checker may visit as many subschemas as references lead back, for each level of a value anew,
    and each twice. Arguments that could cost more than is worth it are looked at from the outside.
    """

    def __init__(self, whole: SchemaArguments, cost: int, recursive: int) -> None:
        self._whole = whole
        self._outer = OuterArguments(whole.schema)
        self._cost = cost
        self._recursive = recursive

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._whole.schema

    def check(self, arguments: Mapping[str, Any]) -> Checked:
        depth = depth_of(arguments, MAX_DEPTH + 1)
        visits = self._cost * self._recursive ** (2 * depth)
        if depth > MAX_DEPTH or visits > MAX_VISITS:
            return self._outer.check(arguments)
        return self._whole.check(arguments)


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
