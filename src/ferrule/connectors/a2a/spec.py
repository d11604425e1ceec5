"""A peer as somebody wrote it down: where its card is, how it knows us, and how far it is believed.

    A2aPeer("weather", url="https://weather.example.com", auth=Auth("WEATHER_TOKEN"))

A secret is named, never written: `Auth` holds the name of a variable, which is read when the peer
is asked. It goes to the origin of `url`, and to that of `endpoint` where the person wrote one, and
nowhere else: what a card says of addresses opens none.

The digest of a peer is what a person's approval is bound to: the addresses, the header and the
variable, the keys that sign its card, and whether it is told who a call is for. Peers come from a
program or from a person's own settings; a repository names none.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from ferrule.core.calls import compact
from ferrule.core.errors import ConfigError
from ferrule.models.http.proxies import loopback
from ferrule.tools.reliability import Policies

Origin = Literal["program", "person"]
Trust = Literal["low", "medium", "high"]
TRUST: tuple[Trust, ...] = ("low", "medium", "high")
CARD_PATH = "/.well-known/agent-card.json"
TIMEOUT = 120.0
"""Seconds that one call may take where nobody says otherwise: at the other end is an agent, not a
function.
"""

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

Place = tuple[str, str, int]
"""Scheme, host and port: what an address may not leave."""


@dataclass(frozen=True, slots=True)
class Auth:
    """How a peer knows us: `<header>: <scheme> <value of the variable>`; without a scheme the value
    alone.
    """

    variable: str
    header: str = "Authorization"
    scheme: str = "Bearer"

    def __post_init__(self) -> None:
        if not _VARIABLE.fullmatch(self.variable):
            raise ConfigError(f"`{self.variable}` is no name of a variable", hint="write `${NAME}`")
        if not _HEADER.fullmatch(self.header) or self.header.lower() in _RESERVED:
            raise ConfigError(f"`{self.header}` cannot be the header that a secret goes in")
        if self.scheme and not _HEADER.fullmatch(self.scheme):
            raise ConfigError(f"`{self.scheme}` is no scheme of authentication")


@dataclass(frozen=True, slots=True)
class A2aPeer:
    """One peer. `card_path` is joined to `url`; `endpoint` is where it may be asked besides the
    origin of `url`.

    `plain_http` allows http to this machine. `keys` is a JWK set file: with it only a card that one
    of its keys signed is taken. `only` and `without` choose among the skills by the peer's own ids.
    `trust` is the person's word on it: what its tools risk (`low`: high, `medium`, `high`: low).
    `identity` tells it who a call is for. `timeout` is in seconds, for one attempt; `policies` say
    more of attempts. Raises ConfigError for what cannot be meant.
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
                f"letters, digits, `-` and single `_`, beginning with a letter, {NAME_LIMIT} at "
                "the most"
            )
            raise ConfigError(f"`{self.name}` cannot be the name of a peer", hint=hint)
        for url in (self.url, *((self.endpoint,) if self.endpoint else ())):
            self._check(url)
        if not self.card_path.startswith("/") or "://" in self.card_path or ".." in self.card_path:
            raise ConfigError(
                f"peer `{self.name}`: `{self.card_path}` cannot be the path of its card"
            )
        if self.trust not in TRUST:
            raise ConfigError(
                f"peer `{self.name}`: trust `{self.trust}`", hint=f"use {', '.join(TRUST)}"
            )
        if not 0 < self.timeout <= 3600:
            raise ConfigError(
                f"peer `{self.name}`: `timeout` must be seconds, more than 0, 3600 at the most"
            )

    @property
    def card_url(self) -> str:
        return self.url.rstrip("/") + self.card_path

    @property
    def places(self) -> frozenset[Place]:
        """The origins that may be asked for this peer."""
        return frozenset(place_of(url) for url in (self.url, self.endpoint) if url)

    def admits(self, url: str) -> bool:
        """Whether an address that a stranger named is one that this peer may be asked at."""
        try:
            return place_of(url) in self.places
        except ValueError:
            return False

    def covered(self) -> dict[str, Any]:
        """What the digest covers, as JSON, in words for a person."""
        said: dict[str, Any] = {"card": self.card_url}
        if self.endpoint:
            said["endpoint"] = self.endpoint
        if self.auth is not None:
            said["auth"] = f"{self.auth.header}: {self.auth.scheme} ${{{self.auth.variable}}}"
        if self.keys:
            said["keys"] = self.keys
        said["identity"], said["plain_http"] = self.identity, self.plain_http
        return said

    def digest(self) -> str:
        """SHA-256 (hex) over the name and what `covered` shows."""
        return hashlib.sha256(compact([self.name, self.covered()]).encode()).hexdigest()

    def _check(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            raise ConfigError(f"peer `{self.name}`: its address cannot be read") from None
        if not fits or parts.username or parts.password or parts.fragment or parts.query:
            raise ConfigError(
                f"peer `{self.name}`: `{parts.scheme}://{parts.hostname}` cannot be its address",
                hint="write `https://host/path`, without a name, a password or a query in it",
            )
        if parts.scheme == "http" and not (self.plain_http and loopback(parts.hostname or "")):
            local = loopback(parts.hostname or "")
            raise ConfigError(
                f"peer `{self.name}`: `http://{parts.hostname}` would send everything in the clear",
                hint="say `plain_http: true` if you mean this machine" if local else "use https",
            )


def place_of(url: str) -> Place:
    """The origin of an address. Raises ValueError for what is none."""
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username
        or parts.password
    ):
        raise ValueError("no address of the web")
    return (
        parts.scheme,
        parts.hostname.lower(),
        parts.port or (443 if parts.scheme == "https" else 80),
    )


def secret_headers(peer: A2aPeer, parent: Mapping[str, str] | None = None) -> dict[str, str]:
    """The header that a peer knows us by, its secret read from `parent` (this process's environment
    by default).

    Raises ConfigError naming the variable, never its value.
    """
    if peer.auth is None:
        return {}
    value = (os.environ if parent is None else parent).get(peer.auth.variable, "")
    if not value:
        raise ConfigError(
            f"peer `{peer.name}` needs `{peer.auth.variable}`, which is not set", hint="set it"
        )
    if not value.isascii() or not value.isprintable():
        raise ConfigError(
            f"peer `{peer.name}`: what `{peer.auth.variable}` holds cannot be in a header"
        )
    return {peer.auth.header: f"{peer.auth.scheme} {value}".strip()}
