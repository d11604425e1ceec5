"""The HTTP guard of a server: who may send requests, from where, and how large they may be.

An ASGI application around another one. The inner application runs only if all of this holds:

* The `Host` of the request is one of ours. A web page whose own name was made to resolve to this
  machine (DNS rebinding) does not send it.
* A request with an `Origin` comes from a browser and is refused unless that origin was named; so is
  one that the browser marks as sent by another site (`Sec-Fetch-Site`).
* It carries a bearer token, except for paths that are open for reading; or, for people with
  browsers, what `sign_in.py` requires; or, inside another application, what that application's
  own sign-in says (`mounting.py`).
* Its body has, and declares, at most `max_body` bytes and is complete within `BODY_SECONDS`.

The application finds the sender in `scope["state"]["visitor"]`. All responses carry `HEADERS`: no
page runs scripts but ours, and none can be framed. Web sockets are refused.

Not protected: a token that others can read; anything sent unencrypted beyond this machine (put a
TLS proxy before the server).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen

BODY_SECONDS = 30.0
"""How long the body of a request may take."""
DISCARD_SECONDS = 30.0
DISCARD_IDLE = 1.0
"""How long the body of a refused request is read on, in all and while nothing arrives."""
MAX_BODY = 1024 * 1024
"""Default limit of a request's body, in bytes."""
MIN_TOKEN_LENGTH = 16
"""Shortest token, in characters."""
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src "
        b"'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    # Not `no-referrer`: forms of our own pages would then be sent with `Origin: null`.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
"""Headers of every response. The application cannot remove them; a content security policy of its
own is added, and both apply.
"""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


@frozen
class Principal:
    """Whom a token stands for. An operator may see what other users do."""

    user: str
    operator: bool = False
    tenant: str = "local"


OWNER = Principal("owner", operator=True)
"""Whom the token stands for on a server with a single token."""


@dataclass(slots=True)
class Visitor:
    """Who sent a request: `scope["state"]["visitor"]`.

    Attributes:
        user: The user.
        operator: Whether they may see what other users do.
        tenant: The tenant of the user.
        csrf: The token that their pages must send back to change anything; "" for programs.
        is_signed_out: Whether the person has signed out since.
        is_named: Whether they are a person that the server was told about, and not whoever has its
            only token.
    """

    user: str
    operator: bool
    tenant: str
    csrf: str = ""
    is_signed_out: bool = False
    is_named: bool = True


