"""A session: runs that share a history and a journal. The facade that interfaces see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import chain
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, cast, overload

from ferrule.core.calls import ToolCall, ToolResult, encode_json
from ferrule.core.commands import FinishRun
from ferrule.core.errors import (
    ConfigError,
    ContextLeak,
    LimitReached,
    OutputInvalid,
    ProviderError,
    RunCancelled,
)
from ferrule.core.events import (
    CallEvaluated,
    ContextCompacted,
    RunFinished,
    RunStarted,
    Spent,
    Usage,
)
from ferrule.core.identity import Identity
from ferrule.core.join_policy import parse_join
from ferrule.core.limits import Limits
from ferrule.core.media import Content, MediaReference
from ferrule.core.messages import Message
from ferrule.core.notices import PERSON_SOURCE
from ferrule.core.output import OUTPUT_INVALID_CODE, OutputRequest
from ferrule.core.required_tools import ALTERNATIVE_SEPARATOR, parse_required
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import PermissionMode, RunStop
from ferrule.models.registry import default_turns
from ferrule.permissions.approvals import Approver
from ferrule.permissions.rule_evaluation import select_mode
from ferrule.permissions.rules import PermissionRule
from ferrule.storage.artifacts.store import RunArtifacts, Scope
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool

from . import hooks
from . import output as typed_output
from . import rewind as rewinding
from .budgets import count_cost, in_dollars
from .closed_by_with import ClosedByWith
from .context.options import ContextOptions
from .context.usage import ContextUsage
from .driver import ConversationMedia, Driver
from .live_events import Live, Observer, PartialOutput
from .message_history import MessageHistory
from .run_inputs import UNSET, RunInstructions
from .stopping import require_asyncio
from .type_variables import OutputT
from .unknown_options import explain_run_options

if TYPE_CHECKING:
    from ferrule.permissions.filesystem.workspace import Workspace


@frozen
class RunResult(Generic[OutputT]):
    """The result of a run.

    Attributes:
        output: The value of the agent's `output_type`; without one, the text.
        text: The model's answer; with an `output_type`, the output as JSON, a string without its
            quotes.
        stop: `done`, `limit` (only with `on_limit: answer`), or `failed`: a required tool never
            succeeded.
        results: The results of its calls, as they came.
        usage: Tokens that it used, including sub-agents.
        turns: The number of turns.
        session: The session's id; it can be resumed.
        missing: The required tools that never succeeded, each entry as its alternatives.
        spent: The tokens of each of its answers, and the models that gave them.
        messages: All messages of the session so far; `history=` of another session takes them.
        output_json: The output as JSON; empty without an `output_type`.
    """

    output: OutputT
    text: str
    stop: RunStop
    results: tuple[ToolResult, ...]
    usage: Usage
    turns: int
    session: str
    missing: tuple[tuple[str, ...], ...] = ()
    spent: tuple[Spent, ...] = ()
    messages: MessageHistory = MessageHistory()
    output_json: str = ""

    @property
    def cost(self) -> float | None:
        """Cost in US dollars, sub-agents included; None if a price is not known.

        It is counted when it is asked for, but for a run whose `max_cost` is set.

        Raises:
            ConfigError: The price file is broken.
        """
        return in_dollars(count_cost(self.spent))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return what a notebook displays of the run."""
        # Named by text: the engine knows of no interface, and loads this one for a notebook only.
        return import_module("ferrule.notebook").display_data(self)


@frozen
class RunDefaults:
    """What an agent says of the runs of its sessions.

    Attributes:
        model: The full name of the model.
        limits: The bounds of each run.
        join: As in `RunOptions`.
        require: The required tools, as in `RunStarted`.
        deps_type: The type of their dependencies; None without any.
        instructions: The functions that say what the model is told in a run; None without any.
        recorded_instructions: What a recorded run was told: the functions are not asked then.
        make_deps: Makes the dependencies of runs that are given none (`Host.make_deps`).
    """

    model: str = ""
    limits: Limits = Limits()
    join: int = 0
    require: tuple[str, ...] = ()
    deps_type: Any = None
    instructions: RunInstructions | None = None
    recorded_instructions: str | None = None
    make_deps: Callable[[Identity], Any] | None = None


