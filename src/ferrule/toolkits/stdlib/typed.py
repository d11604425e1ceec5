"""`@typed`: `@tool` whose return type may be a typed dict, without a library that checks types.

`tools.plain_schemas` makes the output schema of a record from its fields, so importing these tools
loads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Unpack, cast, get_args, get_origin, get_type_hints, is_typeddict
from typing import TypedDict as _TypedDict

from ferrule.tools.decorator import tool_from_function
from ferrule.tools.definition import SideEffect, Tool
from ferrule.tools.plain_schemas import ValueCheck, compile_type, report_problem


class TypedToolOptions(_TypedDict, total=False):
    """What differs between the tools that ship; all other options are the same for all."""

    name: str
    side_effect: SideEffect | str
    risk: str
    timeout: float
    examples: list[Mapping[str, Any]]


def typed_tool(
    namespace: str, **options: Unpack[TypedToolOptions]
) -> Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, as `@tool` does.

    It has no side effect and is safe unless `options` say otherwise.
    """

    def decorate(function: Callable[..., Any]) -> Tool:
        returns = get_type_hints(function)["return"]
        spelled = function.__annotations__.pop("return")
        chosen: dict[str, Any] = {"side_effect": "none", "risk": "safe", **options}
        try:
            made = tool_from_function(function, namespace=namespace, **chosen)
        finally:
            function.__annotations__["return"] = spelled
        return replace(made, output=RecordOutput(returns))

    return decorate


class RecordOutput:
    """`tools.definition.Output` for plain types and typed dicts of them, also within lists."""

    def __init__(self, hint: Any) -> None:
        self.schema, self._check = _compile(hint)

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        problems: list[str] = []
        repairs: list[str] = []
        self._check(value, "the result", problems, repairs)
        return value, problems + repairs


def _compile(hint: Any) -> tuple[Mapping[str, Any], ValueCheck]:
    if is_typeddict(hint):
        return _compile_record(hint)
    if get_origin(hint) is list and is_typeddict(get_args(hint)[0]):
        return _compile_records(get_args(hint)[0])
    return compile_type(hint)


def _compile_record(hint: Any) -> tuple[Mapping[str, Any], ValueCheck]:
    fields = {name: _compile(item) for name, item in get_type_hints(hint).items()}
    required = [name for name in fields if name in hint.__required_keys__]
    schema = {
        "type": "object",
        "properties": {name: item for name, (item, _) in fields.items()},
        "required": required,
        "additionalProperties": False,
    }
    checks = {name: check for name, (_, check) in fields.items()}

    def check_record(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
        if not isinstance(value, dict):
            return report_problem(where, "an object", value, problems)
        items = cast("dict[str, Any]", value)
        problems += [f"{where}: `{name}` is missing" for name in required if name not in items]
        problems += [f"{where}: `{name}` is not declared" for name in items if name not in checks]
        for name, check in checks.items():
            if name in items:
                check(items[name], f"{where}.{name}", problems, repairs)
        return items

    return schema, check_record


def _compile_records(hint: Any) -> tuple[Mapping[str, Any], ValueCheck]:
    schema, check = _compile_record(hint)

    def check_records(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
        if not isinstance(value, list):
            return report_problem(where, "an array", value, problems)
        items = cast("list[Any]", value)
        for number, item in enumerate(items):
            check(item, f"{where}[{number}]", problems, repairs)
        return items

    return {"type": "array", "items": schema}, check_records
