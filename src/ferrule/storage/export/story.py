"""A session told in steps: what a person did, what the model said, what each call came to.

The one reading of a journal that all readable exports share. It is fed record by record, so it can
follow a run; it keeps nothing but the calls that are still open.
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
    """Context that a person put in."""

    text: str


@frozen
class Said:
    """The model's words."""

    text: str
    model: str


@frozen
class Used:
    """A call and what came of it. Without a result, `started` says whether it may have had an
    effect: calls that only read are never announced as started.

    `decision` says who let it pass or refused it.
    """

    call: Call
    result: Result | None
    started: bool
    decision: str


@frozen
class Told:
    """Something a person should know."""

    topic: str
    text: str


def _hosted(made: ProviderToolCall) -> str:
    status = f": {made.status}" if made.status else ""
    return (
        f"the provider ran {made.name or made.provider_tool_type} ({made.tool_kind}) itself{status}"
    )


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
class _Open:
    call: Call
    started: bool = False
    decision: str = ""
    denied: Result | None = None


class Story:
    """Turns records into steps. A step comes out as soon as it is known."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._ids: set[str] = set()
        self._model = self._workspace = ""
        self._runs = self._answers = self._calls = self._began = 0

    def feed(self, record: Record) -> list[Step]:
        """The steps that this record completes."""
        match record.event:
            case SessionOpened() as event:
                self._model, self._workspace = event.model, event.workspace
                return [
                    Opened(record.session, record.user, event.model, event.workspace, record.time)
                ]
            case RunStarted() as event:
                return [*self.rest(), self._begin(record, event)]
            case ModelAnswered() as event:
                told = [
                    self._close(name, left.denied)
                    for name, left in [*self._open.items()]
                    if left.denied
                ]
                self._answers += 1
                # The names that the machine gave to calls without one, or with one that was taken.
                calls = named(event, self._ids, self._answers).calls
                self._open.update((call.id, _Open(call)) for call in calls)
                told += [Told("provider_tool_call", _hosted(made)) for made in event.provider_calls]
                return [*told, *([Said(event.text, self._model)] if event.text else [])]
            case RunFinished() as event:
                seconds = (record.time - self._began) / 1000
                left = self.rest()
                counts = (self._answers, self._calls)
                return [
                    *left,
                    Ended(event.stop, event.code, event.detail, event.usage, *counts, seconds),
                ]
            case _:
                return self._on_call(record.event)

    def rest(self) -> list[Step]:
        """Steps for the calls that have no answer (yet)."""
        return [self._close(name, left.denied) for name, left in [*self._open.items()]]

    def _begin(self, record: Record, event: RunStarted) -> Step:
        self._runs += 1
        self._answers = self._calls = 0
        self._began, self._model = record.time, event.model or self._model
        return Asked(self._runs, record.run, event.text, self._model, self._workspace, record.time)

    def _on_call(self, event: Event) -> list[Step]:
        match event:
            case DirectCall():
                self._ids.add(event.call.id)
                self._open[event.call.id] = _Open(event.call, decision=f"by {event.by}")
            case CallEvaluated():
                return self._on_evaluated(event)
            case PersonAnswered():
                if found := self._open.get(event.call_id):
                    found.decision = f"{event.by or 'a person'}: {event.choice}"
                    if event.choice == "deny":
                        # Nothing else may be said of this call: its answer is what the person said.
                        why = f"not run: {event.note or 'denied by a person'}"
                        found.denied = Result.error(found.call, ErrorType.PERMISSION_DENIED, why)
            case CallStarted():
                if found := self._open.get(event.call_id):
                    found.started = True
            case ToolAnswered():
                return self._settled(event.result)
            case _:
                return _aside(event)
        return []

    def _on_evaluated(self, event: CallEvaluated) -> list[Step]:
        found = self._open.get(event.call_id)
        if found is not None and event.verdict != "ask":
            found.decision = f"{event.verdict} by {event.rule}" if event.rule else found.decision
        return self._settled(event.result) if event.result is not None else []

    def _settled(self, result: Result) -> list[Step]:
        self._open.setdefault(result.call_id, _Open(Call(result.call_id, result.tool, "")))
        return [self._close(result.call_id, result)]

    def _close(self, call_id: str, result: Result | None) -> Step:
        found = self._open.pop(call_id)
        self._calls += 1
        return Used(found.call, result, found.started, found.decision)


def _consent(event: ConsentAnswered) -> str:
    by, note = f" by {event.by}" if event.by else "", f" ({event.note})" if event.note else ""
    asked = f"call {event.call_id}, `{event.tool}`: {event.question}"
    return f"{event.choice}{by}{note}; asked about {asked}; digest {event.digest}"


def _compacted(event: ContextCompacted) -> str:
    results = ", ".join(map(str, event.elided))
    parts = [f"results left out (messages {results})"] if results else []
    if event.through:
        parts.append(f"messages 1 to {event.through} replaced by:\n{event.text}")
    return f"about {event.before} to {event.after} tokens; {'; '.join(parts) or event.note}"


def _aside(event: Event) -> list[Step]:
    match event:
        case ContextAdded():
            return [Added(event.text)]
        case Noticed():
            return [Told(event.topic, event.text)]
        case ContextCompacted():
            return [Told("compacted", _compacted(event))]
        case ContextRestored():
            return [
                Told(
                    "restored",
                    f"the whole conversation is sent again{f', by {event.by}' * bool(event.by)}",
                )
            ]
        case NoticeGiven():
            said = event.source == PERSON
            return [Added(event.text) if said else Told(f"notice from {event.source}", event.text)]
        case ModelFailed():
            return [Told(f"model failed ({event.code})", event.detail)]
        case Recovered():
            return [Told("recovered", event.reason or "another process took over")]
        case DelegationStarted():
            return [Told("delegation", f"the agent {event.agent} works in session {event.session}")]
        case ConsentAnswered():
            return [Told(ANSWERED, _consent(event))]
        case SessionArchived():
            return [
                Told(
                    "archived",
                    f"session {event.session} ({event.events} events) is in {event.file}",
                )
            ]
        case Unknown():
            return [Told("unknown event", event.name)]
        case _:
            return []
