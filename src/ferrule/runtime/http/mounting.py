"""Our HTTP applications inside another ASGI application, under that one's own sign-in.

The host application says who sends a request; the HTTP guard stays in front of ours, with the hosts
and origins of the host's address. What changes something must be sent by a page of ours with its
CSRF token (the console), or as JSON, which no other site's page can send without being asked first
(the endpoints for programs).

An application that is mounted is told nothing of the host's start and end (ASGI lifespan). So it is
opened and closed by the host: `FastAPI(lifespan=console.lifespan)`, or `async with console:` in a
lifespan of the host's own. Served directly, without a host, it takes the lifespan events itself.

Not protected: whoever the host's sign-in takes for somebody else is somebody else here, too. A
stream that is open already goes on after its reader has signed out of the host application.
"""

from __future__ import annotations

import hmac
import inspect
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.value_class import frozen
from ferrule.core.web_addresses import split_web_address

from .http_security import (
    MAX_BODY,
    Application,
    HttpGuard,
    Principal,
    Receive,
    Scope,
    Send,
    Visitor,
    header_values,
    send_text,
)
from .sign_in import CSRF_REFUSAL, has_csrf_token

Identify = Callable[[Any], Awaitable[Principal | None] | Principal | None]
"""Says who sends a request (`starlette.requests.Request`); None for nobody."""

_JSON = b"application/json"
_JSON_REFUSAL = "a request that changes something is sent as `Content-Type: application/json`"
_CLOSED = (
    "this application is not open: give its `lifespan` to the application that it is mounted in, "
    "or enter it with `async with` in that application's own lifespan"
)


@frozen
class HostAccess:
    """How a host application signs people in, and the addresses at which it is reached.

    Attributes:
        identify: Says who sends a request.
        hosts: What clients may send as `Host`.
        origins: What browsers send as `Origin` for pages of the host application.
        sign_in: Where people sign in, for pages that nobody may see otherwise; "" if nowhere.
    """

    identify: Identify
    hosts: frozenset[str]
    origins: frozenset[str]
    sign_in: str = ""

    @staticmethod
    def of_addresses(
        addresses: str | Iterable[str], identify: Identify, sign_in: str = ""
    ) -> HostAccess:
        """Return the access to an application that is reached at one of these addresses.

        Args:
            addresses: Such as `https://app.example.org`.
            identify: Says who sends a request.
            sign_in: Where people sign in.

        Raises:
            ConfigError: An address is not one.
        """
        hosts: set[str] = set()
        origins: set[str] = set()
        for one in [addresses] if isinstance(addresses, str) else addresses:
            parts = split_web_address(one)
            if parts is None or "@" in parts.netloc:
                raise ConfigError(
                    f"`{one}` is not the address of an application",
                    hint="write the scheme and the host, as in `https://app.example.org`",
                )
            hosts.add(parts.netloc)
            origins.add(f"{parts.scheme}://{parts.netloc}")
        if not hosts:
            raise ConfigError(
                "no address at which the application is reached",
                hint="name it, as in `https://app.example.org`",
            )
        return HostAccess(identify, frozenset(hosts), frozenset(origins), sign_in)

    def guard(
        self, app: Application, *, pages: bool = False, max_body: int = MAX_BODY
    ) -> HttpGuard:
        """Return the HTTP guard in front of an application.

        Args:
            app: The application.
            pages: Whether it has pages for people, with forms.
            max_body: Limit of a request's body, in bytes.
        """
        return HttpGuard(
            app,
            token=None,
            hosts=self.hosts,
            open_paths=["/static/"] if pages else (),
            max_body=max_body,
            browsers=_HostSignIn(self, pages=pages),
        )


