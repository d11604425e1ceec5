"""Check values whose types need pydantic: models, dataclasses, typed dicts, constraints, dates."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from ferrule.core.calls import parse_json
from ferrule.core.errors import ToolDefinitionError

from .definition import CheckedArguments
from .parameters import Parameter, unknown_arguments

if TYPE_CHECKING:
    from pydantic.json_schema import GenerateJsonSchema

_MAX_DECODINGS = 16
"""Texts that are read as JSON in one value: each may uncover another."""


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
                f"p{number}": make_field(parameter) for number, parameter in enumerate(parameters)
            }
            self._model: Any = create_model(tool, __config__=ConfigDict(extra="forbid"), **fields)
            self._schema = drop_titles(
                self._model.model_json_schema(schema_generator=schema_generator())
            )
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
            given, decoded = decode_json_texts(
                self._without_nulls(arguments, strict),
                lambda value: self._model.model_validate_json(_encode(value), strict=True),
            )
            try:
                made = self._model.model_validate_json(_encode(given))
            except ValidationError as error:
                return CheckedArguments({}, describe_errors(error), [])
            repairs = decoded or [
                f"{problem}: was converted" for problem in describe_errors(strict, given)
            ]
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


def make_field(parameter: Parameter) -> tuple[Any, Any]:
    """Return what `pydantic.create_model` takes for a parameter."""
    from pydantic import Field

    options: dict[str, Any] = {"alias": parameter.name}
    if parameter.description:
        options["description"] = parameter.description
    if parameter.default_factory is not None:
        options["default_factory"] = parameter.default_factory
    else:
        options["default"] = ... if parameter.required else parameter.default
    return make_portable(parameter.annotation), Field(**options)


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
            fields: dict[str, Any] = {"p": make_field(parameter)}
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


def decode_json_texts(value: Any, validate: Callable[[Any], Any]) -> tuple[Any, list[str]]:
    """Read lists and objects that a model wrote as JSON text, wherever no text fits.

    Args:
        value: JSON, which is not changed.
        validate: Raises pydantic's ValidationError for a value that does not fit.

    Returns:
        The value with these texts replaced, and a sentence for each.
    """
    from pydantic import ValidationError

    notes: list[str] = []
    while len(notes) < _MAX_DECODINGS:
        try:
            validate(value)
        except ValidationError as error:
            found = _decode_first(value, [item["loc"] for item in error.errors(include_url=False)])
        else:
            break
        if found is None:
            break
        value, note = found
        notes.append(note)
    return value, notes


def _decode_first(value: Any, places: Sequence[tuple[Any, ...]]) -> tuple[Any, str] | None:
    """Replace the text at the first place that holds a list or an object as JSON text."""
    for place in places:
        path = _find_path(value, place)
        text = _look_up(value, path)
        if not isinstance(text, str) or text.lstrip()[:1] not in ("[", "{"):
            continue
        try:
            parsed = parse_json(text)
        except ValueError:
            continue
        kind = "array" if isinstance(parsed, list) else "object"
        return _replace(value, path, parsed), f"`{_format(path)}`: JSON text was read as {kind}"
    return None


def _find_path(value: Any, place: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the steps of a place in a value, without those that only name a part of a type."""
    path: list[Any] = []
    for step in place:
        is_member = isinstance(value, Mapping) and step in value
        is_item = (
            isinstance(value, list) and isinstance(step, int) and step < len(cast("Any", value))
        )
        if is_member or is_item:
            value = cast("Any", value)[step]
            path.append(step)
    return tuple(path)


