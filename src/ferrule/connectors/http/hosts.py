"""Which hosts the tools of a file may reach: those that its addresses name, and those that it lists
under `hosts`. No I/O.

* A host that stands literally in an address of the file, with that port; and the entries of `hosts`
  (`sandbox.network.allowed_hosts` has their form).
* A host that is filled in by a call, or that a server redirects to, must be one of these.
* A name opens nothing but the open internet. This machine, private networks and a cloud's metadata
  service are reached only if `hosts` names the address itself (or `localhost`), and plain http only
  where `hosts` names the host.
* In a repository's file `hosts` cannot open those: only the person can, in `tools.http_hosts` of
  their own settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ferrule.sandbox.network.allowed_hosts import Hosts, Unreadable, canonical, local
from ferrule.sandbox.network.ip_addresses import is_open, kind_of, parse_address

from .templates import Unfit
from .url_templates import Address


@dataclass(frozen=True, slots=True)
class Reachable:
    """What may be reached. `named` are the hosts of addresses, `listed` those that somebody listed,
    `opened` those of them that the person answers for.
    """

    named: Hosts = Hosts()
    listed: Hosts = Hosts()
    opened: Hosts = Hosts()

    def refusal(self, secure: bool, host: str, port: int) -> str | None:
        """Why a host may not be asked at all; None if it may. Nothing is resolved."""
        if not any(hosts.allows(host, port) for hosts in (self.named, self.listed, self.opened)):
            return (
                f"`{host}` with port {port} is none of the hosts that this tool may reach: {self}"
            )
        if (special(host) or not secure) and not self.opened.allows(host, port):
            what = special(host) or "reached over plain http"
            return (
                f"`{host}` is {what}: only `hosts` of your own file opens that (for a "
                "repository's file: `tools.http_hosts`)"
            )
        return None

    def closed(self, host: str, port: int, address: str) -> str | None:
        """Why an allowed host may not be reached at an address that it resolved to; None if it
        may.
        """
        found = parse_address(address)
        if found is None:
            return f"`{host}` does not resolve to an address"
        if local(host):
            return None if found.is_loopback else f"`{host}` must be this machine, not {found}"
        if is_open(found) or self.opened.closed(host, port, str(found)) is None:
            return None
        return (
            f"`{host}` leads to {found}, {kind_of(found)}: only an entry with the address itself "
            "opens that"
        )

    def __str__(self) -> str:
        entries = dict.fromkeys(
            one for hosts in (self.named, self.listed, self.opened) for one in hosts.entries
        )
        names = [("*." if one.below else "") + one.host for one in entries]
        return ", ".join(f"`{name}`" for name in dict.fromkeys(names)) or "none"


def special(host: str) -> str:
    """What a host is that nobody reaches by accident: this machine, a private address. Empty for
    all others, and for names.
    """
    if local(host):
        return "this machine"
    found = parse_address(host)
    return "" if found is None or is_open(found) else kind_of(found)


def named(addresses: Iterable[Address]) -> Hosts:
    """The hosts that stand literally in addresses, each with its port."""
    entries: list[str] = []
    for one in addresses:
        host = one.literal_host
        if host is not None:
            entries.append(f"[{host}]:{one.port}" if ":" in host else f"{host}:{one.port}")
    return Hosts.parse(dict.fromkeys(entries))


def check_address(address: Address, reachable: Reachable) -> None:
    """Whether the address of a tool can be meant. Raises Unfit."""
    host = address.literal_host
    if host is None:
        if not reachable.listed and not reachable.opened:
            raise Unfit(
                "its host is filled in by the call, so `hosts` must say which ones are possible"
            )
        return
    if why := reachable.refusal(address.secure, host, address.port):
        raise Unfit(f"{why}; list `{host}:{address.port}` there if you mean it")


def check_listed(entry: str, opened: Hosts) -> None:
    """Whether a repository's file may list an entry. Raises Unfit."""
    parsed = Hosts.parse([entry]).entries[0]
    if special(parsed.host) and not all(opened.allows(parsed.host, port) for port in parsed.ports):
        raise Unfit(
            f"`{entry}` is {special(parsed.host)}: a repository cannot open that; "
            "`tools.http_hosts` of your settings can"
        )


def host_of(text: str) -> str:
    """A host in its one spelling. Raises Unfit."""
    try:
        return canonical(text)
    except Unreadable as problem:
        raise Unfit(f"the host cannot be used: {problem}") from None
