"""The arguments of a call as the request that is sent. No I/O, no secrets: the sender adds these.

`build_url` returns what the gate decides on and a person is shown; `PreparedRequest.url` begins
with exactly that, and only the query of an auth entry comes after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ferrule.core.value_class import frozen

from . import bodies
from .auth import RequestAuth
from .parameters import Parameter, check_header_value
from .spec import Endpoint
from .templates import Template, TemplateError
from .url_templates import MAX_URL, check_filled_segment, encode_in_segment

FORBIDDEN_HEADERS = frozenset(
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


def is_settable(name: str) -> bool:
    """Return whether a file may set a header."""
    lower = name.lower()
    return lower not in FORBIDDEN_HEADERS and not lower.startswith(("proxy-", "x-forwarded-"))


@frozen
class PreparedRequest:
    """A request. `url` is all of it but the secrets; `cookies` are pairs."""

    method: str
    url: str
    headers: Mapping[str, str]
    cookies: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    def with_auth(self, auth: RequestAuth) -> PreparedRequest:
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
    def header_fields(self) -> dict[str, str]:
        """All headers that are sent, without those of the connection."""
        if not self.cookies:
            return dict(self.headers)
        return {
            **self.headers,
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies),
        }


def build_url(endpoint: Endpoint, arguments: Mapping[str, Any]) -> str:
    """Return the URL of a call, without secrets. Raises TemplateError."""
    address = endpoint.url
    path_parameters = {
        parameter.argument: parameter
        for parameter in endpoint.parameters
        if parameter.location == "path"
    }
    segments = (_segment(template, arguments, path_parameters) for template in address.path)
    query = address.query_pairs(arguments)
    for parameter in endpoint.parameters:
        value = arguments.get(parameter.argument)
        if parameter.location == "query" and value is not None:
            query += parameter.encode_query(value)
    url = _with_query(f"{address.origin(arguments)}/{'/'.join(segments)}", query)
    if len(url) > MAX_URL:
        raise TemplateError(f"the address would have {len(url)} characters, more than {MAX_URL}")
    return url


def prepare_request(endpoint: Endpoint, arguments: Mapping[str, Any]) -> PreparedRequest:
    """Return the request of a call. Raises TemplateError."""
    headers: dict[str, str] = {}
    cookies: list[tuple[str, str]] = []
    for name, template in endpoint.headers:
        text = template.fill(arguments, str)
        if text is not None:
            headers[name] = check_header_value(text, name)
    for parameter in endpoint.parameters:
        value = arguments.get(parameter.argument)
        if value is None:
            continue
        if parameter.location == "header":
            headers[parameter.name] = parameter.encode_header(value)
        elif parameter.location == "cookie":
            cookies += parameter.encode_cookies(value)
    body = None
    if endpoint.body is not None:
        body = endpoint.body.encode(arguments)
        has_content_type = any(name.lower() == _CONTENT_TYPE for name in headers)
        if body is not None and not has_content_type:
            headers["Content-Type"] = bodies.find_content_type(endpoint.body.kind, body)
    url = build_url(endpoint, arguments)
    return PreparedRequest(endpoint.method, url, headers, tuple(cookies), body)


def _segment(
    template: Template, arguments: Mapping[str, Any], path_parameters: Mapping[str, Parameter]
) -> str:
    if template.literal is not None:
        return template.literal
    hole = template.single_placeholder
    parameter = None if hole is None else path_parameters.get(hole.name)
    if hole is not None and parameter is not None:
        return check_filled_segment(parameter.encode_segment(hole.value(arguments)))
    text = template.fill(arguments, encode_in_segment)
    if text is None:
        raise TemplateError("a part of the path is missing")
    return check_filled_segment(text)


def _with_query(url: str, query: list[str] | tuple[str, ...]) -> str:
    if not query:
        return url
    separator = "&" if "?" in url else "?"
    return url + separator + "&".join(query)
