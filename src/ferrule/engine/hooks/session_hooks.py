"""Hooks around sessions, turns, questions to the model and its answers.

Hooks on calls are not here: they sit in the dispatcher, where every call passes, whoever makes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

from ferrule.core import events
from ferrule.core.calls import ToolCall, ToolResult, encode_json, parse_json
from ferrule.core.commands import Command, EvaluateCall, FinishRun
from ferrule.core.vocabulary import SideEffect
from ferrule.engine.driver import CheckAgain, Driver, DriverExtension
from ferrule.engine.model_layers import Layer
from ferrule.models.client import Exchange, Offer, Open

from .call_adapter import order_call_hooks
from .call_hooks import Hook, HookBlocked
from .chain import HookPlace, Hooks, Outcome
from .events import (
    EventHook,
    Failed,
    OutputPost,
    Payload,
    SessionEnd,
    SessionStart,
    TurnEnd,
    TurnStart,
)
from .hooked_exchange import HookedExchange

GivenHooks = Iterable[Hook | EventHook | Hooks]
"""The hooks of an agent."""


class SessionHooks(DriverExtension):
    """Asks one session's hooks. Tools find `hooks` with `Context.resource(Hooks)`."""

    def __init__(self, driver: Driver, given: GivenHooks, place: HookPlace) -> None:
        """Take the hooks of a session.

        Args:
            driver: Its driver.
            given: The hooks.
            place: The session, as hooks are told of it.
        """
        super().__init__(driver)
        self.hooks, self._call_hooks = split_hooks(given, place)
        self._exchange: HookedExchange | None = None
        self._source: Literal["startup", "resume"] = "startup"
        self._started = False
        self._starting = asyncio.Lock()
        self._model = ""

    def resources(self) -> Mapping[type, object]:
        return {Hooks: self.hooks}

    def call_hooks(self) -> tuple[Hook, ...]:
        return self._call_hooks

    # ---- the session

    def before_open(self, opened: events.SessionOpened | None) -> events.SessionOpened | None:
        self._source = "resume" if opened is None else "startup"
        self._model = "" if opened is None else opened.model
        return opened

    async def start(self) -> None:
        """Fire `session.start` once per session and process.

        Raises HookBlocked; the next attempt asks again.
        """
        if self._started:
            return
        async with self._starting:
            if self._started:
                return
            outcome = await self.hooks.fire(SessionStart(self._source, self._model))
            self._refuse("the session was not started", outcome)
            self._started = True
            self._add_context(outcome)
            if self.hooks.for_event("session.end"):
                self.fire_end_on_close()

    def release(self) -> None:
        self.driver.cleanup.remove(self._end)

    def take_over(self, previous: Driver) -> None:
        log = self.driver.log
        before = [one for one in previous.extensions if isinstance(one, SessionHooks)]
        self._started = before[0]._started if before else log.is_recorded
        self._source = "resume" if log.is_recorded else "startup"
        if self._started and self.hooks.for_event("session.end"):
            self.fire_end_on_close()

    def fire_end_on_close(self) -> None:
        """Fire `session.end` when the session closes."""
        self.driver.cleanup.add(self._end)

    async def _end(self) -> None:
        await self.hooks.fire(SessionEnd())

    async def judge(self, payload: Payload) -> str:
        """Ask about an event of another loop. Return why it is refused, "" if it is not."""
        await self.start()
        outcome = await self.hooks.fire(payload)
        self._add_context(outcome)
        changes = outcome.payload.as_dict() != payload.as_dict()
        refused = outcome.blocked or (
            "a hook would change it, which is not possible here" if changes else ""
        )
        if refused:
            self.driver.log.notice("hook", f"`{payload.event}` was refused: {refused}")
            self.driver.log.flush()
        return refused

    # ---- turns

    def before_run(self, started: events.RunStarted) -> None:
        self._model = started.model
        self.hooks.begin_run()

    async def before_turns(self, started: events.RunStarted) -> events.RunStarted:
        outcome = await self.hooks.fire(TurnStart(started.text))
        self._refuse("the message was refused", outcome)
        payload = outcome.payload
        assert isinstance(payload, TurnStart)
        self._add_context(outcome)
        return replace(started, text=payload.text)

    async def after_turns(self, finish: FinishRun, continuations: int, *, last: bool) -> str:
        log = self.driver.log
        if finish.stop in ("failed", "limit"):
            await self.hooks.fire(Failed("run", finish.code, finish.detail))
        outcome = await self.hooks.fire(
            TurnEnd(finish.text, finish.stop, finish.code, finish.detail, continuations)
        )
        self._add_context(outcome)
        if outcome.blocked and finish.stop == "done" and not self.hooks.stop:
            if not last:
                return f"[{outcome.blocked}]"
            log.notice(
                "hook",
                f"the turn ended after {continuations} continuations, against {outcome.blocked}",
            )
        log.flush()
        return ""

    # ---- questions and answers

    def layers(self) -> tuple[Layer, ...]:
        return (Layer("conversation", self._wrap),)

    def _wrap(self, open: Open) -> Open:
        """Ask the hooks around each question and each answer of a conversation."""
        machine = self.driver.machine

        async def open_hooked(offer: Offer) -> Exchange:
            # Nothing was run yet where a person has the context compacted.
            await self.start()
            self._exchange = HookedExchange(
                await open(offer),
                partial(open, offer),
                self.hooks,
                self._add_notice,
                lambda: machine.turn,
            )
            return self._exchange

        return open_hooked

    def reset_exchange(self) -> None:
        self._exchange = None

    async def before_request(self, turn: int) -> list[Command] | None:
        if self.hooks.stop:
            return self.driver.feed(events.ModelFailed("hook_stopped", self.hooks.stop))
        return None

    async def after_request(self, commands: list[Command]) -> list[Command]:
        """Refuse the calls of an answer that a hook withheld."""
        reason = "" if self._exchange is None else self._exchange.take_refusal()
        if not reason:
            return commands
        calls = [each.call for each in commands if isinstance(each, EvaluateCall)]
        rest: list[Command] = [each for each in commands if not isinstance(each, EvaluateCall)]
        for call in calls:
            rest += self.driver.feed(_refusal(call, reason))
        return rest

    async def after_output(
        self, checked: events.OutputChecked, check_again: CheckAgain, *, is_final: bool
    ) -> events.OutputChecked:
        """Fire `output` for a typed answer that fits."""
        if checked.problems or not self.hooks.for_event("output"):
            return checked
        value = parse_json(checked.output)
        outcome = await self.hooks.fire(OutputPost(value))
        self._add_context(outcome)
        payload = outcome.payload
        assert isinstance(payload, OutputPost)
        if outcome.blocked:
            return events.OutputChecked(problems=(outcome.blocked,), final=is_final)
        if payload.value == value:
            return checked
        if is_final:
            problem = "a hook changed what an output function had returned"
            return events.OutputChecked(problems=(problem,), final=True)
        return await check_again(encode_json(payload.value))

    # ---- texts of hooks

    def _add_notice(self, text: str, hook: str, at_once: bool) -> None:
        self.driver.feed(events.NoticeGiven(text, f"hook:{hook}", at_once))

    def _add_context(self, outcome: Outcome) -> None:
        for hook, text in outcome.context:
            self._add_notice(text, hook, False)

    def _refuse(self, what: str, outcome: Outcome) -> None:
        if not outcome.blocked:
            return
        self.driver.log.notice("hook", f"{what} by {outcome.blocked}")
        self.driver.log.flush()
        code = "hook_broken" if outcome.broken else "hook_blocked"
        raise HookBlocked(f"{what} by {outcome.blocked}", code=code)


def _refusal(call: ToolCall, why: str) -> events.CallEvaluated:
    message = f"`{call.tool}` was not run: the answer was withheld by {why}"
    result = ToolResult.refusal(call, "hook", message)
    return events.CallEvaluated(call.id, "refuse", message, effect=SideEffect.NONE, result=result)


def split_hooks(given: GivenHooks, place: HookPlace) -> tuple[Hooks, tuple[Hook, ...]]:
    """Return the hooks of a new session, and those of them that sit around its calls."""
    flat: list[Hook | EventHook] = []
    delegate = None
    for one in given:
        if isinstance(one, Hooks):
            flat.extend(one.hooks)
            delegate = one.delegate or delegate
        else:
            flat.append(one)
    hooks = Hooks(
        [hook for hook in flat if isinstance(hook, EventHook)],
        delegate=delegate,
        place=place,
    )
    return hooks, order_call_hooks(flat, hooks)
