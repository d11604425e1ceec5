"""The event bus: what happens in sessions, for anyone who may watch it, while it happens.

    bus = Bus()
    agent = Agent("ollama:llama3.2", tools=[...], bus=bus)
    own = OwnSession("local", "ada", session.id)
    async for event in bus.subscribe(own, kinds=["call.*", "run.*"]):
        print(event.sequence, event.kind, event.payload)

A projection of the journal, and of pieces that no journal has; never a second history. Its rules:

* A run does not wait for its watchers and cannot be broken by them. Publishing appends to buffers;
  a slow reader loses the oldest events and learns exactly which (`subscription`).
* Nobody gets events outside their scope (`event_selection`), and no payload before secrets were
  removed from it (`permissions.redaction`). If that fails, the event comes without its payload.
  What runs, what is journaled and what an approver sees is not affected.
* An event is encoded and redacted once for all readers, and handed to those who may be interested:
  they are found by identity.
* A reader that comes back continues behind its cursor: with what is kept in memory, and before that
  from the journal (`journal_events`).

Events are published when they happen, a moment before they are written. If the process dies in
between, a reader has seen an event that is in no journal; cursors know what was written, so that
nothing is skipped afterwards. A redactor and a tap work in the run's own thread: they must be
quick. A redactor that raises withholds the payload; a tap that raises is removed.
"""

from __future__ import annotations

import logging
import os
import weakref
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.engine.clock import Clock, SystemClock
from ferrule.permissions.redaction import Redactor
from ferrule.storage.journal.protocols import Journal
from ferrule.tools.forking import make_lock

from .event_selection import Key, Kinds, Operator, OwnSession, Scope, parse_scope
from .events import (
    BusEvent,
    CursorError,
    EventRedactor,
    OperatorSubscribed,
    Place,
    SessionKey,
    TapRemoved,
)
from .feed import Feed
from .journal_events import RecordedEvents, find_head, resolve_cursor
from .subscription import PastEvents, Subscription, wake_all

_LOGGER = logging.getLogger("ferrule.events")
OPERATORS = "*operators"
"""The tenant of the bus's own events about operators. Nobody owns sessions of it."""
DEFAULT_BUFFER = 256
DEFAULT_PATIENCE = 100_000

Cursor = Place | str


EnterScope = Callable[[Identity, str], Callable[[], None]]
"""Enters the scope of a run or a call (identity, call id), and returns what leaves it."""


