"""A session: runs that share a history, a journal and a driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ferrule.core.calls import Result
from ferrule.core.commands import Finish
from ferrule.core.errors import ContextLeak, LimitReached, ProviderError, RunCancelled
from ferrule.core.events import Usage
from ferrule.core.limits import Limits
from ferrule.core.notices import PERSON

from .live import Live

if TYPE_CHECKING:
    from .driver import Driver


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to. `stop` is `done` or `limit` (only with `on_limit: answer`).

    `results` are the answers of its calls in the order they came; `session` can be resumed.
    """

    text: str
    stop: str
    results: tuple[Result, ...]
    usage: Usage
    rounds: int
    session: str


class Session:
    """Made by `Agent.session` and `Agent.resume`. One run at a time; close it to give its lease back."""

    def __init__(self, session_id: str, driver: Driver, model: str, limits: Limits) -> None:
        self.id = session_id
        self.driver = driver
        self.model = model
        self.limits = limits

    async def run(self, text: str) -> RunResult:
        """Work one message to its end.

        Raises LimitReached (resumable), ProviderError (ContextLeak), RunCancelled. Cancelling the awaiting task settles
        the run first: every call is answered and journaled.
        """
        return self._outcome(await self.driver.run(text, self.model, self.limits))

    async def resume(self, reason: str = "the process that ran this ended") -> RunResult | None:
        """Finish the run that was open when the session was last left; None if there was none."""
        finish = await self.driver.resume(reason)
        return None if finish is None else self._outcome(finish)

    async def call(self, tool: str, /, **arguments: Any) -> Result:
        """Run one tool through the gate, without a model. Never raises for what the tool does."""
        return await self.driver.call(tool, arguments)

    async def delegate(self, task: str, agent: str = "", **more: Any) -> Result:
        """Have another agent do a task (`Agent(agents=...)`): a call of the tool `delegate`, like any other.

        `more` are its other parameters. The result's data is described in `engine.delegation`. Never raises for what the agent does.
        """
        return await self.driver.call("delegate", {"task": task, "agent": agent, **more})

    async def stream(self, text: str) -> AsyncIterator[Live]:
        """The same run, event by event, as it happens. Leaving the loop cancels it.

        Raises what `run` raises, after the last event.
        """
        queue: asyncio.Queue[Live | None] = asyncio.Queue()
        previous = self.driver.log.observer
        self.driver.log.observer = queue.put_nowait
        task = asyncio.create_task(self.run(text))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (item := await queue.get()) is not None:
                yield item
            await task
        finally:
            self.driver.log.observer = previous
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    def tell(self, text: str, source: str = PERSON) -> None:
        """Give the model words on the way, from any thread: it reads them before its next answer in this run.

        Where no run is under way they wait for the next one. Words of a `source` other than the person are data to it.
        """
        self.driver.inbox.tell(text, source)

    async def close(self) -> None:
        """End what tools left open (`Context.on_close`), then give the lease back. The journal keeps everything."""
        try:
            await self.driver.closers.run()
        finally:
            self.driver.log.journal.release(self.id)

    def _outcome(self, finish: Finish) -> RunResult:
        if finish.stop != "done":
            self._raise(finish)
        machine = self.driver.machine
        return RunResult(
            finish.text, finish.stop, tuple(machine.results()), finish.usage, machine.round, self.id
        )

    def _raise(self, finish: Finish) -> None:
        if finish.stop == "limit" and not finish.text:
            name = finish.code.removeprefix("limit_")
            value = getattr(self.driver.machine.limits, name, None) or 0
            hint = f"raise it and go on with `ferrule sessions resume {self.id}`"
            raise LimitReached(name, value, session=self.id, hint=hint)
        if finish.stop == "cancelled":
            raise RunCancelled(finish.detail or "cancelled")
        if finish.stop == "failed":
            kind = ContextLeak if finish.code == ContextLeak.code else ProviderError
            raise kind(finish.detail, code=finish.code, hint=finish.hint)
