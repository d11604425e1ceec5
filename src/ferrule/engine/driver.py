"""The driver: carries out the machine's commands and feeds it the events that follow.

It only orchestrates. The machine decides what happens, the dispatcher whether a call may run, and
the journal remembers. Its own promises:

* An event is in the journal before anything outside this process follows from it: a request to the
  model, a question, an effect. Events with nothing of that between them share one write. A call
  that only reads follows from events that may still be unwritten: after a crash the model is asked
  again, and nothing was changed.
* A cancelled run settles first: running handlers are stopped and answered, then the rest. A stop is
  looked at before each command (`stopping`); what does not end in time is left behind.
* Every command is answered with events, also if carrying it out fails.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from itertools import chain
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from ferrule.core import events
from ferrule.core.call_states import assign_call_ids
from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.commands import (
    AskModel,
    CheckOutput,
    Command,
    EvaluateCall,
    FinishRun,
    RequestApproval,
    ResolveOutcome,
    RunCall,
    StopCall,
)
from ferrule.core.errors import ConfigError, ProviderError, RunCancelled
from ferrule.core.identity import Identity
from ferrule.core.join_policy import build_cancelled_result
from ferrule.core.limits import Limits
from ferrule.core.machine import Machine
from ferrule.core.media import Content, MediaReference
from ferrule.core.messages import Message, find_sent_result
from ferrule.core.value_class import frozen
from ferrule.models.client import Exchange, Offer, Open
from ferrule.permissions.approvals import Approver
from ferrule.permissions.rule_evaluation import PermissionGate, select_mode
from ferrule.tools.context import Context

from . import output as typed_output
from .approval_requests import CurrentApprover, has_changed, request_approval
from .budgets import Budgets, count_seconds
from .cleanup import Cleanup
from .context.options import ContextOptions, WindowSurroundings
from .context.window import ContextWindow
from .dispatcher import Dispatcher, PreparedCall, require_approval
from .hooks.call_hooks import Hook
from .live_events import Progress
from .model_layers import Layer
from .recovery import settle_call
from .run_inputs import Dependencies
from .running_calls import DirectCalls, RunningCalls, cancel_all
from .session_log import SessionLog
from .stopping import (
    LEFT_BEHIND,
    RUN_SECONDS,
    STOPPED,
    RunStop,
    Stop,
    check_stop,
    get_stop,
    require_asyncio,
)
from .usable_tools import UsableTools

if TYPE_CHECKING:
    from ferrule.core.output import OutputRequest

T = TypeVar("T")
E = TypeVar("E", bound="DriverExtension")

MAX_CONTINUATIONS = 3
"""How often extensions may continue one run; a hook that always objects must not do so for ever."""


CheckAgain = Callable[[str], Awaitable[events.OutputChecked]]
"""Checks another text in place of a model's answer, as that one was checked."""

_MOST_CHANGES = 3
"""How often a person is asked again about a call because what they were shown had changed."""


class DriverExtension:
    """What is added to a session: hooks, delegation, registration. Every method does nothing.

    An extension overrides the methods it needs; a session without extensions pays for none of them.
    With several, the last one given is the outermost: its `before_` methods are called first and
    its `after_` methods last.

    Args:
        driver: The session's driver, which has its machine and its log already.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def call_hooks(self) -> tuple[Hook, ...]:
        """Return the hooks that the dispatcher asks around each call."""
        return ()

    def resources(self) -> Mapping[type, object]:
        """Objects that tools of the session find with `Context.resource`."""
        return {}

    # ---- the session

    def before_open(self, opened: events.SessionOpened | None) -> events.SessionOpened | None:
        """Return the session's first event, perhaps changed; None for a session from a journal."""
        return opened

    def after_open(self) -> None:
        """The session has its lease."""

    def rebuild(self, journal: Sequence[events.Event]) -> None:
        """Take from a journal what this extension must know of the session's past."""

    async def start(self) -> None:
        """Called before anything is done in the session, every time. Raising refuses it."""

    def release(self) -> None:
        """Another driver takes the session over: ask to be told of nothing any more."""

    def take_over(self, previous: Driver) -> None:
        """Go on with a session that another driver has begun."""

    # ---- runs

    def before_run(self, started: events.RunStarted) -> None:
        """A message is about to be worked on."""

    async def before_turns(self, started: events.RunStarted) -> events.RunStarted:
        """Return the run's first event, perhaps changed. Called again for each continuation."""
        return started

    async def after_turns(self, finish: FinishRun, continuations: int, *, last: bool) -> str:
        """Return a text that the model must go on with, or "" if the run is over.

        Args:
            finish: How the run ended.
            continuations: How often this message was already sent on.
            last: Whether a text would be ignored.
        """
        return ""

    def before_resume(self) -> None:
        """A run that another process left open is about to be finished."""

    async def after_run(self) -> None:
        """A run ended, however it did. Called before its result is returned."""

    # ---- within a run

    def before_event(self, event: events.Event) -> None:
        """Called for each event before the machine gets it. Must be quick and must not raise."""

    def layers(self) -> tuple[Layer, ...]:
        """Return what this extension puts around the model. Called once, before the first one."""
        return ()

    def reset_exchange(self) -> None:
        """The conversation was forgotten: the next question opens another one."""

    async def before_request(self, turn: int) -> list[Command] | None:
        """Return commands to carry out instead of asking the model; None to ask it."""
        return None

    async def after_request(self, commands: list[Command]) -> list[Command]:
        """Return what to do after the model's answer."""
        return commands

    async def after_output(
        self, checked: events.OutputChecked, check_again: CheckAgain, *, is_final: bool
    ) -> events.OutputChecked:
        """Return what came of the check of a typed answer, perhaps changed.

        Args:
            checked: What came of it.
            check_again: Checks another text in its place.
            is_final: Whether the check had effects: then no other text can take its place.
        """
        return checked

    def hold_approval_lock(self) -> AbstractAsyncContextManager[object]:
        """Return what is held while a person is asked."""
        return nullcontext()


