"""Schemas and checks for plain Python types, without a library.

Plain means: `str`, `int`, `float`, `bool`, `None`, `Any`, `list[...]`, `dict[str, ...]`, `Literal`,
enumerations and unions of these. Most tools need no more, and a catalog of a thousand of them must
be built in milliseconds without loading pydantic; everything else goes to `tools.pydantic_types`.
Both agree on what they accept (a property test compares them), except that this one also repairs
what models often get wrong and says so: a number or truth value sent as text, a list or object sent
as its JSON text, a choice in the wrong case, a whole number with a decimal point.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Union, cast, get_args, get_origin

from ferrule.core.errors import ToolDefinitionError

from .definition import Checked
from .parameters import Parameter, unknown

Check = Callable[[Any, str, list[str], list[str]], Any]
"""`check(value, where, problems, repairs)` gives the handler's value; `where` names it in words."""


class NotPlain(Exception):
    """The type needs `tools.pydantic_types`."""

    def __init__(self, hint: object) -> None:
        super().__init__(str(hint))


class PlainArguments:
    """`tools.definition.Arguments` for plain types."""

    def __init__(self, tool: str, parameters: Sequence[Parameter]) -> None:
        properties: dict[str, Any] = {}
        self._checks: list[tuple[str, Check, bool, bool, Any]] = []
        for parameter in parameters:
            schema, check = compile_type(parameter.hint)
            if not parameter.required and parameter.default is None:
                schema = _without_null(schema)
            if parameter.description:
                schema["description"] = parameter.description
            if not parameter.required and parameter.default is not None:
                schema["default"] = _plain_default(tool, parameter)
            properties[parameter.name] = schema
            # Models fill optional parameters with null; where null is no value, the default is what
            # they mean.
            forgiving = not parameter.required and not _accepts_null(check)
            self._checks.append(
                (parameter.name, check, parameter.required, forgiving, parameter.default)
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

    def check(self, arguments: Mapping[str, Any]) -> Checked:
        values: dict[str, Any] = {}
        problems: list[str] = []
        repairs: list[str] = []
        if not arguments.keys() <= self._known:
            problems = unknown(arguments, self._names)
        for name, check, required, forgiving, default in self._checks:
            if name not in arguments:
                if required:
                    problems.append(f"`{name}` is missing")
                else:
                    values[name] = default
                continue
            given = arguments[name]
            if given is None and forgiving:
                values[name] = default
                continue
            values[name] = check(given, f"`{name}`", problems, repairs)
        return Checked(values, problems, repairs)


class PlainOutput:
    """`tools.definition.Output` for plain types."""

    def __init__(self, hint: Any) -> None:
        self.schema, self._check = compile_type(hint)

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        problems: list[str] = []
        repairs: list[str] = []
        value = getattr(value, "value", value) if self.schema.get("enum") else value
        self._check(value, "the result", problems, repairs)
        # A handler is a program, not a model: what a model may get wrong is a defect here.
        return value, problems + repairs


def compile_type(hint: Any) -> tuple[dict[str, Any], Check]:
    """JSON Schema and check of a plain type. Raises NotPlain for any other."""
    simple = _simple(hint)
    if simple is not None:
        return dict(simple[0]), simple[1]
    origin = get_origin(hint)
    if origin is list or hint is list:
        return _list(get_args(hint))
    if origin is dict or hint is dict:
        return _dict(get_args(hint))
    if origin is Literal:
        return _choices(list(get_args(hint)), list(get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choices([member.value for member in hint], list(hint))
    if origin is Union or origin is types.UnionType:
        return _union(get_args(hint))
    raise NotPlain(cast("object", hint))


def kind(value: Any) -> str:
    """The JSON name of a value's type, for messages."""
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


def wrong(where: str, expected: str, value: Any, problems: list[str]) -> Any:
    """Say what was expected and what was found; long values are shortened."""
    problems.append(f"{where} must be {expected}, found {kind(value)} {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _string(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    return value if isinstance(value, str) else wrong(where, "a string", value, problems)


def _integer(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return _repaired(value, int(value), where, repairs)
    if isinstance(value, str):
        try:
            return _repaired(value, int(value.strip()), where, repairs)
        except ValueError:
            pass
    return wrong(where, "an integer", value, problems)


def _number(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    if isinstance(value, float) or type(value) is int:
        return value
    if isinstance(value, str):
        try:
            return _repaired(value, float(value.strip()), where, repairs)
        except ValueError:
            pass
    return wrong(where, "a number", value, problems)


def _boolean(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return _repaired(value, value.strip().lower() == "true", where, repairs)
    return wrong(where, "true or false", value, problems)


def _null(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    return None if value is None else wrong(where, "null", value, problems)


def _any(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
    return value


_SIMPLE: dict[Any, tuple[dict[str, Any], Check]] = {
    str: ({"type": "string"}, _string),
    int: ({"type": "integer"}, _integer),
    float: ({"type": "number"}, _number),
    bool: ({"type": "boolean"}, _boolean),
    None: ({"type": "null"}, _null),
    type(None): ({"type": "null"}, _null),
    Any: ({}, _any),
    object: ({}, _any),
}


def _simple(hint: Any) -> tuple[dict[str, Any], Check] | None:
    try:
        return _SIMPLE.get(hint)
    except TypeError:
        # `Annotated` with a list in it, for example, has no hash.
        return None


def _repaired(before: Any, after: Any, where: str, repairs: list[str]) -> Any:
    repairs.append(f"{where}: {_shown(before)} was read as {_shown(after)}")
    return after


def _unfolded(value: Any, expected: type, where: str, repairs: list[str]) -> Any:
    """A list or object that arrived as its own JSON text."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if isinstance(parsed, expected):
            repairs.append(f"{where}: JSON text was read as {kind(parsed)}")
            return parsed
    return value


def _list(args: tuple[Any, ...]) -> tuple[dict[str, Any], Check]:
    schema, check = compile_type(args[0]) if args else ({}, _any)

    def check_list(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
        value = _unfolded(value, list, where, repairs)
        if not isinstance(value, (list, tuple)):
            return wrong(where, "an array", value, problems)
        items = cast("list[Any]", value)
        return [check(item, f"{where}[{i}]", problems, repairs) for i, item in enumerate(items)]

    return {"type": "array", "items": schema}, check_list


def _dict(args: tuple[Any, ...]) -> tuple[dict[str, Any], Check]:
    if args and args[0] is not str:
        raise NotPlain(dict)
    schema, check = compile_type(args[1]) if args else ({}, _any)

    def check_dict(value: Any, where: str, problems: list[str], repairs: list[str]) -> Any:
        value = _unfolded(value, dict, where, repairs)
        if not isinstance(value, Mapping):
            return wrong(where, "an object", value, problems)
        items = cast("Mapping[str, Any]", value)
        return {
            key: check(item, f"{where}.{key}", problems, repairs) for key, item in items.items()
        }

    return {"type": "object", "additionalProperties": schema or True}, check_dict


def _choices(values: list[Any], members: list[Any]) -> tuple[dict[str, Any], Check]:
    types_ = {kind(value) for value in values}
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
            return members[values.index(_repaired(value, near, where, repairs))]
        return wrong(where, f"one of {shown}", value, problems)

    schema: dict[str, Any] = {"enum": values}
    if len(types_) == 1:
        schema = {"type": types_.pop(), "enum": values}
    return schema, check_choice


def _union(args: tuple[Any, ...]) -> tuple[dict[str, Any], Check]:
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
            return wrong(where, " or ".join(names), value, problems)
        repairs.extend(best[2])
        return best[1]

    return {"anyOf": [schema for schema, _ in branches]}, check_union


_NEVER_NULL = frozenset({_string, _integer, _number, _boolean})


def _accepts_null(check: Check) -> bool:
    if check in _NEVER_NULL:
        return False
    problems: list[str] = []
    check(None, "", problems, [])
    return not problems


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Leaving an optional parameter out says null already; weak models do better without the
    choice.
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
