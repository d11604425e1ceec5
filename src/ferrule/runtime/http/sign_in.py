"""Signing in with a browser: a person gives a token once, and a cookie stands for it afterwards.

* `GET /login?token=…` and a form at `/login` sign in. The response redirects to a page, so that the
  token does not stay in the address.
* The cookie is never the token. It is HttpOnly (no script can read it) and SameSite=Strict (no
  other site's page can use it). It ends with `/logout` and after `SECONDS`. It is a random value
  that ends with this process; for tokens in `people` it is one that the next process with the same
  tokens recognises (`cookies`), so that a browser stays signed in after a restart.
* A request that changes something (every method but GET and HEAD) must also carry a CSRF token that
  only our own pages know: in the header `X-Ferrule-Csrf`, or in the field `csrf` of a form.

Not protected: cookies ignore ports. A browser sends ours to somebody else's server under the same
host name on another port. Links with a token stay in the browser's history: use them once, or type
the token into the form.
"""

from __future__ import annotations

import hmac
import html
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from urllib.parse import parse_qs, quote

from .http_security import (
    Principal,
    Receive,
    Scope,
    Send,
    Visitor,
    header_values,
    read_body,
    send_text,
)

LOGIN, LOGOUT = "/login", "/logout"
VISIT_SECONDS = 12 * 3600.0
"""How long a person stays signed in."""
MAX_VISITS = 1024
"""Most people signed in at once; a new one signs out the oldest."""
CSRF_REFUSAL = "the page's CSRF token is required (`X-Ferrule-Csrf`)"
_MOST_FORM = 4096
"""Largest form, in bytes."""
_FORM = b"application/x-www-form-urlencoded"
_SAFE = ("GET", "HEAD")

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sign in - Ferrule</title></head>
<body><main><h1>Ferrule</h1><p>{note}</p>
<form method="post" action="/login"><input type="hidden" name="next" value="{next}">
<label>Token <input type="password" name="token" autocomplete="off" required autofocus></label>
<button>Sign in</button></form></main></body></html>
"""


def render_plain_page(note: str, to: str) -> str:
    """Make the page with the form, which posts `token` and `next` to `/login`.

    Args:
        note: A sentence for the person.
        to: The path to go to after signing in.
    """
    return _PAGE.format(note=html.escape(note), next=html.escape(to))


class BrowserSignIn:
    """The people who are signed in with a browser.

    Args:
        origins: The origins of our own pages, such as `http://127.0.0.1:8000`.
        home: The path to go to after signing in.
        page: Makes the page with the form, like `render_plain_page`.
        secure: Send the cookie over TLS only.
        people: Whom each token stands for whose cookies outlive the process.
        now: A clock, in seconds since 1970.
    """

    def __init__(
        self,
        origins: Iterable[str],
        *,
        home: str = "/",
        page: Callable[[str, str], str] = render_plain_page,
        secure: bool = False,
        people: Mapping[str, Principal] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.origins = frozenset(origin.lower().encode() for origin in origins)
        self.paths: tuple[str, ...] = (LOGIN, LOGOUT)
        self.refusal = CSRF_REFUSAL
        self._people = people or {}
        self._signed_out: dict[bytes, float] = {}
        self._home = home
        self._page = page
        self._flags = "; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
        self._now = now
        self._visits: dict[bytes, tuple[Visitor, float]] = {}

    def find_visitor(self, scope: Scope) -> Visitor | None:
        """Return who sent a request, by their cookie; None if nobody is signed in."""
        value = _cookie(scope)
        visitor, ends = self._visits.get(_digest(value), (None, 0.0))
        if visitor is not None and ends < self._now():
            self._end(value)
            return None
        return visitor or self._recognise(value)

    async def identify(self, scope: Scope) -> Visitor | None:
        return self.find_visitor(scope)

    def _recognise(self, value: str) -> Visitor | None:
        """Return somebody who signed in before the server was restarted."""
        found = read_cookie(value, self._people, self._now()) if self._people else None
        if found is None or _digest(value) in self._signed_out:
            return None
        self._keep(value, *found)
        return found[0]

    def is_from_our_page(self, visitor: Visitor | None, scope: Scope, body: bytes) -> bool:
        """Whether a request comes from our own pages or from a program, or changes nothing."""
        return has_csrf_token(visitor, scope, body)

    def wants_page(self, scope: Scope) -> bool:
        """Whether a request asks for a page to be shown in a browser.

        Not one of htmx, which would put the form into the current page.
        """
        accepts_html = any(b"text/html" in value for value in header_values(scope, b"accept"))
        return scope["method"] in _SAFE and accepts_html and not header_values(scope, b"hx-request")

    async def redirect_to_sign_in(self, scope: Scope, send: Send) -> None:
        """Redirect to the page for signing in, and from there to the requested page."""
        query = scope["query_string"].decode("latin-1")
        target = quote(scope["path"])
        if query:
            target += f"?{query}"
        location = f"{LOGIN}?next={quote(target, safe='')}"
        await send_text(send, 303, "sign in", more=[(b"location", location.encode())])

    async def serve(
        self, whose: Callable[[bytes], Principal | None], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Respond to `/login` and `/logout`, for anybody."""
        body = await read_body(scope, receive, _MOST_FORM)
        if isinstance(body, tuple):
            await send_text(send, *body)
        elif scope["path"] == LOGIN:
            await self._login(whose, scope, body, send)
        else:
            await self._logout(scope, body, send)

    async def _login(
        self, whose: Callable[[bytes], Principal | None], scope: Scope, body: bytes, send: Send
    ) -> None:
        if scope["method"] not in (*_SAFE, "POST"):
            await send_text(send, 405, "sign in with GET or POST")
            return
        fields = _form(scope, body) if scope["method"] == "POST" else _fields(scope["query_string"])
        token = fields.get("token", [""])[0]
        to = _local_path(fields.get("next", [""])[0], self._home)
        who = whose(token.encode()) if token and scope["method"] != "HEAD" else None
        if who is None:
            note = "Enter the token of this server."
            if token:
                note = "This is not a token of this server."
            await send_text(send, 403 if token else 200, self._page(note, to), kind=b"text/html")
            return
        self._end(_cookie(scope))
        cookie = f"{_cookie_name(scope)}={self._begin(who, token)}{self._flags}"
        await send_text(
            send,
            303,
            "signed in",
            more=[(b"location", to.encode()), (b"set-cookie", cookie.encode())],
        )

    async def _logout(self, scope: Scope, body: bytes, send: Send) -> None:
        if scope["method"] != "POST" or not self.is_from_our_page(
            self.find_visitor(scope), scope, body
        ):
            await send_text(send, 403, "sign out with the button of a page")
            return
        self._end(_cookie(scope))
        cookie = f"{_cookie_name(scope)}={self._flags}; Max-Age=0"
        await send_text(
            send,
            303,
            "signed out",
            more=[(b"location", LOGIN.encode()), (b"set-cookie", cookie.encode())],
        )

    def _begin(self, who: Principal, token: str) -> str:
        ends = self._now() + VISIT_SECONDS
        if token in self._people:
            value, visitor = make_cookie(token, who, int(ends))
        else:
            value = secrets.token_urlsafe(32)
            visitor = Visitor(who.user, who.operator, who.tenant, csrf=secrets.token_urlsafe(32))
        self._keep(value, visitor, ends)
        return value

    def _keep(self, value: str, visitor: Visitor, ends: float) -> None:
        self._visits[_digest(value)] = (visitor, ends)
        while len(self._visits) > MAX_VISITS:
            self._visits.pop(next(iter(self._visits)))[0].is_signed_out = True

    def _end(self, value: str) -> None:
        visitor, ends = self._visits.pop(_digest(value), (None, 0.0))
        if visitor is not None:
            visitor.is_signed_out = True
            now = self._now()
            self._signed_out = {
                digest: until for digest, until in self._signed_out.items() if until > now
            }
            self._signed_out[_digest(value)] = ends