class SessionModel(Protocol):
    """The model of one session, as its driver asks it."""

    @property
    def context(self) -> ContextOptions:
        """How the session keeps within the model's context window."""
        ...

    def make_offer(self) -> Offer:
        """Return what a conversation with the model is opened with."""
        ...

    def stack(self, dispatcher: Dispatcher, layers: Iterable[Layer]) -> Open:
        """Return what opens a conversation, with the session's layers and these around it."""
        ...

    async def measure_window(self) -> WindowSurroundings:
        """Measure what an exchange takes of the model's context window."""
        ...


@frozen
class SessionState:
    """What a session has gathered, and takes along when another driver goes on with it.

    Attributes:
        log: Where events go.
        memory: State of its tools (`Context.memory`).
        cleanup: What is closed at its end.
        deps: The program's dependencies.
        approver: Who is asked about calls that need an approval.
        elapsed: Seconds that its open run has taken.
        loop: The event loop of its last run.
    """

    log: SessionLog
    memory: dict[str, Any]
    cleanup: Cleanup
    deps: Dependencies
    approver: Approver
    elapsed: float = 0.0
    loop: asyncio.AbstractEventLoop | None = None


class ConversationMedia(Protocol):
    """The pictures and the like of a conversation (`engine.session_media`)."""

    async def take_message(self, content: Content) -> tuple[str, tuple[MediaReference, ...]]:
        """Keep what a message holds besides text."""
        ...

    async def read_pictures(
        self,
        history: Sequence[Message],
        call: Callable[[str, dict[str, Any]], Awaitable[ToolResult]],
    ) -> None:
        """Have the text read in pictures that the model cannot see, where that is wanted."""
        ...

    def load_history(self, history: Sequence[Message]) -> Sequence[Message]:
        """Return the history with media whose bytes can be read."""
        ...

    def read(self, one: MediaReference) -> bytes:
        """Return the bytes of a medium."""
        ...

    def copy_from(self, one: MediaReference, read: Callable[[MediaReference], bytes]) -> None:
        """Keep a medium of an earlier conversation."""
        ...


@frozen
class SessionParts:
    """What a session is made of. Its driver is given all of it at once.

    Attributes:
        machine: Decides what is done.
        state: What the session has gathered.
        model: The model that is asked.
        make_dispatcher: Makes what evaluates and executes calls, with these hooks around them.
        extend: Returns what is added to the session, for its driver.
        announce: Returns an approver whose questions others see; called for each new one.
        resources: What tools find with `Context.resource`.
        open_media: Opens what keeps pictures and the like.
        interruptible: Give each call its own task, so that `stop_call` works; without it a lone
            call runs in place, which is faster.
        other_models: Models that may be asked in place of the session's.
        output: Checks the outputs of new runs; None if they end with text.
    """

    machine: Machine
    state: SessionState
    model: SessionModel
    make_dispatcher: Callable[[tuple[Hook, ...]], Dispatcher]
    extend: Callable[[Driver], Sequence[DriverExtension]]
    announce: Callable[[Approver], Approver]
    resources: Mapping[type, object]
    open_media: Callable[[], ConversationMedia]
    interruptible: bool = False
    other_models: tuple[str, ...] = ()
    output: typed_output.OutputCheck | None = None


