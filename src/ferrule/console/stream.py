"""`GET /stream`: what happens in sessions, as server-sent events (WHATWG HTML §9.2).

    event: call.answered          the kind
    id: 12~10~3f…                 the cursor: a browser sends it as `Last-Event-ID` to continue
    data: {"v":1,"kind":…}        the event as the bus encodes it, without secrets
                                  (`engine.event_bus.events`)

Query parameters: `session` (an id; without it, every session that the viewer may see), `kinds`
(names or `call.*`, separated by commas), `cursor`.

* Every reader gets what their identity may see and nothing else. Someone else's session does not
  exist for them.
* A slow reader loses the oldest events and gets `bus.dropped`, which names the first and the last
  lost event of each
  session. Nobody waits for it: what the server holds per reader is bounded (`BUFFER` events,
      `MAX_BATCH_BYTES` on the way).
* An event is encoded once for all readers.
* For one session: what runs here comes from the bus as it happens; what another process runs is
  read from the journal
  as it is written.
* For all sessions: events from now on, without history. A cursor cannot say where a reader was in
  each session, so a
  reader that returns with one is told to reload (`stream.reset`), and so is one whose cursor is no
      longer valid.
* A comment every `HEARTBEAT` seconds finds readers that left without a word. Signing out ends a
  person's streams within
  that time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ferrule.core.calls import encode_json
from ferrule.core.errors import FerruleError
from ferrule.engine.event_bus.bus import Bus
from ferrule.engine.event_bus.event_selection import OwnSession, Scope
from ferrule.engine.event_bus.events import BusEvent, CursorError
from ferrule.engine.event_bus.journal_events import find_head, follow
from ferrule.engine.event_bus.subscription import Subscription
from ferrule.runtime.http.endpoint import send_events
from ferrule.runtime.http.http_security import Receive, Send, Visitor
from ferrule.runtime.http.http_security import Scope as RequestScope
from ferrule.storage.journal.protocols import Journal

from .state import Console

MAX_READERS = 640
"""Readers at a time. Less than `runtime.http.server.MAX_CONNECTIONS`, so that pages can still be
loaded.
"""
MAX_READERS_PER_PERSON = 64
"""Readers of one person at a time, over all their sign-ins, so that one person cannot lock out
others.
"""
MAX_READERS_PER_BROWSER = 32
"""Readers of one sign-in at a time, so that a page that keeps opening streams leaves the person's
other browsers theirs.
"""
BUFFER = 1024
MAX_BATCH_BYTES = 65_536
HEARTBEAT = 15.0
RETRY = 1000
"""Milliseconds after which a browser reconnects."""
MAX_FRAMES = 1024
"""Events whose encoded form is kept for readers that have not sent it yet."""
INTERVAL = 1.0
"""Seconds between two reads of the journal for what other processes write."""
RESET = "stream.reset"
"""Sent to a reader that cannot be told what it missed: `reason` says why. What follows starts from
now.
"""
FAILED = "stream.failed"
"""The last event when events cannot be read: `reason` says why."""


def routes(console: Console) -> list[BaseRoute]:
    """Return the route of the stream."""
    streams = EventStreams(console.bus, console.journal)

    async def stream(request: Request) -> Response:
        viewer = console.require_viewer(request)
        name = request.query_params.get("session")
        info = console.find_session(viewer, name) if name else None
        scope = console.subscription_scope(viewer, info)
        own = OwnSession(info.tenant, info.user, info.session) if info else None
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        return streams.open_stream(scope, own, _kinds(request), _cursor(request), visitor)

    return [Route("/stream", stream)]


def _kinds(request: Request) -> list[str] | None:
    given = [
        kind for value in request.query_params.getlist("kinds") for kind in value.split(",") if kind
    ]
    return given or None


def _cursor(request: Request) -> str:
    return request.headers.get("last-event-id") or request.query_params.get("cursor", "")


class EventStreams:
    """The readers of a server, and what they share."""

    def __init__(self, bus: Bus, journal: Journal) -> None:
        self.bus = bus
        self.journal = journal
        self.reader_counts: Counter[tuple[str, ...]] = Counter()
        """Number of readers: all of them under `()`, each person's under their name, each sign-in's
        under both.
        """
        self._frames: dict[int, tuple[BusEvent, bytes]] = {}

    def open_stream(
        self,
        scope: Scope,
        session: OwnSession | None,
        kinds: Iterable[str] | None,
        cursor: str,
        visitor: Visitor | None,
    ) -> Response:
        """Return the stream of a scope, or of one session in it.

        Raises:
            ConfigError: an unknown kind of event.
            HTTPException: too many readers.
        """
        reader = StreamReader(self, scope, session, kinds, visitor, cursor)
        try:
            self.check_limits(visitor)
        except HTTPException:
            reader.close()
            raise
        return _EventStream(self, reader, reader_groups(visitor))

    def check_limits(self, visitor: Visitor | None) -> None:
        """Raise HTTPException if there are too many readers.

        The status is 429 if this person has too many, 503 if the server has.
        """
        _, person, browser = reader_groups(visitor)
        again = {"retry-after": "10"}
        if self.reader_counts[browser] >= MAX_READERS_PER_BROWSER and browser != person:
            raise HTTPException(
                429,
                f"this browser has {MAX_READERS_PER_BROWSER} event streams open already: close "
                f"some",
                headers=again,
            )
        if self.reader_counts[person] >= MAX_READERS_PER_PERSON:
            raise HTTPException(
                429,
                f"you have {MAX_READERS_PER_PERSON} event streams open already: close some",
                headers=again,
            )
        if self.reader_counts[()] >= MAX_READERS:
            raise HTTPException(503, f"{MAX_READERS} event streams are open already", headers=again)

    def remove_reader(self, places: Iterable[tuple[str, ...]]) -> None:
        """Stop counting a reader that was counted in these places."""
        self.reader_counts.subtract(places)
        for place in places:
            if not self.reader_counts[place]:
                del self.reader_counts[place]

    def encode_event(self, event: BusEvent) -> bytes:
        """Return an event encoded as server-sent event lines."""
        known = self._frames.get(id(event))
        if known is not None and known[0] is event:
            return known[1]
        made = _encode_frame(event.kind, event.cursor, event.data)
        self._frames[id(event)] = (event, made)
        if len(self._frames) > MAX_FRAMES:
            del self._frames[next(iter(self._frames))]
        return made


def reader_groups(
    visitor: Visitor | None,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return where a reader is counted: with all, with their person, with their sign-in.

    Without a browser the sign-in is the person.
    """
    if visitor is None:
        return (), ("", ""), ("", "")
    person = (visitor.tenant, visitor.user)
    return (), person, (*person, visitor.csrf) if visitor.csrf else person


