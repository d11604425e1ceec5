"""HTTP to a peer: its own origins and no other, bodies of bounded size, failures said by what they
mean.

* Only the origins that the person wrote down are asked, with the person's header: not where a
  redirect leads, not where a card points.
* A body is read up to `MAX_BODY` bytes, an event stream up to `MAX_STREAM`, a card up to
  `cards.MAX_CARD`; compressed ones are refused.
* Proxies of the environment hold, as for models; nothing else of it does (no `.netrc`).

Failures carry a class (`tools.reliability`): `transient` only where the peer surely did nothing, so
that a message is never sent twice. Not protected: what the peer itself does with what it is told.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any

from ferrule.connectors.cleaning import clean
from ferrule.connectors.schemas import depth_of
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.models.http.proxies import proxy_for

from .cards import MAX_CARD, MAX_DEPTH
from .spec import A2aPeer, place_of

MAX_BODY = 8 * 1024 * 1024
MAX_STREAM = 32 * 1024 * 1024
CONNECT_SECONDS = 15.0
CARD_SECONDS = 30.0
_REDIRECTS = 3
_MESSAGE = 2_000
_WAIT = 3600.0


class Refused(Exception):
    """An address, or an answer, that is out of bounds. Not an error of the HTTP library, which
    would be taken for the network's.
    """

    def __init__(self, error_type: ErrorType, message: str) -> None:
        super().__init__(error_type, message)
        self.error_type = error_type
        self.message = message


def client_for(peer: A2aPeer, headers: Mapping[str, str]) -> Any:
    """An HTTP client for a peer, bounded as this file says. `headers` hold its secret. Takes a
    while: certificates are read.
    """
    import httpx

    scheme, host, port = place_of(peer.url)
    proxy = proxy_for(scheme == "https", host, port, None, os.environ)
    through = None
    if proxy is not None:
        kept = {"Proxy-Authorization": proxy[2]} if proxy[2] else {}
        through = httpx.Proxy(f"http://{proxy[0]}:{proxy[1]}", headers=kept)
    return httpx.AsyncClient(
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx.Timeout(CONNECT_SECONDS, read=None),
        follow_redirects=True,
        max_redirects=_REDIRECTS,
        trust_env=False,
        transport=_bounded()(_transport(through), peer),
    )


def _transport(proxy: Any) -> Any:
    """No connection outlives its request: calls are rare, and a program may make each of them on a
    loop of its own.
    """
    import httpx

    return httpx.AsyncHTTPTransport(proxy=proxy, limits=httpx.Limits(max_keepalive_connections=0))


@cache
def _bounded() -> Any:
    """The class, made once the HTTP library is needed."""
    import httpx

    class Body(httpx.AsyncByteStream):
        def __init__(self, inner: Any, most: int) -> None:
            self._inner = inner
            self._most = most

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._inner:
                size += len(part)
                if size > self._most:
                    raise Refused(ErrorType.LIMIT, f"its answer is larger than {self._most} bytes")
                yield part

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Bounded(httpx.AsyncBaseTransport):
        def __init__(self, inner: Any, peer: A2aPeer) -> None:
            self._inner = inner
            self._peer = peer

        async def handle_async_request(self, request: Any) -> Any:
            if not self._peer.admits(str(request.url)):
                raise Refused(ErrorType.PERMISSION_DENIED, _elsewhere(self._peer, str(request.url)))
            response = await self._inner.handle_async_request(request)
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise Refused(
                    ErrorType.IO_ERROR, "its answer is compressed, which was not asked for"
                )
            streams = response.headers.get("content-type", "").startswith("text/event-stream")
            response.stream = Body(response.stream, MAX_STREAM if streams else MAX_BODY)
            return response

        async def aclose(self) -> None:
            await self._inner.aclose()

    return Bounded


def _elsewhere(peer: A2aPeer, url: str) -> str:
    try:
        scheme, host, port = place_of(url)
    except ValueError:
        return "it leads to something that is no address of the web"
    return (
        f"it leads to `{clean(f'{scheme}://{host}:{port}')[:200]}`, which is not asked; if "
        "that is right, "
        f"a person can write it as the `endpoint` of `{peer.name}`"
    )


async def fetch_card(peer: A2aPeer, client: Any) -> dict[str, Any]:
    """A peer's card as it sent it. Raises Refused, and what the HTTP library raises."""
    async with client.stream(
        "GET", peer.card_url, headers={"Accept": "application/json"}
    ) as response:
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > MAX_CARD:
                raise Refused(ErrorType.LIMIT, f"its card is larger than {MAX_CARD} bytes")
        response.raise_for_status()
    try:
        said: Any = json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise Refused(ErrorType.PARSE_ERROR, "its card is not JSON") from None
    if not isinstance(said, dict) or depth_of(said, MAX_DEPTH + 1) > MAX_DEPTH:
        raise Refused(ErrorType.PARSE_ERROR, "its card is no object, or nested too deeply")
    return said  # pyright: ignore[reportUnknownVariableType]  JSON of a stranger


