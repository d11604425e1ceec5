"""How model clients reach their servers: post, get and stream over HTTP/1.1, within limits.

Time and size of every answer are limited. Built on asyncio alone (`http1`, `connection`).
pyreqwest 0.15, the first choice here, failed the test suite: cancelling a request before its answer
began left the connection open, and a model server stops working only when that closes; a stream
either waited for a full buffer or handed every delta over between threads.

Not supported, on purpose: redirects (a key must not follow one; the error names the location),
HTTP/2, cookies, SOCKS proxies. Compression is not asked for, and read where a proxy adds it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import zlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.value_class import frozen
from ferrule.core.web_addresses import split_web_address

from .connection import Connection, ConnectionFailed, ConnectionPool, Origin
from .http1 import ResponseParser, encode_request_head
from .proxies import find_proxy
from .retry import random_fraction, retry

T = TypeVar("T")

BODY_LIMIT = 256 << 20
"""Most bytes of one answer: a server that never ends must not fill the memory."""
URL_CACHE_SIZE = 256
"""Most URLs whose parts are remembered."""


@frozen
class Timeouts:
    """Time limits in seconds; None is no limit.

    `connect` covers name resolution, TCP, proxy and TLS; `idle` the wait for the next byte
    (including the first); `total` the whole exchange.
    """

    connect: float = 10.0
    idle: float | None = None
    total: float | None = 600.0


@frozen
class Response:
    """A complete answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ResponseStream:
    """An answer while it arrives.

    Iterating yields bytes as the network split them, several chunks at once if they arrived
    together; `read` returns the rest.
    """

    def __init__(
        self,
        url: str,
        connection: Connection,
        status: int,
        headers: Mapping[str, str],
        decode: Callable[[bytes], bytes] | None,
        limit: int = BODY_LIMIT,
    ) -> None:
        self.status = status
        self.headers = headers
        self._url = url
        self._connection = connection
        self._size = 0
        self._limit = limit
        self._decode = decode

    async def read_chunk(self) -> bytes:
        """Return what has arrived, at least one byte; empty at the end.

        Raises:
            ProviderError: The connection failed, or the answer is too large.
        """
        data = b""
        is_over = False
        while not data and not is_over:
            try:
                received = await self._connection.read_body()
            except ConnectionFailed as failure:
                raise _to_provider_error(self._url, failure, begun=True) from failure
            is_over = not received
            # What was compressed may need more before a byte of it is known.
            data = received if self._decode is None else self._decode(received)
        self._size += len(data)
        if self._size > self._limit:
            raise ProviderError(
                f"{_origin_of(self._url)} sent more than {self._limit} bytes", code="too_large"
            )
        return data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read_chunk():
            yield data

    async def read(self) -> bytes:
        """Return the rest of the body."""
        pieces: list[bytes] = []
        while data := await self.read_chunk():
            pieces.append(data)
        return b"".join(pieces)


