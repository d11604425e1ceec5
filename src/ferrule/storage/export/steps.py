"""A session as steps for people: what a person did, what the model answered, how each call ended.

All readable exports share this reading of a journal. It is fed record by record, so it can follow a
run; it keeps only the calls that are still open.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferrule.core.call_states import assign_call_ids
from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.events import (
    CallEvaluated,
    CallStarted,
    Cancelled,
    ConsentAnswered,
    ContextAdded,
    ContextCompacted,
    ContextRestored,
    DelegationStarted,
    DirectCall,
    Event,
    HistoryGiven,
    JournalRecord,
    LimitHit,
    ModelAnswered,
    ModelFailed,
    Noticed,
    NoticeGiven,
    PersonAnswered,
    ProviderToolCall,
    Recovered,
    RunFinished,
    RunStarted,
    SessionArchived,
    SessionOpened,
    ToolAnswered,
    Unknown,
    Usage,
)
from ferrule.core.notices import PERSON_SOURCE
from ferrule.core.refusals import describe_denial, name_answerer
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import RunStop
from ferrule.tools.context import ANSWER_TOPIC


@frozen
class OpeningStep:
    """The session begins."""

    session: str
    user: str
    model: str
    workspace: str
    time: int


@frozen
class MessageStep:
    """A person's message; `number` counts runs from 1."""

    number: int
    run: str
    text: str
    model: str
    workspace: str
    time: int


@frozen
class ContextStep:
    """Context that a person added."""

    text: str


@frozen
class AnswerStep:
    """The text of a model's answer."""

    text: str
    model: str


@frozen
class CallStep:
    """A call and its result.

    Without a result, `started` says whether the call may have had an effect: calls that only read
    are never announced as started. `decision` says who allowed or refused it.
    """

    call: ToolCall
    result: ToolResult | None
    started: bool
    decision: str


@frozen
class NoticeStep:
    """Something a person should know."""

    topic: str
    text: str


@frozen
class EndStep:
    """A run is over, `seconds` after its message."""

    stop: RunStop
    code: str
    detail: str
    usage: Usage
    answers: int
    calls: int
    seconds: float


Step = OpeningStep | MessageStep | ContextStep | AnswerStep | CallStep | NoticeStep | EndStep


@dataclass(slots=True)
class _OpenCall:
    call: ToolCall
    started: bool = False
    decision: str = ""
    denied: ToolResult | None = None


