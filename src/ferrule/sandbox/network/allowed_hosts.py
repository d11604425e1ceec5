"""Which hosts a command may reach: the `network` entries of a policy, parsed and applied. No I/O.

    hosts = Hosts.parse(("example.com", "*.example.org", "localhost:5432", "[::1]:8080"))
    hosts.refusal("example.com", 443)                 None: allowed
    hosts.closed("example.com", 443, "127.0.0.1")     why this address may not be connected to

Rules of this file:

* An entry is `host`, `host:port`, `*.domain` or `*.domain:port`; a host is a name, an IPv4 address
  or an IPv6 address in brackets. Without a port it means the ports of the web, 80 and 443.
  `*.domain` are the names below the domain, not the domain.
* A host is compared in its canonical form: lower case, no dot at the end, addresses as `ipaddress`
  writes them. The same form is what is connected to, so two readers cannot understand two things.
  What has no such form is refused: percent signs, user names, zones, letters beyond ASCII (clients
  send `xn--…`), numbers that some systems take for an address (`0x7f.1`, `2130706433`).
* A name does not open what it resolves to. An address that is not the open internet
  (`ip_addresses.py`) is reached only by an entry with that address, or by `localhost` (and names
  below it) for this machine's loopback. So DNS decides nothing.

Not protected: a named host that passes requests on, or that shares its address with others (a
client can ask it for another site inside TLS, which the proxy does not look into). `*.domain` is as
trustworthy as whoever may make names below it, and the names that are asked for reach its name
server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

from .ip_addresses import Address, describe_address, is_public, parse_address

WEB_PORTS = frozenset({80, 443})

_LABEL = compile_lazily(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = compile_lazily(r"[0-9]+|0x[0-9a-f]*")
_PORT = compile_lazily(r"[0-9]{1,5}")
_AMBIGUOUS = compile_lazily("[ßς\u200c\u200d]")
"""The two versions of IDNA write these differently: one text, two hosts."""


class InvalidHost(ValueError):
    """A text is not exactly one host, or not a port.

    Its message says why, without repeating what was given.
    """


class HostRules(Protocol):
    """Which hosts may be reached. `AllowedHosts` has the rules of commands."""

    @property
    def includes_loopback(self) -> bool:
        """Whether this machine's own loopback may be among them."""
        ...

    def refusal(self, host: str, port: int) -> str | None:
        """Return why `host` may not be asked for at all; None if it may. Nothing is resolved."""
        ...

    def address_refusal(self, host: str, port: int, address: str) -> str | None:
        """Return why an allowed `host` may not be reached at `address`; None if it may.

        `address` is one that it resolved to.
        """
        ...


@frozen
class AllowedHost:
    """One thing that a person named. `host` is in canonical form.

    `below`: the names below it, not itself.
    """

    host: str
    ports: frozenset[int]
    subdomains: bool = False

    def matches(self, host: str) -> bool:
        """Return whether this entry names the host, given in canonical form."""
        return host.endswith("." + self.host) if self.subdomains else host == self.host


