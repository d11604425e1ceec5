"""`@tool`: a function becomes a tool. Its signature is the schema, its docstring the
description.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, overload

from ferrule.core.errors import ToolDefinitionError

from .chunked_output import Chunks
from .definition import Arguments, Loading, Output, Preview, Risk, SideEffect, Tool
from .docstring import parse_docstring
from .launch import Launch
from .names import check_name, check_namespace
from .parameters import Parameter, read
from .plain_types import NotPlain, PlainArguments, PlainOutput
from .reliability import Reliability

if TYPE_CHECKING:
    from .outcome_probe import Probe

_DEFAULT_RISK = {
    SideEffect.NONE: Risk.SAFE,
    SideEffect.READ: Risk.SAFE,
    SideEffect.UNDECLARED: Risk.SAFE,
    SideEffect.WRITE: Risk.MEDIUM,
    SideEffect.EXTERNAL: Risk.MEDIUM,
    SideEffect.EXECUTE: Risk.HIGH,
}


@overload
def tool(function: Callable[..., Any], /, **options: Any) -> Tool: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    side_effect: SideEffect | str = SideEffect.UNDECLARED,
    risk: Risk | str | None = None,
    namespace: str = "",
    timeout: float | None = None,
    max_attempts: int | None = None,
    reliability: Reliability | None = None,
    idempotent: bool = False,
    polls: bool = False,
    parallel: bool = True,
    inline: bool = False,
    preview: Preview | None = None,
    scopes: Collection[str] = (),
    cost: str = "",
    latency: str = "",
    examples: Sequence[Mapping[str, Any]] = (),
    defer_loading: bool = False,
    probe: Probe | None = None,
    impossible: Callable[[Mapping[str, Any]], Sequence[str]] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, **options: Any
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, sync or async: `@tool`, `@tool(side_effect="read", timeout=5)`,
    `tool(function, risk="low")`.

    Parameters become the JSON Schema: plain types, Literals, enums, Optionals, nested lists and
    dicts, dataclasses, typed dicts, pydantic models, `Annotated` with a description (a string), a
    `Touch`, or pydantic constraints. A parameter without a default is required. One annotated
    `Context` is filled in by Ferrule and hidden from the model. The return type becomes the output
    schema.

    A tool that declares no side effect runs unasked (you handed it over) but alone in its round,
    and is never retried. Declaring `write`, `execute` or `external` makes it ask, unless `risk`
    says otherwise; declaring `none` or `read` lets calls run together and be retried. With
    `defer_loading` a model learns of it by a search (`Agent(tool_search=...)`). `impossible` takes
    checked values and says what of them can never work: such a call is refused before a person is
    asked.

    Raises ToolDefinitionError, naming the tool and the parameter, for what cannot be a schema.
    """
    if function is not None:
        return make(function, **options)

    def decorate(wrapped: Callable[..., Any]) -> Tool:
        return make(wrapped, **options)

    return decorate


def make(
    function: Callable[..., Any],
    *,
    name: str = "",
    description: str = "",
    side_effect: SideEffect | str = SideEffect.UNDECLARED,
    risk: Risk | str | None = None,
    timeout: float | None = None,
    max_attempts: int | None = None,
    reliability: Reliability | None = None,
    namespace: str = "",
    scopes: Collection[str] = (),
    examples: Sequence[Mapping[str, Any]] = (),
    defer_loading: bool = False,
    **fields: Any,
) -> Tool:
    """What `@tool` does, as a function; the keywords are those of `tool`."""
    name = name or getattr(function, "__name__", "")
    check_name(name)
    if namespace != "":
        check_namespace(namespace)
    if not isinstance(defer_loading, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  said by people
        raise ToolDefinitionError(
            f"tool `{name}`: defer_loading is {defer_loading!r}", hint="say true or false"
        )
    documentation = parse_docstring(function.__doc__)
    parameters, context, returns = read(function, name, documentation)
    try:
        effect = SideEffect(side_effect)
        level = Risk(risk) if risk is not None else _DEFAULT_RISK[effect]
        shell = reliability or Reliability(timeout=timeout, max_attempts=max_attempts)
    except ValueError as error:
        raise ToolDefinitionError(f"tool `{name}`: {error}") from error
    return Tool(
        name=name,
        description=description or documentation.description or name.replace("_", " "),
        arguments=_arguments(name, parameters),
        handler=function,
        output=_output(name, returns),
        side_effect=effect,
        risk=level,
        touches={p.name: p.touch for p in parameters if p.touch},
        reliability=shell,
        is_async=inspect.iscoroutinefunction(function),
        context_parameter=context,
        namespace=namespace,
        scopes=frozenset(scopes),
        examples=tuple(examples),
        loading=Loading.DEFERRED if defer_loading else Loading.ALWAYS,
        **fields,
    )


def _arguments(name: str, parameters: list[Parameter]) -> Arguments:
    if not any(parameter.constrained for parameter in parameters):
        try:
            return PlainArguments(name, parameters)
        except NotPlain:
            pass
    from .pydantic_types import ModelledArguments

    return ModelledArguments(name, parameters)


def _output(name: str, returns: Any) -> Output | None:
    returns = _outcome(returns)
    if returns in (inspect.Signature.empty, None, Any, type(None), Chunks, Launch):
        return None
    try:
        return PlainOutput(returns)
    except NotPlain:
        from .pydantic_types import ModelledOutput

        return ModelledOutput(name, returns)


def _outcome(returns: Any) -> Any:
    """What a function promises of its outcome: work that goes on as a task (`Launch`) has it only
    later.
    """
    alternatives = get_args(returns) if get_origin(returns) in (Union, UnionType) else ()
    if Launch not in alternatives:
        return returns
    return Union[tuple(one for one in alternatives if one is not Launch)]  # noqa: UP007  made of a tuple
