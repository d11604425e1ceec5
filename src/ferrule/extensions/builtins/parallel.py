"""`parallel.*`: calls of other tools while the script goes on.

    first = parallel.launch("read_file", {"path": "a.txt"})       "async_tool_1"
    parallel.launch("grade", {"id": first}, depends_on=[first])
    parallel.wait_all()                                           [{id, tool, ok, result, …}, …]
    parallel.join("first_success")                                the same, once one succeeded

An outcome is `{id, tool, ok, is_error, result, error, error_type, partial}`. A call whose
dependency failed is not made and fails, too. `wait_any` returns the first finished call and lets
the others continue; `race` stops the others. `join` returns all outcomes once enough calls have
succeeded (`core.join_policy`: `all`, `first_success`, or a number); those it stopped are
`cancelled`. Every call passes the gate. Calls still running when the script ends are stopped.

Not protected: parallel calls may write the same file. Order them with `depends_on`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.join_policy import has_enough_successes, parse_join

from .scope import LaunchedCall, Scope, usage_error

MAX_LAUNCHED = 1_000
"""Calls that one script launches at most."""


async def launch(
    scope: Scope, tool: str, args: Mapping[str, Any] | None = None, depends_on: Sequence[str] = ()
) -> str:
    if not isinstance(tool, str) or not isinstance(args or {}, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - scripts are not typed
        raise usage_error(
            "`parallel.launch` takes the name of a tool and a dictionary of arguments"
        )
    if len(scope.launched) >= MAX_LAUNCHED:
        raise ToolFailed(
            ErrorType.LIMIT, f"`parallel.launch`: at most {MAX_LAUNCHED} calls of one script"
        )
    dependencies = _find(scope, [depends_on] if isinstance(depends_on, str) else depends_on)
    name = f"async_tool_{len(scope.launched) + 1}"
    task = asyncio.create_task(_run(scope, ToolCall(name, tool), args or {}, dependencies))
    scope.launched[name] = LaunchedCall(name, tool, task)
    return name


async def _run(
    scope: Scope, call: ToolCall, arguments: Mapping[str, Any], dependencies: Sequence[LaunchedCall]
) -> ToolResult:
    """Return the result of a launched call. Raises only its own cancellation."""
    if dependencies:
        await asyncio.wait([dependency.task for dependency in dependencies])
    for dependency in dependencies:
        if dependency.task.cancelled() or not dependency.task.result().success:
            message = f"not made: {dependency.id} (`{dependency.tool}`) failed"
            return ToolResult.error(call, ErrorType.CANCELLED, message)
    async with scope.slots:
        try:
            return await scope.call_tool(call.tool, arguments)
        except ToolFailed as error:
            return ToolResult.error(call, error.error_type, error.message)


async def wait_all(scope: Scope, ids: Sequence[str] | None = None) -> list[dict[str, Any]]:
    chosen = _find(scope, ids)
    if chosen:
        await asyncio.wait([one.task for one in chosen])
    return [one.outcome() for one in chosen]


async def wait_any(scope: Scope, ids: Sequence[str] | None = None) -> dict[str, Any]:
    first = await _first(_find_some(scope, ids, "wait_any"))
    return first.outcome()


async def race(scope: Scope, ids: Sequence[str] | None = None) -> dict[str, Any]:
    chosen = _find_some(scope, ids, "race")
    first = await _first(chosen)
    await _stop(one for one in chosen if one is not first)
    return first.outcome()


async def join(
    scope: Scope, mode: str | int = "all", ids: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    try:
        wanted = parse_join(mode)
    except ConfigError as error:
        raise usage_error(f"`parallel.join`: {error.detail}; use {error.hint}") from None
    chosen = _find(scope, ids)
    running = {one.task for one in chosen}
    while running and not has_enough_successes(
        wanted, (one.task.result() for one in chosen if one.task.done())
    ):
        _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    await _stop(chosen)
    return [one.outcome(f"enough calls succeeded ({wanted})") for one in chosen]


async def stop_all(scope: Scope) -> None:
    """Stop the calls that a script has left running."""
    await _stop(scope.launched.values())
    for one in scope.launched.values():
        if not one.task.cancelled():
            # Retrieve the exception, because nobody may have waited for the call.
            one.task.exception()


async def _first(chosen: Sequence[LaunchedCall]) -> LaunchedCall:
    await asyncio.wait([one.task for one in chosen], return_when=asyncio.FIRST_COMPLETED)
    return next(one for one in chosen if one.task.done())


async def _stop(launched: Iterable[LaunchedCall]) -> None:
    running = [one.task for one in launched if not one.task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def _find(scope: Scope, ids: Sequence[str] | None) -> list[LaunchedCall]:
    """Return the calls with these ids, or all calls. Raises ToolFailed for an unknown id."""
    if ids is None:
        return [one for one in scope.launched.values() if not one.task.cancelled()]
    found: list[LaunchedCall] = []
    for name in [ids] if isinstance(ids, str) else ids:
        launched = scope.launched.get(name)
        if launched is None:
            raise ToolFailed(
                ErrorType.NOT_FOUND, f"`parallel`: there is no call `{name}` in this script"
            )
        if launched.task.cancelled():
            raise ToolFailed(
                ErrorType.CANCELLED, f"`parallel`: {name} was stopped, as it lost a race"
            )
        found.append(launched)
    return found


def _find_some(scope: Scope, ids: Sequence[str] | None, what: str) -> list[LaunchedCall]:
    chosen = _find(scope, ids)
    if not chosen:
        raise usage_error(f"`parallel.{what}`: nothing was launched")
    return chosen


FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "parallel.launch": launch,
    "parallel.wait_all": wait_all,
    "parallel.wait_any": wait_any,
    "parallel.race": race,
    "parallel.join": join,
}
