"""The arguments of a call as the request that is sent. No I/O, no secrets: the sender adds these.

`address_of` returns what the gate decides on and a person is shown; `Prepared.url` begins with
exactly that, and only the query of an auth entry comes after it.
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
"""Headers that no file may set.

The request or its auth section sets them, or they change who the server takes us for or what it
does.
"""
_CONTENT_TYPE = "content-type"


def settable(name: str) -> bool:
    """Return whether a file may set a header."""
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
        """Return the request with authentication, which replaces what is there already."""
        auth_headers = {name.lower() for name in auth.headers}
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in auth_headers
        }
        auth_cookies = {name for name, _ in auth.cookies}
        cookies = tuple(pair for pair in self.cookies if pair[0] not in auth_cookies) + auth.cookies
        return replace(
            self,
            url=_with_query(self.url, auth.query),
            headers={**headers, **auth.headers},
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
    """Return the URL of a call, without secrets. Raises Unfit."""
    address = endpoint.address
    path_parameters = {
        parameter.source: parameter
        for parameter in endpoint.parameters
        if parameter.place == "path"
    }
    segments = (_segment(template, arguments, path_parameters) for template in address.path)
    query = address.pairs(arguments)
    for parameter in endpoint.parameters:
        value = arguments.get(parameter.source)
        if parameter.place == "query" and value is not None:
            query += parameter.query(value)
    url = _with_query(f"{address.origin(arguments)}/{'/'.join(segments)}", query)
    if len(url) > LONGEST:
        raise Unfit(f"the address would have {len(url)} characters, more than {LONGEST}")
    return url


def prepare(endpoint: Endpoint, arguments: Mapping[str, Any]) -> Prepared:
    """Return the request of a call. Raises Unfit."""
    headers: dict[str, str] = {}
    cookies: list[tuple[str, str]] = []
    for name, template in endpoint.headers:
        text = template.fill(arguments, str)
        if text is not None:
            headers[name] = header_value(text, name)
    for parameter in endpoint.parameters:
        value = arguments.get(parameter.source)
        if value is None:
            continue
        if parameter.place == "header":
            headers[parameter.name] = parameter.header(value)
        elif parameter.place == "cookie":
            cookies += parameter.cookies(value)
    body = None
    if endpoint.body is not None:
        body = endpoint.body.encode(arguments)
        has_content_type = any(name.lower() == _CONTENT_TYPE for name in headers)
        if body is not None and not has_content_type:
            headers["Content-Type"] = bodies.KINDS[endpoint.body.kind]
    url = address_of(endpoint, arguments)
    return Prepared(endpoint.method, url, headers, tuple(cookies), body)


def _segment(
    template: Template, arguments: Mapping[str, Any], path_parameters: Mapping[str, Parameter]
) -> str:
    if template.literal is not None:
        return template.literal
    hole = template.only
    parameter = None if hole is None else path_parameters.get(hole.name)
    if hole is not None and parameter is not None:
        return whole_segment(parameter.segment(hole.value(arguments)))
    text = template.fill(arguments, within_segment)
    if text is None:
        raise Unfit("a part of the path is missing")
    return whole_segment(text)


def _with_query(url: str, query: list[str] | tuple[str, ...]) -> str:
    if not query:
        return url
    separator = "&" if "?" in url else "?"
    return url + separator + "&".join(query)
