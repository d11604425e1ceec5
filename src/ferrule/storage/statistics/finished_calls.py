"""How calls ended, read from events as they come: cheap enough for every event of a journal.

The audit (`audit`) says all that is known of a call, and feeds the session's machine for that.
Statistics need less: which tool, when, how it ended, how long it took, who stopped it. One
`CallReader` reads one session, in order, from its first event.

    reader = CallReader()
    for record in journal.records(session):
        for call in reader.feed(record): ...

What the machine answers by itself (a limit, or a run that ended before the call) has no event: such
calls are reported when their run ends, as `not_run`, or `unknown` if they had started. What the
sandbox withheld is known from the sentence at the start or end of the command's result; a program
that prints such a sentence itself is counted as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from ferrule.core.calls import CallOutcome, ErrorType, ToolResult
from ferrule.core.events import (
    CallConfined,
    CallEvaluated,
    CallStarted,
    DirectCall,
    JournalRecord,
    ModelAnswered,
    PersonAnswered,
    RunFinished,
    ToolAnswered,
)
from ferrule.core.refusals import name_answerer
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import Refuser

MAX_MESSAGE = 200
"""Characters of a failure's message that are kept."""
STOPPERS: tuple[Refuser, ...] = get_args(Refuser)
"""Who can stop a call, in the order in which they check it."""
_WITHHELD = "not created, as no tool may: "
_SEARCHED = 4096
"""Characters at either end of an output in which the sandbox's sentence is looked for."""


@frozen
class FinishedCall:
    """One call that ended.

    `time` is ms since 1970, `duration_ms` the time inside its handler, None if it did not run.
    `outcome` is `success`, an error type, `unknown` or `not_run`. `stopped_by` is one of
    `STOPPERS`: who refused it, or `sandbox` for a command that ran but could not create a name; ""
    for all others. `by` is who asked for it, as in the audit; `sandbox` the mechanism that confined
    its program, "" if it started none.
    """

    session: str
    call_id: str
    tool: str
    tenant: str
    user: str
    time: int
    event: int
    outcome: CallOutcome
    by: str = "model"
    stopped_by: Refuser | Literal[""] = ""
    message: str = ""
    duration_ms: int | None = None
    size: int = 0
    sandbox: str = ""

    @property
    def owner(self) -> tuple[str, str]:
        """Tenant and user."""
        return self.tenant, self.user


@dataclass(slots=True)
class _OpenCall:
    tool: str
    by: str
    started: bool = False
    sandbox: str = ""


class CallReader:
    """Reads one session. It keeps the open calls, and nothing of those that ended."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenCall] = {}

    def feed(self, record: JournalRecord) -> Sequence[FinishedCall]:
        """Return the calls that this record ends; for most records there are none."""
        match record.event:
            case ModelAnswered() as event:
                for call in event.calls:
                    self._open[call.id] = _OpenCall(call.tool, "model")
            case DirectCall() as event:
                self._open[event.call.id] = _OpenCall(event.call.tool, event.by)
            case CallEvaluated(result=ToolResult() as result) as event:
                return [self._finish(record, result, is_timed=False)]
            case PersonAnswered(choice="deny") as event:
                return self._finish_denied(record, event)
            case ToolAnswered() as event:
                return [self._finish(record, event.result, is_timed=True)]
            case RunFinished():
                return self._finish_unanswered(record)
            case CallConfined() | CallStarted() as event:
                self._update_open(event)
            case _:
                pass
        return ()

    def _update_open(self, event: CallConfined | CallStarted) -> None:
        call = self._open.get(event.call_id)
        if call is None:
            return
        match event:
            case CallConfined():
                call.sandbox = event.sandbox
            case CallStarted():
                call.started = True
            case _:
                pass

    def _finish(self, record: JournalRecord, result: ToolResult, *, is_timed: bool) -> FinishedCall:
        call = self._open.pop(result.call_id, None) or _OpenCall(result.tool, "model")
        stopped = result.refused_by
        if not stopped and call.sandbox and is_withheld_by_sandbox(result):
            stopped = "sandbox"
        return _finished_call(
            record,
            result.call_id,
            call,
            outcome=result.outcome,
            stopped_by=stopped,
            message=(result.error_message or "")[:MAX_MESSAGE],
            duration_ms=result.duration_ms if is_timed else None,
            size=result.size,
        )

    def _finish_denied(self, record: JournalRecord, event: PersonAnswered) -> list[FinishedCall]:
        call = self._open.pop(event.call_id, None)
        if call is None:
            return []
        message = f"denied by {name_answerer(event.by, event.refused_by)}"
        if event.note:
            message += f": {event.note}"
        return [
            _finished_call(
                record,
                event.call_id,
                call,
                outcome=ErrorType.PERMISSION_DENIED,
                stopped_by=event.refused_by or "person",
                message=message[:MAX_MESSAGE],
            )
        ]

    def _finish_unanswered(self, record: JournalRecord) -> list[FinishedCall]:
        """Return the run's calls that nobody will answer any more.

        Calls that were made directly may outlive the run.
        """
        left = [(call_id, call) for call_id, call in self._open.items() if call.by == "model"]
        for call_id, _ in left:
            del self._open[call_id]
        return [
            _finished_call(record, call_id, call, outcome="unknown" if call.started else "not_run")
            for call_id, call in left
        ]


def _finished_call(
    record: JournalRecord,
    call_id: str,
    call: _OpenCall,
    *,
    outcome: CallOutcome,
    stopped_by: Refuser | Literal[""] = "",
    message: str = "",
    duration_ms: int | None = None,
    size: int = 0,
) -> FinishedCall:
    return FinishedCall(
        session=record.session,
        call_id=call_id,
        tool=call.tool,
        tenant=record.tenant,
        user=record.user,
        time=record.time,
        event=record.seq,
        outcome=outcome,
        by=call.by,
        stopped_by=stopped_by,
        message=message,
        duration_ms=duration_ms,
        size=size,
        sandbox=call.sandbox,
    )


def is_withheld_by_sandbox(result: ToolResult) -> bool:
    """Return whether a command's result says that the sandbox kept it from creating something."""
    data = result.data
    texts: Iterable[Any] = ()
    if isinstance(data, str):
        texts = (data[:_SEARCHED], data[-_SEARCHED:])
    elif isinstance(data, dict):
        notes: Any = cast("dict[str, Any]", data).get("notes")
        if isinstance(notes, list):
            texts = cast("list[Any]", notes)
    return any(isinstance(text, str) and _WITHHELD in text for text in texts)
