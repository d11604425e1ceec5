"""Run a small HTTP/1.1 server in the test's process that can misbehave as real ones do.

async with HttpDouble(lambda request: Reply(json={"ok": True})) as server:
    await transport.post(f"{server.url}/x", b"{}", {})
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from types import TracebackType
from typing import Any, Literal

from ferrule.core.calls import encode_json
from ferrule.core.value_class import frozen
from ferrule.models.request_encoding import parse_object


@frozen
class Request:
    """A received request. Header names are in lower case; `target` is the path with its query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object, or an empty dictionary if it is none."""
        return parse_object(self.body)


@frozen
class Reply:
    """A response to send.

    `pieces` are sent one by one: each as an HTTP chunk, or raw with `framing` `length` or `close`.
    `then` is what follows: `end` properly, `hold` the connection until the client leaves, or `drop`
    it without an end. `hold_head` sends nothing at all until the client leaves; `drop_head` closes
    at once.
    """

    status: int = 200
    pieces: Sequence[bytes] = ()
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    framing: Literal["chunked", "length", "close"] = "chunked"
    then: Literal["end", "hold", "drop"] = "end"
    hold_head: bool = False
    drop_head: bool = False

    def body(self) -> list[bytes]:
        return list(self.pieces) if self.json is None else [encode_json(self.json).encode()]


Handler = Callable[[Request], "Reply | Awaitable[Reply]"]


class HttpDouble:
    """The server.

    `requests` are all received requests. `request_received` is set at each request, `client_left`
    when a client closes before its response is complete; `connection_count` counts opened
    connections.
    """

    def __init__(self, handler: Handler, *, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[Any]] = {}
        self.requests: list[Request] = []
        self.request_received = asyncio.Event()
        self.client_left = asyncio.Event()
        self.connection_count = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> HttpDouble:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._serving):
            writer.transport.abort()
        await asyncio.gather(*self._serving.values())
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving[writer] = task
        try:
            while request := await self._request(reader):
                if not await self._answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.client_left.set()
        finally:
            self._serving.pop(writer)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> Request | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, target, headers, body)
        self.requests.append(request)
        self.request_received.set()
        return request

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Send the reply. Return whether the connection stays open."""
        made = self._handler(request)
        reply = made if isinstance(made, Reply) else await made
        if reply.drop_head:
            return False
        if not reply.hold_head:
            await self._send(reply, writer)
        if reply.hold_head or reply.then == "hold":
            await reader.read()
            self.client_left.set()
            return False
        if reply.then == "drop":
            writer.transport.abort()
            return False
        return reply.framing != "close"

    async def _send(self, reply: Reply, writer: asyncio.StreamWriter) -> None:
        pieces = reply.body()
        headers = dict(reply.headers)
        if reply.json is not None:
            headers.setdefault("content-type", "application/json")
        if reply.framing == "chunked":
            headers["transfer-encoding"] = "chunked"
        elif reply.framing == "length":
            headers["content-length"] = str(sum(len(piece) for piece in pieces))
        lines = [
            f"HTTP/1.1 {reply.status} Said",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        writer.write("\r\n".join((*lines, "\r\n")).encode("latin-1"))
        for piece in pieces:
            if reply.framing == "chunked":
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            else:
                writer.write(piece)
            await writer.drain()
            if len(pieces) > 1:
                # Lets the client read this piece before the next one is there.
                await asyncio.sleep(0)
        if reply.framing == "chunked" and reply.then == "end":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
