"""How a request says who asks: an entry of a file's `auth` section, and what it adds to a request.

    github: {kind: bearer, secret: "${GITHUB_TOKEN}"}
    maps:   {kind: api_key, query: key, secret: "${MAPS_KEY}"}
    shop:   {kind: api_key, header: X-Api-Key, secret: "${secret:shop}"}
    portal: {kind: cookie, cookie: sid, secret: "${PORTAL_SESSION}"}
    old:    {kind: basic, username: robot, secret: "${OLD_PASSWORD}"}

It is added last, by us: nothing that a template or a static header says can replace it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

from .secrets import Secrets

Kind = Literal["api_key", "bearer", "cookie", "basic"]
KINDS: tuple[Kind, ...] = ("api_key", "bearer", "cookie", "basic")


@dataclass(frozen=True, slots=True)
class Auth:
    """One entry. `secret` is the name of a reference; `header`, `query` or `cookie` is where it
    goes; `prefix` stands before it.
    """

    name: str
    kind: Kind
    secret: str
    header: str = ""
    query: str = ""
    cookie: str = ""
    username: str = ""
    prefix: str = ""

    @property
    def sets_header(self) -> str:
        """The header that it sets, in lower case; empty for a query parameter."""
        if self.kind in ("bearer", "basic"):
            return "authorization"
        return "cookie" if self.kind == "cookie" else self.header.lower()


@dataclass(frozen=True, slots=True)
class Applied:
    """What a request gets, and the values that must not come back. Holds secrets: neither shown nor
    kept.
    """

    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    query: tuple[str, ...] = ()
    cookies: tuple[tuple[str, str], ...] = ()
    values: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Applied(…)"


def apply(entries: Iterable[Auth], secrets: Secrets) -> Applied:
    """Look the secrets up. Raises ConfigError naming the reference that cannot be had."""
    headers: dict[str, str] = {}
    query: list[str] = []
    cookies: list[tuple[str, str]] = []
    values: list[str] = []
    for one in entries:
        value = secrets.look(one.secret)
        values.append(value)
        match one.kind:
            case "bearer":
                headers["Authorization"] = f"Bearer {value}"
            case "basic":
                pair = base64.b64encode(f"{one.username}:{value}".encode()).decode()
                values.append(pair)
                headers["Authorization"] = f"Basic {pair}"
            case "cookie":
                written = quote(value, safe="!#$&'()*+-./:<=>?@[]^_`{|}~%")
                values.append(written)
                cookies.append((one.cookie, written))
            case "api_key" if one.query:
                query.append(f"{quote(one.query, safe='')}={quote(value, safe='')}")
            case "api_key":
                headers[one.header] = one.prefix + value
    return Applied(headers, tuple(query), tuple(cookies), tuple(values))
