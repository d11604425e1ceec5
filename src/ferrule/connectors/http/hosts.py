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

from ferrule.core.value_class import frozen
from ferrule.sandbox.network.allowed_hosts import AllowedHosts, is_localhost
from ferrule.sandbox.network.ip_addresses import describe_address, is_public, parse_address

from .templates import TemplateError
from .url_templates import UrlTemplate


@frozen
class ReachableHosts:
    """The hosts that may be reached.

    `named` are the hosts of URLs, `listed` those of `hosts`, `opened` those of them that the person
    answers for.
    """

    named: AllowedHosts = AllowedHosts()
    listed: AllowedHosts = AllowedHosts()
    opened: AllowedHosts = AllowedHosts()

    def refuse_host(self, secure: bool, host: str, port: int) -> str | None:
        """Return why a host may not be asked at all, or None if it may. Resolves nothing."""
        if not any(hosts.allows(host, port) for hosts in (self.named, self.listed, self.opened)):
            return (
                f"`{host}` with port {port} is none of the hosts that this tool may reach: {self}"
            )
        restriction = restriction_of(host)
        if not restriction and not secure:
            restriction = "reached over plain http"
        if restriction and not self.opened.allows(host, port):
            return (
                f"`{host}` is {restriction}, which only an entry of `hosts` opens: a key of your "
                "own manifest, an argument of `openapi_tools` (for a repository's file: the "
                "setting `tools.http_hosts`)"
            )
        return None

    def refuse_address(self, host: str, port: int, address: str) -> str | None:
        """Return why an allowed host may not be reached at the address it resolved to, or None."""
        parsed = parse_address(address)
        if parsed is None:
            return f"`{host}` does not resolve to an address"
        if is_localhost(host):
            return None if parsed.is_loopback else f"`{host}` must be this machine, not {parsed}"
        if is_public(parsed) or self.opened.address_refusal(host, port, str(parsed)) is None:
            return None
        return (
            f"`{host}` leads to {parsed}, {describe_address(parsed)}: only an entry with the "
            f"address itself "
            "opens that"
        )

    def __str__(self) -> str:
        entries = (*self.named.entries, *self.listed.entries, *self.opened.entries)
        names = [("*." if entry.subdomains else "") + entry.host for entry in entries]
        return ", ".join(f"`{name}`" for name in dict.fromkeys(names)) or "none"


def restriction_of(host: str) -> str:
    """Return what a host is that must not be reached by accident: this machine, a private address.

    Empty for all other addresses, and for names.
    """
    if is_localhost(host):
        return "this machine"
    address = parse_address(host)
    if address is None or is_public(address):
        return ""
    return describe_address(address)


def literal_hosts(addresses: Iterable[UrlTemplate]) -> AllowedHosts:
    """Return the hosts that are literal in URLs, each with its port."""
    entries: list[str] = []
    for address in addresses:
        host = address.literal_host
        if host is not None:
            entries.append(f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}")
    return AllowedHosts.parse(dict.fromkeys(entries))


def check_url_host(address: UrlTemplate, reachable: ReachableHosts) -> None:
    """Check that the host of a tool's URL may be reached. Raises TemplateError."""
    host = address.literal_host
    if host is None:
        if not reachable.listed and not reachable.opened:
            raise TemplateError(
                "its host is filled in by the call, so `hosts` must say which ones are possible"
            )
        return
    refusal = reachable.refuse_host(address.is_secure, host, address.port)
    if refusal:
        raise TemplateError(f"{refusal}; if you mean it, write `{host}:{address.port}` there")


def check_repository_host(entry: str, opened: AllowedHosts) -> None:
    """Check that a repository's file may list an entry. Raises TemplateError."""
    parsed = AllowedHosts.parse([entry]).entries[0]
    if restriction_of(parsed.host) and not all(
        opened.allows(parsed.host, port) for port in parsed.ports
    ):
        raise TemplateError(
            f"`{entry}` is {restriction_of(parsed.host)}: a repository cannot open that; "
            "`tools.http_hosts` of your settings can"
        )
