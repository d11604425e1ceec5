"""A run and its calls on their way: their states, which calls may start now, and what an end comes
to. The machine's own tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import is_

from .calls import Call, ErrorType, Result
from .commands import AskPerson, Command, Finish, RunTool
from .events import Access, CallEvaluated, ModelAnswered, Usage
from .required_tools import REQUIRED, unmet


class Phase(StrEnum):
    """Where the run is."""

    IDLE = "idle"
    ASKING = "asking"
    WORKING = "working"
    FINISHED = "finished"


ACTIVE = (Phase.ASKING, Phase.WORKING)
"""While a run is under way."""


class CallState(StrEnum):
    """Where a call is in the pipeline (the names are those of requirement 002)."""

    IDLE = "idle"
    EVALUATING = "evaluating_policy"
    AWAITING = "awaiting_permission"
    EXECUTING = "executing"
    COMPLETED = "completed"


@dataclass(slots=True)
class Slot:
    """One call on its way. `direct` calls belong to no round: nobody waits for them in the history.
    `unneeded`: see `joins`.
    """

    call: Call
    direct: bool = False
    state: CallState = CallState.IDLE
    evaluation: CallEvaluated | None = None
    approved: bool = False
    started: bool = False
    unneeded: bool = False
    result: Result | None = None

    def complete(self, result: Result) -> None:
        """The first result counts; the machine never calls this twice."""
        self.result, self.state = result, CallState.COMPLETED

    def abandon(self, error: ErrorType, reason: str) -> None:
        """Answer a call that will not be answered otherwise, saying what is known about its
        effect.
        """
        if self.state is CallState.EXECUTING and not (
            self.evaluation and self.evaluation.announced
        ):
            message = f"stopped: {reason}"
        elif not self.started:
            message = f"not run: {reason}"
        else:
            message = (
                f"outcome unknown: {reason} while it ran; check what it did before doing it again"
            )
        self.complete(Result.error(self.call, error, message))


def too_many(call: Call, most: int) -> Result:
    """The answer to a call beyond the bound of its round."""
    message = f"not run: at most {most} calls per answer; ask again for the rest"
    return Result.error(call, ErrorType.LIMIT, message)


def start(slots: Iterable[Slot], open_slots: Iterable[Slot]) -> list[Command]:
    """Commands for every evaluated slot that conflicts with no unfinished slot before it.

    While one of the `open_slots` waits for a person no other question goes out: there is one at a
    time. A direct call is not held back by others: the call that made it is running and would wait
    for ever.
    """
    commands: list[Command] = []
    ahead: list[Access] = []
    asking = False
    for slot in open_slots:
        asking = asking or slot.state is CallState.AWAITING
    for slot in slots:
        if slot.result is not None or slot.evaluation is None or slot.unneeded:
            continue
        access = slot.evaluation.access
        ready = slot.state is CallState.EVALUATING
        if not slot.direct:
            if ready:
                for other in ahead:
                    ready = ready and not other.conflicts(access)
            ahead.append(access)
        if not ready:
            continue
        if slot.evaluation.verdict == "allow":
            slot.state = CallState.EXECUTING
            commands.append(RunTool(slot.call, slot.evaluation))
        elif not asking:
            asking, slot.state = True, CallState.AWAITING
            commands.append(AskPerson(slot.call, slot.evaluation))
    return commands


def ending(
    answer: ModelAnswered,
    usage: Usage,
    at_limit: int,
    required: tuple[str, ...],
    slots: Iterable[Slot],
) -> Finish:
    """What the last answer of a run comes to. `at_limit`: it was asked for without tools, after so
    many rounds (0: it was not).
    """
    if answer.stop == "filter":
        return Finish("failed", answer.text, "content_filter", "withheld by the provider", usage)
    if at_limit:
        return Finish("limit", answer.text, "limit_max_rounds", f"{at_limit} rounds", usage)
    done = (
        {slot.call.tool for slot in slots if slot.result and slot.result.success}
        if required
        else ()
    )
    if missing := unmet(required, done) if required else ():
        said = ", ".join(" or ".join(f"`{name}`" for name in entry) for entry in missing)
        detail = f"required and never successful: {said}"
        return Finish("failed", answer.text, REQUIRED, detail, usage, missing=missing)
    cut = "cut at the model's output limit" if answer.stop == "length" else ""
    return Finish("done", answer.text, "length" if cut else "", cut, usage)


def named(answer: ModelAnswered, taken: Set[str], round_: int) -> ModelAnswered:
    """The answer with ids that are present and new in the session: providers reject any other.
    Named twice is named once.

    A call that is there twice, with its id, is one that was sent twice, and is left out once.
    """
    unique: list[Call] = []
    new: set[str] = set()
    sent: set[tuple[str, str, str]] = set()
    for index, call in enumerate(answer.calls):
        if call.id:
            if (whole := (call.id, call.tool, call.arguments)) in sent:
                continue
            sent.add(whole)
        base = name = call.id or f"call_{round_}_{index}"
        count = 1
        while name in taken or name in new:
            count += 1
            name = f"{base}_{count}"
        new.add(name)
        unique.append(call if name == call.id else Call(name, call.tool, call.arguments))
    same = len(unique) == len(answer.calls) and all(map(is_, unique, answer.calls))
    return answer if same else replace(answer, calls=tuple(unique), raw=None)
