"""Browsers at the door: a person signs in with a token, and a cookie stands for it from then on.

* `GET /login?token=…` and a form at `/login` sign in. The answer leads on to a page, so that the token does not stay in the address.
* The cookie is a random value of this process, never the token: HttpOnly (no script reads it) and SameSite=Strict (no other site's page
  can use it). It ends with `/logout`, after `SECONDS`, and with the process.
* What changes something (every method but GET and HEAD) must also carry a token that only our own pages know: in the header
  `X-Ferrule-Csrf`, or in the field `csrf` of a form.

Not protected: cookies know no ports. A server of somebody else under the same host name, on another port, is sent ours by a browser that
visits it. Links with a token stay in a browser's history: hand them out once, or type the token into the form.
"""

from __future__ import annotations

import html
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from .door import Receive, Scope, Send, Who, read, say, values

if TYPE_CHECKING:
    from .door import Door

LOGIN, LOGOUT = "/login", "/logout"
SECONDS = 12 * 3600.0
MOST_VISITS = 1024
_MOST_FORM = 4096
_FORM = b"application/x-www-form-urlencoded"
_SAFE = ("GET", "HEAD")

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sign in - Ferrule</title>{style}</head>
<body><main class="login"><h1>Ferrule</h1>{note}
<form method="post" action="/login"><input type="hidden" name="next" value="{next}">
<label>Token <input type="password" name="token" autocomplete="off" required autofocus></label>
<button>Sign in</button></form></main></body></html>
"""


@dataclass(slots=True)
class Visit:
    """Somebody signed in. `csrf` is what the pages they get must send back to change anything; `over` once they left."""

    who: Who
    csrf: str
    ends: float
    over: bool = False

    def allows(self, scope: Scope, body: bytes) -> bool:
        """Whether a request comes from one of our pages, or changes nothing."""
        if scope["method"] in _SAFE:
            return True
        given = [value.decode("latin-1") for value in values(scope, b"x-ferrule-csrf")]
        given = given or _form(scope, body).get("csrf", [])
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), self.csrf.encode())


class Browsers:
    """Who is signed in. `origins` are those of our own pages (`http://127.0.0.1:8000`); `home` is where signing in leads;
    `stylesheet` is a path that is open to read; with `secure` the cookie is sent over TLS only."""

    def __init__(
        self,
        origins: Iterable[str],
        *,
        home: str = "/",
        stylesheet: str = "",
        secure: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.origins = frozenset(origin.lower().encode() for origin in origins)
        self.paths = (LOGIN, LOGOUT)
        self._home = home
        self._style = f'<link rel="stylesheet" href="{html.escape(stylesheet)}">' if stylesheet else ""
        self._flags = "; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
        self._now = now
        self._visits: dict[bytes, Visit] = {}

    def visit(self, scope: Scope) -> Visit | None:
        """Who the cookie of a request says it is."""
        value = _cookie(scope)
        visit = self._visits.get(_digest(value))
        if visit is not None and visit.ends < self._now():
            self._end(value)
            return None
        return visit

    def wants_page(self, scope: Scope) -> bool:
        """Whether somebody looks at this in a browser."""
        return scope["method"] in _SAFE and any(b"text/html" in one for one in values(scope, b"accept"))

    async def send_to_sign_in(self, scope: Scope, send: Send) -> None:
        """Show somebody the way in, and back to where they wanted to."""
        wanted = scope["path"]
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = quote(f"{quote(wanted)}?{query}" if query else quote(wanted), safe="")
        await say(send, 303, "sign in", more=[(b"location", f"{LOGIN}?next={wanted}".encode())])

    async def serve(self, door: Door, scope: Scope, receive: Receive, send: Send) -> None:
        """`/login` and `/logout`, for anybody who came as far as the door."""
        body = await read(receive, _MOST_FORM)
        if isinstance(body, tuple):
            await say(send, *body)
        elif scope["path"] == LOGIN:
            await self._login(door, scope, body, send)
        else:
            await self._logout(scope, body, send)

    async def _login(self, door: Door, scope: Scope, body: bytes, send: Send) -> None:
        if scope["method"] not in (*_SAFE, "POST"):
            await say(send, 405, "sign in with GET or POST")
            return
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=8)
        fields = _form(scope, body) if scope["method"] == "POST" else query
        given, to = fields.get("token", [""])[0], _local(fields.get("next", [""])[0], self._home)
        who = door.whose(given.encode()) if given and scope["method"] != "HEAD" else None
        if who is None:
            note = "<p>This is not a token of this server.</p>" if given else ""
            page = _PAGE.format(style=self._style, note=note, next=html.escape(to))
            await say(send, 403 if given else 200, page, kind=b"text/html")
            return
        cookie = f"{_name(scope)}={self._begin(who)}{self._flags}"
        await say(send, 303, "signed in", more=[(b"location", to.encode()), (b"set-cookie", cookie.encode())])

    async def _logout(self, scope: Scope, body: bytes, send: Send) -> None:
        visit = self.visit(scope)
        if scope["method"] != "POST" or (visit is not None and not visit.allows(scope, body)):
            await say(send, 403, "sign out with the button of a page")
            return
        self._end(_cookie(scope))
        gone = f"{_name(scope)}={self._flags}; Max-Age=0"
        await say(
            send, 303, "signed out", more=[(b"location", LOGIN.encode()), (b"set-cookie", gone.encode())]
        )

    def _begin(self, who: Who) -> str:
        value = secrets.token_urlsafe(32)
        self._visits[_digest(value)] = Visit(who, secrets.token_urlsafe(32), self._now() + SECONDS)
        while len(self._visits) > MOST_VISITS:
            self._visits.pop(next(iter(self._visits))).over = True
        return value

    def _end(self, value: str) -> None:
        visit = self._visits.pop(_digest(value), None)
        if visit is not None:
            visit.over = True


def _digest(value: str) -> bytes:
    return sha256(value.encode()).digest()


def _name(scope: Scope) -> str:
    """The cookie's name. With the port in it, or two servers of one machine would take each other's place in a browser."""
    port = values(scope, b"host")[0].decode("latin-1").rpartition(":")[2]
    return f"ferrule-{port}" if port.isdigit() else "ferrule"


def _cookie(scope: Scope) -> str:
    """The cookie's value; "" if there is none, or more than one: then somebody else put another one there."""
    name, found = _name(scope), list[str]()
    for line in values(scope, b"cookie"):
        for pair in line.decode("latin-1").split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                found.append(value)
    return found[0] if len(found) == 1 else ""


def _form(scope: Scope, body: bytes) -> dict[str, list[str]]:
    kinds = values(scope, b"content-type")
    if len(kinds) != 1 or kinds[0].split(b";")[0].strip().lower() != _FORM:
        return {}
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        return {}


def _local(path: str, home: str) -> str:
    """Where to go on: a path of this server, never another one's address."""
    fine = path.startswith("/") and not path.startswith(("//", LOGIN)) and "\\" not in path
    return path if fine and path.isascii() and path.isprintable() and " " not in path else home
