"""Serve an ASGI application on an address.

Every server has a token, also on loopback, which other programs and other people's web pages can
reach too. The token comes from a file or `FERRULE_TOKEN`, or is made for this process and shown to
whoever started it.

Connections are limited in number and in how long they may idle (slow loris): the head of a request
must arrive within `HEAD_SECONDS`, its body within `http_security.BODY_SECONDS`, and a response that
the client does not read is aborted after `STALLED_SECONDS`. A server that is told to stop first
tells the application (`ending`), then waits `GRACE_SECONDS` seconds for responses in progress.

Not protected: somebody who keeps opening `MAX_CONNECTIONS` connections keeps others out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.web_addresses import split_web_address
from ferrule.models.http.proxies import is_loopback

from .http_security import Application

TOKEN_VARIABLE = "FERRULE_TOKEN"
"""The environment variable that holds the token."""
MAX_CONNECTIONS = 768
"""Most connections at once; below 1024, the usual limit of open files of a process."""
HEAD_SECONDS = 10.0
STALLED_SECONDS = 60.0
GRACE_SECONDS = 5
"""Seconds that responses in progress get when the server stops."""
_BACKLOG = 512
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def load_token(file: Path | None) -> tuple[str, bool]:
    """Return the server's token, and whether it was made just now.

    Raises:
        ConfigError: The file cannot be read.
    """
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").strip(), False
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the token in `{file}`: {error}") from error
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token:
        return token, False
    return secrets.token_urlsafe(32), True


def public_address(host: str, port: int, url: str = "") -> str:
    """Return the address that clients use: `url`, or this host and port.

    Raises:
        ConfigError: `url` is no address, or the token would go over a network unencrypted.
    """
    if url and split_web_address(url) is None:
        raise ConfigError(
            f"`{url}` is not the address of a server",
            hint="write the scheme and the host, as in `https://agent.example.org`",
        )
    if not is_loopback(host) and not url.startswith("https://"):
        raise ConfigError(
            f"serving on `{host}` would send the token in the clear",
            hint="serve on 127.0.0.1 behind a TLS proxy, and give its address as `url`",
        )
    return (url or f"http://{_url_host(host)}:{port}").rstrip("/")


def accepted_hosts(host: str, port: int, url: str = "") -> frozenset[str]:
    """Return what clients of this server may send as `Host`."""
    names = (_url_host(host), "localhost")
    hosts = {f"{name}:{port}" for name in names}
    if port == 80:
        hosts.update(names)
    proxy = url.partition("://")[2].partition("/")[0]
    if proxy:
        hosts.add(proxy)
    return frozenset(hosts)


def accepted_origins(host: str, port: int, url: str = "") -> frozenset[str]:
    """Return what browsers send as `Origin` for pages of this server."""
    origins = {f"http://{name}" for name in accepted_hosts(host, port)}
    if "://" in url:
        origins.add("/".join(url.split("/")[:3]))
    return frozenset(origins)


def _url_host(host: str) -> str:
    """Format a host as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Port 0 takes a free one, which `bound_port` returns.

    Raises:
        ConfigError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else str(error)
        hint = "choose another port; 0 takes a free one"
        # Negative numbers are those of names that do not resolve.
        if number < 0 or number == errno.EADDRNOTAVAIL:
            reason = "this machine has no such address"
            hint = "`127.0.0.1` is this machine alone, `0.0.0.0` every network it is in"
        raise ConfigError(
            f"cannot serve on `{_url_host(host)}:{port}`: {reason}", hint=hint
        ) from error


def bound_port(listening: socket.socket) -> int:
    """Return the port of a listening socket."""
    return listening.getsockname()[1]


async def serve(
    app: Application,
    host: str,
    port: int,
    *,
    listening: socket.socket | None = None,
    on_stopping: Callable[[], None] | None = None,
    connections: int = MAX_CONNECTIONS,
) -> int:
    """Serve until the process gets SIGINT or SIGTERM. Return the exit code for that.

    A second signal does not wait for responses in progress. Cancellation stops at once.

    Args:
        app: The application.
        host: The address to serve on.
        port: The port to serve on.
        listening: A socket of `listen`, if the port had to be known before.
        on_stopping: Called once no more requests are accepted: endless responses (streams) must
            end.
        connections: Most connections at once.

    Raises:
        ConfigError: The address cannot be used.
    """
    import uvicorn

    listening = listening or listen(host, port)
    config = uvicorn.Config(
        app,
        http=_protocol_class(),
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        limit_concurrency=connections,
    )
    server = _server_class()(config, on_stopping)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        server.force_exit = True
        await serving
        raise
    finally:
        listening.close()
    return server.code


@cache
def _server_class() -> Any:
    """Define the server class, once uvicorn is needed."""
    import uvicorn

    class Server(uvicorn.Server):
        """Stops on a signal without raising it again: the caller has resources to close."""

        def __init__(self, config: uvicorn.Config, ending: Callable[[], None] | None) -> None:
            super().__init__(config)
            self.code = 0
            self._ending = ending

        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            loop = asyncio.get_running_loop()
            numbers = (signal.SIGINT, signal.SIGTERM)
            previous = [signal.getsignal(number) for number in numbers]
            for number in numbers:
                loop.add_signal_handler(number, self._stop, number)
            try:
                yield
            finally:
                for number, handler in zip(numbers, previous, strict=True):
                    loop.remove_signal_handler(number)
                    signal.signal(number, handler)

        def _stop(self, number: int) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True
            self.code = 128 + number

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if self._ending is not None:
                self._ending()
            await super().shutdown(sockets)
            if self.server_state.tasks:
                # Requests that did not end in time were cancelled: let them clean up.
                await asyncio.wait([*self.server_state.tasks], timeout=1)

    return Server


@cache
def _protocol_class() -> Any:  # noqa: C901  counts the methods of the class in it, each of a few lines
    """Define the connection class: uvicorn's, with time limits.

    Without them uvicorn waits forever for the first head of a connection and for a slow reader.
    """
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Bounded(H11Protocol):
        _head: asyncio.TimerHandle | None = None
        _stalled: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            joined: Any = _JoinedWrites(transport, self.loop)
            super().connection_made(joined)
            limit = self.limit_concurrency
            if limit is not None and len(self.connections) > limit:
                transport.write(_FULL)
                transport.close()
                return
            self._watch_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head = _cancel(self._head)
            self._stalled = _cancel(self._stalled)
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self._stalled or self.loop.call_later(
                STALLED_SECONDS, self.transport.abort
            )

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stalled = _cancel(self._stalled)

        def _watch_head(self) -> None:
            """Start one timer for the whole head: a byte now and then does not extend it."""
            if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
                self._head = _cancel(self._head)
            elif self._head is None:
                self._head = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    return Bounded


class _JoinedWrites:
    """A transport that writes what comes in one step of the event loop at once.

    uvicorn writes the head of a response, its body and its end one by one, and each write is a
    packet that wakes the client.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write data before the event loop waits again."""
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def close(self) -> None:
        """Close the connection once everything is written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        pieces = self._pieces
        if pieces:
            self._pieces = []
            self._transport.write(b"".join(pieces))


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
