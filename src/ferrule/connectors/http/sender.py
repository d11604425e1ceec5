"""One request over HTTP/1.1: every hop is checked, and the connection goes to what was checked.

* A host is resolved once, after it was allowed, and the connection goes to the address that was
  checked (`models.http.dialing`).
* A redirect is a new request with the same checks, at most `MAX_REDIRECTS` of them, made by the
  rules of `models.http.web_request`. No credentials go to another origin, neither in headers nor
  within the URL that the server made up.
* An answer is bounded (`receive.py`).
* Connections are not reused: nothing of one call can end up in another.

The dispatcher bounds the time of a call; here only connecting has a timeout of its own. A proxy of
the person's environment is used as for models; it resolves names itself, so addresses of *named*
hosts are then not checked here.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.models.http.dialing import AddressesRefused, Dialer, Target, parse_target
from ferrule.models.http.http1 import MalformedResponse
from ferrule.models.http.proxies import Proxy, find_proxy
from ferrule.models.http.web_request import (
    MAX_REDIRECTS,
    NextRequest,
    RedirectRefused,
    encode_request,
    follow_redirect,
)
from ferrule.sandbox.network.allowed_hosts import InvalidHost
from ferrule.sandbox.network.dialing import resolve

from .auth import RequestAuth
from .hosts import ReachableHosts
from .requests import PreparedRequest
from .response import Response, read_response
from .secrets import Redactor

CONNECT_SECONDS = 10.0
_DEFAULT_HEADERS = {"User-Agent": "ferrule", "Accept": "application/json, */*;q=0.5"}

RefuseRedirect = Callable[[str], str]
"""Returns why a redirect to a URL may not be followed; empty if it may."""


def allow_redirect(url: str) -> str:
    """Refuse nothing: a `Refused` without rules."""
    return ""


class NoResponse(Exception):
    """There is no answer.

    Args:
        sent: Some of the request had been sent, so what the server did is unknown.
        is_retryable: The next attempt may work.
    """

    def __init__(self, why: str, *, sent: bool, is_retryable: bool = True) -> None:
        super().__init__(why)
        self.sent = sent
        self.is_retryable = is_retryable


@cache
def default_tls() -> ssl.SSLContext:
    """Return a context with the system's authorities, or those of SSL_CERT_FILE.

    It is made once: reading them takes longer than most requests.
    """
    return ssl.create_default_context()


@frozen
class Sender:
    """Sends requests. Tests pass their own parts.

    Args:
        lookup: Resolves a host.
        tls: Makes the TLS context.
        environment: The variables that name proxies.
    """

    reachable: ReachableHosts
    lookup: Callable[[str], Awaitable[Sequence[str]]] = resolve
    tls: Callable[[], ssl.SSLContext] = default_tls
    environment: Mapping[str, str] | None = None

    async def send(
        self,
        request: PreparedRequest,
        auth: RequestAuth,
        max_bytes: int,
        refuse_redirect: RefuseRedirect = allow_redirect,
    ) -> Response:
        """Send a request and follow its redirects.

        Args:
            request: The request, without its secrets.
            auth: What adds the secrets; a redirect to another origin goes without them.
            max_bytes: Most bytes of the response's body.
            refuse_redirect: Returns why a redirect may not be followed.

        Raises:
            NoResponse: There is no answer.
            ToolFailed: The host may not be reached, or the answer is out of bounds.
        """
        redactor = Redactor(auth.secret_values)
        credentials: RequestAuth | None = auth
        for _ in range(MAX_REDIRECTS + 1):
            target = parse_request_target(request.url)
            response = await self._send_once(request, target, credentials, max_bytes)
            following = _next_request(request, response)
            if following is None:
                return replace(response, url=redactor.redact_text(response.url))
            next_target = following.target
            if next_target.host != target.host:
                refusal = refuse_redirect(following.url)
                if refusal:
                    raise _build_denial(next_target, refusal)
            if not following.same_origin:
                if redactor.redact_text(following.url) != following.url:
                    raise _build_denial(next_target, "the redirect to it carries a secret")
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
            f"`{parse_request_target(request.url).authority}`: more than {MAX_REDIRECTS} redirects",
        )

    async def _send_once(
        self, request: PreparedRequest, target: Target, auth: RequestAuth | None, max_bytes: int
    ) -> Response:
        refusal = self.reachable.refuse_host(*target.origin)
        if refusal is not None:
            raise _build_denial(target, refusal)
        environment = os.environ if self.environment is None else self.environment
        proxy = find_proxy(*target.origin, None, environment)
        authenticated = request if auth is None else request.with_auth(auth)
        data = _encode(authenticated, parse_request_target(authenticated.url), proxy)
        sent = False
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as connecting:
                closed = partial(self.reachable.refuse_address, target.host, target.port)
                reader, writer = await Dialer(self.lookup, self.tls).open(target, proxy, closed)
                connecting.reschedule(None)
                try:
                    sent = True
                    writer.write(data)
                    return await read_response(reader, request.url, max_bytes)
                finally:
                    writer.transport.abort()
        except AddressesRefused as why:
            raise _build_denial(target, str(why)) from None
        except TimeoutError:
            raise NoResponse(
                f"no connection with `{target.authority}` within {CONNECT_SECONDS:g} s", sent=sent
            ) from None
        except ssl.SSLError as problem:
            reason = getattr(problem, "verify_message", "") or problem.reason or "TLS failed"
            why = f"no trusted connection with `{target.authority}`: {reason}"
            raise NoResponse(why, sent=sent, is_retryable=False) from None
        except (MalformedResponse, ConfigError) as problem:
            raise NoResponse(
                f"`{target.authority}`: {_reason(problem)}", sent=sent, is_retryable=False
            ) from None
        except OSError as problem:
            why = getattr(problem, "strerror", None) or "the connection broke"
            raise NoResponse(
                f"`{target.authority}` could not be reached: {why}", sent=sent
            ) from None


def parse_request_target(url: str) -> Target:
    """Parse a URL.

    Raises:
        ToolFailed: It is not exactly one http or https URL without a user name.
    """
    try:
        return parse_target(url)
    except InvalidHost as problem:
        raise ToolFailed(ErrorType.PERMISSION_DENIED, f"not requested: {problem}") from None


def _encode(request: PreparedRequest, target: Target, proxy: Proxy | None) -> bytes:
    own_fields = request.header_fields
    own_names = {name.lower() for name in own_fields}
    fields = {
        name: value for name, value in _DEFAULT_HEADERS.items() if name.lower() not in own_names
    }
    fields |= own_fields
    fields |= {"Accept-Encoding": "gzip", "Connection": "close"}
    try:
        return encode_request(request.method, target, fields, request.body, proxy)
    except (ValueError, UnicodeEncodeError) as problem:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, f"the request cannot be sent: {problem}"
        ) from None


# ---- redirects


def _next_request(request: PreparedRequest, response: Response) -> NextRequest | None:
    """Return the next request, or None if this answer is the last."""
    location = response.headers.get("location", "")
    try:
        return follow_redirect(
            request.method, request.url, request.headers, response.status, location
        )
    except RedirectRefused as why:
        if why.target is None:
            raise ToolFailed(ErrorType.PERMISSION_DENIED, f"not followed: {why}") from None
        if why.allowed:
            message = f"`{why.target.authority}` was not asked: {why}"
            raise ToolFailed(ErrorType.IO_ERROR, message) from None
        raise _build_denial(why.target, str(why)) from None


def _build_denial(target: Target, why: str) -> ToolFailed:
    return ToolFailed(ErrorType.PERMISSION_DENIED, f"`{target.authority}` was not asked: {why}")


def _reason(problem: Exception) -> str:
    """Return what went wrong without the server's words, which were not searched for secrets."""
    text = str(problem)
    return text.partition(": ")[0] if isinstance(problem, MalformedResponse) else text
