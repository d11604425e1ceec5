"""The description of one A2A peer: where its card is, how we authenticate, and how far we trust it.

    A2aPeer("weather", url="https://weather.example.com", auth=Auth("WEATHER_TOKEN"))

A secret is named, never written: `Auth` holds the name of a variable, which is read when the peer
is asked. It goes to the origin of `url`, and to that of `endpoint` if the person wrote one, and
nowhere else: the addresses in a card add none.

A person's approval is bound to the digest of the description: the addresses, the header and the
variable, the keys that sign its card, and whether it is told the identity that a call is for. Peers
come from a program or from a person's own settings; a repository cannot name any.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen, options
from ferrule.models.http.proxies import is_loopback
from ferrule.tools.reliability import Policies

Origin = Literal["program", "person"]
Trust = Literal["low", "medium", "high"]
TRUST_LEVELS: tuple[Trust, ...] = ("low", "medium", "high")
CARD_PATH = "/.well-known/agent-card.json"
TIMEOUT = 120.0
"""Seconds that one call may take by default: the peer is an agent, not a function."""

NAME_LIMIT = 32
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_RESERVED = (
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "a2a-version",
)

UrlOrigin = tuple[str, str, int]
"""Scheme, host and port: what a URL may not leave."""


@frozen
class Auth:
    """The header that authenticates us: `<header>: <scheme> <value of the variable>`.

    Without a scheme it is the value alone.
    """

    variable: str
    header: str = "Authorization"
    scheme: str = "Bearer"

    def __post_init__(self) -> None:
        if not _VARIABLE.fullmatch(self.variable):
            raise ConfigError(
                f"`{self.variable}` is not a valid variable name", hint="write `${NAME}`"
            )
        if not _HEADER.fullmatch(self.header) or self.header.lower() in _RESERVED:
            raise ConfigError(f"`{self.header}` cannot be the header that holds a secret")
        if self.scheme and not _HEADER.fullmatch(self.scheme):
            raise ConfigError(f"`{self.scheme}` is not a valid authentication scheme")


@options
class A2aPeer:
    """One A2A peer.

    Args:
        name: Letters, digits, `-` and single `_`; tools are called `name__skill`.
        card_path: Joined to `url`.
        endpoint: Where the peer may be asked besides the origin of `url`.
        plain_http: Whether http to this machine is allowed.
        keys: A JWK set file; with it only a card that one of its keys signed is accepted.
        only: The peer's own ids of the skills to offer; None offers all.
        without: The peer's own ids of skills to leave out.
        trust: How far the person trusts it: the risk of its tools (`low`: high, `medium`: medium,
            `high`: low).
        timeout: Seconds for one attempt.
        policies: More about attempts.
        identity: Whether to send the peer the identity that a call is for.

    Raises:
        ConfigError: The description contradicts itself or has an invalid value.
    """

    name: str
    url: str
    card_path: str = CARD_PATH
    endpoint: str = ""
    auth: Auth | None = None
    plain_http: bool = False
    keys: str = ""
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    trust: Trust = "medium"
    timeout: float = TIMEOUT
    policies: Policies = Policies()
    deferred: bool = False
    identity: bool = False
    origin: Origin = "program"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > NAME_LIMIT:
            hint = (
                "use letters, digits, `-` and single `_`, starting with a letter, at most "
                f"{NAME_LIMIT} characters"
            )
            raise ConfigError(f"`{self.name}` cannot be the name of a peer", hint=hint)
        self._check_url(self.url)
        if self.endpoint:
            self._check_url(self.endpoint)
        if not self.card_path.startswith("/") or "://" in self.card_path or ".." in self.card_path:
            raise ConfigError(
                f"peer `{self.name}`: `{self.card_path}` cannot be the path of its card"
            )
        if self.trust not in TRUST_LEVELS:
            raise ConfigError(
                f"peer `{self.name}`: unknown trust `{self.trust}`",
                hint=f"use one of {', '.join(TRUST_LEVELS)}",
            )
        if not 0 < self.timeout <= 3600:
            raise ConfigError(
                f"peer `{self.name}`: `timeout` must be seconds, more than 0 and at most 3600"
            )

    @property
    def card_url(self) -> str:
        return self.url.rstrip("/") + self.card_path

    @property
    def allowed_origins(self) -> frozenset[UrlOrigin]:
        """The origins that may be asked for this peer."""
        return frozenset(url_origin(url) for url in (self.url, self.endpoint) if url)

    def allows_url(self, url: str) -> bool:
        """Return whether a URL that the peer named belongs to an origin that may be asked."""
        try:
            return url_origin(url) in self.allowed_origins
        except ValueError:
            return False

    def approval_facts(self) -> dict[str, Any]:
        """Return what the digest covers, as JSON that a person can read."""
        facts: dict[str, Any] = {"card": self.card_url}
        if self.endpoint:
            facts["endpoint"] = self.endpoint
        if self.auth is not None:
            facts["auth"] = f"{self.auth.header}: {self.auth.scheme} ${{{self.auth.variable}}}"
        if self.keys:
            facts["keys"] = self.keys
        facts["identity"] = self.identity
        facts["plain_http"] = self.plain_http
        return facts

    def digest(self) -> str:
        """Return SHA-256 (hex) over the name and `approval_facts`."""
        return hashlib.sha256(encode_json([self.name, self.approval_facts()]).encode()).hexdigest()

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            raise ConfigError(f"peer `{self.name}`: its address cannot be read") from None
        if not fits or parts.username or parts.password or parts.fragment or parts.query:
            raise ConfigError(
                f"peer `{self.name}`: `{parts.scheme}://{parts.hostname}` is not a valid URL for "
                "it",
                hint=(
                    "write `https://host/path`, without a user name, password, query or fragment"
                ),
            )
        is_local = is_loopback(parts.hostname or "")
        if parts.scheme == "http" and not (self.plain_http and is_local):
            hint = "set `plain_http: true` if you mean this machine" if is_local else "use https"
            raise ConfigError(
                f"peer `{self.name}`: `http://{parts.hostname}` would send everything in the clear",
                hint=hint,
            )


def url_origin(url: str) -> UrlOrigin:
    """Return the origin of a URL. Raises ValueError if it is not an http or https URL."""
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username
        or parts.password
    ):
        raise ValueError("not a web address")
    default_port = 443 if parts.scheme == "https" else 80
    return parts.scheme, parts.hostname.lower(), parts.port or default_port


def secret_headers(peer: A2aPeer, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the header that authenticates us to a peer.

    Its secret is read from `environment`, the environment of this process by default.

    Raises:
        ConfigError: The variable is not set or unfit. Names the variable, never its value.
    """
    if peer.auth is None:
        return {}
    value = (os.environ if environment is None else environment).get(peer.auth.variable, "")
    if not value:
        raise ConfigError(
            f"peer `{peer.name}` needs `{peer.auth.variable}`, which is not set", hint="set it"
        )
    if not value.isascii() or not value.isprintable():
        raise ConfigError(
            f"peer `{peer.name}`: the value of `{peer.auth.variable}` cannot be sent in a header"
        )
    return {peer.auth.header: f"{peer.auth.scheme} {value}".strip()}
