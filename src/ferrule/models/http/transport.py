"""How every wire reaches its server: post, get and stream over HTTP/1.1, with bounds on time and
size.

Built on asyncio alone (`http1`, `connection`). pyreqwest 0.15, the first choice for this seam,
failed its suite: cancelling a request before its answer began left the connection open, and a model
server stops working only when that closes; a stream either waited for a full buffer or handed every
delta over between threads.

Not supported, on purpose: redirects (a key must not follow one; the error names the place), HTTP/2,
compressed answers, cookies, SOCKS proxies.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.frozen import frozen

from .connection import Broken, Connection, Origin, Pool
from .http1 import ResponseParser, request_head
from .proxies import proxy_for
from .retry import dice, retrying

T = TypeVar("T")

BODY_LIMIT = 256 << 20
"""Bytes of one answer at the most: a server that never ends must not fill the memory."""
ADDRESSES = 256
"""URLs whose parts are remembered."""


@frozen
class Timeouts:
    """Seconds. `connect` covers name, TCP, proxy and TLS; `idle` the wait for the next byte (also
    the first); `total` the whole exchange. None is no bound.
    """

    connect: float = 10.0
    idle: float | None = None
    total: float | None = 600.0


@frozen
class Response:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream:
    """An answer while it arrives. Iterating gives bytes as the network cut them, several chunks at
    once if they arrived together; `read` takes the rest.
    """

    def __init__(
        self, url: str, connection: Connection, status: int, headers: Mapping[str, str]
    ) -> None:
        self.status = status
        self.headers = headers
        self._url = url
        self._connection = connection
        self._size = 0

    async def chunk(self) -> bytes:
        """What has arrived, at least a byte; empty at the end. Raises ProviderError."""
        try:
            data = await self._connection.read()
        except Broken as broken:
            raise _broken(self._url, broken, begun=True) from broken
        self._size += len(data)
        if self._size > BODY_LIMIT:
            raise ProviderError(
                f"{_where(self._url)} sent more than {BODY_LIMIT} bytes", code="too_large"
            )
        return data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.chunk():
            yield data

    async def read(self) -> bytes:
        """The rest of the body."""
        pieces: list[bytes] = []
        while data := await self.chunk():
            pieces.append(data)
        return b"".join(pieces)


class Transport:
    """Connections to model servers, kept and used again. May be shared by wires; close it once.

    `proxy`: an `http://` proxy for everything, "" for none, None for the environment's
        (`models.http.proxies`).
    `ca_file`: a PEM bundle that replaces the system's (else SSL_CERT_FILE and SSL_CERT_DIR are
    honoured). There is one pool per event loop, made on first use: connections cannot move between
    loops, so close the transport in each loop it was used in. Cancelling any method closes the
    connection it used before the cancellation goes on. `sleep` and `dice` are for `retrying`, and
    for tests of it.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts = Timeouts(),
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        dice: Callable[[], float] = dice,
    ) -> None:
        self.timeouts = timeouts
        self._sleep = sleep
        self._dice = dice
        self._proxy = proxy
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pool] = (
            weakref.WeakKeyDictionary()
        )
        self._known: dict[str, tuple[SplitResult, Origin]] = {}

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float | None = None
    ) -> Response:
        """One request, one whole answer, whatever its status. `timeout` (seconds) replaces
        `timeouts.total`.

        Raises ProviderError: `unreachable`, `timeout`, `tls`, `interrupted`, `not_http`.
        """
        return await self._whole("POST", url, body, headers, timeout)

    async def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> Response:
        """Like `post`, without a body."""
        return await self._whole("GET", url, None, headers or {}, timeout)

    def stream(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        """`async with transport.stream(...) as stream`: status and headers are there, the body
        follows.

        Leaving the block before the end of the body closes the connection. Raises what `post`
        raises.
        """
        return self._exchange("POST", url, body, headers, timeout)

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], notice: Callable[[str, str], None] | None = None
    ) -> T:
        """`models.http.retry.retrying` with this transport's time and dice."""
        return await retrying(attempt, notice=notice, sleep=self._sleep, dice=self._dice)

    async def close(self) -> None:
        """Close this loop's connections, also those in use. Safe to call twice."""
        if pool := self._pools.pop(asyncio.get_running_loop(), None):
            await pool.close()

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float | None,
    ) -> AsyncGenerator[Stream]:
        pool, origin, connection, answer = await self._begin(method, url, body, headers, timeout)
        try:
            yield Stream(url, connection, answer.status, answer.headers)
        finally:
            await pool.give(origin, connection)

    async def _whole(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float | None,
    ) -> Response:
        pool, origin, connection, answer = await self._begin(method, url, body, headers, timeout)
        try:
            whole = await Stream(url, connection, answer.status, answer.headers).read()
        finally:
            await pool.give(origin, connection)
        return Response(answer.status, answer.headers, whole)

    async def _begin(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float | None,
    ) -> tuple[Pool, Origin, Connection, ResponseParser]:
        """Up to the head of the answer. The caller gives the connection back."""
        parts, origin = self._led(url)
        request = _request(method, parts, origin, body, headers)
        pool, fresh_only = self._pool(), False
        while True:
            connection = await self._connect(pool, origin, url, fresh_only)
            try:
                connection.start(request, timeout or self.timeouts.total, self.timeouts.idle)
                return pool, origin, connection, await connection.head()
            except BaseException as error:
                await pool.give(origin, connection)
                if not isinstance(error, Broken):
                    raise
                if error.fresh:
                    raise _broken(url, error, begun=False) from error
                # The server had closed an idle connection: not an attempt, so not a retry either.
                fresh_only = True

    async def _connect(self, pool: Pool, origin: Origin, url: str, fresh_only: bool) -> Connection:
        try:
            return await pool.take(origin, self.timeouts.connect, new=fresh_only)
        except ssl.SSLError as problem:
            raise _tls_error(url, problem) from problem
        except TimeoutError as problem:
            detail = f"{_where(url)} did not accept a connection in {self.timeouts.connect:g} s"
            raise ProviderError(detail, code="timeout", retryable=True) from problem
        except Broken as broken:
            raise _broken(url, broken, begun=False) from broken
        except OSError as problem:
            detail = f"cannot reach {_where(url)}: {problem.strerror or problem}"
            raise ProviderError(detail, code="unreachable", hint=_HINT, retryable=True) from problem

    def _pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = Pool(self._tls)
        return pool

    def _led(self, url: str) -> tuple[SplitResult, Origin]:
        """The address in its parts, and where it leads."""
        known = self._known.get(url)
        if known is None:
            parts = _split(url)
            secure, host = parts.scheme == "https", parts.hostname or ""
            key = (secure, host, parts.port or (443 if secure else 80))
            if len(self._known) >= ADDRESSES:
                self._known.clear()
            known = self._known[url] = parts, Origin(*key, proxy_for(*key, self._proxy, os.environ))
        return known

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=self._ca_file)
            except OSError as problem:
                detail = f"the CA bundle `{self._ca_file}` cannot be used: {problem}"
                raise ConfigError(detail, code="ca_file") from problem
        return self._context


