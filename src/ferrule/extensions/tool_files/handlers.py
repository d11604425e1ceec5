"""Turn a tool file into a `Tool` whose handler runs the script, through the run's own pipeline.

What a script prints and logs becomes progress for the person and notices in the journal, never text
for the model.
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
from ferrule.extensions.builtins.dispatch import Builtins, ScriptEnvironment
from ferrule.extensions.starlark.pool import WorkerPool, background_pool, shared_pool
from ferrule.extensions.starlark.script import Script, ScriptLimits
from ferrule.tools.background_launch import Launch
from ferrule.tools.context import PROGRESS_TOPIC, Context
from ferrule.tools.define import define_tool
from ferrule.tools.definition import SideEffect, Tool
from ferrule.tools.parameters import HandlerSignature, is_async, read_handler
from ferrule.tools.reliability import RETRIED_CLASSES, Reliability

from .bundles import BundleCondition
from .tool_file import ToolFile

CONTEXT = "_ferrule_context"
"""The argument in which the handler gets its `Context`. A model cannot set it."""
_LONGEST_PROGRESS = 500
"""Characters of a printed line that a person is shown."""
_MOST_NOTES = 200
"""Printed lines of one call that are journaled."""
_LONGEST_NOTE = 2_000
"""Characters of each of them."""
_SLACK = 2.0
"""Seconds that the engine waits beyond a script's own timeout, whose error says more."""


def make_tool(
    file: ToolFile,
    environment: ScriptEnvironment,
    *,
    pool: WorkerPool | None = None,
    handler: Callable[..., Any] | None = None,
    condition: BundleCondition | None = None,
) -> Tool:
    """Make the tool of a file.

    Args:
        file: The parsed file.
        environment: What scripts may use beyond tools.
        pool: The worker pool for the script.
        handler: The function of a file without a script. It takes the arguments by keyword, and a
            `Context` in a parameter with that annotation.
        condition: The condition of the file's bundle.

    Raises:
        ConfigError: The file cannot be a tool, for example because of its schema.
    """
    schema = file.schema
    if handler is None:
        run = _script_handler(file, environment, pool, condition)
    else:
        run, schema = _wrap_handler(file, handler, environment, condition)
    try:
        made = define_tool(
            file.name,
            file.description,
            parameters=schema,
            handler=run,
            side_effect=file.side_effect,
            risk=file.risk,
            examples=file.examples,
            returns=file.output,
        )
    except ConfigError as error:
        raise ConfigError(f"{file.file}: {error.detail}", hint=error.hint) from error
    return replace(
        made,
        context_parameter=CONTEXT,
        reliability=_reliability(file),
        # A script may call tools that write: unless its file says what it does, it runs alone.
        parallel=file.side_effect is not SideEffect.UNDECLARED,
        source=f"file {file.file}",
        annotations={"async": True} if file.is_async else {},
    )


def _reliability(file: ToolFile) -> Reliability:
    """Return the policy of a file.

    Without `timeout_ms`, or with 0, only the end of the run stops its script. A script that timed
    out would do so again, so it is retried only if the file asks for attempts.
    """
    bounded = file.timeout_ms and not file.is_async
    seconds = file.timeout_ms / 1000 + _SLACK if bounded else math.inf
    retried = file.policy.retry_on
    if retried is None and file.policy.max_attempts is None:
        retried = tuple(kind for kind in RETRIED_CLASSES if kind != "timeout")
    return replace(file.policy, timeout=seconds, retry_on=retried)


