"""Make JSON Schemas and checks for plain Python types, without a library.

Plain types are `str`, `int`, `float`, `bool`, `None`, `Any`, `list[...]`, `dict[str, ...]`,
`Literal`, enumerations and unions of these. Most tools need no more, and a catalog of a thousand
tools must be built in milliseconds without loading pydantic. All other types go to
`tools.pydantic_schemas`.

Both modules accept the same values (a property test compares them), except that this one also
repairs frequent mistakes of models and reports each repair: a number or boolean sent as text, a
list or object sent as its JSON text, a choice in the wrong case, a whole number with a decimal
point.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Union, cast, get_args, get_origin

from ferrule.core.calls import parse_json
from ferrule.core.errors import ToolDefinitionError

from .definition import CheckedArguments
from .parameters import Parameter, unknown_arguments

ValueCheck = Callable[[Any, str, list[str], list[str]], Any]
"""`check(value, where, problems, repairs)` returns the handler's value; `where` is its name."""


class NotPlain(Exception):
    """Raised for a type that needs `tools.pydantic_schemas`."""


class PlainArguments:
    """`tools.definition.Arguments` for plain types."""

    def __init__(self, tool: str, parameters: Sequence[Parameter]) -> None:
        properties: dict[str, Any] = {}
        self._checks: list[tuple[str, ValueCheck, bool, bool, Any]] = []
        for parameter in parameters:
            schema, check = compile_type(parameter.hint)
            if not parameter.required and parameter.default is None:
                schema = _without_null(schema)
            if parameter.description:
                schema["description"] = parameter.description
            if not parameter.required and parameter.default is not None:
                schema["default"] = _plain_default(tool, parameter)
            properties[parameter.name] = schema
            # Models fill optional parameters with null; if null is not allowed, they mean the
            # default.
            null_means_default = not parameter.required and not _accepts_null(check)
            self._checks.append(
                (parameter.name, check, parameter.required, null_means_default, parameter.default)
            )
        self._names = [parameter.name for parameter in parameters]
        self._known = frozenset(self._names)
        required = [parameter.name for parameter in parameters if parameter.required]
        self._schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            self._schema["required"] = required
        self._schema["additionalProperties"] = False

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        """Return values for the handler, with a sentence for each problem and each repair."""
        values: dict[str, Any] = {}
        problems: list[str] = []
        repairs: list[str] = []
        if not arguments.keys() <= self._known:
            problems = unknown_arguments(arguments, self._names)
        for name, check, required, null_means_default, default in self._checks:
            if name not in arguments:
                if required:
                    problems.append(f"`{name}` is missing")
                else:
                    values[name] = default
                continue
            given = arguments[name]
            if given is None and null_means_default:
                values[name] = default
                continue
            values[name] = check(given, f"`{name}`", problems, repairs)
        return CheckedArguments(values, problems, repairs)


class PlainOutput:
    """`tools.definition.Output` for plain types."""

    def __init__(self, hint: Any) -> None:
        self.schema, self._check = compile_type(hint)

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        """Return a handler's value for the result, with a sentence for each problem."""
        problems: list[str] = []
        repairs: list[str] = []
        if self.schema.get("enum"):
            value = getattr(value, "value", value)
        self._check(value, "the result", problems, repairs)
        # A handler is a program, not a model: what is repaired for a model is a defect here.
        return value, problems + repairs


