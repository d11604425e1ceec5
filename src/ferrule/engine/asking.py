"""The question to a person, made from a prepared call, and what the answer changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ferrule.core.errors import FerruleError
from ferrule.core.events import PersonAnswered
from ferrule.guard.approval import Answer, ApprovalRequest, Approver
from ferrule.guard.gate import Gate
from ferrule.tools.context import ANSWERED, Context

from .dispatcher import Prepared
from .log import Log


@dataclass(frozen=True, slots=True)
class CurrentApprover:
    """Whoever is asked at that moment: a face may take over a session after it was made. For handlers that must ask.

    `log`: where an answer is written before the handler goes on.
    """

    current: Callable[[], Approver]
    log: Callable[[], Log] | None = None

    async def ask(self, request: ApprovalRequest) -> Answer:
        """As `Approver.ask`. Raises JournalError, which is no yes, where the answer cannot be written."""
        answer = await self.current().ask(request)
        if self.log is not None:
            log = self.log()
            log.notice(ANSWERED, _told(request, answer))
            log.flush()
        return answer


def _told(request: ApprovalRequest, answer: Answer) -> str:
    by = f" by {answer.by}" if answer.by else ""
    note = f" ({answer.note})" if answer.note else ""
    asked = f"call {request.call.id}, `{request.tool.name}`: {request.reason}"
    return f"{answer.choice}{by}{note}; asked about {asked}; digest {request.digest}"


async def ask(prepared: Prepared, context: Context, approver: Approver, gate: Gate) -> PersonAnswered:
    """Put the question, apply the answer to the gate, and say it as an event. An error on the way is a no."""
    tool, decision, values = prepared.tool, prepared.decision, prepared.values
    assert tool is not None and decision is not None and values is not None
    call_id, digest = prepared.call.id, prepared.evaluation.digest
    now = gate.decide(tool, values)
    if now.verdict == "allow" and not prepared.asked:
        # An answer to an earlier call of this round already covers this one.
        return PersonAnswered(call_id, "session", digest, now.rule, by="an earlier answer")
    try:
        answer = await approver.ask(await _request(prepared, context))
        gate.settle(tool, answer.choice, answer.grant, offers=decision.offers)
    except Exception as error:  # noqa: BLE001  boundary: an approver that breaks has not said yes (fail closed)
        said = str(error) if isinstance(error, FerruleError) else f"{type(error).__name__}: {error}"
        return PersonAnswered(call_id, "deny", digest, by="error", note=f"nobody could be asked: {said}")
    return PersonAnswered(call_id, answer.choice, digest, answer.grant, answer.by, answer.note)


async def _request(prepared: Prepared, context: Context) -> ApprovalRequest:
    """What a person is shown. A preview that fails says so; it never decides anything."""
    tool, decision, values = prepared.tool, prepared.decision, prepared.values
    assert tool is not None and decision is not None and values is not None
    shown = ""
    if tool.preview is not None:
        try:
            shown = await tool.preview(values, context)
        except Exception as error:  # noqa: BLE001  boundary: the person learns that there is no preview, and why
            shown = f"(no preview: {error})"
    return ApprovalRequest(
        call=prepared.call,
        tool=tool,
        risk=str(tool.risk),
        reason=decision.reason,
        labels=decision.labels,
        preview=shown,
        offers=decision.offers,
        digest=prepared.evaluation.digest,
        identity=context.identity,
        values=values,
    )
