"""What to do about calls that a dead process left open. The machine's own tool.

Safe work starts again. For a call that was announced and may have had its effect there is `Settle`:
whoever drives the machine finds out, from the tool's probe or from a person, or says that nobody
knows. Journals of older versions hold recoveries that did not ask (`Recovered.asks` is False):
there such calls are called unknown at once, as they were then.
"""

from __future__ import annotations

from collections.abc import Iterable

from .calls import ErrorType
from .calls_in_flight import CallState, Slot
from .commands import Command, Evaluate, RunTool, Settle, StopTool
from .events import Recovered


def recover(slots: Iterable[Slot], event: Recovered) -> list[Command]:
    """The commands that settle these open calls, or start them again."""
    commands: list[Command] = []
    for slot in slots:
        if slot.started and slot.evaluation and slot.evaluation.announced:
            if event.asks and not slot.unneeded:
                commands.append(
                    Settle(slot.call, slot.evaluation, event.reason or "the process ended")
                )
            else:
                slot.abandon(ErrorType.INTERNAL_ERROR, event.reason or "the process ended")
        elif slot.unneeded:
            commands.append(StopTool(slot.call, "enough calls of its answer had succeeded"))
        elif slot.approved and slot.evaluation:
            commands.append(RunTool(slot.call, slot.evaluation))
        else:
            slot.state, slot.evaluation, slot.started = CallState.EVALUATING, None, False
            commands.append(Evaluate(slot.call))
    return commands
