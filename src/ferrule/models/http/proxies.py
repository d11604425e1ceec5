"""Which proxy a request goes through: an explicit one, or the environment's.

The environment is read as curl and Go read it: `https_proxy`, `http_proxy`, `all_proxy` and
`no_proxy`, lower case before upper case. Loopback addresses never go through a proxy of the
environment: a local model server is not reachable from there, and this is the mistake that people
make.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from ferrule.core.errors import ConfigError

from .http1 import request_head

Proxy = tuple[str, int, str]
"""Host, port and the `Proxy-Authorization` value (empty if none)."""


def proxy_for(
    secure: bool, host: str, port: int, explicit: str | None, env: Mapping[str, str]
) -> Proxy | None:
    """The proxy for an origin, or None. `explicit` "" means: never one. Raises ConfigError for an
    unusable one.
    """
    if explicit is not None:
        return parse_proxy(explicit) if explicit else None
    if loopback(host) or _excluded(host, port, _setting(env, "no_proxy")):
        return None
    # HTTP_PROXY in upper case can be set by a web request's `Proxy:` header in CGI programs.
    names = ("https_proxy", "all_proxy") if secure else ("http_proxy", "all_proxy")
    for name in names:
        upper = "REQUEST_METHOD" not in env or name != "http_proxy"
        if value := _setting(env, name, upper=upper):
            return parse_proxy(value)
    return None


def tunnel_head(host: str, port: int, credentials: str) -> bytes:
    """What asks a proxy for a tunnel: CONNECT (RFC 9110, section 9.3.6). It sees the host's name
    and nothing of what is said.
    """
    where = f"{f'[{host}]' if ':' in host else host}:{port}"
    fields = {"Proxy-Authorization": credentials} if credentials else {}
    return request_head("CONNECT", where, where, fields, None)


def parse_proxy(url: str) -> Proxy:
    """`http://user:password@host:port`; the scheme may be left out."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigError(
            f"a `{parts.scheme}` proxy is not supported",
            code="proxy",
            hint="use an HTTP proxy: `http://host:port` (it carries https through a tunnel)",
        )
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        from base64 import b64encode

        credentials = "Basic " + b64encode(pair).decode()
    return parts.hostname, parts.port or 80, credentials


def loopback(host: str) -> bool:
    """Whether a host name or address means this machine, without asking DNS."""
    name = host.lower().rstrip(".")
    return (
        name == "localhost"
        or name.endswith(".localhost")
        or name == "::1"
        or _dotted_loopback(name)
    )


def _dotted_loopback(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)


def _setting(env: Mapping[str, str], name: str, *, upper: bool = True) -> str:
    return env.get(name) or (env.get(name.upper(), "") if upper else "")


def _excluded(host: str, port: int, listed: str) -> bool:
    name = host.lower().rstrip(".")
    return any(_matches(name, port, item) for item in listed.lower().replace(",", " ").split())


def _matches(host: str, port: int, item: str) -> bool:
    if item == "*":
        return True
    if "/" in item:
        return _in_network(host, item)
    bare, colon, number = item.rpartition(":")
    if colon and number.isdigit() and ":" not in bare:
        if int(number) != port:
            return False
        item = bare
    domain = item.removeprefix("*").removeprefix(".")
    return host == domain or host.endswith("." + domain)


def _in_network(host: str, network: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
