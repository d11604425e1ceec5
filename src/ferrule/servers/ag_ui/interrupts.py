"""Questions to the person as interrupts of the protocol, and what their answers decide.

A call that needs an approval ends the protocol's run with the outcome `interrupt`; the session's
run waits. The client goes on with a run whose `resume` names the interrupt. The interrupt's id has
the digest of the arguments that were shown in it: an answer counts for these and no others.

    {"interruptId": "...", "status": "resolved", "payload": {"approved": true}}

`approved: true` allows the call once; with `grant`, a rule that was offered, for the session.
Anything else denies it, and `note` is the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.value_class import frozen
from ferrule.permissions.approval_text import describe_call
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest

from .inputs import InterruptAnswer

ANSWER_SECONDS = 3600.0
"""How long a question waits for its answer."""
REASON = "approval"
"""`reason` of an interrupt."""
BY = "ag-ui"
MAX_SHOWN = 20_000
"""Most characters of what a person is shown of a call."""
MAX_NOTE = 2_000


@frozen
class OpenInterrupt:
    """A question that waits for its answer."""

    id: str
    request: ApprovalRequest
    expires: float
    answered: asyncio.Future[ApprovalAnswer]

    @staticmethod
    def of(request: ApprovalRequest) -> OpenInterrupt:
        """Return the interrupt for a question that is asked now."""
        waits: asyncio.Future[ApprovalAnswer] = asyncio.get_running_loop().create_future()
        return OpenInterrupt(interrupt_id(request), request, time.time() + ANSWER_SECONDS, waits)

    def to_json(self, known_calls: Mapping[str, Any] | set[str]) -> dict[str, Any]:
        """Return the interrupt as the protocol has it.

        Args:
            known_calls: Ids of calls that the client was told of; a sub-agent's are not.
        """
        request = self.request
        expires = datetime.fromtimestamp(self.expires, UTC).isoformat(timespec="milliseconds")
        shown: dict[str, Any] = {
            "id": self.id,
            "reason": REASON,
            "message": _question(request),
            "responseSchema": _response_schema(request),
            "expiresAt": expires,
            "metadata": {"ferrule": _details(request)},
        }
        if request.call.id in known_calls:
            shown["toolCallId"] = request.call.id
        return shown


def interrupt_id(request: ApprovalRequest) -> str:
    """Return the id of the question about a call with exactly these arguments."""
    return f"{request.call.id}:{request.digest}"


def read_answer(request: ApprovalRequest, answer: InterruptAnswer, user: str) -> ApprovalAnswer:
    """Return what an answer decides. Whatever is not plainly a yes is a no.

    Args:
        request: The question.
        answer: The client's answer to it.
        user: Who answers.
    """
    by = f"{BY}:{user}" if user else BY
    given = answer.payload
    payload = cast("dict[str, Any]", given if isinstance(given, dict) else {})
    if not answer.is_resolved:
        return ApprovalAnswer("deny", by=by, note="the person closed the question")
    note = str(payload.get("note") or "")[:MAX_NOTE]
    if payload.get("approved") is False:
        why = f"denied by the person: {note}" if note else "denied by the person"
        return ApprovalAnswer("deny", by=by, note=why)
    if payload.get("approved") is not True:
        why = "the client's answer has no `approved` that is true or false"
        return ApprovalAnswer("deny", by=by, note=why, refused_by="error")
    grant = payload.get("grant")
    if grant is None:
        return ApprovalAnswer("once", by=by, note=note)
    if grant in session_grants(request):
        return ApprovalAnswer("session", str(grant), by=by, note=note)
    why = f"the rule `{str(grant)[:200]}` was not offered"
    return ApprovalAnswer("deny", by=by, note=why, refused_by="gate")


def session_grants(request: ApprovalRequest) -> list[str]:
    """Return the rules that a yes may grant for the session.

    None is remembered beyond it: settings belong to whoever runs the server.
    """
    if request.has_unknown_outcome:
        return []
    return [offer.rule for offer in request.offers if offer.choice == "session" and offer.rule]


def _question(request: ApprovalRequest) -> str:
    return (
        f"Allow `{request.tool.full_name}` to run? {escape_for_approval(request.reason)}.\n"
        f"{describe_call(request, MAX_SHOWN)}"
    )


def _details(request: ApprovalRequest) -> dict[str, Any]:
    return {
        "tool": request.tool.full_name,
        "shown": describe_call(request, MAX_SHOWN),
        "is_preview": bool(request.preview),
        "risk": str(request.risk),
        "reason": escape_for_approval(request.reason),
        "labels": list(request.labels),
        "digest": request.digest,
        "grants": session_grants(request),
        "has_unknown_outcome": request.has_unknown_outcome,
    }


def _response_schema(request: ApprovalRequest) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "approved": {"type": "boolean", "description": "Run it with exactly these arguments."},
        "note": {"type": "string", "description": "Why not, for the model."},
    }
    grants = session_grants(request)
    if grants:
        told = "A rule that holds for the rest of the session."
        properties["grant"] = {"type": "string", "enum": grants, "description": told}
    return {"type": "object", "properties": properties, "required": ["approved"]}
