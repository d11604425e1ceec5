"""One connection and the pool that keeps it: asyncio's streams of bytes under `http1`.

A connection carries one exchange at a time. An exchange that is not read to its end closes its
connection: there is no other way to tell a server to stop working. No I/O happens on other threads,
so a delta costs no hand-over, and everything that has arrived is taken with one wake-up.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from math import inf
from typing import NamedTuple, cast

from .http1 import MalformedResponse, ResponseParser
from .proxies import tunnel_head

IDLE_SECONDS = 60.0
"""An idle connection older than this is not used again: servers and firewalls forget them."""
IDLE_LIMIT = 1024
"""Idle connections kept per origin."""
READ_SIZE = 1 << 18
"""Bytes taken from a socket at once. One buffer per loop: a new one for each read costs more than
most reads.
"""
HIGH_WATER = 1 << 20
"""Bytes that may wait for a slow reader before the socket is left unread."""


class Broken(Exception):
    """The connection failed. `kind` is `timeout`, `closed` (by the server) or `malformed`.

    `fresh` is False if the connection had been used before and not one byte of an answer came: the
    server had closed an idle connection, and the same request on a new one is no repetition.
    """

    def __init__(self, kind: str, detail: str, *, fresh: bool = True) -> None:
        super().__init__(detail)
        self.kind = kind
        self.fresh = fresh


class Origin(NamedTuple):
    """Where a connection leads. `proxy` is `(host, port, credentials)` or None; credentials are a
    header value.
    """

    secure: bool
    host: str
    port: int
    proxy: tuple[str, int, str] | None = None


class Connection(asyncio.BufferedProtocol):
    """See the head of this file. Made by `connect`. `buffer` may be shared by all connections of a
    loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, buffer: memoryview) -> None:
        self._loop = loop
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = loop.create_future()
        self._waiter: asyncio.Future[None] | None = None
        self._parser: ResponseParser | None = None
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._error: Broken | None = None
        self._paused = False
        self._heard = 0.0
        self._answered = False
        self._watch: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._idle: float | None = None
        self.exchanges = 0
        self.idle_since = 0.0

    # ---- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        # asyncio fills it and calls `buffer_updated` in the same breath: no other connection comes
        # between.
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        parser = self._parser
        if parser is None or parser.done:
            # Nobody asked: a stray answer must not be taken for the next one.
            self.abort()
            return
        self._heard, self._answered = self._loop.time(), True
        broken: Broken | None = None
        try:
            body = parser.feed(data)
        except MalformedResponse as problem:
            body = problem.body
            broken = Broken("malformed", str(problem))
        if body:
            self._pieces.append(body)
            self._waiting_bytes += len(body)
            if self._waiting_bytes > HIGH_WATER and not self._paused and self._transport:
                self._paused = True
                self._transport.pause_reading()
        if broken is not None:
            self.fail(broken)
        elif body or parser.status or parser.done:
            self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch:
            self._watch.cancel()
            self._watch = None
        parser = self._parser
        if parser and not parser.done and self._error is None:
            try:
                if exc:
                    raise MalformedResponse(f"the connection broke: {exc}")
                parser.eof()
            except MalformedResponse as problem:
                fresh = self.exchanges <= 1 or self._answered
                self._error = Broken("closed", str(problem), fresh=fresh)
        if not self._closed.done():
            self._closed.set_result(None)
        self._wake()

    # ---- one exchange

    def start(self, request: bytes, total: float | None, idle: float | None) -> None:
        """Send a request. `total` seconds for the whole exchange, `idle` seconds between two
        arrivals.
        """
        assert self._transport is not None
        self._parser, self._error, self._answered = ResponseParser(), None, False
        self._pieces, self._waiting_bytes = [], 0
        self.exchanges += 1
        self._heard = self._loop.time()
        self._transport.write(request)
        self._deadline, self._idle = None if total is None else self._heard + total, idle
        if self._watch is None or self._due() < self._watch.when():
            self._guard()

    async def head(self) -> ResponseParser:
        """Wait for status and headers. Raises Broken."""
        parser = self._parser
        assert parser is not None
        while not parser.status:
            await self._arrival()
        return parser

    async def read(self) -> bytes:
        """Everything of the body that has arrived, waiting for some; empty at its end. Raises
        Broken.
        """
        parser = self._parser
        assert parser is not None
        while not self._pieces:
            if parser.done:
                return b""
            await self._arrival()
        pieces, self._pieces, self._waiting_bytes = self._pieces, [], 0
        if self._paused and self._transport:
            self._paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def forget(self) -> None:
        """The exchange was a proxy's tunnel being opened: what follows is another conversation."""
        self._parser, self.exchanges = None, 0

    def finish(self) -> bool:
        """End the exchange. True if the connection may be used again; else it is being closed."""
        parser, self._parser, self._pieces = self._parser, None, []
        good = parser is not None and parser.done and parser.reusable and self._error is None
        if not good or self._closed.done():
            self.abort()
            return False
        self.idle_since = self._loop.time()
        return True

    async def closed(self) -> None:
        """Wait until the socket is closed. Only after `abort` or a `finish` that said False."""
        await asyncio.shield(self._closed)

    def abort(self) -> None:
        """Close at once, unsent bytes included. The socket is gone a turn of the loop later."""
        if self._transport:
            self._transport.abort()

    def fail(self, error: Broken) -> None:
        if self._error is None:
            self._error = error
        self.abort()
        self._wake()

    @property
    def usable(self) -> bool:
        """Whether an idle connection is still worth trying."""
        if self._closed.done() or self._transport is None or self._transport.is_closing():
            return False
        return self._loop.time() - self.idle_since < IDLE_SECONDS

    async def _arrival(self) -> None:
        """Wait for something to happen. Raises Broken if nothing can any more; what broke
        meanwhile, the next time.
        """
        if self._error:
            raise self._error
        if self._closed.done():
            raise Broken("closed", "the connection is closed", fresh=self.exchanges <= 1)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _due(self) -> float:
        """When the nearer of the two bounds is hit, if nothing arrives."""
        quiet = inf if self._idle is None else self._heard + self._idle
        return quiet if self._deadline is None else min(quiet, self._deadline)

    def _guard(self) -> None:
        """One timer for both bounds and for all exchanges: it looks when the nearer bound was hit,
        and sets itself again if not.
        """
        if self._watch:
            self._watch.cancel()
            self._watch = None
        due = self._due()
        if self._parser is None or due == inf:
            return
        if due <= self._loop.time():
            what = (
                "no answer in time"
                if due == self._deadline
                else f"nothing came for {self._idle:g} s"
            )
            self.fail(Broken("timeout", what))
            return
        self._watch = self._loop.call_at(due, self._guard)


