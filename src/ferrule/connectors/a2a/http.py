"""HTTP to a peer: its own origins and no other, bodies of bounded size, meaningful failures.

* Only the origins that the person configured are asked, with the person's header: not where a
  redirect leads, not where a card points.
* A body is read up to `MAX_BODY` bytes, an event stream up to `MAX_STREAM`, a card up to
  `cards.MAX_CARD`; compressed ones are refused.
* Proxies of the environment apply, as for models; nothing else of it does (no `.netrc`).

Failures carry a class (`tools.reliability`): `transient` only if the peer surely did nothing, so
that a message is never sent twice. Not protected: what the peer itself does with what it is told.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any

from ferrule.connectors.bounded_schemas import nesting_depth
from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.calls import ErrorType, parse_json
from ferrule.core.errors import ToolFailed
from ferrule.models.http.proxies import find_proxy

from .cards import MAX_CARD, MAX_DEPTH
from .spec import A2aPeer, url_origin

MAX_BODY = 8 * 1024 * 1024
MAX_STREAM = 32 * 1024 * 1024
CONNECT_SECONDS = 15.0
CARD_SECONDS = 30.0
_MAX_REDIRECTS = 3
_MAX_MESSAGE = 2_000
_MAX_RETRY_AFTER = 3600.0


class RequestRefused(Exception):
    """An address or an answer is out of bounds.

    It is no error of the HTTP library, which would be taken for one of the network.
    """

    def __init__(self, error_type: ErrorType, message: str) -> None:
        super().__init__(error_type, message)
        self.error_type = error_type
        self.message = message


def make_http_client(peer: A2aPeer, headers: Mapping[str, str]) -> Any:
    """Return an HTTP client for a peer, with the bounds of this module.

    Takes a while, since certificates are read.

    Args:
        peer: The peer; only its origins are asked.
        headers: The header that holds the peer's secret.
    """
    import httpx

    scheme, host, port = url_origin(peer.url)
    proxy = find_proxy(scheme == "https", host, port, None, os.environ)
    library_proxy = None
    if proxy is not None:
        proxy_host, proxy_port, credentials = proxy
        proxy_headers = {"Proxy-Authorization": credentials} if credentials else {}
        library_proxy = httpx.Proxy(f"http://{proxy_host}:{proxy_port}", headers=proxy_headers)
    return httpx.AsyncClient(
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx.Timeout(CONNECT_SECONDS, read=None),
        follow_redirects=True,
        max_redirects=_MAX_REDIRECTS,
        trust_env=False,
        transport=_bounded_transport()(_transport(library_proxy), peer),
    )


def _transport(proxy: Any) -> Any:
    """Return a transport whose connections do not outlive their request.

    Calls are rare, and a program may make each of them on an event loop of its own.
    """
    import httpx

    return httpx.AsyncHTTPTransport(proxy=proxy, limits=httpx.Limits(max_keepalive_connections=0))


@cache
def _bounded_body() -> Any:
    """Return the class of bounded bodies, made when the HTTP library is first needed."""
    import httpx

    class BoundedBody(httpx.AsyncByteStream):
        def __init__(self, inner: Any, most: int) -> None:
            self._inner = inner
            self._most = most

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._inner:
                size += len(part)
                if size > self._most:
                    raise RequestRefused(
                        ErrorType.LIMIT, f"its answer is larger than {self._most} bytes"
                    )
                yield part

        async def aclose(self) -> None:
            await self._inner.aclose()

    return BoundedBody


@cache
def _bounded_transport() -> Any:
    """Return the transport class, made when the HTTP library is first needed."""
    import httpx

    bounded_body = _bounded_body()

    class BoundedTransport(httpx.AsyncBaseTransport):
        def __init__(self, inner: Any, peer: A2aPeer) -> None:
            self._inner = inner
            self._peer = peer

        async def handle_async_request(self, request: Any) -> Any:
            if not self._peer.allows_url(str(request.url)):
                raise RequestRefused(
                    ErrorType.PERMISSION_DENIED, _refusal_of_origin(self._peer, str(request.url))
                )
            response = await self._inner.handle_async_request(request)
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise RequestRefused(
                    ErrorType.IO_ERROR, "its answer is compressed, which was not asked for"
                )
            media_type = response.headers.get("content-type", "")
            most = MAX_STREAM if media_type.startswith("text/event-stream") else MAX_BODY
            response.stream = bounded_body(response.stream, most)
            return response

        async def aclose(self) -> None:
            await self._inner.aclose()

    return BoundedTransport


def _refusal_of_origin(peer: A2aPeer, url: str) -> str:
    try:
        scheme, host, port = url_origin(url)
    except ValueError:
        return "it leads to something that is not a web address"
    origin = clean_text(f"{scheme}://{host}:{port}")[:200]
    return (
        f"it leads to `{origin}`, which is not asked; if that is right, "
        f"a person can write it as the `endpoint` of `{peer.name}`"
    )


async def fetch_card(peer: A2aPeer, client: Any) -> dict[str, Any]:
    """Return a peer's card as it sent it. Raises Refused, and what the HTTP library raises."""
    async with client.stream(
        "GET", peer.card_url, headers={"Accept": "application/json"}
    ) as response:
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > MAX_CARD:
                raise RequestRefused(ErrorType.LIMIT, f"its card is larger than {MAX_CARD} bytes")
        response.raise_for_status()
    try:
        card: Any = parse_json(bytes(body))
    except ValueError:
        raise RequestRefused(ErrorType.PARSE_ERROR, "its card is not JSON") from None
    if not isinstance(card, dict) or nesting_depth(card, MAX_DEPTH + 1) > MAX_DEPTH:
        raise RequestRefused(
            ErrorType.PARSE_ERROR, "its card is not an object, or nested too deeply"
        )
    return card  # pyright: ignore[reportUnknownVariableType]  JSON of unknown shape


