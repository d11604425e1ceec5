"""Hooks around a call: what may block it, change it, ask for it, answer it, or redact its result.

This is the seam that the dispatcher calls. A hook that raises blocks the call (fail closed).
Changed arguments are validated and gated again before the next hook sees them. What hooks on events
are (files, commands, `@hook`) is in `events`; `chain` brings them behind this seam.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from ferrule.core.calls import Result
from ferrule.core.errors import FerruleError
from ferrule.core.frozen import frozen
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool


class HookBlocked(FerruleError):
    """A hook refused a message, a session or an answer; there is no call that could be answered
    with it.

    `code` is `hook_blocked` (it said no) or `hook_broken` (it could not be asked, which is a no).
    """

    code = "hook_blocked"
    exit_code = 4


@frozen
class Block:
    """The call must not run; the model reads `reason`."""

    reason: str


@frozen
class Change:
    """Run the call with these arguments instead (raw, before validation); with `ask`, only if a
    person says yes to them.
    """

    arguments: Mapping[str, Any]
    ask: str = ""


@frozen
class Ask:
    """A person must say yes to these arguments, whatever the rules allow. Later hooks still may
    block.
    """

    reason: str


@frozen
class Answer:
    """The call is answered with what `produce` gives and does not run. Later hooks before the call
    do not run either.

    `produce` is called once nobody has to be asked any more, as a handler would be; ToolFailed is
    its no.
    """

    produce: Callable[[], Awaitable[Any]]


class Hook(Protocol):
    """`before` sees checked values and answers None to let the call pass; `after` may return
    another result for the same call. Both run for every call, whoever asked for it. Of a call whose
    work goes on as a task (`tools.launch`), `after` sees the outcome of the task once it is there,
    and never the launch.
    """

    async def before(
        self, tool: Tool, values: Mapping[str, Any], context: Context
    ) -> Block | Change | Ask | Answer | None: ...

    async def after(self, tool: Tool, result: Result, context: Context) -> Result | None: ...
