"""The door of a server: who may come in, from where, with how much.

An ASGI application around another one. Nothing inside runs before all of this holds:

* the `Host` of a request is one of ours: a page of the web that got its own name to lead here (DNS rebinding) does not have it;
* a request that says its `Origin` is from a browser, and refused unless that origin was named;
* a bearer token, compared in constant time, except for paths that are open to read;
* a body of at most `most` bytes, and all of it there within `BODY_SECONDS`.

Not protected: a token that others can read; what is sent in the clear beyond this machine (put TLS before it).
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from ferrule.core.errors import ConfigError

BODY_SECONDS = 30.0
MOST = 1024 * 1024
LEAST_TOKEN = 16

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Door:
    """`app`, behind what this file says. `hosts` are what clients write as `Host` (`127.0.0.1:8000`); `reads` are paths that GET opens to all.

    Raises ConfigError for a token that can be guessed.
    """

    def __init__(
        self,
        app: Application,
        *,
        token: str,
        hosts: Iterable[str],
        origins: Iterable[str] = (),
        reads: Iterable[str] = (),
        most: int = MOST,
    ) -> None:
        if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(
                f"a server's token needs {LEAST_TOKEN} characters or more, none of them a space",
                hint="make one: `python -c 'import secrets; print(secrets.token_urlsafe(32))'`",
            )
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._origins = frozenset(origin.lower().encode() for origin in origins)
        self._reads = frozenset(reads)
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refused(scope)
        if refused is not None:
            await _say(send, *refused)
            return
        body = await self._body(receive)
        if isinstance(body, tuple):
            await _say(send, *body)
            return
        await self._app(scope, _again(body, receive), send)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason, or None."""
        headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 421, "this is not the host that was asked for"
        origins = [value.lower() for name, value in headers if name == b"origin"]
        if any(origin not in self._origins for origin in origins):
            return 403, "requests of web pages are not taken"
        if scope["method"] in ("GET", "HEAD") and scope["path"] in self._reads:
            return None
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1 or not hmac.compare_digest(given[0], self._expected):
            return 401, "this wants a bearer token"
        return None

    async def _body(self, receive: Receive) -> bytes | tuple[int, str]:
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return 400, "it ended before it was whole"
                    body += message.get("body", b"")
                    if len(body) > self._most:
                        return 413, f"more than {self._most} bytes"
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            return 408, "it did not come in time"


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, as one piece, and then whatever comes (that the client left)."""
    left = [body]

    async def read() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return read


async def _say(send: Send, status: int, why: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": why.encode()})
