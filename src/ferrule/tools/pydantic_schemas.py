"""Check values whose types need pydantic: models, dataclasses, typed dicts, constraints, dates."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from ferrule.core.errors import ToolDefinitionError

from .definition import CheckedArguments
from .parameters import Parameter, unknown_arguments


class PydanticArguments:
    """`tools.definition.Arguments` by a pydantic model made of the parameters."""

    def __init__(self, tool: str, parameters: list[Parameter]) -> None:
        from pydantic import ConfigDict, create_model
        from pydantic.errors import PydanticUserError

        self._names = [parameter.name for parameter in parameters]
        self._optional = {parameter.name for parameter in parameters if not parameter.required}
        try:
            # The parameters' names are aliases: as fields, `schema` or `_x` would clash with
            # pydantic's own.
            fields: dict[str, Any] = {
                f"p{number}": _make_field(parameter) for number, parameter in enumerate(parameters)
            }
            self._model: Any = create_model(tool, __config__=ConfigDict(extra="forbid"), **fields)
            self._schema = drop_titles(self._model.model_json_schema())
        except PydanticUserError as error:
            raise _definition_error(tool, parameters, error) from error

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        """Check strictly first; a value that only passes the lax rules is reported as a repair."""
        from pydantic import ValidationError

        extra = unknown_arguments(arguments, self._names)
        if extra:
            return CheckedArguments({}, extra, [])
        repairs: list[str] = []
        try:
            made = self._model.model_validate_json(_encode(arguments), strict=True)
        except ValidationError as strict:
            given = self._without_nulls(arguments, strict)
            try:
                made = self._model.model_validate_json(_encode(given))
            except ValidationError as error:
                return CheckedArguments({}, describe_errors(error), [])
            repairs = [f"{problem}: was converted" for problem in describe_errors(strict, given)]
        return CheckedArguments(
            {name: getattr(made, f"p{number}") for number, name in enumerate(self._names)},
            [],
            repairs,
        )

    def _without_nulls(self, arguments: Mapping[str, Any], error: Any) -> Mapping[str, Any]:
        """Drop nulls that are not allowed: models fill optional parameters with them."""
        refused = {
            item["loc"][0] for item in error.errors(include_url=False) if item["loc"]
        } & self._optional
        return {
            name: value
            for name, value in arguments.items()
            if value is not None or name not in refused
        }


def _make_field(parameter: Parameter) -> tuple[Any, Any]:
    from pydantic import Field

    default = ... if parameter.required else parameter.default
    description = parameter.description or None
    return make_portable(parameter.annotation), Field(
        default, alias=parameter.name, description=description
    )


def _encode(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, default=str)


def _definition_error(
    tool: str, parameters: list[Parameter], error: Exception
) -> ToolDefinitionError:
    """Return the error for the first parameter whose type alone cannot be expressed."""
    from pydantic import ConfigDict, create_model
    from pydantic.errors import PydanticUserError

    for parameter in parameters:
        try:
            fields: dict[str, Any] = {"p": _make_field(parameter)}
            create_model(tool, __config__=ConfigDict(extra="forbid"), **fields).model_json_schema()
        except PydanticUserError as cause:
            reason = str(cause).splitlines()[0]
            return ToolDefinitionError(
                f"tool `{tool}`: the type of `{parameter.name}` cannot be expressed as JSON "
                f"Schema: {reason}",
                hint="use plain types, dataclasses or pydantic models",
            )
    reason = str(error).splitlines()[0]
    return ToolDefinitionError(
        f"tool `{tool}`: its parameters cannot be expressed as JSON Schema: {reason}"
    )


def make_portable(hint: Any) -> Any:
    """Convert typed dicts of `typing` into those of `typing_extensions`, where pydantic needs it.

    Before Python 3.12 pydantic takes only the latter.
    """
    if sys.version_info >= (3, 12):
        return hint
    if is_typeddict(hint) and type(hint).__module__ == "typing":
        import typing_extensions

        members: dict[str, Any] = {}
        for name, item in get_type_hints(hint, include_extras=True).items():
            wrapper = (
                typing_extensions.Required
                if name in hint.__required_keys__
                else typing_extensions.NotRequired
            )
            members[name] = wrapper[make_portable(item)]
        return typing_extensions.TypedDict(hint.__name__, members)  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType, reportUnknownVariableType]  (made from data)
    args = get_args(hint)
    swapped = tuple(make_portable(arg) for arg in args)
    if all(one is other for one, other in zip(args, swapped, strict=True)):
        return hint
    origin = get_origin(hint)
    if origin is Annotated:
        return Annotated[swapped]
    if origin in (Union, UnionType):
        return Union[swapped]  # noqa: UP007  (`|` does not take a tuple)
    return origin[swapped]


class PydanticOutput:
    """`tools.definition.Output` by a pydantic type adapter."""

    def __init__(self, tool: str, hint: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            self._adapter: Any = TypeAdapter(make_portable(hint))
            self.schema: Mapping[str, Any] = drop_titles(
                self._adapter.json_schema(mode="serialization")
            )
        except PydanticUserError as error:
            raise ToolDefinitionError(
                f"tool `{tool}`: the return type cannot be expressed as JSON Schema: "
                f"{str(error).splitlines()[0]}",
                hint="annotate the result with plain types, dataclasses or pydantic models",
            ) from error

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        from pydantic import ValidationError

        try:
            checked = self._adapter.validate_python(value)
        except ValidationError as error:
            return value, describe_errors(error)
        return self._adapter.dump_python(checked, mode="json"), []


def describe_errors(
    error: Any, given: Mapping[str, Any] | None = None, *, root: str = "arguments"
) -> list[str]:
    """Describe validation errors; with `given`, only those about arguments in it.

    `root` names the whole of what was checked.
    """
    problems: list[str] = []
    for item in error.errors(include_url=False, include_context=False):
        if given is not None and item["loc"] and item["loc"][0] not in given:
            continue
        steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in item["loc"]]
        where = "".join(steps).lstrip(".") or root
        message = item["msg"][:1].lower() + item["msg"][1:]
        if item["type"] != "missing":
            found = json.dumps(item.get("input"), ensure_ascii=False, default=str)
            if len(found) > 60:
                found = found[:57] + "..."
            message += f", found {found}"
        problems.append(f"`{where}`: {message}")
    return problems


def drop_titles(schema: Any) -> Any:
    """Drop titles that pydantic makes from names: they cost tokens and say nothing."""
    if isinstance(schema, list):
        return [drop_titles(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    items = cast("dict[str, Any]", schema)
    kept: dict[str, Any] = {}
    for key, value in items.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs") and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            kept[key] = {name: drop_titles(item) for name, item in named.items()}
        else:
            kept[key] = drop_titles(value)
    return kept
