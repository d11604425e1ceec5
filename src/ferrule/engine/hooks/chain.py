"""The hooks of a session in order. They are asked one after another; the first refusal ends it.

    outcome = await hooks.fire(TurnStart("delete everything"))

Rules of this file:

* Lower priority number first; among equals, in the order in which they were given.
* A hook that raises, times out, gives an invalid answer, or whose `when` fails is *broken*. At an
  event that can be refused (`GATING`) that is a refusal, unless the hook says `on_error: allow`
  (then it is a notice) or `ask`. Elsewhere it is a notice.
* Changes chain: a hook sees what the hooks before it made of the payload, as a copy of its own.
* Nothing here is journaled but notices; a refusal is in the journal as the result or the error that
  it becomes.

Not protected: a Python hook is part of this program and can do anything; a blocking one that times
out is left behind in its thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import PermissionMode

from .answers import read_answer
from .broken_guards import log_broken_guard
from .events import (
    GATING,
    Action,
    DelegationPost,
    DelegationPre,
    EventHook,
    Failed,
    Occasion,
    Payload,
)

Delegate = Callable[[Mapping[str, Any], Identity], Awaitable[Any]]
"""Has another agent do a request for somebody, and returns its answer: text or a JSON value.

It brings its own gate; the agent must be made with the same hooks.
"""

NOBODY = Identity("local", "unknown", "none", "none")


@frozen
class Outcome:
    """What all hooks together made of an event.

    Attributes:
        payload: The payload as they changed it.
        blocked: The refusal, with hook and reason; "" if there was none.
        reason: The reason alone.
        broken: Whether it is a refusal because the hook failed.
        asked: A request for a person's approval.
        context: What the model should read, by hook.
    """

    payload: Payload
    blocked: str = ""
    reason: str = ""
    broken: bool = False
    asked: str = ""
    context: tuple[tuple[str, str], ...] = ()


@frozen
class HookContext:
    """One hook's action; `broken` if it follows from the hook's failure."""

    action: Action
    broken: bool = False


@frozen
class HookPlace:
    """The session that hooks are asked in.

    Attributes:
        notice: Tells a person something: a topic and a text.
        identity: Returns the session's current identity.
        workspace: The folder of its workspace.
        mode: The permission mode that it began with.
        delegate: The session's own way to delegate, which asks the hooks itself
            (`engine.delegation.delegation`); None if it has no agents. Raises ToolFailed.
        agent: The name of the sub-agent whose session it is; "" for no sub-agent's.
    """

    notice: Callable[[str, str], None] = lambda topic, text: None
    identity: Callable[[], Identity] = lambda: NOBODY
    workspace: str = ""
    mode: PermissionMode = "default"
    delegate: Callable[[Mapping[str, Any]], Awaitable[Any]] | None = None
    agent: str = ""


NOWHERE = HookPlace()


class Hooks:
    """The hooks of one session.

    Given to an Agent, it passes its hooks and its `delegate` on to each session's own. `delegate`
    does the work of calls that a hook delegates; without it such a call is refused. `place` is the
    session that they are asked in.
    """

    def __init__(
        self,
        hooks: Iterable[EventHook],
        *,
        delegate: Delegate | None = None,
        place: HookPlace = NOWHERE,
    ) -> None:
        self.hooks = tuple(sorted(hooks, key=lambda hook: hook.priority))
        self.added: tuple[EventHook, ...] = ()
        """Hooks that were added while the session ran (`engine.registration.registration`)."""
        self.place = place
        self.notice = place.notice
        self.stop = ""
        """Why the model must not be asked again in this run; emptied with the next one."""
        self.arguments: dict[str, Mapping[str, Any]] = {}
        """The arguments of running calls, by call id, as JSON values."""
        self.delegate = delegate
        self._by_event: dict[str, tuple[EventHook, ...]] = {}

    def begin_run(self) -> None:
        """Let the model be asked again, whatever a hook said in an earlier run."""
        self.stop = ""

    def for_event(self, event: str) -> tuple[EventHook, ...]:
        """Return the hooks on an event, in order."""
        found = self._by_event.get(event)
        if found is None:
            found = self._by_event[event] = tuple(
                hook for hook in self.hooks if hook.handles(event)
            )
        return found

    def add(self, hook: EventHook) -> None:
        """Add a hook, from the next event on.

        Calls have a list of their own (`call_adapter.insert_call_hook`).
        """
        self.hooks = tuple(sorted((*self.hooks, hook), key=lambda one: one.priority))
        self.added = (*self.added, hook)
        self._by_event = {}

    async def fire(self, payload: Payload) -> Outcome:
        """Ask the hooks of this event. Never raises for what a hook does."""
        occasion = self.build_occasion(payload)
        outcome = Outcome(occasion.payload)
        for hook in self.for_event(occasion.event):
            hook_answer = await self.ask(hook, replace(occasion, payload=outcome.payload))
            outcome = _combine(outcome, hook, hook_answer)
            if outcome.blocked:
                break
        if outcome.asked and not outcome.blocked:
            # Only a call can be approved by a person; elsewhere asking for approval is a refusal.
            outcome = replace(outcome, blocked=outcome.asked, reason=outcome.asked)
        return outcome

    def build_occasion(self, payload: Payload) -> Occasion:
        """Return this event with its circumstances."""
        place = self.place
        who = place.identity()
        if place.agent:
            payload = replace(payload, agent_type=place.agent, agent_id=who.session)
        return Occasion(
            payload, who, place.workspace, place.mode, lambda line: place.notice("hook", line)
        )

    async def ask(self, hook: EventHook, occasion: Occasion) -> HookContext:
        """Ask one hook. A broken one answers as its `on_error` says."""
        try:
            if hook.when is not None and not hook.when(occasion):
                return HookContext(Action())
            async with asyncio.timeout(hook.timeout):
                # Its own copy: an answer is compared with the original, and a change in place has
                # no effect.
                answer = await hook.run(replace(occasion, payload=occasion.payload.copy()))
            action = read_answer(answer, occasion.payload)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled us: something the hook waited for was cancelled.
            return await self._report_broken(hook, occasion, "it cancelled itself")
        except (Exception, SystemExit) as error:  # noqa: BLE001  boundary: a broken hook is a no (fail closed)
            log_broken_guard(f"the hook `{hook.name}`", occasion.event, error)
            return await self._report_broken(hook, occasion, _describe_error(error, hook))
        if action.message:
            self.notice("hook", f"`{hook.name}`: {action.message}")
        if action.payload is not None:
            changed = ", ".join(f"`{key}`" for key in sorted(action.payload))
            self.notice("hook", f"`{hook.name}` changed {changed} of `{occasion.event}`")
        if action.stop and not self.stop:
            self.stop = f"stopped by the hook `{hook.name}`: {action.stop}"
        return HookContext(action)

    async def _report_broken(self, hook: EventHook, occasion: Occasion, why: str) -> HookContext:
        self.notice("hook", f"`{hook.name}` is broken: {why}")
        if occasion.payload.event != "error":
            await self.fire(Failed("hook", "hook_broken", why, hook.name))
        if occasion.payload.event not in GATING or hook.on_error == "allow":
            return HookContext(Action(), broken=True)
        verdict = "ask" if hook.on_error == "ask" else "block"
        return HookContext(Action(verdict, f"it failed: {why}"), broken=True)

    async def delegate_call(self, request: Mapping[str, Any]) -> Any:
        """Have a call's work done by another agent.

        Raises ToolFailed for a refusal, or if there is no other agent.
        """
        if self.delegate is None and self.place.delegate is not None:
            return await self.place.delegate(request)
        agent = str(request.get("agent", ""))
        before = await self.fire(DelegationPre(agent, request))
        if before.blocked:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, f"nothing was delegated: {before.blocked}"
            )
        if self.delegate is None:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                "a hook delegates this call, and there is no agent to delegate to",
            )
        assert isinstance(before.payload, DelegationPre)
        request = before.payload.request
        answer = await self.delegate(request, self.place.identity())
        after = await self.fire(DelegationPost(agent, request, answer))
        if after.blocked:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, f"the delegated answer was withheld: {after.blocked}"
            )
        assert isinstance(after.payload, DelegationPost)
        return after.payload.result


def _combine(outcome: Outcome, hook: EventHook, hook_answer: HookContext) -> Outcome:
    action = hook_answer.action
    if action.payload is not None:
        outcome = replace(outcome, payload=outcome.payload.replace(action.payload))
    if action.context:
        outcome = replace(outcome, context=(*outcome.context, (hook.name, action.context)))
    if action.verdict == "block":
        return replace(
            outcome,
            blocked=describe_refusal(hook, action),
            reason=action.reason,
            broken=hook_answer.broken,
        )
    if action.verdict == "ask" and not outcome.asked:
        return replace(outcome, asked=describe_refusal(hook, action), broken=hook_answer.broken)
    return outcome


def describe_refusal(hook: EventHook, action: Action) -> str:
    """Return hook and reason, as they are shown to whoever was refused."""
    return f"the hook `{hook.name}`: {action.reason}"


def _describe_error(error: BaseException, hook: EventHook) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {hook.timeout:g} s"
    if isinstance(error, (FerruleError, ToolFailed)):
        return str(error)
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  boundary: the kind is all there is to say
        text = type(error).__name__
    return text[:500]
