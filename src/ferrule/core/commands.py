"""What the machine wants done. The driver carries commands out and answers each with events."""

from __future__ import annotations

from .calls import Call
from .events import CallEvaluated, Usage
from .frozen import frozen


@frozen
class AskModel:
    """Send the history to the model. With `tools` False it must answer in words.

    Answered by `ModelAnswered`, `ModelFailed` or `Cancelled`.
    """

    round: int
    tools: bool = True


@frozen
class Evaluate:
    """Take a call through steps 1 to 5 of the pipeline. Answered by `CallEvaluated`."""

    call: Call


@frozen
class AskPerson:
    """One question to a person. Answered by `PersonAnswered`."""

    call: Call
    evaluation: CallEvaluated


@frozen
class RunTool:
    """Carry an allowed call out. Announced by `CallStarted`, answered by `ToolAnswered`,
    or by another `CallEvaluated` if a hook changed the arguments into something that must be asked.
    """

    call: Call
    evaluation: CallEvaluated


@frozen
class StopTool:
    """End a call that is not needed any more, or do not begin it. Answered by `ToolAnswered`,
    whatever it had come to.
    """

    call: Call
    reason: str


@frozen
class Finish:
    """The run is over. `stop` is `done`, `limit`, `cancelled` or `failed`; `missing` what it
    required and did not do.
    """

    stop: str
    text: str = ""
    code: str = ""
    detail: str = ""
    usage: Usage = Usage()
    hint: str = ""
    missing: tuple[tuple[str, ...], ...] = ()


@frozen
class Settle:
    """Find out what became of a call that had started when its process ended, for this reason.

    Answered by `ToolAnswered`, which may say that it is unknown, or by `CallProbed`: it had not
    happened.
    """

    call: Call
    evaluation: CallEvaluated
    reason: str


Command = AskModel | Evaluate | AskPerson | RunTool | StopTool | Settle | Finish
