"""A server that is reached over HTTP: streamable HTTP, or the older server-sent events.

Every request to such a server, and every request for signing in to it, goes through
`BoundedTransport`:

* A body that is not an event stream is read up to `MAX_BODY` bytes, and compressed ones are refused
  (a few bytes could become many).
* An answer is checked to name the request that it was sent for: the library would take any answer
  on a request's stream of events as that request's own, whatever id it has.
* The server's headers go to its own origin only; redirects to other origins are not followed (the
  library ensures both).
* Other origins are asked only while signing in, since a server names them: over https, and only
  if none of their addresses belongs to this machine, its network or its cloud
  (`sandbox.network.ip_addresses`), unless the server itself is on this machine.

Proxies of the environment apply, as for models. Not protected: a name that resolves to another
address between our check and the connection.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from ferrule.models.http.proxies import find_proxy
from ferrule.models.request_encoding import encode_json_bytes, parse_object
from ferrule.sandbox.network.ip_addresses import is_public, parse_address

from .spec import FilledServer, McpServer, is_local
from .streams import MALFORMED, HttpStatus, TransportStreams, report_error

MAX_BODY = 8 * 1024 * 1024
CONNECT_SECONDS = 15.0
READ_SECONDS = 300.0


@asynccontextmanager
async def open_http(
    server: McpServer, filled: FilledServer, auth: Any = None
) -> AsyncGenerator[TransportStreams]:
    """Provide the streams to a server. Nothing is sent before the first message.

    Args:
        server: The server's description.
        filled: The same with its variables filled in.
        auth: An authentication of the HTTP library.
    """
    from mcp.client.streamable_http import streamable_http_client

    over = asyncio.Event()

    async def why() -> str:
        return f"server `{server.name}`: the connection ended"

    if server.transport == "sse":
        from mcp.client.sse import sse_client

        def factory(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
            return make_http_client(filled.url, filled.headers, auth)

        async with sse_client(filled.url, httpx_client_factory=factory, auth=auth) as (read, write):
            yield TransportStreams(read, write, over, why)
        return
    async with (
        make_http_client(filled.url, filled.headers, auth) as client,
        streamable_http_client(filled.url, http_client=client, max_sse_event_size=MAX_BODY) as (
            read,
            write,
        ),
    ):
        yield TransportStreams(read, write, over, why)


def make_http_client(url: str, headers: Any = None, auth: Any = None) -> Any:
    """Return an HTTP client with the bounds of this module, for the origin of `url`."""
    import httpx2

    parts = urlsplit(url)
    host = parts.hostname or ""
    is_secure = parts.scheme == "https"
    default_port = 443 if is_secure else 80
    found = find_proxy(is_secure, host, parts.port or default_port, None, os.environ)
    proxy = None
    if found is not None:
        proxy_host, proxy_port, credentials = found
        headers_for_proxy = _proxy_headers(credentials)
        proxy = httpx2.Proxy(f"http://{proxy_host}:{proxy_port}", headers=headers_for_proxy)
    inner = httpx2.AsyncHTTPTransport(proxy=proxy)
    return httpx2.AsyncClient(
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        auth=auth,
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS),
        transport=_bounded_transport()(inner, (parts.scheme, host, parts.port)),
    )


def check_answer_id(request_id: object, message: bytes) -> bytes:
    """Return a message, or an error in its place if it answers another request.

    It is read by the library's own reader, so that both see the same id. What is no message is
    returned as it is: the library refuses it.
    """
    from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

    try:
        read = jsonrpc_message_adapter.validate_json(message, by_name=False)
    except (ValueError, RecursionError):
        return message
    if not isinstance(read, (JSONRPCResponse, JSONRPCError)) or str(read.id) == str(request_id):
        return message
    if read.id is None:
        # The server refused the request before it had read its id.
        error: Any = read.error.model_dump(exclude_unset=True)
    else:
        why = f"its answer is not valid: it answers request {read.id!r}, not {request_id!r}"
        error = {"code": MALFORMED, "message": why[:300]}
    return encode_json_bytes({"jsonrpc": "2.0", "id": request_id, "error": error})


def _proxy_headers(value: str) -> dict[str, str]:
    return {"Proxy-Authorization": value} if value else {}


_requested_id: contextvars.ContextVar[object] = contextvars.ContextVar(
    "ferrule_mcp_requested_id", default=None
)
"""The id of the request that this task sent last.