@frozen
class AllowedHosts:
    """What a policy's `network` opens. False if it opens nothing."""

    entries: tuple[AllowedHost, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> AllowedHosts:
        """Parse the entries.

        Raises:
            ConfigError: An entry does not say exactly what it opens.
        """
        return cls(tuple(_parse_entry(text) for text in entries))

    def __bool__(self) -> bool:
        return bool(self.entries)

    def allows(self, host: str, port: int) -> bool:
        """Return whether a person named this host, in any form, with this port."""
        return self.refusal(host, port) is None

    def refusal(self, host: str, port: int) -> str | None:
        try:
            host = canonicalize_host(host)
        except InvalidHost as problem:
            return f"the host is refused: {problem}"
        ports = self._ports(host)
        if port in ports:
            return None
        if not ports:
            return f"`{host}` is not one of the hosts in the `network` setting"
        known = ", ".join(map(str, sorted(ports)))
        return f"the `network` setting names `{host}` for port {known}, not {port}"

    def address_refusal(self, host: str, port: int, address: str) -> str | None:
        found = parse_address(address)
        if found is None:
            return "it does not resolve to an address"
        host = canonicalize_host(host)
        if is_localhost(host):
            return None if found.is_loopback else f"`{host}` must be this machine, not {found}"
        if is_public(found) or port in self._ports(str(found)):
            return None
        entry = f"{found}:{port}" if found.version == 4 else f"[{found}]:{port}"
        return (
            f"`{host}` leads to {found}, {describe_address(found)}: a name does not open that, "
            f"only the address itself in the `network` setting does: `{entry}`"
        )

    @property
    def includes_loopback(self) -> bool:
        return any(
            is_localhost(entry.host) or _is_loopback(parse_address(entry.host.strip("[]")))
            for entry in self.entries
        )

    def _ports(self, host: str) -> frozenset[int]:
        return frozenset[int]().union(
            *(entry.ports for entry in self.entries if entry.matches(host))
        )


def canonicalize_host(host: str) -> str:
    """Return the canonical form of a host.

    An IPv6 address comes with or without brackets and leaves without.

    Raises:
        InvalidHost: It has none.
    """
    if not host.isascii():
        raise InvalidHost("it has letters beyond ASCII; write it as `xn--…`")
    text = host.lower()
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare or bare != text:
        return _ipv6(bare)
    text = text.removesuffix(".")
    labels = text.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        # Some resolvers take any of these for an address: it must be one that all read alike.
        address = parse_address(text)
        if address is None:
            raise InvalidHost("it is a number but not an address such as 192.0.2.1")
        return str(address)
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidHost("it is neither a host name nor an address")
    return text


def _ipv6(text: str) -> str:
    address = parse_address(text) if ":" in text else None
    if address is None:
        raise InvalidHost("it is not an IPv6 address (one with a zone is not accepted)")
    return str(address)


def is_localhost(host: str) -> bool:
    """Return whether a name means this machine by definition (RFC 6761): it is never looked up."""
    return host == "localhost" or host.endswith(".localhost")


def split_authority(text: str) -> tuple[str, int | None]:
    """Split `host:port` or `host`, as in a request. The host is returned in canonical form.

    Raises:
        InvalidHost: It is not exactly one host, or not a port.
    """
    host, colon, number = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        return canonicalize_host(text), None
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise InvalidHost("an IPv6 address stands in brackets: `[::1]:8080`")
    return canonicalize_host(host), parse_port(number)


def parse_port(text: str) -> int:
    """Parse a port.

    Raises:
        InvalidHost: It is not one.
    """
    if not _PORT.fullmatch(text) or not 0 < int(text) < 65_536:
        raise InvalidHost("its port is not a number from 1 to 65535")
    return int(text)


def _parse_entry(text: str) -> AllowedHost:
    below = text.startswith("*.")
    try:
        host, port = split_authority(_ascii(text.removeprefix("*.")))
        _check_usable(host, below)
    except InvalidHost as problem:
        raise ConfigError(
            f"`network`: found `{text}`, but {problem}",
            code="network",
            hint=(
                "write `example.com`, `example.com:8080`, `*.example.com`, `192.0.2.1` or "
                "`[2001:db8::1]:8080`"
            ),
        ) from None
    return AllowedHost(host, WEB_PORTS if port is None else frozenset({port}), below)


def _ascii(text: str) -> str:
    """Return a name as people write it in the form that DNS has."""
    if "//" in text:
        raise InvalidHost("it is a URL; only its host is named")
    if "*" in text:
        raise InvalidHost("a `*` stands only in front, for all names below a domain")
    if text.isascii():
        return text
    if _AMBIGUOUS.search(text):
        raise InvalidHost("it has a letter that programs write in two ways; write it as `xn--…`")
    try:
        return text.encode("idna").decode()
    except UnicodeError:
        raise InvalidHost("it cannot be written as a host name") from None


def _check_usable(host: str, below: bool) -> None:
    address = parse_address(host)
    if below and (address is not None or "." not in host):
        raise InvalidHost("`*.` needs a domain with a dot in it, such as `*.example.com`")
    if address is not None and (
        address.is_unspecified or address.is_multicast or int(address) == 0xFFFF_FFFF
    ):
        raise InvalidHost("this address belongs to no one host")


def _is_loopback(address: Address | None) -> bool:
    return address is not None and address.is_loopback