def _look_up(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _replace(value: Any, path: tuple[Any, ...], part: Any) -> Any:
    if not path:
        return part
    copied: Any = value.copy()
    copied[path[0]] = _replace(value[path[0]], path[1:], part)
    return copied


def _format(path: Sequence[Any]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(
        "."
    )


@cache
def schema_generator() -> type[GenerateJsonSchema]:
    """Return pydantic's maker of schemas, which also reads `Annotated[str, "a description"]`.

    Such a text means the same in a field as it does in a parameter.
    """
    from pydantic.json_schema import GenerateJsonSchema

    class DescribedSchema(GenerateJsonSchema):
        def model_schema(self, schema: Any) -> Any:
            return _describe_fields(super().model_schema(schema), schema["cls"])

        def dataclass_schema(self, schema: Any) -> Any:
            return _describe_fields(super().dataclass_schema(schema), schema["cls"])

        def typed_dict_schema(self, schema: Any) -> Any:
            return _describe_fields(super().typed_dict_schema(schema), schema.get("cls"))

    return DescribedSchema


def _describe_fields(schema: Any, cls: type | None) -> Any:
    try:
        hints = get_type_hints(cls, include_extras=True) if cls else {}
    except (NameError, TypeError):
        return schema  # pydantic resolved names that only it knows
    for name, part in schema.get("properties", {}).items():
        hint = hints.get(name)
        if get_origin(hint) in (Required, NotRequired):
            hint = get_args(hint)[0]
        if get_origin(hint) is Annotated:
            texts = [extra for extra in get_args(hint)[1:] if isinstance(extra, str)]
            if texts:
                part["description"] = texts[-1]
    return schema


class _OwnSchema:
    """An annotation after which others write into a copy of the type's schema.

    pydantic stores the description of `Annotated[Node, Field(description=...)]` in the schema that
    it keeps for `Node`, if that model contains itself: every later schema of it would show it.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        schema = handler(source)
        return {**schema, "metadata": {**schema.get("metadata", {})}}


_OWN_SCHEMA = _OwnSchema()


def make_portable(hint: Any) -> Any:
    """Convert a type hint into one that means for pydantic what it says.

    Descriptions of a model's use stay with that use, and typed dicts of `typing` become those of
    `typing_extensions`: before Python 3.12 pydantic takes only the latter.
    """
    if is_typeddict(hint) and type(hint).__module__ == "typing" and sys.version_info < (3, 12):
        return _make_typed_dict(hint)
    origin, args = get_origin(hint), get_args(hint)
    converted = tuple(make_portable(arg) for arg in args)
    if origin is Annotated and hasattr(args[0], "__pydantic_core_schema__"):
        return Annotated[(converted[0], _OWN_SCHEMA, *converted[1:])]
    if all(one is other for one, other in zip(args, converted, strict=True)):
        return hint
    if origin is Annotated:
        return Annotated[converted]
    if origin in (Union, UnionType):
        return Union[converted]  # noqa: UP007  (`|` does not take a tuple)
    return origin[converted]


_typed_dicts: dict[Any, Any] = {}
"""Typed dicts of `typing`, each with its twin; with the name of that while it is being made."""


def _make_typed_dict(hint: Any) -> Any:
    """Return the twin of a typed dict. One that contains itself finds its twin by name, here."""
    import typing_extensions

    if hint in _typed_dicts:
        return _typed_dicts[hint]
    name = f"_typed_dict_{len(_typed_dicts)}"
    _typed_dicts[hint] = ForwardRef(name)
    members: dict[str, Any] = {}
    for key, item in get_type_hints(hint, include_extras=True).items():
        wrapper = (
            typing_extensions.Required
            if key in hint.__required_keys__
            else typing_extensions.NotRequired
        )
        members[key] = wrapper[make_portable(item)]
    twin: Any = typing_extensions.TypedDict(hint.__name__, members)  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType, reportUnknownVariableType]  (made from data)
    twin.__module__ = __name__
    twin.__doc__ = hint.__doc__
    globals()[name] = _typed_dicts[hint] = twin
    return twin


class PydanticOutput:
    """`tools.definition.Output` by a pydantic type adapter."""

    def __init__(self, tool: str, hint: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            self._adapter: Any = TypeAdapter(make_portable(hint))
            self.schema: Mapping[str, Any] = drop_titles(
                self._adapter.json_schema(mode="serialization", schema_generator=schema_generator())
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
