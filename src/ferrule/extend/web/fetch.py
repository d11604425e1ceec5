"""One request of a script, over HTTP/1.1: every hop is checked, and what was checked is what is connected to.

A host is resolved once, after it was allowed, and what was checked is what is connected to (`models.dialing`). A redirect is a new request with the same checks; it never leads from https
to http, and what a script gave to identify itself does not follow it to another origin.

With a proxy in the person's environment names are resolved there: which address a host has is then not checked here.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urljoin

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.guard.sandbox.reaching import resolve
from ferrule.models.dialing import Closed, Dialer, Target
from ferrule.models.http1 import MalformedResponse, ResponseParser, request_head
from ferrule.models.proxies import proxy_for

from .domains import Domains, parse_url

BODY_LIMIT = 1 << 20
"""Bytes of an answer's body at the most; more is cut, and the answer says so."""
REDIRECTS = 5
_REDIRECTED = (301, 302, 303, 307, 308)
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "proxy-authorization"}
)
_PERSONAL = frozenset({"authorization", "cookie"})


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. `body` None sends none."""

    method: str
    target: Target
    headers: Mapping[str, str]
    body: bytes | None = None


class Web:
    """Requests of scripts within `domains`. `lookup` resolves a host; `tls` makes the context (tests pass their own)."""

    def __init__(
        self,
        domains: Domains,
        *,
        lookup: Callable[[str], Awaitable[Sequence[str]]] = resolve,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.domains = domains
        self._dialer = Dialer(lookup, tls)
        self._environment = os.environ if environment is None else environment

    def narrowed(self, domains: Domains) -> Web:
        """The same, kept to what `domains` allow as well."""
        dialer, both = self._dialer, self.domains.narrowed(domains)
        return Web(both, lookup=dialer.lookup, tls=dialer.tls, environment=self._environment)

    async def fetch(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, seconds: float
    ) -> dict[str, Any]:
        """{status, ok, url (the last one), body (text), headers (names in lower case), truncated}.

        Raises ToolFailed: `permission_denied` for what is not allowed, `timeout`, `io_error`.
        """
        request = Request(method, parse_url(url), _checked(headers), body)
        try:
            async with asyncio.timeout(seconds):
                for _ in range(REDIRECTS + 1):
                    answer = await self._once(request)
                    following = _redirected(request, answer)
                    if following is None:
                        return answer
                    request = following
        except TimeoutError:
            where = request.target.authority
            raise ToolFailed(ErrorType.TIMEOUT, f"`{where}`: no answer within {seconds:g} s") from None
        raise ToolFailed(ErrorType.LIMIT, f"`{url}`: more than {REDIRECTS} redirects")

    async def _once(self, request: Request) -> dict[str, Any]:
        target = request.target
        if (why := self.domains.refusal(target.host)) is not None:
            raise _denied(target, why)
        try:
            proxy = proxy_for(target.secure, target.host, target.port, None, self._environment)
            closed = partial(self.domains.closed, target.host)
            reader, writer = await self._dialer.open(target, proxy, closed)
            try:
                writer.write(_written(request, proxy))
                await writer.drain()
                return await _answer(request, reader)
            finally:
                writer.transport.abort()
        except Closed as why:
            raise _denied(target, str(why)) from None
        except ssl.SSLError as problem:
            reason = getattr(problem, "verify_message", "") or problem.reason or problem
            raise _failed(target, f"no trusted connection: {reason}") from None
        except (MalformedResponse, ConfigError) as problem:
            raise _failed(target, str(problem)) from None
        except TimeoutError:
            raise
        except (OSError, asyncio.IncompleteReadError) as problem:
            raise _failed(
                target, getattr(problem, "strerror", None) or str(problem) or "the connection broke"
            ) from None


async def _answer(request: Request, reader: asyncio.StreamReader) -> dict[str, Any]:
    parser = ResponseParser()
    pieces: list[bytes] = []
    size = 0
    while not parser.done and size <= BODY_LIMIT:
        data = await reader.read(65_536)
        if not data:
            parser.eof()
            break
        piece = parser.feed(data)
        pieces.append(piece)
        size += len(piece)
        if parser.status and request.method == "HEAD":
            break
    raw = b"".join(pieces)[:BODY_LIMIT]
    return {
        "status": parser.status,
        "ok": 200 <= parser.status < 300,
        "url": request.target.url,
        "body": raw.decode("utf-8", "replace"),
        "headers": dict(parser.headers),
        "truncated": size > BODY_LIMIT,
    }


def _redirected(request: Request, answer: Mapping[str, Any]) -> Request | None:
    """The next request, or None if this answer is the last."""
    place = answer["headers"].get("location")
    if answer["status"] not in _REDIRECTED or not place:
        return None
    before, target = request.target, parse_url(urljoin(request.target.url, place))
    if before.secure and not target.secure:
        raise _denied(target, f"`{before.host}` redirects from https to http")
    headers = dict(request.headers)
    if (before.secure, before.host, before.port) != (target.secure, target.host, target.port):
        headers = {name: value for name, value in headers.items() if name.lower() not in _PERSONAL}
    if request.method == "POST" and answer["status"] in (301, 302, 303):
        return Request("GET", target, headers)
    return replace(request, target=target, headers=headers)


def _written(request: Request, proxy: tuple[str, int, str] | None) -> bytes:
    target = request.target
    fields = {
        "Accept-Encoding": "identity",
        "User-Agent": "ferrule",
        **request.headers,
        "Connection": "close",
    }
    place = target.path
    if proxy is not None and not target.secure:
        place = target.url
        fields |= {"Proxy-Authorization": proxy[2]} if proxy[2] else {}
    try:
        head = request_head(
            request.method,
            place,
            target.authority,
            fields,
            None if request.body is None else len(request.body),
        )
    except (ValueError, UnicodeEncodeError) as problem:
        raise ToolFailed(ErrorType.VALIDATION_FAILED, f"the request cannot be sent: {problem}") from None
    return head + (request.body or b"")


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name in headers:
        if name.lower() in _OURS:
            raise ToolFailed(ErrorType.VALIDATION_FAILED, f"the header `{name}` is set by the request itself")
    return {name: str(value) for name, value in headers.items()}


def _denied(target: Target, why: str) -> ToolFailed:
    return ToolFailed(
        ErrorType.PERMISSION_DENIED, f"network sandbox: `{target.url[:200]}` was not requested: {why}"
    )


def _failed(target: Target, why: str) -> ToolFailed:
    return ToolFailed(ErrorType.IO_ERROR, f"`{target.authority}` could not be reached: {why}")
