"""`delegate`, `emit`, `meta.*` and `task.*`: other agents, hooks, other tools, background tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.engine.hooks.events import Custom
from ferrule.engine.registration.registration import REGISTRATION_TOOLS
from ferrule.extensions.hooks.custom_events import emit_event

from .scope import Scope, result_data, usage_error


async def delegate(scope: Scope, task: Any, **options: Any) -> Any:
    if scope.environment.delegate is None:
        raise ToolFailed(ErrorType.PERMISSION_DENIED, "`delegate`: this run has no sub-agents")
    given = cast("dict[str, Any]", task) if isinstance(task, dict) else {"task": task}
    return await scope.environment.delegate(scope.context, {**given, **options})


async def emit(scope: Scope, event: str, data: Any = None) -> dict[str, Any]:
    try:
        outcome = await emit_event(scope.context, event, data)
    except ConfigError as error:
        raise usage_error(f"`emit`: {error}") from None
    assert isinstance(outcome.payload, Custom)
    return {"blocked": outcome.blocked or None, "data": outcome.payload.data}


# ---- other tools


async def call_tool(scope: Scope, name: str, args: Mapping[str, Any] | None = None) -> Any:
    if name.rpartition("::")[2] in REGISTRATION_TOOLS:
        kind = name.rpartition("_")[2]
        return (
            "error (permission_denied): nothing is registered by `meta.call_tool`; use "
            f"`meta.{kind}_register`"
        )
    result = await scope.call_tool(name, args or {})
    if result.success:
        return result.data
    return f"error ({result.error_type}): {result.error_message}"


async def _call_meta(scope: Scope, action: str, given: Mapping[str, Any]) -> Any:
    if scope.environment.meta is None:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, f"`meta.{action}`: this run may not extend itself"
        )
    return await scope.environment.meta(scope.context, action, given)


async def register_tool(scope: Scope, name: str, definition: Any = None, **more: Any) -> Any:
    return await _call_meta(scope, "tool_register", {**_fields(definition), **more, "name": name})


async def register_hook(scope: Scope, name: str, definition: Any = None, **more: Any) -> Any:
    return await _call_meta(scope, "hook_register", {**_fields(definition), **more, "name": name})


async def register_agent(scope: Scope, name: str, definition: Any = None, **more: Any) -> Any:
    return await _call_meta(scope, "agent_register", {**_fields(definition), **more, "name": name})


async def list_tools(scope: Scope, pattern: str = "*") -> Any:
    return await _call_meta(scope, "list_tools", {"pattern": pattern})


def _fields(definition: Any) -> dict[str, Any]:
    return dict(cast("dict[str, Any]", definition)) if isinstance(definition, dict) else {}


# ---- background tasks (`engine.background`)


async def task_poll(scope: Scope, task_id: str) -> Any:
    return result_data(await scope.call_tool("task_poll", {"task_id": task_id}), "task_poll")


async def task_wait(scope: Scope, task_id: str, timeout_ms: int = 60_000) -> Any:
    given = {"task_id": task_id, "timeout_ms": timeout_ms}
    return result_data(await scope.call_tool("task_await", given), "task_await")


FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "delegate": delegate,
    "emit": emit,
    "meta.call_tool": call_tool,
    "meta.list_tools": list_tools,
    "meta.tool_register": register_tool,
    "meta.register_tool": register_tool,
    "meta.hook_register": register_hook,
    "meta.register_hook": register_hook,
    "meta.agent_register": register_agent,
    "meta.register_agent": register_agent,
    "task.poll": task_poll,
    "task.wait": task_wait,
}
