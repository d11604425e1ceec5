"""Trials: a tool that a person called from its page, followed until it is over. Read from the
journal of its own session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from ferrule.core.calls import Result
from ferrule.core.events import CallEvaluated, Record, ToolAnswered
from ferrule.engine.threads import run_blocking
from ferrule.storage.audit.audit import AuditedCall, calls
from ferrule.storage.audit.wording import explained

from .state import Console

SHOWN = 65_536
"""Characters of a result that the page shows; the rest is in the run's page, or an artifact."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is known of it. `verdict` says in a few words what was decided and by whom."""

    call: AuditedCall
    result: Result | None
    verdict: str
    words: tuple[str, ...]

    @property
    def over(self) -> bool:
        """Whether anything else will come."""
        return self.call.outcome != "open" and (
            self.result is not None or self.call.outcome != "unknown"
        )

    @property
    def artifact(self) -> str:
        """The reference of the artifact that stands for the result, "" if none does."""
        data = self.result.data if self.result is not None else None
        name = cast("dict[str, Any]", data).get("artifact") if isinstance(data, dict) else None
        return name if isinstance(name, str) and name.startswith("art-") else ""


def trial_of(records: Iterable[Record]) -> Trial | None:
    """The first call that was made directly in a session, None if there is none."""
    everything = list(records)
    made = next(
        (
            call
            for call in calls(everything)
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
    first, *rest = explained(made)
    verdict = first.removeprefix(f"{made.call_id}: {made.tool}, ")
    return Trial(made, result, verdict, tuple(line.strip() for line in rest))


def _result(record: Record) -> Result | None:
    event = record.event
    return event.result if isinstance(event, ToolAnswered | CallEvaluated) else None


async def tried(console: Console, request: Request) -> Response:
    """The page of a trial, or with `part` what changes of it."""
    viewer, name = console.viewer(request), request.query_params.get("session", "")
    info = await run_blocking(lambda: console.session(viewer, name))
    trial = await run_blocking(lambda: trial_of(console.journal.records(info.session)))
    asked = [one for one in console.desk.questions.of_session(info.session) if one.seen_by(viewer)]
    live = console.desk.find(info.session)
    if trial is not None and trial.over and live is not None and not live.is_busy:
        # Nobody says anything more in it; what the call left running ends with it.
        await console.desk.leave(info.session)
    template = "tried_part.html" if "part" in request.query_params else "tried.html"
    return console.page(
        request, template,
        info=info, trial=trial, questions=asked, shown=SHOWN,
        failed=live.failed if live is not None else "", works=live is not None and live.is_busy,
    )  # fmt: skip
