"""The parameters of a tool, read from a function's signature, or given one by one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from ferrule.core.errors import ToolDefinitionError
from ferrule.core.frozen import frozen

from .context import Context
from .definition import Touch
from .docstring import Documentation


@frozen
class Parameter:
    """One argument: `annotation` is the whole type, `hint` the type without its `Annotated` extras."""

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
    """Parameters, the name of the `Context` parameter if there is one, and the return annotation."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ToolDefinitionError(
            f"tool `{tool}`: its annotations cannot be read: {error}",
            hint="define the types at module level, or give the tool a schema with `define_tool`",
        ) from error
    parameters: list[Parameter] = []
    context: str | None = None
    for name, item in inspect.signature(function).parameters.items():
        if item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD, item.POSITIONAL_ONLY):
            raise ToolDefinitionError(
                f"tool `{tool}`: parameter `{name}` cannot be named in a JSON object",
                hint="give every parameter a name and a type; use a list or a dict parameter for many values",
            )
        if name not in hints:
            raise ToolDefinitionError(
                f"tool `{tool}`: parameter `{name}` has no type", hint=f"write `{name}: str`, for example"
            )
        if hints[name] is Context:
            context = name
            continue
        parameters.append(_parameter(name, hints[name], item.default, documentation))
    return parameters, context, hints.get("return", inspect.Signature.empty)


def _parameter(name: str, annotation: Any, default: Any, documentation: Documentation) -> Parameter:
    hint, description, touch, constrained = annotation, documentation.parameters.get(name, ""), None, False
    required = default is inspect.Parameter.empty
    if type(annotation) is type:
        # A class, by far the most common: there is nothing inside it to look for.
        return Parameter(name, annotation, hint, description, required, None if required else default)
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
        name, annotation, hint, description, required, None if required else default, touch, constrained
    )


def _touch_within(hint: Any) -> Touch | None:
    """A mark inside a type, as in `Annotated[str, READS] | None`: it means the parameter, never nothing."""
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
                f"did you mean `{near[0]}`?" if near else f"it takes: {', '.join(names) or 'no arguments'}"
            )
            problems.append(f"`{key}` is not an argument of this tool; {known}")
    return problems