class DefaultChanges(TypedDict, total=False):
    """What `Session.change` takes, as in `RunDefaults`."""

    model: str
    limits: Limits
    join: int
    require: tuple[str, ...]
    recorded_instructions: str | None


class RunOptions(TypedDict, total=False):
    """Options of a run.

    Attributes:
        join: How many calls of an answer must succeed before the others are not needed
            (`core.join_policy`).
        require_successful_tools: The tools that must have succeeded for it to be done
            (`core.required_tools`).
    """

    join: str | int
    require_successful_tools: Sequence[str | Sequence[str]]


def parse_run_options(
    options: RunOptions, join: int = 0, require: tuple[str, ...] = ()
) -> tuple[int, tuple[str, ...]]:
    """Return `join` and `require` of `RunStarted`; those given hold where `options` say nothing.

    Raises:
        ConfigError: An option is not valid.
        TypeError: There is no such option.
    """
    known = list(RunOptions.__annotations__)
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(explain_run_options(unknown, ["deps", "history", "key", *known]))
    given = options.get("require_successful_tools")
    if given is not None:
        require = parse_required(given)
    if "join" in options:
        join = parse_join(options["join"])
    return join, require


@frozen
class SessionHistory(Sequence[Message]):
    """The messages of a session so far, as the model is sent them.

    It is a sequence: `session.history[-1]` is the last message, `len` their number.
    """

    driver: Driver

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self.driver.machine.history[index]

    def __len__(self) -> int:
        return len(self.driver.machine.history)

    def __repr__(self) -> str:
        return repr(self.driver.machine.history)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.driver.machine.history)

    def add_context(self, text: str) -> None:
        """Add text as the person's message, without asking for an answer."""
        self.driver.add_context(text)

    def list_run_messages(self) -> list[str]:
        """Return the person's message of each finished run, in order."""
        texts: list[str] = []
        text = ""
        log = self.driver.log
        for record in log.journal.records(log.identity.session) if log.is_recorded else ():
            if isinstance(record.event, RunStarted):
                text = record.event.text
            elif isinstance(record.event, RunFinished):
                texts.append(text)
        return texts

    def find_call(self, call_id: str) -> ToolCall | None:
        """Return a call of the current run by its id; None if there is none."""
        slot = self.driver.machine.find_slot(call_id)
        return None if slot is None else slot.call

    def forget_call(self, call_id: str) -> None:
        """Drop the arguments and the result of a finished call, which the journal has.

        For programs that make direct calls for days: the session keeps both in memory.
        """
        self.driver.machine.forget_call(call_id)

    def read_media(self, one: MediaReference) -> bytes:
        """Return the bytes of a medium of a result. Raises ProviderError if they are gone."""
        return self.driver.open_media().read(one)

    def keep_media(self, one: MediaReference, read: Callable[[MediaReference], bytes]) -> None:
        """Keep a medium of another session. Raises ConfigError if its bytes are not its own."""
        self.driver.open_media().copy_from(one, read)

    def copy_media(self, earlier: MessageHistory) -> None:
        """Keep the media of an earlier conversation as this session's own.

        Raises ConfigError if their bytes are not to be had.
        """
        for one in earlier.list_media():
            self.keep_media(one, earlier.get_media)

    def receipts(self) -> list[dict[str, Any]]:
        """Return the receipt of each run so far: digests, approvals, effects and cost, no data.

        See `storage.audit.receipts`.
        """
        from ferrule.storage.audit.receipts import build_receipts

        log = self.driver.log
        if not log.is_recorded:
            return []
        return list(build_receipts(log.journal.records(log.identity.session)))


