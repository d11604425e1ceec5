"""An endpoint of ours: an application at an address behind the HTTP guard, and what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from socket import socket

from ferrule.engine.closed_by_with import ClosedByAsyncWith

from .http_security import Application, HttpGuard, Principal, Receive, Scope, Send, route_path
from .mounting import HostAccess
from .server import accepted_hosts, accepted_origins, public_address, serve

Access = str | Mapping[str, Principal] | HostAccess
"""What opens an endpoint: the only token, the user of each token, or how the application that it is
mounted in signs people in.
"""


class HttpEndpoint(ClosedByAsyncWith):
    """One application at one address.

    Args:
        app: The application behind the HTTP guard.
        access: What opens it.
        host: Where to listen. Anything but this machine needs an https `url`, because a token sent
            in the clear is no secret.
        port: Where to listen.
        url: How clients reach it, if not at `http://host:port` (for example a proxy with TLS).
        max_body: Limit of a request's body, in bytes.
        open_paths: Paths that anybody may GET.
        has_pages: Whether web pages of this address may send requests.

    Attributes:
        app: The ASGI application, for a server of your own.
        url: Its address, "" inside another application.

    Raises:
        ConfigError: The address or the token cannot be used.
    """

    def __init__(
        self,
        app: Application,
        access: Access,
        *,
        host: str,
        port: int,
        url: str,
        max_body: int,
        open_paths: Iterable[str] = (),
        has_pages: bool = False,
    ) -> None:
        self._host = host
        self._port = port
        if isinstance(access, HostAccess):
            self.url: str = ""
            self.app: Application = access.guard(app, max_body=max_body)
            return
        self.url = public_address(host, port, url)
        self.app = HttpGuard(
            app,
            token=access,
            hosts=accepted_hosts(host, port, url),
            origins=accepted_origins(host, port, url) if has_pages else (),
            open_paths=open_paths,
            max_body=max_body,
        )

    async def run(self, listening: socket | None = None) -> int:
        """Serve until the process is told to end, then end and journal all work.

        Args:
            listening: An open socket to use (see `runtime.http.server`).

        Returns:
            The exit code.
        """
        try:
            return await serve(self.app, self._host, self._port, listening=listening)
        finally:
            await self.close()

    async def close(self) -> None:
        """End all work. What the endpoint was given stays open for its owner."""


def find_route_problem(scope: Scope, routes: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the status and the reason why no route takes a request; None if one does.

    Args:
        scope: The request's.
        routes: The method of each path; a path that ends in `/` includes all paths below it.
    """
    path = route_path(scope)
    for route, method in routes.items():
        if path == route or (route.endswith("/") and path.startswith(route)):
            if scope["method"] == method:
                return None
            return 405, f"`{path[:200]}` does not support {scope['method']}"
    return 404, f"no `{path[:200]}` here"


async def send_json(
    send: Send, text: str | bytes, status: int = 200, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send JSON as a whole answer, with `more` headers."""
    body = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"application/json"), length, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def start_events(send: Send) -> None:
    """Begin an answer of server-sent events, which proxies must not hold back."""
    kind = (b"content-type", b"text/event-stream")
    headers = [kind, (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def send_part(send: Send, part: str | bytes, *, more: bool = True) -> None:
    """Send a part of an answer that was begun; the last one without `more`."""
    body = part if isinstance(part, bytes) else part.encode("utf-8", "replace")
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_events(
    parts: AsyncIterator[str] | AsyncIterator[bytes], receive: Receive, send: Send
) -> bool:
    """Send a stream of server-sent events until it ends or the client goes.

    Returns:
        Whether all of it was sent.
    """

    async def write() -> None:
        async for part in parts:
            await send_part(send, part)
        await send_part(send, b"", more=False)

    await start_events(send)
    writing = asyncio.ensure_future(write())
    leaving = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_complete = writing.done()
        for task in (writing, leaving):
            task.cancel()
        await asyncio.gather(writing, leaving, return_exceptions=True)
    if is_complete:
        writing.result()
    return is_complete
