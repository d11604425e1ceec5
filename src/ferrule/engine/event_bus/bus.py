"""The event bus: what happens in sessions, for whoever may watch it, while it happens.

    bus = Bus() agent = Agent("ollama:llama3.2", tools=[...], bus=bus) async for event in
    bus.subscribe(OwnSession("local", "ada", session.id), kinds=["call.*", "run.*"]):
        print(event.sequence, event.kind, event.payload)

A projection of the journal, and of pieces that no journal has; never a second history. Its rules:

* A run does not wait for whoever watches it and cannot be broken by them. Publishing appends to
  buffers; a slow reader loses the oldest and learns exactly what (`subscription`).
* Nobody gets events outside their scope (`scope`), and no payload before secrets were taken out of
  it (`permissions.redaction`). Where that fails, the event comes without its payload. What runs,
  what is journaled and what an approver sees is untouched.
* An event is encoded and redacted once, whoever reads it, and handed to those who may be
  interested: they are found by identity.
* A reader that comes back goes on behind its cursor: out of what is kept in memory, and before that
  out of the journal (`journal_events`).

Events are published when they happen, a moment before they are written. If the process dies in
between, a reader has seen what is in no journal; cursors know what was written, so that nothing is
skipped afterwards. A redactor and a tap work in the run's own thread: they must be quick, and one
that raises is answered as above, or removed.
"""

from __future__ import annotations

import os
import threading
import weakref
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Mapping

from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.engine.clock import Clock, SystemClock
from ferrule.permissions.redaction import Redactor
from ferrule.storage.journal.protocols import Journal

from .events import (
    BusEvent,
    CursorError,
    OperatorSubscribed,
    Place,
    Redacts,
    SessionKey,
    TapRemoved,
)
from .feed import Feed
from .journal_events import Recorded, after_of, head_of
from .ring import Ring
from .scope import Key, Kinds, Operator, OwnSession, Scope, scope_of
from .subscription import Past, Subscription, rouse_all

OPERATORS = "*operators"
"""The tenant of what the bus says of operators. Nobody owns sessions of it."""
BUFFER = 256
PATIENCE = 100_000

Cursor = Place | str