class StepReader:
    """Turns records into steps. A step is returned as soon as it is known."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenCall] = {}
        self._ids: set[str] = set()
        self._model = ""
        self._workspace = ""
        self._runs = 0
        self._answers = 0
        self._calls = 0
        self._started = 0

    def feed(self, record: JournalRecord) -> list[Step]:
        """Return the steps that this record completes."""
        match record.event:
            case SessionOpened() as event:
                self._model = event.model
                self._workspace = event.workspace
                return [
                    OpeningStep(
                        record.session, record.user, event.model, event.workspace, record.time
                    )
                ]
            case RunStarted() as event:
                return [*self.finish(), self._begin(record, event)]
            case ModelAnswered() as event:
                return self._on_answer(event)
            case ModelFailed(text=text) | Cancelled(text=text) | LimitHit(text=text) if text:
                cut = AnswerStep(f"{text}\n[cut here]", self._model)
                return [cut, *self._on_call(record.event)]
            case RunFinished() as event:
                return [*self.finish(), self._end(record, event)]
            case _:
                return self._on_call(record.event)

    def finish(self) -> list[Step]:
        """Return steps for the calls that have no answer (yet)."""
        return [self._close(call_id, call.denied) for call_id, call in list(self._open.items())]

    def _begin(self, record: JournalRecord, event: RunStarted) -> Step:
        self._runs += 1
        self._answers = 0
        self._calls = 0
        self._started = record.time
        self._model = event.model or self._model
        return MessageStep(
            self._runs, record.run, event.text, self._model, self._workspace, record.time
        )

    def _end(self, record: JournalRecord, event: RunFinished) -> Step:
        seconds = (record.time - self._started) / 1000
        counts = (self._answers, self._calls)
        return EndStep(event.stop, event.code, event.detail, event.usage, *counts, seconds)

    def _on_answer(self, event: ModelAnswered) -> list[Step]:
        steps = [
            self._close(call_id, call.denied)
            for call_id, call in list(self._open.items())
            if call.denied
        ]
        self._answers += 1
        # Uses the ids that the machine gave to calls without one, or with one that was taken.
        for call in assign_call_ids(event, self._ids, self._answers).calls:
            self._open[call.id] = _OpenCall(call)
        steps += [
            NoticeStep("provider_tool_call", _describe_hosted_call(call))
            for call in event.provider_calls
        ]
        if event.text:
            steps.append(AnswerStep(event.text, self._model))
        return steps

    def _on_call(self, event: Event) -> list[Step]:
        match event:
            case DirectCall():
                self._ids.add(event.call.id)
                self._open[event.call.id] = _OpenCall(event.call, decision=f"by {event.by}")
            case CallEvaluated():
                return self._on_evaluated(event)
            case PersonAnswered():
                self._on_person(event)
            case CallStarted():
                if event.call_id in self._open:
                    self._open[event.call_id].started = True
            case ToolAnswered():
                return self._close_with(event.result)
            case _:
                step = _other_step(event)
                return [] if step is None else [step]
        return []

    def _on_person(self, event: PersonAnswered) -> None:
        found = self._open.get(event.call_id)
        if found is None:
            return
        found.decision = f"{name_answerer(event.by, event.refused_by)}: {event.choice}"
        if event.choice == "deny":
            # No other event may follow for this call: its result is the person's answer.
            reason = f"not run: {describe_denial(event.by, event.refused_by, event.note)}"
            found.denied = ToolResult.refusal(found.call, event.refused_by or "person", reason)

    def _on_evaluated(self, event: CallEvaluated) -> list[Step]:
        found = self._open.get(event.call_id)
        if found is not None and event.verdict != "ask" and event.rule:
            found.decision = f"{event.verdict} by {event.rule}"
        return [] if event.result is None else self._close_with(event.result)

    def _close_with(self, result: ToolResult) -> list[Step]:
        self._open.setdefault(result.call_id, _OpenCall(ToolCall(result.call_id, result.tool, "")))
        return [self._close(result.call_id, result)]

    def _close(self, call_id: str, result: ToolResult | None) -> Step:
        found = self._open.pop(call_id)
        self._calls += 1
        return CallStep(found.call, result, found.started, found.decision)


def _describe_hosted_call(call: ProviderToolCall) -> str:
    name = call.name or call.provider_tool_type
    status = f": {call.status}" if call.status else ""
    return f"the provider ran {name} ({call.tool_kind}) itself{status}"


def _describe_approval(event: ConsentAnswered) -> str:
    by = f" by {event.by}" if event.by else ""
    note = f" ({event.note})" if event.note else ""
    question = f"call {event.call_id}, `{event.tool}`: {event.question}"
    return f"{event.choice}{by}{note}; asked about {question}; digest {event.digest}"


def _describe_compaction(event: ContextCompacted) -> str:
    parts: list[str] = []
    if event.elided:
        parts.append(f"results left out (messages {', '.join(map(str, event.elided))})")
    if event.through:
        parts.append(f"messages 1 to {event.through} replaced by:\n{event.text}")
    return f"about {event.before} to {event.after} tokens; {'; '.join(parts) or event.note}"


def _other_step(event: Event) -> Step | None:
    """Return the step of an event that is not about a call."""
    match event:
        case ContextAdded():
            return ContextStep(event.text)
        case HistoryGiven():
            return ContextStep(event.messages)
        case NoticeGiven(source=source) if source == PERSON_SOURCE:
            return ContextStep(event.text)
        case NoticeGiven():
            return NoticeStep(f"notice from {event.source}", event.text)
        case Noticed():
            return NoticeStep(event.topic, event.text)
        case ModelFailed():
            return NoticeStep(f"model failed ({event.code})", event.detail)
        case Unknown():
            return NoticeStep("unknown event", event.name)
        case _:
            return _session_step(event)


def _session_step(event: Event) -> Step | None:
    match event:
        case ContextCompacted():
            return NoticeStep("compacted", _describe_compaction(event))
        case ContextRestored():
            by = f", by {event.by}" if event.by else ""
            return NoticeStep("restored", f"the whole conversation is sent again{by}")
        case Recovered():
            return NoticeStep("recovered", event.reason or "another process took over")
        case DelegationStarted():
            return NoticeStep(
                "delegation", f"the agent {event.agent} works in session {event.session}"
            )
        case ConsentAnswered():
            return NoticeStep(ANSWER_TOPIC, _describe_approval(event))
        case SessionArchived():
            text = f"session {event.session} ({event.events} events) is in {event.file}"
            return NoticeStep("archived", text)
        case _:
            return None