@frozen
class SessionApprovals:
    """Who approves the calls of a session, and which rules decide before anybody is asked."""

    driver: Driver

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """The rules that hold here: deny, ask and allow rules, then what a person granted."""
        gate = self.driver.dispatcher.gate
        rules = gate.rules
        return (*rules.deny, *rules.ask, *rules.allow, *gate.grants.rules)

    def forget_grant(self, rule: str) -> bool:
        """Withdraw what a person granted, also for later sessions. Return whether it was there."""
        return self.driver.dispatcher.gate.grants.forget(rule)

    def set_approver(self, approver: Approver) -> None:
        """Ask this approver from now on. Subscribers still see its questions."""
        self.driver.change_approver(approver)

    def evaluate(self, tool: str, arguments: Mapping[str, Any] | str) -> CallEvaluated:
        """Return the present decision about a call, without running or journaling it."""
        text = arguments if isinstance(arguments, str) else encode_json(arguments)
        return self.driver.dispatcher.evaluate(ToolCall("", tool, text)).evaluation

    def is_needed(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call would need an approval right now."""
        return self.evaluate(tool, arguments).verdict == "ask"


class Session(ClosedByWith, Generic[OutputT]):
    """Runs that share a history. Made by `Agent.session` and `Agent.resume`.

    One run at a time; close it to give its lease back. Everything an interface needs of a session
    is a method here: nobody else talks to its driver.
    """

    def __init__(
        self, session_id: str, driver: Driver, defaults: RunDefaults, system: str = ""
    ) -> None:
        self.id = session_id
        self.system = system
        """The system text, which never changes within a session.

        What functions say for the first run follows it (`Agent(instructions=...)`).
        """
        self.driver = driver
        self.defaults = defaults

    @property
    def model(self) -> str:
        """The full name of the model of its next runs."""
        return self.defaults.model

    @property
    def limits(self) -> Limits:
        """The bounds of its next runs."""
        return self.defaults.limits

    def change(self, **changes: Unpack[DefaultChanges]) -> None:
        """Give the next runs another model, other limits, or what else `RunDefaults` has."""
        self.defaults = replace(self.defaults, **changes)

    def continue_as(self, made: Session[Any]) -> None:
        """Continue as another session that was built for this one (`engine.agent_reload`)."""
        self.driver = made.driver
        self.defaults = made.defaults

    # ---- work

    async def run(
        self, text: Content, *, run: str = "", deps: Any = UNSET, **options: Unpack[RunOptions]
    ) -> RunResult[OutputT]:
        """Work one message to its end.

        Cancelling the awaiting task, or `cancel`, settles the run first: every call is answered and
        journaled.

        Args:
            text: The message: text, or a list of texts, `Image`, `Audio` and `Document`.
            run: An id for the run, which must be new; by default a random one.
            deps: What tools find as `Context.deps`, from now on; by default what the session has.
            **options: Replace those of the agent.

        Raises:
            ConfigError: An option is not valid, the dependencies are missing or of another type, or
                another run is under way (`busy`).
            LimitReached: A limit was reached; the session can be resumed.
            OutputInvalid: No answer fitted the agent's `output_type`.
            ProviderError: The model gave no answer.
            RunCancelled: Somebody cancelled it.
        """
        require_asyncio()
        self._require_idle()
        await self._take_deps(deps)
        self._require_idle()
        media: tuple[MediaReference, ...] = ()
        if not isinstance(text, str):
            text, media = await self._media.take_message(text)
            self._require_idle()
        defaults = self.defaults
        output = self.driver.output
        started = RunStarted(
            text,
            defaults.model,
            defaults.limits.fill_turns(default_turns(defaults.model)),
            defaults.join,
            defaults.require,
            None if output is None else output.request,
            media=media,
        )
        if options or defaults.require:
            started = self._with_options(started, options)
        if defaults.recorded_instructions is not None:
            started = replace(started, instructions=defaults.recorded_instructions)
        elif defaults.instructions is not None:
            run = run or token_hex(16)
            context = self.driver.build_run_context(self.identity.for_run(run))
            said = await defaults.instructions.evaluate(context)
            # Another run may have begun while the functions were asked.
            self._require_idle()
            started = replace(started, instructions=said)
        return self.build_result(await self.driver.run(started, run))

    async def resume(
        self, reason: str = "the process that ran this ended"
    ) -> RunResult[OutputT] | None:
        """Finish the run that was open when the session was last left; None if there was none.

        Raises as `run`.
        """
        await self._take_deps(UNSET)
        finish = await self.driver.resume(reason, self.model)
        return None if finish is None else self.build_result(finish)

    async def stream(
        self, text: Content, *, deps: Any = UNSET, **options: Unpack[RunOptions]
    ) -> AsyncIterator[Live | PartialOutput[OutputT]]:
        """`run`, event by event as it happens. Leaving the loop cancels it.

        With an `output_type`, `PartialOutput` gives the value with what has arrived, and at the end
        the whole one.

        Raises what `run` raises, after the last event.
        """
        partial = self._follow_output()
        queue: asyncio.Queue[Live | None] = asyncio.Queue()
        stop_observing = self.observe(queue.put_nowait)
        task = asyncio.create_task(self.run(text, deps=deps, **options))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while True:
                item = await queue.get()
                if item is None:
                    break
                yield item
                output = None if partial is None else partial.take(item)
                if output is not None:
                    yield cast("PartialOutput[OutputT]", output)
            await task
        finally:
            stop_observing()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def step(
        self, text: Content, *, deps: Any = UNSET, **options: Unpack[RunOptions]
    ) -> AsyncIterator[hooks.Step | RunResult[OutputT]]:
        """`run`, paused before each request to the model and each call (`engine.hooks.stepping`).

        The caller looks at a step, may change it, and asks for the next one to continue. The last
        item is the result. Leaving the loop cancels the run.

        Raises what `run` raises, after the last step.
        """
        from .hooks.stepping import Stepping

        driver = self.driver
        stepping = driver.add_extension(Stepping)
        task = asyncio.create_task(self.run(text, deps=deps, **options))
        try:
            async for step in stepping.iterate(task):
                yield step
            yield await task
        finally:
            driver.remove_extension(stepping)
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        """Run one tool through the gate, without a model. Never raises for what the tool does."""
        await self._take_deps(UNSET)
        return await self.driver.call(tool, arguments)

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Any] | str, *, by: str = "person"
    ) -> ToolResult:
        """Run one tool through the gate, with its arguments as a mapping; else as `call`.

        Args:
            tool: The tool's full name.
            arguments: Its arguments, or JSON text exactly as a model wrote it.
            by: Who makes the call, for the journal.
        """
        await self._take_deps(UNSET)
        return await self.driver.call(tool, arguments, by=by)

    async def delegate(self, task: str, agent: str = "", **more: Any) -> ToolResult:
        """Have a sub-agent do a task (`Parts(agents=...)`).

        It is a call of the tool `delegate` like any other; `more` are the tool's other parameters.
        The result's data is described in `engine.delegation.delegation`. Never raises for what the
        sub-agent does.
        """
        await self._take_deps(UNSET)
        return await self.driver.call("delegate", {"task": task, "agent": agent, **more})

    def cancel(self) -> bool:
        """Cancel the run that is under way; `run` raises RunCancelled once it is settled.

        It may be called from any thread. A handler that does not end when it is stopped is left
        behind after `Host.stop_seconds`, and its outcome called unknown.

        Returns:
            Whether a run was under way.
        """
        return self.driver.cancel()

    def stop_call(self, call_id: str = "") -> bool:
        """Stop one running call, by default the newest; the run continues.

        Returns:
            Whether it was running. Calls can be stopped where `Host.interruptible` is set.
        """
        return self.driver.stop_call(call_id)

    # ---- input

    def tell(self, text: str, source: str = PERSON_SOURCE) -> None:
        """Give the model a message during a run, from any thread.

        The model reads it before its next answer; where no run is under way it waits for the next
        one. A message from a `source` other than the person is data to the model.
        """
        self.driver.inbox.put(text, source)

    @property
    def has_waiting_notices(self) -> bool:
        """Whether the model will be told something with the next message."""
        return self.driver.machine.has_waiting_notices

    def set_deps(self, deps: Any) -> None:
        """Give the session its dependencies, from now on.

        Raises:
            ConfigError: They are of another type than `Agent(deps_type=...)`.
        """
        self.driver.deps.give(deps)

    def add_notice(self, topic: str, text: str, *, flush: bool = False) -> None:
        """Journal a notice for a person, and show it to observers.

        It is written with the next events, or with `flush` at once.
        """
        self.driver.log.notice(topic, text)
        if flush:
            self.flush()

    async def ask_hooks(self, payload: hooks.Payload) -> str:
        """Ask this session's hooks about an event of a loop that is not the session's own.

        What they would change is not changed: whoever asks cannot, so a change is a refusal.

        Returns:
            Why they refuse it, with the hook's name; "" if they do not.
        """
        extension = next(
            (one for one in self.driver.extensions if isinstance(one, hooks.SessionHooks)), None
        )
        if extension is None:
            return ""
        return await extension.judge(payload)

    def set_mode(self, mode: str) -> None:
        """Change the permission mode from the next call on. Raises ConfigError."""
        dispatcher = self.driver.dispatcher
        dispatcher.change_gate(dispatcher.gate.with_mode(select_mode(mode)))

    def expect_output(self, request: OutputRequest | None) -> None:
        """Have the next runs end with this output; None for text.

        It is checked by the agent's `output_type`, or by the schema if the agent has none.
        """
        if request is None:
            self.driver.expect_output(None)
        elif self.driver.output is None:
            self.driver.expect_output(typed_output.OutputCheck.of_request(request))

    def reset_model(self) -> None:
        """Start a new conversation with the agent's current model, with the whole history."""
        self.driver.reset_exchange()

    # ---- state

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Show everything that happens from now on to `observer`.

        It must be quick and must not raise. There may be any number of observers.

        Returns:
            A function that stops it.
        """
        return self.driver.log.observe(observer)

    @property
    def identity(self) -> Identity:
        """The session's owner, with the current run or the last one."""
        return self.driver.log.identity

    @property
    def mode(self) -> PermissionMode:
        """The permission mode."""
        return self.driver.dispatcher.gate.mode

    @property
    def is_running(self) -> bool:
        """Whether a run is under way in this process."""
        return self.driver.is_running

    @property
    def has_open_run(self) -> bool:
        """Whether a run has started and not ended, here or in a process that died."""
        return self.driver.machine.is_active

    @property
    def is_busy(self) -> bool:
        """Whether a run or a call has started and not ended."""
        return self.driver.machine.is_active or bool(self.driver.machine.open_calls())

    @property
    def is_recorded(self) -> bool:
        """Whether the journal has it: one that was opened and never used is not there."""
        return self.driver.log.is_recorded

    @property
    def history(self) -> SessionHistory:
        """The messages so far; its calls, its media and the receipts of its runs."""
        return SessionHistory(self.driver)

    @property
    def approvals(self) -> SessionApprovals:
        """Who approves calls, and which rules hold."""
        return SessionApprovals(self.driver)

    @property
    def usage(self) -> Usage:
        """Tokens used by the current or last run."""
        return self.driver.machine.usage

    @property
    def cost(self) -> float | None:
        """Cost of the current or last run in US dollars, as `RunResult.cost`."""
        return in_dollars(count_cost(self.driver.machine.spent))

    @property
    def turns(self) -> int:
        """The number of turns of the current run, or the last one."""
        return self.driver.machine.turn

    def results(self) -> list[ToolResult]:
        """Return the results of the current run's calls, or the last one's, as they came."""
        return self.driver.machine.results()

    @property
    def catalog(self) -> Catalog:
        """The session's tools, including those that were added while it ran."""
        return self.driver.dispatcher.catalog

    def is_usable(self, tool: Tool) -> bool:
        """Whether the tool may be called and shown here."""
        return self.driver.dispatcher.is_usable(tool)

    @property
    def artifacts(self) -> RunArtifacts | None:
        """The store for the session's large results; None if there is none."""
        keeper = self.driver.dispatcher.artifact_intake
        return None if keeper is None else keeper.artifacts

    def flush(self) -> None:
        """Write everything so far to the journal. Raises JournalError."""
        self.driver.log.flush()

    # ---- the context window

    @property
    def context_options(self) -> ContextOptions:
        """How the session keeps within the model's context window."""
        return self.driver.context_window.options

    async def context_usage(self) -> ContextUsage:
        """Return what fills the context window, by kind, and what is left.

        The kinds are system text, tools and parts of the history.
        """
        return await self.driver.context_window.usage()

    async def compact(self, *, summary: bool = True) -> ContextCompacted | None:
        """Compact the history that is sent to the model (`engine.context.window`).

        Old results are left out, and with `summary` everything but the last messages.

        Returns:
            What was done. None if nothing can be left out, or if a run is under way: then it is
            done before its next request. If no summary could be made, `note` says why.

        Raises what asking a model raises, except ProviderError.

        Raises:
            LimitReached: A budget of the user or the tenant is used up; nothing was asked.
        """
        used_up = await self.driver.find_used_up() if summary else None
        if used_up is not None:
            raise self._make_limit_error(used_up.limit, used_up.value)
        return await self.driver.context_window.compact(summary=summary)

    def restore(self) -> bool:
        """Undo all compaction, from the next request on.

        Returns:
            False if nothing was compacted.

        Raises:
            ConfigError: A run is under way.
        """
        return self.driver.context_window.restore(self.identity.user)

    # ---- fork and close

    def fork(self, runs: int) -> str:
        """Return the id of a new session with this history up to the end of run number `runs`.

        Raises ConfigError if there is no such run.
        """
        store = None if self.artifacts is None else self.artifacts.store
        return rewinding.fork(self.driver.log.journal, self.id, runs, store)

    def plan_rewind(self, runs: int) -> tuple[rewinding.RewindPoint, rewinding.RestoreReport]:
        """Return what `rewind` would restore, without changing anything. Raises as `rewind`."""
        return self._restore_files(runs, force=False, dry=True)

    def rewind(self, runs: int, *, force: bool = False) -> rewinding.RestoreReport:
        """Restore the files that the session's tools changed since the end of run number `runs`.

        The history stays: `fork` makes a session that continues from there.

        Args:
            runs: The number of the run; 0 is before the first.
            force: Also restore files that something else has changed since.

        Raises:
            ConfigError: The run does not exist, a run is active, or no copies are kept here.
        """
        return self._restore_files(runs, force=force, dry=False)[1]

    def diff_files(self, runs: int = 0) -> tuple[list[str], int]:
        """Return what tools changed in files since the end of run number `runs`.

        Returns:
            The lines of a unified diff, and how many calls without a copy may have
            changed files of which no copy is kept.

        Raises:
            ConfigError: The run does not exist, or no copies are kept here.
        """
        copies, point, workspace, scope = self._rewind_point(runs)
        return list(rewinding.diff_files(point, workspace, copies.store, scope)), point.uncovered

    async def close(self) -> None:
        """Close what tools left open (`Context.on_close`), then release the lease.

        `async with session:` and `with session:` do it. The journal keeps everything.
        """
        try:
            await self.driver.cleanup.run()
        finally:
            await self.driver.log.write_batch.release(self.id)

    # ---- internals

    @property
    def _media(self) -> ConversationMedia:
        return self.driver.open_media()

    async def _take_deps(self, deps: Any) -> None:
        """Take the dependencies of a run, or make them where it is given none (`UNSET`)."""
        if deps is UNSET:
            await self.driver.deps.provide(self.identity)
        else:
            self.driver.deps.give(deps)

    def _require_idle(self) -> None:
        """Refuse to begin a run while another one is under way."""
        if self.driver.has_run:
            # One run at a time: a second one would end the first one's answer, or its own.
            raise ConfigError(
                f"session `{self.id}` is busy: a run is under way",
                code="busy",
                hint=(
                    "wait for it, give it the words with `session.tell`, or use a session of its "
                    "own"
                ),
            )

    def _rewind_point(
        self, runs: int
    ) -> tuple[rewinding.FileCopies, rewinding.RewindPoint, Workspace, Scope]:
        """Return the kept copies, a point to go back to, and what the copies are restored with."""
        copies = self.driver.dispatcher.file_copies
        if copies is None:
            raise ConfigError(
                "no copies of changed files are kept in this session",
                hint="they need a workspace and a store for artifacts",
            )
        self.flush()
        records = self.driver.log.journal.records(self.id) if self.is_recorded else ()
        point = rewinding.plan_rewind(records, runs)
        who = self.identity
        workspace = copies.workspace.restrict(self.driver.dispatcher.gate.find_refusal)
        return copies, point, workspace, Scope(who.tenant, who.user, who.session)

    def _restore_files(
        self, runs: int, *, force: bool, dry: bool
    ) -> tuple[rewinding.RewindPoint, rewinding.RestoreReport]:
        if self.is_busy:
            raise ConfigError(
                "files cannot be restored: a run is under way", hint="wait for it, or stop it"
            )
        copies, point, workspace, scope = self._rewind_point(runs)
        report = rewinding.restore_files(
            point, workspace, copies.store, scope, force=force, dry=dry
        )
        return point, report

    def _follow_output(self) -> typed_output.OutputStream | None:
        """Return what makes partial values of the run's events; None if it ends with text."""
        check = self.driver.output
        if check is None:
            return None
        return typed_output.OutputStream(check)

    def _with_options(self, started: RunStarted, options: RunOptions) -> RunStarted:
        join, require = parse_run_options(options, started.join, started.require)
        for name in chain.from_iterable(entry.split(ALTERNATIVE_SEPARATOR) for entry in require):
            if name not in self.catalog:
                raise ConfigError(
                    f"there is no tool `{name}`, which `require_successful_tools` (in settings "
                    "`tools.required`) names",
                    hint=suggest_names(name, self.catalog.names(), count=3, cutoff=0.5),
                )
        return replace(started, join=join, require=require)

    def build_result(self, finish: FinishRun) -> RunResult[OutputT]:
        """Return the result of a run that ended well; raise what `run` raises for any other."""
        if finish.stop != "done" and not finish.missing:
            self._raise_failure(finish)
        machine = self.driver.machine
        check = self.driver.run_check if machine.output_request is not None else None
        output: Any = finish.text if check is None else check.value
        return RunResult(
            cast("OutputT", output),
            finish.text,
            finish.stop,
            tuple(machine.results()),
            finish.usage,
            machine.turn,
            self.id,
            finish.missing,
            tuple(machine.spent),
            MessageHistory(
                tuple(machine.history),
                read_media=self._media.read if machine.has_media else None,
            ),
            finish.output,
        )

    def rebuild_result(self, finished: RunFinished) -> RunResult[OutputT]:
        """Return the result of its last run from the journal; no function runs again.

        Raises as `run`.
        """
        is_typed = self.driver.machine.output_request is not None
        if is_typed and finished.stop == "done":
            self.driver.restore_output(finished.output_json)
        return self.build_result(
            FinishRun(
                finished.stop,
                finished.text,
                finished.code,
                finished.detail,
                finished.usage,
                output=finished.output_json if is_typed else "",
            )
        )

    def _make_limit_error(self, name: str, value: float) -> LimitReached:
        limits = self.driver.machine.limits
        hint = f"raise it, or continue with the next message to the session `{self.id}`"
        if name in limits.of_owners:
            hint = f"it counts all runs of the last {limits.period_days} days; raise it, or wait"
        return LimitReached(name, value, session=self.id, hint=hint)

    def _raise_failure(self, finish: FinishRun) -> None:
        if finish.stop == "limit" and not finish.text:
            name = finish.code.removeprefix("limit_")
            value = getattr(self.driver.machine.limits, name, None) or 0
            raise self._make_limit_error(name, value)
        if finish.stop == "cancelled":
            raise RunCancelled(finish.detail or "cancelled")
        if finish.code == OUTPUT_INVALID_CODE:
            attempts = tuple(self.driver.machine.output_attempts)
            cause = self.driver.run_check.error if self.driver.run_check is not None else None
            raise OutputInvalid(finish.detail, attempts=attempts, session=self.id) from cause
        failure = self.driver.failure
        if failure is not None and failure.code == finish.code:
            raise failure
        if finish.stop == "failed":
            kind = ContextLeak if finish.code == ContextLeak.code else ProviderError
            raise kind(finish.detail, code=finish.code, hint=finish.hint)
