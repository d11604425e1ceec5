"""The machine: decides what happens next in a session. No I/O, no clock, no sleep, no randomness.

    feed(event) -> commands

Rules of this file, each a promise with a test:

* Every call gets exactly one result. The first one counts; whatever arrives later is ignored.
* A call goes idle -> evaluating policy -> (awaiting permission) -> executing -> completed, never
  back, except that a hook's change of arguments may send it from executing to awaiting permission.
* All calls of a turn are evaluated before any runs. Calls that do not conflict run together;
  conflicting ones keep the model's order. A person is asked one question at a time.
* `history` is valid for every provider whenever a command is outstanding or the run is over: each
  assistant message with calls is followed by exactly its results, in the model's order, and a run
  that stopped early ends with an assistant message that says so.
* A notice reaches the model once: with the results of the turn in which it arrived, else with the
  next message.
* A run that must end with an output ends only with one that was checked and fits, or with an error.
  An answer that does not fit goes back to the model; one that was cut is never checked.
* What a provider's content filter refused is not sent again: its text is left out of `history`
  (which is a new list then), and so is an answer that was withheld.
* Compaction takes messages out of `history` (which is a new list then), never out of the session:
  undoing it restores the full history (`compaction`).
* Feeding the same events again gives the same state. So a journal is a session, and a crash costs
  at most the call that was running: `Recovered` settles it.
* Events in any order are survived: one that does not fit the state changes nothing.

What this file cannot see: whether the driver tells the truth. It trusts that `CallStarted` was
journaled before an effect and `ToolAnswered` after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from . import events, notices, output
from .call_states import (
    ACTIVE_PHASES,
    CallSlot,
    CallState,
    RepeatBreaker,
    RunPhase,
    assign_call_ids,
    conclude_run,
    recover_calls,
    refuse_excess_call,
    start_ready_calls,
)
from .calls import ErrorType, ToolResult, parse_json
from .commands import AskModel, CheckOutput, Command, EvaluateCall, FinishRun, RunCall
from .compaction import Compaction
from .join_policy import MAX_PARALLEL_CALLS, stop_unneeded_calls
from .limits import Limits
from .media import shift_media
from .messages import (
    REFUSED,
    REFUSED_CODE,
    AssistantMessage,
    Message,
    ToolMessage,
    UserMessage,
    decode_messages,
    leave_out_refused,
)
from .vocabulary import Refuser, RunStop


class Machine:
    """The state of one session: new, or rebuilt from a journal with `rebuild`."""

    def __init__(self) -> None:
        self.phase = RunPhase.IDLE
        self.turn = 0
        """The number of model answers requested in this run."""
        self.usage = events.Usage()
        """Tokens of this run, those of sub-agents included."""
        self.spent: list[events.Spent] = []
        """The same, answer by answer."""
        self.limits = Limits()
        self.history: list[Message] = []
        """The messages that the model is sent."""
        self.has_media = False
        """Whether any message was more than text."""
        self.compaction = Compaction()
        self.call_ids: set[str] = set()
        """The ids of all calls in this session: a new call must have another one."""
        self.output_attempts: list[output.OutputAttempt] = []
        """The answers of this run that did not give the output it must end with."""
        self.output_request: output.OutputRequest | None = None
        """The output that this run must end with."""
        self.first_instructions = ""
        """What functions of the program said for the first run: the end of the system text."""
        self._instructions: str | None = None
        self._earlier_instructions: str | None = None
        self._model = ""
        self._candidate = ""
        self._finish = FinishRun("done")
        self._required: tuple[str, ...] = ()
        self._join = 0
        self._shows_envelopes = False
        self._is_last_answer = False
        self._slots: dict[str, CallSlot] = {}
        self._turn_calls: list[CallSlot] = []
        self._direct: list[CallSlot] = []
        self._notices: list[events.NoticeGiven] = []
        self._repeats = RepeatBreaker()

    def feed(self, event: events.Event) -> list[Command]:
        """Apply an event to the state, and return the commands that follow."""
        handler = self._HANDLERS.get(type(event))
        return handler(self, event) if handler else []

    def rebuild(self, journal: list[events.Event]) -> None:
        """Restore the state that a journal describes, dropping its commands.

        Feed `Recovered` afterwards to get the commands that are still open.
        """
        for event in journal:
            self.feed(event)

    @property
    def is_active(self) -> bool:
        """True while a run has not ended."""
        return self.phase in ACTIVE_PHASES

    def find_slot(self, call_id: str) -> CallSlot | None:
        """Return a call of this run and its state, or None if there is no such call."""
        return self._slots.get(call_id)

    def forget_call(self, call_id: str) -> None:
        """Drop the arguments and the result's data of a finished call, which the journal has."""
        slot = self._slots.get(call_id)
        if slot is not None and slot.result is not None:
            slot.forget_data()

    def results(self) -> list[ToolResult]:
        """Return the results of the model's calls in this run so far, in the order of the calls."""
        model_calls = [slot for slot in self._slots.values() if not slot.direct]
        return [slot.result for slot in model_calls if slot.result is not None]

    def open_calls(self) -> list[CallSlot]:
        """Return the calls that have no result yet, in order."""
        return [slot for slot in self._slots.values() if slot.result is None]

    # ---- what opens work

    def _on_session_opened(self, event: events.SessionOpened) -> list[Command]:
        """Remember how results are shown to the model."""
        self._shows_envelopes = event.results == "envelope"
        return []

    def _on_run_started(self, event: events.RunStarted) -> list[Command]:
        """Begin a run: reset what is counted per run, add the message, and ask the model."""
        if self.is_active:
            self._stop(ErrorType.CANCELLED, "a new message arrived", "cancelled")
        self.limits = event.limits
        self.turn = 0
        self.usage = events.Usage()
        self.spent = []
        self._model = event.model
        self._required = event.require
        self._join = event.join
        self.output_request = event.output_request
        self.output_attempts = []
        self._is_last_answer = False
        self._repeats = RepeatBreaker()
        self._slots = {slot.call.id: slot for slot in self._direct if slot.result is None}

        text = notices.prepend_notices(self._notices, event.text) if self._notices else event.text
        if self._instructions is None:
            self.first_instructions = event.instructions
        elif event.instructions != self._instructions:
            text = notices.prepend_instructions(event.instructions or "(none)", text)
        self._earlier_instructions = self._instructions
        self._instructions = event.instructions
        media = event.media
        if media:
            self.has_media = True
            media = shift_media(media, len(text) - len(event.text))
        self.history.append(UserMessage(text, media))
        return self._ask_model()

    def _on_history_given(self, event: events.HistoryGiven) -> list[Command]:
        """Begin with messages of an earlier conversation; ignored once there are others."""
        if self.history or self.is_active:
            return []
        self.history = list(decode_messages(event.messages))
        for message in self.history:
            if isinstance(message, AssistantMessage):
                self.call_ids.update(call.id for call in message.calls)
            elif message.media:
                self.has_media = True
        return []

    def _on_notice_given(self, event: events.NoticeGiven) -> list[Command]:
        self._notices.append(event)
        if event.at_once and self.phase is RunPhase.AWAITING_MODEL:
            notices.append_notices(self._notices, self.history)
        return []

    @property
    def has_waiting_notices(self) -> bool:
        """Whether there are notices that no request has taken along yet."""
        return bool(self._notices)

    def _on_context_added(self, event: events.ContextAdded) -> list[Command]:
        if not self.is_active:
            self.history.append(UserMessage(event.text))
        return []

    def _on_context_compacted(self, event: events.ContextCompacted) -> list[Command]:
        self.history = self.compaction.apply(event, self.history)
        self._count(event.model or self._model, event.usage)
        return []

    def _on_context_restored(self, event: events.ContextRestored) -> list[Command]:
        self.history = self.compaction.restore(self.history)
        return []

    def _on_direct_call(self, event: events.DirectCall) -> list[Command]:
        """Take a call that no model made, and have it evaluated."""
        call = event.call
        if not call.id or call.id in self.call_ids:
            return []
        slot = CallSlot(call, direct=True, state=CallState.EVALUATING)
        self.call_ids.add(call.id)
        self._slots[call.id] = slot
        self._direct.append(slot)
        return [EvaluateCall(call)]

    def _ask_model(self) -> list[Command]:
        """Ask the model for its next answer, or end the run if its turns are used up."""
        if self.turn >= self.limits.turns:
            if self.limits.on_limit != "answer":
                reason = f"{self.turn} turns"
                return self._stop(ErrorType.LIMIT, reason, "limit", "limit_max_turns")
            self._is_last_answer = True
        self._close_turn()
        if self._notices:
            notices.append_notices(self._notices, self.history)
        if self._is_last_answer and self.output_request is not None:
            self.history.append(UserMessage(output.describe_last_answer(self.output_request)))
        self.phase = RunPhase.AWAITING_MODEL
        self.turn += 1
        return [AskModel(self.turn, tools=not self._is_last_answer)]

    # ---- the model

    def _on_model_answered(self, event: events.ModelAnswered) -> list[Command]:
        """Add the answer to the history, then have its calls evaluated or end the run."""
        if self.phase is not RunPhase.AWAITING_MODEL:
            return []
        self._count(event.model or self._model, event.usage)
        event = assign_call_ids(event, self.call_ids, self.turn)
        calls = () if self._is_last_answer else event.calls
        if not calls:
            return self._take_answer(event)

        self.history.append(AssistantMessage(event.text, calls, event.reasoning, event.raw))
        if event.output:
            self._notices.append(events.NoticeGiven(output.NOT_TAKEN, "output"))
        self.phase = RunPhase.RUNNING_CALLS
        commands: list[Command] = []
        most = min(self.limits.max_calls_per_turn, MAX_PARALLEL_CALLS)
        for index, call in enumerate(calls):
            slot = CallSlot(call, state=CallState.EVALUATING)
            self.call_ids.add(call.id)
            self._slots[call.id] = slot
            self._turn_calls.append(slot)
            refusal = (
                self._repeats.refuse_repeat(call)
                if index < most
                else refuse_excess_call(call, most)
            )
            if refusal:
                slot.complete(refusal)
            else:
                commands.append(EvaluateCall(call))
        return commands or self._advance()

    def _take_answer(self, answer: events.ModelAnswered) -> list[Command]:
        """Add an answer without calls; end the run with it, or have its output checked."""
        at_limit = self.limits.turns if self._is_last_answer else 0
        finish = conclude_run(answer, self.usage, at_limit, self._required, self._slots.values())
        if answer.stop == "filter":
            self._leave_out_refused()
            self.phase = RunPhase.FINISHED
            return [finish]
        text = "\n\n".join(part for part in (answer.text, answer.output) if part)
        self.history.append(
            AssistantMessage(text or "(no answer)", (), answer.reasoning, answer.raw)
        )
        if self.output_request is None:
            self.phase = RunPhase.FINISHED
            return [finish]
        self.phase = RunPhase.CHECKING_OUTPUT
        self._candidate = answer.output or answer.text
        self._finish = finish
        if answer.stop == "length":
            return self._send_back((output.CUT_PROBLEM,))
        return [CheckOutput(self._candidate)]

    def _on_output_checked(self, event: events.OutputChecked) -> list[Command]:
        """End the run with the output, or send the answer back to the model."""
        if self.phase is not RunPhase.CHECKING_OUTPUT:
            return []
        if event.problems:
            return self._send_back(event.problems, final=event.final)
        self.phase = RunPhase.FINISHED
        is_string = event.output.startswith('"')
        text = str(parse_json(event.output)) if is_string else event.output
        return [replace(self._finish, text=text, output=event.output)]

    def _send_back(self, problems: tuple[str, ...], *, final: bool = False) -> list[Command]:
        """Tell the model why its answer does not fit, or end the run if it was told enough."""
        request = self.output_request
        assert request is not None
        self.output_attempts.append(output.OutputAttempt(self._candidate, problems))
        is_over = self.turn >= self.limits.turns and self.limits.on_limit != "answer"
        is_told = len(self.output_attempts) > request.retries
        if final or is_told or is_over or self._is_last_answer:
            self.phase = RunPhase.FINISHED
            detail = output.describe_failure(self.output_attempts)
            return [FinishRun("failed", "", output.OUTPUT_INVALID_CODE, detail, self.usage)]
        self.history.append(UserMessage(output.describe_problems(problems)))
        return self._ask_model()

    def _on_model_failed(self, event: events.ModelFailed) -> list[Command]:
        if self.phase is not RunPhase.AWAITING_MODEL:
            return []
        if event.code == REFUSED_CODE:
            self._leave_out_refused()
            self.phase = RunPhase.FINISHED
            finish = FinishRun("failed", "", event.code, event.detail, self.usage, event.hint)
            return [finish]
        return self._stop(
            ErrorType.CANCELLED, event.detail, "failed", event.code, event.hint, event.text
        )

    def _leave_out_refused(self) -> None:
        """Leave out what the provider refused, and close the history without its answer."""
        is_first_request = self.turn == 1
        self.history = leave_out_refused(self.history, self.compaction.head_length)
        self.history.append(AssistantMessage(REFUSED.format(what="the message before")))
        if is_first_request and self._earlier_instructions is not None:
            self._instructions = self._earlier_instructions

    # ---- the calls

    def _on_call_evaluated(self, event: events.CallEvaluated) -> list[Command]:
        """Keep the decision about a call, then start the calls that may start now."""
        slot = self._slots.get(event.call_id)
        if slot is None or slot.result is not None or slot.state is CallState.AWAITING_APPROVAL:
            return []
        slot.evaluation = event
        if event.verdict == "refuse":
            denied = ToolResult.refusal(slot.call, "rule" if event.rule else "gate", event.reason)
            slot.complete(event.result or denied)
        elif slot.state is CallState.EXECUTING:
            # A hook changed the arguments after approval: what was approved is not what would run.
            slot.state = CallState.EVALUATING
        return self._advance()

    def _on_person_answered(self, event: events.PersonAnswered) -> list[Command]:
        """Run the approved call, or complete it as denied.

        An approval of other arguments than those that would run counts as a denial.
        """
        slot = self._slots.get(event.call_id)
        if slot is None or slot.state is not CallState.AWAITING_APPROVAL or slot.evaluation is None:
            return []
        if event.choice not in ("once", "session", "remember", "mode"):
            return self._deny(slot, event.note or "denied", event.refused_by or "person")
        if event.digest != slot.evaluation.digest:
            return self._deny(slot, event.note or "approved for other arguments", "gate")
        slot.state = CallState.EXECUTING
        slot.approved = True
        slot.shown = event.shown
        return [RunCall(slot.call, slot.evaluation, slot.shown), *self._advance()]

    def _deny(self, slot: CallSlot, reason: str, refused_by: Refuser) -> list[Command]:
        """Complete a call as denied, then go on with the turn."""
        slot.complete(ToolResult.refusal(slot.call, refused_by, f"not run: {reason}"))
        return self._advance()

    def _on_call_started(self, event: events.CallStarted) -> list[Command]:
        """Mark a call as started: from now on it may have had its effect."""
        slot = self._slots.get(event.call_id)
        if slot is not None:
            slot.started = slot.result is None
        return []

    def _on_tool_answered(self, event: events.ToolAnswered) -> list[Command]:
        """Complete the call with its result, then go on with the turn."""
        slot = self._slots.get(event.result.call_id)
        if slot is None or slot.result is not None:
            return []
        polls = slot.evaluation is not None and slot.evaluation.polls
        if polls or slot.direct:
            slot.complete(event.result)
        else:
            slot.complete(self._repeats.count_result(slot.call, event.result))
        return self._advance()

    def _on_delegation_finished(self, event: events.DelegationFinished) -> list[Command]:
        self._count("", event.usage)
        return []

    def _count(self, model: str, usage: events.Usage) -> None:
        self.usage += usage
        self.spent.append((model, usage))

    def _advance(self) -> list[Command]:
        """Start all that may start now; once all calls of the turn are answered, go on."""
        waiting = [slot for slot in self._turn_calls if slot.result is None]
        if self._direct:
            self._direct = [slot for slot in self._direct if slot.result is None]
        commands = (
            stop_unneeded_calls(self._join, self._turn_calls) if self._join and waiting else []
        )
        if waiting or self._direct:
            # No call of a turn runs before all were evaluated; the last one is evaluated last.
            all_evaluated = all(slot.evaluation for slot in reversed(waiting))
            ready = waiting if all_evaluated else []
            commands += start_ready_calls([*self._direct, *ready], [*self._direct, *waiting])
        if self.phase is RunPhase.RUNNING_CALLS and not waiting:
            commands += self._ask_model()
        return commands

    def _close_turn(self) -> None:
        """Move the results of the turn into the history."""
        for slot in self._turn_calls:
            result = slot.result
            assert result is not None
            shows_envelope = self._shows_envelopes
            text = result.to_text(envelope=True) if shows_envelope else result.to_model_text()
            self.has_media = self.has_media or bool(result.media)
            self.history.append(
                ToolMessage(slot.call.id, slot.call.tool, text, result.success, result.media)
            )
        self._turn_calls = []

    # ---- what ends or restarts work

    def _on_cancelled(self, event: events.Cancelled) -> list[Command]:
        reason = event.reason or "cancelled"
        if event.call_id:
            return self._cancel_call(event.call_id, reason)
        if not self.is_active:
            return []
        return self._stop(ErrorType.CANCELLED, reason, "cancelled", text=event.text)

    def _cancel_call(self, call_id: str, reason: str) -> list[Command]:
        slot = self._slots.get(call_id)
        if slot is None or slot.result is not None:
            return []
        slot.abandon(ErrorType.CANCELLED, reason)
        return self._advance()

    def _on_limit_hit(self, event: events.LimitHit) -> list[Command]:
        if not self.is_active:
            return []
        reason = f"{event.limit} = {event.value:g}"
        return self._stop(ErrorType.LIMIT, reason, "limit", f"limit_{event.limit}", text=event.text)

    def _stop(
        self,
        error: ErrorType,
        reason: str,
        stop: RunStop,
        code: str = "",
        hint: str = "",
        text: str = "",
    ) -> list[Command]:
        """Complete every open call and end the run; `text` is of an answer that was cut."""
        for slot in self.open_calls():
            slot.abandon(error, reason)
        self._close_turn()
        if text:
            self._close_history(f"{text}\n\n[cut here: the run was stopped: {reason}]")
        else:
            self._close_history(f"[no answer: the run was stopped: {reason}]")
        self.phase = RunPhase.FINISHED
        return [FinishRun(stop, "", code or stop, reason, self.usage, hint)]

    def _close_history(self, text: str) -> None:
        """End the history with an assistant message that says why there is no answer."""
        if self.phase is RunPhase.CHECKING_OUTPUT:
            unchecked = self.history.pop()
            text = f"{unchecked.text}\n\n{text}"
        self.history.append(AssistantMessage(text))

    def _on_run_finished(self, event: events.RunFinished) -> list[Command]:
        """Stop the run if it is still active."""
        if self.is_active:
            self._stop(ErrorType.CANCELLED, event.detail or event.stop, event.stop)
        return []

    def _on_recovered(self, event: events.Recovered) -> list[Command]:
        commands = recover_calls(self.open_calls(), event)
        if self.phase is RunPhase.AWAITING_MODEL:
            return [*commands, AskModel(self.turn, tools=not self._is_last_answer)]
        if self.phase is RunPhase.CHECKING_OUTPUT:
            return [*commands, CheckOutput(self._candidate)]
        return commands or self._advance()

    def _on_call_probed(self, event: events.CallProbed) -> list[Command]:
        slot = self._slots.get(event.call_id)
        if slot is None or slot.result is not None or slot.evaluation is None or not slot.started:
            return []
        slot.started = False
        return [RunCall(slot.call, slot.evaluation)]

    _HANDLERS: ClassVar[dict[type, Callable[[Machine, Any], list[Command]]]] = {
        events.SessionOpened: _on_session_opened,
        events.RunStarted: _on_run_started,
        events.HistoryGiven: _on_history_given,
        events.ContextAdded: _on_context_added,
        events.NoticeGiven: _on_notice_given,
        events.ContextCompacted: _on_context_compacted,
        events.ContextRestored: _on_context_restored,
        events.DirectCall: _on_direct_call,
        events.ModelAnswered: _on_model_answered,
        events.ModelFailed: _on_model_failed,
        events.OutputChecked: _on_output_checked,
        events.CallEvaluated: _on_call_evaluated,
        events.PersonAnswered: _on_person_answered,
        events.CallStarted: _on_call_started,
        events.ToolAnswered: _on_tool_answered,
        events.DelegationFinished: _on_delegation_finished,
        events.Cancelled: _on_cancelled,
        events.LimitHit: _on_limit_hit,
        events.RunFinished: _on_run_finished,
        events.Recovered: _on_recovered,
        events.CallProbed: _on_call_probed,
    }
