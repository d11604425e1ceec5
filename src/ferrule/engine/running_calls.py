"""Calls that are being carried out, each in its own task, and direct ones, which no model made.

Direct calls pass through the same pipeline, gate and journal as any other call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from secrets import token_hex
from typing import Any

from ferrule.core.calls import ToolCall, ToolResult, encode_json
from ferrule.core.commands import Command
from ferrule.core.events import Cancelled, DirectCall, Event
from ferrule.core.machine import Machine

from .stopping import Stop, check_stop


class RunningCalls:
    """The running calls of one driver.

    Approval requests are kept beside the calls: they are cancelled too, and never picked as the
    newest.
    """

    def __init__(self) -> None:
        self._calls: dict[str, asyncio.Task[Any]] = {}
        self._questions: dict[str, asyncio.Task[Any]] = {}
        self._reasons: dict[str, str] = {}

    def add(self, call_id: str, task: asyncio.Task[Any], *, question: bool) -> None:
        """Keep a task until it is done."""
        kept = self._questions if question else self._calls
        kept[call_id] = task
        task.add_done_callback(lambda _: kept.pop(call_id, None))

    def find_newest(self) -> str:
        """Return the call that was started last; "" if none is running."""
        return next(reversed(self._calls), "")

    def cancel(self, call_id: str, reason: str = "") -> bool:
        """Cancel a call, or its approval request. Return False if it is not running any more."""
        task = self._calls.get(call_id) or self._questions.get(call_id)
        if task is None or not task.cancel():
            return False
        self._reasons[call_id] = reason
        return True

    def take_reason(self, call_id: str) -> str | None:
        """Return why this call was cancelled; None if it was not cancelled by itself.

        To be called once, by the cancelled task.
        """
        return self._reasons.pop(call_id, None)


async def cancel_all(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel all tasks, and wait until they are done."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    await asyncio.gather(*tasks, return_exceptions=True)


class DirectCalls:
    """The direct calls of one session, and the callers that wait for them."""

    def __init__(
        self,
        machine: Machine,
        feed: Callable[[Event], list[Command]],
        drive: Callable[[list[Command]], Awaitable[object]],
        settle: Callable[[Cancelled], Awaitable[object]],
    ) -> None:
        self._machine = machine
        self._feed = feed
        self._drive = drive
        self._settle = settle
        self.waiting: dict[str, asyncio.Future[ToolResult]] = {}

    async def call(self, tool: str, arguments: Mapping[str, Any] | str, by: str) -> ToolResult:
        """Make a call and wait for its result. If cancelled, the call is settled first."""
        # A handler that was stopped makes no more calls.
        check_stop()
        text = arguments if isinstance(arguments, str) else encode_json(dict(arguments))
        call = ToolCall(f"direct_{token_hex(16)}", tool, text)
        # Another loop may answer it: its approval request can be queued behind another one.
        answered = self.waiting[call.id] = asyncio.get_running_loop().create_future()
        stop = Stop(of_current_task=True)
        token = stop.enter()
        try:
            await self._drive(self._feed(DirectCall(call, by)))
            return await answered
        except asyncio.CancelledError:
            # An approval request that nobody waits for any more must not hold up the next one.
            await self._settle(Cancelled("stopped", call.id))
            raise
        finally:
            stop.leave(token)
            stop.close()
            del self.waiting[call.id]

    def deliver_results(self) -> None:
        """Hand the results that are available to their callers."""
        for call_id, answered in self.waiting.items():
            slot = self._machine.find_slot(call_id)
            if slot is not None and slot.result is not None and not answered.done():
                answered.set_result(slot.result)
