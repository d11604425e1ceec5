"""Read the parameters of a tool from a function's signature.

A program may define a thousand tools at start-up, and `inspect.signature` and `get_type_hints` take
most of that time. A plain function has all they need in its code object, its defaults and its
annotations, so these are read directly; the two functions are used for all other callables and
types.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import (
    Annotated,
    Any,
    TypeGuard,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ferrule.core.errors import ToolDefinitionError
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen

from .context import find_deps_type, is_context
from .definition import Touch
from .docstring import Documentation

_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


@frozen
class Parameter:
    """One parameter of a tool.

    `annotation` is the whole type, `hint` the type without its `Annotated` extras. What a pydantic
    `Field` says means the same in `Annotated` and as the default.
    """

    name: str
    annotation: Any
    hint: Any
    description: str
    required: bool
    default: Any = None
    touch: Touch | None = None
    constrained: bool = False
    """Whether `Annotated` holds constraints that only pydantic understands."""
    default_factory: Callable[[], Any] | None = None
    """Makes the default of each call, where a `Field` names one."""


@frozen
class ToolSignature:
    """What a function's signature says of a tool.

    Attributes:
        parameters: Those that a model fills in.
        context: The name of the `Context` parameter; None if there is none.
        deps_type: The dependencies that `Context[...]` asks for; Any if it asks for none.
        returns: The return annotation.
    """

    parameters: list[Parameter]
    context: str | None
    deps_type: Any
    returns: Any


def read_signature(
    function: Callable[..., Any], tool: str, documentation: Documentation
) -> ToolSignature:
    """Read a function's signature.

    Raises:
        ToolDefinitionError: A parameter has no type, or cannot be part of a JSON object.
    """
    try:
        hints = annotation_types(function)
    except (NameError, TypeError) as error:
        raise ToolDefinitionError(
            f"tool `{tool}`: its annotations cannot be read: {error}",
            hint="define the types at module level, or give the tool a schema with `define_tool`",
        ) from error
    parameters: list[Parameter] = []
    context = find_context_parameter(hints)
    for name, default in iter_defaults(function, tool):
        if name not in hints and name in ("self", "cls") and not parameters:
            raise ToolDefinitionError(
                f"tool `{tool}`: it is a method, and nothing would pass its `{name}`",
                hint=(
                    f"make the tool of a bound method, `tool(thing.{tool})`, or of a plain function"
                ),
            )
        if name not in hints:
            raise ToolDefinitionError(
                f"tool `{tool}`: parameter `{name}` has no type",
                hint=f"write `{name}: str`, for example",
            )
        if is_context(hints[name]):
            continue
        parameters.append(make_parameter(name, hints[name], default, documentation))
    deps_type = Any if context is None else find_deps_type(hints[context])
    return ToolSignature(
        parameters, context, deps_type, hints.get("return", inspect.Signature.empty)
    )


@frozen
class HandlerSignature:
    """How a handler takes the arguments that a schema describes.

    Attributes:
        context: The name of its `Context` parameter; None if there is none.
        deps_type: The dependencies that `Context[...]` asks for; Any if it asks for none.
        accepts_others: Whether it takes arguments that the schema does not declare.
        problems: Why a call that the schema allows could not be passed on.
    """

    context: str | None = None
    deps_type: Any = Any
    accepts_others: bool = True
    problems: tuple[str, ...] = ()


def read_handler(handler: Callable[..., Any], schema: Mapping[str, Any]) -> HandlerSignature:
    """Read how a handler takes arguments, by name, and compare it with their schema.

    A callable that does not tell its parameters, such as some that are written in C, is taken to
    fit.
    """
    try:
        listed = list_parameters(handler)
    except (TypeError, ValueError):
        return HandlerSignature()
    try:
        hints = annotation_types(handler)
    except (NameError, TypeError):
        hints: Mapping[str, Any] = {}
    context = find_context_parameter(hints)
    by_name = {
        one.name: one
        for one in listed
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and one.name != context
    }
    kinds = {one.kind for one in listed}
    accepts_others = inspect.Parameter.VAR_KEYWORD in kinds
    declared: Mapping[str, Any] = schema.get("properties", {})
    problems: list[str] = []
    if not accepts_others:
        problems += [f"`{name}` is no parameter of it" for name in declared if name not in by_name]
    if not _COMBINED.intersection(schema):
        given = _list_given(schema)
        problems += [
            f"its `{name}` has no default, and is not required"
            for name, one in by_name.items()
            if one.default is one.empty and name not in given
        ]
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        problems.append("it has parameters that cannot be passed by name")
    deps_type = Any if context is None else find_deps_type(hints[context])
    return HandlerSignature(context, deps_type, accepts_others, tuple(problems))


_COMBINED = frozenset({"allOf", "anyOf", "oneOf", "$ref", "if", "dependentRequired"})
"""Where a schema may require what its own `properties` do not show."""


def _list_given(schema: Mapping[str, Any]) -> set[str]:
    """Return the arguments that every valid call has: required ones, and those with a default."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    given = {*schema.get("required", ())}
    for name, one in properties.items():
        if isinstance(one, Mapping) and "default" in one:
            given.add(name)
    return given


