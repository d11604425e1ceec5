"""Which hosts a web page is drawn from: those that scripts may reach and no rule denies.

The rules are those of `http` in scripts (`engine.web.domains`). The page itself and all that it
loads pass them, redirects included, and each host is put to the rules of the session as the
address of a call: one that a rule denies is not reached by way of another page.
"""

from __future__ import annotations

from collections.abc import Callable

from ferrule.engine.web.domains import AllowedDomains
from ferrule.sandbox.network.allowed_hosts import InvalidHost, canonicalize_host

BROWSER_ITSELF = "the browser asks for it by itself, not for the page"
_BROWSER_HOSTS = frozenset(
    {
        "accounts.google.com",
        "android.clients.google.com",
        "clients2.google.com",
        "content-autofill.googleapis.com",
        "edgedl.me.gvt1.com",
        "mtalk.google.com",
        "optimizationguide-pa.googleapis.com",
        "redirector.gvt1.com",
        "safebrowsing.googleapis.com",
        "update.googleapis.com",
    }
)
"""What Chromium asks for at every start, whatever options forbid it (seen with version 156)."""


class PageHosts:
    """The hosts of one page; see `sandbox.network.allowed_hosts.HostRules`.

    Args:
        domains: The hosts that may be reached.
        find_denial: Returns why the session's rules deny an address, else "".
        page_host: The host of the page itself, in canonical form.
    """

    includes_loopback = True
    """The browser asks for this machine through the proxy, too, where `domains` decide about it."""

    def __init__(
        self, domains: AllowedDomains, find_denial: Callable[[str], str], page_host: str
    ) -> None:
        self._domains = domains
        self._page_host = page_host
        self._find_denial = find_denial
        self._denials: dict[str, str] = {}

    def refusal(self, host: str, port: int) -> str | None:
        try:
            host = canonicalize_host(host)
        except InvalidHost as problem:
            return f"the host is refused: {problem}"
        if host in _BROWSER_HOSTS and host != self._page_host:
            return BROWSER_ITSELF
        return self._domains.refusal_reason(host) or self._denial(host) or None

    def _denial(self, host: str) -> str:
        # A page loads a hundred files from one host.
        if host not in self._denials:
            shown = f"[{host}]" if ":" in host else host
            self._denials[host] = self._find_denial(f"https://{shown}/")
        return self._denials[host]

    def address_refusal(self, host: str, port: int, address: str) -> str | None:
        return self._domains.address_refusal_reason(canonicalize_host(host), address)
