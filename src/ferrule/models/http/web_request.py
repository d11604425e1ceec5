"""One request of a tool or a script over HTTP/1.1, and how it follows a redirect. No I/O.

A redirect is a new request, and whoever sends it checks its host again. These rules hold for all:

* A redirect never leads from https to http.
* Only headers that describe the wanted answer (`CROSS_ORIGIN_HEADERS`) go to another origin; any
  other header might identify the sender.
* A body is sent again only within its own origin, and only if the server asks for the same request
  (307, 308). Other requests with an effect are not followed, except for 303, whose answer is
  fetched by a GET.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin

from ferrule.core.value_class import frozen
from ferrule.sandbox.network.allowed_hosts import InvalidHost

from .dialing import Target, parse_target
from .http1 import encode_request_head
from .proxies import Proxy

MAX_REDIRECTS = 5
"""Most redirects that one request follows."""
CROSS_ORIGIN_HEADERS = frozenset({"accept", "accept-language", "content-type"})
"""Headers that may go to another origin."""

_REDIRECT_STATUS = frozenset({301, 302, 303, 307, 308})
_REPEATED_STATUS = frozenset({307, 308})
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_BODY_HEADERS = frozenset({"content-type", "content-encoding", "content-language"})


class RedirectRefused(Exception):
    """A redirect that is not followed, with the reason.

    `target` is where it leads, if that can be read. `allowed` is False if following is forbidden,
    True if it would be possible but the effect of the first request is unknown.
    """

    def __init__(self, reason: str, target: Target | None, *, allowed: bool = False) -> None:
        super().__init__(reason)
        self.target = target
        self.allowed = allowed


@frozen
class NextRequest:
    """The next request after a redirect.

    `with_body`: the body of the previous request is sent again. `same_origin`: so may be
    credentials.
    """

    method: str
    url: str
    target: Target
    headers: Mapping[str, str]
    with_body: bool
    same_origin: bool


def follow_redirect(
    method: str, url: str, headers: Mapping[str, str], status: int, location: str
) -> NextRequest | None:
    """Return the next request, or None if the answer is the last one.

    Args:
        method: Method of the request that was answered.
        url: Its URL.
        headers: Its headers.
        status: Status of the answer.
        location: The answer's `Location` header.

    Raises:
        RedirectRefused: The redirect must not or cannot be followed.
    """
    if status not in _REDIRECT_STATUS or not location:
        return None
    before = parse_target(url)
    try:
        next_url = urljoin(url, location).partition("#")[0]
        target = parse_target(next_url)
    except (ValueError, InvalidHost):
        raise RedirectRefused("a redirect whose address cannot be read", None) from None
    if before.secure and not target.secure:
        raise RedirectRefused(f"`{before.host}` redirects from https to http", target)
    same = before.origin == target.origin
    kept = {
        name: value
        for name, value in headers.items()
        if same or name.lower() in CROSS_ORIGIN_HEADERS
    }
    if method in _SAFE_METHODS:
        return NextRequest(method, next_url, target, kept, same, same)
    if status == 303:
        plain = {name: value for name, value in kept.items() if name.lower() not in _BODY_HEADERS}
        return NextRequest("GET", next_url, target, plain, False, same)
    if status in _REPEATED_STATUS and same:
        return NextRequest(method, next_url, target, kept, True, same)
    reason = f"`{before.host}` redirects a {method} there, and what it did so far is not known"
    raise RedirectRefused(reason, target, allowed=True)


def encode_request(
    method: str, target: Target, fields: Mapping[str, str], body: bytes | None, proxy: Proxy | None
) -> bytes:
    """Return the bytes of a request, for its host or for the proxy.

    Raises:
        ValueError: The request has characters that cannot be sent.
    """
    request_target = target.path
    headers = dict(fields)
    if proxy is not None and not target.secure:
        request_target = target.url
        if proxy.credentials:
            headers["Proxy-Authorization"] = proxy.credentials
    length = None if body is None else len(body)
    if body is None and method not in _SAFE_METHODS:
        length = 0
    head = encode_request_head(method, request_target, target.authority, headers, length)
    return head + (body or b"")