def find_context_parameter(annotations: Mapping[str, Any]) -> str | None:
    """Return the name of the parameter that is annotated as `Context`, if there is one."""
    names = (name for name, kind in annotations.items() if is_context(kind) and name != "return")
    return next(names, None)


def annotation_types(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the types of the parameters and the result, with `Annotated` extras.

    Of a class they are those of its constructor, and the class itself is the result.

    Raises the same errors as `typing.get_type_hints`.
    """
    if _is_plain(function):
        hints: dict[str, Any] = {}
        for name, annotation in function.__annotations__.items():
            kind = annotation
            if type(annotation) is str:
                # As `from __future__ import annotations` leaves it: a name means what the function
                # would find under it.
                kind = _look_up(function, annotation)
            if not isinstance(kind, type):
                break
            hints[name] = kind
        else:
            return hints
    if (bound := _as_partial(function)) is not None:
        return annotation_types(bound.func)
    if isinstance(function, type):
        constructor = get_type_hints(function.__init__, include_extras=True)
        return {**get_type_hints(function, include_extras=True), **constructor, "return": function}
    if _is_object(function):
        return get_type_hints(type(function).__call__, include_extras=True)
    # Python 3.12.0 to 3.12.3 do not find the type variables of a function by themselves.
    variables: tuple[Any, ...] = getattr(inspect.unwrap(function), "__type_params__", ())
    known = {one.__name__: one for one in variables}
    hints = get_type_hints(function, localns=known or None, include_extras=True)
    # From Python 3.14 on `functools.wraps` copies no annotations that were assigned.
    wrapped = inspect.unwrap(function)
    return annotation_types(wrapped) if not hints and wrapped is not function else hints


def find_name(function: Callable[..., Any]) -> str:
    """Return a callable's own name, of a partial that of its function, else its type's."""
    name: str = getattr(function, "__name__", "")
    if not name and (bound := _as_partial(function)) is not None:
        return find_name(bound.func)
    return name or type(function).__name__


def find_documentation(function: Callable[..., Any]) -> str | None:
    """Return the docstring of a callable; of an object that of `__call__`, else its class's."""
    if (bound := _as_partial(function)) is not None:
        return vars(bound).get("__doc__") or find_documentation(bound.func)
    if _is_object(function):
        return type(function).__call__.__doc__ or type(function).__doc__
    return function.__doc__


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call of a callable gives a coroutine."""
    target = type(function).__call__ if _is_object(function) else function
    return inspect.iscoroutinefunction(target)


def _is_object(function: Callable[..., Any]) -> bool:
    """Whether a callable is an object with `__call__`, which stands for no other function."""
    if isinstance(function, type) or inspect.isroutine(function):
        return False
    return _as_partial(function) is None and not hasattr(function, "__wrapped__")


def _as_partial(function: Callable[..., Any]) -> partial[Any] | None:
    return cast("partial[Any]", function) if isinstance(function, partial) else None


def iter_defaults(function: Callable[..., Any], tool: str) -> Iterable[tuple[str, Any]]:
    """Yield each parameter's name and default in order; `Parameter.empty` means no default.

    Raises:
        ToolDefinitionError: During iteration, at a parameter that a JSON object cannot name.
    """
    if not _is_plain(function):
        return _inspect_parameters(function, tool)
    code = function.__code__
    if code.co_posonlyargcount or code.co_flags & _VARIADIC:
        return _inspect_parameters(function, tool)
    count = code.co_argcount
    empty = inspect.Parameter.empty
    last = function.__defaults__ or ()
    defaults: list[Any] = [empty] * (count - len(last))
    defaults += last
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    if code.co_kwonlyargcount:
        by_name = function.__kwdefaults__ or {}
        defaults += [by_name.get(name, empty) for name in names[count:]]
    return zip(names, defaults, strict=True)


def _is_plain(function: Callable[..., Any]) -> TypeGuard[FunctionType]:
    """Return whether a function is as `def` left it.

    Attributes (`__wrapped__`, `__signature__`) and type variables change its signature.
    """
    return (
        type(function) is FunctionType
        and not function.__dict__
        and not getattr(function, "__type_params__", ())
    )


def _look_up(function: FunctionType, name: str) -> Any:
    return function.__globals__.get(name, function.__builtins__.get(name))


def _inspect_parameters(function: Callable[..., Any], tool: str) -> Iterator[tuple[str, Any]]:
    for item in list_parameters(function):
        if item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD, item.POSITIONAL_ONLY):
            raise ToolDefinitionError(
                f"tool `{tool}`: parameter `{item.name}` cannot be named in a JSON object",
                hint=(
                    "give every parameter a name and a type; use a list or a dict parameter for "
                    "many values"
                ),
            )
        yield item.name, item.default


def list_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a callable that a caller may name.

    A wrapper's own parameters and defaults come first; what it takes as `*args, **kwargs` are the
    parameters of the function that it wraps. A keyword that a partial binds is decided already.
    """
    bound = _as_partial(function)
    wrapped = getattr(function, "__wrapped__", None)
    is_function = inspect.isfunction(function) or inspect.ismethod(function)
    if wrapped is not None and bound is None and not is_function:
        # A cache and the like, which takes what its function takes.
        return list_parameters(wrapped)
    parameters = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    if bound is not None:
        return [one for one in parameters if one.name not in bound.keywords]
    own = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if wrapped is None or len(own) == len(parameters):
        return parameters
    names = {one.name for one in own}
    return [*own, *(one for one in list_parameters(wrapped) if one.name not in names)]


def make_parameter(
    name: str, annotation: Any, default: Any, documentation: Documentation
) -> Parameter:
    """Return what an annotation, a default and a docstring say of a parameter.

    Raises:
        ToolDefinitionError: A `Field` renames it.
    """
    description = documentation.parameters.get(name, "")
    if type(annotation) is type and not _is_field(default):
        # A class, by far the most common annotation, has nothing inside to look for.
        required = default is inspect.Parameter.empty
        return Parameter(
            name, annotation, annotation, description, required, None if required else default
        )
    if _is_field(default):
        annotation = Annotated[annotation, default]
        default = inspect.Parameter.empty
    factory: Callable[[], Any] | None = None
    hint = annotation
    touch = None
    constrained = False
    if get_origin(annotation) is Annotated:
        hint, *extras = get_args(annotation)
        for extra in extras:
            if isinstance(extra, str):
                description = extra
            elif isinstance(extra, Touch):
                touch = extra
            elif _is_field(extra):
                description = extra.description or description
                constrained = constrained or _constrains(name, extra)
                if default is inspect.Parameter.empty and not extra.is_required():
                    default = None if extra.default_factory else extra.default
                    factory = cast("Callable[[], Any] | None", extra.default_factory)
            else:
                constrained = True
    required = default is inspect.Parameter.empty
    return Parameter(
        name,
        annotation,
        hint,
        description,
        required,
        None if required else default,
        touch or _find_touch(hint),
        constrained or factory is not None,
        factory,
    )


def _is_field(value: object) -> TypeGuard[Any]:
    """Whether a value was made by pydantic's `Field`; whoever made one has loaded the module."""
    fields = sys.modules.get("pydantic.fields")
    return fields is not None and isinstance(value, fields.FieldInfo)


def _constrains(name: str, field: Any) -> bool:
    """Whether a `Field` says more than a description and a default.

    Raises:
        ToolDefinitionError: It renames the parameter.
    """
    if field.alias or field.validation_alias:
        raise ToolDefinitionError(
            f"parameter `{name}`: its `Field` has an alias",
            hint="give the parameter the name that a model is to write",
        )
    return bool(
        field.metadata
        or field.examples
        or field.json_schema_extra
        or field.discriminator
        or field.title
        or field.deprecated
    )


def _find_touch(hint: Any) -> Touch | None:
    """Return a mark inside a type: in `Annotated[str, READS] | None` it is for the parameter."""
    found = (item if isinstance(item, Touch) else _find_touch(item) for item in get_args(hint))
    return next((touch for touch in found if touch), None)


def unknown_arguments(arguments: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return a problem for each undeclared argument, with the nearest name."""
    problems: list[str] = []
    for key in arguments:
        if key in names:
            continue
        advice = suggest_names(key, names, f"it takes: {', '.join(names) or 'no arguments'}")
        problems.append(f"`{key}` is not an argument of this tool; {advice}")
    return problems
