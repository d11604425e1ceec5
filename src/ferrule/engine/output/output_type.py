"""What an output type is: the schema that a model is held to, and the check of what it gives.

Every type becomes a schema whose root is an object, because providers take no other: a list, a
number, a choice or a union is the member `value` of one. What a model gives without that object
around it is understood, too.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import ConfigError, RetryCall
from ferrule.core.value_class import frozen
from ferrule.tools.context import Context, find_deps_type
from ferrule.tools.docstring import Documentation, parse_docstring
from ferrule.tools.forking import cached_property
from ferrule.tools.parameters import (
    Parameter,
    annotation_types,
    find_context_parameter,
    find_documentation,
    find_name,
    is_async,
    list_parameters,
    make_parameter,
)
from ferrule.tools.pydantic_schemas import (
    decode_json_texts,
    describe_errors,
    drop_titles,
    make_field,
    make_portable,
    schema_generator,
)

from .json_answer import JsonAnswer, drop_nulls, find_json
from .own_code import runs_own_code

VALUE = "value"
"""The member that holds a value which is no object."""

CHOICE = "choice"
"""The member that names the function that takes the value, where there are several."""

MAX_TEXT = 200
"""Longest answer without JSON that may still be a value, such as one of a few words."""

_MISSING = object()


@frozen
class CheckedOutput:
    """What came of an answer: the value and its JSON, or problems.

    Attributes:
        value: The value.
        json: It as compact JSON.
        problems: Why the answer does not fit, a sentence each; then there is no value.
        repairs: What was converted, such as a number that was given as text.
        final: Whether no other answer could help.
    """

    value: Any = None
    json: str = ""
    problems: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    final: bool = False


class OutputType(ABC):
    """A type that answers are checked against."""

    schema: Mapping[str, Any]
    """The JSON Schema that a model is held to. Its root is an object."""
    takes_text: bool = False
    """Whether an answer without JSON is a value."""
    has_effects: bool = False
    """Whether a function gets the value."""
    hint: Any = None
    """The type of partial values; None if there are none."""
    is_wrapped: bool = False
    """Whether the value is the member `value` of the schema's object."""

    @cached_property
    def schema_json(self) -> str:
        """The schema as compact JSON."""
        return encode_json(self.schema)

    async def check(self, answer: str, context: Context[Any]) -> CheckedOutput:
        """Return what an answer gives. Never raises for what a model wrote.

        Args:
            answer: The model's text.
            context: The run, for functions and validators.
        """
        found = find_json(answer, lists=self.is_wrapped)
        if found.is_text:
            return await self.finish(self.read_text(found.text, found.problem, context), context)
        if found.problem:
            return CheckedOutput(problems=(found.problem,))
        return await self.finish(self.read(found, context), context)

    @abstractmethod
    def read(self, answer: JsonAnswer, context: Context[Any]) -> CheckedOutput:
        """Return the value of an answer's JSON."""

    def read_text(self, text: str, problem: str, context: Context[Any]) -> CheckedOutput:
        """Return the value of an answer without JSON."""
        return CheckedOutput(problems=(problem,))

    async def finish(self, checked: CheckedOutput, context: Context[Any]) -> CheckedOutput:
        """Return the output that a value becomes."""
        return checked

    def list_wanted_deps(self) -> list[tuple[str, Any]]:
        """Return the functions that ask for dependencies, by name, each with their type."""
        return []


