"""From a tool file to a `Tool`: its handler runs the script, its built-ins go through the run's own
pipeline.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.extensions.builtins.builtins import Builtins, World
from ferrule.extensions.starlark.pool import Pool, beside, shared
from ferrule.extensions.starlark.script import Bounds, Script
from ferrule.tools.context import Context
from ferrule.tools.define import define_tool
from ferrule.tools.definition import Tool
from ferrule.tools.launch import Launch
from ferrule.tools.reliability import RETRIED, Reliability

from .bundles import Condition
from .script_output import Lines
from .tool_file import ToolFile

CONTEXT = "_ferrule_context"
"""Under which the handler gets its `Context`. A model that sends an argument of this name does not
reach it.
"""
_SLACK = 2.0
"""Seconds that the engine waits beyond a script's own time: the script's own error says more than
the engine's.
"""


def make_tool(
    file: ToolFile,
    world: World,
    *,
    pool: Pool | None = None,
    handler: Callable[..., Any] | None = None,
    condition: Condition | None = None,
) -> Tool:
    """The tool of a file. `handler` is for a file without a script: it takes the arguments by
    keyword, and a `Context` under a parameter that is annotated so. `condition` is that of its
    bundle.

    Raises ConfigError, naming the file, for what cannot be a tool (a schema that cannot be used,
    for example).
    """
    schema = file.schema
    if handler is None:
        run = _runner(file, world, pool, condition)
    else:
        run, schema = _by_program(file, handler, world, condition)
    try:
        made = define_tool(
            file.name,
            file.description,
            parameters=schema,
            handler=run,
            side_effect=file.side_effect,
            risk=file.risk,
            examples=file.examples,
        )
    except ConfigError as error:
        raise ConfigError(f"{file.file}: {error.detail}", hint=error.hint) from error
    return replace(
        made,
        context_parameter=CONTEXT,
        reliability=_reliability(file),
        source=f"file {file.file}",
        annotations={"async": True} if file.is_async else {},
    )


def _reliability(file: ToolFile) -> Reliability:
    """The policy of a file: without `timeout_ms`, or with 0, nothing but the run's own end ends its
    script.

    A script that ran out of time would do so again: it is tried again only where the file speaks of
    attempts.
    """
    bounded = file.timeout_ms and not file.is_async
    seconds = file.timeout_ms / 1000 + _SLACK if bounded else math.inf
    retried = file.policy.retry_on
    if retried is None and file.policy.max_attempts is None:
        retried = tuple(kind for kind in RETRIED if kind != "timeout")
    return replace(file.policy, timeout=seconds, retry_on=retried)


def _by_program(
    file: ToolFile, handler: Callable[..., Any], world: World, condition: Condition | None
) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """What runs a program's handler, and the schema of what it takes. Raises ConfigError where the
    two do not fit.
    """
    if file.script is not None:
        raise ConfigError(f"{file.file}: it has a script, so it takes no handler from a program")
    if file.is_async:
        hint = "a Python tool returns a `Launch` itself"
        raise ConfigError(
            f"{file.file}: `async: true` needs a script, and this has a handler", hint=hint
        )
    under, is_open = _check_fit(file, handler)

    def given(arguments: dict[str, Any]) -> dict[str, Any]:
        context: Context = arguments.pop(CONTEXT)
        if condition is not None:
            condition.check(world.turns.text(context.identity), file.name)
        return {**arguments, under: context} if under else arguments

    async def wait(**arguments: Any) -> Any:
        return await handler(**given(arguments))

    def run(**arguments: Any) -> Any:
        return handler(**given(arguments))

    schema = file.schema if is_open else {**file.schema, "additionalProperties": False}
    return (wait if inspect.iscoroutinefunction(handler) else run), schema


def _check_fit(file: ToolFile, handler: Callable[..., Any]) -> tuple[str, bool]:
    """The name of the handler's `Context` parameter, and whether it takes arguments that the file
    does not declare.

    Raises ConfigError where a call that the file allows could not be handed over.
    """
    code = getattr(inspect.unwrap(handler), "__code__", None)
    where = (
        f"`{file.name}` of {code.co_filename}:{code.co_firstlineno}" if code else f"`{file.name}`"
    )
    try:
        taken = inspect.signature(handler, eval_str=True).parameters
    except (NameError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{file.file}: the parameters of its handler {where} cannot be read: {error}"
        ) from error
    kinds = {one.kind for one in taken.values()}
    is_open = inspect.Parameter.VAR_KEYWORD in kinds
    named = {
        name: one
        for name, one in taken.items()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        and one.annotation is not Context
    }
    declared: Mapping[str, Any] = file.schema.get("properties", {})
    sure = {*file.schema.get("required", ())} | {
        name for name, one in declared.items() if "default" in one
    }
    problems = [
        f"`{name}` is no parameter of it" for name in declared if name not in named and not is_open
    ]
    problems += [
        f"its `{name}` has no default, and the file does not require it"
        for name, one in named.items()
        if one.default is one.empty and name not in sure
    ]
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        problems.append("it has parameters that cannot be passed by name")
    if problems:
        hint = "the parameters of the function and those of the file belong together"
        raise ConfigError(
            f"{file.file}: its handler {where} does not fit: {'; '.join(problems)}", hint=hint
        )
    under = next((name for name, one in taken.items() if one.annotation is Context), "")
    return under, is_open


def _runner(
    file: ToolFile, world: World, pool: Pool | None, condition: Condition | None
) -> Callable[..., Awaitable[Any]]:
    script = file.script

    async def handler(**arguments: Any) -> Any:
        context: Context = arguments.pop(CONTEXT)
        if condition is not None:
            condition.check(world.turns.text(context.identity), file.name)
        if script is None:
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                f"`{file.name}` has no script and no handler; use another tool",
            )
        if not file.is_async:
            return await run_script(script, arguments, context, world, file, pool)
        run = partial(run_script, script, arguments, context, world, file, pool or beside())
        return Launch(run, file.name)

    return handler


async def run_script(
    script: Script,
    arguments: Mapping[str, Any],
    context: Context,
    world: World,
    file: ToolFile,
    pool: Pool | None = None,
) -> Any:
    """`run(args)` of a tool's script, within the tool's time. What it launched ends with it. Raises
    ScriptFailed.
    """
    web = world.web.narrowed(file.domains) if file.domains is not None else world.web
    builtins = Builtins(context, world, file=file.file, web=web)
    lines = Lines(context, file.name)
    seconds = file.timeout_ms / 1000 if file.timeout_ms else None
    try:
        return await (pool or shared()).run(
            script,
            "run",
            [dict(arguments)],
            serve=builtins.serve,
            told=lines.hear,
            bounds=Bounds(seconds=seconds),
        )
    finally:
        await builtins.close()
