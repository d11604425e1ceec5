"""The machine: decides what happens next in a session. No I/O, no clock, no sleep, no randomness.

    feed(event) -> commands

Rules of this file, each a promise with a test:

* Every call gets exactly one result. The first one counts; whatever arrives later is ignored.
* A call goes idle -> evaluating policy -> (awaiting permission) -> executing -> completed, never
  back, except that a hook's change of arguments may send it from executing to awaiting permission.
* All calls of a round are evaluated before any runs. Calls that do not conflict run together;
  conflicting ones keep the model's order. One question to a person at a time.
* `history` is valid for every wire whenever a command is outstanding or the run is over: each
  assistant message with calls is followed by exactly its results, in the model's order, and a run
  that stopped early ends with an assistant message that says so.
* A notice reaches the model once: with the results of the round in which it arrived, else with the
  next message.
* What is compacted leaves `history` (a new list then), never the session: undoing gives the whole
  back (`compaction`).
* Feeding the same events again gives the same state. So a journal is a session, and a crash costs
  at most the call that was running: `Recovered` settles it.
* Any event in any order is survivable: one that does not fit the state changes nothing.

What this file cannot see: whether the driver tells the truth. It trusts that `CallStarted` was
journaled before an effect and `ToolAnswered` after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from . import events, notices
from .calls import ErrorType, Result
from .calls_in_flight import ACTIVE, CallState, Phase, Slot, ending, named, start, too_many
from .commands import AskModel, Command, Evaluate, Finish, RunTool
from .compaction import Compaction
from .joins import BRANCHES, settle
from .limits import Limits
from .messages import AssistantMessage, Message, ToolMessage, UserMessage
from .recovery import recover
from .repeat_breaker import Repeats


class Machine:
    """One session. Built empty, or from a journal with `rebuild`."""

    def __init__(self) -> None:
        self.limits, self._required, self._join = Limits(), tuple[str, ...](), 0
        self.phase, self.round, self.usage = Phase.IDLE, 0, events.Usage()
        self.history, self.compaction = list[Message](), Compaction()
        self.ids: set[str] = set()
        """Of every call in this session: a new one must have another."""
        self._envelope = self._last_answer = False
        self._slots: dict[str, Slot] = {}
        self._batch: list[Slot] = []
        self._direct: list[Slot] = []
        self._notices: list[events.NoticeGiven] = []
        self._repeats = Repeats()

    def feed(self, event: events.Event) -> list[Command]:
        """Take one event in; say what to do next."""
        handler = self._HANDLERS.get(type(event))
        return handler(self, event) if handler else []

    def rebuild(self, journal: list[events.Event]) -> None:
        """Become what a journal says. Commands are dropped: feed `Recovered` to get the open
        ones.
        """
        for event in journal:
            self.feed(event)

    @property
    def active(self) -> bool:
        """True while a run is under way."""
        return self.phase in ACTIVE

    def slot(self, call_id: str) -> Slot | None:
        """Where a call is, or None if no such call was made in this run."""
        return self._slots.get(call_id)

    def results(self) -> list[Result]:
        """The answers of the model's calls in this run so far, in the order of the calls."""
        return [s.result for s in self._slots.values() if s.result is not None and not s.direct]

    def open_calls(self) -> list[Slot]:
        """Calls that have no result yet, in order."""
        return [slot for slot in self._slots.values() if slot.result is None]

    # ---- what opens work

    def _on_opened(self, event: events.SessionOpened) -> list[Command]:
        self._envelope = event.results == "envelope"
        return []

    def _on_run_started(self, event: events.RunStarted) -> list[Command]:
        if self.phase in ACTIVE:
            self._stop(ErrorType.CANCELLED, "a new message arrived", "cancelled")
        self.limits, self._required, self._join = event.limits, event.require, event.join
        text = notices.before(self._notices, event.text) if self._notices else event.text
        self.history.append(UserMessage(text))
        self._slots = {slot.call.id: slot for slot in self._direct if slot.result is None}
        self._repeats, self._last_answer = Repeats(), False
        self.round, self.usage = 0, events.Usage()
        return self._ask()

    def _on_notice_given(self, event: events.NoticeGiven) -> list[Command]:
        self._notices.append(event)
        if event.at_once and self.phase is Phase.ASKING:
            notices.deliver(self._notices, self.history)
        return []

    def _on_context_added(self, event: events.ContextAdded) -> list[Command]:
        if not self.active:
            self.history.append(UserMessage(event.text))
        return []

    def _on_compacted(self, event: events.ContextCompacted) -> list[Command]:
        self.history, self.usage = (
            self.compaction.take(event, self.history),
            self.usage + event.usage,
        )
        return []

    def _on_restored(self, event: events.ContextRestored) -> list[Command]:
        self.history = self.compaction.restore(self.history)
        return []

    def _on_direct_call(self, event: events.DirectCall) -> list[Command]:
        if not event.call.id or event.call.id in self.ids:
            return []
        self.ids.add(event.call.id)
        slot = self._slots[event.call.id] = Slot(
            event.call, direct=True, state=CallState.EVALUATING
        )
        self._direct.append(slot)
        return [Evaluate(event.call)]

    def _ask(self) -> list[Command]:
        """The next question, with what the model is to read before it; or the end, if there were
        enough.
        """
        if self.round >= self.limits.max_rounds:
            if self.limits.on_limit != "answer":
                return self._stop(
                    ErrorType.LIMIT, f"{self.round} rounds", "limit", "limit_max_rounds"
                )
            self._last_answer = True
        self._close_round()
        if self._notices:
            notices.deliver(self._notices, self.history)
        self.phase = Phase.ASKING
        self.round += 1
        return [AskModel(self.round, tools=not self._last_answer)]

    # ---- the model

    def _on_model_answered(self, event: events.ModelAnswered) -> list[Command]:
        if self.phase is not Phase.ASKING:
            return []
        self.usage += event.usage
        event = named(event, self.ids, self.round)
        calls = () if self._last_answer else event.calls
        text = event.text if event.text or calls else "(no answer)"
        self.history.append(AssistantMessage(text, calls, event.reasoning, event.raw))
        if not calls:
            self.phase, at_limit = (
                Phase.FINISHED,
                self.limits.max_rounds if self._last_answer else 0,
            )
            return [ending(event, self.usage, at_limit, self._required, self._slots.values())]
        self.phase = Phase.WORKING
        commands: list[Command] = []
        most = min(self.limits.max_calls_per_round, BRANCHES)
        for index, call in enumerate(calls):
            self.ids.add(call.id)
            slot = self._slots[call.id] = Slot(call, state=CallState.EVALUATING)
            self._batch.append(slot)
            if refusal := self._repeats.refusal(call) if index < most else too_many(call, most):
                slot.complete(refusal)
            else:
                commands.append(Evaluate(call))
        return commands or self._advance()

    def _on_model_failed(self, event: events.ModelFailed) -> list[Command]:
        if self.phase is not Phase.ASKING:
            return []
        return self._stop(ErrorType.CANCELLED, event.detail, "failed", event.code, event.hint)

    # ---- the calls

    def _on_evaluated(self, event: events.CallEvaluated) -> list[Command]:
        slot = self._slots.get(event.call_id)
        if slot is None or slot.result is not None or slot.state is CallState.AWAITING:
            return []
        slot.evaluation = event
        if event.verdict == "refuse":
            slot.complete(
                event.result or Result.error(slot.call, ErrorType.PERMISSION_DENIED, event.reason)
            )
        elif slot.state is CallState.EXECUTING:
            # A hook changed the arguments after approval: what was approved is not what would run.
            slot.state = CallState.EVALUATING
        return self._advance()

    def _on_person(self, event: events.PersonAnswered) -> list[Command]:
        slot = self._slots.get(event.call_id)
        if slot is None or slot.state is not CallState.AWAITING or slot.evaluation is None:
            return []
        if event.choice == "deny" or event.digest != slot.evaluation.digest:
            why = event.note or (
                "denied" if event.choice == "deny" else "approved for other arguments"
            )
            slot.complete(Result.error(slot.call, ErrorType.PERMISSION_DENIED, f"not run: {why}"))
            return self._advance()
        slot.state, slot.approved = CallState.EXECUTING, True
        return [RunTool(slot.call, slot.evaluation), *self._advance()]

    def _on_started(self, event: events.CallStarted) -> list[Command]:
        if slot := self._slots.get(event.call_id):
            slot.started = slot.result is None
        return []

    def _on_answered(self, event: events.ToolAnswered) -> list[Command]:
        slot = self._slots.get(event.result.call_id)
        if slot is None or slot.result is not None:
            return []
        polls = slot.evaluation is not None and slot.evaluation.polls
        observe = not (polls or slot.direct)
        slot.complete(self._repeats.observe(slot.call, event.result) if observe else event.result)
        return self._advance()

    def _on_delegated(self, event: events.DelegationFinished) -> list[Command]:
        self.usage += event.usage
        return []

    def _advance(self) -> list[Command]:
        """Start whatever may start now; when a round is answered, go on."""
        waiting = [slot for slot in self._batch if slot.result is None]
        if self._direct:
            self._direct = [slot for slot in self._direct if slot.result is None]
        commands = settle(self._join, self._batch) if self._join and waiting else []
        if waiting or self._direct:
            # Nothing of a round runs before all of it was evaluated; the last call is evaluated
            # last.
            ready = waiting if all(slot.evaluation for slot in reversed(waiting)) else []
            commands += start([*self._direct, *ready], [*self._direct, *waiting])
        if self.phase is Phase.WORKING and not waiting:
            commands += self._ask()
        return commands

    def _close_round(self) -> None:
        for slot in self._batch:
            result = slot.result
            assert result is not None
            text = result.text(envelope=self._envelope)
            self.history.append(ToolMessage(slot.call.id, slot.call.tool, text, result.success))
        self._batch = []

    # ---- what ends or restarts work

    def _on_cancelled(self, event: events.Cancelled) -> list[Command]:
        why = event.reason or "cancelled"
        if event.call_id:
            slot = self._slots.get(event.call_id)
            if slot is None or slot.result is not None:
                return []
            slot.abandon(ErrorType.CANCELLED, why)
            return self._advance()
        return self._stop(ErrorType.CANCELLED, why, "cancelled") if self.active else []

    def _on_limit(self, event: events.LimitHit) -> list[Command]:
        why, code = f"{event.limit} = {event.value:g}", f"limit_{event.limit}"
        return self._stop(ErrorType.LIMIT, why, "limit", code) if self.active else []

    def _stop(
        self, error: ErrorType, why: str, stop: str, code: str = "", hint: str = ""
    ) -> list[Command]:
        for slot in self.open_calls():
            slot.abandon(error, why)
        self._close_round()
        self.history.append(AssistantMessage(f"[no answer: the run was stopped: {why}]"))
        self.phase = Phase.FINISHED
        return [Finish(stop, "", code or stop, why, self.usage, hint)]

    def _on_finished(self, event: events.RunFinished) -> list[Command]:
        if self.active:
            self._stop(ErrorType.CANCELLED, event.detail or event.stop, event.stop)
        return []

    def _on_recovered(self, event: events.Recovered) -> list[Command]:
        commands = recover(self.open_calls(), event)
        if self.phase is Phase.ASKING:
            return [*commands, AskModel(self.round, tools=not self._last_answer)]
        return commands or self._advance()

    def _on_probed(self, event: events.CallProbed) -> list[Command]:
        slot = self._slots.get(event.call_id)
        if slot is None or slot.result is not None or slot.evaluation is None or not slot.started:
            return []
        slot.started = False
        return [RunTool(slot.call, slot.evaluation)]

    _HANDLERS: ClassVar[dict[type, Callable[[Machine, Any], list[Command]]]] = {
        events.SessionOpened: _on_opened,
        events.RunStarted: _on_run_started,
        events.ContextAdded: _on_context_added,
        events.NoticeGiven: _on_notice_given,
        events.ContextCompacted: _on_compacted,
        events.ContextRestored: _on_restored,
        events.DirectCall: _on_direct_call,
        events.ModelAnswered: _on_model_answered,
        events.ModelFailed: _on_model_failed,
        events.CallEvaluated: _on_evaluated,
        events.PersonAnswered: _on_person,
        events.CallStarted: _on_started,
        events.ToolAnswered: _on_answered,
        events.DelegationFinished: _on_delegated,
        events.Cancelled: _on_cancelled,
        events.LimitHit: _on_limit,
        events.RunFinished: _on_finished,
        events.Recovered: _on_recovered,
        events.CallProbed: _on_probed,
    }
