"""A server that is reached over HTTP: streamable HTTP, or the older kind with server-sent events.

Every request of such a server, and of signing in to it, goes through `_bounded`:

* a body that is no event stream is read up to `MAX_BODY` bytes, compressed ones are refused (a few
  bytes could become many);
* to the server's own origin go its headers; redirects to other origins are not followed (the
  library sees to both);
* other origins are asked only while signing in, since a server names them: over https, and only
  where no address of theirs is of this machine, its network or its cloud
  (`sandbox.network.ip_addresses`), unless the server itself is on this machine.

Proxies of the environment hold, as for models. Not protected: a name that leads elsewhere between
our look at it and the connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from ferrule.models.http.proxies import proxy_for
from ferrule.models.request_encoding import dumps, json_object
from ferrule.sandbox.network.ip_addresses import is_open, parse_address

from .spec import Filled, McpServer, is_local
from .streams import MALFORMED, Ends, leave_aside

MAX_BODY = 8 * 1024 * 1024
CONNECT_SECONDS = 15.0
READ_SECONDS = 300.0


@asynccontextmanager
async def open_http(server: McpServer, filled: Filled, auth: Any = None) -> AsyncGenerator[Ends]:
    """Streams to a server. Nothing is sent before the first message. `auth` is an authentication of
    the HTTP library.
    """
    from mcp.client.streamable_http import streamable_http_client

    over = asyncio.Event()

    async def why() -> str:
        return f"server `{server.name}`: the connection ended"

    if server.transport == "sse":
        from mcp.client.sse import sse_client

        def factory(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
            return client_for(filled.url, filled.headers, auth)

        async with sse_client(filled.url, httpx_client_factory=factory, auth=auth) as (read, write):
            yield Ends(read, write, over, why)
        return
    async with (
        client_for(filled.url, filled.headers, auth) as client,
        streamable_http_client(filled.url, http_client=client, max_sse_event_size=MAX_BODY) as (
            read,
            write,
        ),
    ):
        yield Ends(read, write, over, why)


def client_for(url: str, headers: Any = None, auth: Any = None) -> Any:
    """An HTTP client of the library's kind that is bounded as this file says, for the origin of
    `url`.
    """
    import httpx2

    parts = urlsplit(url)
    secure, host = parts.scheme == "https", parts.hostname or ""
    proxy = proxy_for(secure, host, parts.port or (443 if secure else 80), None, os.environ)
    through = (
        None
        if proxy is None
        else httpx2.Proxy(f"http://{proxy[0]}:{proxy[1]}", headers=_credentials(proxy[2]))
    )
    inner = httpx2.AsyncHTTPTransport(proxy=through)
    return httpx2.AsyncClient(
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        auth=auth,
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS),
        transport=_bounded()(inner, (parts.scheme, host, parts.port)),
    )


def answer_to(asked: bytes, answer: bytes) -> bytes:
    """Return the answer, or an error in its place if it names another request: the one that was
    made would wait for ever.
    """
    number = json_object(asked).get("id")
    said = json_object(answer)
    if number is None or "id" not in said or "method" in said or str(said["id"]) == str(number):
        return answer
    why = f"its answer is not valid: it answers request {said['id']!r}, and {number!r} was asked"
    error = {"code": MALFORMED, "message": why[:300]}
    return dumps({"jsonrpc": "2.0", "id": number, "error": error})


def _credentials(value: str) -> dict[str, str]:
    return {"Proxy-Authorization": value} if value else {}


@cache
def _bounded() -> Any:
    """The class, made once the HTTP library is needed."""
    import httpx2

    class Body(httpx2.AsyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._inner:
                size += len(part)
                if size > MAX_BODY:
                    raise httpx2.ReadError(f"the answer is larger than {MAX_BODY} bytes")
                yield part

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Answer(Body):
        """The answer to one request, whole: only then can it be seen whether it is that."""

        def __init__(self, inner: Any, asked: bytes) -> None:
            super().__init__(inner)
            self._asked = asked

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield answer_to(self._asked, b"".join([part async for part in super().__aiter__()]))

    class Bounded(httpx2.AsyncBaseTransport):
        def __init__(self, inner: Any, origin: tuple[str, str, int | None]) -> None:
            self._inner = inner
            self._origin = origin

        async def handle_async_request(self, request: Any) -> Any:
            url = request.url
            if (url.scheme, url.host, url.port) != self._origin:
                await _allow(url.scheme, url.host, local=is_local(self._origin[1]))
            response = await self._inner.handle_async_request(request)
            if response.status_code >= 500:
                leave_aside(response.status_code)
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise httpx2.ReadError("the answer is compressed, which was not asked for")
            kind = response.headers.get("content-type", "").lower()
            if kind.startswith("application/json") and request.method == "POST":
                response.stream = Answer(response.stream, request.content)
            elif not kind.startswith("text/event-stream"):
                response.stream = Body(response.stream)
            return response

        async def aclose(self) -> None:
            await self._inner.aclose()

    return Bounded


async def _allow(scheme: str, host: str, *, local: bool) -> None:
    """Whether an address that a server named may be asked. Raises the HTTP library's error."""
    import httpx2

    if local and is_local(host):
        return
    if scheme != "https":
        raise httpx2.ConnectError(
            f"`{scheme}://{host}` is not asked: only https is, for signing in"
        )
    for address in await _addresses(host):
        parsed = parse_address(address)
        if parsed is None or not is_open(parsed):
            raise httpx2.ConnectError(f"`{host}` is not asked: it is not on the open internet")


async def _addresses(host: str) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    except OSError:
        return []  # it leads nowhere, and the connection will say so
    return [str(one[4][0]) for one in found]
