"""`network.allowed_domains`: which hosts a script may reach. Text only; no I/O.

Source: systems.md §4.1, "Network and file jails" (requirement 003). The rules:

* Without entries, any host of the open internet is allowed. With entries, nothing else.
* `example.com` covers itself and all names below it; `*.example.com` only the names below; `*`
  every host.
* An IP address is reached only with `*`, or if the entry is exactly that address.
* Case, a port and a final dot are ignored. Only `http` and `https` are allowed.

Beyond the source: a name never allows what it resolves to. An address that is not on the open
internet (this machine, its neighbours, a cloud's metadata service) is reached only by an entry with
that address, or by `localhost` for this machine.

Not protected: an allowed host that passes requests on, or redirects within what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.models.http.dialing import Target, parse_target
from ferrule.sandbox.network.allowed_hosts import InvalidHost, canonicalize_host, is_localhost
from ferrule.sandbox.network.ip_addresses import describe_address, is_public, parse_address

_PORT = re.compile(r":[0-9]{1,5}$")


def parse_url(url: str) -> Target:
    """Parse one http or https URL without a user name. Raises ToolFailed for anything else."""
    try:
        return parse_target(url)
    except InvalidHost as problem:
        shown = url if len(url) <= 100 else url[:100] + "..."
        message = f"network sandbox: `{shown}` was not requested: {problem}"
        raise ToolFailed(ErrorType.PERMISSION_DENIED, message) from None


@frozen
class AllowedDomains:
    """The hosts that `allowed_domains` allows. With several lists, each must allow a host."""

    lists: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> AllowedDomains:
        """Parse entries. Raises ConfigError for one that is not a host."""
        parsed = tuple(map(_parse_entry, entries))
        return cls((parsed,) if parsed else ())

    def intersect(self, other: AllowedDomains) -> AllowedDomains:
        """Return the hosts that both allow."""
        return AllowedDomains(self.lists + other.lists)

    def refusal_reason(self, host: str) -> str | None:
        """Return why a host (in canonical spelling) may not be reached, or None if it may."""
        for entries in self.lists:
            if not any(_matches(entry, host) for entry in entries):
                return f"`{host}` is not among the allowed domains"
        if not self.lists and (parse_address(host) is not None or is_localhost(host)):
            return (
                f"`{host}` is an address, not a domain; only an entry of the allowed domains "
                "allows it"
            )
        return None

    def address_refusal_reason(self, host: str, address: str) -> str | None:
        """Return why an allowed host may not be reached at this address, or None if it may."""
        parsed = parse_address(address)
        if parsed is None:
            return "it does not resolve to an address"
        if is_localhost(host):
            return None if parsed.is_loopback else f"`{host}` must be this machine, not {parsed}"
        is_listed = bool(self.lists) and all(str(parsed) in entries for entries in self.lists)
        if is_public(parsed) or is_listed:
            return None
        return (
            f"`{host}` resolves to {parsed}, {describe_address(parsed)}: that is allowed only if "
            f"the "
            "address itself is among the allowed domains"
        )


def _matches(entry: str, host: str) -> bool:
    if entry == "*":
        return True
    if entry.startswith("*."):
        return host.endswith(entry[1:])
    # In canonical spelling no name ends like an address, so an address is below nothing.
    return host == entry or host.endswith(f".{entry}")


def _parse_entry(text: str) -> str:
    name = text.strip()
    if text.count(":") == 1 or "]" in text:
        name = _PORT.sub("", name)
    if name == "*":
        return name
    is_wildcard = name.startswith("*.")
    try:
        if "//" in name:
            raise InvalidHost("it is a URL, not a host")
        host = canonicalize_host(name.removeprefix("*."))
    except InvalidHost as problem:
        raise ConfigError(
            f"network.allowed_domains: found `{text}`, but {problem}",
            code="network",
            hint="write `example.com`, `*.example.com`, `192.0.2.1` or `*`",
        ) from None
    if is_wildcard and (parse_address(host) is not None or "." not in host):
        raise ConfigError(
            f"network.allowed_domains: found `{text}`; `*.` needs a domain with a dot",
            code="network",
        )
    return f"*.{host}" if is_wildcard else host
