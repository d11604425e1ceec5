"""The proxy through which confined commands reach named hosts, and nothing else.

    proxy = Proxy(Hosts.parse(policy.network), record)
    listening = proxy.serve_listener(sock, identity)    # a socket inside the command's network
    namespace
    ...                                                 # the command is over
    await listening.close()
    await proxy.close()

It supports CONNECT and plain HTTP/1.1 with absolute targets. Every request is checked by itself, on
a new connection or a kept one: host and port against the `network` setting, then the resolved
address (`dialing.py`). A redirect is simply the client's next request. What is refused gets 403 and
a sentence that names the host and the setting. What was asked and decided is recorded for the
identity that the command runs as.

Each plain request has a server connection of its own: nothing that one request leaves behind is
read as the next. No `Via` field is added: a server has no business knowing.

Not protected: what is said inside a tunnel (TLS) is not looked at, so data can leave to a named
host, and a host that shares its servers with others can be asked for those (domain fronting). UDP,
QUIC and other protocols have no way through.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen

from .allowed_hosts import HostRules, InvalidHost
from .dialing import Dialer, HostConnection, RequestRefused, Resolve, Upstream, no_upstream, resolve
from .http_heads import (
    BodyEnd,
    MalformedMessage,
    RequestHead,
    ResponseHead,
    encode_head,
    parse_request,
    parse_response,
)
from .listener import ProxyListener
from .proxy_peer import Peer, SendPiece, do_nothing

_CHUNKS_END = b"0\r\n\r\n"


@frozen
class ProxyLimits:
    """Limits: connections at once in all and for each command, and seconds.

    The seconds are for receiving a head, for connecting, and of silence.
    """

    connections: int = 256
    per_command: int = 128
    head: float = 30.0
    connect: float = 20.0
    idle: float = 600.0


@frozen
class ConnectionAttempt:
    """One request or tunnel: what was asked for, what was decided, what came of it.

    `host` and `port` are as asked for, in canonical form (the target as written and port 0, if it
    cannot be read). `reason` says why not, or what failed although it was allowed; `unnamed` that
    no setting names the host with this port. `address` is where the connection led. `sent` and
    `received` are bytes to and from there.
    """

    identity: Identity
    host: str
    port: int
    method: str
    allowed: bool = False
    reason: str = ""
    unnamed: bool = False
    address: str = ""
    sent: int = 0
    received: int = 0


Record = Callable[[ConnectionAttempt], None]
"""Called on the event loop once for each request, when it is over.

