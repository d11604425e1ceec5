"""IP addresses that are not the open internet: this machine, its network, and its cloud's services.

A name that a stranger controls can be made to lead to any of them, so they are reached only if a
person named the address itself (`allowed_hosts.py`). Source: the special-purpose registries of IANA
for IPv4 and IPv6 (RFC 6890 and later), as a table of our own, because Python's `is_global` changed
its mind between patch releases.

Not protected: a public address of this machine or of its own network. It looks like any other.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address

_CLOSED = tuple(
    ip_network(block)
    for block in [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        "168.63.129.16/32",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "2620:4f:8000::/48",
        "3fff::/20",
    ]
)
"""168.63.129.16 is public only by its number: inside Azure it is the host of the machine."""
_OPEN_IPV6 = IPv6Network("2000::/3")
"""The only part of IPv6 that is routed; `_CLOSED` takes pieces out of it."""
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""IPv4 as seen from a network with IPv6 only (RFC 6052): the last 32 bits are the address."""


def parse_address(text: str) -> Address | None:
    """Parse a strictly written address; None for a name.

    An IPv4 address that is mapped into IPv6 is returned as the IPv4 address.
    """
    if "%" in text:
        return None  # A zone: it says through which interface, and only on this machine.
    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def is_public(address: Address) -> bool:
    """Return whether an address is on the open internet.

    Reaching such an address says nothing about where we are.
    """
    if isinstance(address, IPv6Address):
        if address in _TRANSLATED:
            return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
        if address not in _OPEN_IPV6:
            return False
    return not any(address in block for block in _CLOSED)


def describe_address(address: Address) -> str:
    """Describe a closed address in a word or two for a message."""
    if address == IPv4Address("169.254.169.254"):
        return "the cloud's metadata service"
    if address.is_loopback:
        return "this machine"
    if address.is_link_local:
        return "a link-local address"
    return "a multicast address" if address.is_multicast else "a private or reserved address"
