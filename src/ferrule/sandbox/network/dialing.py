"""Connects to an allowed host: resolved once, checked, and connected to what was checked.

A name is looked up only after it was allowed, so no question to DNS carries anything out. The
address that was checked is the address that is connected to: a name that answers differently the
second time (DNS rebinding) gains nothing.

With a proxy of the person's own environment the host is resolved there: which addresses a *named*
host has is then not checked by us. That the host was named is.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

from ferrule.core.value_class import frozen

from .allowed_hosts import HostRules, is_localhost
from .http_heads import MalformedMessage, encode_head, parse_response
from .ip_addresses import parse_address
from .proxy_peer import Peer

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Resolves a host name to its addresses. Raises OSError."""

Upstream = Callable[[bool, str, int], tuple[str, int, str] | None]
"""Takes (TLS?, host, port) and returns the proxy to go through.

That is its host, port and `Proxy-Authorization` value; None: connect directly.
"""

ATTEMPT_SECONDS = 5.0
ATTEMPTS = 6
"""Addresses of one host that are tried, for at most `ATTEMPT_SECONDS` each."""


class RequestRefused(Exception):
    """The request fails: the client gets `status` and the text."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status

    @property
    def is_forbidden(self) -> bool:
        """Whether a rule refused it. Otherwise it could not be done."""
        return self.status == 403


@frozen
class HostConnection:
    """A connection. `address` is where it leads, for the record.

    `proxy_credentials` are the credentials (or "") if that is a proxy.
    """

    peer: Peer
    address: str
    proxy_credentials: str | None = None


async def resolve(host: str) -> Sequence[str]:
    """Resolve a host with the system's resolver, on a thread."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def no_upstream(secure: bool, host: str, port: int) -> None:
    """Connect directly: an `Upstream` without a proxy."""
    return None


@frozen
class Dialer:
    """Makes connections. `seconds` limits looking up and connecting together."""

    hosts: HostRules
    resolve: Resolve = resolve
    upstream: Upstream = no_upstream
    seconds: float = 20.0

    async def connect(self, host: str, port: int, *, tunnel: bool) -> HostConnection:
        """Connect to a host that was allowed already. Which of its addresses is decided here.

        Raises:
            Refused: It cannot or may not be reached.
        """
        proxy = self.upstream(tunnel, host, port)
        try:
            async with asyncio.timeout(self.seconds):
                if proxy is None:
                    addresses = await self._allowed_addresses(host, port)
                    return await self._connect_first(host, port, addresses)
                return await self._connect_through(proxy, host, port, tunnel)
        except TimeoutError:
            raise RequestRefused(
                504, f"`{host}` could not be reached within {self.seconds:g} s"
            ) from None

    async def _allowed_addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses that may be connected to.

        Raises Refused if there are none.
        """
        addresses = await self._lookup(host)
        reasons = [self.hosts.address_refusal(host, port, address) for address in addresses]
        allowed = [
            address for address, reason in zip(addresses, reasons, strict=True) if reason is None
        ]
        if not allowed:
            raise RequestRefused(403, next(reason for reason in reasons if reason))
        return allowed

    async def _lookup(self, host: str) -> list[str]:
        if is_localhost(host):
            return ["127.0.0.1", "::1"]
        if parse_address(host):
            return [host]
        try:
            found = await self.resolve(host)
        except (OSError, UnicodeError) as problem:
            raise RequestRefused(502, f"`{host}` could not be resolved: {problem}") from None
        # In canonical form: `::ffff:10.0.0.1` is checked and connected to as what it is.
        addresses = [str(parse_address(text) or text) for text in found][:ATTEMPTS]
        if not addresses:
            raise RequestRefused(502, f"`{host}` has no address")
        return addresses

    async def _connect_first(
        self, host: str, port: int, addresses: Sequence[str]
    ) -> HostConnection:
        """Connect to the first address that answers."""
        problem: Exception = OSError("no answer")
        for address in addresses:
            try:
                async with asyncio.timeout(ATTEMPT_SECONDS):
                    return HostConnection(await _connect(address, port), address)
            except OSError as failed:  # TimeoutError is one
                problem = failed
        why = str(problem) or "no answer in time"
        raise RequestRefused(502, f"`{host}` ({', '.join(addresses)}), port {port}: {why}")

    async def _connect_through(
        self, proxy: tuple[str, int, str], host: str, port: int, tunnel: bool
    ) -> HostConnection:
        """Connect through the environment's proxy; with `tunnel` up to the host."""
        proxy_host, proxy_port, credentials = proxy
        try:
            addresses = (
                [proxy_host] if parse_address(proxy_host) else await self._lookup(proxy_host)
            )
            reached = await self._connect_first(proxy_host, proxy_port, addresses)
        except RequestRefused as problem:
            raise RequestRefused(
                502, f"the proxy of this machine's environment: {problem}"
            ) from None
        connection = HostConnection(reached.peer, f"proxy {proxy_host}:{proxy_port}", credentials)
        if tunnel:
            try:
                await _open_tunnel(connection, host, port)
            except BaseException:
                connection.peer.close()
                raise
        return connection


async def _connect(address: str, port: int) -> Peer:
    """Connect to a numeric address: nothing is looked up here."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return Peer(sock)


async def _open_tunnel(reached: HostConnection, host: str, port: int) -> None:
    """Open a tunnel with CONNECT (RFC 9110, section 9.3.6)."""
    shown = f"[{host}]" if ":" in host else host
    where = f"{shown}:{port}"
    fields = [("Host", where)]
    if reached.proxy_credentials:
        fields.append(("Proxy-Authorization", reached.proxy_credentials))
    try:
        await reached.peer.send(encode_head(f"CONNECT {where} HTTP/1.1", fields))
        answer = parse_response(await reached.peer.read_head(), "CONNECT")
    except (OSError, MalformedMessage) as problem:
        raise RequestRefused(502, f"{reached.address} did not open a tunnel: {problem}") from None
    if not 200 <= answer.status < 300:
        raise RequestRefused(502, f"{reached.address} answered {answer.status} to CONNECT {where}")
