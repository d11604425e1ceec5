"""The parameters of a tool, read from a function's signature, or given one by one.

A thousand tools are read before a program has said anything, and `inspect.signature` and
`get_type_hints` take most of that time. Both look at what a function as `def` makes it has in plain
sight: its code object, its defaults, its annotations. So these are read directly where nothing else
can be meant, and those two are asked about all other callables and all other types.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Annotated, Any, TypeGuard, get_args, get_origin, get_type_hints

from ferrule.core.errors import ToolDefinitionError
from ferrule.core.frozen import frozen

from .context import Context
from .definition import Touch
from .docstring import Documentation

_REST = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


@frozen
class Parameter:
    """One argument: `annotation` is the whole type, `hint` the type without its `Annotated`
    extras.
    """

    name: str
    annotation: Any
    hint: Any
    description: str
    required: bool
    default: Any = None
    touch: Touch | None = None
    constrained: bool = False
    """True if `Annotated` holds constraints that only pydantic understands."""


def read(
    function: Callable[..., Any], tool: str, documentation: Documentation
) -> tuple[list[Parameter], str | None, Any]:
    """Parameters, the name of the `Context` parameter if there is one, and the return
    annotation.
    """
    try:
        hints = types_of(function)
    except (NameError, TypeError) as error:
        raise ToolDefinitionError(
            f"tool `{tool}`: its annotations cannot be read: {error}",
            hint="define the types at module level, or give the tool a schema with `define_tool`",
        ) from error
    parameters: list[Parameter] = []
    context = context_parameter(hints)
    for name, default in taken(function, tool):
        if name not in hints and name in ("self", "cls") and not parameters:
            raise ToolDefinitionError(
                f"tool `{tool}`: it is a method, and nobody would give it its `{name}`",
                hint=(
                    f"make the tool of a bound method, `tool(thing.{tool})`, or of a plain function"
                ),
            )
        if name not in hints:
            raise ToolDefinitionError(
                f"tool `{tool}`: parameter `{name}` has no type",
                hint=f"write `{name}: str`, for example",
            )
        if hints[name] is Context:
            continue
        parameters.append(_parameter(name, hints[name], default, documentation))
    return parameters, context, hints.get("return", inspect.Signature.empty)


def context_parameter(annotations: Mapping[str, Any]) -> str | None:
    """Return the name of the parameter that is annotated as `Context`, if there is one."""
    names = (name for name, kind in annotations.items() if kind is Context and name != "return")
    return next(names, None)


def types_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """What the parameters and the result are annotated with, `Annotated` kept. Raises as
    `get_type_hints` does.
    """
    if _is_plain(function):
        hints: dict[str, Any] = {}
        for name, said in function.__annotations__.items():
            # Text, as `from __future__ import annotations` leaves it: a name means what the
            # function would find under it.
            kind = _named(function, said) if type(said) is str else said
            if not isinstance(kind, type):
                break
            hints[name] = kind
        else:
            return hints
    return get_type_hints(function, include_extras=True)


def taken(function: Callable[..., Any], tool: str) -> Iterable[tuple[str, Any]]:
    """Names of what a function takes, in their order, each with its default (`Parameter.empty`:
    none).

    Raises ToolDefinitionError on the way, at a parameter that a JSON object has no name for.
    """
    if not _is_plain(function):
        return _inspected(function, tool)
    code = function.__code__
    if code.co_posonlyargcount or code.co_flags & _REST:
        return _inspected(function, tool)
    count, empty = code.co_argcount, inspect.Parameter.empty
    last = function.__defaults__ or ()
    defaults: list[Any] = [empty] * (count - len(last))
    defaults += last
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    if code.co_kwonlyargcount:
        by_name = function.__kwdefaults__ or {}
        defaults += [by_name.get(name, empty) for name in names[count:]]
    return zip(names, defaults, strict=True)


def _is_plain(function: Callable[..., Any]) -> TypeGuard[FunctionType]:
    """True for a function as `def` leaves it. Attributes (`__wrapped__`, `__signature__`) and type
    variables change what it says.
    """
    return (
        type(function) is FunctionType
        and not function.__dict__
        and not getattr(function, "__type_params__", ())
    )


def _named(function: FunctionType, name: str) -> Any:
    return function.__globals__.get(name, function.__builtins__.get(name))


def _inspected(function: Callable[..., Any], tool: str) -> Iterator[tuple[str, Any]]:
    for name, item in inspect.signature(function).parameters.items():
        if item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD, item.POSITIONAL_ONLY):
            raise ToolDefinitionError(
                f"tool `{tool}`: parameter `{name}` cannot be named in a JSON object",
                hint=(
                    "give every parameter a name and a type; use a list or a dict parameter for "
                    "many values"
                ),
            )
        yield name, item.default


def _parameter(name: str, annotation: Any, default: Any, documentation: Documentation) -> Parameter:
    hint, description, touch, constrained = (
        annotation,
        documentation.parameters.get(name, ""),
        None,
        False,
    )
    required = default is inspect.Parameter.empty
    if type(annotation) is type:
        # A class, by far the most common: there is nothing inside it to look for.
        return Parameter(
            name, annotation, hint, description, required, None if required else default
        )
    if get_origin(annotation) is Annotated:
        hint, *extras = get_args(annotation)
        for extra in extras:
            if isinstance(extra, str):
                description = extra
            elif isinstance(extra, Touch):
                touch = extra
            else:
                constrained = True
    touch = touch or _touch_within(hint)
    return Parameter(
        name,
        annotation,
        hint,
        description,
        required,
        None if required else default,
        touch,
        constrained,
    )


def _touch_within(hint: Any) -> Touch | None:
    """A mark inside a type, as in `Annotated[str, READS] | None`: it means the parameter, never
    nothing.
    """
    found = (item if isinstance(item, Touch) else _touch_within(item) for item in get_args(hint))
    return next((touch for touch in found if touch), None)


def unknown(arguments: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """A problem for each argument that nobody declared, with the nearest name."""
    from difflib import get_close_matches

    problems: list[str] = []
    for key in arguments:
        if key not in names:
            near = get_close_matches(key, names, n=1)
            known = (
                f"did you mean `{near[0]}`?"
                if near
                else f"it takes: {', '.join(names) or 'no arguments'}"
            )
            problems.append(f"`{key}` is not an argument of this tool; {known}")
    return problems
