"""The audit of each call: who wanted what, who allowed it, what confined it, and how it ended.

Nothing here is stored: it is a projection of the journal's events, like the transcript. Results
that come from the machine itself (a person's denial, a limit, a run that ended before the call) are
found by feeding the same events to the same machine.

    for call in calls(journal.records(session)):
        call.outcome, call.decisions[-1].rule, call.arguments_sha256

Digests are SHA-256 in hex. `arguments_sha256` is of the arguments as they arrived, `result_sha256`
of the value as the journal has it (text as UTF-8, else compact JSON; "" if there is none). A
decision's `digest` is the one that approvals are bound to (`permissions.approvals`): it is of
the validated values, so it differs from the first.

What it does not show: what a program did once it ran, and effects of a tool that its author did not
declare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal

from ferrule.core.call_states import CallSlot, assign_call_ids
from ferrule.core.calls import CallOutcome, ToolCall, ToolResult, encode_json
from ferrule.core.events import (
    CallConfined,
    CallEvaluated,
    CallHooked,
    CallStarted,
    ConsentAnswered,
    DelegationStarted,
    DirectCall,
    JournalRecord,
    ModelAnswered,
    PersonAnswered,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
)
from ferrule.core.machine import Machine
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import Refuser

SCHEMA = "ferrule.audit.v1"
"""The version of `AuditedCall.as_record`.

Fields may be added; if the meaning of one changes, the version does too.
"""


_CallEvent = (
    CallEvaluated
    | PersonAnswered
    | CallHooked
    | CallConfined
    | CallStarted
    | DelegationStarted
    | ToolAnswered
)


@frozen
class GateDecision:
    """The gate's decision: `verdict` is `allow`, `ask` or `refuse`.

    `layer` and `mode` are "" in older journals.
    """

    event: int
    time: int
    verdict: str
    reason: str
    rule: str
    layer: str
    mode: str
    effect: str
    risk: str
    digest: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@frozen
class ApprovalAnswer:
    """The answer of a person, or of whatever answered for one.

    `scope` is how far the approval reaches: this call (`once`), the `session`, all future calls
    (`remember`), or `deny`. `grant` is the rule that was created. `bound` says that the answer was
    about these very arguments. `question` is "" for the gate's own question, else what the tool
    asked while it worked. `refused_by` is who refused; empty for a yes and in older journals.
    """

    event: int
    time: int
    scope: str
    by: str
    note: str
    grant: str
    digest: str
    bound: bool
    question: str = ""
    refused_by: Refuser | Literal[""] = ""


@frozen
class HookAction:
    """What a hook did: `block`, `change` (then `arguments` are what ran), `answer`, `result`."""

    event: int
    hook: str
    verdict: str
    reason: str
    arguments: str
    digest: str


@frozen
class Confinement:
    """The sandbox of a program that the call started; `sandbox` is `none` if there was none.

    `shown`: what the session's programs see of the machine from this call on; empty if it is what
    they saw before.
    """

    event: int
    sandbox: str
    enforced: tuple[str, ...]
    not_enforced: tuple[str, ...]
    program: str
    shown: tuple[str, ...] = ()


@frozen
class AuditedCall:
    """One call.

    Times are ms since 1970, None for what did not happen; `event` numbers are those of the session.
    `by` is who asked for it: `model`, `person`, `call …` (a tool, on behalf of that call), or a
    program's own name for itself. `outcome` is `success`, the error type of its result, `unknown`
    (it had started, and nothing says how it ended) or `open`.
    """

    session: str
    run: str
    tenant: str
    user: str
    call_id: str
    tool: str
    by: str
    model: str
    workspace: str
    event: int
    requested: int
    arguments: str
    arguments_sha256: str
    decisions: tuple[GateDecision, ...] = ()
    answers: tuple[ApprovalAnswer, ...] = ()
    hooks: tuple[HookAction, ...] = ()
    confined: tuple[Confinement, ...] = ()
    agents: tuple[str, ...] = ()
    """Sessions of sub-agents that did the work."""
    started: int | None = None
    finished: int | None = None
    outcome: CallOutcome = "open"
    message: str = ""
    """The error message of the result."""
    cause: str = ""
    """What the tool's error was raised from; empty if from nothing."""
    refused_by: Refuser | Literal[""] = ""
    """Who refused the call; empty if nobody did."""
    result_sha256: str = ""
    size: int = 0
    duration_ms: int = 0
    last_event: int = 0
    """The event that settled the call."""

    @property
    def verdict(self) -> str:
        """The gate's last verdict; "" if the call never reached it."""
        return self.decisions[-1].verdict if self.decisions else ""

    @property
    def settled_by(self) -> str:
        """What allowed or stopped the call.

        Who refused it; else `rule`, `person`, `gate`, `run` (its end), or `nothing` yet.
        """
        if self.refused_by:
            return self.refused_by
        unanswered = "nothing" if self.outcome == "open" else "run"
        if not self.decisions:
            return unanswered
        if self.verdict == "ask":
            was_asked = any(not answer.question for answer in self.answers)
            return "person" if was_asked else unanswered
        return "rule" if self.decisions[-1].rule else "gate"

    def as_record(self) -> dict[str, Any]:
        """Return JSON values, with `schema` first and `settled_by`."""
        return {"schema": SCHEMA, **asdict(self), "settled_by": self.settled_by}


