"""`@hook` turns a function into a hook on events.

@hook("tool.pre", when='name == "run_command"', priority=10)
async def no_force_push(call: ToolPre) -> Action | None:
    if "--force" in str(call.arguments["command"]):
        return block("force-pushing is not done here")

Agent(..., plugins=[Parts(hooks=[no_force_push])])

A hook for some tools only is given them, or their names: `@hook("tool.pre", tools=[warn])`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import (
    DEFAULT_PRIORITY,
    DEFAULT_TIMEOUT,
    PAYLOADS,
    EventHook,
    Occasion,
    OnError,
    ToolPost,
    ToolPre,
)
from ferrule.engine.threads import run_blocking
from ferrule.tools.catalog import ToolLike, as_tool

from .conditions import parse_condition

_CALL_EVENTS = (ToolPre.event, ToolPost.event)


def hook(
    *events: str,
    tools: Iterable[ToolLike | str] | None = None,
    when: str | Callable[[Occasion], bool] | None = None,
    priority: int = DEFAULT_PRIORITY,
    timeout: float = DEFAULT_TIMEOUT,
    on_error: OnError = "block",
    name: str = "",
) -> Callable[[Callable[..., Any]], EventHook]:
    """Turn a function, sync (it runs in a thread) or async, into a hook.

    The function gets the event's payload (`ToolPre`, `TurnStart`, …) and, if it takes a second
    argument, the `Occasion` around it. It answers with `allow()`, `block(reason)`, `ask(reason)`,
    `modify({...})`, `delegate({...})` or None, which allows.

    Args:
        events: The names of the events.
        tools: The tools whose calls it is asked about, or their full names; by default all. Only
            for `tool.pre` and `tool.post`.
        when: A condition (docs/permissions.md has the language), or a function of the `Occasion`.
        priority: Hooks with lower numbers run first.
        timeout: Seconds until the hook counts as broken.
        on_error: What happens if the hook is broken.
        name: The name of the hook. Default: the function's.

    Raises:
        ConfigError: An event does not exist, or `when` is invalid.
    """

    def decorate(function: Callable[..., Any]) -> EventHook:
        hook_name = name or getattr(function, "__name__", "hook").strip("<>")
        known = tuple(event for event in events if event in PAYLOADS)
        condition = when
        if isinstance(condition, str):
            condition = parse_condition(condition, f"when of the hook `{hook_name}`", events=known)
        if tools is not None:
            condition = _limit_to_tools(tools, condition, events, hook_name)
        return EventHook(
            name=hook_name,
            events=events,
            run=_make_runner(function, hook_name),
            when=condition,
            priority=priority,
            timeout=timeout,
            on_error=on_error,
        )

    return decorate


def _limit_to_tools(
    tools: Iterable[ToolLike | str],
    condition: Callable[[Occasion], bool] | None,
    events: Sequence[str],
    name: str,
) -> Callable[[Occasion], bool]:
    """Return a condition that holds for calls of these tools for which the other one holds."""
    if not {*events} <= {*_CALL_EVENTS}:
        raise ConfigError(
            f"the hook `{name}` has `tools`, and is on {', '.join(events)}",
            hint="only `tool.pre` and `tool.post` are about one tool",
        )
    if isinstance(tools, str):
        raise ConfigError(
            f"the hook `{name}`: `tools` is a text", hint=f'write `tools=["{tools}"]`'
        )
    names = {one if isinstance(one, str) else as_tool(one).rule_name for one in tools}

    def holds(occasion: Occasion) -> bool:
        payload = occasion.payload
        is_asked = isinstance(payload, ToolPre | ToolPost) and payload.name in names
        return is_asked and (condition is None or condition(occasion))

    return holds


def _make_runner(
    function: Callable[..., Any], name: str
) -> Callable[[Occasion], Awaitable[object]]:
    count = _argument_count(function, name)

    async def run(occasion: Occasion) -> object:
        arguments = (occasion.payload, occasion)[:count]
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        answer = await run_blocking(lambda: function(*arguments))
        return await answer if inspect.isawaitable(answer) else answer

    return run


def _argument_count(function: Callable[..., Any], name: str) -> int:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the hook `{name}`: its parameters cannot be read") from error
    for count in (2, 1):
        with contextlib.suppress(TypeError):
            signature.bind(*[None] * count)
            return count
    raise ConfigError(
        f"the hook `{name}` takes `{signature}`",
        hint="it takes a payload, and optionally the occasion",
    )
