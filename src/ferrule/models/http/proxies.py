"""Which proxy a request goes through: an explicit one, or the environment's.

The environment is read as curl and Go read it: `https_proxy`, `http_proxy`, `all_proxy` and
`no_proxy`, lower case before upper case. Loopback addresses never go through a proxy of the
environment: a local model server cannot be reached from there, and this mistake is common.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from ferrule.core.errors import ConfigError
from ferrule.core.web_addresses import split_web_address

from .http1 import encode_request_head


class Proxy(NamedTuple):
    """An HTTP proxy. `credentials` is the `Proxy-Authorization` value, empty if there is none."""

    host: str
    port: int
    credentials: str


def find_proxy(
    secure: bool, host: str, port: int, explicit: str | None, env: Mapping[str, str]
) -> Proxy | None:
    """Return the proxy for an origin, or None.

    Args:
        secure: Whether the origin uses https.
        host: The origin's host.
        port: The origin's port.
        explicit: A proxy that replaces the environment's; "" for none.
        env: The environment.

    Raises:
        ConfigError: The proxy cannot be used.
    """
    if explicit is not None:
        return parse_proxy(explicit) if explicit else None
    if is_loopback(host) or _is_excluded(host, port, _read_variable(env, "no_proxy")):
        return None
    for name in ("https_proxy" if secure else "http_proxy", "all_proxy"):
        # In CGI programs a web request's `Proxy:` header can set HTTP_PROXY in upper case.
        upper = "REQUEST_METHOD" not in env or name != "http_proxy"
        value = _read_variable(env, name, upper=upper)
        if value:
            return parse_proxy(value)
    return None


def encode_connect_request(host: str, port: int, credentials: str) -> bytes:
    """Return the CONNECT request that opens a tunnel (RFC 9110, section 9.3.6).

    The proxy sees the host's name and nothing of what is sent.
    """
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    headers = {"Proxy-Authorization": credentials} if credentials else {}
    return encode_request_head("CONNECT", authority, authority, headers, None)


def parse_proxy(url: str) -> Proxy:
    """Parse `http://user:password@host:port`; the scheme may be left out.

    Raises:
        ConfigError: It is not an HTTP proxy.
    """
    parts = split_web_address(url if "://" in url else f"http://{url}")
    if parts is None or parts.scheme != "http" or not parts.hostname:
        scheme = url.partition("://")[0] if "://" in url else "http"
        what = "the address of a proxy cannot be read"
        raise ConfigError(
            what if scheme == "http" else f"a `{scheme[:20]}` proxy is not supported",
            code="proxy",
            hint="use an HTTP proxy: `http://host:port` (it carries https through a tunnel)",
        )
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        credentials = "Basic " + b64encode(pair).decode()
    return Proxy(parts.hostname, parts.port or 80, credentials)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address means this machine, without asking DNS."""
    name = host.lower().rstrip(".")
    if name in ("localhost", "::1") or name.endswith(".localhost"):
        return True
    return _is_loopback_ipv4(name)


def _is_loopback_ipv4(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)


def _read_variable(env: Mapping[str, str], name: str, *, upper: bool = True) -> str:
    value = env.get(name, "")
    if not value and upper:
        value = env.get(name.upper(), "")
    return value


def _is_excluded(host: str, port: int, listed: str) -> bool:
    name = host.lower().rstrip(".")
    return any(_matches(name, port, item) for item in listed.lower().replace(",", " ").split())


def _matches(host: str, port: int, item: str) -> bool:
    if item == "*":
        return True
    if "/" in item:
        return _is_in_network(host, item)
    bare, colon, number = item.rpartition(":")
    if colon and number.isdigit() and ":" not in bare:
        if int(number) != port:
            return False
        item = bare
    domain = item.removeprefix("*").removeprefix(".")
    return host == domain or host.endswith("." + domain)


def _is_in_network(host: str, network: str) -> bool:
    # Imported here: only few environments have such a rule.
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
