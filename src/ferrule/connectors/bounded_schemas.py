"""Schemas from other systems: bounded before anything is checked with them.

For the schema of arguments there are three outcomes besides a full check:

* A schema that is too large, too deep, not a JSON Schema or that refers to another address is
  refused, and its tool with it.
* A schema that could cost too much (its references multiply, or cannot be followed) is shown to
  the model, but arguments are checked only on the outermost level: the names of required ones and
  the type of each. The server checks the rest, as it must anyway.
* A schema that refers to itself is checked in full as far as the depth of the arguments allows.

All others are checked in full by jsonschema-rs, which never fetches anything. The schema of results
is checked in full or refused: a tool works without it.

The cost is the number of subschemas after every reference is followed: the number that a checker
can be made to visit for one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, cast
from urllib.parse import unquote, urljoin

from ferrule.core.calls import encode_json
from ferrule.core.errors import ToolDefinitionError
from ferrule.core.media import Media, has_media
from ferrule.tools.chunked_output import Chunks
from ferrule.tools.define import SchemaArguments, compile_schema
from ferrule.tools.definition import Arguments, CheckedArguments, Output

from .json_values import list_or_empty, mapping_or_empty

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
_VALUES = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose null is a value."""
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords with a mapping of names to schemas."""


def drop_null_keywords(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without keywords that are null, as some programs write what is not there.

    It must not be nested deeper than the stack allows.
    """
    return {
        key: _drop_nulls(key, value)
        for key, value in schema.items()
        if value is not None or key in _VALUES
    }


def _drop_nulls(keyword: str, value: Any) -> Any:
    if keyword in _VALUES:
        return value
    if isinstance(value, Mapping):
        if keyword not in _NAMED:
            return drop_null_keywords(cast("Mapping[str, Any]", value))
        return {name: _drop_nulls("", one) for name, one in mapping_or_empty(value).items()}
    if isinstance(value, list):
        return [_drop_nulls("", one) for one in list_or_empty(value)]
    return value


def make_arguments(tool: str, schema: Mapping[str, Any]) -> Arguments:
    """Return a checker for the arguments of a tool.

    Raises:
        ToolDefinitionError: The schema cannot be used; the message says why.
    """
    problem = _find_size_problem(schema)
    if not problem and schema.get("type", "object") != "object":
        problem = f"describes a {schema.get('type')!r}, where arguments are an object"
    if problem:
        raise ToolDefinitionError(f"tool `{tool}`: its schema {problem}")
    try:
        cost, recursive = _measure(schema)
    except _Unbounded:
        return _check_outermost(tool, schema)
    checker = SchemaArguments(tool, dict(schema))
    return RecursiveArguments(checker, cost, recursive) if recursive else checker


def make_output(tool: str, schema: Mapping[str, Any]) -> Output:
    """Return a checker for what a tool returns, which is passed on as it is.

    Raises:
        ToolDefinitionError: Nothing can be checked with the schema; the message says why.
    """
    problem = _find_size_problem(schema)
    if not problem and not is_bounded(schema):
        problem = "refers to itself, or multiplies"
    if problem:
        raise ToolDefinitionError(f"tool `{tool}`: its output schema {problem}")
    return _BoundedOutput(tool, schema)


def _check_outermost(tool: str, schema: Mapping[str, Any]) -> ShallowArguments:
    """Return a checker for a schema whose cost is unknown.

    A reference to a part of the schema that is missing is the server's mistake, and no reason to
    lose the tool.

    Raises:
        ToolDefinitionError: The schema cannot be used at all.
    """
    try:
        SchemaArguments(tool, dict(schema))
    except ToolDefinitionError as error:
        if not error.detail.endswith("does not exist"):
            raise
    return ShallowArguments(schema)


def _find_size_problem(schema: Mapping[str, Any]) -> str:
    """Return why a schema is too large to be used, or an empty string."""
    depth = nesting_depth(schema)
    if depth > MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} deep"
    size = len(encode_json(schema).encode("utf-8", "replace"))
    return f"has {size} bytes, more than {MAX_BYTES}" if size > MAX_BYTES else ""


def nesting_depth(value: Any, limit: int = MAX_DEPTH + 1) -> int:
    """Return how deeply a JSON value is nested, counted up to `limit`. Does not recurse."""
    layer = [value]
    depth = 0
    while layer and depth <= limit:
        nested: list[Any] = []
        for node in layer:
            nested.extend(_children(node))
        layer = nested
        depth += 1
    return depth


def is_bounded(schema: Mapping[str, Any]) -> bool:
    """Return whether checking any value visits a bounded number of subschemas; False if unknown."""
    try:
        _, recursive = _measure(schema)
    except _Unbounded:
        return False
    return not recursive


class _Unbounded(Exception):
    """The cost cannot be bounded.

    The schema applies itself to the same value, multiplies, or refers in a way that is not followed
    here.
    """


def _measure(schema: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of subschemas for one level of a value, and of references that lead back.

    Raises:
        _Unbounded: The cost cannot be bounded.
    """
    try:
        references = _References(schema)
        references.refuse_loops()
        cost = references.cost(schema)
    except (RecursionError, ValueError) as error:
        # A chain of references that does not end, or an invalid address.
        raise _Unbounded from error
    if cost > MAX_COST:
        raise _Unbounded
    return cost, references.recursive


_KEYWORDS_FOR_INSIDE = frozenset(
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
"""Keywords whose schemas apply to what is inside a value, not to the value itself."""
_KEYWORDS_WITHOUT_CHECK = frozenset(
    ("$defs", "definitions", "enum", "const", "default", "examples")
)
"""Keywords that check nothing where they stand."""


class _References:
    """Where the references of a schema lead.

    Nodes are told apart by identity: only references make a schema visit one twice.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.recursive = 0
        self._root = root
        self._bases: dict[int, str] = {}
        self._named: dict[str, Any] = {}
        self._nodes: list[Mapping[str, Any]] = []
        self._costs: dict[int, tuple[int, bool]] = {}
        self._in_progress: set[int] = set()
        self._register(root, "")

    def _register(self, root: Any, base: str) -> None:
        waiting = [(root, base)]
        while waiting:
            node, base = waiting.pop()
            fields = mapping_or_empty(node)
            own_address = fields.get("$id")
            if isinstance(own_address, str):
                base = urljoin(base, own_address).removesuffix("#")
            if fields:
                self._nodes.append(fields)
                self._bases[id(node)] = base
                self._named.setdefault(base, node)
                for key in ("$anchor", "$dynamicAnchor"):
                    anchor = fields.get(key)
                    if isinstance(anchor, str):
                        self._named[f"{base}#{anchor}"] = node
            waiting += [(child, base) for child in _children(node)]

    def target(self, node: Mapping[str, Any]) -> Any:
        """Return what a node refers to, or None.

        Raises:
            _Unbounded: It cannot be told before a value is checked.
        """
        if "$dynamicRef" in node or "$recursiveRef" in node:
            raise _Unbounded
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return None
        base = self._bases.get(id(node), "")
        whole = urljoin(base, reference)
        if not whole.startswith("urn:") and reference.startswith("#"):
            whole = base + reference
        address, _, pointer = whole.partition("#")
        if pointer and not pointer.startswith("/"):
            # An anchor, which is registered with the whole address.
            address = whole
            pointer = ""
        if address not in self._named:
            raise _Unbounded
        return _follow_pointer(self._named[address], pointer)

    def refuse_loops(self) -> None:
        """Raise _Unbounded if a schema leads back to itself for the same value."""
        steps = {id(node): list(self._same_value(node)) for node in self._nodes}
        is_finished: dict[int, bool] = {}
        for start in steps:
            if start in is_finished:
                continue
            is_finished[start] = False
            path: list[tuple[int, Iterator[int]]] = [(start, iter(steps[start]))]
            while path:
                node, remaining = path[-1]
                following = next(remaining, None)
                if following is None:
                    is_finished[node] = True
                    path.pop()
                elif following not in is_finished:
                    is_finished[following] = False
                    path.append((following, iter(steps.get(following, ()))))
                elif not is_finished[following]:
                    raise _Unbounded

    def _same_value(self, node: Mapping[str, Any]) -> Iterator[int]:
        """Yield the schemas that a value is checked with when it is checked with this one."""
        target = self.target(node)
        if target is not None:
            yield id(target)
        for key, part in node.items():
            if key in _KEYWORDS_FOR_INSIDE or key in _KEYWORDS_WITHOUT_CHECK:
                continue
            yield id(part)
            for child in _children(part):
                yield id(child)

    def cost(self, node: Any) -> int:
        """Count the subschemas after references are followed; one that leads back counts as one."""
        return self._cost(node)[0]

    def _cost(self, node: Any) -> tuple[int, bool]:
        """Return the cost of a node, and whether it leads back to one that contains it."""
        key = id(node)
        if key in self._costs:
            self.recursive += self._costs[key][1]
            return self._costs[key]
        if key in self._in_progress:
            self.recursive += 1
            return 1, True
        fields = mapping_or_empty(node)
        if not fields and not isinstance(node, list):
            return 1, False
        self._in_progress.add(key)
        total = 1
        leads_back = False
        target = self.target(fields)
        parts = list(self._checked_parts(node, fields))
        if target is not None:
            parts.insert(0, target)
        for part in parts:
            part_cost, part_leads_back = self._cost(part)
            total += part_cost
            leads_back = leads_back or part_leads_back
            if total > MAX_COST:
                raise _Unbounded
        self._in_progress.discard(key)
        self._costs[key] = (total, leads_back)
        return total, leads_back

    def _checked_parts(self, node: Any, fields: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the parts of a node that may check something.

        Definitions of a whole schema do so only where they are referred to.
        """
        if node is self._root or isinstance(fields.get("$id"), str):
            yield from (part for key, part in fields.items() if key not in ("$defs", "definitions"))
        else:
            yield from _children(node)


def _follow_pointer(node: Any, pointer: str) -> Any:
    """Return what a pointer in the fragment of an address names (RFC 6901, section 6)."""
    for part in unquote(pointer).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if key in mapping_or_empty(node):
            node = mapping_or_empty(node)[key]
        elif key.isdigit() and int(key[:6]) < len(list_or_empty(node)):
            node = list_or_empty(node)[int(key)]
        else:
            raise _Unbounded
    return node


def _children(value: Any) -> Iterator[Any]:
    yield from mapping_or_empty(value).values()
    yield from list_or_empty(value)


class RecursiveArguments:
    """`tools.definition.Arguments` with a schema that refers to itself.

    For each level of a value a checker may visit as many subschemas as references lead back, and
    each twice. Arguments that could cost too much are checked only on the outermost level.
    """

    def __init__(self, full: SchemaArguments, cost: int, recursive: int) -> None:
        self._full = full
        self._outermost = ShallowArguments(full.schema)
        self._cost = cost
        self._recursive = recursive

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._full.schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        depth = nesting_depth(arguments, MAX_DEPTH + 1)
        visits = self._cost * self._recursive ** (2 * depth)
        if depth > MAX_DEPTH or visits > MAX_VISITS:
            return self._outermost.check(arguments)
        return self._full.check(arguments)


class ShallowArguments:
    """`tools.definition.Arguments` that checks names and types on the outermost level only."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._properties = mapping_or_empty(schema.get("properties"))
        self._required = [
            name for name in list_or_empty(schema.get("required")) if isinstance(name, str)
        ]

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        problems = [f"`{name}` is required" for name in self._required if name not in arguments]
        for name, value in arguments.items():
            expected = mapping_or_empty(self._properties.get(name)).get("type")
            is_of_type = _TYPES.get(expected) if isinstance(expected, str) else None
            if is_of_type is not None and not is_of_type(value):
                problems.append(f"`{name}`: found {type(value).__name__}, expected {expected}")
        return CheckedArguments(dict(arguments), problems, [])


class EmptyResult(dict[str, Any]):
    """The value of an answer without content; no schema applies to it."""


class _BoundedOutput:
    """`tools.definition.Output` that checks a value and passes it on as it is.

    Media that follow a value are no part of what was promised.
    """

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._validator = compile_schema(tool, dict(schema), "output schema")
        self.schema: Mapping[str, Any] = schema

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        if isinstance(value, EmptyResult):
            return value, []
        return value, self._find_problems(value)

    def _find_problems(self, value: object) -> list[str]:
        listed = list_or_empty(value)
        promised = listed[0] if has_media(listed) else value
        if isinstance(promised, Chunks | Media):
            return ["the answer is not JSON"]
        problems: list[str] = []
        for error in islice(self._validator.iter_errors(promised), 5):
            path = "".join(f"[{part!r}]" for part in error.instance_path)
            problems.append(f"{path}: {error.message[:200]}")
        return problems