_HINT = "check the address, and whether the server is running"


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"`{url}` is not an http or https address", code="base_url")
    if parts.username is not None:
        raise ConfigError("a model server's address may not hold a user name", code="base_url")
    try:
        parts.port  # noqa: B018 - reading it is the check
    except ValueError as problem:
        raise ConfigError(f"`{url}`: {problem}", code="base_url") from problem
    return parts


def _request(
    method: str, parts: SplitResult, origin: Origin, body: bytes | None, headers: Mapping[str, str]
) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc
    if origin.proxy and not origin.secure:
        target = f"{parts.scheme}://{host}{target}"
        if origin.proxy[2]:
            headers = {**headers, "Proxy-Authorization": origin.proxy[2]}
    try:
        head = request_head(method, target, host, headers, None if body is None else len(body))
    except ValueError as problem:
        raise ConfigError(
            f"the request to {_where(parts.geturl())} cannot be sent: {problem}"
        ) from problem
    return head + body if body else head


def _where(url: str) -> str:
    """The origin alone: a path or a query may hold what should not be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _tls_error(url: str, problem: ssl.SSLError) -> ProviderError:
    detail = f"no trusted connection to {_where(url)}: {problem.reason or problem}"
    if isinstance(problem, ssl.SSLCertVerificationError):
        detail = f"the certificate of {_where(url)} is not trusted: {problem.verify_message}"
    hint = "if the server uses a private authority, name its PEM bundle in SSL_CERT_FILE"
    return ProviderError(detail, code="tls", hint=hint, retryable=False)


def _broken(url: str, broken: Broken, *, begun: bool) -> ProviderError:
    """`begun`: the head of an answer was seen, so nothing may be repeated."""
    where = _where(url)
    if broken.kind == "timeout":
        detail = f"{where}: {broken}"
        return ProviderError(
            detail, code="timeout", hint="raise the model's `timeout`", retryable=False
        )
    if broken.kind == "malformed":
        detail = f"{where} does not speak HTTP/1.1: {broken}"
        return ProviderError(
            detail, code="not_http", hint="check the port and http/https", retryable=False
        )
    if broken.kind == "proxy":
        return ProviderError(
            f"{where}: {broken}", code="unreachable", hint="check the proxy", retryable=False
        )
    if begun:
        return ProviderError(f"{where}: {broken}", code="interrupted", retryable=False)
    return ProviderError(f"{where}: {broken}", code="unreachable", hint=_HINT, retryable=True)
