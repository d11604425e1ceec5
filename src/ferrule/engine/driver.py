"""The driver: carries out what the machine says, and tells it what came of it.

It only orchestrates. What may happen is the machine's decision, whether a call may run is the
dispatcher's, what was said is the journal's. Its own promises:

* An event is in the journal before anything outside this process follows from it: a request to the
  model, a question, an effect. Events with nothing of that between them share one write. A call
  that only reads follows from events that may still be unwritten: after a crash the model is asked
  again, and nothing was changed.
* A cancelled run settles first: running handlers are stopped and answered, then the rest.
* Every command is answered with events, also if carrying it out fails.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from secrets import token_hex
from typing import Any, ClassVar

from ferrule.core import events
from ferrule.core.calls import Call, Result
from ferrule.core.calls_in_flight import named
from ferrule.core.commands import (
    AskModel,
    AskPerson,
    Command,
    Evaluate,
    Finish,
    RunTool,
    Settle,
    StopTool,
)
from ferrule.core.errors import ProviderError
from ferrule.core.identity import Identity
from ferrule.core.joins import not_begun
from ferrule.core.machine import Machine
from ferrule.models.client import Exchange
from ferrule.permissions.approvals import Approver
from ferrule.storage.journal.sqlite import Journal
from ferrule.tools.context import Context

from .approval_requests import ask
from .budgets import Budgets
from .cleanup import Closers
from .context.options import ContextOptions, LookAround
from .context.window import Room
from .direct_calls import DirectCalls
from .dispatcher import Dispatcher, Prepared
from .live_events import Progress
from .messages import Inbox
from .recovery import settle
from .running_calls import Going, stop
from .session_log import Log
from .write_batching import Together


class Driver:
    """Drives one session's machine. One run at a time; direct calls may join in.

    `exchange` is opened at the first question to the model. With `interruptible` each call gets its
    own task, so that `stop_call` works; without it a lone call runs in place, which is faster.
    `unclosed` is `Closers`'.
    """

    def __init__(
        self,
        machine: Machine,
        dispatcher: Dispatcher,
        journal: Journal,
        identity: Identity,
        *,
        exchange: Callable[[], Awaitable[Exchange]],
        approver: Approver,
        resources: dict[type, object],
        interruptible: bool = False,
        unclosed: set[Closers],
        context: ContextOptions | None = None,
        look_around: LookAround | None = None,
        together: Together | None = None,
    ) -> None:
        self.machine, self.dispatcher = machine, dispatcher
        self.log = Log(journal, identity, together)
        self.inbox, self._going = Inbox(self._feed), Going()
        self.closers = Closers(self.log, unclosed)
        self.memory: dict[str, Any] = {}
        self.budgets: Budgets | None = None
        self.elapsed, self.driving = 0.0, False
        self._open_exchange, self.approver = exchange, approver
        self._exchange: Exchange | None = None
        self._resources, self._interruptible = resources, interruptible
        self._prepared: dict[str, Prepared] = {}
        self._direct = DirectCalls(machine, self._feed, self._drive, self._settle)
        self.room = Room(self, self._feed, exchange, context, look_around)

    # ---- what callers ask for

    def open(self, opened: events.SessionOpened | None) -> None:
        """Take the session's lease; a new session's first event is written with its first run."""
        self.log.journal.lease(self.log.identity.session)
        self.log.begun = opened is None
        if opened is not None:
            self._feed(opened)

    def recall(self, journal: list[events.Event]) -> None:
        """Become what a journal says: history, open calls, what was granted for the session."""
        self.machine.rebuild(journal)
        for event in journal:
            if (
                isinstance(event, events.PersonAnswered)
                and event.choice == "session"
                and event.grant
            ):
                self.dispatcher.gate.grant(event.grant)

    async def run(self, started: events.RunStarted, run: str = "") -> Finish:
        """One message worked to its end. Cancelling the task settles the run before it raises."""
        who, self.elapsed = self.log.identity, 0.0
        self.log.identity = Identity(who.tenant, who.user, who.session, run or token_hex(16))
        return await self._to_the_end(self._feed(started))

    async def resume(self, reason: str) -> Finish | None:
        """Go on with a run that another process left open; None if there was nothing to do."""
        commands = self._feed(events.Recovered(reason, asks=True))
        if not commands and not self.machine.active:
            return None
        return await self._to_the_end(commands)

    async def call(self, tool: str, arguments: dict[str, Any], *, by: str = "person") -> Result:
        """Run one tool without a model (`DirectCalls`)."""
        return await self._direct.call(tool, arguments, by)

    def reopen(self) -> None:
        """Forget the exchange: the next question goes to whatever model the agent has then."""
        self._exchange = None
        self.room.forget()

    def add_context(self, text: str) -> None:
        """Put text into the history as the person's words, without asking for an answer."""
        self._feed(events.ContextAdded(text))
        self.log.flush()

    def stop_call(self, call_id: str = "") -> bool:
        """Stop one running call (the newest if not named). The run goes on. False if none runs."""
        return self._going.end(call_id or self._going.newest())

    # ---- the loop

    async def _to_the_end(self, commands: list[Command]) -> Finish:
        seconds, self.driving = self.machine.limits.max_seconds, True
        self.log.together.running += 1
        bound = asyncio.timeout(seconds and seconds - self.elapsed)
        try:
            async with bound:
                finish = await self._drive(commands)
            await self.log.kept()
        except asyncio.CancelledError:
            await self._settle(events.Cancelled("stopped by a person or the caller"))
            raise
        except TimeoutError:
            if not bound.expired():
                raise
            finish = await self._settle(events.LimitHit("max_seconds", seconds or 0))
        finally:
            self.driving = False
            self.log.together.running -= 1
        return finish or Finish("failed", code="internal", detail="the run ended without an answer")

    async def _drive(self, commands: Iterable[Command]) -> Finish | None:
        todo = deque(commands)
        tasks: set[asyncio.Task[list[Command]]] = set()
        finish: Finish | None = None
        self.inbox.loop = asyncio.get_running_loop()
        try:
            while todo or tasks:
                while todo:
                    command = todo.popleft()
                    if isinstance(command, Evaluate):
                        prepared = self.dispatcher.evaluate(command.call)
                        self._prepared[command.call.id] = prepared
                        todo.extend(self._feed(prepared.evaluation))
                    elif isinstance(command, Finish):
                        finish = self._finish(command)
                    elif todo or tasks or self._interruptible:
                        tasks.add(self._spawn(command))
                    else:
                        todo.extend(await self._STEPS[type(command)](self, command))
                if tasks:
                    done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        todo.extend(task.result())
        finally:
            if tasks:
                await stop(tasks)
        if finish is None:
            self.log.flush()
        return finish

    def _spawn(self, command: Command) -> asyncio.Task[list[Command]]:
        task = asyncio.create_task(self._STEPS[type(command)](self, command))
        if isinstance(command, RunTool | AskPerson):
            self._going.add(command.call.id, task, question=isinstance(command, AskPerson))
        return task

    async def _ask_model(self, command: AskModel) -> list[Command]:
        await self.log.kept()
        room, history = self.room, self.machine.history
        for message in history[room.counted :]:
            room.tokens += len(message.text)
        room.counted = len(history)
        try:
            if room.tokens > room.most and (ended := await room.make()):
                return ended
            exchange = self._exchange = self._exchange or await self._open_exchange()
            sink, history = self.log if self.log.observer else None, self.machine.history
            answer = await exchange.ask(history, tools=command.tools, sink=sink)
            if exchange.notices:
                self.log.take(exchange.notices)
        except ProviderError as error:
            if error.code == "context_overflow" and (ended := await room.overflowed()) is not None:
                return ended or await Driver._ask_model(self, command)
            return self._feed(events.ModelFailed(error.code, error.detail, error.hint))
        if answer.usage.input:
            room.known = room.tokens = answer.usage.input + answer.usage.output
            room.counted = room.base = len(history) + 1
        answer = named(answer, self.machine.ids, self.machine.round)
        return (
            self._feed(answer)
            if self.budgets is None
            else self.budgets.answered(answer, self._feed)
        )

    async def _run_tool(self, command: RunTool) -> list[Command]:
        call, digest = command.call, command.evaluation.digest
        prepared = self._prepared.get(call.id) or self.dispatcher.evaluate(call)
        if prepared.evaluation.digest != digest:
            # After a restart the settings may have changed: what was approved is not what would
            # run.
            self._prepared[call.id] = prepared
            return self._feed(prepared.evaluation)
        try:
            if prepared.evaluation.announced:
                self._feed(events.CallStarted(call.id, digest))
                await self.log.kept()
            outcome = await self.dispatcher.execute(prepared, self._context(call, prepared))
        except asyncio.CancelledError:
            why = self._going.why(call.id)
            commands = self._feed(events.ToolAnswered(self.dispatcher.stopped(prepared, why or "")))
            if why is None:
                raise
            return commands
        if isinstance(outcome, Prepared):
            self._prepared[call.id] = outcome
            return self._feed(outcome.evaluation)
        self._prepared.pop(call.id, None)
        return self._feed(events.ToolAnswered(outcome))

    async def _ask_person(self, command: AskPerson) -> list[Command]:
        self.log.flush()
        prepared = self._prepared[command.call.id]
        context = self._context(command.call, prepared)
        return self._feed(
            await ask(prepared, context, self.approver, self.dispatcher.gate, self._going.why)
        )

    async def _stop_tool(self, stop: StopTool) -> list[Command]:
        ended = self._going.end(stop.call.id, stop.reason)
        return [] if ended else self._feed(events.ToolAnswered(not_begun(stop.call, stop.reason)))

    async def _settle_call(self, command: Settle) -> list[Command]:
        prepared = self.dispatcher.evaluate(command.call)
        context = self._context(command.call, prepared)
        return self._feed(await settle(command, prepared, context, self.dispatcher, self.approver))

    def _context(self, call: Call, prepared: Prepared) -> Context:
        async def nested(tool: str, arguments: dict[str, Any]) -> Result:
            return await self.call(tool, arguments, by=f"call {call.id}")

        seconds = prepared.tool.reliability.timeout if prepared.tool else None
        return Context(
            self.log.identity,
            call.id,
            self.memory,
            self._resources,
            progress=lambda text: self.log.show(Progress(call.id, text)),
            call=nested,
            deadline=None if seconds == math.inf else seconds,
            tell=lambda text: self.inbox.tell(text, call.tool),
            on_close=self.closers.add,
            note=self.log.notice,
            record=self.log.record,
        )

    def _finish(self, command: Finish) -> Finish:
        said = (command.stop, command.text, command.code, command.detail, command.usage)
        self._feed(events.RunFinished(*said, history=self.log.shown.digest(self.machine.history)))
        return command

    async def _settle(self, event: events.Cancelled | events.LimitHit) -> Finish | None:
        ends = (self._finish(one) for one in self._feed(event) if isinstance(one, Finish))
        finish = next(ends, None)
        self.log.flush()
        return finish

    def _feed(self, event: events.Event) -> list[Command]:
        if isinstance(event, events.ToolAnswered):
            slot = self.machine.slot(event.result.call_id)
            if slot is None or slot.result is not None:
                return []
        commands = self.machine.feed(event)
        if self._direct.waiting:
            self._direct.answer()
        self.log.add(event)
        return commands

    _STEPS: ClassVar[dict[type, Callable[[Driver, Any], Coroutine[Any, Any, list[Command]]]]] = {
        AskModel: _ask_model,
        RunTool: _run_tool,
        AskPerson: _ask_person,
        StopTool: _stop_tool,
        Settle: _settle_call,
    }