class Bus:
    """One object may serve many agents, in several threads and event loops.

    `redactor` takes secrets out of payloads; the default knows common forms, and the values of this
    process's secret variables. `journal` is where events of sessions that no agent here drives are
    read from, for a cursor; by default that of the first agent. `ring` (events) and `ring_bytes`
    bound what is kept in memory for all sessions together.
    """

    def __init__(
        self,
        *,
        redactor: Redacts | None = None,
        journal: Journal | None = None,
        ring: int = 4096,
        ring_bytes: int = 32 << 20,
        clock: Clock | None = None,
    ) -> None:
        self.redactor: Redacts = redactor or Redactor.of_process(os.environ)
        self.clock = clock or SystemClock()
        self._journal = journal
        self._lock = threading.Lock()
        self._ring = Ring(ring, ring_bytes)
        self._readers: dict[Key, tuple[weakref.ref[Subscription], ...]] = {}
        self._feeds: weakref.WeakValueDictionary[SessionKey, Feed] = weakref.WeakValueDictionary()
        self._taps: tuple[Callable[[BusEvent], None], ...] = ()
        self._operators: dict[str, Feed] = {}
        self._closed = False

    # ---- publishing

    def feed(
        self,
        identity: Identity | Callable[[], Identity],
        *,
        journal: Journal | None = None,
        recorded: int = 0,
    ) -> Feed:
        """The way of a session onto the bus, which has `recorded` events in its journal. Hold it as
        long as the session lives.
        """
        who = identity if callable(identity) else lambda: identity
        with self._lock:
            self._journal = journal if self._journal is None else self._journal
            return Feed(self, who, self._journal if journal is None else journal, recorded)

    def hand_on(self, feed: Feed, event: BusEvent, place: Place) -> None:
        """For `Feed`: to the ring, to the readers whose scope it is in, and to the taps."""
        session = feed.key
        waiting: list[tuple[AbstractEventLoop, Subscription]] = []
        with self._lock:
            # Together with handing it on: a reader that begins now has either seen it, or gets it.
            before, feed.place = feed.place, place
            if self._closed:
                return
            if not feed.known:
                # Not before: whoever opens a session that another one drives fails, and must not
                # take its place here.
                feed.known, self._feeds[session] = True, feed
                # Of one that drove it before, what is kept may never have been written.
                self._ring.forget(session)
            self._ring.add(session, event, before, feed)
            entry = (session, event)
            for key in _keys(session):
                gone = False
                for ref in self._readers.get(key, ()):
                    reader = ref()
                    if reader is None:
                        gone = True
                    elif (loop := reader.offer(entry)) is not None:
                        waiting.append((loop, reader))
                if gone:
                    self._of(key)
        rouse_all(waiting)
        for tap in self._taps:
            try:
                tap(event)
            except Exception as error:  # noqa: BLE001  boundary: a broken tap must not break the run; it is removed, which is an event
                self.untap(tap)
                self._operators_feed("bus").publish(TapRemoved(type(error).__name__))

    def wants_pieces(self, session: SessionKey) -> bool:
        """Whether a reader of this session wants words as they arrive."""
        with self._lock:
            return any(reader.kinds.pieces for key in _keys(session) for reader in self._of(key))

    def drives(self, session: OwnSession) -> bool:
        """Whether an agent of this bus is at work on a session, or was and has not let go of it."""
        with self._lock:
            return session.key in self._feeds

    def _of(self, key: Key) -> list[Subscription]:
        refs = self._readers.get(key)
        if refs is None:
            return []
        readers = [reader for ref in refs if (reader := ref()) is not None and not reader.ended]
        if len(readers) < len(refs):
            self._set(key, readers)
        return readers

    def _set(self, key: Key, readers: Iterable[Subscription]) -> None:
        refs = tuple(weakref.ref(reader) for reader in readers)
        if refs:
            self._readers[key] = refs
        else:
            self._readers.pop(key, None)

    def tap(self, listener: Callable[[BusEvent], None]) -> None:
        """Have every event handed to a function, in the thread of its run: for telemetry, which
        must see a call before it runs.

        It must be quick. One that raises is removed.
        """
        with self._lock:
            self._taps = (*self._taps, listener)

    def untap(self, listener: Callable[[BusEvent], None]) -> None:
        """Hand it no more events."""
        with self._lock:
            self._taps = tuple(one for one in self._taps if one is not listener)

    # ---- subscribing

    def subscribe(
        self,
        scope: Scope | Identity,
        *,
        kinds: Iterable[str] | None = None,
        cursor: Cursor | Mapping[str, Cursor] | None = None,
        buffer: int = BUFFER,
        patience: int = PATIENCE,
    ) -> Subscription:
        """What happens within the scope from now on; with a cursor, from there on.

        `kinds` as in `scope.Kinds`. `cursor` is a `BusEvent.cursor` (or a place) of the one session
        of the scope; for all sessions of a person it is `Subscription.cursor`, and sessions that
        are not in it are new. `buffer` is how many events wait for the reader; after losing
        `patience` without reading any, the subscription is ended.

        Raises ConfigError for a blank scope, an unknown kind or a closed bus; CursorError for a
        cursor from nowhere (`cursor_unknown`) or one whose events are neither kept nor in a journal
        (`cursor_too_old`); SessionNotFound, JournalError. Reads the heads of journals where the
        cursor is older than what is kept; what lies before is read with the first events.
        """
        scope = scope_of(scope)
        if buffer < 1 or patience < 1:
            raise ConfigError("a subscription needs room for one event at least")
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
        self._begin(reader, _starts(scope, cursor))
        if isinstance(scope, Operator):
            self._tell_of(scope)
        return reader

    def _begin(self, reader: Subscription, starts: dict[SessionKey, Cursor]) -> None:
        """Register the reader at one moment, and split what it missed into what is read and what is
        kept.
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
                    # A session began or ended meanwhile: who has its events has changed.
                    continue
                feeds = {
                    session: feed for session, feed in self._feeds.items() if _within(session, key)
                }
                if starts and None in key:
                    starts = {**{session: Place() for session in feeds}, **starts}
                seen = {session: (feed.place, feed.cursor) for session, feed in feeds.items()}
                past: list[Past] = []
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
        return head_of(self._journal, OwnSession(*session))

    def _resume(
        self,
        session: SessionKey,
        cursor: Cursor,
        feed: Feed | None,
        head: int,
        past: list[Past],
        kept: list[BusEvent],
    ) -> tuple[Place, str]:
        """Where in a session a reader goes on; what it missed joins `past` and `kept`."""
        place = _place(cursor, feed) if feed is not None else Place(after_of(cursor, head))
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
            past.append(Recorded(journal, own, self.redactor, after=place.event, until=gone.event))
        kept += events
        return place, cursor if isinstance(cursor, str) else str(cursor)

    def _operators_feed(self, name: str) -> Feed:
        with self._lock:
            feed = self._operators.get(name)
        return feed or self._operators.setdefault(
            name, self.feed(Identity(OPERATORS, name, "bus", "none"))
        )

    def _tell_of(self, scope: Operator) -> None:
        feed = self._operators_feed(scope.name)
        names = (scope.tenant or "", scope.user or "", scope.session or "")
        feed.publish(OperatorSubscribed(scope.name, scope.reason, *names))

    def _forget(self, reader: Subscription) -> None:
        with self._lock:
            self._of(reader.scope.key)

    def close(self) -> None:
        """End all subscriptions: what they hold can still be read, then comes `bus.closed`.
        Publishing goes on into the void.
        """
        with self._lock:
            self._closed = True
            readers = [reader for key in [*self._readers] for reader in self._of(key)]
            self._readers.clear()
        rouse_all(
            [(loop, reader) for reader in readers if (loop := reader.end("closed")) is not None]
        )


def _keys(session: SessionKey) -> tuple[Key, ...]:
    """The scopes that a session is in."""
    tenant, user, _ = session
    if tenant == OPERATORS:
        return ((None, None, None),)
    return (session, (tenant, user, None), (tenant, None, None), (None, None, None))


def _within(session: SessionKey, key: Key) -> bool:
    return session[0] != OPERATORS and all(
        asked in (None, part) for part, asked in zip(session, key, strict=True)
    )


def _starts(scope: Scope, cursor: Cursor | Mapping[str, Cursor] | None) -> dict[SessionKey, Cursor]:
    """By session, where its reader goes on."""
    if cursor is None:
        return {}
    tenant, user, session = scope.key
    if tenant is None or user is None:
        raise ConfigError("a cursor belongs to a session", hint="name tenant, user and session")
    if isinstance(cursor, Mapping):
        wrong = [name for name in cursor if session not in (None, name)]
        if wrong:
            raise ConfigError(f"a cursor of `{wrong[0]}` for a subscription to `{session}`")
        return {_session(tenant, user, name): place for name, place in cursor.items()}
    if session is None:
        raise ConfigError(
            "several sessions need a cursor each", hint="give `Subscription.cursor` back"
        )
    return {(tenant, user, session): cursor}


def _session(tenant: str, user: str, session: str) -> SessionKey:
    own = OwnSession(tenant, user, session)
    return (own.tenant, own.user, own.session)


def _place(cursor: Cursor, feed: Feed) -> Place:
    """Where in a session that is at work here a cursor stands. Raises CursorError."""
    if isinstance(cursor, str):
        shown, *more = cursor.split("~")
        place = Place.parse(shown)
        if not more or more[-1] != feed.epoch:
            # Of another bus, or none: only what was written then has the same number for sure.
            return Place(after_of(cursor, feed.place.event))
    else:
        place = cursor
    if place > feed.place:
        raise CursorError(
            f"the session is at {feed.place}, and the cursor says {place}",
            hint="begin without a cursor",
        )
    return place
