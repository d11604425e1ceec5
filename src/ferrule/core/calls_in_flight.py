"""A run and its calls on their way: their states, and which calls may start now. The machine's own tools."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from enum import StrEnum

from .calls import Call, ErrorType, Result
from .commands import AskPerson, Command, RunTool
from .events import CallEvaluated


class Phase(StrEnum):
    """Where the run is."""

    IDLE = "idle"
    ASKING = "asking"
    WORKING = "working"
    FINISHED = "finished"


class CallState(StrEnum):
    """Where a call is in the pipeline (the names are those of requirement 002)."""

    IDLE = "idle"
    EVALUATING = "evaluating_policy"
    AWAITING = "awaiting_permission"
    EXECUTING = "executing"
    COMPLETED = "completed"


@dataclass(slots=True)
class Slot:
    """One call on its way. `direct` calls belong to no round: nobody waits for them in the history."""

    call: Call
    direct: bool = False
    state: CallState = CallState.IDLE
    evaluation: CallEvaluated | None = None
    approved: bool = False
    started: bool = False
    result: Result | None = None

    def complete(self, result: Result) -> None:
        """The first result counts; the machine never calls this twice."""
        self.result, self.state = result, CallState.COMPLETED

    def abandon(self, error: ErrorType, reason: str) -> None:
        """Answer a call that will not be answered otherwise, saying what is known about its effect."""
        effect = self.evaluation.effect if self.evaluation else "write"
        if not self.started:
            message = f"not run: {reason}"
        elif effect in ("none", "read"):
            message = f"stopped: {reason}"
        else:
            message = f"outcome unknown: {reason} while it ran; check what it did before doing it again"
        self.complete(Result.error(self.call, error, message))


def unfinished(batch: Iterable[Slot]) -> tuple[list[Slot], bool]:
    """The slots without a result, and whether every one of them has been evaluated."""
    left: list[Slot] = []
    ready = True
    for slot in batch:
        if slot.result is None:
            left.append(slot)
            ready = ready and slot.evaluation is not None
    return left, ready


def start(slots: Iterable[Slot], open_slots: Iterable[Slot]) -> list[Command]:
    """Commands for every evaluated slot that conflicts with no unfinished slot before it.

    While one of the `open_slots` waits for a person no other question goes out: there is one at a
    time. A direct call is not held back by others: the call that made it is running and would wait for ever.
    """
    commands: list[Command] = []
    ahead: list[Slot] = []
    asking = False
    for slot in open_slots:
        asking = asking or slot.state is CallState.AWAITING
    for slot in slots:
        if slot.result is not None or slot.evaluation is None:
            continue
        access = slot.evaluation.access
        blocked = not slot.direct and any(
            s.evaluation and s.evaluation.access.conflicts(access) for s in ahead
        )
        if not slot.direct and (access.reads or access.writes):
            ahead.append(slot)
        if blocked or slot.state is not CallState.EVALUATING:
            continue
        if slot.evaluation.verdict == "allow":
            slot.state = CallState.EXECUTING
            commands.append(RunTool(slot.call, slot.evaluation))
        elif not asking:
            asking, slot.state = True, CallState.AWAITING
            commands.append(AskPerson(slot.call, slot.evaluation))
    return commands


def with_new_ids(calls: tuple[Call, ...], taken: Set[str], round_: int) -> tuple[Call, ...]:
    """Calls with ids that are present and new in the session: providers reject any other."""
    unique: list[Call] = []
    new: set[str] = set()
    for index, call in enumerate(calls):
        base = name = call.id or f"call_{round_}_{index}"
        count = 1
        while name in taken or name in new:
            count += 1
            name = f"{base}_{count}"
        new.add(name)
        unique.append(call if name == call.id else replace(call, id=name))
    return tuple(unique)
