"""Serving an application on an address: what all servers of ours have in common.

A server here has a token, also on this machine: other programs and other people's pages reach
loopback too. It comes out of a file or `FERRULE_TOKEN`, or is made for this process and shown to
whoever started it.

Connections are bounded, in number and in how long they may hold a place without doing anything
(slow loris): the head of a request has `HEAD_SECONDS`, from the first to the last byte; its body
has `door.BODY_SECONDS`; an answer that the client does not read is broken off after
`STALLED_SECONDS`. A server that is told to end says so to what it serves (`ending`), waits `GRACE`
seconds for answers under way, and goes.

Not protected: somebody who opens `CONNECTIONS` connections again and again keeps others out as long
as they do.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from ferrule.models.http.proxies import loopback

from .http_security import Application

VARIABLE = "FERRULE_TOKEN"
CONNECTIONS = 768
"""Below 1024, which is how many open files a process usually may have."""
HEAD_SECONDS = 10.0
STALLED_SECONDS = 60.0
GRACE = 5
_BACKLOG = 512
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def token_of(file: Path | None) -> tuple[str, bool]:
    """The server's token, and whether it was made just now. Raises ConfigError for a file that
    cannot be read.
    """
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").strip(), False
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the token in `{file}`: {error}") from error
    given = os.environ.get(VARIABLE, "")
    return (given, False) if given else (secrets.token_urlsafe(32), True)


def address_of(host: str, port: int, url: str = "") -> str:
    """How clients reach the server: `url`, or this address. Raises ConfigError where the token
    would go over a network in the clear.
    """
    if not loopback(host) and not url.startswith("https://"):
        raise ConfigError(
            f"serving on `{host}` would send the token in the clear",
            hint="serve on 127.0.0.1, put a proxy with TLS before it, and say its `url`",
        )
    return (url or f"http://{_named(host)}:{port}").rstrip("/")


def hosts_of(host: str, port: int, url: str = "") -> frozenset[str]:
    """What clients of this server write as `Host`."""
    named = (_named(host), "localhost")
    written = [f"{one}:{port}" for one in named]
    if port == 80:
        written += named
    behind = url.partition("://")[2].partition("/")[0]
    return frozenset([*written, behind] if behind else written)


def origins_of(host: str, port: int, url: str = "") -> frozenset[str]:
    """What browsers write as `Origin` for pages of this server."""
    behind = ["/".join(url.split("/")[:3])] if "://" in url else []
    return frozenset([*(f"http://{one}" for one in hosts_of(host, port)), *behind])


def _named(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def listen(host: str, port: int) -> socket.socket:
    """Take an address, to serve on. Port 0 takes a free one: `port_of` says which. Raises
    ConfigError if it cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot serve on `{_named(host)}:{port}`: {error}",
            hint="choose another port; 0 takes a free one",
        ) from error


def port_of(listening: socket.socket) -> int:
    """Its port."""
    return listening.getsockname()[1]


async def serve(
    app: Application,
    host: str,
    port: int,
    *,
    listening: socket.socket | None = None,
    ending: Callable[[], None] | None = None,
    connections: int = CONNECTIONS,
) -> int:
    """Serve until the process is told to end (SIGINT, SIGTERM); the exit code for that. A second
    signal does not wait for answers under way.

    `listening` is a socket of `listen`, where the port had to be known before. `ending` is called
    once no more is accepted: whatever answers without end (streams) must then end. Cancelled, it
    ends at once. Raises ConfigError if the address cannot be had.
    """
    import uvicorn

    given = listening or listen(host, port)
    config = uvicorn.Config(
        app,
        http=_protocol(),
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        limit_concurrency=connections,
    )
    server = _server()(config, ending)
    serving = asyncio.ensure_future(server.serve(sockets=[given]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = server.force_exit = True
        await serving
        raise
    finally:
        given.close()
    return server.code


@cache
def _server() -> Any:
    """The class of servers, made once uvicorn is needed."""
    import uvicorn

    class Server(uvicorn.Server):
        """Ends on a signal without passing it on: whoever serves has things to close after that."""

        def __init__(self, config: uvicorn.Config, ending: Callable[[], None] | None) -> None:
            super().__init__(config)
            self.code = 0
            self._ending = ending

        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
            before = [signal.getsignal(number) for number in numbers]
            for number in numbers:
                loop.add_signal_handler(number, self._told, number)
            try:
                yield
            finally:
                for number, handler in zip(numbers, before, strict=True):
                    loop.remove_signal_handler(number)
                    signal.signal(number, handler)

        def _told(self, number: int) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True
            self.code = 128 + number

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if self._ending is not None:
                self._ending()
            await super().shutdown(sockets)
            if self.server_state.tasks:
                # Those that did not end in time were cancelled: let them close what they hold.
                await asyncio.wait([*self.server_state.tasks], timeout=1)

    return Server


@cache
def _protocol() -> Any:
    """The class of connections: uvicorn's, which waits for ever for the first head of a connection
    and for a reader, with limits.
    """
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Bounded(H11Protocol):
        _head: asyncio.TimerHandle | None = None
        _stalled: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            most = self.limit_concurrency
            if most is not None and len(self.connections) > most:
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
            self._head, self._stalled = _stop(self._head), _stop(self._stalled)
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self._stalled or self.loop.call_later(
                STALLED_SECONDS, self.transport.abort
            )

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stalled = _stop(self._stalled)

        def _watch_head(self) -> None:
            """One time for the whole head: a byte now and then does not make it longer."""
            if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
                self._head = _stop(self._head)
            elif self._head is None:
                self._head = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    return Bounded


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
