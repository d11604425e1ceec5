"""Events of a session read from its journal, and following a session of another process.

They are used for a cursor that is older than what the bus keeps, and for sessions of other
processes. `follow` watches a session that some other process drives: it polls the journal, with
limits, and reads only when the file has changed (`storage.journal.change_detection`). What is not
in the journal, text as it arrives and lines of progress, is not available.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator

from ferrule.core.errors import ConfigError
from ferrule.core.events import JournalRecord
from ferrule.core.identity import Identity
from ferrule.engine.threads import run_blocking
from ferrule.permissions.redaction import Redactor
from ferrule.storage.journal.change_detection import create_change_detector
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import unknown_session_error

from .event_selection import Kinds, OwnSession
from .events import (
    BusEvent,
    CursorError,
    EventRedactor,
    LostEvents,
    Place,
    SessionKey,
    count_lost,
    from_record,
)

PAGE_SIZE = 128
"""Events that are read and redacted at once."""
MIN_INTERVAL = 0.02
"""Minimum seconds between two polls of a journal."""
MAX_INTERVAL = 10.0
"""Maximum seconds between two polls of a journal."""


class RecordedEvents:
    """Events `after` to `until` of a session, page by page. Implements `subscription.PastEvents`.

    A session of somebody else raises SessionNotFound, like one that does not exist. Events up to
    `until` that the journal does not have (not yet, or never: they were published and not written)
    are reported as lost.
    """

    def __init__(
        self,
        journal: Journal,
        session: OwnSession,
        redactor: EventRedactor,
        *,
        after: int,
        until: int | None = None,
    ) -> None:
        self._journal = journal
        self._session = session
        self._redactor = redactor
        self._until = until
        self.after = after
        self._records: Iterator[JournalRecord] | None = None

    def page(self) -> list[BusEvent]:
        """Return the next events, [] if there are no more now. Reads the journal.

        Raises SessionNotFound, JournalError.
        """
        events: list[BusEvent] = []
        if self._records is None:
            self._records = self._journal.records(self._session.session, after=self.after)
        for record in self._records:
            if (record.tenant, record.user) != (self._session.tenant, self._session.user):
                raise unknown_session_error(self._session.session)
            if self._until is not None and record.seq > self._until:
                break
            events.append(from_record(record, self._redactor))
            self.after = record.seq
            if len(events) == PAGE_SIZE:
                return events
        self._records = None
        if self._until is not None and self.after < self._until:
            first, last = Place(self.after + 1), Place(self._until)
            self.after = self._until
            lost = LostEvents(_key(self._session), first, last, last.event - first.event + 1)
            events.append(count_lost([lost], 0.0))
        return events


def _key(session: OwnSession) -> SessionKey:
    return (session.tenant, session.user, session.session)


def find_head(journal: Journal, session: OwnSession) -> int:
    """Return the number of a session's last event.

    Raises SessionNotFound, also for a session of somebody else, and JournalError.
    """
    last, _ = journal.head(session.session)
    record = next(iter(journal.records(session.session, after=last - 1)))
    if (record.tenant, record.user) != (session.tenant, session.user):
        raise unknown_session_error(session.session)
    return last


def resolve_cursor(cursor: Place | str, last: int) -> int:
    """Return the event behind which a cursor continues, in a journal that ends with event `last`.

    For a cursor of a bus that is gone, only what had been written then counts: the other numbers
    may have been reused.

    Raises CursorError.
    """
    if isinstance(cursor, Place):
        place = cursor
        written = cursor.event
    else:
        shown, *more = cursor.split("~")
        place = Place.parse(shown)
        written = Place.parse(more[0]).event if more else place.event
    after = min(place.event, written)
    if after > last:
        raise CursorError(
            f"the session has {last} events, and the cursor says {after}",
            hint="begin without a cursor",
        )
    return after


async def follow(
    journal: Journal,
    session: Identity | OwnSession,
    *,
    cursor: Place | str = "0",
    kinds: Iterable[str] | None = None,
    redactor: EventRedactor | None = None,
    interval: float = 0.25,
) -> AsyncIterator[BusEvent]:
    """Yield the events of a session behind `cursor`, as any process writes them.

    It polls every `interval` seconds, and ends when its reader leaves.

    Raises:
        SessionNotFound: The session does not exist, or is somebody else's.
        CursorError: The cursor is not valid.
        JournalError: The journal could not be read.
        ConfigError: The interval or a kind is not valid.
    """
    if not MIN_INTERVAL <= interval <= MAX_INTERVAL:
        raise ConfigError(
            f"interval = {interval:g}: it must be {MIN_INTERVAL:g} to {MAX_INTERVAL:g} seconds"
        )
    own = OwnSession(session.tenant, session.user, session.session)
    wanted = Kinds(kinds)
    secrets = redactor or Redactor.for_environment(os.environ)
    last = await run_blocking(lambda: find_head(journal, own))
    recorded = RecordedEvents(journal, own, secrets, after=resolve_cursor(cursor, last))
    changes = create_change_detector(journal)
    try:
        while True:
            # Checked before reading: what is written while we read is a change for the next poll.
            changed = await run_blocking(changes.has_changed)
            while changed:
                page = await run_blocking(recorded.page)
                if not page:
                    break
                for event in page:
                    if event.kind in wanted:
                        yield event
            await asyncio.sleep(interval)
    finally:
        changes.close()