class SignIn(Protocol):
    """How people sign in with a browser; `sign_in.BrowserSignIn` implements it.

    `origins` are those of our own pages, in lower case; `paths` are the ones it serves itself;
    `refusal` says what a request lacks that is not from our own pages.
    """

    origins: frozenset[bytes]
    paths: tuple[str, ...]
    refusal: str

    async def serve(
        self, whose: Callable[[bytes], Principal | None], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Respond to a request to one of `paths`, from anybody."""
        ...

    async def identify(self, scope: Scope) -> Visitor | None:
        """Return who sent a request, by their cookie; None if nobody is signed in."""
        ...

    def is_from_our_page(self, visitor: Visitor | None, scope: Scope, body: bytes) -> bool:
        """Whether a request comes from our own pages or from a program, or changes nothing."""
        ...

    def wants_page(self, scope: Scope) -> bool:
        """Whether a request asks for a page to be shown in a browser."""
        ...

    async def redirect_to_sign_in(self, scope: Scope, send: Send) -> None:
        """Redirect to the page for signing in."""
        ...


class HttpGuard:
    """An ASGI application that lets only permitted requests through to `app`.

    Args:
        app: The application behind it.
        token: The only token, or whom each token stands for; None if `browsers` alone says who
            sends a request, whatever token it carries.
        hosts: What clients may send as `Host`, such as `127.0.0.1:8000`.
        origins: Origins of web pages that may send requests.
        open_paths: Paths that anybody may GET; one that ends in `/` includes all paths below it.
        max_body: Limit of a request's body, in bytes; or what returns it for a path.
        browsers: How people sign in with a browser, if they may.

    Raises:
        ConfigError: A token is too easy to guess.
    """

    def __init__(
        self,
        app: Application,
        *,
        token: str | Mapping[str, Principal] | None,
        hosts: Iterable[str],
        origins: Iterable[str] = (),
        open_paths: Iterable[str] = (),
        max_body: int | Callable[[str], int] = MAX_BODY,
        browsers: SignIn | None = None,
    ) -> None:
        if token is None and browsers is None:
            raise ConfigError("a server needs a token, or something that says who sends a request")
        tokens = {token: OWNER} if isinstance(token, str) else token or {}
        for one in tokens if tokens or token is None else ("",):
            _check_token(one)
        self._app = app
        self._takes_tokens = token is not None
        # By hash, so that the time of a look-up reveals nothing about a token.
        self._known = {_digest(one.encode()): who for one, who in tokens.items()}
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._origins = frozenset(origin.lower().encode() for origin in origins)
        self._reads = frozenset(open_paths)
        self._below = tuple(path for path in self._reads if path.endswith("/"))
        self._most = max_body
        self._browsers = browsers

    def find_principal(self, token: bytes) -> Principal | None:
        """Return whom a token stands for; None if it is unknown."""
        return self._known.get(_digest(token))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application if its target, its sender and its body are fine."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _add_headers(send)
        refusal = self._check_target(scope)
        if refusal is not None:
            await send_text(send, *refusal)
        elif self._browsers is not None and route_path(scope) in self._browsers.paths:
            await self._browsers.serve(self.find_principal, scope, receive, send)
        else:
            await self._authorize(scope, receive, send)

    async def _authorize(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the sender and the body, then pass the request on."""
        visitor = await self._identify(scope)
        if visitor is None and not self._is_open(scope):
            if self._browsers is not None and self._browsers.wants_page(scope):
                await self._browsers.redirect_to_sign_in(scope, send)
            else:
                await send_text(send, 401, self._explain_refusal())
            return
        scope.setdefault("state", {})["visitor"] = visitor
        most = self._most if isinstance(self._most, int) else self._most(scope["path"])
        body = await read_body(scope, receive, most)
        if isinstance(body, tuple):
            await send_text(send, *body)
        elif self._browsers is not None and not self._browsers.is_from_our_page(
            visitor, scope, body
        ):
            await send_text(send, 403, self._browsers.refusal)
        else:
            await self._app(scope, replay_body(body, receive), send)

    def _explain_refusal(self) -> str:
        return "a bearer token is required" if self._takes_tokens else "sign in first"

    async def _identify(self, scope: Scope) -> Visitor | None:
        """Return the sender by bearer token or cookie; a wrong token is not made up by a cookie."""
        given = header_values(scope, b"authorization") if self._takes_tokens else []
        if not given:
            return None if self._browsers is None else await self._browsers.identify(scope)
        scheme, _, token = given[0].partition(b" ")
        who = (
            self.find_principal(token) if len(given) == 1 and scheme.lower() == b"bearer" else None
        )
        if who is None:
            return None
        return Visitor(who.user, who.operator, who.tenant, is_named=who is not OWNER)

    def _is_open(self, scope: Scope) -> bool:
        """Whether anybody may send this request."""
        path = route_path(scope)
        is_below = path.startswith(self._below) and ".." not in path
        return scope["method"] in ("GET", "HEAD") and (path in self._reads or is_below)

    def _check_target(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and reason if a request is meant for, or sent by, another site."""
        hosts = header_values(scope, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, "this server does not serve the requested host"
        if header_values(scope, b"transfer-encoding") and header_values(scope, b"content-length"):
            # A proxy before us may have seen another end of the request than we do (request
            # smuggling, RFC 9112 §11.2).
            return 400, "both Transfer-Encoding and Content-Length are given"
        origins = [origin.lower() for origin in header_values(scope, b"origin")]
        allowed = (
            self._origins if self._browsers is None else self._origins | self._browsers.origins
        )
        if any(origin not in allowed for origin in origins):
            return 403, "requests from web pages are not accepted"
        sites = () if origins else header_values(scope, b"sec-fetch-site")
        if any(site not in (b"same-origin", b"none") for site in sites):
            return 403, "links from other sites are not followed; open the address yourself"
        return None


def route_path(scope: Scope) -> str:
    """Return the path of a request below the place where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    below = path.removeprefix(root) if root else path
    return below if below.startswith("/") else path


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """Return all values of a header, whose name is given in lower case."""
    headers: Headers = scope["headers"]
    return [value for one, value in headers if one == name]


def _check_token(token: str) -> None:
    if (
        len(token) < MIN_TOKEN_LENGTH
        or not token.isascii()
        or not token.isprintable()
        or " " in token
    ):
        raise ConfigError(
            f"a token is one line of {MIN_TOKEN_LENGTH} characters or more, none of them a space",
            hint="make one: `python -c 'import secrets; print(secrets.token_urlsafe(32))'`",
        )


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes | tuple[int, str]:
    """Read the body of a request. Return it, or a status and the reason why it is refused.

    A body that is declared to be too large is refused before anything of it is kept.
    """
    too_large = 413, f"the body has more than {most} bytes"
    if any(_read_length(one) > most for one in header_values(scope, b"content-length")):
        await _discard(receive)
        return too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return 400, "the body ended before it was complete"
                body += message.get("body", b"")
                if len(body) > most:
                    body.clear()
                    await _discard(receive)
                    return too_large
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        return 408, "the body did not arrive in time"


async def _discard(receive: Receive) -> None:
    """Read on for a moment while something arrives, and keep nothing.

    A client that sends all of its body before it reads would not see the answer: a connection that
    is closed with data unread is reset (RFC 9112 §9.6).
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while True:
                async with asyncio.timeout(DISCARD_IDLE):
                    message = await receive()
                if not message.get("more_body", False):
                    return


def _read_length(declared: bytes) -> int:
    """Return the length that a header declares; 0 for one that is no number, which is not ours."""
    # Digits alone, and few enough that a number of a thousand of them costs nothing.
    return int(declared[:20]) if declared.isdigit() else 0


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Make a `receive` that gives the body in one piece, then what follows (a disconnect)."""
    left = [body]

    async def read_again() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return read_again


def _add_headers(send: Send) -> Send:
    """Make a `send` that adds `HEADERS`, and `Cache-Control: no-store` unless there is another."""
    ours = {name for name, _ in HEADERS} - {b"content-security-policy"}

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            theirs = [(name.lower(), value) for name, value in message.get("headers", ())]
            kept = [(name, value) for name, value in theirs if name not in ours]
            if all(name != b"cache-control" for name, _ in kept):
                kept.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*kept, *HEADERS]}
        await send(message)

    return send_with_headers


async def send_text(
    send: Send, status: int, why: str, *, kind: bytes = b"text/plain", more: Iterable[Any] = ()
) -> None:
    """Respond with a text and close the connection.

    Args:
        send: Where to send the response.
        status: The HTTP status.
        why: The text.
        kind: Its content type.
        more: Further headers.
    """
    headers = [(b"content-type", kind + b"; charset=utf-8"), (b"connection", b"close"), *more]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": why.encode()})
