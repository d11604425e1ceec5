"""`define_tool`: a tool from a dictionary of parameters or a JSON Schema, for tools that are data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from difflib import get_close_matches
from typing import Any, cast

from ferrule.core.errors import ToolDefinitionError

from .decorator import make
from .definition import COMMAND, READS, URL, VARIABLES, WRITES, Checked, Tool
from .names import check_name
from .parameters import unknown

_CONFIG = (
    "side_effect",
    "risk",
    "namespace",
    "timeout",
    "max_attempts",
    "reliability",
    "idempotent",
    "polls",
    "parallel",
    "inline",
    "preview",
    "scopes",
    "cost",
    "latency",
    "examples",
    "defer_loading",
    "probe",
    "impossible",
)
_TOUCHES = {"read": READS, "write": WRITES, "command": COMMAND, "variables": VARIABLES, "url": URL}
_ALIASES = {
    "params": "parameters",
    "args": "parameters",
    "input_schema": "parameters",
    "inputSchema": "parameters",
    "desc": "description",
    "function": "handler",
}
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


def define_tool(
    name: str,
    description: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    handler: Callable[..., Any] | None = None,
    touches: Mapping[str, str] | None = None,
    **config: Any,
) -> Tool:
    """A tool whose parameters are data.

    `parameters` is either a JSON Schema of an object (it has `type: object` or `properties`), or a
    mapping from name to a schema or to a plain description. In the mapping every parameter is required
    unless it says `required: false`, and a bare text means a required string. `handler` takes the
    arguments by keyword. `touches` maps parameter names to `read`, `write`, `command`, `variables` or `url`. Every
    other key is one of `@tool`'s (`side_effect`, `risk`, `timeout`, ...).

    Raises ToolDefinitionError naming the tool and the key, also for `params` written for `parameters`.
    """
    check_name(name)
    _check_config(name, config)
    if not description.strip():
        raise ToolDefinitionError(f"tool `{name}` has no description", hint="say in a sentence what it does")
    if handler is None:
        raise ToolDefinitionError(f"tool `{name}` has no handler", hint="pass `handler=`, a function")
    schema = _schema(name, parameters or {})
    arguments = SchemaArguments(name, schema)
    shell = make(_placeholder, name=name, description=description, **config)
    marks = {key: _touch(name, key, kind) for key, kind in (touches or {}).items()}
    fields: dict[str, Any] = {
        "arguments": arguments,
        "handler": handler,
        "is_async": inspect.iscoroutinefunction(handler),
        "output": None,
        "touches": marks,
    }
    from dataclasses import replace

    return replace(shell, **fields)


def _placeholder() -> None:
    """Stands in while the options are read."""


def _check_config(name: str, config: Mapping[str, Any]) -> None:
    for key in config:
        if key in _ALIASES:
            raise ToolDefinitionError(f"tool `{name}`: the key is `{_ALIASES[key]}`, not `{key}`")
        if key not in _CONFIG:
            near = get_close_matches(key, _CONFIG, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(_CONFIG)}"
            raise ToolDefinitionError(f"tool `{name}`: unknown key `{key}`", hint=hint)


def _touch(name: str, key: str, kind: str) -> Any:
    if kind not in _TOUCHES:
        raise ToolDefinitionError(
            f"tool `{name}`: `{key}` touches {kind!r}", hint=f"use one of {', '.join(_TOUCHES)}"
        )
    return _TOUCHES[kind]


def _schema(tool: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    if parameters.get("type") == "object" or isinstance(parameters.get("properties"), Mapping):
        return {"type": "object", **parameters}
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, given in parameters.items():
        if isinstance(given, str):
            given = {"type": "string", "description": given}
        if not isinstance(given, Mapping):
            raise ToolDefinitionError(
                f"tool `{tool}`: parameter `{name}` is {type(given).__name__}",
                hint="give a description, or a schema such as {'type': 'integer'}",
            )
        schema = dict(cast("Mapping[str, Any]", given))
        if schema.get("required", True) is not False:
            required.append(name)
        if isinstance(schema.get("required"), bool):
            del schema["required"]
        if isinstance(schema.get("type"), str) and schema["type"] not in _TYPES:
            raise ToolDefinitionError(
                f"tool `{tool}`: parameter `{name}` has the type {schema['type']!r}",
                hint=f"JSON Schema knows {', '.join(_TYPES)}",
            )
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


class SchemaArguments:
    """`tools.definition.Arguments` for a JSON Schema that arrived as data, checked by jsonschema-rs.

    Remote references are refused: a schema must not make this machine fetch anything.
    """

    def __init__(self, tool: str, schema: dict[str, Any]) -> None:
        import jsonschema_rs

        def refuse(uri: str) -> Any:
            raise ValueError(f"a reference to {uri} would have to be fetched; use a local `$ref`")

        try:
            self._validator = jsonschema_rs.validator_for(schema, retriever=refuse)
        except ValueError as error:
            reason = str(error).splitlines()[0]
            raise ToolDefinitionError(f"tool `{tool}`: its schema cannot be used: {reason}") from error
        self._schema = schema
        self._names = list(schema.get("properties", {}))
        self._closed = schema.get("additionalProperties") is False

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> Checked:
        values = dict(arguments)
        extra = unknown(values, self._names) if self._closed else []
        problems = [_problem(e) for e in self._validator.iter_errors(values) if not _is_extra(e)]
        for name, schema in self._schema.get("properties", {}).items():
            if name not in values and isinstance(schema, Mapping) and "default" in schema:
                values[name] = deepcopy(cast("Mapping[str, Any]", schema)["default"])
        return Checked(values, extra + problems, [])


def _is_extra(error: Any) -> bool:
    return error.kind.name == "additionalProperties" and not list(error.instance_path)


def _problem(error: Any) -> str:
    where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path).lstrip(".")
    return f"`{where or 'arguments'}`: {error.message}"
