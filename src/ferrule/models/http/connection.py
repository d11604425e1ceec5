"""One connection to a model server, and the pool that keeps connections.

Built on asyncio's protocols; `http1` parses the bytes. A connection carries one exchange (a request
and its answer) at a time. An exchange that is not read to its end closes its connection: there is
no other way to tell a server to stop working. All I/O happens on the event loop's thread, so a
delta needs no hand-over, and everything that has arrived is taken with one wake-up.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from math import inf
from typing import NamedTuple, cast

from .http1 import MalformedResponse, ResponseParser
from .proxies import Proxy, encode_connect_request

IDLE_SECONDS = 60.0
"""An idle connection older than this is not used again: servers and firewalls drop them."""
IDLE_LIMIT = 1024
"""Most idle connections kept per origin."""
READ_SIZE = 1 << 18
"""Most bytes read from a socket at once.

There is one buffer per loop: allocating one for each read costs more than most reads.
"""
HIGH_WATER = 1 << 20
"""Bytes that may wait for a slow reader before reading from the socket pauses."""


class ConnectionFailed(Exception):
    """The connection failed. `kind` is `timeout`, `closed` (by the server), `malformed` or `proxy`.

    `fresh` is False if the connection had been used before and not one byte of an answer came: the
    server had closed an idle connection, and sending the same request on a new one repeats nothing.
    """

    def __init__(self, kind: str, detail: str, *, fresh: bool = True) -> None:
        super().__init__(detail)
        self.kind = kind
        self.fresh = fresh


class Origin(NamedTuple):
    """Where a connection leads; `proxy` is None for a direct one."""

    secure: bool
    host: str
    port: int
    proxy: Proxy | None = None


class Connection(asyncio.BufferedProtocol):
    """A connection that sends requests and receives their answers. Made by `connect`.

    `buffer` may be shared by all connections of a loop.
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
        self._error: ConnectionFailed | None = None
        self._paused = False
        self._last_arrival = 0.0
        self._answered = False
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._idle: float | None = None
        self.exchanges = 0
        self.idle_since = 0.0

    # ---- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        # Shared between connections: asyncio fills it and calls `buffer_updated` at once, without
        # another connection in between.
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        parser = self._parser
        if parser is None or parser.done:
            # Nobody asked: a stray answer must not be taken for the next one.
            self.abort()
            return
        self._last_arrival = self._loop.time()
        self._answered = True
        failure: ConnectionFailed | None = None
        try:
            body = parser.feed(data)
        except MalformedResponse as problem:
            body = problem.body
            failure = ConnectionFailed("malformed", str(problem))
        if body:
            self._pieces.append(body)
            self._waiting_bytes += len(body)
            if self._waiting_bytes > HIGH_WATER and not self._paused and self._transport:
                self._paused = True
                self._transport.pause_reading()
        if failure is not None:
            self.fail(failure)
        elif body or parser.status or parser.done:
            self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        parser = self._parser
        if parser and not parser.done and self._error is None:
            try:
                if exc:
                    raise MalformedResponse(f"the connection broke: {exc}")
                parser.feed_eof()
            except MalformedResponse as problem:
                fresh = self.exchanges <= 1 or self._answered
                self._error = ConnectionFailed("closed", str(problem), fresh=fresh)
        if not self._closed.done():
            self._closed.set_result(None)
        self._wake()

    # ---- one exchange

    def send_request(self, request: bytes, total: float | None, idle: float | None) -> None:
        """Send a request.

        Args:
            request: The bytes of the request.
            total: Seconds for the whole exchange; None is no limit.
            idle: Seconds between two arrivals of bytes; None is no limit.
        """
        assert self._transport is not None
        self._parser = ResponseParser()
        self._error = None
        self._answered = False
        self._pieces = []
        self._waiting_bytes = 0
        self.exchanges += 1
        self._last_arrival = self._loop.time()
        self._transport.write(request)
        self._deadline = None if total is None else self._last_arrival + total
        self._idle = idle
        if self._timer is None or self._next_expiry() < self._timer.when():
            self._check_time_limits()

    async def read_head(self) -> ResponseParser:
        """Wait for status and headers.

        Raises:
            ConnectionFailed: The connection failed.
        """
        parser = self._parser
        assert parser is not None
        while not parser.status:
            await self._next_arrival()
        return parser

    async def read_body(self) -> bytes:
        """Return all of the body that has arrived, waiting for some; empty at its end.

        Raises:
            ConnectionFailed: The connection failed.
        """
        parser = self._parser
        assert parser is not None
        while not self._pieces:
            if parser.done:
                return b""
            await self._next_arrival()
        pieces = self._pieces
        self._pieces = []
        self._waiting_bytes = 0
        if self._paused and self._transport:
            self._paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def reset_after_tunnel(self) -> None:
        """Start over after a proxy's tunnel was opened: what follows is another conversation."""
        self._parser = None
        self.exchanges = 0

    def finish(self) -> bool:
        """End the exchange. Return whether the connection can be reused; if not, it is closing."""
        parser = self._parser
        self._parser = None
        self._pieces = []
        clean = parser is not None and parser.done and parser.reusable and self._error is None
        if not clean or self._closed.done():
            self.abort()
            return False
        self.idle_since = self._loop.time()
        return True

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, after `abort` or a `finish` that returned False."""
        await asyncio.shield(self._closed)

    def abort(self) -> None:
        """Close at once, discarding unsent bytes.

        The socket is gone one iteration of the loop later.
        """
        if self._transport:
            self._transport.abort()

    def fail(self, error: ConnectionFailed) -> None:
        if self._error is None:
            self._error = error
        self.abort()
        self._wake()

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection is still worth trying."""
        if self._closed.done() or self._transport is None or self._transport.is_closing():
            return False
        return self._loop.time() - self.idle_since < IDLE_SECONDS

    def _next_arrival(self) -> asyncio.Future[None]:
        """Return what is done when something happens.

        Raises:
            ConnectionFailed: Nothing can happen any more. A failure during the wait is raised by
                the next call.
        """
        if self._error:
            raise self._error
        if self._closed.done():
            raise ConnectionFailed("closed", "the connection is closed", fresh=self.exchanges <= 1)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _next_expiry(self) -> float:
        """Return when the nearer of the two time limits expires, if nothing arrives."""
        idle_end = inf if self._idle is None else self._last_arrival + self._idle
        return idle_end if self._deadline is None else min(idle_end, self._deadline)

    def _check_time_limits(self) -> None:
        """Check the time limits, and set the timer again.

        One timer serves both limits and all exchanges: it fires when the nearer limit would expire
        and is set again if bytes arrived in the meantime.
        """
        if self._timer:
            self._timer.cancel()
            self._timer = None
        due = self._next_expiry()
        if self._parser is None or due == inf:
            return
        if due <= self._loop.time():
            if due == self._deadline:
                detail = "no answer in time"
            else:
                detail = f"nothing arrived for {self._idle:g} s"
            self.fail(ConnectionFailed("timeout", detail))
            return
        self._timer = self._loop.call_at(due, self._check_time_limits)


