"""A session as steps for people: what a person did, what the model answered, how each call ended.

All readable exports share this reading of a journal. It is fed record by record, so it can follow a
run; it keeps only the calls that are still open.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferrule.core.calls import Call, ErrorType, Result
from ferrule.core.calls_in_flight import named
from ferrule.core.events import (
    CallEvaluated,
    CallStarted,
    ConsentAnswered,
    ContextAdded,
    ContextCompacted,
    ContextRestored,
    DelegationStarted,
    DirectCall,
    Event,
    ModelAnswered,
    ModelFailed,
    Noticed,
    NoticeGiven,
    PersonAnswered,
    ProviderToolCall,
    Record,
    Recovered,
    RunFinished,
    RunStarted,
    SessionArchived,
    SessionOpened,
    ToolAnswered,
    Unknown,
    Usage,
)
from ferrule.core.frozen import frozen
from ferrule.core.notices import PERSON
from ferrule.tools.context import ANSWERED


@frozen
class Opened:
    """The session begins."""

    session: str
    user: str
    model: str
    workspace: str
    time: int


@frozen
class Asked:
    """A person's message; `number` counts runs from 1."""

    number: int
    run: str
    text: str
    model: str
    workspace: str
    time: int


@frozen
class Added:
    """Context that a person added."""

    text: str


@frozen
class Said:
    """The text of a model's answer."""

    text: str
    model: str


@frozen
class Used:
    """A call and its result.

    Without a result, `started` says whether the call may have had an effect: calls that only read
    are never announced as started. `decision` says who allowed or refused it."""

    call: Call
    result: Result | None
    started: bool
    decision: str


@frozen
class Told:
    """Something a person should know."""

    topic: str
    text: str


@frozen
class Ended:
    """A run is over, `seconds` after its message."""

    stop: str
    code: str
    detail: str
    usage: Usage
    answers: int
    calls: int
    seconds: float


Step = Opened | Asked | Added | Said | Used | Told | Ended


@dataclass(slots=True)
class _OpenCall:
    call: Call
    started: bool = False
    decision: str = ""
    denied: Result | None = None


class Story:
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

    def feed(self, record: Record) -> list[Step]:
        """Return the steps that this record completes."""
        match record.event:
            case SessionOpened() as event:
                self._model = event.model
                self._workspace = event.workspace
                return [
                    Opened(record.session, record.user, event.model, event.workspace, record.time)
                ]
            case RunStarted() as event:
                return [*self.rest(), self._begin(record, event)]
            case ModelAnswered() as event:
                return self._on_answer(event)
            case RunFinished() as event:
                return [*self.rest(), self._end(record, event)]
            case _:
                return self._on_call(record.event)

    def rest(self) -> list[Step]:
        """Return steps for the calls that have no answer (yet)."""
        return [self._close(call_id, call.denied) for call_id, call in list(self._open.items())]

    def _begin(self, record: Record, event: RunStarted) -> Step:
        self._runs += 1
        self._answers = 0
        self._calls = 0
        self._started = record.time
        self._model = event.model or self._model
        return Asked(self._runs, record.run, event.text, self._model, self._workspace, record.time)

    def _end(self, record: Record, event: RunFinished) -> Step:
        seconds = (record.time - self._started) / 1000
        counts = (self._answers, self._calls)
        return Ended(event.stop, event.code, event.detail, event.usage, *counts, seconds)

    def _on_answer(self, event: ModelAnswered) -> list[Step]:
        steps = [
            self._close(call_id, call.denied)
            for call_id, call in list(self._open.items())
            if call.denied
        ]
        self._answers += 1
        # Uses the ids that the machine gave to calls without one, or with one that was taken.
        for call in named(event, self._ids, self._answers).calls:
            self._open[call.id] = _OpenCall(call)
        steps += [
            Told("provider_tool_call", _describe_hosted_call(call)) for call in event.provider_calls
        ]
        if event.text:
            steps.append(Said(event.text, self._model))
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
        found.decision = f"{event.by or 'a person'}: {event.choice}"
        if event.choice == "deny":
            # No other event may follow for this call: its result is the person's answer.
            reason = f"not run: {event.note or 'denied by a person'}"
            found.denied = Result.error(found.call, ErrorType.PERMISSION_DENIED, reason)

    def _on_evaluated(self, event: CallEvaluated) -> list[Step]:
        found = self._open.get(event.call_id)
        if found is not None and event.verdict != "ask" and event.rule:
            found.decision = f"{event.verdict} by {event.rule}"
        return [] if event.result is None else self._close_with(event.result)

    def _close_with(self, result: Result) -> list[Step]:
        self._open.setdefault(result.call_id, _OpenCall(Call(result.call_id, result.tool, "")))
        return [self._close(result.call_id, result)]

    def _close(self, call_id: str, result: Result | None) -> Step:
        found = self._open.pop(call_id)
        self._calls += 1
        return Used(found.call, result, found.started, found.decision)


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
            return Added(event.text)
        case NoticeGiven(source=source) if source == PERSON:
            return Added(event.text)
        case NoticeGiven():
            return Told(f"notice from {event.source}", event.text)
        case Noticed():
            return Told(event.topic, event.text)
        case ModelFailed():
            return Told(f"model failed ({event.code})", event.detail)
        case Unknown():
            return Told("unknown event", event.name)
        case _:
            return _session_step(event)


def _session_step(event: Event) -> Step | None:
    match event:
        case ContextCompacted():
            return Told("compacted", _describe_compaction(event))
        case ContextRestored():
            by = f", by {event.by}" if event.by else ""
            return Told("restored", f"the whole conversation is sent again{by}")
        case Recovered():
            return Told("recovered", event.reason or "another process took over")
        case DelegationStarted():
            return Told("delegation", f"the agent {event.agent} works in session {event.session}")
        case ConsentAnswered():
            return Told(ANSWERED, _describe_approval(event))
        case SessionArchived():
            text = f"session {event.session} ({event.events} events) is in {event.file}"
            return Told("archived", text)
        case _:
            return None