class SchemaType(OutputType):
    """A JSON Schema. Values are what its JSON says."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        import jsonschema_rs

        self._inner = schema
        self.is_wrapped = not _is_object_schema(schema)
        self.schema = _wrap_schema(schema) if self.is_wrapped else schema
        try:
            self._validator = jsonschema_rs.validator_for(dict(schema), retriever=_refuse_reference)
        except ValueError as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"output_type: the JSON Schema is not valid: {reason}",
                hint='begin with {"type": "object", "properties": {...}}',
            ) from error
        self.hint = Any

    def read(self, answer: JsonAnswer, context: Context[Any]) -> CheckedOutput:
        value: Any = parse_json(answer.text)
        if self.is_wrapped:
            value = _unwrap(value)
        refused = self._validator.iter_errors(value)
        without = drop_nulls(value, [one.instance_path for one in refused if one.instance is None])
        if without is not None:
            value = without
        problems = self.find_problems(value)
        if problems:
            return CheckedOutput(problems=problems)
        return CheckedOutput(value, encode_json(value))

    def find_problems(self, value: Any) -> tuple[str, ...]:
        """Return a sentence for each place where a value does not fit the schema."""
        return tuple(
            f"`{_format_path(error.instance_path)}`: {error.message[:200]}"
            for error in self._validator.iter_errors(value)
        )


class PydanticType(OutputType):
    """Any type that pydantic can validate."""

    def __init__(self, hint: Any) -> None:
        from pydantic import ConfigDict, TypeAdapter, create_model
        from pydantic.errors import PydanticUserError

        self.hint = hint
        self._runs_own_code = runs_own_code(hint)
        portable = make_portable(hint)
        try:
            self._adapter: Any = TypeAdapter(portable)
            schema = self._adapter.json_schema(schema_generator=schema_generator())
            self.is_wrapped = not _is_object_schema(schema)
            if self.is_wrapped:
                fields: dict[str, Any] = {VALUE: (portable, ...)}
                config = ConfigDict(extra="forbid")
                self._wrapper: Any = create_model("Answer", __config__=config, **fields)
                schema = self._wrapper.model_json_schema(schema_generator=schema_generator())
        except PydanticUserError as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"output_type: {hint!r} cannot be expressed as JSON Schema: {reason}",
                hint="use plain types, dataclasses, typed dicts or pydantic models",
            ) from error
        self.schema = drop_titles(schema)
        is_union = get_origin(hint) in (Union, UnionType)
        self.takes_text = is_union and str in get_args(hint)

    def read(self, answer: JsonAnswer, context: Context[Any]) -> CheckedOutput:
        value = answer.value
        if self.is_wrapped and isinstance(value, dict) and set(cast("Any", value)) == {VALUE}:
            validate = partial(self._wrapper.model_validate_json, context=context)
            return self._validate(validate, answer, VALUE)
        return self._validate(partial(self._adapter.validate_json, context=context), answer, "")

    def read_text(self, text: str, problem: str, context: Context[Any]) -> CheckedOutput:
        if self.takes_text or (self.is_wrapped and len(text) <= MAX_TEXT):
            validate = partial(self._adapter.validate_json, context=context)
            value = self._validate_strictly(validate, encode_json(text))
            if value is not _MISSING:
                return self._encode(value, (), encode_json(text))
        return CheckedOutput(problems=(problem,))

    @staticmethod
    def _validate_strictly(validate: Callable[..., Any], text: str) -> Any:
        from pydantic import ValidationError

        try:
            return validate(text, strict=True)
        except ValidationError:
            return _MISSING

    def _validate(
        self, validate: Callable[..., Any], answer: JsonAnswer, member: str
    ) -> CheckedOutput:
        """Check strictly first; a value that only passes the lax rules is a reported repair.

        A null that is not allowed counts as left out: models fill optional fields with it.
        """
        from pydantic import ValidationError

        text = answer.exact_text
        repairs: tuple[str, ...] = ()
        try:
            value = validate(text, strict=True)
        except ValidationError as strict:
            nulls = [one["loc"] for one in strict.errors() if one["input"] is None]
            without = drop_nulls(answer.value, nulls)
            given, decoded = decode_json_texts(
                answer.value if without is None else without,
                lambda value: validate(encode_json(value), strict=True),
            )
            if without is not None or decoded:
                text = encode_json(given)
            try:
                value = validate(text)
            except ValidationError as lax:
                return CheckedOutput(problems=tuple(describe_errors(lax, root=VALUE)))
            repairs = tuple(
                decoded
                or (f"{problem}: was converted" for problem in describe_errors(strict, root=VALUE))
            )
        if member:
            text = encode_json(cast("dict[str, Any]", parse_json(text))[member])
        return self._encode(getattr(value, member) if member else value, repairs, text)

    def _encode(self, value: Any, repairs: tuple[str, ...], given: str) -> CheckedOutput:
        """Return the output with its JSON, which gives the same value when it is read again.

        Where the value's own JSON does not (aliases, secrets, serializers), it is what the model
        gave.
        """
        if not self._runs_own_code:
            dump = partial(self._adapter.dump_json, by_alias=True, round_trip=True, warnings=False)
            encoded = dump(value, fallback=str).decode()
            if self._reads_as(encoded, value):
                return CheckedOutput(value, encoded, (), repairs)
        return CheckedOutput(value, given, (), repairs)

    def _reads_as(self, text: str, value: Any) -> bool:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(text) == value
        except ValidationError:
            return False


class FunctionType(OutputType):
    """A function that takes the value; what it returns is the output."""

    has_effects = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.name = find_name(function)
        hints = _read_annotations(function, self.name)
        documentation = parse_docstring(find_documentation(function))
        self._context_name = find_context_parameter(hints)
        self._deps_type = find_deps_type(hints[self._context_name]) if self._context_name else Any
        listed = [one for one in list_parameters(function) if one.name != self._context_name]
        parameters = _read_parameters(listed, hints, documentation, self.name)
        self._names = [one.name for one in listed]
        self._unnamed = [one.name for one in listed if one.kind is one.POSITIONAL_ONLY]
        self._is_single = len(parameters) == 1
        if self._is_single:
            self._input = PydanticType(parameters[0].annotation)
        else:
            self._input = PydanticType(_make_record(self.name, parameters))
        self.schema = self._input.schema
        self.is_wrapped = self._input.is_wrapped
        self.takes_text = self._input.takes_text
        of_value = parameters[0].description if self._is_single else ""
        if self.is_wrapped:
            self.schema = _describe_value(self.schema, of_value)
            of_value = ""
        texts = [text for text in (documentation.description, of_value) if text]
        if texts and "description" not in self.schema:
            self.schema = {"description": "\n".join(texts), **self.schema}

    def read(self, answer: JsonAnswer, context: Context[Any]) -> CheckedOutput:
        return self._input.read(answer, context)

    def read_text(self, text: str, problem: str, context: Context[Any]) -> CheckedOutput:
        return self._input.read_text(text, problem, context)

    async def finish(self, checked: CheckedOutput, context: Context[Any]) -> CheckedOutput:
        """Give the value to the function. `RetryCall` sends the answer back."""
        if checked.problems:
            return checked
        if self._is_single:
            named = {self._names[0]: checked.value}
        else:
            named = {name: getattr(checked.value, name) for name in self._names}
        if self._context_name:
            named[self._context_name] = context
        unnamed = [named.pop(name) for name in self._unnamed]
        try:
            output = await _call(self._function, unnamed, named)
        except RetryCall as error:
            return CheckedOutput(problems=(error.message,))
        return CheckedOutput(output, _encode_output(output), (), checked.repairs)

    def list_wanted_deps(self) -> list[tuple[str, Any]]:
        return [(self.name, self._deps_type)]


class ChoiceType(OutputType):
    """Several types and functions: the model names the one that it gives a value for."""

    has_effects = True

    def __init__(self, given: Sequence[Any]) -> None:
        self._choices: dict[str, OutputType] = {}
        for one in given:
            name = str(getattr(one, "__name__", "") or "value")
            if name in self._choices:
                raise ConfigError(
                    f"output_type: `{name}` is there twice", hint="rename one of them"
                )
            self._choices[name] = _parse_one(one)
        self.schema = _choice_schema(self._choices)

    def read(self, answer: JsonAnswer, context: Context[Any]) -> CheckedOutput:
        value = _unwrap(answer.value)
        name = cast("dict[str, Any]", value).get(CHOICE) if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in self._choices or VALUE not in value:
            known = ", ".join(f'"{one}"' for one in self._choices)
            wanted = f"`{CHOICE}`: must be one of {known}, with the value as `{VALUE}`"
            return CheckedOutput(problems=(wanted,))
        text = encode_json(value[VALUE])
        return CheckedOutput((name, JsonAnswer(text, value[VALUE])))

    async def finish(self, checked: CheckedOutput, context: Context[Any]) -> CheckedOutput:
        if checked.problems:
            return checked
        name, answer = checked.value
        chosen = self._choices[name]
        return await chosen.finish(chosen.read(answer, context), context)

    def list_wanted_deps(self) -> list[tuple[str, Any]]:
        return [wanted for one in self._choices.values() for wanted in one.list_wanted_deps()]


def parse_output_type(given: object) -> OutputType | None:
    """Return the output type that an agent was given; None for text.

    Args:
        given: A type, a function, a JSON Schema, or a list of types and functions.

    Raises:
        ConfigError: It cannot be checked, or has no schema.
    """
    if given is None or given is str:
        return None
    if isinstance(given, OutputType):
        return given
    if isinstance(given, (list, tuple)):
        listed = cast("Sequence[Any]", given)
        if not listed:
            raise ConfigError("output_type is empty", hint="give at least one type")
        if len(listed) == 1:
            return _parse_one(listed[0])
        if any(_is_function(one) or isinstance(one, Mapping) for one in listed):
            return ChoiceType(listed)
        return PydanticType(Union[tuple(listed)])  # noqa: UP007  (`|` does not take a list)
    return _parse_one(given)


def _parse_one(given: Any) -> OutputType:
    if isinstance(given, Mapping):
        return SchemaType(cast("Mapping[str, Any]", given))
    return FunctionType(given) if _is_function(given) else PydanticType(given)


def _is_function(given: object) -> bool:
    return inspect.isroutine(given) or (
        callable(given)
        and not isinstance(given, type)
        and get_origin(given) is None
        and type(given).__module__ not in ("typing", "typing_extensions", "types")
    )


def _read_annotations(function: Callable[..., Any], name: str) -> Mapping[str, Any]:
    try:
        return annotation_types(function)
    except (NameError, TypeError) as error:
        raise ConfigError(f"output_type: the function `{name}`: {error}") from error


def _read_parameters(
    listed: Sequence[inspect.Parameter],
    hints: Mapping[str, Any],
    documentation: Documentation,
    name: str,
) -> list[Parameter]:
    """Return a function's parameters, read as those of a tool are."""
    untyped = [one.name for one in listed if one.name not in hints]
    if untyped or not listed:
        found = f"`{untyped[0]}` has no type" if untyped else "it takes no value"
        raise ConfigError(
            f"output_type: the function `{name}`: {found}",
            hint="write a parameter with a type, as in `def book(trip: Trip) -> Receipt`",
        )
    return [make_parameter(one.name, hints[one.name], one.default, documentation) for one in listed]


