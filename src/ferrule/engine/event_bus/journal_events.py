"""Events of a session as its journal holds them: for a cursor that is older than what the bus
keeps, and for sessions of other processes.

`follow` watches a session that some other process drives: it polls the journal, bounded, and reads
only when the file says that somebody wrote (`storage.journal.change_detection`). What is not in the
journal, words as they arrive and lines of progress, stays in the other process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator

from ferrule.core.errors import ConfigError
from ferrule.core.events import Record
from ferrule.core.identity import Identity
from ferrule.engine.threads import run_blocking
from ferrule.permissions.redaction import Redactor
from ferrule.storage.journal.change_detection import changes_of
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import unknown

from .events import BusEvent, CursorError, Lost, Place, Redacts, SessionKey, dropped, from_record
from .scope import Kinds, OwnSession

PAGE = 128
"""Events that are read and redacted at once."""
SHORTEST, LONGEST = 0.02, 10.0
"""Seconds between two looks at a journal, at least and at the most."""


class Recorded:
    """Events `after` .. `until` of a session, page by page. Fulfils `subscription.Past`.

    A session of somebody else does not exist: SessionNotFound, as for one that nobody has. Events
    up to `until` that the journal does not hold (not yet, or never: they were published and not
    written) are told of as lost.
    """

    def __init__(
        self,
        journal: Journal,
        session: OwnSession,
        redactor: Redacts,
        *,
        after: int,
        until: int | None = None,
    ) -> None:
        self._journal = journal
        self._session = session
        self._redactor = redactor
        self._until = until
        self.after = after
        self._records: Iterator[Record] | None = None

    def page(self) -> list[BusEvent]:
        """The next events, [] if there are no more now. Reads the journal. Raises SessionNotFound,
        JournalError.
        """
        events: list[BusEvent] = []
        if self._records is None:
            self._records = self._journal.records(self._session.session, after=self.after)
        for record in self._records:
            if (record.tenant, record.user) != (self._session.tenant, self._session.user):
                raise unknown(self._session.session)
            if self._until is not None and record.seq > self._until:
                break
            events.append(from_record(record, self._redactor))
            self.after = record.seq
            if len(events) == PAGE:
                return events
        self._records = None
        if self._until is not None and self.after < self._until:
            first, last = Place(self.after + 1), Place(self._until)
            self.after = self._until
            lost = Lost(_key(self._session), first, last, last.event - first.event + 1)
            events.append(dropped([lost], 0.0))
        return events


def _key(session: OwnSession) -> SessionKey:
    return (session.tenant, session.user, session.session)


def head_of(journal: Journal, session: OwnSession) -> int:
    """The number of its last event. Raises SessionNotFound, also for a session of somebody else,
    and JournalError.
    """
    last, _ = journal.head(session.session)
    record = next(iter(journal.records(session.session, after=last - 1)))
    if (record.tenant, record.user) != (session.tenant, session.user):
        raise unknown(session.session)
    return last


def after_of(cursor: Place | str, last: int) -> int:
    """The event behind which a cursor goes on, in a journal that ends with event `last`. Raises
    CursorError.

    Of a cursor of a bus that is gone only what had been written then counts: the rest may have
    become something else.
    """
    if isinstance(cursor, Place):
        place, written = cursor, cursor.event
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
    redactor: Redacts | None = None,
    interval: float = 0.25,
) -> AsyncIterator[BusEvent]:
    """The events of a session behind `cursor`, those that are there and those that any process
    writes from now on.

    It looks every `interval` seconds, and ends when its reader leaves. Raises SessionNotFound (also
    where the session is somebody else's), CursorError, JournalError, ConfigError.
    """
    if not SHORTEST <= interval <= LONGEST:
        raise ConfigError(
            f"interval = {interval:g}: it must be {SHORTEST:g} to {LONGEST:g} seconds"
        )
    own = OwnSession(session.tenant, session.user, session.session)
    wanted = Kinds(kinds)
    secrets = redactor or Redactor.of_process(os.environ)
    last = await run_blocking(lambda: head_of(journal, own))
    recorded = Recorded(journal, own, secrets, after=after_of(cursor, last))
    changes = changes_of(journal)
    try:
        while True:
            # Asked before reading: what is written while we read is a change that the next look
            # sees.
            changed = await run_blocking(changes.changed)
            while changed and (page := await run_blocking(recorded.page)):
                for event in page:
                    if event.kind in wanted:
                        yield event
            await asyncio.sleep(interval)
    finally:
        changes.close()
