"""`network.allowed_domains`: which hosts a script may reach. Text only; no I/O.

Source: systems.md §4.1, "Network and file jails" (requirement 003). The rules:

* No entries: any host of the open internet. Entries: nothing else.
* `example.com` covers itself and all names below it; `*.example.com` only the names below; `*`
  every host.
* An address is reached only with `*`, or if the entry is that very address.
* Case, a port and a dot at the end mean nothing. Only `http` and `https`.

Beyond the source: a name never opens what it resolves to. An address that is not the open internet
(this machine, its neighbours, a cloud's metadata) is reached only by an entry with that address, or
by `localhost` for this machine.

Not protected: an allowed host that passes requests on, or redirects within what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.models.http.dialing import Target, parse_target
from ferrule.sandbox.network.allowed_hosts import Unreadable, canonical, local
from ferrule.sandbox.network.ip_addresses import is_open, kind_of, parse_address

_PORT = re.compile(r":[0-9]{1,5}$")


def parse_url(url: str) -> Target:
    """Raises ToolFailed for what is not exactly one http or https address without a user name."""
    try:
        return parse_target(url)
    except Unreadable as problem:
        shown = url if len(url) <= 100 else url[:100] + "..."
        why = f"network sandbox: `{shown}` was not requested: {problem}"
        raise ToolFailed(ErrorType.PERMISSION_DENIED, why) from None


@dataclass(frozen=True, slots=True)
class Domains:
    """What `allowed_domains` opens. Several lists hold together: `narrowed` by another, both must
    allow.
    """

    lists: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Domains:
        """Raises ConfigError for an entry that is no host, naming it."""
        found = tuple(_entry(text) for text in entries)
        return cls((found,) if found else ())

    def narrowed(self, other: Domains) -> Domains:
        """What both allow."""
        return Domains(self.lists + other.lists)

    def refusal(self, host: str) -> str | None:
        """Why a host (in its one spelling) may not be reached; None if it may."""
        if any(not any(_names(entry, host) for entry in entries) for entries in self.lists):
            return f"`{host}` is not among the allowed domains"
        if not self.lists and (parse_address(host) is not None or local(host)):
            return (
                f"`{host}` is an address, not a domain; only an entry of the allowed domains "
                "opens it"
            )
        return None

    def closed(self, host: str, address: str) -> str | None:
        """Why an allowed host may not be reached at an address that it resolved to; None if it
        may.
        """
        found = parse_address(address)
        if found is None:
            return "it does not resolve to an address"
        if local(host):
            return None if found.is_loopback else f"`{host}` must be this machine, not {found}"
        if is_open(found) or (self.lists and all(str(found) in entries for entries in self.lists)):
            return None
        return (
            f"`{host}` leads to {found}, {kind_of(found)}: only the address itself among the "
            "allowed domains opens that"
        )


def _names(entry: str, host: str) -> bool:
    if entry == "*":
        return True
    if entry.startswith("*."):
        return host.endswith(entry[1:])
    if parse_address(entry) is not None or parse_address(host) is not None:
        return entry == host
    return host == entry or host.endswith(f".{entry}")


def _entry(text: str) -> str:
    name = _PORT.sub("", text.strip()) if text.count(":") == 1 or "]" in text else text.strip()
    if name == "*":
        return name
    below = name.startswith("*.")
    try:
        if "//" in name:
            raise Unreadable("it is a URL; only its host is named")
        host = canonical(name.removeprefix("*."))
    except Unreadable as problem:
        raise ConfigError(
            f"network.allowed_domains: found `{text}`, but {problem}",
            code="network",
            hint="write `example.com`, `*.example.com`, `192.0.2.1` or `*`",
        ) from None
    if below and (parse_address(host) is not None or "." not in host):
        raise ConfigError(
            f"network.allowed_domains: found `{text}`; `*.` needs a domain with a dot",
            code="network",
        )
    return f"*.{host}" if below else host