class Bus:
    """One bus may serve many agents, in several threads and event loops.

    Args:
        redactor: Removes secrets from payloads; the default knows common forms, and the values of
            this process's secret variables.
        journal: Where events of sessions that no agent here drives are read from, for a cursor; by
            default that of the first agent.
        ring: Maximum number of events in memory, for all sessions together.
        ring_bytes: Their maximum size in bytes.
    """

    def __init__(
        self,
        *,
        redactor: EventRedactor | None = None,
        journal: Journal | None = None,
        ring: int = 4096,
        ring_bytes: int = 32 << 20,
    ) -> None:
        self.redactor: EventRedactor = redactor or Redactor.for_environment(os.environ)
        self.clock: Clock = SystemClock()
        self._journal = journal
        self._lock = make_lock()
        self._ring = Ring(ring, ring_bytes)
        self._readers: dict[Key, tuple[weakref.ref[Subscription], ...]] = {}
        self._feeds: weakref.WeakValueDictionary[SessionKey, Feed] = weakref.WeakValueDictionary()
        self._tapped: list[Callable[[BusEvent], None]] = []
        """The taps as often as they were given; `_taps` and `_scopes` have each once."""
        self._taps: tuple[Callable[[BusEvent], None], ...] = ()
        self._entered: list[EnterScope] = []
        self._scopes: tuple[EnterScope, ...] = ()
        self._operators: dict[str, Feed] = {}
        self._closed = False

    # ---- publishing

    def feed(
        self,
        identity: Identity | Callable[[], Identity],
        *,
        journal: Journal | None = None,
        recorded: int = 0,
        find_address: Callable[[str], str] | None = None,
    ) -> Feed:
        """Return the publisher of a session, which has `recorded` events in its journal.

        Keep a reference to it as long as the session lives.
        """
        who = identity if callable(identity) else lambda: identity
        with self._lock:
            self._journal = journal if self._journal is None else self._journal
            kept_in = self._journal if journal is None else journal
            return Feed(self, who, kept_in, recorded, find_address)

    def find_address(self, session: SessionKey, model: str) -> str:
        """Return the URL at which a session reaches a model; "" if it does not say."""
        feed = self._feeds.get(session)
        find = None if feed is None else feed.find_address
        return find(model) if find is not None else ""

    def deliver(self, feed: Feed, event: BusEvent, place: Place) -> None:
        """Deliver a feed's event to the ring, the readers in whose scope it is, and the taps."""
        session = feed.key
        waiting: list[tuple[AbstractEventLoop, Subscription]] = []
        with self._lock:
            # Under the same lock as the delivery: a new reader has either seen it, or gets it.
            before = feed.move(place)
            if self._closed:
                return
            if feed.register():
                # Not before: opening a session that another agent drives fails, and must not
                # replace that one's feed here.
                self._feeds[session] = feed
                # Events of an earlier feed of the session may never have been written.
                self._ring.forget(session)
            self._ring.add(session, event, before, feed)
            entry = (session, event)
            for key in _scope_keys(session):
                gone = False
                for ref in self._readers.get(key, ()):
                    reader = ref()
                    if reader is None:
                        gone = True
                        continue
                    loop = reader.offer(entry)
                    if loop is not None:
                        waiting.append((loop, reader))
                if gone:
                    self._readers_of(key)
        wake_all(waiting)
        for tap in self._taps:
            try:
                tap(event)
            except Exception as error:  # noqa: BLE001  boundary: a broken tap must not break the run; it is removed, which is an event
                self._drop_tap(tap, error)

    def wants_pieces(self, session: SessionKey) -> bool:
        """Whether a reader of this session wants the model's text as it arrives."""
        with self._lock:
            return any(
                reader.kinds.pieces
                for key in _scope_keys(session)
                for reader in self._readers_of(key)
            )

    def is_driving(self, session: OwnSession) -> bool:
        """Whether an agent of this bus is working on a session, or was and has not released it."""
        with self._lock:
            return session.key in self._feeds

    def _readers_of(self, key: Key) -> list[Subscription]:
        refs = self._readers.get(key)
        if refs is None:
            return []
        readers = [reader for ref in refs if (reader := ref()) is not None and not reader.has_ended]
        if len(readers) < len(refs):
            self._set_readers(key, readers)
        return readers

    def _set_readers(self, key: Key, readers: Iterable[Subscription]) -> None:
        refs = tuple(weakref.ref(reader) for reader in readers)
        if refs:
            self._readers[key] = refs
        else:
            self._readers.pop(key, None)

    def tap(self, listener: Callable[[BusEvent], None]) -> None:
        """Hand every event to a function, in the thread of its run.

        This is for telemetry, which must see a call before it runs. The function must be quick. One
        that raises is removed. One that is given more than once gets each event once.
        """
        with self._lock:
            self._tapped.append(listener)
            self._taps = tuple(dict.fromkeys(self._tapped))

    def untap(self, listener: Callable[[BusEvent], None]) -> None:
        """Hand no more events to this function, if it is untapped as often as it was tapped."""
        with self._lock:
            if listener in self._tapped:
                self._tapped.remove(listener)
                self._taps = tuple(dict.fromkeys(self._tapped))

    def _drop_tap(self, listener: Callable[[BusEvent], None], error: Exception) -> None:
        """Remove a listener that raised, and report it to its author and to operators."""
        with self._lock:
            self._tapped = [one for one in self._tapped if one != listener]
            self._taps = tuple(dict.fromkeys(self._tapped))
        _LOGGER.warning("an observer failed and gets no more events", exc_info=error)
        self._operators_feed("bus").publish(TapRemoved(type(error).__name__))

    def add_scope(self, enter: EnterScope) -> None:
        """Have a function called where a run or a handler begins.

        Context variables that it sets apply there. This is for telemetry, whose spans are then
        the current ones.
        """
        with self._lock:
            self._entered.append(enter)
            self._scopes = tuple(dict.fromkeys(self._entered))

    def remove_scope(self, enter: EnterScope) -> None:
        """Call this function no more, if it is removed as often as it was added."""
        with self._lock:
            if enter in self._entered:
                self._entered.remove(enter)
                self._scopes = tuple(dict.fromkeys(self._entered))

    def enter_scope(self, identity: Identity, call_id: str) -> Callable[[], None]:
        """Enter the scopes of a run (`call_id` is "") or a call. Return what leaves them."""
        left = [enter(identity, call_id) for enter in self._scopes]

        def leave() -> None:
            for one in reversed(left):
                one()

        return leave

    # ---- subscribing

    def subscribe(
        self,
        scope: Scope | Identity,
        *,
        kinds: Iterable[str] | None = None,
        cursor: Cursor | Mapping[str, Cursor] | None = None,
        buffer: int = DEFAULT_BUFFER,
        patience: int = DEFAULT_PATIENCE,
    ) -> Subscription:
        """Subscribe to what happens within the scope from now on; with a cursor, from there on.

        Args:
            scope: Whose events; an identity means its session.
            kinds: Which kinds of events, as in `event_selection.Kinds`.
            cursor: A `BusEvent.cursor` (or a place) of the one session of the scope; for all
                sessions of a person it is `Subscription.cursor`, and sessions that are not in it
                are new.
            buffer: How many events wait for the reader.
            patience: The subscription is ended after it has lost this many events without reading
                any.

        Raises:
            ConfigError: The scope is blank, a kind does not exist, or the bus is closed.
            CursorError: The cursor is not valid (`cursor_unknown`), or its events are neither kept
                nor in a journal (`cursor_too_old`).
            SessionNotFound: There is no such session.
            JournalError: A journal could not be read.

        Reads the heads of journals if the cursor is older than what is kept; the events before that
        are read with the first events.
        """
        scope = parse_scope(scope)
        if buffer < 1 or patience < 1:
            raise ConfigError("a subscription needs room for at least one event")
        if scope.key[0] == OPERATORS and not isinstance(scope, Operator):
            raise ConfigError(f"the tenant `{OPERATORS}` is nobody's")
        reader = Subscription(
            scope,
            Kinds(kinds),
            buffer=buffer,
            patience=patience,
            now=self.clock.now,
            closed=self._forget,
        )
        self._begin(reader, _parse_cursors(scope, cursor))
        if isinstance(scope, Operator):
            self._announce_operator(scope)
        return reader

    def _begin(self, reader: Subscription, starts: dict[SessionKey, Cursor]) -> None:
        """Register the reader at one moment.

        What it missed is split into what is read from a journal and what is kept in memory.
        """
        key = reader.scope.key
        while True:
            heads = {
                session: self._head(session) for session in starts if session not in self._feeds
            }
            with self._lock:
                if self._closed:
                    raise ConfigError("the event bus is closed", code="bus_closed")
                if any(session in self._feeds for session in heads) or any(
                    session not in self._feeds for session in starts if session not in heads
                ):
                    # A session was opened or released meanwhile: its events are elsewhere now.
                    continue
                feeds = {
                    session: feed
                    for session, feed in self._feeds.items()
                    if _is_within(session, key)
                }
                if starts and None in key:
                    starts = {**{session: Place() for session in feeds}, **starts}
                seen = {session: (feed.place, feed.cursor) for session, feed in feeds.items()}
                past: list[PastEvents] = []
                kept: list[BusEvent] = []
                for session, cursor in starts.items():
                    seen[session] = self._resume(
                        session, cursor, feeds.get(session), heads.get(session, 0), past, kept
                    )
                reader.begin(seen, past, kept)
                self._readers[key] = (*self._readers.get(key, ()), weakref.ref(reader))
                return

    def _head(self, session: SessionKey) -> int:
        if self._journal is None:
            raise CursorError(
                f"no session `{session[2]}` is at work here",
                hint="give the bus a journal to read it from",
            )
        return find_head(self._journal, OwnSession(*session))

    def _resume(
        self,
        session: SessionKey,
        cursor: Cursor,
        feed: Feed | None,
        head: int,
        past: list[PastEvents],
        kept: list[BusEvent],
    ) -> tuple[Place, str]:
        """Return where in a session a reader continues.

        What it missed is added to `past` and `kept`.
        """
        place = (
            _parse_place(cursor, feed) if feed is not None else Place(resolve_cursor(cursor, head))
        )
        gone, events = self._ring.since(session, place)
        if gone is None:
            gone = Place(head) if feed is None else feed.place
        if gone.event > place.event:
            journal = self._journal if feed is None else feed.journal
            if journal is None:
                raise CursorError(
                    (
                        f"the events of `{session[2]}` behind {place} are no longer kept, and in "
                        "no journal"
                    ),
                    code="cursor_too_old",
                )
            own = OwnSession(*session)
            past.append(
                RecordedEvents(journal, own, self.redactor, after=place.event, until=gone.event)
            )
        kept += events
        return place, cursor if isinstance(cursor, str) else str(cursor)

    def _operators_feed(self, name: str) -> Feed:
        with self._lock:
            feed = self._operators.get(name)
        return feed or self._operators.setdefault(
            name, self.feed(Identity(OPERATORS, name, "bus", "none"))
        )

    def _announce_operator(self, scope: Operator) -> None:
        feed = self._operators_feed(scope.name)
        names = (scope.tenant or "", scope.user or "", scope.session or "")
        feed.publish(OperatorSubscribed(scope.name, scope.reason, *names))

    def _forget(self, reader: Subscription) -> None:
        with self._lock:
            self._readers_of(reader.scope.key)

    def close(self) -> None:
        """End all subscriptions.

        What they hold can still be read, then comes `bus.closed`. Later events are dropped.
        """
        with self._lock:
            self._closed = True
            readers = [reader for key in [*self._readers] for reader in self._readers_of(key)]
            self._readers.clear()
        waiting: list[tuple[AbstractEventLoop, Subscription]] = []
        for reader in readers:
            loop = reader.end("closed")
            if loop is not None:
                waiting.append((loop, reader))
        wake_all(waiting)


