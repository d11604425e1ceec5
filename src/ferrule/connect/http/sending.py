"""One request over HTTP/1.1: every hop is checked, and what was checked is what is connected to.

* A host is resolved once, after it was allowed, and what was checked is what is connected to (`models.dialing`).
* A redirect is a new request with the same checks, `REDIRECTS` of them at the most. It never leads from https to http; to another
  origin no credentials go along, neither in headers nor within the address that the server made up. A request with an effect
  follows only 307 and 308 within its own origin, and 303 with a GET: anything else would repeat or lose what it did.
* An answer is bounded (`receiving.py`).
* Connections are not kept: nothing of one call can end up in another.

The time of a call is bounded by the shell around it; here only connecting has a bound of its own. A proxy of the person's environment is used
as for models; it resolves names itself, so addresses of *named* hosts are then not checked here.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from urllib.parse import urljoin

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.guard.sandbox.hosts import Unreadable
from ferrule.guard.sandbox.reaching import resolve
from ferrule.models.dialing import Closed, Dialer, Target, parse_target
from ferrule.models.http1 import MalformedResponse, request_head
from ferrule.models.proxies import proxy_for

from .auth import Applied
from .hosts import Reachable
from .receiving import Answer, receive
from .requests import Prepared
from .secrets import Redactor

REDIRECTS = 5
CONNECT_SECONDS = 10.0
_REDIRECTED = (301, 302, 303, 307, 308)
_USUAL = {"User-Agent": "ferrule", "Accept": "application/json, */*;q=0.5"}

Refused = Callable[[str], str]
"""Why an address that a redirect names may not follow; empty if it may."""


def nobody(url: str) -> str:
    """A `Refused` that has no objections."""
    return ""


class Broke(Exception):
    """No answer. `sent`: some of the request had left, so nobody knows what the server did with it. `again`: the next attempt may work."""

    def __init__(self, why: str, *, sent: bool, again: bool = True) -> None:
        super().__init__(why)
        self.sent = sent
        self.again = again


@cache
def usual_tls() -> ssl.SSLContext:
    """The system's authorities, or those of SSL_CERT_FILE. Made once: reading them takes longer than most requests."""
    return ssl.create_default_context()


@dataclass(frozen=True, slots=True)
class Sender:
    """How requests are sent. `lookup` resolves a host, `tls` makes the context, `environment` names proxies: tests pass their own."""

    reachable: Reachable
    lookup: Callable[[str], Awaitable[Sequence[str]]] = resolve
    tls: Callable[[], ssl.SSLContext] = usual_tls
    environment: Mapping[str, str] | None = None

    async def send(
        self, request: Prepared, auth: Applied, max_bytes: int, refused: Refused = nobody
    ) -> Answer:
        """Ask, and follow where it leads; `refused` says why an address may not follow, if it may not.

        Raises Broke, and ToolFailed for what may not be reached or is out of bounds.
        """
        redactor = Redactor(auth.values)
        credentials: Applied | None = auth
        first = request.method
        for _ in range(REDIRECTS + 1):
            target = target_of(request.url)
            answer = await self._once(request, target, credentials, max_bytes)
            following = _redirected(request, answer, first)
            if following is None:
                return replace(answer, url=redactor.text(answer.url))
            further = target_of(following.url)
            if further.host != target.host and (why := refused(following.url)):
                raise _denied(further, why)
            if further.origin != target.origin:
                if redactor.text(following.url) != following.url:
                    raise _denied(further, "the redirect to it carries a secret")
                credentials, following = None, replace(following, headers=_impersonal(following), cookies=())
            request = following
        raise ToolFailed(
            ErrorType.LIMIT, f"`{target_of(request.url).authority}`: more than {REDIRECTS} redirects"
        )

    async def _once(self, request: Prepared, target: Target, auth: Applied | None, max_bytes: int) -> Answer:
        if (why := self.reachable.refusal(*target.origin)) is not None:
            raise _denied(target, why)
        environment = os.environ if self.environment is None else self.environment
        proxy = proxy_for(*target.origin, None, environment)
        sending = request if auth is None else request.with_auth(auth)
        data = _written(sending, target_of(sending.url), proxy)
        sent = False
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as connecting:
                closed = partial(self.reachable.closed, target.host, target.port)
                reader, writer = await Dialer(self.lookup, self.tls).open(target, proxy, closed)
                connecting.reschedule(None)
                try:
                    sent = True
                    writer.write(data)
                    return await receive(reader, request.url, max_bytes)
                finally:
                    writer.transport.abort()
        except Closed as why:
            raise _denied(target, str(why)) from None
        except TimeoutError:
            raise Broke(
                f"no connection with `{target.authority}` within {CONNECT_SECONDS:g} s", sent=sent
            ) from None
        except ssl.SSLError as problem:
            reason = getattr(problem, "verify_message", "") or problem.reason or "TLS failed"
            why = f"no trusted connection with `{target.authority}`: {reason}"
            raise Broke(why, sent=sent, again=False) from None
        except (MalformedResponse, ConfigError) as problem:
            raise Broke(f"`{target.authority}`: {_plain(problem)}", sent=sent, again=False) from None
        except OSError as problem:
            why = getattr(problem, "strerror", None) or "the connection broke"
            raise Broke(f"`{target.authority}` could not be reached: {why}", sent=sent) from None


