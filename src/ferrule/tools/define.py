"""Define tools as data (`define_tool`): parameters as a dictionary or a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from ferrule.core.errors import ToolDefinitionError
from ferrule.core.similar_names import suggest_names

from .decorator import tool_from_function
from .definition import COMMAND, READS, URL, VARIABLES, WRITES, CheckedArguments, Tool
from .names import check_name, split_full_name
from .parameters import is_async, read_handler, unknown_arguments

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
    "command_form",
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
    description: str = "",
    *,
    parameters: Mapping[str, Any] | None = None,
    returns: Mapping[str, Any] | None = None,
    handler: Callable[..., Any] | None = None,
    touches: Mapping[str, str] | None = None,
    **config: Any,
) -> Tool:
    """Define a tool whose parameters are data.

    Args:
        name: The tool's name, with its namespace if it has one: `calc` or `math::calc`.
        description: Description of the tool for the model.
        parameters: Either a JSON Schema of an object (it has `type: object` or `properties`), or a
            mapping from name to a schema or a plain description. In the mapping every parameter is
            required unless it says `required: false`, and a bare text means a required string. A
            parameter that is left out gets the `default` of its schema.
        returns: JSON Schema of the value that the handler returns.
        handler: A sync or async function that takes the arguments by keyword, as parameters of
            these names or as `**arguments`. A parameter annotated with `Context` is filled in by
            Ferrule. If it takes no others, arguments that nobody declared are refused by name.
        touches: Maps parameter names to `read`, `write`, `command`, `variables` or `url`.
        **config: Any other keyword of `@tool` (`side_effect`, `risk`, `timeout`, ...).

    Raises:
        ToolDefinitionError: A value or key is wrong, such as `params` for `parameters`, or the
            handler cannot take the arguments.
    """
    namespace, name = split_full_name(name, config.get("namespace", ""))
    config = {**config, "namespace": namespace} if namespace else config
    check_name(name)
    _check_config(name, config)
    if not isinstance(description, str) or not description.strip():  # pyright: ignore[reportUnnecessaryIsInstance]  from data
        raise ToolDefinitionError(
            f"tool `{name}` has no description", hint="say in a sentence what it does"
        )
    if handler is None:
        raise ToolDefinitionError(
            f"tool `{name}` has no handler", hint="pass `handler=`, a function"
        )
    schema = _schema(name, parameters or {})
    if not callable(handler):
        raise ToolDefinitionError(
            f"tool `{name}`: its handler is {handler!r}, which cannot be called",
            hint="pass `handler=`, a function",
        )
    signature = read_handler(handler, schema)
    if signature.problems:
        names = ", ".join(schema.get("properties", {}))
        raise ToolDefinitionError(
            f"tool `{name}`: its handler does not fit: {'; '.join(signature.problems)}",
            hint=(
                f"arguments arrive by name: write `def handler({names})`, or "
                "`def handler(**arguments)` to take them as one mapping"
            ),
        )
    if not signature.accepts_others:
        schema = {"additionalProperties": False, **schema}
    arguments = DefaultedArguments(name, schema)
    tool = tool_from_function(_placeholder, name=name, description=description, **config)
    marks = {key: _touch(name, key, kind) for key, kind in (touches or {}).items()}
    fields: dict[str, Any] = {
        "arguments": arguments,
        "handler": handler,
        "is_async": is_async(handler),
        "context_parameter": signature.context,
        "deps_type": signature.deps_type,
        "output": None if returns is None else SchemaOutput(name, dict(returns)),
        "touches": marks,
    }
    return replace(tool.wrap(handler), **fields)


def _placeholder() -> None:
    """Stand in for the handler while `define_tool` reads the options."""


def _check_config(name: str, config: Mapping[str, Any]) -> None:
    for key in config:
        if key in _ALIASES:
            raise ToolDefinitionError(f"tool `{name}`: the key is `{_ALIASES[key]}`, not `{key}`")
        if key not in _CONFIG:
            hint = suggest_names(key, _CONFIG, f"known: {', '.join(_CONFIG)}")
            raise ToolDefinitionError(f"tool `{name}`: unknown key `{key}`", hint=hint)


def _touch(name: str, key: str, kind: str) -> Any:
    if kind not in _TOUCHES:
        raise ToolDefinitionError(
            f"tool `{name}`: `{key}` touches {kind!r}", hint=f"use one of {', '.join(_TOUCHES)}"
        )
    return _TOUCHES[kind]


def _schema(tool: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    if "type" in parameters and parameters["type"] in _TYPES[:5] + _TYPES[6:]:
        raise ToolDefinitionError(
            f"tool `{tool}`: `parameters` describes a {parameters['type']}, where arguments "
            "are an object",
            hint=(
                "name each parameter: {'items': {'type': 'array'}}, or write the schema of an "
                "object"
            ),
        )
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
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def compile_schema(tool: str, schema: dict[str, Any], label: str = "schema") -> Any:
    """Compile a JSON Schema into a validator; `label` is the schema's name in an error.

    Remote references are refused: a schema must not make this machine fetch anything.

    Raises:
        ToolDefinitionError: The schema is invalid or refers to something remote.
    """
    import jsonschema_rs

    def refuse(uri: str) -> Any:
        raise ValueError(f"a reference to {uri} would have to be fetched; use a local `$ref`")

    try:
        return jsonschema_rs.validator_for(schema, retriever=refuse)
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise ToolDefinitionError(f"tool `{tool}`: its {label} cannot be used: {reason}") from error


class SchemaArguments:
    """`tools.definition.Arguments` for a JSON Schema given as data, checked by jsonschema-rs.

    The handler gets the arguments as given. The schema's defaults are not filled in: they say what
    the author of a remote tool does when an argument is left out.
    """

    def __init__(self, tool: str, schema: dict[str, Any]) -> None:
        self._validator = compile_schema(tool, schema)
        self._schema = schema
        self._names = list(schema.get("properties", {}))

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        values = dict(arguments)
        problems: list[str] = []
        for error in self._validator.iter_errors(values):
            problems += self._problems(error, values)
        return CheckedArguments(values, list(dict.fromkeys(problems)), [])

    def _problems(self, error: Any, values: Mapping[str, Any]) -> list[str]:
        """Describe an error; undeclared arguments are listed with the nearest parameter name."""
        extra = _find_undeclared(error, values)
        named = unknown_arguments(dict.fromkeys(extra), self._names)
        # A part of the schema may forbid what the whole schema declares: then the validator's own
        # message is right.
        return named if extra and len(named) == len(extra) else [_problem(error)]


def _find_undeclared(error: Any, values: Mapping[str, Any]) -> list[str]:
    """Return the names of arguments that a validation error says are not allowed."""
    if list(error.instance_path) or list(error.schema_path)[-1:] != ["additionalProperties"]:
        return []
    if error.kind.name == "additionalProperties":
        return list(error.kind.unexpected)
    # If nothing at all is declared, the validator reports the value and not its name.
    return [name for name, value in values.items() if value == error.instance]


class DefaultedArguments(SchemaArguments):
    """Arguments of a tool whose schema and handler belong to the same program.

    An argument that is left out gets its default. A default that does not fit its own schema is an
    error when the tool is defined.
    """

    def __init__(self, tool: str, schema: dict[str, Any]) -> None:
        super().__init__(tool, schema)
        self._defaults: dict[str, Any] = {}
        for name, parameter in schema.get("properties", {}).items():
            if isinstance(parameter, Mapping) and "default" in parameter:
                self._defaults[name] = cast("Mapping[str, Any]", parameter)["default"]
        self._check_defaults(tool)

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        checked = super().check(arguments)
        for name, default in self._defaults.items():
            if name not in checked.values:
                checked.values[name] = deepcopy(default)
        return checked

    def _check_defaults(self, tool: str) -> None:
        for error in self._validator.iter_errors(self._defaults):
            path = list(error.instance_path)
            if path:
                raise ToolDefinitionError(
                    f"tool `{tool}`: the default of `{path[0]}` does not fit its own schema: "
                    f"{error.message}",
                    hint="correct the default, or leave it out",
                )


class SchemaOutput:
    """`tools.definition.Output` for a JSON Schema."""

    def __init__(self, tool: str, schema: dict[str, Any]) -> None:
        self._validator = compile_schema(tool, schema, "output schema")
        self.schema: Mapping[str, Any] = schema

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        try:
            encoded = json.loads(json.dumps(value))
        except (TypeError, ValueError, RecursionError) as error:
            return value, [f"the value cannot be written as JSON: {error}"]
        errors = self._validator.iter_errors(encoded)
        return encoded, [_problem(error, "result") for error in errors]


def _problem(error: Any, whole: str = "arguments") -> str:
    path = list(error.instance_path)
    is_missing = error.kind.name == "required"
    if is_missing:
        path.append(error.kind.property)
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    where = "".join(steps).lstrip(".")
    if is_missing:
        return f"`{where}` is missing"
    return f"`{where or whole}`: {error.message}"
