"""What the built-ins of one call work with: its run, its file, and access to other tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.engine.web.domains import AllowedDomains
from ferrule.engine.web.fetch import Request, WebClient
from ferrule.extensions.tool_files.bundles import CurrentMessages
from ferrule.tools.context import Context
from ferrule.tools.definition import BUILTIN_NAMESPACE

MAX_PARALLEL = 64
"""Calls that one script has running in parallel (systems.md §4.1)."""

DelegateHandler = Callable[[Context, Mapping[str, Any]], Awaitable[Any]]
"""Delegates a task to another agent. Gets the script's arguments by name (`task` at least)."""
MetaHandler = Callable[[Context, str, Mapping[str, Any]], Awaitable[Any]]
"""Carries out `tool_register`, `hook_register`, `agent_register` or `list_tools`.

Gets the name of the action and the script's arguments.
"""


@frozen
class ScriptEnvironment:
    """What the scripts of a run may use beyond tools, the same for all of them.

    `arguments` and `hostname` are what `os.args()` and `os.hostname()` return: nothing of the
    machine unless a person provides it. `messages` knows the current message, for bundles with a
    condition.
    """

    web: WebClient = field(default_factory=lambda: WebClient(AllowedDomains()))
    delegate: DelegateHandler | None = None
    meta: MetaHandler | None = None
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)
    taken_names: frozenset[str] = frozenset()
    """Names of shipped tools that tools of files replace. Built-ins still use the shipped ones."""
    arguments: Sequence[str] = ()
    hostname: str = "localhost"
    messages: CurrentMessages = field(default_factory=CurrentMessages)


@dataclass(slots=True, eq=False)
class LaunchedCall:
    """A call that a script has launched in parallel."""

    id: str
    tool: str
    task: asyncio.Task[ToolResult]

    def outcome(self, stopped: str = "") -> dict[str, Any]:
        """Return the outcome for the script, once the call is done.

        `stopped` says why it was stopped.
        """
        if self.task.cancelled():
            result = ToolResult.error(
                ToolCall(self.id, self.tool), ErrorType.CANCELLED, f"stopped: {stopped}"
            )
        else:
            result = self.task.result()
        return {
            "id": self.id,
            "tool": self.tool,
            "ok": result.success,
            "is_error": not result.success,
            "result": result.data,
            "error": result.error_message,
            "error_type": str(result.error_type),
            "partial": result.partial,
        }


@dataclass(slots=True)
class Scope:
    """One call of one script. `launched` are its parallel calls."""

    context: Context
    environment: ScriptEnvironment
    file: str
    web: WebClient
    launched: dict[str, LaunchedCall] = field(default_factory=dict[str, LaunchedCall])
    pending_request: tuple[Request, float] | None = None
    """The request that is being made, and the event loop's time at which it times out."""
    response_body: str = ""
    """The body of the last answer, which is read in pieces."""
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_PARALLEL))

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call another tool through the gate and return its result.

        Raises ToolFailed outside of a run.
        """
        if self.context.call is None:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, f"`{tool}` cannot be called outside of a run"
            )
        return await self.context.call(tool, dict(arguments))

    async def call_shipped_tool(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a shipped tool, even if a file has taken its name."""
        return await self.call_tool(
            f"{BUILTIN_NAMESPACE}::{tool}" if tool in self.environment.taken_names else tool,
            arguments,
        )

    async def call_for_value(self, tool: str, /, **arguments: Any) -> Any:
        """Call a shipped tool and return its value. Raises ToolFailed with its error."""
        return result_data(await self.call_shipped_tool(tool, arguments), tool)


_WORKING = "extend.scripts"


def running_scripts(context: Context) -> dict[str, Scope]:
    """Return the running scripts of this session, by the id of their call."""
    return context.memory.setdefault(_WORKING, {})


def result_data(result: ToolResult, tool: str) -> Any:
    """Return the value of a result. Raises ToolFailed if it failed or is incomplete."""
    if not result.success:
        raise tool_error(result, tool)
    if result.partial:
        raise ToolFailed(
            ErrorType.LIMIT, f"`{tool}`: its result was larger than a result may be; ask for less"
        )
    return result.data


def tool_error(result: ToolResult, tool: str) -> ToolFailed:
    """Return the error of a result, to be raised."""
    return ToolFailed(result.error_type, result.error_message or f"`{tool}` failed")


def usage_error(message: str) -> ToolFailed:
    """Return the error of a built-in that was used wrongly, to be raised."""
    return ToolFailed(ErrorType.VALIDATION_FAILED, message)
