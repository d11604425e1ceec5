"""How calls ended, read from their events as they come: cheap enough for every event of a journal.

The audit (`audit`) says all that is known of a call, and feeds the session's machine for it.
Whoever counts needs less: which tool, when, how it ended, how long it took, who stopped it. One
`CallReader` reads one session, in order, from its first event.

    reader = CallReader()
    for record in journal.records(session):
        for call in reader.feed(record): ...

What the machine answers by itself (a bound, an end that came before the call) has no event: such
calls come out with the end of their run, as `not_run`, or `unknown` if they had started. What the
sandbox withheld is known from the sentence that the command's result ends or begins with; a program
that prints such a sentence itself is counted as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ferrule.core.calls import ErrorType, Result
from ferrule.core.events import (
    CallConfined,
    CallEvaluated,
    CallHooked,
    CallStarted,
    DirectCall,
    ModelAnswered,
    PersonAnswered,
    Record,
    RunFinished,
    ToolAnswered,
)
from ferrule.core.frozen import frozen

MESSAGE = 200
"""Characters of a failure's message that are kept."""
STOPPERS = ("rule", "gate", "person", "hook", "tool", "sandbox")
"""Who can keep a call from something, in the order in which they come to it."""
_WITHHELD = "not created, as no tool may: "
_ENDS = 4096
"""Characters at either end of an output in which the sandbox's sentence is looked for."""


@frozen
class SettledCall:
    """One call that ended. `time` is ms since 1970, `duration_ms` the time inside its handler, None
    if it did not run.

    `outcome` is `success`, an error type, `unknown` or `not_run`. `stopped_by` is one of
    `STOPPERS`: who refused it, or `sandbox` for a command that ran and was kept from creating a
    name; "" for all others. `by` is who asked for it, as in the audit; `sandbox` the mechanism that
    held its program, "" if it started none.
    """

    session: str
    call_id: str
    tool: str
    tenant: str
    user: str
    time: int
    event: int
    outcome: str
    by: str = "model"
    stopped_by: str = ""
    message: str = ""
    duration_ms: int | None = None
    size: int = 0
    sandbox: str = ""

    @property
    def owner(self) -> tuple[str, str]:
        """Tenant and user."""
        return self.tenant, self.user


@dataclass(slots=True)
class _Open:
    tool: str
    by: str
    hooked: str = ""
    started: bool = False
    sandbox: str = ""


class CallReader:
    """Reads one session. Holds what is open, and nothing of what is settled."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def feed(self, record: Record) -> Sequence[SettledCall]:
        """The calls that this record settles; none, for most records."""
        match record.event:
            case ModelAnswered() as event:
                for call in event.calls:
                    self._open[call.id] = _Open(call.tool, "model")
            case DirectCall() as event:
                self._open[event.call.id] = _Open(event.call.tool, event.by)
            case CallEvaluated(result=None):
                pass
            case CallEvaluated(result=Result() as result) as event:
                return [self._answered(record, result, "rule" if event.rule else "gate")]
            case PersonAnswered(choice="deny") as event:
                return self._denied(record, event)
            case CallHooked(verdict="block") as event if found := self._open.get(event.call_id):
                found.hooked = event.hook
            case CallConfined() as event if found := self._open.get(event.call_id):
                found.sandbox = event.sandbox
            case CallStarted() as event if found := self._open.get(event.call_id):
                found.started = True
            case ToolAnswered() as event:
                return [self._answered(record, event.result, "tool")]
            case RunFinished():
                return self._left(record)
            case _:
                pass
        return ()

    def _answered(self, record: Record, result: Result, stopper: str) -> SettledCall:
        call = self._open.pop(result.call_id, None) or _Open(result.tool, "model")
        stopped = ""
        if result.error_type is ErrorType.PERMISSION_DENIED:
            stopped = "hook" if call.hooked else stopper
        elif call.sandbox and withheld(result):
            stopped = "sandbox"
        return _settled(
            record, result.call_id, call,
            "success" if result.success else str(result.error_type),
            stopped, (result.error_message or "")[:MESSAGE],
            result.duration_ms if stopper == "tool" else None, result.size,
        )  # fmt: skip

    def _denied(self, record: Record, event: PersonAnswered) -> list[SettledCall]:
        call = self._open.pop(event.call_id, None)
        if call is None:
            return []
        said = f"{event.by or 'a person'} said no{f': {event.note}' if event.note else ''}"[
            :MESSAGE
        ]
        return [
            _settled(
                record,
                event.call_id,
                call,
                str(ErrorType.PERMISSION_DENIED),
                "person",
                said,
                None,
                0,
            )
        ]

    def _left(self, record: Record) -> list[SettledCall]:
        """Calls of the run that nobody will answer any more. Those that were made directly may
        outlive it.
        """
        left = [(name, call) for name, call in self._open.items() if call.by == "model"]
        for name, _ in left:
            del self._open[name]
        return [
            _settled(record, name, call, "unknown" if call.started else "not_run", "", "", None, 0)
            for name, call in left
        ]


def _settled(
    record: Record,
    call_id: str,
    call: _Open,
    outcome: str,
    stopped: str,
    said: str,
    ms: int | None,
    size: int,
) -> SettledCall:
    return SettledCall(
        record.session,
        call_id,
        call.tool,
        record.tenant,
        record.user,
        record.time,
        record.seq,
        outcome,
        call.by,
        stopped,
        said,
        ms,
        size,
        call.sandbox,
    )


def withheld(result: Result) -> bool:
    """Whether the result of a command says that the sandbox kept it from creating something."""
    data = result.data
    if isinstance(data, dict):
        notes: Any = cast("dict[str, Any]", data).get("notes")
        texts: Iterable[Any] = cast("list[Any]", notes) if isinstance(notes, list) else ()
    else:
        texts = (data[:_ENDS], data[-_ENDS:]) if isinstance(data, str) else ()
    return any(isinstance(text, str) and _WITHHELD in text for text in texts)