class Transport:
    """Connections to model servers, kept and reused. May be shared by model clients; close it once.

    There is one pool per event loop, made on first use: connections cannot move between loops.
    `close` closes the pool of the loop it is awaited in; `asyncio.run` closes the pool of the loop
    that it ends. Cancelling any method closes the connection it used before the cancellation
    propagates.

    Args:
        timeouts: Time limits of every request.
        proxy: An `http://` proxy for everything, "" for none, None for the environment's
            (`models.http.proxies`).
        ca_file: A PEM bundle that replaces the system's; without one SSL_CERT_FILE and
            SSL_CERT_DIR are honoured.
        sleep: Replaces the waiting of `retry` in tests.
        random_fraction: Replaces the random numbers of `retry` in tests.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts = Timeouts(),
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random_fraction: Callable[[], float] = random_fraction,
    ) -> None:
        self.timeouts = timeouts
        self._sleep = sleep
        self._dice = random_fraction
        self._proxy = proxy
        self._ca_file = ca_file
        self._cached_ssl_context: ssl.SSLContext | None = None
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._parsed_urls: dict[str, tuple[SplitResult, Origin]] = {}

    def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float | None = None
    ) -> Coroutine[Any, Any, Response]:
        """Send one request and return the complete answer, whatever its status.

        `timeout` (seconds) replaces `timeouts.total`.

        Raises:
            ProviderError: `unreachable`, `timeout`, `tls`, `interrupted`, `not_http`, `too_large`;
                `not_understood`, the body is compressed in a way that cannot be read.
        """
        return self._fetch("POST", url, body, headers, timeout)

    def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> Coroutine[Any, Any, Response]:
        """Like `post`, without a body."""
        return self._fetch("GET", url, None, headers or {}, timeout)

    def stream(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float | None = None
    ) -> AbstractAsyncContextManager[ResponseStream]:
        """Send one request and stream the answer.

        In `async with transport.stream(...) as stream` status and headers are known, and the body
        follows. Leaving the block before the end of the body closes the connection. Raises what
        `post` raises.
        """
        return self._exchange("POST", url, body, headers, timeout)

    def download(
        self, url: str, headers: Mapping[str, str], *, limit: int
    ) -> AbstractAsyncContextManager[ResponseStream]:
        """Fetch a file: like `stream`, by GET, with a body of up to `limit` bytes."""
        return self._exchange("GET", url, None, headers, None, limit)

    def retry(
        self, attempt: Callable[[], Awaitable[T]], notice: Callable[[str, str], None] | None = None
    ) -> Coroutine[Any, Any, T]:
        """Call `models.http.retry.retry` with this transport's waiting and random numbers."""
        return retry(attempt, notice=notice, sleep=self._sleep, random_fraction=self._dice)

    async def pause(self, seconds: float) -> None:
        """Wait before a further request, as `retry` does."""
        await self._sleep(seconds)

    async def close(self) -> None:
        """Close this loop's connections, including those in use. Safe to call twice."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float | None,
        limit: int = BODY_LIMIT,
    ) -> AsyncGenerator[ResponseStream]:
        pool, origin, connection, answer, decode = await self._send(
            method, url, body, headers, timeout
        )
        try:
            yield ResponseStream(url, connection, answer.status, answer.headers, decode, limit)
        finally:
            await pool.release(origin, connection)

    async def _fetch(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float | None,
    ) -> Response:
        pool, origin, connection, answer, decode = await self._send(
            method, url, body, headers, timeout
        )
        stream = ResponseStream(url, connection, answer.status, answer.headers, decode)
        try:
            content = await stream.read()
        finally:
            await pool.release(origin, connection)
        return Response(answer.status, answer.headers, content)

    async def _send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float | None,
    ) -> tuple[ConnectionPool, Origin, Connection, ResponseParser, Callable[[bytes], bytes] | None]:
        """Send a request and wait for the head of the answer. The caller returns the connection.

        The last item is what `make_decoder` returns for the body.
        """
        parts, origin = self._parse_url(url)
        request = _encode_request(method, parts, origin, body, headers)
        pool = self._pool_of_loop()
        fresh_only = False
        while True:
            connection = await self._connect(pool, origin, url, fresh_only)
            try:
                connection.send_request(request, timeout or self.timeouts.total, self.timeouts.idle)
                answer = await connection.read_head()
                decode = make_decoder(answer.headers.get("content-encoding", ""), url)
                return pool, origin, connection, answer, decode
            except BaseException as error:
                await pool.release(origin, connection)
                if not isinstance(error, ConnectionFailed):
                    raise
                if error.fresh:
                    raise _to_provider_error(url, error, begun=False) from error
                # The server had closed an idle connection: not an attempt, so not a retry either.
                fresh_only = True

    async def _connect(
        self, pool: ConnectionPool, origin: Origin, url: str, fresh_only: bool
    ) -> Connection:
        try:
            return await pool.acquire(origin, self.timeouts.connect, new=fresh_only)
        except ssl.SSLError as problem:
            raise _to_tls_error(url, problem) from problem
        except TimeoutError as problem:
            detail = f"{_origin_of(url)} did not accept a connection in {self.timeouts.connect:g} s"
            raise ProviderError(detail, code="timeout", retryable=True) from problem
        except ConnectionFailed as failure:
            raise _to_provider_error(url, failure, begun=False) from failure
        except OSError as problem:
            detail = f"cannot reach {_origin_of(url)}: {problem.strerror or problem}"
            raise ProviderError(
                detail, code="unreachable", hint=_UNREACHABLE_HINT, retryable=True
            ) from problem

    def _pool_of_loop(self) -> ConnectionPool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for ended in [other for other in self._pools if other.is_closed()]:
                del self._pools[ended]
            pool = self._pools[loop] = ConnectionPool(self._ssl_context)
        return pool

    def _parse_url(self, url: str) -> tuple[SplitResult, Origin]:
        """Return the parts of a URL and its origin."""
        known = self._parsed_urls.get(url)
        if known is not None:
            return known
        parts = _split_url(url)
        secure = parts.scheme == "https"
        host = parts.hostname or ""
        port = parts.port or (443 if secure else 80)
        proxy = find_proxy(secure, host, port, self._proxy, os.environ)
        if len(self._parsed_urls) >= URL_CACHE_SIZE:
            self._parsed_urls.clear()
        self._parsed_urls[url] = parts, Origin(secure, host, port, proxy)
        return self._parsed_urls[url]

    def _ssl_context(self) -> ssl.SSLContext:
        if self._cached_ssl_context is None:
            try:
                self._cached_ssl_context = ssl.create_default_context(cafile=self._ca_file)
            except OSError as problem:
                detail = f"the CA bundle `{self._ca_file}` cannot be used: {problem}"
                raise ConfigError(detail, code="ca_file") from problem
        return self._cached_ssl_context


_UNREACHABLE_HINT = "check the address, and whether the server is running"


def _split_url(url: str) -> SplitResult:
    parts = split_web_address(url)
    if parts is None:
        raise ConfigError(
            f"`{url}` is not an http or https address",
            code="base_url",
            hint="correct `base_url`, or the variable that it was taken from: `https://host/v1`",
        )
    if parts.username is not None:
        raise ConfigError("a model server's address must not have a user name", code="base_url")
    return parts


def _encode_request(
    method: str, parts: SplitResult, origin: Origin, body: bytes | None, headers: Mapping[str, str]
) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc
    headers = {"Accept-Encoding": "identity", **headers}
    if origin.proxy and not origin.secure:
        target = f"{parts.scheme}://{host}{target}"
        if origin.proxy.credentials:
            headers["Proxy-Authorization"] = origin.proxy.credentials
    length = None if body is None else len(body)
    try:
        head = encode_request_head(method, target, host, headers, length)
    except ValueError as problem:
        raise ConfigError(
            f"the request to {_origin_of(parts.geturl())} cannot be sent: {problem}"
        ) from problem
    return head + body if body else head


def _origin_of(url: str) -> str:
    """Return the origin alone: a path or query may contain what should not be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _to_tls_error(url: str, problem: ssl.SSLError) -> ProviderError:
    detail = f"no trusted connection to {_origin_of(url)}: {problem.reason or problem}"
    if isinstance(problem, ssl.SSLCertVerificationError):
        detail = f"the certificate of {_origin_of(url)} is not trusted: {problem.verify_message}"
    hint = "if the server uses a private authority, set SSL_CERT_FILE to its PEM bundle"
    return ProviderError(detail, code="tls", hint=hint, retryable=False)


def _to_provider_error(url: str, failure: ConnectionFailed, *, begun: bool) -> ProviderError:
    """Turn a failed connection into a ProviderError.

    `begun` means that the head of an answer was received, so nothing may be repeated.
    """
    where = _origin_of(url)
    detail = f"{where}: {failure}"
    if failure.kind == "timeout":
        return ProviderError(
            detail, code="timeout", hint="raise the model's `timeout`", retryable=False
        )
    if failure.kind == "malformed":
        detail = f"{where} does not speak HTTP/1.1: {failure}"
        return ProviderError(
            detail, code="not_http", hint="check the port and http/https", retryable=False
        )
    if failure.kind == "proxy":
        return ProviderError(detail, code="unreachable", hint="check the proxy", retryable=False)
    if begun:
        return ProviderError(detail, code="interrupted", retryable=False)
    return ProviderError(detail, code="unreachable", hint=_UNREACHABLE_HINT, retryable=True)


_PIECE = 4 << 20
"""Most bytes that one chunk becomes: a small body must not become a huge one at once."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


def make_decoder(coding: str, url: str) -> Callable[[bytes], bytes] | None:
    """Return what decompresses the chunks of a body in order; None if it is not compressed.

    The decoder takes empty bytes for the end. It raises ProviderError for a body that is not what
    its header says, or that is cut.

    Args:
        coding: The header `Content-Encoding`.
        url: The address of the request, for errors.

    Raises:
        ProviderError: `not_understood`, the coding is another than gzip and deflate.
    """
    if not coding:
        return None
    name = coding.strip().lower()
    if name in ("", "identity"):
        return None
    origin = _origin_of(url)
    if name not in ("gzip", "x-gzip", "deflate"):
        raise ProviderError(
            f"{origin} answered with a body in `content-encoding: {coding[:40]}`",
            code="not_understood",
            hint="turn compression off in the server, or in the proxy before it; gzip and deflate "
            "are read",
            retryable=False,
        )
    return _Decoder(name, origin)


class _Decoder:
    def __init__(self, coding: str, origin: str) -> None:
        self._coding = coding
        self._origin = origin
        self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._has_begun = False

    def __call__(self, data: bytes) -> bytes:
        try:
            return self._inflate(data)
        except zlib.error as problem:
            raise self._error(str(problem)) from problem

    def _inflate(self, data: bytes) -> bytes:
        if not data:
            if self._has_begun and not self._inflater.eof:
                raise self._error("it ends too early")
            return b""
        if not self._has_begun and self._coding == "deflate" and data[0] & 0x0F != 8:
            # Some servers leave the two bytes of zlib's header out.
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        self._has_begun = True
        pieces: list[bytes] = []
        size = 0
        while data:
            if self._inflater.eof:
                self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
            piece = self._inflater.decompress(data, _PIECE)
            size += len(piece)
            pieces.append(piece)
            data = self._inflater.unconsumed_tail or self._inflater.unused_data
            if size > _PIECE * 64:
                raise self._error("it becomes too large")
        return b"".join(pieces)

    def _error(self, why: str) -> ProviderError:
        detail = f"{self._origin} sent a `{self._coding}` body that cannot be read: {why}"
        return ProviderError(detail, code="not_understood", retryable=False)
