"""Work of a sub-agent that an ended process left: what of it is in the journal.

The delegating session's journal has the sub-agent's session before the sub-agent does anything
(`DelegationStarted`). So a `delegate` call that a process left open is run again, and goes on in
that session: its open run is finished like any other (`Session.resume`), questions included; the
answer of a run that had ended is taken from the journal. A check of the work is made again.

Only calls of the model are continued. What a tool's code, a script or a hook delegated has nobody
left who waits for it; its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from ferrule.core.errors import SessionNotFound
from ferrule.core.events import (
    DelegationFinished,
    DelegationStarted,
    Event,
    ModelAnswered,
    RunFinished,
    RunStarted,
    Usage,
)
from ferrule.core.machine import Machine
from ferrule.core.value_class import frozen
from ferrule.engine.budgets import count_usage
from ferrule.storage.journal.protocols import Journal
from ferrule.tools.outcome_probe import NOT_HAPPENED, UNKNOWN, ProbeResult

CORRECT = (
    "Your work was checked and did not pass. The notice says what the check found. Correct the "
    "work, then answer again."
)
"""The message after a check that did not pass."""


@frozen
class PastWork:
    """What a sub-agent had done when its process ended.

    Attributes:
        usage: What its runs used, without an open one.
        calls: How many calls its models made in them, with those of agents below it.
        checks: How often its work had been checked and sent back.
        finished: How its last run ended; None if that is open, or there was none.
    """

    usage: Usage
    calls: int
    checks: int
    finished: RunFinished | None


def read_past_work(journal: Journal, session: str) -> PastWork:
    """Read what a sub-agent had done in its session."""
    machine = Machine()
    usage = Usage()
    calls = run_calls = checks = 0
    finished: RunFinished | None = None
    for record in journal.records(session):
        event = record.event
        if isinstance(event, RunStarted):
            finished = None
            run_calls = 0
            checks += event.text == CORRECT
        elif isinstance(event, ModelAnswered):
            run_calls += len(event.calls)
        elif isinstance(event, DelegationFinished):
            run_calls += read_past_work(journal, event.session).calls
        machine.feed(event)
        if isinstance(event, RunFinished):
            finished = event
            usage += count_usage(machine)
            calls += run_calls
    return PastWork(usage, calls, checks, finished)


class InterruptedCalls:
    """The `delegate` calls of a session's model that an ended process left open.

    Args:
        journal: The session's journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._calls: dict[str, DelegationStarted | DelegationFinished | None] = {}

    def rebuild(self, open_calls: Iterable[str], events: Iterable[Event]) -> None:
        """Take from the session's journal what became of its open calls."""
        self._calls = dict.fromkeys(open_calls)
        for event in events:
            if (
                isinstance(event, DelegationStarted | DelegationFinished)
                and event.call_id in self._calls
            ):
                self._calls[event.call_id] = event

    def find(self, call_id: str) -> DelegationStarted | DelegationFinished | None:
        """Return the last that the journal says of a call's sub-agent; None if nothing."""
        return self._calls.get(call_id)

    def probe(self, call_id: str) -> ProbeResult:
        """Say whether a call can run: none of what its sub-agent did is done again then."""
        if call_id not in self._calls:
            return UNKNOWN
        earlier = self._calls[call_id]
        if earlier is not None:
            try:
                self._journal.find(earlier.session)
            except SessionNotFound:
                # Somebody has deleted it, and with it what the sub-agent did.
                return UNKNOWN
        return NOT_HAPPENED