def compile_type(hint: Any) -> tuple[dict[str, Any], ValueCheck]:
    """Return the JSON Schema and the check of a plain type. Raises NotPlain for any other."""
    simple = _simple_type(hint)
    if simple is not None:
        return dict(simple[0]), simple[1]
    origin = get_origin(hint)
    if origin is list or hint is list:
        return _compile_list(get_args(hint))
    if origin is dict or hint is dict:
        return _compile_dict(get_args(hint))
    if origin is Literal:
        return _compile_choices(list(get_args(hint)), list(get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _compile_choices([member.value for member in hint], list(hint))
    if origin is Union or origin is types.UnionType:
        return _compile_union(get_args(hint))
    raise NotPlain(cast("object", hint))


def json_type_name(value: Any) -> str:
    """Return the JSON name of a value's type, for messages."""
    for types_, name in _KINDS:
        if isinstance(value, types_):
            return name
    return type(value).__name__


_KINDS: tuple[tuple[Any, str], ...] = (
    (type(None), "null"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    ((list, tuple), "array"),
    (Mapping, "object"),
)


def report_problem(where: str, expected: str, value: Any, problems: list[str]) -> Any:
    """Report what was expected and what was found, with long values shortened."""
    problems.append(f"{where} must be {expected}, found {json_type_name(value)} {_show(value)}")
    return value


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_string(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    return value if isinstance(value, str) else report_problem(where, "a string", value, problems)


def _check_integer(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return _repair(value, int(value), where, repairs)
    if isinstance(value, str):
        try:
            return _repair(value, int(value.strip()), where, repairs)
        except ValueError:
            pass
    return report_problem(where, "an integer", value, problems)


def _check_number(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    if isinstance(value, float) or type(value) is int:
        return value
    if isinstance(value, str):
        try:
            return _repair(value, float(value.strip()), where, repairs)
        except ValueError:
            pass
    return report_problem(where, "a number", value, problems)


def _check_boolean(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return _repair(value, value.strip().lower() == "true", where, repairs)
    return report_problem(where, "true or false", value, problems)


def _check_null(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    return None if value is None else report_problem(where, "null", value, problems)


def _check_any(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    return value


_SIMPLE_TYPES: dict[Any, tuple[dict[str, Any], ValueCheck]] = {
    str: ({"type": "string"}, _check_string),
    int: ({"type": "integer"}, _check_integer),
    float: ({"type": "number"}, _check_number),
    bool: ({"type": "boolean"}, _check_boolean),
    None: ({"type": "null"}, _check_null),
    type(None): ({"type": "null"}, _check_null),
    Any: ({}, _check_any),
    object: ({}, _check_any),
}


def _simple_type(hint: Any) -> tuple[dict[str, Any], ValueCheck] | None:
    try:
        return _SIMPLE_TYPES.get(hint)
    except TypeError:
        # Not hashable: `Annotated` with a list in it, for example.
        return None


def _repair(before: Any, after: Any, where: str, repairs: list[str]) -> Any:
    repairs.append(f"{where}: {_show(before)} was read as {_show(after)}")
    return after


def _parse_json_text(value: Any, expected: type, where: str, repairs: list[str]) -> Any:
    """Parse a list or object that arrived as its JSON text; return other values unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            parsed = parse_json(value)
        except ValueError:
            return value
        if isinstance(parsed, expected):
            repairs.append(f"{where}: JSON text was read as {json_type_name(parsed)}")
            return parsed
    return value


def _compile_list(args: tuple[Any, ...]) -> tuple[dict[str, Any], ValueCheck]:
    schema, check = compile_type(args[0]) if args else ({}, _check_any)

    def check_list(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
        value = _parse_json_text(value, list, where, repairs)
        if not isinstance(value, (list, tuple)):
            return report_problem(where, "an array", value, problems)
        items = cast("list[Any]", value)
        return [check(item, f"{where}[{i}]", problems, repairs) for i, item in enumerate(items)]

    return {"type": "array", "items": schema}, check_list


def _compile_dict(args: tuple[Any, ...]) -> tuple[dict[str, Any], ValueCheck]:
    if args and args[0] is not str:
        raise NotPlain(dict)
    schema, check = compile_type(args[1]) if args else ({}, _check_any)

    def check_dict(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
        value = _parse_json_text(value, dict, where, repairs)
        if not isinstance(value, Mapping):
            return report_problem(where, "an object", value, problems)
        items = cast("Mapping[str, Any]", value)
        return {
            key: check(item, f"{where}.{key}", problems, repairs) for key, item in items.items()
        }

    return {"type": "object", "additionalProperties": schema or True}, check_dict


def _compile_choices(values: list[Any], members: list[Any]) -> tuple[dict[str, Any], ValueCheck]:
    types_ = {json_type_name(value) for value in values}
    if not types_ <= {"string", "integer", "boolean", "null"}:
        raise NotPlain(values)
    shown = ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
    folded = {value.lower(): value for value in values if isinstance(value, str)}
    unambiguous = len(folded) == sum(isinstance(value, str) for value in values)

    def check_choice(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
        # True == 1 in Python: the type is compared too, or `1` would pass for `true`.
        for choice, member in zip(values, members, strict=True):
            if type(choice) is type(value) and choice == value:
                return member
        if (
            isinstance(value, str)
            and unambiguous
            and (near := folded.get(value.strip().lower())) is not None
        ):
            return members[values.index(_repair(value, near, where, repairs))]
        return report_problem(where, f"one of {shown}", value, problems)

    schema: dict[str, Any] = {"enum": values}
    if len(types_) == 1:
        schema = {"type": types_.pop(), "enum": values}
    return schema, check_choice


def _compile_union(args: tuple[Any, ...]) -> tuple[dict[str, Any], ValueCheck]:
    branches = [compile_type(arg) for arg in args]

    def check_union(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
        # A branch that takes the value as it is wins over one that would have to repair it.
        best: tuple[int, Any, list[str]] | None = None
        for _, check in branches:
            found: list[str] = []
            fixed: list[str] = []
            taken = check(value, where, found, fixed)
            if not found and (best is None or len(fixed) < best[0]):
                best = (len(fixed), taken, fixed)
        if best is None:
            names = [str(schema.get("type", "another type")) for schema, _ in branches]
            return report_problem(where, " or ".join(names), value, problems)
        repairs.extend(best[2])
        return best[1]

    return {"anyOf": [schema for schema, _ in branches]}, check_union


_NEVER_NULL = frozenset({_check_string, _check_integer, _check_number, _check_boolean})


def _accepts_null(check: ValueCheck) -> bool:
    if check in _NEVER_NULL:
        return False
    problems: list[str] = []
    check(None, "", problems, [])
    return not problems


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop null from the schema of an optional parameter.

    Leaving the parameter out already means null, and weak models do better without the choice.
    """
    branches = [branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}]
    return dict(branches[0]) if len(branches) == 1 else schema


def _plain_default(tool: str, parameter: Parameter) -> Any:
    default = getattr(parameter.default, "value", parameter.default)
    if type(default) in (str, int, bool):
        return default
    try:
        json.dumps(default)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f"tool `{tool}`: the default of `{parameter.name}` cannot be written as JSON: {error}"
        ) from error
    return default