def target_of(url: str) -> Target:
    """Raises ToolFailed for what is not exactly one http or https address without a user name."""
    try:
        return parse_target(url)
    except Unreadable as problem:
        raise ToolFailed(ErrorType.PERMISSION_DENIED, f"not requested: {problem}") from None


def _written(request: Prepared, target: Target, proxy: tuple[str, int, str] | None) -> bytes:
    theirs = request.fields
    said = {name.lower() for name in theirs}
    fields = {name: value for name, value in _USUAL.items() if name.lower() not in said} | theirs
    fields |= {"Accept-Encoding": "gzip", "Connection": "close"}
    place = target.path
    if proxy is not None and not target.secure:
        place = f"http://{target.authority}{target.path}"
        fields |= {"Proxy-Authorization": proxy[2]} if proxy[2] else {}
    length = len(request.body) if request.body is not None else None if request.method == "GET" else 0
    try:
        head = request_head(request.method, place, target.authority, fields, length)
    except (ValueError, UnicodeEncodeError) as problem:
        raise ToolFailed(ErrorType.VALIDATION_FAILED, f"the request cannot be sent: {problem}") from None
    return head + (request.body or b"")


# ---- redirects


def _redirected(request: Prepared, answer: Answer, first: str) -> Prepared | None:
    """The next request, or None if this answer is the last."""
    place = answer.headers.get("location", "")
    if answer.status not in _REDIRECTED or not place:
        return None
    try:
        url = urljoin(request.url, place).partition("#")[0]
    except ValueError:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, "not followed: a redirect whose address cannot be read"
        ) from None
    before, target = target_of(request.url), target_of(url)
    if before.secure and not target.secure:
        raise _denied(target, f"`{before.host}` redirects from https to http")
    if request.method == "GET":
        return replace(request, url=url)
    if answer.status == 303:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "content-type"}
        return replace(request, method="GET", url=url, headers=headers, body=None)
    if answer.status in (307, 308) and before.origin == target.origin:
        return replace(request, url=url)
    why = f"`{before.host}` redirects a {first} there, and what it did so far is not known"
    raise ToolFailed(ErrorType.IO_ERROR, f"`{target.authority}` was not asked: {why}")


def _impersonal(request: Prepared) -> dict[str, str]:
    """What of a request's headers may go to another origin: how an answer should be, nothing that may say who asks."""
    kept = ("accept", "accept-language", "content-type")
    return {name: value for name, value in request.headers.items() if name.lower() in kept}


def _denied(target: Target, why: str) -> ToolFailed:
    return ToolFailed(ErrorType.PERMISSION_DENIED, f"`{target.authority}` was not asked: {why}")


def _plain(problem: Exception) -> str:
    """What went wrong, without words of the server: they have not been looked through for secrets."""
    text = str(problem)
    return text.partition(": ")[0] if isinstance(problem, MalformedResponse) else text
