"""The door of a server: who may come in, from where, with how much.

An ASGI application around another one. Nothing inside runs before all of this holds:

* the `Host` of a request is one of ours: a page of the web that got its own name to lead here (DNS
  rebinding) does not have it;
* a request that says its `Origin` is from a browser, and refused unless that origin was named; so
  is one that a browser says (`Sec-Fetch-Site`) another site sent;
* a bearer token, except for paths that are open to read; or, where people come with browsers, what
  `sign_in.py` asks of them;
* a body of at most `most` bytes, and all of it there within `BODY_SECONDS`.

The application finds who came as `scope["state"]["visitor"]`. All answers carry `HEADERS`: whatever
is served runs no script but ours, in nobody's frame. Web sockets are refused.

Not protected: a token that others can read; what is sent in the clear beyond this machine (put TLS
before it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from ferrule.core.errors import ConfigError

BODY_SECONDS = 30.0
MOST = 1024 * 1024
LEAST_TOKEN = 16
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src "
        b"'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    # Not `no-referrer`: forms of our own pages would then come with `Origin: null`.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
"""On every answer; an application cannot take them away. A policy for content of its own stands
beside this one: both hold.
"""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Who:
    """Whom a token stands for. An operator may see what others do."""

    user: str
    operator: bool = False
    tenant: str = "local"


OWNER = Who("owner", operator=True)
"""Who comes with the one token of a server that knows no names."""


@dataclass(slots=True)
class Visitor:
    """Who sent a request: `scope["state"]["visitor"]`. `csrf` is what pages they are shown must
    send back to change anything, "" for programs; `over` once a person who signed in is out again.
    """

    user: str
    operator: bool
    tenant: str
    csrf: str = ""
    over: bool = False


class SignIn(Protocol):
    """How people come in who have a browser: `browsers.Browsers`. `origins` are those of our own
    pages, in lower case.
    """

    origins: frozenset[bytes]
    paths: tuple[str, ...]

    async def serve(
        self, whose: Callable[[bytes], Who | None], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request to one of `paths`, from anybody."""
        ...

    def visitor(self, scope: Scope) -> Visitor | None:
        """Who it is by what their browser keeps."""
        ...

    def ours(self, visitor: Visitor | None, scope: Scope, body: bytes) -> bool:
        """Whether a request comes from one of our pages, or from a program, or changes nothing."""
        ...

    def wants_page(self, scope: Scope) -> bool:
        """Whether somebody looks at this in a browser."""
        ...

    async def send_to_sign_in(self, scope: Scope, send: Send) -> None:
        """Show somebody the way in."""
        ...


