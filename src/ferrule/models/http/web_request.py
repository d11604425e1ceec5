"""One request of a tool or a script over HTTP/1.1: how it is written, and what of it follows a
redirect. No I/O.

A redirect is a new request, and whoever sends it checks its host anew. Decided here, for all of
them:

* it never leads from https to http;
* to another origin go only headers that say how an answer should be (`HARMLESS`): of any other
  nobody knows whether it says who asks;
* a body goes along only within its own origin, where the server asks for the same request once more
  (307, 308). Another request with an effect is not followed, but for 303, whose answer is fetched
  by a GET.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin

from ferrule.core.frozen import frozen
from ferrule.sandbox.network.allowed_hosts import Unreadable

from .dialing import Target, parse_target
from .http1 import request_head
from .proxies import Proxy

REDIRECTS = 5
"""How often one request is led on."""
HARMLESS = frozenset({"accept", "accept-language", "content-type"})

_REDIRECTED = frozenset({301, 302, 303, 307, 308})
_SAME_AGAIN = frozenset({307, 308})
_READING = frozenset({"GET", "HEAD"})
_OF_BODIES = frozenset({"content-type", "content-encoding", "content-language"})


class NotFollowed(Exception):
    """A redirect that is not followed; says why. `target` is where it leads, if that can be read.

    `allowed` False: it may not be followed; True: it could, but what the request did so far is not
    known.
    """

    def __init__(self, why: str, target: Target | None, *, allowed: bool = False) -> None:
        super().__init__(why)
        self.target = target
        self.allowed = allowed


@frozen
class Following:
    """The next request. `with_body`: the body of the one before goes along. `same_origin`: so may
    credentials.
    """

    method: str
    url: str
    target: Target
    headers: Mapping[str, str]
    with_body: bool
    same_origin: bool


def follow(
    method: str, url: str, headers: Mapping[str, str], status: int, location: str
) -> Following | None:
    """Where an answer leads, or None if it is the last. `url` is what was asked. Raises
    NotFollowed.
    """
    if status not in _REDIRECTED or not location:
        return None
    before = parse_target(url)
    try:
        led = urljoin(url, location).partition("#")[0]
        target = parse_target(led)
    except (ValueError, Unreadable):
        raise NotFollowed("a redirect whose address cannot be read", None) from None
    if before.secure and not target.secure:
        raise NotFollowed(f"`{before.host}` redirects from https to http", target)
    same = before.origin == target.origin
    kept = {name: value for name, value in headers.items() if same or name.lower() in HARMLESS}
    if method in _READING:
        return Following(method, led, target, kept, same, same)
    if status == 303:
        plain = {name: value for name, value in kept.items() if name.lower() not in _OF_BODIES}
        return Following("GET", led, target, plain, False, same)
    if status in _SAME_AGAIN and same:
        return Following(method, led, target, kept, True, same)
    why = f"`{before.host}` redirects a {method} there, and what it did so far is not known"
    raise NotFollowed(why, target, allowed=True)


def write(
    method: str, target: Target, fields: Mapping[str, str], body: bytes | None, proxy: Proxy | None
) -> bytes:
    """The bytes of a request, for its host or for the proxy. Raises ValueError for what cannot
    stand in one.
    """
    place = target.path
    headers = dict(fields)
    if proxy is not None and not target.secure:
        place = target.url
        if proxy[2]:
            headers["Proxy-Authorization"] = proxy[2]
    length = None if body is None else len(body)
    if body is None and method not in _READING:
        length = 0
    return request_head(method, place, target.authority, headers, length) + (body or b"")