# ---- failures


def is_connection_error(error: BaseException) -> bool:
    """Return whether the connection broke, which says nothing about the task."""
    import httpx

    return isinstance(_cause(error), httpx.TransportError)


def request_failure(peer: A2aPeer, attempted: str, error: BaseException) -> ToolFailed:
    """Return the failure that the model is told. `attempted` is what was done ("asking")."""
    import httpx

    cause = _cause(error)
    prefix = f"{attempted} the agent `{peer.name}` failed: "
    if isinstance(cause, RequestRefused):
        return ToolFailed(cause.error_type, prefix + cause.message)
    if isinstance(cause, httpx.HTTPStatusError):
        return _status_failure(peer, prefix, cause.response)
    if isinstance(
        cause, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
    ):
        reason = f"it cannot be reached ({clean_text(str(cause))[:200] or type(cause).__name__})"
        return ToolFailed(ErrorType.IO_ERROR, prefix + reason, kind="transient")
    if isinstance(cause, httpx.HTTPError):
        reason = f"the connection broke ({clean_text(str(cause))[:200] or type(cause).__name__})"
        return ToolFailed(
            ErrorType.IO_ERROR,
            f"{prefix}{reason}; outcome unknown: check before doing it again",
            kind="5xx",
        )
    return _protocol_failure(prefix, error)


def _cause(error: BaseException) -> BaseException:
    """Return the error that the protocol library wrapped, if it is the HTTP library's or ours."""
    import httpx

    cause = error
    while cause.__cause__ is not None and not isinstance(cause, (httpx.HTTPError, RequestRefused)):
        cause = cause.__cause__
    return cause


def _status_failure(peer: A2aPeer, prefix: str, response: Any) -> ToolFailed:
    status = int(response.status_code)
    if status in (401, 403):
        credentials = "no credentials were sent"
        if peer.auth:
            credentials = f"the credentials are those of `{peer.auth.variable}`"
        return ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"{prefix}it does not let us in (HTTP {status}); {credentials}",
        )
    wait = _parse_retry_after(response.headers.get("retry-after", ""))
    if status == 429 or (status == 503 and wait is not None):
        message = f"{prefix}it has no capacity now (HTTP {status})"
        return ToolFailed(ErrorType.IO_ERROR, message, kind="transient", retry_after=wait)
    if status >= 500:
        message = f"{prefix}it failed (HTTP {status}); outcome unknown: check before doing it again"
        return ToolFailed(ErrorType.IO_ERROR, message, kind="5xx")
    return ToolFailed(ErrorType.IO_ERROR, f"{prefix}it answered with HTTP {status}")


def _parse_retry_after(header: str) -> float | None:
    """Return `Retry-After` in seconds; its other form, a date, is not read."""
    if not (header.isascii() and header.isdigit() and len(header) < 9):
        return None
    return min(float(header), _MAX_RETRY_AFTER)


_PROTOCOL_ERRORS = {
    "TaskNotFoundError": ErrorType.NOT_FOUND,
    "InvalidParamsError": ErrorType.VALIDATION_FAILED,
    "InvalidRequestError": ErrorType.VALIDATION_FAILED,
    "ContentTypeNotSupportedError": ErrorType.VALIDATION_FAILED,
    "ParseError": ErrorType.PARSE_ERROR,
    "RecursionError": ErrorType.PARSE_ERROR,
}


def _protocol_failure(prefix: str, error: BaseException) -> ToolFailed:
    """Return the failure for an error of the protocol, or for an invalid answer.

    The names of the library's classes are the specification's.
    """
    error_type = _PROTOCOL_ERRORS.get(type(error).__name__, ErrorType.TOOL_ERROR)
    message = clean_text(str(error)).strip()[:_MAX_MESSAGE] or type(error).__name__
    return ToolFailed(error_type, prefix + message)
