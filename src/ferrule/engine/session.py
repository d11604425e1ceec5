"""A session: runs that share a history, a journal and a driver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ferrule.core.calls import Result
from ferrule.core.commands import Finish
from ferrule.core.errors import ConfigError, ContextLeak, LimitReached, ProviderError, RunCancelled
from ferrule.core.events import ContextCompacted, RunStarted, Usage
from ferrule.core.frozen import frozen
from ferrule.core.joins import parse_join
from ferrule.core.limits import Limits
from ferrule.core.notices import PERSON
from ferrule.core.required_tools import OR, parse_required

from .budgets import Budgets, dollars
from .live_events import Live

if TYPE_CHECKING:
    from ferrule.permissions.approvals import Approver

    from .context.usage import ContextUsage
    from .driver import Driver


@frozen
class RunResult:
    """What a run came to. `stop` is `done`, `limit` (only with `on_limit: answer`) or `failed`:
    then it ended like any other, but without what it was to do, and `missing` holds the tools that
    never succeeded, each entry as its alternatives.

    `results` are the answers of its calls in the order they came; `session` can be resumed. `cost`
    is in US dollars, that of agents included; it is counted where `Limits.max_cost` bounds it, else
    None.
    """

    text: str
    stop: str
    results: tuple[Result, ...]
    usage: Usage
    rounds: int
    session: str
    missing: tuple[tuple[str, ...], ...] = ()
    cost: float | None = None


class Aims(TypedDict, total=False):
    """What a caller may ask of a run. `join` says how many calls of an answer must succeed before
    the others are not needed (`core.joins`), `require_successful_tools` which tools must have
    succeeded for it to be done (`core.required_tools`).
    """

    join: str | int
    require_successful_tools: Sequence[str | Sequence[str]]


def parse_aims(
    aims: Aims,
    join: int = 0,
    require: tuple[str, ...] = (),
    *,
    caller: Callable[..., Any] | None = None,
) -> tuple[int, tuple[str, ...]]:
    """`join` and `require` of `RunStarted`; those given stand where `aims` say nothing. Raises
    ConfigError.

    `caller` is the function that was given these as its further options: an error about an unknown
    one names its own, too.
    """
    given = aims.get("require_successful_tools")
    unknown = [name for name in aims if name not in Aims.__annotations__]
    if unknown:
        own = () if caller is None else _options_of(caller)
        raise TypeError(_unexpected(unknown, (*own, *Aims.__annotations__)))
    if given is not None:
        require = parse_required(given)
    return parse_join(aims["join"]) if "join" in aims else join, require


def _options_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the options that a method takes by keyword."""
    from inspect import Parameter, signature

    named = [
        one
        for one in signature(function).parameters.values()
        if one.kind is not Parameter.VAR_KEYWORD
    ]
    return tuple(one.name for one in named if one.name != "self")


