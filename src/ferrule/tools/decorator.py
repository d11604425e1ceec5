"""Make tools of functions (`@tool`): the signature is the schema, the docstring the description."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, overload

from ferrule.core.errors import ToolDefinitionError
from ferrule.core.media import Media

from .background_launch import Launch
from .chunked_output import Chunks
from .definition import (
    Arguments,
    ConfinedHandler,
    FindConfinement,
    Loading,
    Output,
    Preview,
    Risk,
    SideEffect,
    Tool,
)
from .docstring import parse_docstring
from .names import check_name, check_namespace, split_full_name
from .parameters import Parameter, find_documentation, find_name, is_async, read_signature
from .plain_schemas import NotPlain, PlainArguments, PlainOutput
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
    parallel: bool | Callable[[Mapping[str, Any]], bool] = True,
    inline: bool = False,
    preview: Preview | None = None,
    scopes: Collection[str] = (),
    cost: str = "",
    latency: str = "",
    examples: Sequence[Mapping[str, Any]] = (),
    defer_loading: bool = False,
    probe: Probe | None = None,
    impossible: Callable[[Mapping[str, Any]], Sequence[str]] | None = None,
    command_form: Callable[[Mapping[str, Any]], tuple[str, ...]] | None = None,
    confined_by: FindConfinement | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, **options: Any
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a sync or async function, method, partial, class or object with `__call__`.

    Use it as `@tool`, as `@tool(side_effect="read", timeout=5)` or as `tool(function, risk="low")`.

    The parameters become the JSON Schema. They may be plain types, Literals, enums, Optionals,
    nested lists and dicts, dataclasses, typed dicts, pydantic models, and `Annotated` with a
    description (a string), a `Touch` or pydantic's `Field`, which may also stand as the default.
    A parameter without a default is required; a keyword that a `functools.partial` binds is hidden
    from the model. A parameter annotated with `Context` is filled in by Ferrule and hidden from the
    model; `Context[Shop]` asks for dependencies of that type (`Agent(deps_type=...)`). The return
    type becomes the output schema.

    A tool that declares no side effect runs without approval (you handed it over), together with
    other calls of its turn, and is never retried. `write`, `execute` and `external` need an
    approval unless `risk` says otherwise, and keep the order of the calls; calls of tools with
    `none` or `read` run together and may be retried. `parallel=False` keeps a tool's calls from
    running beside any other.

    With `defer_loading` a model learns about the tool from a search
    (`Agent(tool_calling=ToolCalling(search=...))`).
    `impossible` takes the checked values and returns why they can never work; such a call is
    refused before a person is asked. `command_form` takes them too and returns the command that
    the call amounts to: deny and ask rules about commands bind the tool. `confined_by` is for a
    tool that starts commands in a sandbox alone: it returns what the kernel holds them to in a run,
    and commands that this covers need no approval (`ConfinedHandler`).

    Raises:
        ToolDefinitionError: A parameter cannot be expressed as a schema; names tool and parameter.
    """
    if function is not None:
        return tool_from_function(function, **options)

    def decorate(wrapped: Callable[..., Any]) -> Tool:
        return tool_from_function(wrapped, **options)

    return decorate


def tool_from_function(  # noqa: PLR0913  the keywords of `tool`, each by its name
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
    confined_by: FindConfinement | None = None,
    **fields: Any,
) -> Tool:
    """Make a tool of a function, with the keywords of `tool`."""
    namespace, name = split_full_name(name or find_name(function), namespace)
    check_name(name)
    if namespace != "":
        check_namespace(namespace)
    if not isinstance(defer_loading, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  said by people
        raise ToolDefinitionError(
            f"tool `{name}`: defer_loading is {defer_loading!r}", hint="say true or false"
        )
    documentation = parse_docstring(find_documentation(function))
    signature = read_signature(function, name, documentation)
    try:
        effect = SideEffect(side_effect)
        level = Risk(risk) if risk is not None else _DEFAULT_RISK[effect]
        limits = reliability or Reliability(timeout=timeout, max_attempts=max_attempts)
    except ValueError as error:
        raise ToolDefinitionError(f"tool `{name}`: {error}") from error
    return Tool(
        name=name,
        description=description or documentation.description or name.replace("_", " "),
        arguments=_arguments(name, signature.parameters),
        handler=function,
        output=_output(name, signature.returns),
        side_effect=effect,
        risk=level,
        touches={one.name: one.touch for one in signature.parameters if one.touch},
        reliability=limits,
        is_async=is_async(function),
        context_parameter=signature.context,
        deps_type=signature.deps_type,
        namespace=namespace,
        scopes=frozenset(scopes),
        examples=tuple(examples),
        loading=Loading.DEFERRED if defer_loading else Loading.ALWAYS,
        confined=None if confined_by is None else ConfinedHandler(function, confined_by),
        **fields,
    )


def _arguments(name: str, parameters: list[Parameter]) -> Arguments:
    if not any(parameter.constrained for parameter in parameters):
        try:
            return PlainArguments(name, parameters)
        except NotPlain:
            pass
    from .pydantic_schemas import PydanticArguments

    return PydanticArguments(name, parameters)


def _output(name: str, returns: Any) -> Output | None:
    returns = _without_launch(returns)
    if returns in (inspect.Signature.empty, None, Any, type(None), Chunks, Launch):
        return None
    if _names_media(returns):
        return None
    try:
        return PlainOutput(returns)
    except NotPlain:
        from .pydantic_schemas import PydanticOutput

        return PydanticOutput(name, returns)


def _names_media(returns: Any) -> bool:
    """Whether a return annotation has `Image` and the like in it: these have no schema."""
    if isinstance(returns, type) and issubclass(returns, Media):
        return True
    return any(_names_media(one) for one in get_args(returns))


def _without_launch(returns: Any) -> Any:
    """Return a return annotation without `Launch`, whose work has its result only later."""
    alternatives = get_args(returns) if get_origin(returns) in (Union, UnionType) else ()
    if Launch not in alternatives:
        return returns
    return Union[tuple(item for item in alternatives if item is not Launch)]  # noqa: UP007  made of a tuple
