"""The audit: of each call, who wanted what, who let it pass, what held it, and what came of it;
read from the journal.

Nothing here is stored: it is a projection of the events, like the transcript. What a call was
answered with by the machine itself (a person's no, a bound, an end that came before it) is found by
feeding the same events to the same machine.

    for call in calls(journal.records(session)):
        call.outcome, call.decisions[-1].rule, call.arguments_sha256

Digests are SHA-256 in hex. `arguments_sha256` is of the arguments as they arrived, `result_sha256`
of the value as the journal holds it (text as UTF-8, else compact JSON; "" where there is none). A
decision's `digest` is the one that approvals are bound to (`permissions.approval_digest`): of the
checked values, so that it differs from the first.

What it does not show: what a program did once it ran, and what a tool did that its author did not
declare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from ferrule.core.calls import Call, Result, compact
from ferrule.core.calls_in_flight import Slot, named
from ferrule.core.events import (
    CallConfined,
    CallEvaluated,
    CallHooked,
    CallStarted,
    ConsentAnswered,
    DelegationStarted,
    DirectCall,
    ModelAnswered,
    PersonAnswered,
    Record,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
)
from ferrule.core.frozen import frozen
from ferrule.core.machine import Machine

SCHEMA = "ferrule.audit.v1"
"""Of `AuditedCall.as_record`. Fields may be added; none changes its meaning without another number.
"""


@frozen
class Decided:
    """What the gate said: `verdict` is `allow`, `ask` or `refuse`. `layer` and `mode` are "" in
    older journals.
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
class Answered:
    """What a person said, or whatever stood in for one. `scope` is how far the yes reaches: this
    call (`once`), the `session`, all to come (`remember`), or `deny`; `grant` the rule that came of
    it. `bound`: it was about these very arguments.

    `question` is "" for the gate's own question, else what the tool asked while it worked.
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


@frozen
class Hooked:
    """What a hook did: `block`, `change` (then `arguments` are what ran), `answer`, `result`."""

    event: int
    hook: str
    verdict: str
    reason: str
    arguments: str
    digest: str


@frozen
class Confined:
    """What held a program of the call; `sandbox` `none` is nothing."""

    event: int
    sandbox: str
    enforced: tuple[str, ...]
    not_enforced: tuple[str, ...]
    program: str


@frozen
class AuditedCall:
    """One call. Times are ms since 1970, None for what did not happen; `event` numbers are those of
    the session.

    `by` is who asked for it: `model`, `person`, `call …` (a tool, on behalf of that call), or what
    a program called itself. `outcome` is `success`, the error type of its result, `unknown` (it had
    started, and nothing says how it ended) or `open`.
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
    decisions: tuple[Decided, ...] = ()
    answers: tuple[Answered, ...] = ()
    hooks: tuple[Hooked, ...] = ()
    confined: tuple[Confined, ...] = ()
    agents: tuple[str, ...] = ()
    """Sessions of sub-agents that did its work."""
    started: int | None = None
    finished: int | None = None
    outcome: str = "open"
    message: str = ""
    """What the result says of a failure."""
    result_sha256: str = ""
    size: int = 0
    duration_ms: int = 0
    last_event: int = 0
    """The event that settled it."""

    @property
    def verdict(self) -> str:
        """The gate's last word; "" if the call never came to it."""
        return self.decisions[-1].verdict if self.decisions else ""

    @property
    def settled_by(self) -> str:
        """What let it pass or stopped it: `rule`, `person`, `gate`, `hook`, `tool`, `run` (a bound,
        an end); `nothing` yet.
        """
        stopped = any(word.verdict == "block" for word in self.hooks)
        if not self.decisions:
            return "nothing" if self.outcome == "open" else "run"
        if stopped:
            return "hook"
        if self.verdict == "ask":
            asked = [answer for answer in self.answers if not answer.question]
            return "person" if asked else ("nothing" if self.outcome == "open" else "run")
        return "rule" if self.decisions[-1].rule else "gate"

    def as_record(self) -> dict[str, Any]:
        """As JSON values, with `schema` first and `settled_by`."""
        return {"schema": SCHEMA, **asdict(self), "settled_by": self.settled_by}


@dataclass(slots=True)
class _Draft:
    """A call on its way."""

    record: Record
    call: Call
    by: str
    model: str
    workspace: str
    slot: Slot | None = None
    result: Result | None = None
    started: int | None = None
    decisions: list[Decided] = field(default_factory=list[Decided])
    answers: list[Answered] = field(default_factory=list[Answered])
    hooks: list[Hooked] = field(default_factory=list[Hooked])
    confined: list[Confined] = field(default_factory=list[Confined])
    agents: list[str] = field(default_factory=list[str])


