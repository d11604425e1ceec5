"""Build the approval request of a prepared call, and apply a person's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.events import ConsentAnswered, PersonAnswered, ToolAnswered
from ferrule.core.join_policy import build_cancelled_result
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import Refuser
from ferrule.permissions import filesystem
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest, Approver
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.tools.context import Context

from .dispatcher import PreparedCall
from .hooks.broken_guards import log_broken_guard
from .session_log import SessionLog
from .shown_state import digest_files, digest_shown


class AskingSession(Protocol):
    """A session, as far as its approver and its log are concerned."""

    @property
    def approver(self) -> Approver: ...

    @property
    def log(self) -> SessionLog: ...

    @property
    def gate(self) -> PermissionGate: ...


@frozen
class CurrentApprover:
    """Asks the session's current approver, for handlers that must ask.

    An interface may replace the approver after the session was opened. An answer is in the journal
    before the handler goes on.
    """

    session: AskingSession

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask, as `Approver.ask`. Deny rules and the mode `dontAsk` answer in a person's place.

        Raises JournalError, which is not an approval, if the answer cannot be written.
        """
        refusal = self.session.gate.find_question_refusal(request.tool, request.values)
        if refusal:
            refuser: Refuser = "mode" if self.session.gate.mode == "dontAsk" else "rule"
            answer = ApprovalAnswer("deny", by="gate", note=refusal, refused_by=refuser)
        else:
            answer = await self.session.approver.ask(request)
        event = ConsentAnswered(
            request.call.id,
            request.tool.name,
            request.reason,
            answer.choice,
            request.digest,
            answer.grant,
            answer.by,
            answer.note,
            answer.refuser,
        )
        self.session.log.record(event)
        if answer.choice in ("session", "remember"):
            self.session.gate.open_named_folders(request.tool, request.values)
        return answer


async def request_approval(
    prepared: PreparedCall,
    context: Context,
    approver: Approver,
    gate: PermissionGate,
    ended: Callable[[str], str | None] = lambda call_id: None,
) -> PersonAnswered | ToolAnswered:
    """Ask for an approval, apply the answer to the gate, and return it as an event.

    An error on the way counts as a denial. `ended` says why the request was withdrawn, if it was:
    then that is the call's result.
    """
    tool = prepared.tool
    decision = prepared.decision
    values = prepared.values
    assert tool is not None and decision is not None and values is not None
    call_id = prepared.call.id
    digest = prepared.evaluation.digest
    now = gate.decide(tool, values)
    if now.verdict == "allow" and not prepared.approval_reason:
        # An answer to an earlier call of this turn already covers this one.
        return PersonAnswered(call_id, "session", digest, now.rule, by="an earlier answer")
    if now.verdict == "deny":
        # An earlier command has changed the folder in which this one would start.
        return PersonAnswered(
            call_id, "deny", digest, now.rule, by="gate", note=now.reason, refused_by=now.refuser
        )
    try:
        request, shown = await _build_with_digest(prepared, context, gate)
        answer = await approver.ask(request)
        gate.apply_answer(tool, answer.choice, answer.grant, offers=decision.offers)
    except asyncio.CancelledError:
        why = ended(call_id)
        if why is None:
            raise
        return ToolAnswered(build_cancelled_result(prepared.call, why))
    except Exception as error:  # noqa: BLE001  boundary: an approver that breaks has not said yes (fail closed)
        log_broken_guard("the approver", call_id, error)
        message = str(error)
        if not isinstance(error, FerruleError):
            message = f"{type(error).__name__}: {message}"
        return PersonAnswered(
            call_id,
            "deny",
            digest,
            by="error",
            note=f"nobody could be asked: {message}",
            refused_by="error",
        )
    return PersonAnswered(
        call_id,
        answer.choice,
        digest,
        answer.grant,
        answer.by,
        answer.note,
        shown,
        answer.refuser,
        answer.hint,
    )


async def has_changed(
    shown: str, prepared: PreparedCall, context: Context, gate: PermissionGate
) -> bool:
    """Whether a person would now be shown something else than when they approved a call."""
    if not shown:
        return False
    _, now = await _build_with_digest(prepared, context, gate)
    return now != shown


async def _build_with_digest(
    prepared: PreparedCall, context: Context, gate: PermissionGate
) -> tuple[ApprovalRequest, str]:
    """Return a request, and the digest of what it shows.

    Files are looked at before the preview is made: one that changes meanwhile is seen before the
    call runs.
    """
    assert prepared.tool is not None and prepared.values is not None
    workspace = context.resources.get(filesystem.Workspace)
    files = await digest_files(
        prepared.tool,
        prepared.values,
        gate,
        workspace if isinstance(workspace, filesystem.Workspace) else None,
    )
    request = await build_request(prepared, context)
    return request, digest_shown(request, files)


async def build_request(
    prepared: PreparedCall, context: Context, *, died: str = ""
) -> ApprovalRequest:
    """Build what a person is shown. A preview that fails is none; it never decides anything.

    `died` explains an unknown outcome, see `ApprovalRequest`.
    """
    tool = prepared.tool
    decision = prepared.decision
    values = prepared.values
    assert tool is not None and decision is not None and values is not None
    shown = ""
    why_none = ""
    if tool.preview is not None:
        try:
            shown = await tool.preview(values, context)
        except ToolFailed as failure:
            # Not the end of the call: a yes is for its arguments, and what is in their way may
            # change. Nor does the model learn without a yes why it would fail.
            why_none = f"this call would fail now: {failure}"
        except Exception as error:  # noqa: BLE001  boundary: the person learns that there is no preview, and why
            why_none = f"no preview: {error}"
    return ApprovalRequest(
        call=prepared.call,
        tool=tool,
        risk=str(tool.risk),
        reason=died or decision.reason,
        labels=decision.labels,
        preview=shown,
        offers=() if died else decision.offers,
        digest=prepared.evaluation.digest,
        identity=context.identity,
        values=values,
        has_unknown_outcome=bool(died),
        preview_error=why_none,
    )