class Door:
    """`app`, behind what this file says. `token` is the one there is, or whom each stands for.
    `hosts` are what clients write as `Host` (`127.0.0.1:8000`); `reads` are paths that GET opens to
    all, with all below them where they end in `/`. With `sign_in`, people may also sign in.

    Raises ConfigError for a token that can be guessed.
    """

    def __init__(
        self,
        app: Application,
        *,
        token: str | Mapping[str, Who],
        hosts: Iterable[str],
        origins: Iterable[str] = (),
        reads: Iterable[str] = (),
        most: int = MOST,
        browsers: SignIn | None = None,
    ) -> None:
        tokens = {token: OWNER} if isinstance(token, str) else token
        for one in tokens or ("",):
            _check(one)
        self._app = app
        # By hash: how long a look-up takes says nothing of a token.
        self._known = {_digest(one.encode()): who for one, who in tokens.items()}
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._origins = frozenset(origin.lower().encode() for origin in origins)
        self._reads = frozenset(reads)
        self._below = tuple(path for path in self._reads if path.endswith("/"))
        self._most = most
        self._browsers = browsers

    def whose(self, token: bytes) -> Who | None:
        """Whom a token stands for."""
        return self._known.get(_digest(token))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _guarded(send)
        elsewhere = self._elsewhere(scope)
        if elsewhere is not None:
            await say(send, *elsewhere)
        elif self._browsers is not None and scope["path"] in self._browsers.paths:
            await self._browsers.serve(self.whose, scope, receive, send)
        else:
            await self._enter(scope, receive, send)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor = self._visitor(scope)
        if visitor is None and not self._open(scope):
            if self._browsers is not None and self._browsers.wants_page(scope):
                await self._browsers.send_to_sign_in(scope, send)
            else:
                await say(send, 401, "this wants a bearer token")
            return
        scope.setdefault("state", {})["visitor"] = visitor
        body = await read(receive, self._most)
        if isinstance(body, tuple):
            await say(send, *body)
        elif self._browsers is not None and not self._browsers.ours(visitor, scope, body):
            await say(
                send, 403, "this wants the token of the page it comes from (`X-Ferrule-Csrf`)"
            )
        else:
            await self._app(scope, _again(body, receive), send)

    def _visitor(self, scope: Scope) -> Visitor | None:
        """Who it is, by bearer token or by cookie: one that is wrong is not made good by the
        other.
        """
        given = values(scope, b"authorization")
        if not given:
            return None if self._browsers is None else self._browsers.visitor(scope)
        scheme, _, token = given[0].partition(b" ")
        who = self.whose(token) if len(given) == 1 and scheme.lower() == b"bearer" else None
        return None if who is None else Visitor(who.user, who.operator, who.tenant)

    def _open(self, scope: Scope) -> bool:
        path: str = scope["path"]
        below = path.startswith(self._below) and ".." not in path
        return scope["method"] in ("GET", "HEAD") and (path in self._reads or below)

    def _elsewhere(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason if a request was meant for another place, or made by one."""
        hosts = values(scope, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, "this is not the host that was asked for"
        if values(scope, b"transfer-encoding") and values(scope, b"content-length"):
            # A proxy before us may have read another end of it than we do (request smuggling, RFC
            # 9112 §11.2).
            return 400, "it says in two ways where it ends"
        origins = [origin.lower() for origin in values(scope, b"origin")]
        allowed = (
            self._origins if self._browsers is None else self._origins | self._browsers.origins
        )
        if any(origin not in allowed for origin in origins):
            return 403, "requests of web pages are not taken"
        sites = () if origins else values(scope, b"sec-fetch-site")
        if any(site not in (b"same-origin", b"none") for site in sites):
            return 403, "links of web pages are not followed; open the address yourself"
        return None


def values(scope: Scope, name: bytes) -> list[bytes]:
    """All values of a header."""
    headers: Headers = scope["headers"]
    return [value for one, value in headers if one == name]


def _check(token: str) -> None:
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"a server's token needs {LEAST_TOKEN} characters or more, none of them a space",
            hint="make one: `python -c 'import secrets; print(secrets.token_urlsafe(32))'`",
        )


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()


async def read(receive: Receive, most: int) -> bytes | tuple[int, str]:
    """The body of a request, or status and reason why it is not taken."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return 400, "it ended before it was whole"
                body += message.get("body", b"")
                if len(body) > most:
                    return 413, f"more than {most} bytes"
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        return 408, "it did not come in time"


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, as one piece, and then whatever comes (that the client left)."""
    left = [body]

    async def read_again() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return read_again


def _guarded(send: Send) -> Send:
    """Answers with `HEADERS`, which are not kept by anybody on the way unless the application says
    so.
    """
    ours = {name for name, _ in HEADERS} - {b"content-security-policy"}

    async def send_guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            theirs = [(name.lower(), value) for name, value in message.get("headers", ())]
            kept = [(name, value) for name, value in theirs if name not in ours]
            if all(name != b"cache-control" for name, _ in kept):
                kept.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*kept, *HEADERS]}
        await send(message)

    return send_guarded


async def say(
    send: Send, status: int, why: str, *, kind: bytes = b"text/plain", more: Iterable[Any] = ()
) -> None:
    """Answer with a text, and end the connection."""
    headers = [(b"content-type", kind + b"; charset=utf-8"), (b"connection", b"close"), *more]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": why.encode()})