def has_csrf_token(visitor: Visitor | None, scope: Scope, body: bytes) -> bool:
    """Whether a request changes nothing, is from a program, or carries its sender's CSRF token."""
    if visitor is None or not visitor.csrf or scope["method"] in _SAFE:
        return True
    given = [value.decode("latin-1") for value in header_values(scope, b"x-ferrule-csrf")]
    given = given or _form(scope, body).get("csrf", [])
    return len(given) == 1 and hmac.compare_digest(given[0].encode(), visitor.csrf.encode())


def _digest(value: str) -> bytes:
    return sha256(value.encode()).digest()


def _cookie_name(scope: Scope) -> str:
    """Return the cookie's name. It has the port in it, so that two servers here do not collide."""
    port = header_values(scope, b"host")[0].decode("latin-1").rpartition(":")[2]
    return f"ferrule-{port}" if port.isdigit() else "ferrule"


def _cookie(scope: Scope) -> str:
    """Return the cookie's value; "" if there is none, or several, since somebody planted one."""
    name = _cookie_name(scope)
    found: list[str] = []
    for line in header_values(scope, b"cookie"):
        for pair in line.decode("latin-1").split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                found.append(value)
    return found[0] if len(found) == 1 else ""


def _form(scope: Scope, body: bytes) -> dict[str, list[str]]:
    kinds = header_values(scope, b"content-type")
    if len(kinds) != 1 or kinds[0].split(b";")[0].strip().lower() != _FORM:
        return {}
    return _fields(body)


