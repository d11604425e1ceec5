"""Hooks around a call: what may block it, change it, ask for it, answer it, or redact its result.

This is the protocol that the dispatcher calls. A hook that raises blocks the call (fail closed).
Changed arguments are validated and decided again before the next hook sees them. Hooks on events
(files, commands, `@hook`) are in `events`; `call_adapter` adapts them to this protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from ferrule.core.calls import ToolResult
from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool


class HookBlocked(FerruleError):
    """A hook refused a message, a session or an answer, where no call can be answered with it.

    `code` is `hook_blocked` (it refused) or `hook_broken` (it failed, which counts as a refusal).
    """

    code = "hook_blocked"
    exit_code = 4


@frozen
class Block:
    """The call must not run; the model reads `reason`."""

    reason: str


@frozen
class Change:
    """Run the call with these arguments instead (raw, before validation).

    With `ask`, only if a person approves them.
    """

    arguments: Mapping[str, Any]
    ask: str = ""


@frozen
class Ask:
    """A person must approve these arguments, whatever the rules allow.

    Later hooks may still block the call.
    """

    reason: str


@frozen
class Answer:
    """The call is answered with what `produce` returns, and does not run.

    Later hooks before the call do not run either. `produce` is called once all approvals are given,
    as a handler would be; it refuses with ToolFailed.
    """

    produce: Callable[[], Awaitable[Any]]


class Hook(Protocol):
    """A hook around calls, whoever makes them.

    `before` sees checked values and returns None to let the call pass; `after` may return another
    result for the same call. For a call whose work continues as a task
    (`tools.background_launch`), `after` sees the outcome of the task once it is there, and never
    the launch.
    """

    async def before(
        self, tool: Tool, values: Mapping[str, Any], context: Context
    ) -> Block | Change | Ask | Answer | None: ...

    async def after(
        self, tool: Tool, result: ToolResult, context: Context
    ) -> ToolResult | None: ...