def _scope_keys(session: SessionKey) -> tuple[Key, ...]:
    """Return the scopes that a session is in."""
    tenant, user, _ = session
    if tenant == OPERATORS:
        return ((None, None, None),)
    return (session, (tenant, user, None), (tenant, None, None), (None, None, None))


def _is_within(session: SessionKey, key: Key) -> bool:
    return all(asked in (None, part) for part, asked in zip(session, key, strict=True))


def _parse_cursors(
    scope: Scope, cursor: Cursor | Mapping[str, Cursor] | None
) -> dict[SessionKey, Cursor]:
    """Return where the reader of each session continues."""
    if cursor is None:
        return {}
    tenant, user, session = scope.key
    if tenant is None or user is None:
        raise ConfigError("a cursor belongs to a session", hint="name tenant, user and session")
    if isinstance(cursor, Mapping):
        wrong = [name for name in cursor if session not in (None, name)]
        if wrong:
            raise ConfigError(f"a cursor of `{wrong[0]}` for a subscription to `{session}`")
        return {_session_key(tenant, user, name): place for name, place in cursor.items()}
    if session is None:
        raise ConfigError(
            "several sessions need a cursor each", hint="give `Subscription.cursor` back"
        )
    return {(tenant, user, session): cursor}


def _session_key(tenant: str, user: str, session: str) -> SessionKey:
    own = OwnSession(tenant, user, session)
    return (own.tenant, own.user, own.session)