class Pool:
    """Idle connections of one event loop, by origin. Not shared between loops or threads."""

    def __init__(self, tls: Callable[[], ssl.SSLContext]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tls = tls
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: set[Connection] = set()

    async def take(self, origin: Origin, timeout: float, *, new: bool = False) -> Connection:
        """An idle connection, the youngest first, or a new one (`new`: always).

        Raises OSError (with ssl.SSLError), TimeoutError after `timeout` seconds, or Broken if a
        proxy says no.
        """
        idle = self._idle.get(origin)
        while idle and not new:
            connection = idle.pop()
            if connection.usable:
                return connection
            self._drop(connection)
        async with asyncio.timeout(timeout):
            connection = await connect(self._loop, origin, self._tls, self._buffer)
        self._open.add(connection)
        return connection

    async def give(self, origin: Origin, connection: Connection) -> None:
        """End the exchange: keep the connection if it is clean, else close it before returning."""
        if connection.finish():
            idle = self._idle.setdefault(origin, [])
            if idle and not idle[0].usable:
                self._drop(idle.pop(0))
            if len(idle) < IDLE_LIMIT:
                idle.append(connection)
                return
        self._drop(connection)
        await connection.closed()

    def _drop(self, connection: Connection) -> None:
        connection.abort()
        self._open.discard(connection)

    async def close(self) -> None:
        """Close every connection, also those in use."""
        open_ones, self._open, self._idle = self._open, set(), {}
        for connection in open_ones:
            connection.abort()
        for connection in open_ones:
            await connection.closed()


async def connect(
    loop: asyncio.AbstractEventLoop,
    origin: Origin,
    tls: Callable[[], ssl.SSLContext],
    buffer: memoryview,
) -> Connection:
    """A new connection: TCP, the proxy's tunnel where there is one, TLS. Cancelling closes the
    socket.
    """
    if origin.proxy is None:
        context = tls() if origin.secure else None
        # Racing address families costs tasks and buys nothing where there is one address.
        race = None if origin.host.replace(".", "").isdigit() or ":" in origin.host else 0.25
        _, connection = await loop.create_connection(
            lambda: Connection(loop, buffer),
            origin.host,
            origin.port,
            ssl=context,
            happy_eyeballs_delay=race,
        )
        return connection
    host, port, credentials = origin.proxy
    transport, connection = await loop.create_connection(
        lambda: Connection(loop, buffer), host, port
    )
    if not origin.secure:
        return connection
    try:
        await _tunnel(connection, origin, credentials)
        secured = await loop.start_tls(transport, connection, tls(), server_hostname=origin.host)
        assert secured is not None
        connection.connection_made(secured)
    except BaseException:
        connection.abort()
        raise
    return connection


async def _tunnel(connection: Connection, origin: Origin, credentials: str) -> None:
    connection.start(tunnel_head(origin.host, origin.port, credentials), None, None)
    answer = await connection.head()
    if not 200 <= answer.status < 300:
        raise Broken(
            "proxy", f"the proxy answered {answer.status} to CONNECT {origin.host}:{origin.port}"
        )
    connection.forget()