@dataclass(slots=True)
class _Draft:
    """A call that is not settled yet."""

    record: JournalRecord
    call: ToolCall
    by: str
    model: str
    workspace: str
    slot: CallSlot | None = None
    result: ToolResult | None = None
    started: int | None = None
    decisions: list[GateDecision] = field(default_factory=list[GateDecision])
    answers: list[ApprovalAnswer] = field(default_factory=list[ApprovalAnswer])
    hooks: list[HookAction] = field(default_factory=list[HookAction])
    confined: list[Confinement] = field(default_factory=list[Confinement])
    agents: list[str] = field(default_factory=list[str])


def sha256_hex(text: str) -> str:
    """Return the SHA-256 of a text as UTF-8; lone surrogates are encoded as in WTF-8."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def audit_calls(records: Iterable[JournalRecord]) -> Iterator[AuditedCall]:
    """Yield a session's calls in the order in which they were settled, then those that are open.

    The records must be of one session. What older journals did not record is empty. This uses as
    much memory as the session's machine does.
    """
    reader = AuditReader()
    for record in records:
        yield from reader.feed(record)
    yield from reader.finish()


class AuditReader:
    """Turns the records of one session into audited calls, each returned when it is settled."""

    def __init__(self) -> None:
        self._machine = Machine()
        self._open: dict[str, _Draft] = {}
        self._model = ""
        self._workspace = ""
        self._last: JournalRecord | None = None

    def feed(self, record: JournalRecord) -> list[AuditedCall]:
        """Return the calls that this record settles."""
        event = record.event
        self._last = record
        requested = self._draft_calls(record)
        self._machine.feed(event)
        for draft in requested:
            draft.slot = self._machine.find_slot(draft.call.id)
            self._open[draft.call.id] = draft
        self._note(record)
        settled = [draft for draft in self._open.values() if _result(draft) is not None]
        for draft in settled:
            del self._open[draft.call.id]
        if isinstance(event, RunFinished):
            # Calls that a run left open will not be answered any more, unless somebody made them
            # directly.
            left = [draft for draft in self._open.values() if draft.by == "model"]
            for draft in left:
                del self._open[draft.call.id]
            settled += left
        return [_build_audited_call(draft, record) for draft in settled]

    def finish(self) -> list[AuditedCall]:
        """Return the calls that are open."""
        last = self._last
        if last is None:
            return []
        return [_build_audited_call(draft, last) for draft in self._open.values()]

    def _draft_calls(self, record: JournalRecord) -> list[_Draft]:
        event = record.event
        if isinstance(event, SessionOpened):
            self._model = event.model
            self._workspace = event.workspace
        elif isinstance(event, RunStarted):
            self._model = event.model or self._model
        elif isinstance(event, DirectCall):
            return [_Draft(record, event.call, event.by, self._model, self._workspace)]
        elif isinstance(event, ModelAnswered):
            # With the machine's ids: one that is missing or taken is replaced.
            named_calls = assign_call_ids(event, self._machine.call_ids, self._machine.turn).calls
            return [
                _Draft(record, call, "model", self._model, self._workspace) for call in named_calls
            ]
        return []

    def _note(self, record: JournalRecord) -> None:
        event = record.event
        if isinstance(event, ConsentAnswered):
            self._note_tool_question(record, event)
        elif isinstance(event, _CallEvent):
            call_id = event.result.call_id if isinstance(event, ToolAnswered) else event.call_id
            draft = self._open.get(call_id)
            if draft is not None:
                _note_on(draft, record, event)

    def _note_tool_question(self, record: JournalRecord, event: ConsentAnswered) -> None:
        draft = self._open.get(event.call_id)
        if draft is not None:
            draft.answers.append(_tool_answer(record, event, draft))
            return
        # A question of the session's sandbox belongs to no call: it was asked for those that run.
        for draft in self._open.values():
            if draft.started is not None:
                draft.answers.append(_tool_answer(record, event, draft))


def _note_on(draft: _Draft, record: JournalRecord, event: _CallEvent) -> None:
    match event:
        case CallEvaluated():
            draft.decisions.append(_build_gate_decision(record, event))
            draft.result = draft.result or event.result
        case PersonAnswered():
            draft.answers.append(_build_approval_answer(record, event, draft))
        case CallHooked():
            values = (event.hook, event.verdict, event.reason, event.arguments, event.digest)
            draft.hooks.append(HookAction(record.seq, *values))
        case CallConfined():
            values = (event.sandbox, event.enforced, event.not_enforced, event.program)
            draft.confined.append(Confinement(record.seq, *values, shown=event.shown))
        case CallStarted():
            draft.started = record.time
        case DelegationStarted():
            draft.agents.append(event.session)
        case ToolAnswered():
            draft.result = draft.result or event.result


def _result(draft: _Draft) -> ToolResult | None:
    if draft.result or draft.slot is None:
        return draft.result
    return draft.slot.result


def _build_gate_decision(record: JournalRecord, event: CallEvaluated) -> GateDecision:
    return GateDecision(
        record.seq,
        record.time,
        event.verdict,
        event.reason,
        event.rule,
        event.layer,
        event.mode,
        event.effect,
        event.risk,
        event.digest,
        event.access.reads,
        event.access.writes,
    )


def _build_approval_answer(
    record: JournalRecord, event: PersonAnswered, draft: _Draft
) -> ApprovalAnswer:
    bound = bool(draft.decisions) and event.digest == draft.decisions[-1].digest != ""
    return ApprovalAnswer(
        record.seq,
        record.time,
        event.choice,
        event.by,
        event.note,
        event.grant,
        event.digest,
        bound,
        refused_by=event.refused_by,
    )


def _tool_answer(record: JournalRecord, event: ConsentAnswered, draft: _Draft) -> ApprovalAnswer:
    return ApprovalAnswer(
        record.seq,
        record.time,
        event.choice,
        event.by,
        event.note,
        event.grant,
        event.digest,
        bound=event.call_id == draft.call.id,
        question=event.question,
        refused_by=event.refused_by,
    )


def _build_audited_call(draft: _Draft, last: JournalRecord) -> AuditedCall:
    request = draft.record
    call = AuditedCall(
        session=request.session,
        run=request.run,
        tenant=request.tenant,
        user=request.user,
        call_id=draft.call.id,
        tool=draft.call.tool,
        by=draft.by,
        model=draft.model,
        workspace=draft.workspace,
        event=request.seq,
        requested=request.time,
        arguments=draft.call.arguments,
        arguments_sha256=sha256_hex(draft.call.arguments),
        decisions=tuple(draft.decisions),
        answers=tuple(draft.answers),
        hooks=tuple(draft.hooks),
        confined=tuple(draft.confined),
        agents=tuple(draft.agents),
        started=draft.started,
        outcome="open" if draft.started is None else "unknown",
        last_event=last.seq,
    )
    result = _result(draft)
    if result is None:
        return call
    # If a started call was settled by the machine alone (its process died, its run was stopped),
    # nobody knows its outcome.
    outcome = call.outcome
    if draft.result is not None or draft.started is None:
        outcome = result.outcome
    return replace(
        call,
        finished=last.time,
        outcome=outcome,
        message=result.error_message or "",
        cause=result.cause,
        refused_by=result.refused_by,
        result_sha256=_data_digest(result.data),
        size=result.size,
        duration_ms=result.duration_ms,
    )


def _data_digest(data: Any) -> str:
    if data is None:
        return ""
    return sha256_hex(data if isinstance(data, str) else encode_json(data))
