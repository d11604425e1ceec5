"""Step through a run: pause before each request to the model and before each call.

    async for step in session.step("Tidy up the folder"):
        match step:
            case ModelStep():
                print(len(step.history), "messages")
            case CallStep() if step.call.tool == "delete_file":
                step.refuse("not today")
            case RunResult():
                print(step.text)

A change goes the way of every change: what a call step changes is checked and decided again as
after a hook, and all of it is in the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from ferrule.core import events
from ferrule.core.calls import ToolCall, ToolResult, encode_json
from ferrule.core.commands import Command
from ferrule.core.messages import Message
from ferrule.engine.driver import Driver, DriverExtension
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

from .call_hooks import Answer, Block, Change, Hook


class ModelStep:
    """The model is about to be asked.

    Attributes:
        turn: The turn of the run, from 1.
        history: The messages that the model will be sent.
    """

    def __init__(self, turn: int, history: Sequence[Message]) -> None:
        self.turn = turn
        self.history = history
        self.answered: str | None = None

    def answer(self, text: str) -> None:
        """Take this text as the model's answer, without asking it."""
        self.answered = text


class CallStep:
    """A call that the gate has let through is about to run.

    Attributes:
        call: The call, with its checked arguments as JSON.
        arguments: Its checked arguments.
    """

    def __init__(self, call: ToolCall, arguments: Mapping[str, Any]) -> None:
        self.call = call
        self.arguments = arguments
        self.verdict: Block | Change | Answer | None = None

    def change(self, **arguments: Any) -> None:
        """Run the call with other values for these arguments, after checking them again."""
        self.verdict = Change({**self.arguments, **arguments})

    def answer(self, data: Any) -> None:
        """Answer the call with this value instead of running it."""

        async def produce() -> Any:
            return data

        self.verdict = Answer(produce)

    def refuse(self, reason: str) -> None:
        """Do not run the call; the model reads the reason."""
        self.verdict = Block(reason)


Step = ModelStep | CallStep


class Stepping(DriverExtension):
    """Hands the steps of one run to a caller, one at a time, and waits for each."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self._waiting: asyncio.Queue[tuple[Step, asyncio.Event]] = asyncio.Queue()

    def call_hooks(self) -> tuple[Hook, ...]:
        return (self,)

    # ---- within the run

    async def before_request(self, turn: int) -> list[Command] | None:
        step = ModelStep(turn, tuple(self.driver.machine.history))
        await self._pause(step)
        if step.answered is None:
            return None
        return self.driver.feed(events.ModelAnswered(text=step.answered))

    async def before(
        self, tool: Tool, values: Mapping[str, Any], context: Context
    ) -> Block | Change | Answer | None:
        """Pause before a call (`hooks.call_hooks.Hook`)."""
        call = ToolCall(context.call_id, tool.full_name, encode_json(dict(values)))
        step = CallStep(call, values)
        await self._pause(step)
        return step.verdict

    async def after(self, tool: Tool, result: ToolResult, context: Context) -> None:
        """Leave every result as it is."""

    async def _pause(self, step: Step) -> None:
        resumed = asyncio.Event()
        await self._waiting.put((step, resumed))
        await resumed.wait()

    # ---- for the caller

    async def iterate(self, run: asyncio.Task[Any]) -> AsyncIterator[Step]:
        """Yield each step; it goes on when the next one is asked for. Ends with the run."""
        while True:
            next_step = asyncio.ensure_future(self._waiting.get())
            try:
                await asyncio.wait({run, next_step}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not next_step.done():
                    next_step.cancel()
            if not next_step.done() or next_step.cancelled():
                return
            step, resumed = next_step.result()
            yield step
            resumed.set()
