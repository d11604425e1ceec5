"""A driver with hooks around sessions, turns, questions and answers. Sessions without hooks use the
plain one and pay nothing.

Hooks on calls are not here: they sit in the dispatcher, where every call passes, whoever makes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, ClassVar

from ferrule.core import events
from ferrule.core.calls import Call, ErrorType, Result
from ferrule.core.commands import AskModel, Command, Evaluate, Finish
from ferrule.engine.driver import Driver
from ferrule.models.client import Exchange

from .call_hooks import Hook, HookBlocked
from .chain import Hooks, Outcome
from .events import EventHook, Failed, SessionEnd, SessionStart, TurnEnd, TurnStart
from .exchange import HookedExchange

MOST_CONTINUATIONS = 3
"""How often hooks may send one turn on: a hook that is never content must not keep a model running
for ever.
"""


class HookedDriver(Driver):
    """Everything a driver does, with `hooks` asked on the way."""

    def __init__(
        self,
        *given: Any,
        hooks: Hooks,
        exchange: Callable[[], Awaitable[Exchange]],
        resources: dict[type, object],
        **more: Any,
    ) -> None:
        # A session's own: `emit` finds the hooks of its session there.
        super().__init__(
            *given, exchange=self._opened, resources={**resources, Hooks: hooks}, **more
        )
        self.hooks = hooks
        hooks.notice = self.log.notice
        hooks.identity = lambda: self.log.identity
        self._exchange_anew = exchange
        self._hooked: HookedExchange | None = None
        self._source = "startup"
        self._started = False
        self._starting = asyncio.Lock()
        self._model = ""

    # ---- the session

    def open(self, opened: events.SessionOpened | None) -> None:
        self._source = "resume" if opened is None else "startup"
        self._model = opened.model if opened is not None else ""
        super().open(opened)

    async def _start(self) -> None:
        """Once per session and process, before anything else is done. Raises HookBlocked; the next
        attempt asks again.
        """
        async with self._starting:
            if self._started:
                return
            outcome = await self.hooks.fire(SessionStart(self._source, self._model))
            self._refuse("the session was not started", outcome)
            self._started = True
            self._tell(outcome)
            if self.hooks.on("session.end"):
                self.closers.add(self._end)

    async def _end(self) -> None:
        await self.hooks.fire(SessionEnd())

    def leave(self) -> None:
        """Ask these hooks no more: another driver goes on with the session
        (`engine.agent_reload`).
        """
        self.closers.drop(self._end)

    def go_on(self, before: Driver) -> None:
        """Go on with a session that another driver began, whose log and closers this one has by
        now. It is not started twice.
        """
        self.hooks.notice = self.log.notice
        self._started = before._started if isinstance(before, HookedDriver) else self.log.begun
        self._source = "resume" if self.log.begun else "startup"
        if self._started and self.hooks.on("session.end"):
            self.closers.add(self._end)

    # ---- turns

    async def run(self, started: events.RunStarted, run: str = "") -> Finish:
        """One message worked to its end; hooks at its end may send it on, at most
        `MOST_CONTINUATIONS` times.
        """
        self._model = started.model
        await self._start()
        self.hooks.stop = ""
        for continued in range(MOST_CONTINUATIONS + 1):
            asked = await self.hooks.fire(TurnStart(started.text))
            self._refuse("the message was refused", asked)
            assert isinstance(asked.payload, TurnStart)
            self._tell(asked)
            begun = replace(started, text=asked.payload.text)
            finish = await self._finished(
                await super().run(begun, "" if continued else run), continued
            )
            if isinstance(finish, Finish):
                return finish
            # Only what was done is sent on: it has done what was required of it.
            started = replace(started, text=finish, require=())
        raise AssertionError("unreachable")

    async def resume(self, reason: str) -> Finish | None:
        await self._start()
        finish = await super().resume(reason)
        if finish is not None:
            await self._finished(finish, MOST_CONTINUATIONS)
        return finish

    async def _finished(self, finish: Finish, continued: int) -> Finish | str:
        """The end of a turn; a text is what the model must go on with."""
        if finish.stop in ("failed", "limit"):
            await self.hooks.fire(Failed("run", finish.code, finish.detail))
        ended = await self.hooks.fire(
            TurnEnd(finish.text, finish.stop, finish.code, finish.detail, continued)
        )
        self._tell(ended)
        if ended.blocked and finish.stop == "done" and not self.hooks.stop:
            if continued < MOST_CONTINUATIONS:
                return f"[{ended.blocked}]"
            self.log.notice(
                "hook", f"the turn ended after {continued} continuations, against {ended.blocked}"
            )
        self.log.flush()
        return finish

    async def call(self, tool: str, arguments: dict[str, Any], *, by: str = "person") -> Result:
        if not self._started:
            await self._start()
        return await super().call(tool, arguments, by=by)

    # ---- questions and answers

    def reopen(self) -> None:
        super().reopen()
        self._hooked = None

    async def _opened(self) -> Exchange:
        if not self._started:
            # Nothing was run yet: a person has the context compacted.
            await self._start()
        self._hooked = HookedExchange(
            await self._exchange_anew(), self._exchange_anew, self.hooks, self._say
        )
        self._hooked.round = self.machine.round
        return self._hooked

    async def _ask_model(self, command: AskModel) -> list[Command]:
        if self.hooks.stop:
            return self._feed(events.ModelFailed("hook_stopped", self.hooks.stop))
        if self._hooked is not None:
            self._hooked.round = command.round
        commands = await super()._ask_model(command)
        if self._hooked is None or not self._hooked.refused:
            return commands
        why, self._hooked.refused = self._hooked.refused, ""
        calls = [each.call for each in commands if isinstance(each, Evaluate)]
        rest: list[Command] = [each for each in commands if not isinstance(each, Evaluate)]
        for call in calls:
            rest += self._feed(_refusal(call, why))
        return rest

    # ---- what hooks say

    def _say(self, text: str, hook: str, at_once: bool) -> None:
        self._feed(events.NoticeGiven(text, f"hook:{hook}", at_once))

    def _tell(self, outcome: Outcome) -> None:
        for hook, text in outcome.context:
            self._say(text, hook, False)

    def _refuse(self, what: str, outcome: Outcome) -> None:
        if not outcome.blocked:
            return
        self.log.notice("hook", f"{what} by {outcome.blocked}")
        self.log.flush()
        code = "hook_broken" if outcome.broken else "hook_blocked"
        raise HookBlocked(f"{what} by {outcome.blocked}", code=code)

    _STEPS: ClassVar[dict[type, Callable[[Any, Any], Coroutine[Any, Any, list[Command]]]]] = {
        **Driver._STEPS,
        AskModel: _ask_model,
    }


def _refusal(call: Call, why: str) -> events.CallEvaluated:
    message = f"`{call.tool}` was not run: the answer was withheld by {why}"
    result = Result.error(call, ErrorType.PERMISSION_DENIED, message)
    return events.CallEvaluated(call.id, "refuse", message, effect="none", result=result)


def session_hooks(
    given: Iterable[Hook | EventHook | Hooks], *, workspace: str, mode: str
) -> tuple[Hooks, tuple[Hook, ...]]:
    """The hooks of a new session, and those of them that sit around its calls."""
    from .call_adapter import around_calls

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
        workspace=workspace,
        mode=mode,
    )
    return hooks, around_calls(flat, hooks)
