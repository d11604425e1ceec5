"""A connection to a host that was allowed: resolved once, and what was checked is what is connected
to.

A name that answers differently the second time (DNS rebinding) gains nothing: the addresses that it
resolved to are judged by whoever asks, and one of these is connected to. With a proxy in the
person's environment names are resolved there: which address a *named* host has is then not checked
here; a host that is an address is judged all the same. For requests of tools and scripts; models
are reached over `connection`, which keeps what it opened.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from ferrule.core.frozen import frozen
from ferrule.core.lazy_patterns import expression
from ferrule.sandbox.network.allowed_hosts import Unreadable, canonical, local
from ferrule.sandbox.network.dialing import resolve
from ferrule.sandbox.network.ip_addresses import parse_address

from .proxies import Proxy, tunnel_head

ATTEMPTS = 4
"""Addresses of one host that are tried."""
ADDRESS_SECONDS = 4.0
"""What one of them may take: the next may be quicker."""

_OPENED = expression(rb"HTTP/1\.[01] 2[0-9][0-9]\b")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Closed(Exception):
    """All addresses of a host are ones that it may not have; says why of the first."""


@frozen
class Target:
    """Where an address leads. `host` in its one spelling, `path` with the query."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[bool, str, int]:
        return self.secure, self.host, self.port

    @property
    def authority(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == (443 if self.secure else 80) else f"{shown}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.path}"


def parse_target(url: str) -> Target:
    """Raises Unreadable, without repeating the address, for what is not exactly one http or https
    address without a user name.
    """
    try:
        parts = urlsplit(url)
        host, port = canonical(parts.hostname or ""), parts.port
    except Unreadable as problem:
        raise Unreadable(f"its host cannot be read: {problem}") from None
    except ValueError:
        raise Unreadable("its host or port cannot be read") from None
    if parts.scheme not in ("http", "https"):
        raise Unreadable("only http and https are possible")
    if (
        "@" in parts.netloc
        or not url.isascii()
        or any(char <= " " or char in "\x7f\\" for char in url)
    ):
        raise Unreadable("it has a user name or characters that a URL has not; encode them")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(secure, host, port or (443 if secure else 80), path)


@frozen
class Dialer:
    """Opens connections. `lookup` resolves a host, `tls` makes the context: tests pass their
    own.
    """

    lookup: Callable[[str], Awaitable[Sequence[str]]] = resolve
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context

    async def open(
        self, target: Target, proxy: Proxy | None, closed: Callable[[str], str | None]
    ) -> Streams:
        """A connection with the target, TLS included where it wants it, or with the proxy that
        requests to it go through.

        `closed` says why an address may not be connected to; None if it may. Raises Closed, and
        OSError (with ssl.SSLError).
        """
        if proxy is not None:
            if parse_address(target.host) is not None:
                # The proxy resolves names, and nobody would look at an address: here it is in its
                # one spelling.
                await self._addresses(target.host, closed)
            return await self._through(target, proxy)
        context = self.tls() if target.secure else None
        name = target.host if context else None
        problem = OSError("it has no address")
        for address in await self._addresses(target.host, closed):
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

    async def _addresses(self, host: str, closed: Callable[[str], str | None]) -> list[str]:
        if local(host):
            found: Sequence[str] = ("127.0.0.1", "::1")
        elif parse_address(host) is not None:
            found = (host,)
        else:
            found = await self.lookup(host)
        addresses = [str(parse_address(one) or one) for one in found][:ATTEMPTS]
        reasons = [closed(one) for one in addresses]
        good = [one for one, why in zip(addresses, reasons, strict=True) if why is None]
        if not good and any(reasons):
            raise Closed(next(why for why in reasons if why))
        return good

    async def _through(self, target: Target, proxy: Proxy) -> Streams:
        """A connection with the environment's proxy; for https one that already leads to the
        host.
        """
        reader, writer = await asyncio.open_connection(proxy[0], proxy[1])
        if not target.secure:
            return reader, writer
        try:
            writer.write(tunnel_head(target.host, target.port, proxy[2]))
            head = await reader.readuntil(b"\r\n\r\n")
            if not _OPENED.match(head):
                raise OSError(0, "the proxy of this machine's environment did not open a tunnel")
            await writer.start_tls(self.tls(), server_hostname=target.host)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
            raise OSError(0, "the proxy of this machine's environment did not answer") from None
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer
