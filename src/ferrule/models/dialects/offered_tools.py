"""The tools on offer, as far as reading calls needs them: names, and types of arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast


class OfferedTools:
    """The tools on offer, as far as reading needs them: names, and schemas where they are known."""

    def __init__(self, tools: Collection[str] = ()) -> None:
        """`tools` are names, or a mapping of names to schemas."""
        self.given = tools
        self.names = frozenset(tools)
        self._schemas: Mapping[str, Any] = (
            cast("Mapping[str, Any]", tools) if isinstance(tools, Mapping) else {}
        )
        self._plain_names = frozenset(map(_plain, self.names))

    def __bool__(self) -> bool:
        return bool(self.names)

    def has_similar(self, name: str) -> bool:
        """Return whether `name` is a tool's, or a typing mistake away from it.

        Mistakes are another case, `-` for `_`, or one letter.
        """
        plain = _plain(name)
        if plain in self._plain_names:
            return True
        return any(_is_one_edit_apart(plain, known) for known in self._plain_names)

    def parameters(self, tool: str) -> dict[str, Any]:
        """Return the schemas of a tool's parameters in their order; empty if unknown."""
        schema = self._schemas.get(tool)
        if not isinstance(schema, Mapping):
            return {}
        properties = cast("Mapping[str, Any]", schema).get("properties")
        if not isinstance(properties, Mapping):
            return {}
        return dict(cast("Mapping[str, Any]", properties))

    def accepts_names(self, tool: str, names: Sequence[str]) -> bool:
        """Return whether a tool can be called with parameters of these names.

        They must be all that the tool requires, and all be its own, as far as that is known.
        """
        if tool not in self._schemas:
            return True
        schema = cast("Mapping[str, Any]", self._schemas[tool])
        required = cast("Sequence[str]", schema.get("required") or ())
        is_open = bool(schema.get("additionalProperties") or schema.get("patternProperties"))
        return set(required) <= set(names) and (
            is_open or set(names) <= self.parameters(tool).keys()
        )

    def accepts_values(self, tool: str, values: Mapping[str, Any]) -> bool:
        """Return whether values can be arguments of a tool, by names and types as far as known."""
        if not self.accepts_names(tool, list(values)):
            return False
        for name, value in values.items():
            kinds = self.parameter_types(tool, name)
            if kinds is not None and json_type_of(value) not in kinds:
                return False
        return True

    def parameter_types(self, tool: str, parameter: str) -> frozenset[str] | None:
        """Return the types that a parameter's schema admits.

        Every type if it does not say; None if the tool is not known.
        """
        if tool not in self._schemas:
            return None
        return admitted_types(self.parameters(tool).get(parameter))


_EVERY_TYPE = ("string", "integer", "number", "boolean", "null", "array", "object")


def admitted_types(schema: Any) -> frozenset[str]:
    """Return the types that a schema admits; every type if it does not say."""
    return frozenset(_types(schema))


def _types(schema: Any, depth: int = 0) -> set[str]:
    """Return the types that a schema admits by `type`, values or alternatives; else every type."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {*_EVERY_TYPE}
    known = cast("Mapping[str, Any]", schema)
    named = known.get("type")
    if isinstance(named, str):
        return {named, "integer"} if named == "number" else {named}
    if isinstance(named, list):
        return set[str]().union(*(_types({"type": one}) for one in cast("list[Any]", named)))
    for key in ("anyOf", "oneOf"):
        if isinstance(known.get(key), list):
            return set[str]().union(*(_types(one, depth + 1) for one in known[key]))
    values = known.get("enum", [known["const"]] if "const" in known else None)
    if isinstance(values, list):
        return {json_type_of(value) for value in cast("list[Any]", values)}
    return {*_EVERY_TYPE}


_MAX_DEPTH = 8


def json_type_of(value: Any) -> str:
    """Return the type of a value as JSON Schema names it; whole numbers are integers."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _is_one_edit_apart(a: str, b: str) -> bool:
    """Return whether one letter was added, lost, changed or swapped with its neighbour.

    Short names must be exact.
    """
    if min(len(a), len(b)) < 5 or abs(len(a) - len(b)) > 1:
        return False
    at = 0  # where they begin to differ
    while at < min(len(a), len(b)) and a[at] == b[at]:
        at += 1
    if len(a) < len(b):
        a, b = b, a
    if len(a) > len(b):
        return a[at + 1 :] == b[at:]
    is_changed = a[at + 1 :] == b[at + 1 :]
    is_swapped = a[at : at + 2] == b[at : at + 2][::-1] and a[at + 2 :] == b[at + 2 :]
    return is_changed or is_swapped
