"""Recovery of calls that had started when their process died.

The outcome is asked of the tool's probe, then of a person; otherwise it is unknown. Only a person
who is asked this very question can have the call repeated (`ApprovalRequest.has_unknown_outcome`);
an approver that answers automatically (`--yes-to`) cannot. Nothing is retried by itself.

A call that a rule allowed then, and that would need an approval now, is not started again because a
probe says that it did not happen: the person is asked, or it is answered as not run.
"""

from __future__ import annotations

import asyncio

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.commands import ResolveOutcome
from ferrule.core.errors import FerruleError
from ferrule.core.events import CallProbed, ToolAnswered
from ferrule.permissions.approvals import Approver
from ferrule.tools.context import Context
from ferrule.tools.outcome_probe import PROBE_SECONDS, UNKNOWN, ProbeResult

from .approval_requests import build_request
from .dispatcher import Dispatcher, PreparedCall

_ASKING = "settling.asking"


async def settle_call(
    command: ResolveOutcome,
    prepared: PreparedCall,
    context: Context,
    dispatcher: Dispatcher,
    approver: Approver,
) -> CallProbed | ToolAnswered:
    """Find out what became of a call, and return it as an event."""
    call = command.call
    found = await _probe(prepared, context)
    by = "probe"
    stricter = found.happened is False and _needs_approval_now(command, prepared)
    if (
        (found.happened is None or stricter)
        and can_ask_about_unknown(approver)
        and prepared.tool is not None
    ):
        why = _describe_unknown(command.reason)
        if stricter:
            why = f"it did not happen: {command.reason} before"
        found, by = await _ask(why, prepared, context, approver)
        stricter = stricter and found.happened is None
    if stricter:
        return ToolAnswered(_not_run_result(call, command.reason))
    if found.happened is None:
        return ToolAnswered(unknown_outcome(call, command.reason))
    if found.happened is False:
        return CallProbed(call.id, "not_happened", by)
    return ToolAnswered(
        dispatcher.find_unknown_outcome(
            prepared, found.value, "[done before the process ended; found out since]"
        )
    )


def unknown_outcome(call: ToolCall, reason: str) -> ToolResult:
    """Return the result of a call whose outcome is unknown."""
    message = f"outcome unknown: {reason} while it ran; check what it did before doing it again"
    return ToolResult.error(call, ErrorType.INTERNAL_ERROR, message)


def _describe_unknown(reason: str) -> str:
    return (
        f"its outcome is unknown: {reason} while it ran. Yes: do it again; no: tell the model "
        "that it is unknown"
    )


def _needs_approval_now(command: ResolveOutcome, prepared: PreparedCall) -> bool:
    """Whether today's rules require an approval for what a rule allowed then.

    What a person allowed then stays allowed.
    """
    return command.evaluation.verdict == "allow" and prepared.evaluation.verdict == "ask"


def _not_run_result(call: ToolCall, reason: str) -> ToolResult:
    message = f"not run: {reason} before it took effect, and by now it needs a person's yes"
    return ToolResult.refusal(call, "nobody", message)


def can_ask_about_unknown(approver: Approver) -> bool:
    """Whether this approver asks a person about unknown outcomes."""
    return bool(getattr(approver, "asks_about_unknown", False))


async def _probe(prepared: PreparedCall, context: Context) -> ProbeResult:
    tool, values = prepared.tool, prepared.values
    if tool is None or tool.probe is None or values is None:
        return UNKNOWN
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            found = await tool.probe(values, context)
    except Exception as error:  # noqa: BLE001  boundary: a probe that breaks knows nothing, and that is said
        context.note(
            "probe",
            (
                f"`{tool.name}` could not find out what became of a call: "
                f"{type(error).__name__}: {error}"
            ),
        )
        return UNKNOWN
    return found if isinstance(found, ProbeResult) else UNKNOWN  # pyright: ignore[reportUnnecessaryIsInstance]  somebody's code


async def _ask(
    why: str, prepared: PreparedCall, context: Context, approver: Approver
) -> tuple[ProbeResult, str]:
    # One approval request at a time, as everywhere.
    waiting: asyncio.Lock = context.memory.setdefault(_ASKING, asyncio.Lock())
    try:
        async with waiting:
            answer = await approver.ask(await build_request(prepared, context, died=why))
    except FerruleError:
        return UNKNOWN, ""
    if answer.choice == "deny":
        return UNKNOWN, ""
    return ProbeResult(False), answer.by
