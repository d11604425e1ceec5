"""Past events of a session, a page at a time, as the bus delivers them: without secrets.

    page = past_events(journal, OwnSession("local", "ada", id), redactor, kinds=["call.*"], after=0)
    page.events, page.next          # continue with after=page.next; 0 at the end

A page has two limits: the events on it and those that were examined for it, so that a filter which
matches nothing costs no more than one that matches everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import unknown_session_error

from .event_selection import Kinds, OwnSession
from .events import BusEvent, EventRedactor, from_record

MAX_EVENTS = 100
MAX_EXAMINED = 5_000


@dataclass(slots=True)
class PastPage:
    """Events in their order.

    `next` is the number of the last event that was examined, 0 if there are no more.
    """

    events: list[BusEvent] = field(default_factory=list[BusEvent])
    next: int = 0
    examined: int = 0


def past_events(
    journal: Journal,
    session: OwnSession,
    redactor: EventRedactor,
    *,
    kinds: Iterable[str] | None = None,
    after: int = 0,
    most: int = MAX_EVENTS,
    looked: int = MAX_EXAMINED,
) -> PastPage:
    """Return the events behind number `after`, of these kinds (`event_selection.Kinds`).

    Raises:
        SessionNotFound: The session does not exist, or is somebody else's.
        ConfigError: A kind does not exist.
        JournalError: The journal could not be read.
    """
    wanted = Kinds(kinds)
    page = PastPage()
    last, _ = journal.head(session.session)
    for record in journal.records(session.session, after=after):
        if (record.tenant, record.user) != (session.tenant, session.user):
            raise unknown_session_error(session.session)
        page.examined += 1
        # By its own kind: an event that could not be redacted gets another one.
        if record.event.kind in wanted:
            page.events.append(from_record(record, redactor))
        if len(page.events) == most or page.examined == looked:
            page.next = record.seq if record.seq < last else 0
            break
    return page
