"""Which hosts the tools of a file may reach: those in its URLs and those in `hosts`. No I/O.

* A host that is literal in a URL of the file, with that port; and the entries of `hosts`
  (`sandbox.network.allowed_hosts` has their form).
* A host that a call fills in, or that a server redirects to, must be one of these.
* A name opens nothing but the open internet. This machine, private networks and a cloud's metadata
  service are reached only if `hosts` names the address itself (or `localhost`), and plain http only
  if `hosts` names the host.
* In a repository's file `hosts` cannot open those: only the person can, in `tools.http_hosts` of
  their own settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ferrule.sandbox.network.allowed_hosts import Hosts, local
from ferrule.sandbox.network.ip_addresses import is_open, kind_of, parse_address

from .templates import Unfit
from .url_templates import Address


@dataclass(frozen=True, slots=True)
class Reachable:
    """The hosts that may be reached.

    `named` are the hosts of URLs, `listed` those of `hosts`, `opened` those of them that the person
    answers for.
    """

    named: Hosts = Hosts()
    listed: Hosts = Hosts()
    opened: Hosts = Hosts()

    def refusal(self, secure: bool, host: str, port: int) -> str | None:
        """Return why a host may not be asked at all, or None if it may. Resolves nothing."""
        if not any(hosts.allows(host, port) for hosts in (self.named, self.listed, self.opened)):
            return (
                f"`{host}` with port {port} is none of the hosts that this tool may reach: {self}"
            )
        restriction = special(host)
        if not restriction and not secure:
            restriction = "reached over plain http"
        if restriction and not self.opened.allows(host, port):
            return (
                f"`{host}` is {restriction}: only `hosts` of your own file opens that (for a "
                "repository's file: `tools.http_hosts`)"
            )
        return None

    def closed(self, host: str, port: int, address: str) -> str | None:
        """Return why an allowed host may not be reached at the address it resolved to, or None."""
        parsed = parse_address(address)
        if parsed is None:
            return f"`{host}` does not resolve to an address"
        if local(host):
            return None if parsed.is_loopback else f"`{host}` must be this machine, not {parsed}"
        if is_open(parsed) or self.opened.closed(host, port, str(parsed)) is None:
            return None
        return (
            f"`{host}` leads to {parsed}, {kind_of(parsed)}: only an entry with the address itself "
            "opens that"
        )

    def __str__(self) -> str:
        entries = (*self.named.entries, *self.listed.entries, *self.opened.entries)
        names = [("*." if entry.below else "") + entry.host for entry in entries]
        return ", ".join(f"`{name}`" for name in dict.fromkeys(names)) or "none"


def special(host: str) -> str:
    """Return what a host is that must not be reached by accident: this machine, a private address.

    Empty for all other addresses, and for names.
    """
    if local(host):
        return "this machine"
    address = parse_address(host)
    if address is None or is_open(address):
        return ""
    return kind_of(address)


def named(addresses: Iterable[Address]) -> Hosts:
    """Return the hosts that are literal in URLs, each with its port."""
    entries: list[str] = []
    for address in addresses:
        host = address.literal_host
        if host is not None:
            entries.append(f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}")
    return Hosts.parse(dict.fromkeys(entries))


def check_address(address: Address, reachable: Reachable) -> None:
    """Check that the host of a tool's URL may be reached. Raises Unfit."""
    host = address.literal_host
    if host is None:
        if not reachable.listed and not reachable.opened:
            raise Unfit(
                "its host is filled in by the call, so `hosts` must say which ones are possible"
            )
        return
    refusal = reachable.refusal(address.secure, host, address.port)
    if refusal:
        raise Unfit(f"{refusal}; list `{host}:{address.port}` there if you mean it")


def check_listed(entry: str, opened: Hosts) -> None:
    """Check that a repository's file may list an entry. Raises Unfit."""
    parsed = Hosts.parse([entry]).entries[0]
    if special(parsed.host) and not all(opened.allows(parsed.host, port) for port in parsed.ports):
        raise Unfit(
            f"`{entry}` is {special(parsed.host)}: a repository cannot open that; "
            "`tools.http_hosts` of your settings can"
        )