Must be quick and must not raise.
"""


class Proxy:
    """The proxy of one sandbox. Lives on the event loop on which it is used."""

    def __init__(
        self,
        hosts: HostRules,
        record: Record = lambda contact: None,
        *,
        upstream: Upstream = no_upstream,
        resolve: Resolve = resolve,
        limits: ProxyLimits | None = None,
    ) -> None:
        self._patience = limits or ProxyLimits()
        self._reach = Dialer(hosts, resolve, upstream, self._patience.connect)
        self._record = record
        self._slots = asyncio.Semaphore(self._patience.connections)
        self._listeners: set[ProxyListener] = set()

    def serve_listener(
        self, sock: socket.socket, identity: Identity, record: Record | None = None
    ) -> ProxyListener:
        """Serve whoever connects to a listening socket, until it is closed.

        The socket is ours from now on. `record` is also called for its requests.
        """

        def tell(attempt: ConnectionAttempt) -> None:
            self._record(attempt)
            if record is not None:
                record(attempt)

        def serve(client: Peer) -> Coroutine[Any, Any, None]:
            return self._serve(client, identity, lambda: listening.is_crowded, tell)

        listening = ProxyListener(sock, self._patience.per_command, serve, self._listeners)
        return listening

    async def serve_connection(self, sock: socket.socket, identity: Identity) -> None:
        """Serve one connected stream socket until it is over.

        The socket is ours from now on; cancelling closes both sides.
        """
        await self._serve(Peer(sock), identity, lambda: False, self._record)

    async def close(self) -> None:
        """Close the listeners. Both sides of every connection are closed when this returns."""
        for listening in list(self._listeners):
            await listening.close()

    async def _serve(
        self, client: Peer, identity: Identity, crowded: Callable[[], bool], record: Record
    ) -> None:
        try:
            async with self._slots:
                await _Conversation(
                    client, identity, self._reach, record, self._patience, crowded
                ).run()
        finally:
            client.close()


@dataclass(slots=True)
class _Conversation:
    """One client, request after request."""

    client: Peer
    identity: Identity
    reach: Dialer
    record: Record
    patience: ProxyLimits
    crowded: Callable[[], bool]
    contact: ConnectionAttempt = field(init=False)

    async def run(self) -> None:
        try:
            while await self._serve_request():
                pass
        except OSError:
            return  # The client is gone, or was silent for too long: there is nobody to tell.

    async def _serve_request(self) -> bool:
        """Serve one request. Return whether the connection can be reused."""
        self.contact = ConnectionAttempt(self.identity, "", 0, "")
        try:
            asked = await self._read_head()
            if asked is None:
                return False
            return await self._handle(asked)
        except InvalidHost as problem:
            return await self._refuse(None, RequestRefused(403, f"the host is refused: {problem}"))
        except MalformedMessage as problem:
            return await self._refuse(None, RequestRefused(problem.status, str(problem)))

    async def _read_head(self) -> RequestHead | None:
        """Read a request's head. None: the client has finished."""
        async with asyncio.timeout(self.patience.idle):
            if not await self.client.wait_for_data():
                return None
        try:
            async with asyncio.timeout(self.patience.head):
                lines = await self.client.read_head()
        except TimeoutError:
            raise MalformedMessage(
                f"the head did not arrive within {self.patience.head:g} s", 408
            ) from None
        self.contact = replace(self.contact, host=_shown_target(lines[0]))
        return parse_request(lines)

    async def _handle(self, asked: RequestHead) -> bool:
        self.contact = replace(self.contact, host=asked.host, port=asked.port, method=asked.method)
        tunnel = asked.method == "CONNECT"
        try:
            why = self.reach.hosts.refusal(asked.host, asked.port)
            if why:
                self.contact = replace(self.contact, unnamed=True)
                raise RequestRefused(403, why)
            reached = await self.reach.connect(asked.host, asked.port, tunnel=tunnel)
        except RequestRefused as problem:
            return await self._refuse(asked, problem)
        self.contact = replace(self.contact, allowed=True, address=reached.address)
        try:
            if tunnel:
                return await self._tunnel(reached)
            return await self._forward(asked, reached)
        finally:
            reached.peer.close()
            self.record(
                replace(self.contact, sent=reached.peer.sent, received=reached.peer.received)
            )

    async def _tunnel(self, reached: HostConnection) -> bool:
        await self.client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with self._idle_timeout(reached.peer), asyncio.TaskGroup() as both:
            both.create_task(_copy_stream(self.client, reached.peer))
            both.create_task(_copy_stream(reached.peer, self.client))
        return False

    async def _forward(self, asked: RequestHead, reached: HostConnection) -> bool:
        asked = replace(asked, keep_alive=asked.keep_alive and not self.crowded())
        exchange = _Exchange(asked, self.client, reached)
        try:
            async with self._idle_timeout(reached.peer):
                return await exchange.run()
        except (MalformedMessage, OSError) as problem:
            self.contact = replace(self.contact, reason=str(problem) or "silence for too long")
            if exchange.answered:
                self.client.abort()  # Nobody may take this for a whole answer.
                return False
            late = isinstance(problem, TimeoutError)
            why = f"`{asked.host}` did not answer in time" if late else f"`{asked.host}`: {problem}"
            await self._send_refusal(
                asked, RequestRefused(504 if late else exchange.status, why), keep=False
            )
            return False

    @asynccontextmanager
    async def _idle_timeout(self, server: Peer) -> AsyncGenerator[None]:
        """Raise TimeoutError after too much silence. Bytes either way restart the clock."""
        loop = asyncio.get_running_loop()

        def reschedule() -> None:
            if not clock.expired():
                clock.reschedule(loop.time() + self.patience.idle)

        async with asyncio.timeout(self.patience.idle) as clock:
            self.client.on_activity = server.on_activity = reschedule
            try:
                yield
            finally:
                self.client.on_activity = server.on_activity = do_nothing

    async def _refuse(self, asked: RequestHead | None, problem: RequestRefused) -> bool:
        self.record(
            replace(
                self.contact,
                allowed=not problem.is_forbidden and asked is not None,
                reason=str(problem),
            )
        )
        keep = asked is not None and asked.keep_alive and asked.framing == 0 and not self.crowded()
        await self._send_refusal(asked, problem, keep=keep)
        return keep

    async def _send_refusal(
        self, asked: RequestHead | None, problem: RequestRefused, *, keep: bool
    ) -> None:
        where = f"`{self.contact.host}:{self.contact.port}`" if asked else "a request"
        text = f"Ferrule's sandbox did not pass on {where}: {problem}.\n"
        if problem.is_forbidden and asked:
            text += (
                "hint: commands reach only what a person lists in the `sandbox.network` setting\n"
            )
        body = text.encode() if asked is None or asked.method != "HEAD" else b""
        fields = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(text.encode()))),
        ]
        if not keep:
            fields.append(("Connection", "close"))
        # Clients show nothing of a refused CONNECT but this line.
        phrase = str(problem).encode("ascii", "replace").decode()
        phrase = phrase.replace("\r", " ").replace("\n", " ")
        head = encode_head(f"HTTP/1.1 {problem.status} {phrase}", fields)
        await self.client.send(head + body)
        if not keep:
            await self.client.linger()


