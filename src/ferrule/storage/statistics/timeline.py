"""A run over time: when the model was thinking, when a person was waited for, when which tool ran.

    line = timeline(journal.records(session), run=run)
    for span in line.spans:
        print(span.kind, span.label, span.start - line.start, span.end - span.start)

It is read from the events of one run, in order. The journal says when an answer came, not when the
question was sent: a model's span begins with the event before it. A tool's span ends with its
result and is as long as its handler took; a refused call has no length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from ferrule.core.calls import ToolResult
from ferrule.core.events import (
    CallEvaluated,
    CallStarted,
    ContextCompacted,
    DirectCall,
    JournalRecord,
    ModelAnswered,
    ModelFailed,
    PersonAnswered,
    RunFinished,
    RunStarted,
    ToolAnswered,
)
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import RunStop

MAX_SPANS = 300
"""The number of spans that are kept of a run, the first ones."""

SpanKind = Literal["model", "person", "tool"]


@frozen
class Span:
    """Something that took time, from `start` to `end` in ms since 1970.

    `outcome` is `success`, an error type, `open`, or how a person or a model answered.
    """

    kind: SpanKind
    label: str
    start: int
    end: int
    outcome: str = "success"
    call_id: str = ""

    @property
    def is_failed(self) -> bool:
        """Whether it ended in any other way than wanted."""
        return self.outcome not in (
            "success",
            "open",
            "once",
            "session",
            "remember",
            "mode",
        )


@dataclass(slots=True)
class Timeline:
    """The spans of a run in the order of their starts; `more` is how many there were beyond these.

    `stop` is how the run ended, `open` if it has not.
    """

    run: str = ""
    start: int = 0
    end: int = 0
    stop: RunStop | Literal["open"] = "open"
    spans: list[Span] = field(default_factory=list[Span])
    more: int = 0


def build_timeline(records: Iterable[JournalRecord], *, run: str = "") -> Timeline:
    """Return the timeline of this run, or by default of the last one among the records."""
    builder = _TimelineBuilder()
    for record in records:
        if run and record.run != run:
            continue
        if isinstance(record.event, RunStarted):
            builder = _TimelineBuilder()
        builder.feed(record)
    return builder.finish()


class _TimelineBuilder:
    def __init__(self) -> None:
        self._timeline = Timeline()
        self._before = 0
        self._tools: dict[str, str] = {}
        self._asked: dict[str, int] = {}
        self._started: dict[str, int] = {}

    def feed(self, record: JournalRecord) -> None:
        line = self._timeline
        now = record.time
        if not line.start:
            line.run = record.run
            line.start = now
            self._before = now
        self._add_event(record, now)
        self._before = now
        line.end = now

    def _add_event(self, record: JournalRecord, now: int) -> None:
        match record.event:
            case ModelAnswered() as event:
                self._tools.update((call.id, call.tool) for call in event.calls)
                outcome = "success" if event.stop in ("end", "calls") else event.stop
                self._add(Span("model", "model", self._before, now, outcome))
            case ModelFailed() as event:
                self._add(Span("model", "model", self._before, now, event.code))
            case ContextCompacted(made="summary"):
                self._add(Span("model", "model: a summary", self._before, now))
            case DirectCall() as event:
                self._tools[event.call.id] = event.call.tool
            case CallEvaluated() as event:
                self._add_evaluated(event, now)
            case PersonAnswered() as event:
                asked = self._asked.pop(event.call_id, now)
                label = self._tools.get(event.call_id, "")
                self._add(Span("person", label, asked, now, event.choice, event.call_id))
            case CallStarted() as event:
                self._started[event.call_id] = now
            case ToolAnswered() as event:
                self._add_answered(event.result, now)
            case RunFinished() as event:
                self._timeline.stop = event.stop
            case _:
                pass

    def _add_evaluated(self, event: CallEvaluated, now: int) -> None:
        if event.result is not None:
            label = self._tools.pop(event.call_id, event.result.tool)
            self._add(Span("tool", label, now, now, str(event.result.error_type), event.call_id))
        elif event.verdict == "ask":
            self._asked[event.call_id] = now

    def _add_answered(self, result: ToolResult, now: int) -> None:
        self._tools.pop(result.call_id, None)
        self._started.pop(result.call_id, None)
        start = max(self._timeline.start, now - result.duration_ms)
        self._add(Span("tool", result.tool, start, now, result.outcome, result.call_id))

    def _add(self, span: Span) -> None:
        if len(self._timeline.spans) < MAX_SPANS:
            self._timeline.spans.append(span)
        else:
            self._timeline.more += 1

    def finish(self) -> Timeline:
        """Return the timeline, with the spans that are open at its end."""
        line = self._timeline
        for name, since in self._asked.items():
            self._add(Span("person", self._tools.get(name, ""), since, line.end, "open", name))
        for name, since in self._started.items():
            self._add(Span("tool", self._tools.get(name, ""), since, line.end, "open", name))
        line.spans.sort(key=lambda span: (span.start, span.end))
        return line