def _fields(encoded: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(encoded.decode(), keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        return {}


def _local_path(path: str, home: str) -> str:
    """Return `path` if it is one of this server, else `home`: never an address of another site."""
    is_local = path.startswith("/") and not path.startswith(("//", LOGIN)) and "\\" not in path
    is_plain = path.isascii() and path.isprintable() and " " not in path
    return path if is_local and is_plain else home


_MAX_LENGTH = 200
"""Longest cookie, in characters."""


def make_cookie(token: str, who: Principal, ends: int) -> tuple[str, Visitor]:
    """Make a cookie for a token, and the visitor it stands for.

    Args:
        token: The token.
        who: Whom the token stands for.
        ends: When the cookie ends, in seconds since 1970.
    """
    content = f"{ends}.{secrets.token_urlsafe(18)}"
    return f"{content}.{_prove(token, content)}", _make_visitor(token, who, content)


def read_cookie(
    cookie: str, people: Mapping[str, Principal], now: float
) -> tuple[Visitor, int] | None:
    """Return the visitor a cookie stands for, and when it ends; None if it is invalid or expired.

    Args:
        cookie: The cookie's value.
        people: Whom each token stands for.
        now: The time, in seconds since 1970.
    """
    content, _, proof = cookie.rpartition(".")
    ends = content.partition(".")[0]
    if len(cookie) > _MAX_LENGTH or not cookie.isascii():
        return None
    if not ends.isdigit() or int(ends) <= now:
        return None
    found: tuple[Visitor, int] | None = None
    # Compare with all tokens, so that the time it takes does not reveal whose cookie it is.
    for token, who in people.items():
        if hmac.compare_digest(proof.encode(), _prove(token, content).encode()):
            found = _make_visitor(token, who, content), int(ends)
    return found


def _make_visitor(token: str, who: Principal, content: str) -> Visitor:
    return Visitor(who.user, who.operator, who.tenant, csrf=_prove(token, f"csrf {content}"))


def _prove(token: str, content: str) -> str:
    key = hmac.digest(token.encode(), b"ferrule visit", sha256)
    return urlsafe_b64encode(hmac.digest(key, content.encode(), sha256)).rstrip(b"=").decode()