@dataclass(slots=True)
class _Exchange:
    """A plain request on its way to a server, and the answer on its way back."""

    asked: RequestHead
    client: Peer
    reached: HostConnection
    answered: bool = False
    status: int = 502
    _upload_error: MalformedMessage | None = None

    async def run(self) -> bool:
        """Exchange both. Return whether the client's connection can be reused.

        Raises MalformedMessage and OSError.
        """
        await self.reached.peer.send(self.asked.encode(self.reached.proxy_credentials))
        upload = asyncio.ensure_future(self._upload()) if self.asked.framing else None
        try:
            keep = await self._download()
            return keep and (upload is None or (upload.done() and self._upload_error is None))
        except (MalformedMessage, OSError):
            if self._upload_error:
                self.status = self._upload_error.status
                raise self._upload_error from None
            raise
        finally:
            if upload:
                upload.cancel()
                await asyncio.gather(upload, return_exceptions=True)

    async def _upload(self) -> None:
        server = self.reached.peer
        try:
            await self.client.copy_body(
                self.asked.framing, _body_sender(server, self.asked.framing is BodyEnd.CHUNKED)
            )
            if self.asked.framing is BodyEnd.CHUNKED:
                await server.send(_CHUNKS_END)
        except MalformedMessage as problem:
            self._upload_error = problem
            server.shut_down()
        except OSError:
            server.shut_down()

    async def _download(self) -> bool:
        server = self.reached.peer
        answer = await self._read_answer_head()
        chunks = self.asked.reads_chunked and answer.framing is BodyEnd.CHUNKED
        keep = self.asked.keep_alive and answer.framing is not BodyEnd.CLOSE
        self.answered = True
        await self.client.send(answer.encode(chunks=chunks, keep=keep))
        await server.copy_body(answer.framing, _body_sender(self.client, chunks))
        if chunks:
            await self.client.send(_CHUNKS_END)
        return keep

    async def _read_answer_head(self) -> ResponseHead:
        """Read the final answer's head; those before it (such as 100) are passed on."""
        while True:
            answer = parse_response(await self.reached.peer.read_head(), self.asked.method)
            if answer.status >= 200:
                return answer
            if self.asked.reads_chunked:
                await self.client.send(answer.encode(chunks=False, keep=True))


def _body_sender(peer: Peer, chunks: bool) -> SendPiece:
    """Return how pieces of a body are sent: as they are, or each as a chunk."""
    if not chunks:
        return peer.send

    async def give(data: bytes) -> None:
        await peer.send(b"%x\r\n%b\r\n" % (len(data), data))

    return give


async def _copy_stream(source: Peer, sink: Peer) -> None:
    """Copy everything from one peer to the other, then its end; a failure ends both."""
    try:
        while data := await source.read_some():
            await sink.send(data)
        sink.end_sending()
    except OSError:
        source.shut_down()
        sink.shut_down()


def _shown_target(line: bytes) -> str:
    """Return what an unreadable first line asks for, for the record: printable and short."""
    words = line.decode("ascii", "backslashreplace").split(" ")
    shown = words[1] if len(words) > 1 else words[0]
    return "".join(c if c.isprintable() else "?" for c in shown)[:253]


_LOOPBACK = f"localhost,127.0.0.1,::1,0.0.0.0,{socket.gethostname()}"
"""Names that mean the command's own loopback, the machine's name among them."""


def proxy_environment(port: int, *, loopback_outside: bool = False) -> dict[str, str]:
    """Return variables for a proxy on this port of 127.0.0.1, in the spellings programs read.

    The loopback is the command's own (a test that asks a server it started), unless
    `loopback_outside`: a person opened this machine's, which is then asked for through the proxy as
    well.

    Programs that read none of these reach nothing. Java is one (`-Dhttps.proxyHost` and its like
    are options, and `JAVA_TOOL_OPTIONS` makes every start print a line); ssh is another.
    `PIP_PROXY` is not set on purpose: pip follows `HTTPS_PROXY`, and with an option of its own it
    would ask the proxy for 127.0.0.1, too.
    """
    proxy = f"http://127.0.0.1:{port}"
    excepted = "" if loopback_outside else _LOOPBACK
    values: dict[str, str] = {}
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        values[name] = proxy
        values[name.upper()] = proxy
    values["no_proxy"] = excepted
    values["NO_PROXY"] = excepted
    values["npm_config_proxy"] = proxy
    values["npm_config_https_proxy"] = proxy
    values["npm_config_noproxy"] = excepted
    values["NODE_USE_ENV_PROXY"] = "1"
    return values
