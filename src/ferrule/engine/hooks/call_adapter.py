"""Event hooks on calls, behind the dispatcher's protocol (`call_hooks.Hook`).

There is one adapter per hook, so that what one changes is validated and decided again before the
next one sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.engine.delegation.sub_agent import DELEGATE
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

from .call_hooks import Answer, Ask, Block, Change, Hook
from .chain import Hooks, describe_refusal
from .events import DEFAULT_PRIORITY, EventHook, ToolPost, ToolPre, json_value


class CallHook:
    """One event hook on `tool.pre`, `tool.post` or both."""

    def __init__(self, hooks: Hooks, hook: EventHook) -> None:
        self._hooks = hooks
        self._hook = hook
        self.priority = hook.priority
        self.name = hook.name

    async def before(
        self, tool: Tool, values: Mapping[str, Any], context: Context
    ) -> Block | Change | Ask | Answer | None:
        """Ask the hook about a call."""
        if not self._hook.handles("tool.pre"):
            return None
        occasion = self._hooks.build_occasion(ToolPre.of(context.call_id, tool, values))
        payload = cast("ToolPre", occasion.payload)
        action = (await self._hooks.ask(self._hook, occasion)).action
        if action.context:
            context.tell(_attribute_text(self._hook, action.context))
        if action.verdict == "block":
            return Block(describe_refusal(self._hook, action))
        if action.verdict == "delegate" and tool.full_name == DELEGATE:
            # A hook that delegates every call would delegate its own delegations without end.
            return Block(f"the hook `{self._hook.name}` delegates a delegation")
        if action.verdict == "delegate":
            request = action.request or {}
            return Answer(lambda: self._hooks.delegate_call(request))
        if action.payload is not None:
            changed = payload.replace(action.payload).arguments
            question = describe_refusal(self._hook, action) if action.verdict == "ask" else ""
            if question or changed != payload.arguments:
                return Change(changed, question)
            return None
        return Ask(describe_refusal(self._hook, action)) if action.verdict == "ask" else None

    async def after(self, tool: Tool, result: ToolResult, context: Context) -> ToolResult | None:
        """Ask the hook about a result."""
        if not self._hook.handles("tool.post"):
            return None
        posted = ToolPost(
            result.call_id,
            tool.rule_name,
            result.success,
            result.data,
            str(result.error_type),
            result.error_message or "",
            result.duration_ms,
            self._hooks.arguments.get(result.call_id),
            tool=tool,
        )
        occasion = self._hooks.build_occasion(posted)
        payload = cast("ToolPost", occasion.payload)
        action = (await self._hooks.ask(self._hook, occasion)).action
        if action.context:
            result = replace(
                result, notes=(*result.notes, _attribute_text(self._hook, action.context))
            )
        if action.verdict in ("block", "ask"):
            said = (
                f"the call ran, its result was withheld by {describe_refusal(self._hook, action)}"
            )
            return replace(
                result,
                success=False,
                data=None,
                error_type=ErrorType.PERMISSION_DENIED,
                error_message=said,
                refused_by="hook",
            )
        if action.payload is None:
            return result if action.context else None
        value = payload.replace(action.payload).result
        if result.success:
            return replace(result, data=value)
        return replace(result, error_message=value if isinstance(value, str) else str(value))


class RememberedPayload:
    """The last hook in order: remembers a call's arguments for hooks that check its result."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    async def before(self, tool: Tool, values: Mapping[str, Any], context: Context) -> None:
        """Remember the arguments as the hooks before it left them."""
        self._hooks.arguments[context.call_id] = json_value(dict(values))

    async def after(self, tool: Tool, result: ToolResult, context: Context) -> None:
        """Forget the arguments: all hooks have seen the result."""
        self._hooks.arguments.pop(result.call_id, None)


def order_call_hooks(given: Iterable[Hook | EventHook], hooks: Hooks) -> tuple[Hook, ...]:
    """Return all hooks on calls in their order.

    A `call_hooks.Hook` has priority 100, or its attribute `priority`.
    """
    rows: list[tuple[int, Hook]] = []
    for hook in given:
        if not isinstance(hook, EventHook):
            rows.append((getattr(hook, "priority", DEFAULT_PRIORITY), hook))
        elif hook.handles("tool.pre") or hook.handles("tool.post"):
            rows.append((hook.priority, CallHook(hooks, hook)))
    found = [hook for _, hook in sorted(rows, key=lambda row: row[0])]
    return (*found, RememberedPayload(hooks)) if hooks.for_event("tool.post") else tuple(found)


def insert_call_hook(row: Sequence[Hook], hooks: Hooks, hook: EventHook) -> tuple[Hook, ...]:
    """Return the hooks on calls with one more in its place; `hooks` has it already."""
    if not (hook.handles("tool.pre") or hook.handles("tool.post")):
        return tuple(row)
    found: list[Hook] = [one for one in row if not isinstance(one, RememberedPayload)]
    found = sorted(
        [*found, CallHook(hooks, hook)], key=lambda one: getattr(one, "priority", DEFAULT_PRIORITY)
    )
    return (*found, RememberedPayload(hooks)) if hooks.for_event("tool.post") else tuple(found)


def _attribute_text(hook: EventHook, text: str) -> str:
    return f"[hook {hook.name}] {text}"