def digest_of(text: str) -> str:
    """SHA-256 of a text as UTF-8; lone surrogates count as they are spelled in WTF-8."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def calls(records: Iterable[Record]) -> Iterator[AuditedCall]:
    """The calls of a session in the order in which they were settled, then those that are open.
    Takes one session at a time.

    Of older journals what they do not hold is empty. Uses the memory that the session's machine
    would.
    """
    reader = Reader()
    for record in records:
        yield from reader.feed(record)
    yield from reader.rest()


class Reader:
    """Turns the records of one session into audited calls. A call comes out with the event that
    settles it.
    """

    def __init__(self) -> None:
        self._machine = Machine()
        self._open: dict[str, _Draft] = {}
        self._model = self._workspace = ""
        self._last: Record | None = None

    def feed(self, record: Record) -> list[AuditedCall]:
        """The calls that this record settles."""
        event = record.event
        self._last = record
        asked = self._asked(record)
        self._machine.feed(event)
        for draft in asked:
            draft.slot = self._machine.slot(draft.call.id)
            self._open[draft.call.id] = draft
        self._note(record)
        done = [draft for draft in self._open.values() if _result(draft) is not None]
        for draft in done:
            del self._open[draft.call.id]
        if isinstance(event, RunFinished):
            # What a run left without a word will not be answered any more, unless somebody asked
            # for it directly.
            left = [draft for draft in self._open.values() if draft.by == "model"]
            for draft in left:
                del self._open[draft.call.id]
            done += left
        return [_audited(draft, record) for draft in done]

    def rest(self) -> list[AuditedCall]:
        """The calls that are open."""
        last = self._last
        return [] if last is None else [_audited(draft, last) for draft in self._open.values()]

    def _asked(self, record: Record) -> list[_Draft]:
        event = record.event
        if isinstance(event, SessionOpened):
            self._model, self._workspace = event.model, event.workspace
        elif isinstance(event, RunStarted):
            self._model = event.model or self._model
        elif isinstance(event, DirectCall):
            return [_Draft(record, event.call, event.by, self._model, self._workspace)]
        elif isinstance(event, ModelAnswered):
            # As the machine names them: an id that is missing or taken gets another.
            made = named(event, self._machine.ids, self._machine.round).calls
            return [_Draft(record, call, "model", self._model, self._workspace) for call in made]
        return []

    def _note(self, record: Record) -> None:
        match record.event:
            case CallEvaluated() as event if draft := self._open.get(event.call_id):
                draft.decisions.append(_decided(record, event))
                draft.result = draft.result or event.result
            case PersonAnswered() as event if draft := self._open.get(event.call_id):
                draft.answers.append(_answered(record, event, draft))
            case ConsentAnswered() as event:
                # The question of a session's sandbox belongs to no call: it was asked for those
                # that run.
                named_one = self._open.get(event.call_id)
                running = [draft for draft in self._open.values() if draft.started is not None]
                for draft in [named_one] if named_one is not None else running:
                    draft.answers.append(_consent(record, event, draft))
            case CallHooked() as event if draft := self._open.get(event.call_id):
                word = (event.hook, event.verdict, event.reason, event.arguments, event.digest)
                draft.hooks.append(Hooked(record.seq, *word))
            case CallConfined() as event if draft := self._open.get(event.call_id):
                held = (event.sandbox, event.enforced, event.not_enforced, event.program)
                draft.confined.append(Confined(record.seq, *held))
            case CallStarted() as event if draft := self._open.get(event.call_id):
                draft.started = record.time
            case DelegationStarted() as event if draft := self._open.get(event.call_id):
                draft.agents.append(event.session)
            case ToolAnswered() as event if draft := self._open.get(event.result.call_id):
                draft.result = draft.result or event.result
            case _:
                pass


def _result(draft: _Draft) -> Result | None:
    return draft.result or (draft.slot.result if draft.slot is not None else None)


def _decided(record: Record, event: CallEvaluated) -> Decided:
    return Decided(
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


def _answered(record: Record, event: PersonAnswered, draft: _Draft) -> Answered:
    bound = bool(draft.decisions) and event.digest == draft.decisions[-1].digest != ""
    return Answered(
        record.seq,
        record.time,
        event.choice,
        event.by,
        event.note,
        event.grant,
        event.digest,
        bound,
    )


def _consent(record: Record, event: ConsentAnswered, draft: _Draft) -> Answered:
    words = (event.choice, event.by, event.note, event.grant, event.digest)
    return Answered(record.seq, record.time, *words, event.call_id == draft.call.id, event.question)


def _audited(draft: _Draft, last: Record) -> AuditedCall:
    result, asked = _result(draft), draft.record
    outcome = "unknown" if draft.started is not None else "open"
    # A started call that only the machine settled (its process died, its run was stopped) was
    # answered by nobody who knows.
    if result is not None and (draft.result is not None or draft.started is None):
        outcome = "success" if result.success else str(result.error_type)
    value = "" if result is None or result.data is None else result.data
    text = value if isinstance(value, str) else compact(value)
    return AuditedCall(
        asked.session,
        asked.run,
        asked.tenant,
        asked.user,
        draft.call.id,
        draft.call.tool,
        draft.by,
        draft.model,
        draft.workspace,
        asked.seq,
        asked.time,
        draft.call.arguments,
        digest_of(draft.call.arguments),
        decisions=tuple(draft.decisions),
        answers=tuple(draft.answers),
        hooks=tuple(draft.hooks),
        confined=tuple(draft.confined),
        agents=tuple(draft.agents),
        started=draft.started,
        finished=None if result is None else last.time,
        outcome=outcome,
        message="" if result is None else result.error_message or "",
        result_sha256=digest_of(text) if result is not None and result.data is not None else "",
        size=0 if result is None else result.size,
        duration_ms=0 if result is None else result.duration_ms,
        last_event=last.seq,
    )