def _unexpected(unknown: Sequence[str], options: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = [
        match for name in unknown for match in get_close_matches(name, options, n=2, cutoff=0.6)
    ]
    meant = (
        f"did you mean {' or '.join(f'`{name}`' for name in dict.fromkeys(near))}? " if near else ""
    )
    named = ", ".join(f"`{name}`" for name in unknown)
    return f"unexpected {named}; {meant}there are: {', '.join(options)}"


class Session:
    """Made by `Agent.session` and `Agent.resume`. One run at a time; close it to give its lease
    back.
    """

    def __init__(
        self,
        session_id: str,
        driver: Driver,
        model: str,
        limits: Limits,
        join: int = 0,
        require: tuple[str, ...] = (),
        system: str = "",
    ) -> None:
        self.id = session_id
        self.system = system
        """The text that it began with, for as long as it lasts."""
        self.driver = driver
        self.model = model
        self.limits = limits
        self.join, self.require = join, require

    async def run(self, text: str, *, run: str = "", **aims: Unpack[Aims]) -> RunResult:
        """Work one message to its end. What `aims` leave out is as the agent has it; `run` is an id
        for it, which must be new.

        Raises ConfigError for aims that cannot be meant and while another run is under way
        (`busy`), LimitReached (resumable), ProviderError (ContextLeak), RunCancelled. Cancelling
        the awaiting task settles the run first: every call is answered and journaled.
        """
        if self.driver.driving:
            # One run at a time: a second one would end the first one's answer, or its own.
            raise ConfigError(
                f"session `{self.id}` is busy: a run is under way",
                code="busy",
                hint=(
                    "wait for it, give it the words with `session.tell`, or use a session of its "
                    "own"
                ),
            )
        limits = self.limits
        counted = (
            limits.max_tokens is not None
            or limits.max_cost is not None
            or limits.max_calls is not None
        )
        self.driver.budgets = self._budgets(limits) if counted else None
        started = RunStarted(text, self.model, limits, self.join, self.require)
        if aims or self.require:
            started = self._aimed(started, aims)
        return self._outcome(await self.driver.run(started, run))

    def _budgets(self, limits: Limits) -> Budgets:
        return Budgets(self.driver.machine, limits, self.model, self.driver.log.notice)

    def _aimed(self, started: RunStarted, aims: Aims) -> RunStarted:
        join, require = parse_aims(aims, started.join, started.require)
        catalog = self.driver.dispatcher.catalog
        for name in chain.from_iterable(entry.split(OR) for entry in require):
            if name not in catalog:
                near = ", ".join(f"`{one}`" for one in catalog.nearest(name))
                raise ConfigError(
                    f"require_successful_tools: there is no tool `{name}`",
                    hint=near and f"nearest: {near}",
                )
        return replace(started, join=join, require=require)

    async def resume(self, reason: str = "the process that ran this ended") -> RunResult | None:
        """Finish the run that was open when the session was last left; None if there was none."""
        self.driver.budgets = self._budgets(self.driver.machine.limits)
        finish = await self.driver.resume(reason)
        return None if finish is None else self._outcome(finish)

    async def call(self, tool: str, /, **arguments: Any) -> Result:
        """Run one tool through the gate, without a model. Never raises for what the tool does."""
        return await self.driver.call(tool, arguments)

    def ask_with(self, approver: Approver) -> None:
        """Have this approver asked from now on; whoever subscribed to the bus goes on seeing the
        questions.
        """
        from .event_bus.attachment import change_approver

        change_approver(self.driver, approver)

    async def delegate(self, task: str, agent: str = "", **more: Any) -> Result:
        """Have another agent do a task (`Agent(agents=...)`): a call of the tool `delegate`, like
        any other.

        `more` are its other parameters. The result's data is described in
        `engine.delegation.delegation`. Never raises for what the agent does.
        """
        return await self.driver.call("delegate", {"task": task, "agent": agent, **more})

    async def stream(self, text: str, **aims: Unpack[Aims]) -> AsyncIterator[Live]:
        """The same run, event by event, as it happens. Leaving the loop cancels it.

        Raises what `run` raises, after the last event.
        """
        queue: asyncio.Queue[Live | None] = asyncio.Queue()
        previous = self.driver.log.observer
        self.driver.log.observer = queue.put_nowait
        task = asyncio.create_task(self.run(text, **aims))
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
        """Give the model words on the way, from any thread: it reads them before its next answer in
        this run.

        Where no run is under way they wait for the next one. Words of a `source` other than the
        person are data to it.
        """
        self.driver.inbox.tell(text, source)

    async def compact(self, *, summary: bool = True) -> ContextCompacted | None:
        """Leave old parts out of what the model is sent (`engine.context.window`): results, and
        with `summary` all but the last messages.

        Returns what was done; None if nothing may go, or a run is under way: then it is done before
        its next question. Where no summary could be had its `note` says why. Raises what asking a
        model raises, but for ProviderError.
        """
        return await self.driver.room.compact(summary=summary)

    async def context_usage(self) -> ContextUsage:
        """What fills the model's window now: system text, tools, history by kind, what was
        compacted, what is left.
        """
        return await self.driver.room.usage()

    def restore(self) -> bool:
        """Undo all that was compacted, for the next question; False if nothing was. Raises
        ConfigError while a run is under way.
        """
        return self.driver.room.restore(self.driver.log.identity.user)

    def receipts(self) -> list[dict[str, Any]]:
        """The receipt of each run so far (`storage.audit.receipts`): digests, approvals, effects
        and cost, no data.
        """
        from ferrule.storage.audit.receipts import receipts

        return (
            list(receipts(self.driver.log.journal.records(self.id)))
            if self.driver.log.begun
            else []
        )

    async def close(self) -> None:
        """End what tools left open (`Context.on_close`), then give the lease back. The journal
        keeps everything.
        """
        try:
            await self.driver.closers.run()
        finally:
            self.driver.log.journal.release(self.id)

    def _outcome(self, finish: Finish) -> RunResult:
        if finish.stop != "done" and not finish.missing:
            self._raise(finish)
        machine = self.driver.machine
        return RunResult(
            finish.text,
            finish.stop,
            tuple(machine.results()),
            finish.usage,
            machine.round,
            self.id,
            finish.missing,
            None if machine.limits.max_cost is None else dollars(finish.usage),
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


def waited(work: Callable[[], Coroutine[Any, Any, RunResult]]) -> RunResult:
    """What this comes to, for a caller without an event loop; inside one, a thread of its own has
    one.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    outcome: list[RunResult | BaseException] = []

    def target() -> None:
        try:
            outcome.append(asyncio.run(work()))
        except BaseException as error:  # noqa: BLE001  carried to the caller's thread, where it is raised
            outcome.append(error)

    thread = threading.Thread(target=target, name="ferrule-run-sync")
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
