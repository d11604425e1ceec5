"""The state of a run and of its calls, which calls may start now, and how a run ends.

Only `machine` decides with these; others read the states.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from dataclasses import field, replace
from enum import StrEnum

from .calls import ErrorType, ToolCall, ToolResult, decode_arguments
from .commands import (
    Command,
    EvaluateCall,
    FinishRun,
    RequestApproval,
    ResolveOutcome,
    RunCall,
    StopCall,
)
from .events import Access, CallEvaluated, ModelAnswered, Recovered, Usage
from .messages import REFUSED_CODE, REFUSED_HINT
from .required_tools import REQUIRED_TOOLS_CODE, find_unmet
from .value_class import mutable


class RunPhase(StrEnum):
    """The phase of a run."""

    IDLE = "idle"
    AWAITING_MODEL = "asking"
    RUNNING_CALLS = "working"
    CHECKING_OUTPUT = "checking"
    FINISHED = "finished"


ACTIVE_PHASES = (RunPhase.AWAITING_MODEL, RunPhase.RUNNING_CALLS, RunPhase.CHECKING_OUTPUT)
"""The phases of a run that has not ended."""


class CallState(StrEnum):
    """The state of a call (the names are those of requirement 002)."""

    IDLE = "idle"
    EVALUATING = "evaluating_policy"
    AWAITING_APPROVAL = "awaiting_permission"
    EXECUTING = "executing"
    COMPLETED = "completed"


@mutable
class CallSlot:
    """A call and its state.

    Attributes:
        direct: The call belongs to no turn, so its result does not enter the history.
        approved: A person said yes to it.
        shown: The digest of what they were shown.
        started: Its start was announced and it has not been answered.
        unneeded: Enough other calls of its turn succeeded (`join_policy`).
    """

    call: ToolCall
    direct: bool = False
    state: CallState = CallState.IDLE
    evaluation: CallEvaluated | None = None
    approved: bool = False
    shown: str = ""
    started: bool = False
    unneeded: bool = False
    result: ToolResult | None = None

    def complete(self, result: ToolResult) -> None:
        """Set the result. The machine never calls this twice."""
        self.result = result
        self.state = CallState.COMPLETED

    def forget_data(self) -> None:
        """Drop the arguments and what the result holds of data."""
        self.call = ToolCall(self.call.id, self.call.tool)
        if self.result is not None:
            self.result = replace(self.result, data=None, notes=())

    def abandon(self, error: ErrorType, reason: str) -> None:
        """Complete a call that nothing else will answer, stating what is known about its effect."""
        announced = self.evaluation is not None and self.evaluation.is_announced
        if self.state is CallState.EXECUTING and not announced:
            message = f"stopped: {reason}"
        elif not self.started:
            message = f"not run: {reason}"
        else:
            message = (
                f"outcome unknown: {reason} while it ran; check what it did before doing it again"
            )
        result = ToolResult.error(self.call, error, message)
        refused = error is ErrorType.LIMIT and not self.started
        self.complete(replace(result, refused_by="limit") if refused else result)


def refuse_excess_call(call: ToolCall, most: int) -> ToolResult:
    """Return the result of a call beyond the limit of calls per turn."""
    message = f"not run: at most {most} calls per answer; ask again for the rest"
    return replace(ToolResult.error(call, ErrorType.LIMIT, message), refused_by="limit")


def start_ready_calls(slots: Iterable[CallSlot], open_slots: Iterable[CallSlot]) -> list[Command]:
    """Start the calls that may run now, and return the commands for them.

    A call may run once it is evaluated and conflicts with no unfinished call before it. If it needs
    an approval, the command asks for that instead. There is one approval request at a time: while
    one of the `open_slots` awaits a person, no other is made. A direct call is never held back by
    others, because the call that made it is running and would wait for ever.
    """
    commands: list[Command] = []
    earlier: list[Access] = []
    awaiting_person = any(slot.state is CallState.AWAITING_APPROVAL for slot in open_slots)
    for slot in slots:
        if slot.result is not None or slot.evaluation is None or slot.unneeded:
            continue
        access = slot.evaluation.access
        ready = slot.state is CallState.EVALUATING
        if not slot.direct:
            ready = ready and not any(other.conflicts_with(access) for other in earlier)
            earlier.append(access)
        if not ready:
            continue
        if slot.evaluation.verdict == "allow":
            slot.state = CallState.EXECUTING
            commands.append(RunCall(slot.call, slot.evaluation))
        elif not awaiting_person:
            awaiting_person = True
            slot.state = CallState.AWAITING_APPROVAL
            commands.append(RequestApproval(slot.call, slot.evaluation))
    return commands


def recover_calls(slots: Iterable[CallSlot], event: Recovered) -> list[Command]:
    """Return the commands that settle calls which a dead process left open, or start them again.

    A call that can have no effect starts again. One that was announced may have had its effect:
    `ResolveOutcome` makes the driver find out, from the tool's probe or from a person, or say that
    nobody knows. Recoveries in journals of older versions did not ask (`Recovered.asks` is False);
    their calls get an unknown outcome at once, as they did then.
    """
    reason = event.reason or "the process ended"
    commands: list[Command] = []
    for slot in slots:
        if slot.started and slot.evaluation and slot.evaluation.is_announced:
            if event.asks and not slot.unneeded:
                commands.append(ResolveOutcome(slot.call, slot.evaluation, reason))
            else:
                slot.abandon(ErrorType.INTERNAL_ERROR, reason)
        elif slot.unneeded:
            commands.append(StopCall(slot.call, "enough calls of its answer had succeeded"))
        elif slot.approved and slot.evaluation:
            commands.append(RunCall(slot.call, slot.evaluation, slot.shown))
        else:
            slot.state = CallState.EVALUATING
            slot.evaluation = None
            slot.started = False
            commands.append(EvaluateCall(slot.call))
    return commands


def conclude_run(
    answer: ModelAnswered,
    usage: Usage,
    at_limit: int,
    required: tuple[str, ...],
    slots: Iterable[CallSlot],
) -> FinishRun:
    """Return how the run ends after an answer without calls.

    Args:
        answer: The last answer of the model.
        usage: The tokens of the whole run.
        at_limit: The number of turns after which this answer was requested without tools, or 0.
        required: Tools that must have succeeded (`required_tools`).
        slots: The calls of the run.
    """
    if answer.stop == "filter":
        detail = "withheld by the provider"
        return FinishRun("failed", answer.text, REFUSED_CODE, detail, usage, REFUSED_HINT)
    if at_limit:
        return FinishRun("limit", answer.text, "limit_max_turns", f"{at_limit} turns", usage)
    if required:
        succeeded = {slot.call.tool for slot in slots if slot.result and slot.result.success}
        missing = find_unmet(required, succeeded)
        if missing:
            entries = [" or ".join(f"`{name}`" for name in entry) for entry in missing]
            detail = f"required and never successful: {', '.join(entries)}"
            return FinishRun(
                "failed", answer.text, REQUIRED_TOOLS_CODE, detail, usage, missing=missing
            )
    if answer.stop == "length":
        return FinishRun("done", answer.text, "length", "cut at the model's output limit", usage)
    return FinishRun("done", answer.text, usage=usage)


def assign_call_ids(answer: ModelAnswered, taken: Set[str], turn: int) -> ModelAnswered:
    """Return an answer whose calls all have ids that are new in the session.

    Providers reject missing and repeated ids. A call that arrives twice with the same id and
    arguments was sent twice, so the second one is dropped. Applying this twice changes nothing.

    Args:
        answer: The model's answer. It is returned itself if its ids are fine.
        taken: The ids of all earlier calls in the session.
        turn: The number of the turn, which made-up ids contain.
    """
    if len(answer.calls) == 1 and answer.calls[0].id and answer.calls[0].id not in taken:
        return answer
    calls: list[ToolCall] = []
    new_ids: set[str] = set()
    sent: set[tuple[str, str, str]] = set()
    for index, call in enumerate(answer.calls):
        key = (call.id, call.tool, call.arguments)
        if call.id and key in sent:
            continue
        sent.add(key)
        base = call.id or f"call_{turn}_{index}"
        call_id = base
        # Some servers number the calls of each answer from one: a search for the first number that
        # is free would take longer with each turn of the session.
        count = max(1, len(taken))
        while call_id in taken or call_id in new_ids:
            count += 1
            call_id = f"{base}_{count}"
        new_ids.add(call_id)
        calls.append(call if call_id == call.id else ToolCall(call_id, call.tool, call.arguments))
    unchanged = len(calls) == len(answer.calls) and all(
        mine is theirs for mine, theirs in zip(calls, answer.calls, strict=True)
    )
    return answer if unchanged else replace(answer, calls=tuple(calls), raw=None)


_encode_sorted = json.JSONEncoder(sort_keys=True).encode


@mutable
class RepeatBreaker:
    """Stops a model that makes the same call again and again.

    Calls are identical if they have the same tool, the same arguments (as JSON values) and the same
    answer. The second identical answer carries a warning, the third is replaced by an error that
    asks for something else, and the fourth call is refused before it runs. Tools that poll are
    exempt. Counts last for one run.

    Attributes:
        seen: The last answer and how often it came in a row, by tool and arguments.
        keys: Tool and arguments of the calls that have no answer yet, by call id.
    """

    seen: dict[tuple[str, str], tuple[str, int]] = field(
        default_factory=dict[tuple[str, str], tuple[str, int]]
    )
    keys: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def refuse_repeat(self, call: ToolCall) -> ToolResult | None:
        """Return the error for a fourth identical call, or None if the call may run.

        Must be called once per call, before `count_result`.
        """
        try:
            arguments = _encode_sorted(decode_arguments(call.arguments)[0])
        except (ValueError, RecursionError):
            arguments = call.arguments
        key = (call.tool, arguments)
        self.keys[call.id] = key
        if self.seen.get(key, ("", 0))[1] < 3:
            return None
        return ToolResult.error(
            call,
            ErrorType.LIMIT,
            f"`{call.tool}` was not run: three identical calls gave the same answer. "
            "Use what you have, change the arguments, or answer now.",
        )

    def count_result(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Count a result and return it as the model should see it."""
        answer = result.data if result.success else result.error_message or ""
        if not isinstance(answer, str):
            answer = _encode_sorted(answer)
        key = self.keys.pop(call.id)
        before, count = self.seen.get(key, ("", 0))
        count = count + 1 if before == answer else 1
        self.seen[key] = (answer, count)
        if count == 1:
            return result
        if count == 2:
            note = (
                f"[note: this is the same answer as before; calling `{call.tool}` again will not "
                "change it]"
            )
            return replace(result, notes=(*result.notes, note))
        return ToolResult.error(
            call,
            ErrorType.LIMIT,
            f"`{call.tool}` gave this same answer {count} times; it is in the conversation above. "
            "Do something else or answer now.",
            timestamp=result.timestamp,
        )
