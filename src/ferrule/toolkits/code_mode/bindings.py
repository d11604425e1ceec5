"""Which functions a script has: names of tools as identifiers, and their schemas as signatures.

Names and text depend only on the set of tools, never on their order, so that the prefix of a
session stays the same.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

from ferrule.core.calls import compact
from ferrule.tools.definition import SideEffect, Tool

from .limits import CodeLimits

LONGEST_TYPE = 160
LONGEST_SUMMARY = 120
_TAKEN = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | {"asyncio", "print"}
_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "object": "dict",
    "array": "list",
}


@dataclass(frozen=True, slots=True)
class Binding:
    """A function of a script and the tool behind it; `parameters` in the order of positional
    arguments.
    """

    function: str
    tool: Tool
    parameters: tuple[str, ...]

    @property
    def reads(self) -> bool:
        """True if calls of it may run beside each other."""
        return self.tool.parallel and self.tool.side_effect in (SideEffect.NONE, SideEffect.READ)


def bind(tools: Iterable[Tool]) -> dict[str, Binding]:
    """Functions by name, sorted."""
    owners: dict[str, list[Tool]] = {}
    for tool in tools:
        owners.setdefault(_identifier(tool.full_name), []).append(tool)
    found: list[Binding] = []
    for base, sharing in owners.items():
        for tool in sharing:
            # Several tools of one spelling: each says which it is, whatever else is there.
            own = (
                base
                if len(sharing) == 1
                else f"{base}_{sha256(tool.full_name.encode()).hexdigest()[:8]}"
            )
            found.append(Binding(own, tool, tuple(name for name, _, _ in _parameters(tool))))
    return {binding.function: binding for binding in sorted(found, key=lambda one: one.function)}


def _identifier(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name.replace("::", "_"))
    # A function that is already there would be called instead of the tool.
    return f"tool_{plain}" if plain in _TAKEN or plain[0].isdigit() else plain


def describe(bindings: Mapping[str, Binding], limits: CodeLimits) -> str:
    """The description of the tool: how to write a script, and one line for each function."""
    lines = [
        "Run one short Python script that calls the functions below, and get the value of "
        "its last expression, what it printed "
        "and how many calls it made. Use it to read, filter and join in one step what would "
        "take many calls.",
        "Plain Python: functions, loops, comprehensions, try; json, re and math can be "
        "imported. No files, network, clock or other "
        "imports. A failed call raises an exception that names the function; nothing is kept "
        "between scripts.",
        (
            "Call functions plainly; or, to run several at once, with await in the whole script: "
            "`await asyncio.gather(f(1), f(2))`."
        ),
        (
            f"At most {limits.calls} calls, {limits.seconds:g} s of computing, {limits.source} "
            "characters of script."
        ),
        "Functions:",
    ]
    return "\n".join([*lines, *(_line(binding) for binding in bindings.values())])


def _line(binding: Binding) -> str:
    shown = ", ".join(
        f"{name}: {kind}" + ("" if required else f" = {_default(schema)}")
        for name, schema, required in _parameters(binding.tool)
        for kind in (_type(schema),)
    )
    output = binding.tool.output
    returns = _type(output.schema) if output else "Any"
    summary = re.split(r"(?<=[.!?])\s|\n", binding.tool.description.strip(), maxsplit=1)[0]
    if len(summary) > LONGEST_SUMMARY:
        summary = summary[: LONGEST_SUMMARY - 3] + "..."
    return f"- {binding.function}({shown}) -> {returns}: {summary}"


def _parameters(tool: Tool) -> list[tuple[str, Mapping[str, Any], bool]]:
    """Name, schema and whether it is required: required ones first, as a signature has them."""
    schema = tool.arguments.schema
    required = cast("Sequence[str]", schema.get("required", ()))
    properties = cast("Mapping[str, Any]", schema.get("properties", {}))
    # A schema may also be `true`: anything goes.
    found = [
        (
            name,
            cast("Mapping[str, Any]", item if isinstance(item, Mapping) else {}),
            name in required,
        )
        for name, item in properties.items()
    ]
    return sorted(found, key=lambda one: not one[2])


def _default(schema: Mapping[str, Any]) -> str:
    if "default" not in schema:
        return "None"
    text = repr(schema["default"])
    return text if len(text) <= 40 else "..."


def _type(schema: Mapping[str, Any]) -> str:
    text = _spelled(schema, 0)
    return text if len(text) <= LONGEST_TYPE else _TYPES.get(str(schema.get("type")), "Any")


def _spelled(schema: Mapping[str, Any], depth: int) -> str:
    if "enum" in schema:
        return " | ".join(compact(choice) for choice in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(_spelled(one, depth + 1) for one in schema[key]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_TYPES.get(str(one), "Any") for one in cast("list[object]", kind))
    if depth < 5 and kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"list[{_spelled(schema['items'], depth + 1)}]"
    if depth < 5 and kind == "object" and schema.get("properties"):
        members = cast("Mapping[str, Any]", schema["properties"]).items()
        return (
            "{" + ", ".join(f"{name}: {_spelled(item, depth + 1)}" for name, item in members) + "}"
        )
    return _TYPES.get(str(kind), "Any")
