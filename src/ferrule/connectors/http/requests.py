"""From the arguments of a call to the request that is sent. No I/O, no secrets: these are added by
whoever sends it.

`address_of` gives what the gate judges and a person is shown; `Prepared.url` begins with exactly
that, and only the query of an auth entry comes after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import bodies
from .auth import Applied
from .parameters import Parameter, header_value
from .spec import Endpoint
from .templates import Template, Unfit
from .url_templates import LONGEST, whole_segment, within_segment

NEVER = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "accept-encoding",
        "authorization",
        "cookie",
        "idempotency-key",
        "http2-settings",
        "via",
        "forwarded",
        "x-http-method-override",
        "x-http-method",
        "x-method-override",
    }
)
"""Headers that no file sets: the request itself does, or its auth section, or they change who the
server takes us for or what it does.
"""
_TYPE = "content-type"


def settable(name: str) -> bool:
    """Whether a file may set a header."""
    lower = name.lower()
    return lower not in NEVER and not lower.startswith(("proxy-", "x-forwarded-"))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request. `url` is all of it but the secrets; `cookies` are pairs."""

    method: str
    url: str
    headers: Mapping[str, str]
    cookies: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    def with_auth(self, auth: Applied) -> Prepared:
        """The same, saying who asks. What auth sets replaces what stands there already."""
        ours = {name.lower() for name in auth.headers}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ours}
        theirs = {name for name, _ in auth.cookies}
        cookies = tuple(pair for pair in self.cookies if pair[0] not in theirs) + auth.cookies
        return replace(
            self,
            url=_queried(self.url, auth.query),
            headers={**kept, **auth.headers},
            cookies=cookies,
        )

    @property
    def fields(self) -> dict[str, str]:
        """All headers that are sent, without those of the connection."""
        if not self.cookies:
            return dict(self.headers)
        return {
            **self.headers,
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies),
        }


def address_of(endpoint: Endpoint, arguments: Mapping[str, Any]) -> str:
    """The address of a call, without secrets. Raises Unfit."""
    address = endpoint.address
    styled = {one.source: one for one in endpoint.parameters if one.place == "path"}
    segments = (_segment(one, arguments, styled) for one in address.path)
    query = address.pairs(arguments)
    for one in endpoint.parameters:
        if one.place == "query" and (value := arguments.get(one.source)) is not None:
            query += one.query(value)
    url = _queried(f"{address.origin(arguments)}/{'/'.join(segments)}", query)
    if len(url) > LONGEST:
        raise Unfit(f"the address would have {len(url)} characters, more than {LONGEST}")
    return url


def prepare(endpoint: Endpoint, arguments: Mapping[str, Any]) -> Prepared:
    """The request of a call. Raises Unfit."""
    headers: dict[str, str] = {}
    cookies: list[tuple[str, str]] = []
    for name, template in endpoint.headers:
        text = template.fill(arguments, str)
        if text is not None:
            headers[name] = header_value(text, name)
    for one in endpoint.parameters:
        value = arguments.get(one.source)
        if value is None:
            continue
        if one.place == "header":
            headers[one.name] = one.header(value)
        elif one.place == "cookie":
            cookies += one.cookies(value)
    body = None if endpoint.body is None else endpoint.body.encode(arguments)
    if (
        body is not None
        and endpoint.body is not None
        and all(name.lower() != _TYPE for name in headers)
    ):
        headers["Content-Type"] = bodies.KINDS[endpoint.body.kind]
    return Prepared(endpoint.method, address_of(endpoint, arguments), headers, tuple(cookies), body)


def _segment(
    template: Template, arguments: Mapping[str, Any], styled: Mapping[str, Parameter]
) -> str:
    if template.literal is not None:
        return template.literal
    hole = template.only
    if hole is not None and (parameter := styled.get(hole.name)) is not None:
        return whole_segment(parameter.segment(hole.value(arguments)))
    text = template.fill(arguments, within_segment)
    if text is None:
        raise Unfit("a part of the path is missing")
    return whole_segment(text)


def _queried(url: str, query: list[str] | tuple[str, ...]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{'&'.join(query)}" if query else url
