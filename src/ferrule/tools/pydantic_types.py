"""Arguments and results whose types need pydantic: models, dataclasses, typed dicts, constraints,
dates.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from ferrule.core.errors import ToolDefinitionError

from .definition import Checked
from .parameters import Parameter, unknown


class ModelledArguments:
    """`tools.definition.Arguments` by a pydantic model made from the parameters."""

    def __init__(self, tool: str, parameters: list[Parameter]) -> None:
        from pydantic import ConfigDict, create_model
        from pydantic.errors import PydanticUserError

        self._names = [parameter.name for parameter in parameters]
        self._optional = {parameter.name for parameter in parameters if not parameter.required}
        try:
            # The parameters' names are aliases: as fields, `schema` or `_x` would clash with
            # pydantic's own.
            fields: dict[str, Any] = {f"p{i}": _field(p) for i, p in enumerate(parameters)}
            self._model: Any = create_model(tool, __config__=ConfigDict(extra="forbid"), **fields)
            self._schema = _tidy(self._model.model_json_schema())
        except PydanticUserError as error:
            raise _inexpressible(tool, parameters, error) from error

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> Checked:
        """Strict first; what only passes the lax rules is taken and reported as a repair."""
        from pydantic import ValidationError

        extra = unknown(arguments, self._names)
        if extra:
            return Checked({}, extra, [])
        repairs: list[str] = []
        try:
            made = self._model.model_validate_json(_encoded(arguments), strict=True)
        except ValidationError as strict:
            given = self._without_nulls(arguments, strict)
            try:
                made = self._model.model_validate_json(_encoded(given))
            except ValidationError as error:
                return Checked({}, _problems(error), [])
            repairs = [f"{problem}: was converted" for problem in _problems(strict, given)]
        return Checked(
            {name: getattr(made, f"p{i}") for i, name in enumerate(self._names)}, [], repairs
        )

    def _without_nulls(self, arguments: Mapping[str, Any], error: Any) -> Mapping[str, Any]:
        """Models fill optional parameters with null; where null is no value, the default is what
        they mean.
        """
        refused = {
            item["loc"][0] for item in error.errors(include_url=False) if item["loc"]
        } & self._optional
        return {
            name: value
            for name, value in arguments.items()
            if value is not None or name not in refused
        }


def _field(parameter: Parameter) -> tuple[Any, Any]:
    from pydantic import Field

    default = ... if parameter.required else parameter.default
    description = parameter.description or None
    return _portable(parameter.annotation), Field(
        default, alias=parameter.name, description=description
    )


def _encoded(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, default=str)


def _inexpressible(tool: str, parameters: list[Parameter], error: Exception) -> ToolDefinitionError:
    """The error of a model, put down to the first parameter that has it on its own."""
    from pydantic import ConfigDict, create_model
    from pydantic.errors import PydanticUserError

    for parameter in parameters:
        try:
            fields: dict[str, Any] = {"p": _field(parameter)}
            create_model(tool, __config__=ConfigDict(extra="forbid"), **fields).model_json_schema()
        except PydanticUserError as cause:
            reason = str(cause).splitlines()[0]
            return ToolDefinitionError(
                (
                    f"tool `{tool}`: the type of `{parameter.name}` cannot be expressed as JSON "
                    f"Schema: {reason}"
                ),
                hint="use plain types, dataclasses or pydantic models",
            )
    reason = str(error).splitlines()[0]
    return ToolDefinitionError(
        f"tool `{tool}`: its parameters cannot be expressed as JSON Schema: {reason}"
    )


def _portable(hint: Any) -> Any:
    """Before Python 3.12 pydantic takes only the typed dicts of `typing_extensions`: make those of
    `typing` so.
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
            members[name] = wrapper[_portable(item)]
        return typing_extensions.TypedDict(hint.__name__, members)  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType, reportUnknownVariableType]  (made from data)
    args = get_args(hint)
    swapped = tuple(_portable(arg) for arg in args)
    if all(one is other for one, other in zip(args, swapped, strict=True)):
        return hint
    origin = get_origin(hint)
    if origin is Annotated:
        return Annotated[swapped]
    if origin in (Union, UnionType):
        return Union[swapped]  # noqa: UP007  (`|` does not take a tuple)
    return origin[swapped]


class ModelledOutput:
    """`tools.definition.Output` by a pydantic type adapter."""

    def __init__(self, tool: str, hint: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            self._adapter: Any = TypeAdapter(_portable(hint))
            self.schema: Mapping[str, Any] = _tidy(self._adapter.json_schema(mode="serialization"))
        except PydanticUserError as error:
            raise ToolDefinitionError(
                (
                    f"tool `{tool}`: the return type cannot be expressed as JSON Schema: "
                    f"{str(error).splitlines()[0]}"
                ),
                hint="annotate the result with plain types, dataclasses or pydantic models",
            ) from error

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        from pydantic import ValidationError

        try:
            checked = self._adapter.validate_python(value)
        except ValidationError as error:
            return value, _problems(error)
        return self._adapter.dump_python(checked, mode="json"), []


def _problems(error: Any, given: Mapping[str, Any] | None = None) -> list[str]:
    """In words. With `given`, only those about arguments that are in it."""
    problems: list[str] = []
    for item in error.errors(include_url=False, include_context=False):
        if given is not None and item["loc"] and item["loc"][0] not in given:
            continue
        where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in item["loc"]).lstrip(
            "."
        )
        found = json.dumps(item.get("input"), ensure_ascii=False, default=str)
        found = found if len(found) <= 60 else found[:57] + "..."
        shown = "" if item["type"] == "missing" else f", found {found}"
        problems.append(
            f"`{where or 'arguments'}`: {item['msg'][:1].lower()}{item['msg'][1:]}{shown}"
        )
    return problems


def _tidy(schema: Any) -> Any:
    """Drop titles that pydantic makes from names: they cost tokens and say nothing."""
    if isinstance(schema, list):
        return [_tidy(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    items = cast("dict[str, Any]", schema)
    kept: dict[str, Any] = {}
    for key, value in items.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs") and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            kept[key] = {name: _tidy(item) for name, item in named.items()}
        else:
            kept[key] = _tidy(value)
    return kept
