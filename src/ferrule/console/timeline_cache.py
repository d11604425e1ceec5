"""Cache of the timelines that pages show, brought up to date whenever someone looks.

A cached timeline takes events from two sources, each event once: from the bus, which has what
happens in this process before it is written, and the text as it streams; and from the journal,
which has what any process wrote. They cannot disagree: a session has one writer, and an event has
its number from the start. A page that comes back after a restart finds a timeline with another
`epoch` and gets everything again.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable
from copy import deepcopy
from secrets import token_hex

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.engine.event_bus.bus import Bus
from ferrule.engine.event_bus.event_selection import OwnSession
from ferrule.engine.event_bus.events import CursorError, Place
from ferrule.engine.event_bus.journal_events import RecordedEvents
from ferrule.engine.event_bus.subscription import Subscription
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import SessionInfo

from .entries import Entry, Message, PartialCall
from .markdown import ArrivingText
from .timeline import Timeline

MAX_CACHED = 64
"""Timelines kept in the cache; the one not looked at for longest goes first."""
BUFFER = 4096


@frozen
class PartialMark:
    """What a page has of the answer that is streaming: `number.blocks.version`.

    Args:
        number: Which answer of the session.
        blocks: How many of its finished blocks.
        version: Which layout of its unfinished end.
    """

    number: int = -1
    blocks: int = 0
    version: int = -1

    @staticmethod
    def parse(text: str) -> PartialMark:
        """Parse what a page sent; anything else is a page that has nothing."""
        parts = text.split(".")
        if len(parts) != 3 or not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
            return PartialMark()
        return PartialMark(*map(int, parts))


@frozen
class PartialSnapshot:
    """The answer that is streaming, for a page.

    Args:
        mark: What the page has once it has merged this.
        place: The place of the last piece.
        begins: Whether the page has nothing of this answer yet.
        has_tail: Whether the page has the same layout of the unfinished end already.
        text: The finished blocks that the page does not have, and the unfinished end.
        reasoning: What the model thought before. Only where the page has nothing yet.
        calls: Calls that are being written.
    """

    mark: str
    place: Place
    begins: bool
    has_tail: bool
    text: ArrivingText
    reasoning: str
    calls: dict[int, PartialCall]


@frozen
class TimelineSnapshot:
    """A timeline at one moment.

    With `whole`, `entries` are the last entries of all, with `earlier` of them left out; otherwise
    the ones that changed after a mark.
    """

    mark: str
    cursor: str
    entries: list[Entry]
    earlier: int
    whole: bool
    partial: PartialSnapshot
    known: PartialMark
    """What the page has of an answer that was streaming."""
    timeline: Timeline

    def count_known_blocks(self, message: Message) -> int:
        """Return how many blocks of a message the page has: it was streaming until now."""
        if message.arrived is None or message.arrived.number != self.known.number:
            return 0
        return self.known.blocks


class CachedTimeline:
    """The cached timeline of one session, for whoever may see it.

    `timeline` is as of the last `refresh`. Threads may share it.
    """

    def __init__(self, bus: Bus, journal: Journal, session: OwnSession) -> None:
        self.session = session
        self.epoch = token_hex(4)
        self.timeline = Timeline()
        self.lock = threading.RLock()
        self._bus, self._journal = bus, journal
        self._subscription: Subscription | None = None

    @property
    def mark(self) -> str:
        """The position of this timeline, for a page to send back."""
        return f"{self.epoch}~{self.timeline.place}"

    def parse_mark(self, mark: str) -> Place | None:
        """Return the place that a mark of this timeline stands for, or None for any other mark."""
        epoch, _, place = mark.partition("~")
        if epoch != self.epoch:
            return None
        try:
            return Place.parse(place)
        except CursorError:
            return None

    def snapshot(self, mark: str, max_entries: int, partial_mark: str = "") -> TimelineSnapshot:
        """Return what changed after a mark of this timeline; without one, its last entries.

        At most `max_entries` entries are returned without a mark. `partial_mark` says what the page
        has of a streaming answer (`PartialMark`). Answers are laid out here, which may take a
        second.
        """
        with self.lock:
            timeline = self.timeline
            behind = self.parse_mark(mark)
            shown = timeline.entries[-max_entries:] if behind is None else timeline.since(behind)
            lay_out(shown)
            known = PartialMark() if behind is None else PartialMark.parse(partial_mark)
            return TimelineSnapshot(
                self.mark,
                timeline.cursor or str(timeline.place),
                shown,
                shown[0].number if shown and behind is None else 0,
                behind is None,
                self._look_at_partial(known),
                known,
                timeline,
            )

    def _look_at_partial(self, known: PartialMark) -> PartialSnapshot:
        partial = self.timeline.partial
        begins = known.number != partial.number
        text = partial.text.look(0 if begins else known.blocks)
        return PartialSnapshot(
            f"{partial.number}.{text.count}.{text.version}",
            partial.place,
            begins,
            not begins and known.version == text.version,
            text,
            partial.reasoning if begins else "",
            deepcopy(partial.calls),
        )

    def refresh(self) -> None:
        """Add what happened since the last refresh. Reads the journal.

        Raises:
            SessionNotFound: the session is not in the journal.
            JournalError: the journal cannot be read.
        """
        with self.lock:
            if self._subscription is None or self._subscription.has_ended:
                self._read_journal()
                self._subscription = self._subscribe()
            if self._subscription is not None:
                self._take_from_bus(self._subscription)
            self._read_journal()

    def _subscribe(self) -> Subscription | None:
        try:
            return self._bus.subscribe(
                self.session, cursor=Place(self.timeline.place.event), buffer=BUFFER
            )
        except CursorError:
            # The session continued in another process, and the bus is behind: for now the journal
            # has everything.
            return None

    def _take_from_bus(self, news: Subscription) -> None:
        for event in news.take_nowait():
            if event.sequence is None:
                # Events were lost, or the subscription ended: the journal is read instead, and the
                # next refresh subscribes again.
                news.close()
                continue
            if event.sequence.event > self.timeline.place.event + 1:
                self._read_journal(event.sequence.event - 1)
            self.timeline.feed(event)

    def _read_journal(self, until: int | None = None) -> None:
        """Add the events that are in the journal and not here yet."""
        after = self.timeline.place.event
        past = RecordedEvents(
            self._journal, self.session, self._bus.redactor, after=after, until=until
        )
        while page := past.page():
            for event in page:
                self.timeline.feed(event)

    def close(self) -> None:
        """Unsubscribe from the bus."""
        if self._subscription is not None:
            self._subscription.close()


class TimelineCache:
    """The timelines of a server."""

    def __init__(self, bus: Bus, journal: Journal) -> None:
        self._bus, self._journal = bus, journal
        self._cached: OrderedDict[OwnSession, CachedTimeline] = OrderedDict()
        self._lock = threading.Lock()

    def fetch(self, info: SessionInfo) -> CachedTimeline:
        """Return the timeline of a session as it is now.

        The caller checks whether it may be shown.

        Raises:
            SessionNotFound: the session is not in the journal.
            JournalError: the journal cannot be read.
        """
        key = OwnSession(info.tenant, info.user, info.session)
        with self._lock:
            view = self._cached.get(key)
            if view is None:
                view = self._cached[key] = CachedTimeline(self._bus, self._journal, key)
            self._cached.move_to_end(key)
            gone = [
                self._cached.popitem(last=False)[1] for _ in range(len(self._cached) - MAX_CACHED)
            ]
        for one in gone:
            one.close()
        try:
            view.refresh()
        except FerruleError:
            self.forget(key)
            raise
        return view

    def forget(self, session: OwnSession) -> None:
        """Drop a timeline, so that it is read again: what was shown may not be what was written."""
        with self._lock:
            view = self._cached.pop(session, None)
        if view is not None:
            view.close()

    def close(self) -> None:
        """Close every timeline."""
        with self._lock:
            gone = [*self._cached.values()]
            self._cached.clear()
        for view in gone:
            view.close()


def lay_out(entries: Iterable[Entry]) -> None:
    """Lay out the answers among entries, so that a template finds them ready."""
    for entry in entries:
        if isinstance(entry, Message) and entry.by == "model":
            _ = entry.blocks