class ConnectionPool:
    """Idle connections of one event loop, by origin. Not shared between loops or threads.

    It is closed with its loop at the latest, if the loop is ended as `asyncio.run` ends it.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tls = tls
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._end_of_loop: AsyncGenerator[None] | None = None

    async def acquire(self, origin: Origin, timeout: float, *, new: bool = False) -> Connection:
        """Return the youngest idle connection, or a new one.

        Args:
            origin: Where the connection leads.
            timeout: Seconds until a new connection must stand.
            new: Whether to open a new connection in any case.

        Raises:
            OSError: The connection failed; includes ssl.SSLError.
            TimeoutError: It took too long.
            ConnectionFailed: The proxy refused the tunnel.
        """
        idle = self._idle.get(origin)
        while idle and not new:
            connection = idle.pop()
            if connection.is_usable:
                return connection
            self._discard(connection)
        async with asyncio.timeout(timeout):
            connection = await connect(self._loop, origin, self._tls, self._buffer)
        self._open.add(connection)
        if self._end_of_loop is None:
            self._end_of_loop = self._close_at_end_of_loop()
            await anext(self._end_of_loop)
        return connection

    async def _close_at_end_of_loop(self) -> AsyncGenerator[None]:
        """Close the pool when the loop shuts its asynchronous generators down, as its last work.

        A loop has no other hook for its end, and whoever asks a model once closes nothing.
        """
        try:
            yield
        finally:
            self._end_of_loop = None
            await self.close()

    async def release(self, origin: Origin, connection: Connection) -> None:
        """End the exchange: keep the connection if it is clean, else close it before returning."""
        if connection.finish():
            idle = self._idle.setdefault(origin, [])
            if idle and not idle[0].is_usable:
                self._discard(idle.pop(0))
            if len(idle) < IDLE_LIMIT:
                idle.append(connection)
                return
        self._discard(connection)
        await connection.wait_closed()

    def _discard(self, connection: Connection) -> None:
        connection.abort()
        self._open.discard(connection)

    async def close(self) -> None:
        """Close every connection, including those in use."""
        if self._end_of_loop is not None:
            await self._end_of_loop.aclose()
            return
        connections = self._open
        self._open = set()
        self._idle = {}
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.wait_closed()


async def connect(
    loop: asyncio.AbstractEventLoop,
    origin: Origin,
    tls: Callable[[], ssl.SSLContext],
    buffer: memoryview,
) -> Connection:
    """Open a connection: TCP, the proxy's tunnel if there is one, TLS.

    Cancelling closes the socket.
    """
    if origin.proxy is None:
        context = tls() if origin.secure else None
        # Racing address families costs tasks and gains nothing where there is only one address.
        is_address = origin.host.replace(".", "").isdigit() or ":" in origin.host
        _, connection = await loop.create_connection(
            lambda: Connection(loop, buffer),
            origin.host,
            origin.port,
            ssl=context,
            happy_eyeballs_delay=None if is_address else 0.25,
        )
        return connection
    proxy = origin.proxy
    transport, connection = await loop.create_connection(
        lambda: Connection(loop, buffer), proxy.host, proxy.port
    )
    if not origin.secure:
        return connection
    try:
        await _open_tunnel(connection, origin, proxy.credentials)
        secured = await loop.start_tls(transport, connection, tls(), server_hostname=origin.host)
        assert secured is not None
        connection.connection_made(secured)
    except BaseException:
        connection.abort()
        raise
    return connection


async def _open_tunnel(connection: Connection, origin: Origin, credentials: str) -> None:
    connection.send_request(
        encode_connect_request(origin.host, origin.port, credentials), None, None
    )
    answer = await connection.read_head()
    if not 200 <= answer.status < 300:
        detail = f"the proxy answered {answer.status} to CONNECT {origin.host}:{origin.port}"
        raise ConnectionFailed("proxy", detail)
    connection.reset_after_tunnel()
