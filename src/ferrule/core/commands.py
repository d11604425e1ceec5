"""Commands: what the machine asks its driver to do. The driver answers each with events."""

from __future__ import annotations

from .calls import ToolCall
from .events import CallEvaluated, Usage
from .value_class import frozen
from .vocabulary import RunStop


@frozen
class AskModel:
    """Send the history to the model. With `tools` False it must answer with text.

    Answered by `ModelAnswered`, `ModelFailed` or `Cancelled`.
    """

    turn: int
    tools: bool = True


@frozen
class CheckOutput:
    """Check whether an answer gives the output that the run must end with.

    Answered by `OutputChecked`.
    """

    text: str


@frozen
class EvaluateCall:
    """Look up, validate and decide about a call. Answered by `CallEvaluated`."""

    call: ToolCall


@frozen
class RequestApproval:
    """Ask a person to approve a call. Answered by `PersonAnswered`."""

    call: ToolCall
    evaluation: CallEvaluated


@frozen
class RunCall:
    """Run an allowed call. Announced by `CallStarted`, answered by `ToolAnswered`.

    If a hook changes the arguments into something that needs approval, the answer is another
    `CallEvaluated`. So it is if what a person was `shown`, by its digest, has changed meanwhile.
    """

    call: ToolCall
    evaluation: CallEvaluated
    shown: str = ""


@frozen
class StopCall:
    """Stop a call that is no longer needed, or do not start it.

    Answered by `ToolAnswered`, whatever the call had done by then.
    """

    call: ToolCall
    reason: str


@frozen
class FinishRun:
    """End the run. `stop` is `done`, `limit`, `cancelled` or `failed`.

    `missing` names the required tools that never succeeded, each with its alternatives. `output` is
    the run's output as JSON; `text` is the same, or the string that it is.
    """

    stop: RunStop
    text: str = ""
    code: str = ""
    detail: str = ""
    usage: Usage = Usage()
    hint: str = ""
    missing: tuple[tuple[str, ...], ...] = ()
    output: str = ""


@frozen
class ResolveOutcome:
    """Find out what happened to a call that had started when its process ended.

    Answered by `ToolAnswered`, which may say that the outcome is unknown, or by `CallProbed` if
    the call did not happen. `reason` says why the process ended.
    """

    call: ToolCall
    evaluation: CallEvaluated
    reason: str


Command = (
    AskModel
    | CheckOutput
    | EvaluateCall
    | RequestApproval
    | RunCall
    | StopCall
    | ResolveOutcome
    | FinishRun
)
