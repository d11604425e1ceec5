"""Trials: a tool that a person called from its page, followed until the call has ended.

Read from the journal of the session that the call has to itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from ferrule.core.calls import ToolResult
from ferrule.core.events import CallEvaluated, JournalRecord, ToolAnswered
from ferrule.core.value_class import frozen
from ferrule.engine.threads import run_blocking
from ferrule.storage.audit.audit import AuditedCall, audit_calls
from ferrule.storage.audit.explanation import explain

from .state import Console

MAX_SHOWN = 65_536
"""Characters of a result that the page shows; the rest is on the run's page, or in an artifact."""


@frozen
class Trial:
    """What is known about a trial. `verdict` says in a few words what was decided and by whom."""

    call: AuditedCall
    result: ToolResult | None
    verdict: str
    words: tuple[str, ...]

    @property
    def over(self) -> bool:
        """Whether the call has ended and nothing else will follow."""
        return self.call.outcome != "open" and (
            self.result is not None or self.call.outcome != "unknown"
        )

    @property
    def artifact(self) -> str:
        """The reference of the artifact that holds the result, or ""."""
        data = self.result.data if self.result is not None else None
        name = cast("dict[str, Any]", data).get("artifact") if isinstance(data, dict) else None
        return name if isinstance(name, str) and name.startswith("art-") else ""


def find_trial(records: Iterable[JournalRecord]) -> Trial | None:
    """Return the first call that was made directly in a session, or None."""
    everything = list(records)
    made = next(
        (
            call
            for call in audit_calls(everything)
            if call.by not in ("model",) and not call.by.startswith("call ")
        ),
        None,
    )
    if made is None:
        return None
    result = next(
        (
            one
            for one in map(_result, everything)
            if one is not None and one.call_id == made.call_id
        ),
        None,
    )
    first, *rest = explain(made)
    verdict = first.removeprefix(f"{made.call_id}: {made.tool}, ")
    return Trial(made, result, verdict, tuple(line.strip() for line in rest))


def _result(record: JournalRecord) -> ToolResult | None:
    event = record.event
    return event.result if isinstance(event, ToolAnswered | CallEvaluated) else None


async def show_trial(console: Console, request: Request) -> Response:
    """Show the page of a trial, or with `part` the part of it that changes."""
    viewer = console.require_viewer(request)
    name = request.query_params.get("session", "")
    info = await run_blocking(lambda: console.find_session(viewer, name))
    trial = await run_blocking(lambda: find_trial(console.journal.records(info.session)))
    asked = [
        one
        for one in console.open_sessions.questions.of_session(info.session)
        if one.is_visible_to(viewer)
    ]
    live = console.open_sessions.find(info.session)
    if trial is not None and trial.over and live is not None and not live.is_busy:
        # No other message will follow in this session; what the call left running ends with it.
        await console.open_sessions.release(info.session)
    template = "tried_part.html" if "part" in request.query_params else "tried.html"
    return console.render_page(
        request, template,
        info=info, trial=trial, questions=asked, shown=MAX_SHOWN,
        failed=live.failed if live is not None else "", works=live is not None and live.is_busy,
    )  # fmt: skip
