"""Connections to allowed hosts: resolved once, and what was checked is what is connected to.

A name that resolves differently the second time (DNS rebinding) gains nothing: the caller judges
the addresses that the name resolved to, and one of these is connected to. With a proxy in the
user's environment names are resolved by the proxy. Then the address of a *named* host is not
checked here; a host that is itself an address still is. This is for requests of tools and scripts;
models are reached over `connection`, which keeps its connections.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from ferrule.core.value_class import frozen
from ferrule.sandbox.network.allowed_hosts import InvalidHost, canonicalize_host, is_localhost
from ferrule.sandbox.network.dialing import resolve
from ferrule.sandbox.network.ip_addresses import parse_address

from .http1 import MalformedResponse, ResponseParser
from .proxies import Proxy, encode_connect_request

ATTEMPTS = 4
"""Most addresses of one host that are tried."""
ADDRESS_SECONDS = 4.0
"""Seconds for one of them: the next may be quicker."""


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AddressesRefused(Exception):
    """No address of a host is allowed; gives the reason for the first."""


@frozen
class Target:
    """Where a URL leads. `host` is in its canonical form, `path` includes the query."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[bool, str, int]:
        return self.secure, self.host, self.port

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        default_port = 443 if self.secure else 80
        return host if self.port == default_port else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.path}"


def parse_target(url: str) -> Target:
    """Parse exactly one http or https URL without a user name.

    Raises:
        InvalidHost: It is anything else. The error does not repeat the URL.
    """
    try:
        parts = urlsplit(url)
        host = canonicalize_host(parts.hostname or "")
        port = parts.port
    except InvalidHost as problem:
        raise InvalidHost(f"its host cannot be read: {problem}") from None
    except ValueError:
        raise InvalidHost("its host or port cannot be read") from None
    if parts.scheme not in ("http", "https"):
        raise InvalidHost("only http and https are possible")
    has_invalid = not url.isascii() or any(char <= " " or char in "\x7f\\" for char in url)
    if "@" in parts.netloc or has_invalid:
        raise InvalidHost("it has a user name or characters that a URL must not have; encode them")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(secure, host, port or (443 if secure else 80), path)


@frozen
class Dialer:
    """Opens connections.

    `lookup` resolves a host and `tls` makes the TLS context; tests pass their own.
    """

    lookup: Callable[[str], Awaitable[Sequence[str]]] = resolve
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context

    async def open(
        self, target: Target, proxy: Proxy | None, why_refused: Callable[[str], str | None]
    ) -> Streams:
        """Open a connection to the target (with TLS for https), or to the proxy on the way to it.

        Args:
            target: Where the connection leads.
            proxy: The proxy to go through, if any.
            why_refused: Returns why an address must not be connected to; None if it may be.

        Raises:
            AddressesRefused: No address of the host is allowed.
            OSError: The connection failed; includes ssl.SSLError.
        """
        if proxy is not None:
            if parse_address(target.host) is not None:
                # The proxy resolves names, but nobody else would judge an address.
                await self._resolve_allowed(target.host, why_refused)
            return await self._open_through_proxy(target, proxy)
        context = self.tls() if target.secure else None
        name = target.host if context else None
        problem = OSError("the host has no address")
        for address in await self._resolve_allowed(target.host, why_refused):
            try:
                async with asyncio.timeout(ADDRESS_SECONDS):
                    return await asyncio.open_connection(
                        address, target.port, ssl=context, server_hostname=name
                    )
            except ssl.SSLError:
                raise
            except TimeoutError:
                problem = OSError(0, f"no connection within {ADDRESS_SECONDS:g} s")
            except OSError as failed:
                problem = failed
        raise problem

    async def _resolve_allowed(
        self, host: str, why_refused: Callable[[str], str | None]
    ) -> list[str]:
        """Return the allowed addresses of a host."""
        if is_localhost(host):
            found: Sequence[str] = ("127.0.0.1", "::1")
        elif parse_address(host) is not None:
            found = (host,)
        else:
            found = await self.lookup(host)
        addresses = [str(parse_address(address) or address) for address in found][:ATTEMPTS]
        reasons = {address: why_refused(address) for address in addresses}
        allowed = [address for address in addresses if reasons[address] is None]
        first_reason = next((reason for reason in reasons.values() if reason), None)
        if not allowed and first_reason is not None:
            raise AddressesRefused(first_reason)
        return allowed

    async def _open_through_proxy(self, target: Target, proxy: Proxy) -> Streams:
        """Open a connection to a proxy; for https with a tunnel to the target."""
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        if not target.secure:
            return reader, writer
        try:
            writer.write(encode_connect_request(target.host, target.port, proxy.credentials))
            answer = ResponseParser()
            answer.feed(await reader.readuntil(b"\r\n\r\n"))
            if not 200 <= answer.status < 300:
                raise OSError(0, "the proxy of this machine's environment did not open a tunnel")
            await writer.start_tls(self.tls(), server_hostname=target.host)
        except MalformedResponse:
            writer.transport.abort()
            raise OSError(
                0, "the proxy of this machine's environment did not open a tunnel"
            ) from None
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
            raise OSError(0, "the proxy of this machine's environment did not answer") from None
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer
