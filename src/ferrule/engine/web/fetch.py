"""Send the HTTP/1.1 requests of scripts, and fetch media, checking every hop.

A host is resolved once, after it was allowed, and the checked address is the one connected to
(`models.http.dialing`). A redirect is a new request with the same checks. What of a request follows
to another origin is decided in `models.http.web_request`, the same for all requests.

With a proxy in the person's environment, names are resolved by the proxy: the address of a *named*
host is then not checked here.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.models.http.dialing import AddressesRefused, Dialer, Target
from ferrule.models.http.http1 import MalformedResponse, ResponseParser
from ferrule.models.http.proxies import Proxy, find_proxy
from ferrule.models.http.web_request import (
    MAX_REDIRECTS,
    RedirectRefused,
    encode_request,
    follow_redirect,
)
from ferrule.sandbox.network.dialing import resolve

from .domains import AllowedDomains, parse_url

BODY_LIMIT = 1 << 20
"""Bytes of a response body. More is cut, and the answer says so."""
_OWN_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "proxy-authorization"}
)


@frozen
class Request:
    """A request. With `body` None it has no body."""

    method: str
    target: Target
    headers: Mapping[str, str]
    body: bytes | None = None
    limit: int = BODY_LIMIT
    """Bytes of the answer's body that are read."""

    @classmethod
    def create(
        cls, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Request:
        """Make a request from a script's arguments. Raises ToolFailed if they are invalid."""
        return cls(method, parse_url(url), _check_headers(headers), body)


async def follow_redirects(
    request: Request, send: Callable[[Request], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    """Send a request with `send` and follow its redirects to the last answer. Raises ToolFailed."""
    first = request.target.url
    for _ in range(MAX_REDIRECTS + 1):
        answer = await send(request)
        following = _next_request(request, answer)
        if following is None:
            return answer
        request = following
    raise ToolFailed(ErrorType.LIMIT, f"`{first}`: more than {MAX_REDIRECTS} redirects")


class WebClient:
    """Sends requests of scripts to allowed hosts.

    Args:
        domains: The allowed hosts.
        lookup: Resolves a host.
        tls: Makes the TLS context.
        environment: Where proxies are looked up. Default: that of this process.
    """

    def __init__(
        self,
        domains: AllowedDomains,
        *,
        lookup: Callable[[str], Awaitable[Sequence[str]]] = resolve,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.domains = domains
        self._dialer = Dialer(lookup, tls)
        self._environment = os.environ if environment is None else environment

    def restrict(self, domains: AllowedDomains) -> WebClient:
        """Return a client limited to what `domains` allow as well."""
        dialer, both = self._dialer, self.domains.intersect(domains)
        return WebClient(both, lookup=dialer.lookup, tls=dialer.tls, environment=self._environment)

    async def fetch(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, seconds: float
    ) -> dict[str, Any]:
        """Send a request, follow redirects, and return the answer.

        Returns:
            `{status, ok, url, body, headers, truncated}`: `url` is the last one, `body` is text,
            the names of `headers` are in lower case.

        Raises:
            ToolFailed: `permission_denied` for what is not allowed, `timeout`, or `io_error`.
        """
        until = asyncio.get_running_loop().time() + seconds

        async def send(request: Request) -> dict[str, Any]:
            return await self.send(request, until)

        return await follow_redirects(Request.create(method, url, headers, body), send)

    async def download(self, url: str, limit: int, seconds: float) -> bytes:
        """Return the body of a URL, fetched without any credentials.

        Raises ToolFailed as `fetch`; also if the status is not 2xx, or for more than `limit` bytes.
        """
        until = asyncio.get_running_loop().time() + seconds
        first = replace(Request.create("GET", url, {}, None), limit=limit)
        found = b""

        async def send(request: Request) -> dict[str, Any]:
            nonlocal found
            answer = await self._send_within(request, until)
            found = answer.body
            return answer.to_json()

        answer = await follow_redirects(first, send)
        authority = parse_url(answer["url"]).authority
        if answer["truncated"]:
            raise ToolFailed(ErrorType.LIMIT, f"`{authority}` sends more than {limit} bytes")
        if not answer["ok"]:
            raise ToolFailed(
                ErrorType.IO_ERROR, f"`{authority}` answered with status {answer['status']}"
            )
        return found

    async def send(self, request: Request, until: float) -> dict[str, Any]:
        """Send one request, without following redirects. `until` is a time of the event loop."""
        return (await self._send_within(request, until)).to_json()

    async def _send_within(self, request: Request, until: float) -> _Answer:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(until):
                return await self._send(request)
        except TimeoutError:
            authority = request.target.authority
            message = f"`{authority}`: no answer within {until - began:.3g} s"
            raise ToolFailed(ErrorType.TIMEOUT, message) from None

    async def _send(self, request: Request) -> _Answer:
        target = request.target
        reason = self.domains.refusal_reason(target.host)
        if reason is not None:
            raise _build_denial(target, reason)
        try:
            proxy = find_proxy(target.secure, target.host, target.port, None, self._environment)
            check_address = partial(self.domains.address_refusal_reason, target.host)
            reader, writer = await self._dialer.open(target, proxy, check_address)
            try:
                writer.write(_encode(request, proxy))
                await writer.drain()
                return await _read_answer(request, reader)
            finally:
                writer.transport.abort()
        except AddressesRefused as error:
            raise _build_denial(target, str(error)) from None
        except ssl.SSLError as problem:
            reason = getattr(problem, "verify_message", "") or problem.reason or problem
            raise _build_failure(target, f"no trusted connection: {reason}") from None
        except (MalformedResponse, ConfigError) as problem:
            raise _build_failure(target, str(problem)) from None
        except TimeoutError:
            raise
        except (OSError, asyncio.IncompleteReadError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise _build_failure(target, reason or "the connection broke") from None


@frozen
class _Answer:
    """An answer, its body as bytes."""

    status: int
    url: str
    body: bytes
    headers: Mapping[str, str]
    truncated: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "ok": 200 <= self.status < 300,
            "url": self.url,
            "body": self.body.decode("utf-8", "replace"),
            "headers": dict(self.headers),
            "truncated": self.truncated,
        }


async def _read_answer(request: Request, reader: asyncio.StreamReader) -> _Answer:
    parser = ResponseParser()
    pieces: list[bytes] = []
    size = 0
    while not parser.done and size <= request.limit:
        data = await reader.read(65_536)
        if not data:
            parser.feed_eof()
            break
        piece = parser.feed(data)
        pieces.append(piece)
        size += len(piece)
        if parser.status and request.method == "HEAD":
            break
    raw = b"".join(pieces)[: request.limit]
    return _Answer(
        parser.status, request.target.url, raw, dict(parser.headers), size > request.limit
    )


def _next_request(request: Request, answer: Mapping[str, Any]) -> Request | None:
    """Return the next request, or None if this answer is the last."""
    place = answer["headers"].get("location", "")
    try:
        following = follow_redirect(
            request.method, request.target.url, request.headers, answer["status"], place
        )
    except RedirectRefused as error:
        target = error.target or request.target
        refuse = _build_failure if error.allowed else _build_denial
        raise refuse(target, str(error)) from None
    if following is None:
        return None
    body = request.body if following.with_body else None
    return Request(following.method, following.target, following.headers, body, request.limit)


def _encode(request: Request, proxy: Proxy | None) -> bytes:
    fields = {
        "Accept-Encoding": "identity",
        "User-Agent": "ferrule",
        **request.headers,
        "Connection": "close",
    }
    try:
        return encode_request(request.method, request.target, fields, request.body, proxy)
    except (ValueError, UnicodeEncodeError) as problem:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, f"the request cannot be sent: {problem}"
        ) from None


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name in headers:
        if name.lower() in _OWN_HEADERS:
            raise ToolFailed(
                ErrorType.VALIDATION_FAILED, f"the header `{name}` is set by the request itself"
            )
    return {name: str(value) for name, value in headers.items()}


def _build_denial(target: Target, reason: str) -> ToolFailed:
    return ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"network sandbox: `{target.url[:200]}` was not requested: {reason}",
    )


def _build_failure(target: Target, reason: str) -> ToolFailed:
    return ToolFailed(ErrorType.IO_ERROR, f"`{target.authority}` could not be reached: {reason}")
