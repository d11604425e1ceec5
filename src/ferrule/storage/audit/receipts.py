"""Receipts of runs: what the model was asked, its calls, who approved them, their effects and cost.

A receipt contains digests, never the data: it can be handed to somebody who may not read the
session, and compared by somebody who may. It is read from the journal, so the same journal gives
the same receipts.

    {schema: "ferrule.receipt.v1", receipt_id, session, run, tenant, user, model, started, finished,
    stop, code,
     question_sha256, answer_sha256,
     model_calls: [{event, time, model, way, stop, text_sha256, calls, usage, provider_calls}],
     tool_calls: [...], approvals: [...], side_effects: [...],
     cost: {model_calls, tool_calls, input_tokens, output_tokens, cached_tokens, written_tokens,
         reasoning_tokens, seconds},
     journal: {first_event, last_event, head}}

`tool_calls` are `build_call_receipt`s; `approvals` their answers of persons; `side_effects` the
calls that announced an effect before they started. `head` is the hash of the run's last event; it
binds the receipt to what was recorded. `receipt_id` is made of session, run and that hash. Calls
that a person made directly, outside a run, are in the receipt of the run that was under way or came
last before them; in a session without one, in a receipt whose `run` is "".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from ferrule.core.events import (
    JournalRecord,
    ModelAnswered,
    ModelFailed,
    ProviderToolCall,
    RunFinished,
    RunStarted,
    SessionOpened,
    Usage,
)

from .audit import ApprovalAnswer, AuditedCall, AuditReader, GateDecision, sha256_hex

SCHEMA = "ferrule.receipt.v1"
CALL_SCHEMA = "ferrule.call_receipt.v1"


def build_call_receipt(call: AuditedCall) -> dict[str, Any]:
    """Return the receipt of one call.

    It contains digests of arguments and result, what allowed the call, what confined it, and how it
    ended.
    """
    identified = f"{call.session}\n{call.event}\n{call.call_id}"
    return {
        "schema": CALL_SCHEMA,
        "receipt_id": f"call_{sha256_hex(identified)[:20]}",
        "call_id": call.call_id,
        "tool": call.tool,
        "requested_by": call.by,
        "requested": call.requested,
        "started": call.started,
        "finished": call.finished,
        "duration_ms": call.duration_ms,
        "outcome": call.outcome,
        "arguments_sha256": call.arguments_sha256,
        "result_sha256": call.result_sha256,
        "result_bytes": call.size,
        "settled_by": call.settled_by,
        "refused_by": call.refused_by,
        "policy": _policy(call.decisions[-1]) if call.decisions else None,
        "approvals": [_approval(call.call_id, answer) for answer in call.answers],
        "hooks": [_without(asdict(hook), "arguments", "reason") for hook in call.hooks],
        "sandbox": [_without(asdict(confined), "program", "shown") for confined in call.confined],
        "agents": list(call.agents),
        "events": [call.event, call.last_event],
    }


def _policy(decision: GateDecision) -> dict[str, Any]:
    return {
        "verdict": decision.verdict,
        "rule": decision.rule,
        "layer": decision.layer,
        "mode": decision.mode,
        "side_effect": decision.effect,
        "risk": decision.risk,
        "digest": decision.digest,
    }


def _approval(call_id: str, answer: ApprovalAnswer) -> dict[str, Any]:
    return {
        "call_id": call_id,
        "event": answer.event,
        "time": answer.time,
        "scope": answer.scope,
        "by": answer.by,
        "refused_by": answer.refused_by,
        "grant": answer.grant,
        "digest": answer.digest,
        "bound": answer.bound,
        "of": "tool" if answer.question else "gate",
    }


def _without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


@dataclass(slots=True)
class _Run:
    first: JournalRecord
    run: str = ""
    model: str = ""
    question: str = ""
    calls: list[AuditedCall] = field(default_factory=list[AuditedCall])
    answers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    usage: Usage = Usage()
    last: JournalRecord | None = None
    ended: RunFinished | None = None
    finished: int | None = None


def build_receipts(records: Iterable[JournalRecord]) -> Iterator[dict[str, Any]]:
    """Yield the receipts of a session's runs in order, each as soon as the next one begins.

    The records must be of one session.
    """
    reader = AuditReader()
    run: _Run | None = None
    opened = ""
    for record in records:
        event = record.event
        settled = reader.feed(record)
        if isinstance(event, SessionOpened):
            opened = event.model
        if isinstance(event, RunStarted):
            if run is not None and (run.run or run.calls or settled):
                run.calls += settled
                settled = []
                yield _receipt(run)
            run = _Run(record, record.run, event.model or opened, event.text)
        run = run or _Run(record, model=opened)
        run.calls += settled
        _add_event(run, record)
    if run is not None:
        run.calls += reader.finish()
        if run.run or run.calls:
            yield _receipt(run)


def _add_event(run: _Run, record: JournalRecord) -> None:
    run.last = record
    match record.event:
        case ModelAnswered() as event:
            run.usage += event.usage
            run.answers.append(
                {
                    "event": record.seq,
                    "time": record.time,
                    "model": run.model,
                    "tool_mode": event.tool_mode,
                    "stop": event.stop,
                    "text_sha256": sha256_hex(event.text),
                    "calls": [call.id for call in event.calls],
                    "usage": asdict(event.usage),
                    "provider_calls": [_provider_call(call) for call in event.provider_calls],
                }
            )
        case ModelFailed() as event:
            run.answers.append(
                {"event": record.seq, "time": record.time, "model": run.model, "failed": event.code}
            )
        case RunFinished() as event:
            run.ended = event
            run.finished = record.time
        case _:
            pass


def _provider_call(call: ProviderToolCall) -> dict[str, Any]:
    """Describe a call that the provider ran itself: nothing here approved or confined it."""
    return {
        "provider_tool_id": call.provider_tool_id,
        "call_id": call.call_id,
        "name": call.name,
        "tool_kind": call.tool_kind,
        "status": call.status,
        "executor": call.executor,
        "metadata_sha256": sha256_hex(call.provider_metadata),
    }


def _receipt(run: _Run) -> dict[str, Any]:
    first = run.first
    last = run.last or run.first
    ended = run.ended
    call_receipts = [build_call_receipt(call) for call in run.calls]
    identified = f"{first.session}\n{run.run}\n{last.hash}"
    usage = run.usage if ended is None else ended.usage
    end = run.finished or last.time
    return {
        "schema": SCHEMA,
        "receipt_id": f"run_{sha256_hex(identified)[:20]}",
        "session": first.session,
        "run": run.run,
        "tenant": first.tenant,
        "user": first.user,
        "model": run.model,
        "started": first.time,
        "finished": run.finished,
        "stop": "open" if ended is None else ended.stop,
        "code": "" if ended is None else ended.code,
        "question_sha256": sha256_hex(run.question),
        "answer_sha256": "" if ended is None else sha256_hex(ended.text),
        "model_calls": run.answers,
        "tool_calls": call_receipts,
        "approvals": list(chain.from_iterable(one["approvals"] for one in call_receipts)),
        "side_effects": [_effect(call) for call in run.calls if call.started is not None],
        "cost": {
            "model_calls": len(run.answers),
            "tool_calls": len(call_receipts),
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "cached_tokens": usage.cached,
            "written_tokens": usage.written,
            "reasoning_tokens": usage.reasoning,
            "seconds": (end - first.time) / 1000,
        },
        "journal": {"first_event": first.seq, "last_event": last.seq, "head": last.hash},
    }


def _effect(call: AuditedCall) -> dict[str, Any]:
    gate = call.decisions[-1] if call.decisions else None
    return {
        "call_id": call.call_id,
        "tool": call.tool,
        "side_effect": "" if gate is None else gate.effect,
        "writes": [] if gate is None else list(gate.writes),
        "outcome": call.outcome,
    }
