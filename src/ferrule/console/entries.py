"""Entries of a session's page: messages, calls, notes and ends of runs.

Each has the place of the event that changed it last (see `timeline`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from markupsafe import Markup

from ferrule.core import events
from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.media import MediaReference
from ferrule.core.refusals import name_answerer
from ferrule.core.vocabulary import AnswerStop, Refuser
from ferrule.engine.event_bus.events import Place

from .markdown import StreamedMarkdown, render_blocks
from .typed_output import Node

State = Literal[
    "evaluating", "asks", "running", "done", "failed", "refused", "cancelled", "unknown"
]


@dataclass(slots=True)
class Entry:
    """One entry of the page.

    `number` counts from 0 in the session, `changed` is the place of what changed it last, `time` is
    in ms since 1970.
    """

    number: int
    changed: Place
    time: int
    run: str
    kind: ClassVar[str] = ""


@dataclass(slots=True)
class Message(Entry):
    """A message.

    `by` is `person`, `model` or, for data that came in by itself, `context`. `source` says more
    where there is more to say.
    """

    by: Literal["person", "model", "context"]
    text: str
    source: str = ""
    reasoning: str = ""
    usage: events.Usage | None = None
    stop: AnswerStop = "end"
    media: tuple[MediaReference, ...] = ()
    arrived: Partial | None = field(default=None, compare=False)
    """How it arrived, if that was seen."""
    kind: ClassVar[str] = "message"
    _blocks: list[Markup] | None = field(default=None, compare=False)

    @property
    def blocks(self) -> list[Markup]:
        """The text as blocks of HTML, laid out once."""
        if self._blocks is None:
            is_streamed = self.arrived is not None and self.arrived.text.text == self.text
            self.arrived = self.arrived if is_streamed else None
            self._blocks = self.arrived.text.finish() if self.arrived else render_blocks(self.text)
        return self._blocks


@dataclass(slots=True)
class Card(Entry):
    """A call and everything known about it.

    Times are in ms since 1970, or 0 if it did not happen. `decided` and `by` say what allowed or
    stopped the call, and who did; `answer` is a person's.
    """

    call: ToolCall
    direct: str = ""
    evaluated: events.CallEvaluated | None = None
    answer: events.PersonAnswered | None = None
    consents: list[events.ConsentAnswered] = field(default_factory=list[events.ConsentAnswered])
    hooks: list[events.CallHooked] = field(default_factory=list[events.CallHooked])
    confined: list[events.CallConfined] = field(default_factory=list[events.CallConfined])
    progress: list[str] = field(default_factory=list[str])
    preview: str = ""
    """What a person was shown when they were asked. It is in no journal."""
    delegated: events.DelegationStarted | None = None
    asked: int = 0
    answered: int = 0
    started: int = 0
    ended: int = 0
    result: ToolResult | None = None
    settled: str = ""
    kind: ClassVar[str] = "card"

    @property
    def state(self) -> State:
        """Where the call stands. `unknown`: it had started when its process ended."""
        if self.result is not None:
            if self.result.success:
                return "failed" if self.result.exit_status else "done"
            return _FAILED.get(str(self.result.error_type), "failed")
        if self.settled:
            return (
                "refused"
                if self.settled == "denied"
                else "unknown"
                if self.started
                else "cancelled"
            )
        if self.evaluated is None:
            return "evaluating"
        return "asks" if self.evaluated.verdict == "ask" and self.answer is None else "running"

    @property
    def seconds(self) -> float | None:
        """How long it ran, or None while it runs or if it did not run."""
        if self.started and self.ended:
            return (self.ended - self.started) / 1000
        # The start of calls that only read is not recorded; the time inside the tool is.
        ran = self.result is not None and (self.result.success or self.result.duration_ms)
        return self.result.duration_ms / 1000 if self.result is not None and ran else None

    @property
    def _refuser(self) -> Refuser | Literal[""]:
        return self.result.refused_by if self.result is not None else ""

    @property
    def decided(self) -> str:
        """What was decided: allowed, denied, refused, or nothing yet."""
        if self._refuser and (self.answer is None or self.answer.choice != "deny"):
            return "refused"
        if self.answer is not None:
            return {
                "deny": "denied",
                "once": "allowed once",
                "session": "allowed for this session",
            }.get(self.answer.choice, "allowed from now on")
        if self.evaluated is None:
            return ""
        return {"allow": "allowed", "refuse": "refused", "ask": "asks"}[self.evaluated.verdict]

    @property
    def by(self) -> str:
        """Who decided: a person, a rule with its layer, or the gate itself."""
        is_denied = self.answer is not None and self.answer.choice == "deny"
        if self._refuser not in ("", "rule", "gate") and not is_denied:
            return name_answerer("", self._refuser)
        if self.answer is not None:
            return name_answerer(self.answer.by, self.answer.refused_by)
        evaluated = self.evaluated
        if evaluated is None or evaluated.verdict == "ask":
            return ""
        rule = f"rule {evaluated.rule}" if evaluated.rule else ""
        layer = f"({evaluated.layer})" if evaluated.layer and evaluated.layer != "builtin" else ""
        return (
            " ".join(filter(None, (rule, layer))) or f"the gate, mode {evaluated.mode or 'default'}"
        )


_FAILED: dict[str, State] = {"permission_denied": "refused", "cancelled": "cancelled"}


@dataclass(slots=True)
class Note(Entry):
    """Something a person should know. `topic` is a word or two."""

    topic: str
    text: str
    kind: ClassVar[str] = "note"


@dataclass(slots=True)
class End(Entry):
    """The end of a run, `seconds` after its message. `position` counts runs from 1."""

    finished: events.RunFinished
    position: int
    answers: int
    calls: int
    seconds: float
    denied: int = 0
    """Calls of the run that were refused."""
    output: Node | None = None
    """The typed answer that the run ended with."""
    kind: ClassVar[str] = "end"


@dataclass(slots=True)
class PartialCall:
    """A call that the model is writing.

    `arguments` are the last characters of its arguments, by member.
    """

    tool: str
    arguments: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Partial:
    """The answer that is streaming.

    `number` counts the answers of the session, `place` is the place of the last piece.
    """

    number: int = 0
    text: StreamedMarkdown = field(default_factory=StreamedMarkdown)
    reasoning: str = ""
    calls: dict[int, PartialCall] = field(default_factory=dict[int, PartialCall])
    place: Place = Place()
