"""One request over HTTP/1.1: every hop is checked, and what was checked is what is connected to.

* A host is resolved once, after it was allowed, and what was checked is what is connected to
  (`models.http.dialing`).
* A redirect is a new request with the same checks, `REDIRECTS` of them at the most, made by the
  rules of `models.http.web_request`. To another origin no credentials go along, neither in headers
  nor within the address that the server made up.
* An answer is bounded (`receive.py`).
* Connections are not kept: nothing of one call can end up in another.

The time of a call is bounded by the shell around it; here only connecting has a bound of its own. A
proxy of the person's environment is used as for models; it resolves names itself, so addresses of
*named* hosts are then not checked here.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.models.http.dialing import Closed, Dialer, Target, parse_target
from ferrule.models.http.http1 import MalformedResponse
from ferrule.models.http.proxies import Proxy, proxy_for
from ferrule.models.http.web_request import REDIRECTS, Following, NotFollowed, follow, write
from ferrule.sandbox.network.allowed_hosts import Unreadable
from ferrule.sandbox.network.dialing import resolve

from .auth import Applied
from .hosts import Reachable
from .receive import Answer, receive
from .requests import Prepared
from .secrets import Redactor

CONNECT_SECONDS = 10.0
_USUAL = {"User-Agent": "ferrule", "Accept": "application/json, */*;q=0.5"}

Refused = Callable[[str], str]
"""Why an address that a redirect names may not follow; empty if it may."""


def nobody(url: str) -> str:
    """A `Refused` that has no objections."""
    return ""


class Broke(Exception):
    """No answer. `sent`: some of the request had left, so nobody knows what the server did with it.
    `again`: the next attempt may work.
    """

    def __init__(self, why: str, *, sent: bool, again: bool = True) -> None:
        super().__init__(why)
        self.sent = sent
        self.again = again


@cache
def usual_tls() -> ssl.SSLContext:
    """The system's authorities, or those of SSL_CERT_FILE. Made once: reading them takes longer
    than most requests.
    """
    return ssl.create_default_context()


@dataclass(frozen=True, slots=True)
class Sender:
    """How requests are sent. `lookup` resolves a host, `tls` makes the context, `environment` names
    proxies: tests pass their own.
    """

    reachable: Reachable
    lookup: Callable[[str], Awaitable[Sequence[str]]] = resolve
    tls: Callable[[], ssl.SSLContext] = usual_tls
    environment: Mapping[str, str] | None = None

    async def send(
        self, request: Prepared, auth: Applied, max_bytes: int, refused: Refused = nobody
    ) -> Answer:
        """Ask, and follow where it leads; `refused` says why an address may not follow, if it may
        not.

        Raises Broke, and ToolFailed for what may not be reached or is out of bounds.
        """
        redactor = Redactor(auth.values)
        credentials: Applied | None = auth
        for _ in range(REDIRECTS + 1):
            target = target_of(request.url)
            answer = await self._once(request, target, credentials, max_bytes)
            following = _redirected(request, answer)
            if following is None:
                return replace(answer, url=redactor.text(answer.url))
            further = following.target
            if further.host != target.host and (why := refused(following.url)):
                raise _denied(further, why)
            if not following.same_origin:
                if redactor.text(following.url) != following.url:
                    raise _denied(further, "the redirect to it carries a secret")
                credentials = None
                request = replace(request, cookies=())
            request = replace(
                request,
                method=following.method,
                url=following.url,
                headers=dict(following.headers),
                body=request.body if following.with_body else None,
            )
        raise ToolFailed(
            ErrorType.LIMIT,
            f"`{target_of(request.url).authority}`: more than {REDIRECTS} redirects",
        )

    async def _once(
        self, request: Prepared, target: Target, auth: Applied | None, max_bytes: int
    ) -> Answer:
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
            raise Broke(
                f"`{target.authority}`: {_plain(problem)}", sent=sent, again=False
            ) from None
        except OSError as problem:
            why = getattr(problem, "strerror", None) or "the connection broke"
            raise Broke(f"`{target.authority}` could not be reached: {why}", sent=sent) from None


def target_of(url: str) -> Target:
    """Raises ToolFailed for what is not exactly one http or https address without a user name."""
    try:
        return parse_target(url)
    except Unreadable as problem:
        raise ToolFailed(ErrorType.PERMISSION_DENIED, f"not requested: {problem}") from None


def _written(request: Prepared, target: Target, proxy: Proxy | None) -> bytes:
    theirs = request.fields
    said = {name.lower() for name in theirs}
    fields = {name: value for name, value in _USUAL.items() if name.lower() not in said} | theirs
    fields |= {"Accept-Encoding": "gzip", "Connection": "close"}
    try:
        return write(request.method, target, fields, request.body, proxy)
    except (ValueError, UnicodeEncodeError) as problem:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, f"the request cannot be sent: {problem}"
        ) from None


# ---- redirects


def _redirected(request: Prepared, answer: Answer) -> Following | None:
    """The next request, or None if this answer is the last."""
    place = answer.headers.get("location", "")
    try:
        return follow(request.method, request.url, request.headers, answer.status, place)
    except NotFollowed as why:
        if why.target is None:
            raise ToolFailed(ErrorType.PERMISSION_DENIED, f"not followed: {why}") from None
        if why.allowed:
            said = f"`{why.target.authority}` was not asked: {why}"
            raise ToolFailed(ErrorType.IO_ERROR, said) from None
        raise _denied(why.target, str(why)) from None


def _denied(target: Target, why: str) -> ToolFailed:
    return ToolFailed(ErrorType.PERMISSION_DENIED, f"`{target.authority}` was not asked: {why}")


def _plain(problem: Exception) -> str:
    """What went wrong, without words of the server: they have not been looked through for
    secrets.
    """
    text = str(problem)
    return text.partition(": ")[0] if isinstance(problem, MalformedResponse) else text
