"""Browsers at the door: a person signs in with a token, and a cookie stands for it from then on.

* `GET /login?token=…` and a form at `/login` sign in. The answer leads on to a page, so that the
  token does not stay in the address.
* The cookie is never the token: HttpOnly (no script reads it) and SameSite=Strict (no other site's
  page can use it). It ends with `/logout` and after `SECONDS`. It is a random value of this process
  and ends with it; where the tokens are known (`people`) it is one that the next process with the
  same tokens knows again (`cookies`), so that a browser goes on after a restart.
* What changes something (every method but GET and HEAD) must also carry a token that only our own
  pages know: in the header `X-Ferrule-Csrf`, or in the field `csrf` of a form.

Not protected: cookies know no ports. A server of somebody else under the same host name, on another
port, is sent ours by a browser that visits it. Links with a token stay in a browser's history: hand
them out once, or type the token into the form.
"""

from __future__ import annotations

import hmac
import html
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from urllib.parse import parse_qs, quote

from .cookies import known, made
from .http_security import Receive, Scope, Send, Visitor, Who, read, say, values

LOGIN, LOGOUT = "/login", "/logout"
SECONDS = 12 * 3600.0
MOST_VISITS = 1024
_MOST_FORM = 4096
_FORM = b"application/x-www-form-urlencoded"
_SAFE = ("GET", "HEAD")

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sign in - Ferrule</title></head>
<body><main><h1>Ferrule</h1><p>{note}</p>
<form method="post" action="/login"><input type="hidden" name="next" value="{next}">
<label>Token <input type="password" name="token" autocomplete="off" required autofocus></label>
<button>Sign in</button></form></main></body></html>
"""


def plain_page(note: str, to: str) -> str:
    """The form, with a word to whoever sees it and where to go on afterwards. Posts `token` and
    `next` to `/login`.
    """
    return _PAGE.format(note=html.escape(note), next=html.escape(to))


class Browsers:
    """Who is signed in. `origins` are those of our own pages (`http://127.0.0.1:8000`); `home` is
    where signing in leads; `page` makes the form, as `plain_page`; with `secure` the cookie is sent
    over TLS only. `people` are those by token whose visits outlive the process.
    """

    def __init__(
        self,
        origins: Iterable[str],
        *,
        home: str = "/",
        page: Callable[[str, str], str] = plain_page,
        secure: bool = False,
        people: Mapping[str, Who] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.origins = frozenset(origin.lower().encode() for origin in origins)
        self.paths: tuple[str, ...] = (LOGIN, LOGOUT)
        self._people = people or {}
        self._signed_out: dict[bytes, float] = {}
        self._home = home
        self._page = page
        self._flags = "; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
        self._now = now
        self._visits: dict[bytes, tuple[Visitor, float]] = {}

    def visitor(self, scope: Scope) -> Visitor | None:
        """Who the cookie of a request says it is."""
        value = _cookie(scope)
        visitor, ends = self._visits.get(_digest(value), (None, 0.0))
        if visitor is not None and ends < self._now():
            self._end(value)
            return None
        return visitor or self._again(value)

    def _again(self, value: str) -> Visitor | None:
        """Somebody who signed in before the server was started again."""
        found = known(value, self._people, self._now()) if self._people else None
        if found is None or _digest(value) in self._signed_out:
            return None
        self._keep(value, *found)
        return found[0]

    def ours(self, visitor: Visitor | None, scope: Scope, body: bytes) -> bool:
        """Whether a request comes from one of our pages, or from a program, or changes nothing."""
        if visitor is None or not visitor.csrf or scope["method"] in _SAFE:
            return True
        given = [value.decode("latin-1") for value in values(scope, b"x-ferrule-csrf")]
        given = given or _form(scope, body).get("csrf", [])
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), visitor.csrf.encode())

    def wants_page(self, scope: Scope) -> bool:
        """Whether somebody looks at this in a browser; not a script that would put the form into
        its page (htmx).
        """
        html_wanted = any(b"text/html" in one for one in values(scope, b"accept"))
        return scope["method"] in _SAFE and html_wanted and not values(scope, b"hx-request")

    async def send_to_sign_in(self, scope: Scope, send: Send) -> None:
        """Show somebody the way in, and back to where they wanted to."""
        query = scope["query_string"].decode("latin-1")
        wanted = quote(quote(scope["path"]) + (f"?{query}" if query else ""), safe="")
        await say(send, 303, "sign in", more=[(b"location", f"{LOGIN}?next={wanted}".encode())])

    async def serve(
        self, whose: Callable[[bytes], Who | None], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`/login` and `/logout`, for anybody who came as far as the door."""
        body = await read(receive, _MOST_FORM)
        if isinstance(body, tuple):
            await say(send, *body)
        elif scope["path"] == LOGIN:
            await self._login(whose, scope, body, send)
        else:
            await self._logout(scope, body, send)

    async def _login(
        self, whose: Callable[[bytes], Who | None], scope: Scope, body: bytes, send: Send
    ) -> None:
        if scope["method"] not in (*_SAFE, "POST"):
            await say(send, 405, "sign in with GET or POST")
            return
        fields = _form(scope, body) if scope["method"] == "POST" else _fields(scope["query_string"])
        given, to = fields.get("token", [""])[0], _local(fields.get("next", [""])[0], self._home)
        who = whose(given.encode()) if given and scope["method"] != "HEAD" else None
        if who is None:
            note = (
                "This is not a token of this server." if given else "This server wants its token."
            )
            await say(send, 403 if given else 200, self._page(note, to), kind=b"text/html")
            return
        self._end(_cookie(scope))
        cookie = f"{_name(scope)}={self._begin(who, given)}{self._flags}"
        await say(
            send,
            303,
            "signed in",
            more=[(b"location", to.encode()), (b"set-cookie", cookie.encode())],
        )

    async def _logout(self, scope: Scope, body: bytes, send: Send) -> None:
        if scope["method"] != "POST" or not self.ours(self.visitor(scope), scope, body):
            await say(send, 403, "sign out with the button of a page")
            return
        self._end(_cookie(scope))
        gone = f"{_name(scope)}={self._flags}; Max-Age=0"
        await say(
            send,
            303,
            "signed out",
            more=[(b"location", LOGIN.encode()), (b"set-cookie", gone.encode())],
        )

    def _begin(self, who: Who, token: str) -> str:
        ends = self._now() + SECONDS
        if token in self._people:
            value, visitor = made(token, who, int(ends))
        else:
            value = secrets.token_urlsafe(32)
            visitor = Visitor(who.user, who.operator, who.tenant, csrf=secrets.token_urlsafe(32))
        self._keep(value, visitor, ends)
        return value

    def _keep(self, value: str, visitor: Visitor, ends: float) -> None:
        self._visits[_digest(value)] = (visitor, ends)
        while len(self._visits) > MOST_VISITS:
            self._visits.pop(next(iter(self._visits)))[0].over = True

    def _end(self, value: str) -> None:
        visitor, ends = self._visits.pop(_digest(value), (None, 0.0))
        if visitor is not None:
            visitor.over = True
            now = self._now()
            self._signed_out = {
                gone: until for gone, until in self._signed_out.items() if until > now
            }
            self._signed_out[_digest(value)] = ends


def _digest(value: str) -> bytes:
    return sha256(value.encode()).digest()


def _name(scope: Scope) -> str:
    """The cookie's name. With the port in it, or two servers of one machine would take each other's
    place in a browser.
    """
    port = values(scope, b"host")[0].decode("latin-1").rpartition(":")[2]
    return f"ferrule-{port}" if port.isdigit() else "ferrule"


def _cookie(scope: Scope) -> str:
    """The cookie's value; "" if there is none, or more than one: then somebody else put another one
    there.
    """
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
    return _fields(body)


def _fields(encoded: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(encoded.decode(), keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        return {}


def _local(path: str, home: str) -> str:
    """Where to go on: a path of this server, never another one's address."""
    fine = path.startswith("/") and not path.startswith(("//", LOGIN)) and "\\" not in path
    return path if fine and path.isascii() and path.isprintable() and " " not in path else home