def _wrap_handler(
    file: ToolFile,
    handler: Callable[..., Any],
    environment: ScriptEnvironment,
    condition: BundleCondition | None,
) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """Wrap a Python handler, and return it with the schema of its arguments.

    Raises ConfigError if it does not fit the file.
    """
    if file.script is not None:
        raise ConfigError(f"{file.file}: it has a script, so it takes no handler from a program")
    if file.is_async:
        hint = "a Python tool returns a `Launch` itself"
        raise ConfigError(
            f"{file.file}: `async: true` needs a script, and this has a handler", hint=hint
        )
    signature = _read_handler(file, handler)

    def prepare(arguments: dict[str, Any]) -> dict[str, Any]:
        context: Context = arguments.pop(CONTEXT)
        if condition is not None:
            condition.require(environment.messages.message_of(context.identity), file.name)
        if signature.context is not None:
            arguments[signature.context] = context
        return arguments

    async def run_async(**arguments: Any) -> Any:
        return await handler(**prepare(arguments))

    def run(**arguments: Any) -> Any:
        return handler(**prepare(arguments))

    schema = file.schema
    if not signature.accepts_others:
        schema = {**schema, "additionalProperties": False}
    return (run_async if is_async(handler) else run), schema


def _read_handler(file: ToolFile, handler: Callable[..., Any]) -> HandlerSignature:
    """Read how a handler takes arguments.

    Raises ConfigError if a call that the file allows could not be passed on.
    """
    signature = read_handler(handler, file.schema)
    if signature.problems:
        code = getattr(inspect.unwrap(handler), "__code__", None)
        where = f"`{file.name}`"
        if code:
            where += f" of {code.co_filename}:{code.co_firstlineno}"
        raise ConfigError(
            f"{file.file}: its handler {where} does not fit: {'; '.join(signature.problems)}",
            hint="give the function and the file the same parameters",
        )
    return signature


def _script_handler(
    file: ToolFile,
    environment: ScriptEnvironment,
    pool: WorkerPool | None,
    condition: BundleCondition | None,
) -> Callable[..., Awaitable[Any]]:
    script = file.script

    async def handler(**arguments: Any) -> Any:
        context: Context = arguments.pop(CONTEXT)
        if condition is not None:
            condition.require(environment.messages.message_of(context.identity), file.name)
        if script is None:
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                f"`{file.name}` has no script and no handler; use another tool",
            )
        if not file.is_async:
            return await run_script(script, arguments, context, environment, file, pool)
        run = partial(
            run_script, script, arguments, context, environment, file, pool or background_pool()
        )
        return Launch(run, file.name)

    return handler


async def run_script(
    script: Script,
    arguments: Mapping[str, Any],
    context: Context,
    environment: ScriptEnvironment,
    file: ToolFile,
    pool: WorkerPool | None = None,
) -> Any:
    """Call `run(args)` of a tool's script, within the tool's timeout.

    Calls that it launched end with it. Raises ScriptFailed.
    """
    web = environment.web.restrict(file.domains) if file.domains is not None else environment.web
    builtins = Builtins(context, environment, file=file.file, web=web)
    output = _ScriptOutput(context, file.name)
    seconds = file.timeout_ms / 1000 if file.timeout_ms else None
    try:
        return await (pool or shared_pool()).run(
            script,
            "run",
            [dict(arguments)],
            serve=builtins.serve,
            listener=output.write,
            limits=ScriptLimits(seconds=seconds),
        )
    finally:
        await builtins.close()


class _ScriptOutput:
    """Receives the printed and logged lines of one call, as a `starlark.pool.Told`."""

    def __init__(self, context: Context, name: str) -> None:
        self._context = context
        self._name = name
        self._lines = 0

    def write(self, level: str, text: str, fields: Mapping[str, Any]) -> None:
        """Handle one line. `level` is `print`, `info`, `warn`, `error` or `debug`."""
        prefix = "" if level in ("print", "info") else f"{level}: "
        suffix = "".join(f" {key}={value}" for key, value in fields.items())
        line = f"{self._name}: {prefix}{text}{suffix}"
        self._context.progress(line[:_LONGEST_PROGRESS])
        self._lines += 1
        if self._lines > _MOST_NOTES + 1:
            return
        if self._lines == _MOST_NOTES + 1:
            line = f"{self._name}: [more than {_MOST_NOTES} lines; the rest is not kept]"
        elif len(line) > _LONGEST_NOTE:
            line = f"{line[:_LONGEST_NOTE]} [{len(line) - _LONGEST_NOTE} more characters]"
        self._context.note(PROGRESS_TOPIC, line)