# ---- what went wrong


def broke(error: BaseException) -> bool:
    """Whether the connection broke, which says nothing of the task that it was about."""
    import httpx

    return isinstance(_cause(error), httpx.TransportError)


def failed(peer: A2aPeer, attempted: str, error: BaseException) -> ToolFailed:
    """A failure as the model is told it. `attempted` is what was done ("asking it for its
    card").
    """
    import httpx

    cause = _cause(error)
    told = f"{attempted} the agent `{peer.name}` failed: "
    if isinstance(cause, Refused):
        return ToolFailed(cause.error_type, told + cause.message)
    if isinstance(cause, httpx.HTTPStatusError):
        return _by_status(peer, told, cause.response)
    if isinstance(
        cause, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
    ):
        said = f"it cannot be reached ({clean(str(cause))[:200] or type(cause).__name__})"
        return ToolFailed(ErrorType.IO_ERROR, told + said, kind="transient")
    if isinstance(cause, httpx.HTTPError):
        said = f"the connection broke ({clean(str(cause))[:200] or type(cause).__name__})"
        return ToolFailed(
            ErrorType.IO_ERROR,
            f"{told}{said}; outcome unknown: check before doing it again",
            kind="5xx",
        )
    return _by_meaning(told, error)


def _cause(error: BaseException) -> BaseException:
    """What the protocol library wrapped, if that is of the HTTP library or ours."""
    import httpx

    cause = error
    while cause.__cause__ is not None and not isinstance(cause, (httpx.HTTPError, Refused)):
        cause = cause.__cause__
    return cause


def _by_status(peer: A2aPeer, told: str, response: Any) -> ToolFailed:
    status = int(response.status_code)
    if status in (401, 403):
        known = (
            f"; it was told who we are by `{peer.auth.variable}`"
            if peer.auth
            else "; it was not told who we are"
        )
        return ToolFailed(
            ErrorType.PERMISSION_DENIED, f"{told}it does not let us in (HTTP {status}){known}"
        )
    wait = _seconds(response.headers.get("retry-after", ""))
    if status == 429 or (status == 503 and wait is not None):
        said = f"{told}it has no room now (HTTP {status})"
        return ToolFailed(ErrorType.IO_ERROR, said, kind="transient", retry_after=wait)
    if status >= 500:
        said = f"{told}it broke (HTTP {status}); outcome unknown: check before doing it again"
        return ToolFailed(ErrorType.IO_ERROR, said, kind="5xx")
    return ToolFailed(ErrorType.IO_ERROR, f"{told}it answered with HTTP {status}")


def _seconds(said: str) -> float | None:
    """`Retry-After` as seconds; its other form, a date, is not read."""
    return min(float(said), _WAIT) if said.isascii() and said.isdigit() and len(said) < 9 else None


_MEANINGS = {
    "TaskNotFoundError": ErrorType.NOT_FOUND,
    "InvalidParamsError": ErrorType.VALIDATION_FAILED,
    "InvalidRequestError": ErrorType.VALIDATION_FAILED,
    "ContentTypeNotSupportedError": ErrorType.VALIDATION_FAILED,
    "ParseError": ErrorType.PARSE_ERROR,
    "RecursionError": ErrorType.PARSE_ERROR,
}


def _by_meaning(told: str, error: BaseException) -> ToolFailed:
    """An error of the protocol (the names of the library's classes are the specification's), or an
    answer that makes no sense.
    """
    kind = _MEANINGS.get(type(error).__name__, ErrorType.TOOL_ERROR)
    said = clean(str(error)).strip()[:_MESSAGE] or type(error).__name__
    return ToolFailed(kind, told + said)