def _parse_place(cursor: Cursor, feed: Feed) -> Place:
    """Return where a cursor is in a session that is open here. Raises CursorError."""
    if isinstance(cursor, str):
        shown, *more = cursor.split("~")
        place = Place.parse(shown)
        if not more or more[-1] != feed.epoch:
            # From another bus, or none: only events that were written then surely have the same
            # number.
            return Place(resolve_cursor(cursor, feed.place.event))
    else:
        place = cursor
    if place > feed.place:
        raise CursorError(
            f"the session is at {feed.place}, and the cursor says {place}",
            hint="begin without a cursor",
        )
    return place


@dataclass(slots=True)
class _SessionEvents:
    events: deque[BusEvent] = field(default_factory=deque[BusEvent])
    gone: Place = Place()
    """The place of the last event that fell out."""
    owner: object = None
    """Kept alive as long as any of its events is kept."""


class Ring:
    """The newest events of all sessions together.

    Not safe to share between threads: the bus holds its lock around each use.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._order: deque[SessionKey] = deque()
        self._sessions: dict[SessionKey, _SessionEvents] = {}
        self._bytes = 0

    def add(self, session: SessionKey, event: BusEvent, before: Place, owner: object) -> None:
        """Keep an event that follows the one at `before`."""
        kept = self._sessions.get(session)
        if kept is None:
            kept = self._sessions[session] = _SessionEvents(gone=before)
        kept.owner = owner
        kept.events.append(event)
        self._order.append(session)
        self._bytes += len(event.data)
        while len(self._order) > self._most or self._bytes > self._most_bytes:
            self._drop_oldest()

    def forget(self, session: SessionKey) -> None:
        """Forget all events of a session."""
        kept = self._sessions.pop(session, None)
        if kept is not None:
            self._order = deque(one for one in self._order if one != session)
            self._bytes -= sum(len(event.data) for event in kept.events)

    def _drop_oldest(self) -> None:
        # The oldest of all is the oldest of its session.
        session = self._order.popleft()
        kept = self._sessions[session]
        event = kept.events.popleft()
        assert event.sequence is not None
        kept.gone = event.sequence
        self._bytes -= len(event.data)
        if not kept.events:
            del self._sessions[session]

    def since(self, session: SessionKey, place: Place) -> tuple[Place | None, list[BusEvent]]:
        """Return `(gone, events)`: the events behind `place`, and the last place that is not kept.

        `gone` is None if nothing of the session is kept.
        """
        kept = self._sessions.get(session)
        if kept is None:
            return None, []
        return kept.gone, [
            event for event in kept.events if event.sequence is not None and event.sequence > place
        ]