_RUNNING: ContextVar[Context | None] = ContextVar("running call", default=None)
"""The context of the call that the current task carries out."""


class Inbox:
    """Messages for the model from anywhere: a tool's task, a person's keyboard, another thread.

    `feed` must be called in the event loop of the run; `find_loop` returns it, None before any run.
    """

    def __init__(
        self,
        feed: Callable[[events.Event], object],
        find_loop: Callable[[], asyncio.AbstractEventLoop | None],
    ) -> None:
        self._feed = feed
        self._find_loop = find_loop

    def put(self, text: str, source: str, *, ended: bool = False) -> None:
        """Give the model a notice (`core.notices`). It is written with the next events."""
        notice = events.NoticeGiven(text, source, ended=ended)
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        loop = self._find_loop()
        if loop is None or loop is here or not loop.is_running():
            self._feed(notice)
        else:
            loop.call_soon_threadsafe(self._feed, notice)


class Driver:
    """Drives one session's machine. One run at a time; direct calls may join in."""

    def __init__(self, parts: SessionParts) -> None:
        state = parts.state
        machine = parts.machine
        self.machine = machine
        self.log = state.log
        self._loop = state.loop
        self.inbox = Inbox(self.feed, lambda: self._loop)
        self.cleanup = state.cleanup
        self.memory = state.memory
        self.deps = state.deps
        self.budgets: Budgets | None = None
        self.elapsed = state.elapsed
        self.failure: ProviderError | None = None
        """The error of the last question, if the model gave no answer."""
        self.is_running = False
        self.output = parts.output
        self.open_media = parts.open_media
        self.run_check: typed_output.OutputCheck | None = None
        """Checks the output of the current run: another one if it began with another agent."""
        self.approver = state.approver
        self.announce = parts.announce
        self._other_models = parts.other_models
        self._model = parts.model
        self._open: Open | None = None
        self._exchange: Exchange | None = None
        self._interruptible = parts.interruptible
        self._stop: RunStop | None = None
        """What stops the run that is under way."""
        self._prepared: dict[str, PreparedCall] = {}
        self._going = RunningCalls()
        self._direct = DirectCalls(machine, self.feed, self._drive, self._settle)
        self.extensions = tuple(parts.extend(self))
        call_hooks = (extension.call_hooks() for extension in self.extensions)
        self.dispatcher = parts.make_dispatcher(tuple(chain.from_iterable(call_hooks)))
        self._stop_seconds = self.dispatcher.stop_seconds
        self.context_window = ContextWindow(
            self,
            self.feed,
            self._open_exchange,
            self._model.context,
            self._model.measure_window,
        )
        self._resources: dict[type, object] = {
            **parts.resources,
            Approver: CurrentApprover(self),
            UsableTools: UsableTools(self),
        }
        for extension in self.extensions:
            self._resources |= extension.resources()

    @property
    def gate(self) -> PermissionGate:
        """The gate of the session's calls, as it is now."""
        return self.dispatcher.gate

    # ---- what callers ask for

    def open(self, opened: events.SessionOpened | None) -> None:
        """Take the session's lease, so that no other process can drive it.

        A new session's first event is written with its first run.

        Args:
            opened: The first event of a new session; None for one that is in the journal.
        """
        for extension in reversed(self.extensions):
            opened = extension.before_open(opened)
        if opened is None or not self.log.write_batch.is_remote:
            # On a server, the first write takes a new session.
            self.log.journal.lease(self.log.identity.session)
        if opened is not None:
            self.feed(opened)
        for extension in self.extensions:
            extension.after_open()

    @property
    def state(self) -> SessionState:
        """What the session has gathered, for the driver that goes on with it."""
        return SessionState(
            self.log,
            self.memory,
            self.cleanup,
            self.deps,
            self.approver,
            self.elapsed,
            self._loop,
        )

    def rebuild(self, records: Sequence[events.JournalRecord]) -> None:
        """Rebuild the session from its journal: history, open run, grants of the session."""
        journal = [record.event for record in records]
        self.machine.rebuild(journal)
        if self.machine.is_active:
            self.log.begin_run(records[-1].run)
            self.elapsed = count_seconds(records)
        self.restore_calls(journal)
        for event in journal:
            if not isinstance(event, events.PersonAnswered):
                continue
            if event.choice == "session" and event.grant:
                self.dispatcher.gate.grant(event.grant)
        for extension in self.extensions:
            extension.rebuild(journal)

    def restore_calls(self, journal: Iterable[events.Event]) -> None:
        """Restore what the dispatcher must know of the session's past.

        What was found by tool search, and that old messages were checked when they were new.
        """
        if self.dispatcher.artifact_intake is not None:
            self.dispatcher.artifact_intake.trust_messages(len(self.machine.history))
        if self.dispatcher.tool_discovery is not None:
            self.dispatcher.tool_discovery.rebuild(journal)

    def add_extension(self, make: Callable[[Driver], E]) -> E:
        """Add an extension, outside of the others, until `remove_extension`."""
        extension = make(self)
        self.extensions = (*self.extensions, extension)
        self.dispatcher.change_hooks((*self.dispatcher.hooks, *extension.call_hooks()))
        return extension

    def remove_extension(self, extension: DriverExtension) -> None:
        """Let the session go on without an extension that was added."""
        ended = extension.call_hooks()
        self.extensions = tuple(one for one in self.extensions if one is not extension)
        self.dispatcher.change_hooks(
            tuple(one for one in self.dispatcher.hooks if not any(one is hook for hook in ended))
        )

    def change_approver(self, approver: Approver) -> None:
        """Ask another approver from now on."""
        self.approver = self.announce(approver)

    def expect_output(self, check: typed_output.OutputCheck | None) -> None:
        """Have new runs end with an output that passes this check; None for text."""
        self.output = check

    def restore_output(self, text: str) -> None:
        """Take the output of a run that has ended from its text; no function runs again."""
        check = self.output
        if check is not None:
            self.run_check = check
            check.restore(text, self.build_run_context(self.log.identity))

    async def start(self) -> None:
        """Let extensions begin the session. Raises what an extension raises to refuse it."""
        for extension in self.extensions:
            await extension.start()

    async def run(self, started: events.RunStarted, run: str = "") -> FinishRun:
        """Work one message to its end. Cancelling the task settles the run before it raises.

        Extensions may continue the run, at most `MAX_CONTINUATIONS` times.
        """
        self.budgets = self._make_budgets(started.limits, started.model)
        return await self._supervise(partial(self._work, started, run))

    async def _work(self, started: events.RunStarted, run: str) -> FinishRun:
        await self.start()
        for extension in reversed(self.extensions):
            extension.before_run(started)
        continuations = 0
        while True:
            begun = started
            for extension in reversed(self.extensions):
                begun = await extension.before_turns(begun)
            self.elapsed = 0.0
            self.failure = None
            self.log.begin_run((not continuations and run) or token_hex(16))
            finish = await self._finish_run(self.feed(begun))
            text = await self._end_turns(finish, continuations)
            if not text:
                return finish
            continuations += 1
            # What was required of this message has been done: it is not required again.
            started = replace(started, text=text, require=(), media=())

    async def _end_turns(self, finish: FinishRun, continuations: int) -> str:
        """Return the text with which an extension continues the run."""
        last = continuations >= MAX_CONTINUATIONS
        text = ""
        for extension in self.extensions:
            more = await extension.after_turns(finish, continuations, last=last)
            text = text or more
        return "" if last else text

    async def resume(self, reason: str, model: str) -> FinishRun | None:
        """Finish a run that another process left open; None if there was nothing to do.

        Args:
            reason: Why it was left open.
            model: The session's model, whose price counts.
        """
        self.budgets = self._make_budgets(self.machine.limits, model)
        return await self._supervise(partial(self._work_on, reason))

    async def _work_on(self, reason: str) -> FinishRun | None:
        for extension in reversed(self.extensions):
            extension.before_resume()
        await self.start()
        commands = self.feed(events.Recovered(reason, asks=True))
        if not commands and not self.machine.is_active:
            return None
        finish = await self._finish_run(commands)
        await self._end_turns(finish, MAX_CONTINUATIONS)
        return finish

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | str, *, by: str = "person"
    ) -> ToolResult:
        """Run one tool without a model (`DirectCalls`)."""
        require_asyncio()
        await self.start()
        active = self.log.write_batch.active_runs
        active.append(self.log)
        try:
            return await self._direct.call(tool, arguments, by)
        finally:
            active.remove(self.log)

    def reset_exchange(self) -> None:
        """Forget the exchange: the next request goes to the agent's current model."""
        self._exchange = None
        self.context_window.reset()
        for extension in self.extensions:
            extension.reset_exchange()

    def add_context(self, text: str) -> None:
        """Add text to the history as the person's message, without asking for an answer."""
        self.feed(events.ContextAdded(text))
        self.log.flush()

    def stop_call(self, call_id: str = "") -> bool:
        """Stop one running call (the newest if not named). The run goes on. False if none runs."""
        return self._going.cancel(call_id or self._going.find_newest())

    # ---- the loop

    @property
    def has_run(self) -> bool:
        """Whether a run has begun that has not returned, hooks before and after it included."""
        return self._stop is not None

    def cancel(self) -> bool:
        """Stop the run that is under way, from any thread. Return False if there is none."""
        stop = self._stop
        if stop is None or isinstance(stop.event, events.Cancelled):
            return False
        stop.request(events.Cancelled(STOPPED))
        return True

    async def _supervise(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T | FinishRun:
        """Carry out a run in a task of its own, and return what it ends with.

        A run that is stopped is settled before this raises; one that does not end in time is left
        behind: it goes on for nobody, and can neither ask nor call any more.

        Raises:
            RunCancelled: `cancel` stopped it.
        """
        stop = self._stop = RunStop(self._stop_seconds + RUN_SECONDS)
        try:
            task = await stop.run(work())
        finally:
            if self._stop is stop:
                self._stop = None
        try:
            finish = await self._abandon(stop.event) if stop.was_left else task.result()
        except asyncio.CancelledError:
            if stop.was_caller_cancelled or stop.event is None:
                raise
            raise RunCancelled(STOPPED) from None
        if stop.was_caller_cancelled:
            raise asyncio.CancelledError
        return finish

    async def _abandon(self, event: events.Cancelled | events.LimitHit | None) -> FinishRun:
        """Settle a run whose work did not end in time."""
        assert event is not None
        self.log.notice(
            LEFT_BEHIND,
            f"a part of the run did not end within {self._stop_seconds + RUN_SECONDS:g} s after it "
            "was stopped and was left behind; it may still be running",
        )
        finish = await self._settle(event)
        if self.is_running:
            await self._end_run()
        if finish is None or isinstance(event, events.Cancelled):
            raise asyncio.CancelledError
        return finish

    async def _finish_run(self, commands: list[Command]) -> FinishRun:
        """Carry out a run within its time limit. A cancelled run is settled before this raises."""
        stop = self._stop
        assert stop is not None
        seconds = self.machine.limits.max_seconds
        self.is_running = True
        self.log.write_batch.active_runs.append(self.log)
        if self.dispatcher.enter_scope is not None:
            # For the rest of this task, which is the run's own.
            self.dispatcher.enter_scope(self.log.identity, "")
        timer: asyncio.TimerHandle | None = None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(
                seconds - self.elapsed, stop.request, events.LimitHit("max_seconds", seconds)
            )
        try:
            finish = await self._drive(commands)
            await self.log.flush_together()
        except asyncio.CancelledError:
            if stop.was_left:
                raise
            if not isinstance(stop.event, events.LimitHit):
                await self._settle(events.Cancelled(STOPPED))
                raise
            finish = await self._settle(stop.event)
            stop.clear()
        finally:
            if timer is not None:
                timer.cancel()
            if not stop.was_left:
                await self._end_run()
        return finish or FinishRun(
            "failed", code="internal", detail="the run ended without an answer"
        )

    async def _end_run(self) -> None:
        self.is_running = False
        self.log.write_batch.active_runs.remove(self.log)
        for extension in self.extensions:
            await extension.after_run()

    async def _drive(self, commands: Iterable[Command]) -> FinishRun | None:
        """Carry out commands, and those that follow from them, until none is left.

        A command that is alone is carried out in place; of several, each gets a task. Once the work
        is stopped, no more are begun.

        Raises:
            CancelledError: It was stopped, even if what was stopped has swallowed that.
        """
        stop = get_stop()
        todo = deque(commands)
        tasks: set[asyncio.Task[list[Command]]] = set()
        finish: FinishRun | None = None
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        try:
            while todo or tasks:
                while todo:
                    command = todo.popleft()
                    if isinstance(command, EvaluateCall):
                        prepared = self.dispatcher.evaluate(command.call)
                        self._prepared[command.call.id] = prepared
                        todo.extend(self.feed(prepared.evaluation))
                    elif isinstance(command, FinishRun):
                        finish = self._finish(command)
                    elif self._is_stopped(stop, task):
                        todo.clear()
                    elif todo or tasks or self._interruptible:
                        tasks.add(self._spawn(command))
                    else:
                        todo.extend(await self._STEPS[type(command)](self, command))
                if tasks:
                    done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for ended in done:
                        todo.extend(ended.result())
        finally:
            await cancel_all(tasks)
        if finish is None:
            check_stop()
            await self.log.flush_together()
        return finish

    def _is_stopped(self, stop: Stop | None, task: asyncio.Task[Any] | None) -> bool:
        """Whether nothing more may be begun: this work, in its task, was stopped, or the run."""
        run = self._stop
        if run is not None and run.event is not None:
            return True
        return stop is not None and (stop.event is not None or stop.covers(task))

    def _spawn(self, command: Command) -> asyncio.Task[list[Command]]:
        """Carry out a command in a task of its own."""
        task = asyncio.create_task(self._STEPS[type(command)](self, command))
        if isinstance(command, RunCall | RequestApproval):
            self._going.add(command.call.id, task, question=isinstance(command, RequestApproval))
        return task

    def _ask_model(self, command: AskModel) -> Coroutine[Any, Any, list[Command]]:
        """Ask the model, with the extensions around it if there are any."""
        if self.extensions:
            return self._ask_with_extensions(command)
        return self._ask_exchange(command)

    async def _ask_with_extensions(self, command: AskModel) -> list[Command]:
        """Ask the model, unless an extension does something else instead."""
        for extension in reversed(self.extensions):
            instead = await extension.before_request(command.turn)
            if instead is not None:
                return instead
        commands = await self._ask_exchange(command)
        for extension in self.extensions:
            commands = await extension.after_request(commands)
        return commands

    async def _ask_exchange(self, command: AskModel) -> list[Command]:
        """Send the model what is new in the history, and feed its answer.

        A history that does not fit into the context window is compacted first.
        """
        await self.log.flush_together()
        used_up = await self.find_used_up()
        if used_up is not None:
            return self.feed(used_up)
        room = self.context_window
        room.count_messages(self.machine.history)
        try:
            if room.tokens > room.most:
                ended = await room.make_room()
                if ended:
                    return ended
            answer = await self._request_answer(command)
        except ProviderError as error:
            if error.code == "context_overflow":
                ended = await room.handle_overflow()
                if ended is not None:
                    return ended or await self._ask_exchange(command)
            self.failure = error
            return self._feed_answer(
                events.ModelFailed(
                    error.code,
                    error.detail,
                    error.hint,
                    error.status,
                    error.retryable,
                    error.retry_after,
                )
            )
        except ConfigError as error:
            # A name or a key is wrong: the model was never asked, and resuming would not ask it.
            await self._settle(
                events.ModelFailed(error.code, error.detail, error.hint, retryable=error.retryable)
            )
            raise
        answer = assign_call_ids(answer, self.machine.call_ids, self.machine.turn)
        if self.budgets is None:
            return self._feed_answer(answer)
        return self.budgets.count_answer(answer, self._feed_answer)

    def _feed_answer(self, answer: events.Event) -> list[Command]:
        """Feed what came of a request. The exchange is opened again if the history is another."""
        history = self.machine.history
        commands = self.feed(answer)
        if self.machine.history is not history:
            self.reset_exchange()
        return commands

    async def find_used_up(self) -> events.LimitHit | None:
        """Return the limit of the session's owners that is used up; None if there is none."""
        if not self.machine.limits.of_owners:
            return None
        # Imported here: most sessions have no such limits.
        from .owner_budgets import find_used_up

        return await find_used_up(self.log.journal, self.log.identity, self.machine.limits)

    async def _request_answer(self, command: AskModel) -> events.ModelAnswered:
        """Send the model the history and return its answer. Raises ProviderError."""
        if self._exchange is None:
            self._exchange = await self._open_exchange()
        exchange = self._exchange
        history: Sequence[Message] = self.machine.history
        if self.machine.has_media:
            media = self.open_media()
            await media.read_pictures(history, partial(self.call, by="media"))
            history = media.load_history(history)
        sink = self.log if self.log.is_watched else None
        request = self.machine.output_request
        schema = None if request is None else self._find_output_check(request).output.schema
        check_stop()
        self.log.take_arrived_text()
        answer = await exchange.ask(history, tools=command.tools, schema=schema, sink=sink)
        self.log.take_arrived_text()
        if exchange.notices:
            self.log.add_notices(exchange.notices)
        self.context_window.record_usage(answer.usage, len(history) + 1)
        return answer

    async def _check_output(self, command: CheckOutput) -> list[Command]:
        """Check the answer against the output that the run must end with, and feed what came of it.

        The journal has the answer before a function gets its value.
        """
        request = self.machine.output_request
        assert request is not None
        check = self._find_output_check(request)
        if check.output.has_effects:
            await self.log.flush_together()
        check_stop()
        context = self.build_run_context(self.log.identity)
        checked = await check.run(command.text, context)
        if check.repairs and not checked.problems:
            self.log.notice("output", "; ".join(check.repairs))
        for extension in self.extensions:
            checked = await extension.after_output(
                checked, partial(check.run, context=context), is_final=check.output.has_effects
            )
        return self.feed(checked)

    def _find_output_check(self, request: OutputRequest) -> typed_output.OutputCheck:
        for check in (self.run_check, self.output):
            if check is not None and check.request.schema == request.schema:
                self.run_check = check
                return check
        # Imported here: most sessions have no output type.
        self.run_check = typed_output.OutputCheck.of_request(request)
        return self.run_check

    def _open_exchange(self) -> Awaitable[Exchange]:
        """Open a conversation with the model, with every layer around it."""
        if self._open is None:
            layers = (extension.layers() for extension in self.extensions)
            self._open = self._model.stack(self.dispatcher, chain.from_iterable(layers))
        return self._open(self._model.make_offer())

    async def _run_tool(self, command: RunCall) -> list[Command]:
        """Have the dispatcher execute a call, and feed its result.

        The journal has the start of a call that may have an effect before it happens.
        """
        call = command.call
        digest = command.evaluation.digest
        prepared = self._prepared.get(call.id) or self.dispatcher.evaluate(call)
        has_moved = self.dispatcher.has_moved(prepared)
        if has_moved:
            prepared = self.dispatcher.evaluate(call)
        is_undecided = has_moved and prepared.evaluation.verdict != "allow"
        if prepared.evaluation.digest != digest or is_undecided:
            # What was approved is not what would run: an earlier command has changed the folder, or
            # the settings are others after a restart.
            self._prepared[call.id] = prepared
            return self.feed(prepared.evaluation)
        context = self._context(call, prepared)
        if command.shown:
            again = await self._look_again(command, prepared, context)
            if again is not None:
                return again
        outer = _RUNNING.set(context)
        try:
            if prepared.evaluation.is_announced:
                self.feed(events.CallStarted(call.id, digest))
                await self.log.flush_together()
            outcome = await self.dispatcher.execute(prepared, context)
        except asyncio.CancelledError:
            why = self._going.take_reason(call.id)
            if context.was_left:
                self.log.notice(LEFT_BEHIND, f"`{call.tool}` was stopped and did not end")
            stopped = self.dispatcher.build_stopped_result(
                prepared, why or "", was_left=context.was_left, printed=context.printed
            )
            commands = self.feed(events.ToolAnswered(stopped))
            if why is None:
                raise
            return commands
        finally:
            _RUNNING.reset(outer)
        if isinstance(outcome, PreparedCall):
            self._prepared[call.id] = outcome
            return self.feed(outcome.evaluation)
        self._prepared.pop(call.id, None)
        return self.feed(events.ToolAnswered(outcome))

    async def _look_again(
        self, command: RunCall, prepared: PreparedCall, context: Context
    ) -> list[Command] | None:
        """Return what is to be done if an approved call must not run now; None if it may."""
        try:
            if await has_changed(command.shown, prepared, context, self.dispatcher.gate):
                return self._ask_again(prepared)
        except asyncio.CancelledError:
            why = self._going.take_reason(command.call.id)
            result = build_cancelled_result(command.call, why or "stopped")
            commands = self.feed(events.ToolAnswered(result))
            if why is None:
                raise
            return commands
        return None

    def _ask_again(self, prepared: PreparedCall) -> list[Command]:
        """Have a person asked again, as what they were shown has changed since."""
        call = prepared.call
        if prepared.changes >= _MOST_CHANGES:
            why = "not run: what it is about changed each time before it could run; try again later"
            refused = ToolResult.refusal(call, "gate", why)
            return self.feed(events.ToolAnswered(refused))
        why = "what was shown has changed since it was approved; nothing has run"
        again = require_approval(prepared, prepared.evaluation.digest, why)
        again = replace(again, changes=prepared.changes + 1)
        self._prepared[call.id] = again
        return self.feed(again.evaluation)

    async def _ask_person(self, command: RequestApproval) -> list[Command]:
        """Ask a person to approve a call, and feed the answer."""
        await self.log.flush_together()
        prepared = self._prepared[command.call.id]
        context = self._context(command.call, prepared)
        async with AsyncExitStack() as held:
            for extension in reversed(self.extensions):
                await held.enter_async_context(extension.hold_approval_lock())
            gate = self.dispatcher.gate
            if prepared.tool is not None and prepared.values is not None:
                # The preview shows where it would start now, and that is what the answer is about.
                start = gate.find_start(prepared.tool, prepared.values)
                prepared = self._prepared[command.call.id] = replace(prepared, start=start)
            answer = await request_approval(
                prepared, context, self.approver, gate, self._going.take_reason
            )
            commands = self.feed(answer)
            if isinstance(answer, events.PersonAnswered) and answer.choice == "mode":
                self.dispatcher.change_gate(gate.with_mode(select_mode(answer.grant)))
                self.log.notice("mode", f"set to {answer.grant}")
            return commands

    async def _stop_tool(self, stop: StopCall) -> list[Command]:
        """Stop a running call; answer one that has not started."""
        if self._going.cancel(stop.call.id, stop.reason):
            return []
        return self.feed(events.ToolAnswered(build_cancelled_result(stop.call, stop.reason)))

    async def _settle_call(self, command: ResolveOutcome) -> list[Command]:
        """Find out what came of a call that an ended process left open, and feed it."""
        prepared = self.dispatcher.evaluate(command.call)
        context = self._context(command.call, prepared)
        return self.feed(
            await settle_call(command, prepared, context, self.dispatcher, self.approver)
        )

    def _context(self, call: ToolCall, prepared: PreparedCall) -> Context:
        """Build the context that is given to a call's hooks and handler."""

        async def call_nested(tool: str, arguments: dict[str, Any]) -> ToolResult:
            return await self.call(tool, arguments, by=f"call {call.id}")

        seconds = prepared.tool.reliability.timeout if prepared.tool else None
        return Context(
            self.log.identity,
            call.id,
            self.memory,
            self._resources,
            progress=lambda text: self.log.show(Progress(call.id, text)),
            show_tail=lambda text: self.log.show(Progress(call.id, text, is_tail=True)),
            outer=_RUNNING.get(),
            call=call_nested,
            deadline=None if seconds == math.inf else seconds,
            tell=lambda text: self.inbox.put(text, call.tool),
            tell_end=lambda text: self.inbox.put(text, call.tool, ended=True),
            on_close=self.cleanup.add,
            note=self.log.notice,
            record=self.log.record,
            find_sent_result=lambda earlier: find_sent_result(
                self.machine.history, call.id, earlier
            ),
            deps=self.deps.value,
        )

    def _make_budgets(self, limits: Limits, model: str) -> Budgets:
        return Budgets(self.machine, limits, model, self.log.notice, self._other_models)

    def build_run_context(self, identity: Identity) -> Context:
        """Build the context for a function of the program that is not part of a call."""
        return Context(
            identity,
            "",
            self.memory,
            self._resources,
            on_close=self.cleanup.add,
            note=self.log.notice,
            deps=self.deps.value,
        )

    def _finish(self, command: FinishRun) -> FinishRun:
        """Feed the end of the run, with the digest of the history that the model was sent."""
        said = (command.stop, command.text, command.code, command.detail, command.usage)
        digest = self.log.history_digest.digest(self.machine.history)
        output = command.output if command.output != command.text else ""
        self.feed(events.RunFinished(*said, digest, output))
        return command

    async def _settle(
        self, event: events.Cancelled | events.LimitHit | events.ModelFailed
    ) -> FinishRun | None:
        """End what is open, as the event says, and write it to the journal."""
        ends = (self._finish(one) for one in self.feed(event) if isinstance(one, FinishRun))
        finish = next(ends, None)
        self.log.flush()
        return finish

    def feed(self, event: events.Event) -> list[Command]:
        """Give the machine an event and log it. Return what is to be done next."""
        if isinstance(event, events.ToolAnswered):
            slot = self.machine.find_slot(event.result.call_id)
            if slot is None or slot.result is not None:
                return []
        elif isinstance(event, (events.ModelFailed, events.LimitHit)) or (
            isinstance(event, events.Cancelled) and not event.call_id
        ):
            event = replace(event, text=self.log.take_arrived_text())
        for extension in self.extensions:
            extension.before_event(event)
        commands = self.machine.feed(event)
        if self._direct.waiting:
            self._direct.deliver_results()
        self.log.add(event)
        return commands

    _STEPS: ClassVar[dict[type, Callable[[Driver, Any], Coroutine[Any, Any, list[Command]]]]] = {
        AskModel: _ask_model,
        CheckOutput: _check_output,
        RunCall: _run_tool,
        RequestApproval: _ask_person,
        StopCall: _stop_tool,
        ResolveOutcome: _settle_call,
    }