The library reads an answer in the task that sent its request, also where the stream broke off and
it asks for the rest.
"""


@cache
def _body_classes() -> tuple[Any, Any]:
    """Return the classes of bounded bodies, made when the HTTP library is first needed."""
    import httpx2

    class BoundedBody(httpx2.AsyncByteStream):
        """A body that fails when it is larger than `MAX_BODY`."""

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

    class CheckedAnswer(BoundedBody):
        """The answer to one request, read whole to check that it answers that request."""

        def __init__(self, inner: Any, request_id: object) -> None:
            super().__init__(inner)
            self._request_id = request_id

        async def __aiter__(self) -> AsyncIterator[bytes]:
            whole = b"".join([part async for part in super().__aiter__()])
            yield check_answer_id(self._request_id, whole)

    return BoundedBody, CheckedAnswer


@cache
def _checked_events() -> Any:
    """Return the class of checked streams, made when the HTTP library is first needed."""
    import httpx2

    class CheckedEvents(httpx2.AsyncByteStream):
        """The events of one request's stream, each with its message checked and written anew.

        Written anew, since what was checked is then what the library reads.
        """

        def __init__(self, response: Any, request_id: object) -> None:
            self._response = response
            self._request_id = request_id

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for event in httpx2.EventSource(self._response, max_event_size=MAX_BODY):
                data = event.data.encode("utf-8", "replace")
                if event.event == "message":
                    data = check_answer_id(self._request_id, data)
                yield _encode_event(event, data)

        async def aclose(self) -> None:
            await self._response.aclose()

    return CheckedEvents


def _encode_event(event: Any, data: bytes) -> bytes:
    """Return an event as bytes of a stream of events."""
    head = f"event: {event.event}\nid: {event.id}\n"
    if event.retry is not None:
        head += f"retry: {event.retry}\n"
    lines = b"".join(b"data: " + line + b"\n" for line in data.split(b"\n"))
    return head.encode("utf-8", "replace") + lines + b"\n"


@cache
def _bounded_transport() -> Any:
    """Return the transport class, made when the HTTP library is first needed."""
    import httpx2

    class BoundedTransport(httpx2.AsyncBaseTransport):
        def __init__(self, inner: Any, origin: tuple[str, str, int | None]) -> None:
            self._inner = inner
            self._origin = origin

        async def handle_async_request(self, request: Any) -> Any:
            url = request.url
            if (url.scheme, url.host, url.port) != self._origin:
                await _check_address(url.scheme, url.host, local=is_local(self._origin[1]))
            if request.method == "POST":
                _requested_id.set(parse_object(request.content).get("id"))
            response = await self._inner.handle_async_request(request)
            if response.status_code >= 400 and request.method == "POST":
                report_error(
                    HttpStatus(
                        response.status_code,
                        "mcp-session-id" in request.headers,
                        response.headers.get("retry-after", "")[:20],
                    )
                )
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise httpx2.ReadError("the answer is compressed, which was not asked for")
            return _check_answer(request, response)

        async def aclose(self) -> None:
            await self._inner.aclose()

    return BoundedTransport


def _check_answer(request: Any, response: Any) -> Any:
    """Return a response with its body bounded, and checked if it answers a request of ours."""
    bounded_body, checked_answer = _body_classes()
    request_id = _requested_id.get()
    media_type = response.headers.get("content-type", "").lower()
    if media_type.startswith("text/event-stream"):
        # On a stream of no single request, answers are found by their ids.
        return response if request_id is None else _check_events(request, response, request_id)
    if media_type.startswith("application/json") and request_id is not None:
        response.stream = checked_answer(response.stream, request_id)
    else:
        response.stream = bounded_body(response.stream)
    return response


def _check_events(request: Any, response: Any, request_id: object) -> Any:
    import httpx2

    response.request = request
    headers = [
        (name, value)
        for name, value in response.headers.multi_items()
        if name not in ("content-length", "content-type")
    ]
    return httpx2.Response(
        response.status_code,
        headers=[*headers, ("content-type", "text/event-stream")],
        stream=_checked_events()(response, request_id),
        extensions=response.extensions,
    )


async def _check_address(scheme: str, host: str, *, local: bool) -> None:
    """Check that an address that a server named may be asked. Raises the HTTP library's error."""
    import httpx2

    if local and is_local(host):
        return
    if scheme != "https":
        raise httpx2.ConnectError(
            f"`{scheme}://{host}` is not contacted: signing in requires https"
        )
    for address in await _addresses(host):
        parsed = parse_address(address)
        if parsed is None or not is_public(parsed):
            raise httpx2.ConnectError(f"`{host}` is not contacted: it is not on the open internet")


async def _addresses(host: str) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    except OSError:
        return []  # it cannot be resolved, which the connection will report
    return [str(entry[4][0]) for entry in found]