def _make_record(name: str, parameters: Sequence[Parameter]) -> Any:
    """Return a type with a field for each of a function's parameters."""
    from pydantic import ConfigDict, create_model

    fields: dict[str, Any] = {one.name: make_field(one) for one in parameters}
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def _describe_value(schema: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """Return the schema of a wrapped value with a description of the value."""
    value = schema["properties"][VALUE]
    if not text or "description" in value:
        return schema
    return {**schema, "properties": {VALUE: {**value, "description": text}}}


async def _call(
    function: Callable[..., Any], unnamed: Sequence[Any], named: Mapping[str, Any]
) -> Any:
    if is_async(function):
        return await function(*unnamed, **named)
    output = await asyncio.to_thread(function, *unnamed, **named)
    return await output if inspect.isawaitable(output) else output


def _encode_output(output: Any) -> str:
    """Return what a function returned as JSON; what JSON cannot express becomes text."""
    from pydantic_core import to_json

    return to_json(output, fallback=str).decode()


def _choice_schema(choices: Mapping[str, OutputType]) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    forms: list[dict[str, Any]] = []
    for name, one in choices.items():
        schema = dict(one.schema)
        for place, part in dict(schema.pop("$defs", {})).items():
            if definitions.setdefault(place, part) != part:
                raise ConfigError(
                    f"output_type: there are two different types `{place}`",
                    hint="rename one of them",
                )
        forms.append(_object_schema({CHOICE: {"const": name}, VALUE: schema}))
    root = _object_schema({VALUE: {"anyOf": forms}})
    return {**root, "$defs": definitions} if definitions else root


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _is_object_schema(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" and not {"anyOf", "oneOf", "allOf"} & set(schema)


def _wrap_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = dict(schema)
    moved = {name: inner.pop(name) for name in ("$defs", "definitions") if name in inner}
    inner.pop("$schema", None)
    return {**_object_schema({VALUE: inner}), **moved}


def _unwrap(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    return members[VALUE] if set(members) == {VALUE} else members


def _format_path(path: Sequence[str | int]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(steps).lstrip(".") or VALUE


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"`{uri}` is somewhere else; only references within the schema are followed")