class _HostSignIn:
    """The host application's sign-in, as the HTTP guard asks it (`http_security.SignIn`)."""

    paths: tuple[str, ...] = ()

    def __init__(self, access: HostAccess, *, pages: bool) -> None:
        self.origins = frozenset(origin.lower().encode() for origin in access.origins)
        self.refusal = CSRF_REFUSAL if pages else _JSON_REFUSAL
        self._access = access
        self._pages = pages
        self._key = secrets.token_bytes(32)

    async def serve(
        self, whose: Callable[[bytes], Principal | None], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve nothing: the host application has the pages for signing in."""
        raise AssertionError("there are no paths of ours to sign in at")

    async def identify(self, scope: Scope) -> Visitor | None:
        from starlette.requests import Request

        found = self._access.identify(Request(scope))
        if inspect.isawaitable(found):
            found = await found
        if found is None:
            return None
        _check_principal(found)
        return Visitor(found.user, found.operator, found.tenant, csrf=self._csrf_token(found))

    def is_from_our_page(self, visitor: Visitor | None, scope: Scope, body: bytes) -> bool:
        if self._pages:
            return has_csrf_token(visitor, scope, body)
        kinds = [kind.split(b";")[0].strip() for kind in header_values(scope, b"content-type")]
        return scope["method"] != "POST" or [kind.lower() for kind in kinds] == [_JSON]

    def wants_page(self, scope: Scope) -> bool:
        accepts_html = any(b"text/html" in value for value in header_values(scope, b"accept"))
        is_part = bool(header_values(scope, b"hx-request"))
        return bool(self._access.sign_in) and accepts_html and not is_part

    async def redirect_to_sign_in(self, scope: Scope, send: Send) -> None:
        location = quote(self._access.sign_in, safe="/:?&=%#[]@!$'()*+,;~")
        await send_text(send, 303, "sign in", more=[(b"location", location.encode())])

    def _csrf_token(self, who: Principal) -> str:
        whose = "\0".join((who.tenant, who.user)).encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, whose, sha256).hex()


def _check_principal(found: Any) -> None:
    """Refuse what cannot tell one person from another."""
    if not isinstance(found, Principal) or not found.user or not found.tenant:
        raise ConfigError(
            f"`identify` returned {type(found).__name__} without a user: expected a `Principal`, "
            "or None for nobody",
            hint="return `Principal(user)` with a name that no other person has",
        )


class MountableApp:
    """An ASGI application to mount in another one. It serves while it is open.

        console = create_console(Folder("."), address="https://app.example.org", identify=find_user)
        app = FastAPI(lifespan=console.lifespan)
        app.mount("/console", console)

    Args:
        opening: Makes the context in which the application serves.
    """

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[Application]]) -> None:
        self._opening = opening
        self._opened: AbstractAsyncContextManager[Application] | None = None
        self._app: Application | None = None

    async def __aenter__(self) -> MountableApp:
        if self._opened is not None:
            raise ConfigError("this application is open already", hint="open it once")
        opened = self._opening()
        self._app = await opened.__aenter__()
        self._opened = opened
        return self

    async def __aexit__(self, *error: Any) -> None:
        opened, self._opened, self._app = self._opened, None, None
        if opened is not None:
            await opened.__aexit__(*error)

    @asynccontextmanager
    async def lifespan(self, host: object) -> AsyncGenerator[None]:
        """Open it for as long as the host application runs (`FastAPI(lifespan=...)`)."""
        async with self:
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; without a host application, its lifespan too."""
        if scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
        elif self._app is None:
            # The text is for whoever puts the applications together, who is the first to see it.
            await _refuse_closed(scope, send)
        else:
            await self._app(scope, receive, send)

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.__aenter__()
        except FerruleError as error:
            # Raised, it would mean that this application has no lifespan events.
            await send({"type": "lifespan.startup.failed", "message": f"{error.detail}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})


async def _refuse_closed(scope: Scope, send: Send) -> None:
    if scope["type"] == "http":
        await send_text(send, 503, _CLOSED)
    else:
        await send({"type": "websocket.close", "code": 1013})
