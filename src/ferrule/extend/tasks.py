"""Tool files that say `async: true`: the call is answered at once, the script goes on as a task of the session.

Requirement 003, `async`. The task (`engine.background`) has the same sandbox, gate and identity as the call: what its script
does goes through `Context.call`. Its time is the file's `timeout_ms`, or `SECONDS`. When it ends, hooks on `tool.post` see its result
as that of the call's tool and id, before anybody reads it; and what reads it (`task_poll`, `task_await`) is a call with hooks
of its own. Not seen there: hooks of a program that sit at the dispatcher itself (`engine.hooks.Hook`) see those later calls only.

A run that is stopped while a task waits for a tool stops that tool's call, which the script cannot survive: the task has failed then.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.engine.background import background
from ferrule.engine.hook_chain import Hooks
from ferrule.engine.hook_events import ToolPost, json_value
from ferrule.tools.context import Context

SECONDS = 3600.0
"""How long a task may take whose file says no `timeout_ms`."""


def start_task(
    run: Callable[[], Awaitable[Any]], name: str, arguments: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """Begin a script as a task: `{task_id, status}` for the model. Raises ToolFailed (`limit`) while too many run."""
    hooks = context.resources.get(Hooks)

    async def work() -> Any:
        began = time.monotonic()
        value, failure = await _outcome(run)
        if not isinstance(hooks, Hooks):
            return _value(value, failure)
        took = int((time.monotonic() - began) * 1000)
        payload = ToolPost(context.call_id, name, failure is None, value, duration_ms=took)
        return await _judged(payload, failure, arguments, hooks, context)

    return {"task_id": background(context).start(work, name=name, tell=context.tell), "status": "running"}


async def _outcome(run: Callable[[], Awaitable[Any]]) -> tuple[Any, ToolFailed | None]:
    try:
        return await run(), None
    except ToolFailed as error:
        return None, error
    except Exception as error:  # noqa: BLE001  boundary: hooks are told of whatever came of it
        return None, ToolFailed(ErrorType.INTERNAL_ERROR, f"{type(error).__name__}: {error}")


def _value(value: Any, failure: ToolFailed | None) -> Any:
    if failure is not None:
        raise failure
    return value


async def _judged(
    payload: ToolPost,
    failure: ToolFailed | None,
    arguments: Mapping[str, Any],
    hooks: Hooks,
    context: Context,
) -> Any:
    """What hooks leave of an outcome. Raises ToolFailed."""
    payload = replace(payload, arguments=json_value(dict(arguments)))
    if failure is not None:
        payload = replace(payload, error=str(failure.error_type), message=failure.message)
    outcome = await hooks.fire(payload)
    for hook, text in outcome.context:
        context.tell(f"[hook {hook}] {text}")
    if outcome.blocked:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, f"the task ran, its result was withheld by {outcome.blocked}"
        )
    assert isinstance(outcome.payload, ToolPost)
    after = outcome.payload.result
    if failure is None or after is None:
        return _value(after, failure)
    raise ToolFailed(failure.error_type, after if isinstance(after, str) else str(after))
