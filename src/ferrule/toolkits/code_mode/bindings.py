"""The functions of a script: names of tools as identifiers, and their schemas as signatures.

Names and text depend only on the set of tools, never on their order, so that the prefix of a
session stays the same.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from ferrule.core.calls import encode_json
from ferrule.core.value_class import frozen
from ferrule.tools.definition import SideEffect, Tool

from .limits import CodeLimits

MAX_TYPE = 160
MAX_SUMMARY = 120
_RESERVED = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | {"asyncio", "print"}
_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "object": "dict",
    "array": "list",
}


@frozen
class Binding:
    """A function of a script and the tool behind it.

    `parameters` are in the order of positional arguments.
    """

    function: str
    tool: Tool
    parameters: tuple[str, ...]

    @property
    def can_run_in_parallel(self) -> bool:
        """Whether calls of it may run in parallel."""
        return self.tool.parallel is True and self.tool.side_effect in (
            SideEffect.NONE,
            SideEffect.READ,
        )


def make_bindings(tools: Iterable[Tool]) -> dict[str, Binding]:
    """Return the functions by name, sorted."""
    owners: dict[str, list[Tool]] = {}
    for tool in tools:
        owners.setdefault(_identifier(tool.full_name), []).append(tool)
    found: list[Binding] = []
    for base, sharing in owners.items():
        for tool in sharing:
            function = base
            if len(sharing) > 1:
                # Several tools with the same identifier: the suffix depends on the tool alone.
                function = f"{base}_{sha256(tool.full_name.encode()).hexdigest()[:8]}"
            parameters = tuple(name for name, _, _ in _parameters(tool))
            found.append(Binding(function, tool, parameters))
    found.sort(key=lambda binding: binding.function)
    return {binding.function: binding for binding in found}


def _identifier(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name.replace("::", "_"))
    # Without a prefix, a builtin of this name would be called instead of the tool.
    return f"tool_{plain}" if plain in _RESERVED or plain[0].isdigit() else plain


def describe_functions(bindings: Mapping[str, Binding], limits: CodeLimits) -> str:
    """Return the description of the tool: how to write a script, and one line for each function."""
    lines = [
        "Run one short Python script that calls the functions below, and get the value of "
        "its last expression, what it printed and how many calls it made. Use it to read, filter "
        "and join in one step what would take many calls.",
        "Plain Python: functions, loops, comprehensions, try; json, re and math can be "
        "imported. No files, network, clock or other imports. A failed call raises an exception "
        "that names the function; nothing is kept between scripts.",
        "Call functions plainly; or, to run several at once, with await in the whole script: "
        "`await asyncio.gather(f(1), f(2))`.",
        f"At most {limits.calls} calls, {limits.seconds:g} s of computing, {limits.source} "
        "characters of script.",
        "Functions:",
    ]
    return "\n".join([*lines, *(_describe_function(binding) for binding in bindings.values())])


def _describe_function(binding: Binding) -> str:
    parameters: list[str] = []
    for name, schema, required in _parameters(binding.tool):
        default = "" if required else f" = {_default(schema)}"
        parameters.append(f"{name}: {_type(schema)}{default}")
    output = binding.tool.output
    returns = _type(output.schema) if output else "Any"
    summary = re.split(r"(?<=[.!?])\s|\n", binding.tool.description.strip(), maxsplit=1)[0]
    if len(summary) > MAX_SUMMARY:
        summary = summary[: MAX_SUMMARY - 3] + "..."
    return f"- {binding.function}({', '.join(parameters)}) -> {returns}: {summary}"


def _parameters(tool: Tool) -> list[tuple[str, Mapping[str, Any], bool]]:
    """Return name, schema and whether it is required; required ones first, as in a signature."""
    schema = tool.arguments.schema
    required = cast("Sequence[str]", schema.get("required", ()))
    properties = cast("Mapping[str, Any]", schema.get("properties", {}))
    found: list[tuple[str, Mapping[str, Any], bool]] = []
    for name, item in properties.items():
        # A schema may also be `true`: any value.
        item_schema: Mapping[str, Any] = (
            cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {}
        )
        found.append((name, item_schema, name in required))
    return sorted(found, key=lambda parameter: not parameter[2])


def _default(schema: Mapping[str, Any]) -> str:
    if "default" not in schema:
        return "None"
    text = repr(schema["default"])
    return text if len(text) <= 40 else "..."


def _type(schema: Mapping[str, Any]) -> str:
    text = _spell(schema, 0)
    if len(text) <= MAX_TYPE:
        return text
    return _TYPES.get(str(schema.get("type")), "Any")


def _spell(schema: Mapping[str, Any], depth: int) -> str:
    if "enum" in schema:
        return " | ".join(encode_json(choice) for choice in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            choices = [_spell(choice, depth + 1) for choice in schema[key]]
            return " | ".join(dict.fromkeys(choices))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_TYPES.get(str(one), "Any") for one in cast("list[object]", kind))
    if depth < 5 and kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"list[{_spell(schema['items'], depth + 1)}]"
    if depth < 5 and kind == "object" and schema.get("properties"):
        properties = cast("Mapping[str, Any]", schema["properties"]).items()
        members = [f"{name}: {_spell(item, depth + 1)}" for name, item in properties]
        return "{" + ", ".join(members) + "}"
    return _TYPES.get(str(kind), "Any")
