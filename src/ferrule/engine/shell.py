"""The reliability shell: timeout, attempts, waits. Around every handler, exactly once.

An attempt that timed out in a thread cannot be stopped: the thread goes on and the message says so.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.tools.definition import Tool

from .clock import Clock

DEFAULT_TIMEOUT = 300.0
"""Seconds per attempt where a tool says nothing."""


async def run(
    tool: Tool,
    attempt: Callable[[], Awaitable[Any]],
    clock: Clock,
    notice: Callable[[str], None],
) -> Any:
    """The handler's value. Raises ToolFailed, or whatever the last attempt raised."""
    policy, number = tool.reliability, 0
    seconds = policy.timeout or DEFAULT_TIMEOUT
    while True:
        number += 1
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await attempt()
        except TimeoutError as error:
            # A handler's own TimeoutError is a failure of the world, not our bound: both are "timeout".
            said = f"no answer within {seconds:g} s" if limit.expired() else f"timed out: {error}"
            failure = ToolFailed(ErrorType.TIMEOUT, f"`{tool.name}`: {said}{_still(tool)}")
            # An effect that may have happened is not repeated, however many attempts the tool asks for.
            kind = "timeout" if tool.repeatable else ""
        except ToolFailed as error:
            failure, kind = error, "transient" if error.transient else ""
        except ConnectionError as error:
            failure, kind = ToolFailed(ErrorType.IO_ERROR, f"`{tool.name}`: {error}"), "transient"
        most = policy.attempts(tool.repeatable)
        if number >= most or kind not in policy.retry_on:
            raise failure
        notice(f"`{tool.name}` failed ({failure}); attempt {number + 1} of {most}")
        await clock.sleep(policy.wait(number, random.uniform(-1, 1)))


def _still(tool: Tool) -> str:
    if tool.repeatable:
        return ""
    if tool.is_async:
        return "; it was stopped, but what it did so far may stand"
    return "; it may still be running"
