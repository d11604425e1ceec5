"""What the built-ins of one call work with: its run, its file, and access to other tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ferrule.core.calls import Call, ErrorType, Result
from ferrule.core.errors import ToolFailed
from ferrule.extensions.tool_files.bundles import Turns
from ferrule.extensions.web.domains import Domains
from ferrule.extensions.web.fetch import Request, Web
from ferrule.tools.context import Context
from ferrule.tools.definition import OWN

AT_ONCE = 64
"""Calls that one script has running in parallel (systems.md §4.1)."""

Delegate = Callable[[Context, Mapping[str, Any]], Awaitable[Any]]
"""Delegates a task to another agent. Gets the script's arguments by name (`task` at least)."""
Meta = Callable[[Context, str, Mapping[str, Any]], Awaitable[Any]]
"""Carries out `tool_register`, `hook_register`, `agent_register` or `list_tools`.

Gets the name of the action and the script's arguments.
"""


@dataclass(frozen=True, slots=True)
class World:
    """What the scripts of a run may use beyond tools, the same for all of them.

    `arguments` and `hostname` are what `os.args()` and `os.hostname()` return: nothing of the
    machine unless a person provides it. `turns` knows the current message, for bundles with a
    condition.
    """

    web: Web = field(default_factory=lambda: Web(Domains()))
    delegate: Delegate | None = None
    meta: Meta | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    taken: frozenset[str] = frozenset()
    """Names of shipped tools that tools of files replace. Built-ins still use the shipped ones."""
    arguments: Sequence[str] = ()
    hostname: str = "localhost"
    turns: Turns = field(default_factory=Turns)


@dataclass(slots=True, eq=False)
class Launched:
    """A call that a script has launched in parallel."""

    id: str
    tool: str
    task: asyncio.Task[Result]

    def outcome(self, stopped: str = "") -> dict[str, Any]:
        """Return the outcome for the script, once the call is done.

        `stopped` says why it was stopped.
        """
        if self.task.cancelled():
            result = Result.error(
                Call(self.id, self.tool), ErrorType.CANCELLED, f"stopped: {stopped}"
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
    world: World
    file: str
    web: Web
    launched: dict[str, Launched] = field(default_factory=dict[str, Launched])
    outgoing: tuple[Request, float] | None = None
    """The request that is being made, and the event loop's time at which it times out."""
    received: str = ""
    """The body of the last answer, which is read in pieces."""
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def result(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        """Call another tool through the gate and return its result.

        Raises ToolFailed outside of a run.
        """
        if self.context.call is None:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, f"`{tool}` cannot be called outside of a run"
            )
        return await self.context.call(tool, dict(arguments))

    async def shipped(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        """Call a shipped tool, even if a file has taken its name."""
        return await self.result(f"{OWN}::{tool}" if tool in self.world.taken else tool, arguments)

    async def value(self, tool: str, /, **arguments: Any) -> Any:
        """Call a shipped tool and return its value. Raises ToolFailed with its error."""
        return data_of(await self.shipped(tool, arguments), tool)


_WORKING = "extend.scripts"


def working(context: Context) -> dict[str, Scope]:
    """Return the running scripts of this session, by the id of their call."""
    return context.memory.setdefault(_WORKING, {})


def data_of(result: Result, tool: str) -> Any:
    """Return the value of a result. Raises ToolFailed if it failed or is incomplete."""
    if not result.success:
        raise failed(result, tool)
    if result.partial:
        raise ToolFailed(
            ErrorType.LIMIT, f"`{tool}`: its result was larger than a result may be; ask for less"
        )
    return result.data


def failed(result: Result, tool: str) -> ToolFailed:
    """Return the error of a result, to be raised."""
    return ToolFailed(result.error_type, result.error_message or f"`{tool}` failed")


def invalid(message: str) -> ToolFailed:
    """Return the error of a built-in that was used wrongly, to be raised."""
    return ToolFailed(ErrorType.VALIDATION_FAILED, message)
