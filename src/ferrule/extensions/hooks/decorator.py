"""`@hook`: a function becomes a hook on events.

@hook("tool.pre", when='name == "run_command"', priority=10)
async def no_force_push(call: ToolPre) -> Action | None:
    if "--force" in str(call.arguments["command"]):
        return block("force-pushing is not done here")

Agent(..., hooks=[no_force_push])
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import (
    DEFAULT_PRIORITY,
    DEFAULT_TIMEOUT,
    PAYLOADS,
    EventHook,
    Occasion,
    OnError,
)
from ferrule.engine.threads import run_blocking

from .conditions import parse_when


def hook(
    *events: str,
    when: str | Callable[[Occasion], bool] | None = None,
    priority: int = DEFAULT_PRIORITY,
    timeout: float = DEFAULT_TIMEOUT,
    on_error: OnError = "block",
    name: str = "",
) -> Callable[[Callable[..., Any]], EventHook]:
    """Make a hook of a function, sync (it runs in a thread) or async.

    It gets the event's payload (`ToolPre`, `TurnStart`, …) and, if it takes a second argument, the
    `Occasion` around it. It answers with `allow()`, `block(reason)`, `ask(reason)`,
    `modify({...})`, `delegate({...})` or None, which lets it pass. `timeout` is in seconds. Raises
    ConfigError for an event there is not and a `when` that cannot be read.
    """

    def decorate(function: Callable[..., Any]) -> EventHook:
        called = name or getattr(function, "__name__", "hook").strip("<>")
        known = tuple(event for event in events if event in PAYLOADS)
        condition = (
            parse_when(when, f"when of the hook `{called}`", events=known)
            if isinstance(when, str)
            else when
        )
        return EventHook(
            name=called,
            events=events,
            run=_runner(function, called),
            when=condition,
            priority=priority,
            timeout=timeout,
            on_error=on_error,
        )

    return decorate


def _runner(function: Callable[..., Any], name: str) -> Callable[[Occasion], Awaitable[object]]:
    takes = _takes(function, name)

    async def run(occasion: Occasion) -> object:
        given = (occasion.payload, occasion)[:takes]
        if inspect.iscoroutinefunction(function):
            return await function(*given)
        answer = await run_blocking(lambda: function(*given))
        return await answer if inspect.isawaitable(answer) else answer

    return run


def _takes(function: Callable[..., Any], name: str) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the hook `{name}`: its parameters cannot be read") from error
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if not len(positional) >= 1 or len(needed) > 2:
        raise ConfigError(
            f"the hook `{name}` takes {len(needed)} values",
            hint="a payload, and an occasion if it wants",
        )
    return min(len(positional), 2)
