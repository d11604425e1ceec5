"""Direct calls: a person or a program runs a tool without a model.

They pass through the same pipeline, gate and journal as any other call.
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
