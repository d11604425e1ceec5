"""The question to a person, made from a prepared call."""

from __future__ import annotations

from ferrule.guard.approval import ApprovalRequest
from ferrule.tools.context import Context

from .dispatcher import Prepared


async def request(prepared: Prepared, context: Context) -> ApprovalRequest:
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
    )