def _encode_frame(kind: str, cursor: str, data: bytes) -> bytes:
    # A kind that a later version journaled could be any text. JSON has no line ends.
    named = kind if kind.isprintable() else "unknown"
    place = f"id: {cursor}\n" if cursor else ""
    return b"".join((f"event: {named}\n{place}data: ".encode(errors="replace"), data, b"\n\n"))


class StreamReader:
    """One reader: where its events come from, until it leaves."""

    def __init__(
        self,
        streams: EventStreams,
        scope: Scope,
        session: OwnSession | None,
        kinds: Iterable[str] | None,
        visitor: Visitor | None,
        cursor: str,
    ) -> None:
        self._streams = streams
        self._scope = scope
        self._session = session
        self._kinds = None if kinds is None else tuple(kinds)
        self._visitor = visitor
        self._reset: FerruleError | None = None
        if cursor and session is None:
            self._reset = CursorError("earlier events of all sessions cannot be replayed")
            cursor = ""
        self._cursor = cursor
        self._reads_from_bus = False
        """Whether the subscription is all there is to read: it began where the reader was, and the
        session runs in this process.
        """
        self._subscription = self._subscribe()

    def _subscribe(self) -> Subscription:
        """Subscribe after the cursor, or from now on if it is no longer valid.

        In that case the reader is told. Raises ConfigError, JournalError.
        """
        bus = self._streams.bus
        live = None
        self._reads_from_bus = self._runs_here
        if self._cursor and self._reads_from_bus:
            try:
                live = bus.subscribe(
                    self._scope, kinds=self._kinds, cursor=self._cursor, buffer=BUFFER
                )
            except CursorError as error:
                self._cursor = ""
                self._reset = error
        live = live or bus.subscribe(self._scope, kinds=self._kinds, buffer=BUFFER)
        if self._session is not None and not self._cursor:
            now = live.cursor.get(self._session.session)
            self._cursor = now or str(find_head(self._streams.journal, self._session))
        return live

    @property
    def _runs_here(self) -> bool:
        """Whether this process runs everything this reader may see."""
        return self._session is None or self._streams.bus.is_driving(self._session)

    @property
    def _is_signed_out(self) -> bool:
        """Whether the person has signed out."""
        return self._visitor is not None and self._visitor.is_signed_out

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield what is sent, until the subscription or the person's sign-in ends."""
        yield f"retry: {RETRY}\n\n".encode()
        while not (self._subscription.has_ended or self._is_signed_out):
            if self._reset is not None:
                yield _error_frame(RESET, self._reset)
                self._reset = None
            source = self._from_bus if self._reads_from_bus else self._from_journal
            try:
                async for chunk in source():
                    yield chunk
            except FerruleError as error:
                yield _error_frame(FAILED, error)
                return

    async def _from_bus(self) -> AsyncIterator[bytes]:
        """Yield events from the bus until it ends, or another process may have the session."""
        while not self._is_signed_out:
            try:
                async with asyncio.timeout(HEARTBEAT):
                    events = await self._subscription.batch(most_bytes=MAX_BATCH_BYTES)
            except TimeoutError:
                yield b":\n\n"
                self._reads_from_bus = self._runs_here
                if not self._reads_from_bus:
                    return
                continue
            if not events:
                return
            yield self._encode_events(events)

    async def _from_journal(self) -> AsyncIterator[bytes]:
        """Yield what another process writes, until this process has the session.

        A new subscription then continues from the same position.
        """
        journal = self._streams.journal
        session = self._session
        assert session is not None
        redactor = self._streams.bus.redactor
        found = follow(
            journal,
            session,
            cursor=self._cursor,
            kinds=self._kinds,
            redactor=redactor,
            interval=INTERVAL,
        )
        past = cast("AsyncGenerator[BusEvent]", found)
        written = asyncio.ensure_future(anext(past))
        here = asyncio.ensure_future(self._subscription.batch(1))
        try:
            while not (here.done() or self._runs_here or self._is_signed_out):
                tasks = (written, here)
                done, _ = await asyncio.wait(
                    tasks, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED
                )
                if written in done:
                    yield self._encode_events([written.result()])
                    written = asyncio.ensure_future(anext(past))
                elif not done:
                    yield b":\n\n"
        except CursorError as error:
            self._cursor = ""
            self._reset = error
        finally:
            await _cancel_all(written, here)
            await past.aclose()
        if not self._subscription.has_ended:
            self._subscription.close()
            self._subscription = self._subscribe()

    def _encode_events(self, events: list[BusEvent]) -> bytes:
        self._cursor = next((one.cursor for one in reversed(events) if one.cursor), self._cursor)
        return b"".join([self._streams.encode_event(event) for event in events])

    def close(self) -> None:
        """Stop reading."""
        self._subscription.close()


def _error_frame(kind: str, error: FerruleError) -> bytes:
    body = encode_json({"kind": kind, "code": error.code, "reason": error.detail})
    return _encode_frame(kind, "", body.encode(errors="replace"))


async def _cancel_all(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait for them, ignoring their outcome."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _EventStream(Response):
    """The response that sends what a reader gets until either side leaves."""

    def __init__(
        self, streams: EventStreams, reader: StreamReader, places: Iterable[tuple[str, ...]]
    ) -> None:
        super().__init__()
        self._streams = streams
        self._reader = reader
        self._places = frozenset(places)

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        self._streams.reader_counts.update(self._places)
        try:
            await send_events(self._reader.chunks(), receive, send)
        finally:
            self._streams.remove_reader(self._places)
            self._reader.close()
