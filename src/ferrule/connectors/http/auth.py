"""How a request authenticates: an entry of a file's `auth` section, and what it adds to a request.

    github: {kind: bearer, secret: "${GITHUB_TOKEN}"}
    maps:   {kind: api_key, query: key, secret: "${MAPS_KEY}"}
    shop:   {kind: api_key, header: X-Api-Key, secret: "${secret:shop}"}
    portal: {kind: cookie, cookie: sid, secret: "${PORTAL_SESSION}"}
    old:    {kind: basic, username: robot, secret: "${OLD_PASSWORD}"}

It is added last, by us: no template and no static header can replace it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Literal
from urllib.parse import quote

from ferrule.core.value_class import frozen

from .secrets import Secrets

Kind = Literal["api_key", "bearer", "cookie", "basic"]
KINDS: tuple[Kind, ...] = ("api_key", "bearer", "cookie", "basic")


@frozen
class Auth:
    """One entry.

    `secret` is the name of a reference; `header`, `query` or `cookie` is where it goes; `prefix` is
    written before it.
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
        """The header that the entry sets, in lower case; empty for a query parameter."""
        if self.kind in ("bearer", "basic"):
            return "authorization"
        return "cookie" if self.kind == "cookie" else self.header.lower()


@frozen
class RequestAuth:
    """What a request gets, and the values that must not come back.

    Holds secrets, so it is never shown or stored.
    """

    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    query: tuple[str, ...] = ()
    cookies: tuple[tuple[str, str], ...] = ()
    secret_values: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Applied(…)"


def resolve_auth(entries: Iterable[Auth], secrets: Secrets) -> RequestAuth:
    """Look up the secrets of entries. Raises ConfigError naming a reference that has no value."""
    headers: dict[str, str] = {}
    query: list[str] = []
    cookies: list[tuple[str, str]] = []
    values: list[str] = []
    for entry in entries:
        value = secrets.look_up(entry.secret)
        values.append(value)
        match entry.kind:
            case "bearer":
                headers["Authorization"] = f"Bearer {value}"
            case "basic":
                credentials = base64.b64encode(f"{entry.username}:{value}".encode()).decode()
                values.append(credentials)
                headers["Authorization"] = f"Basic {credentials}"
            case "cookie":
                encoded = quote(value, safe="!#$&'()*+-./:<=>?@[]^_`{|}~%")
                values.append(encoded)
                cookies.append((entry.cookie, encoded))
            case "api_key" if entry.query:
                query.append(f"{quote(entry.query, safe='')}={quote(value, safe='')}")
            case "api_key":
                headers[entry.header] = entry.prefix + value
    return RequestAuth(headers, tuple(query), tuple(cookies), tuple(values))
