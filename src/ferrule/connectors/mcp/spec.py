"""A server as somebody wrote it down: what is started or reached, with what, and how far it may go.

    McpServer("git", command=("mcp-server-git", "--repository", ".")) McpServer("docs",
    url="https://mcp.example.com/mcp", headers={"Authorization": "Bearer ${DOCS_TOKEN}"})

Values of `env` and `headers` may name variables (`${NAME}`, `${NAME:-otherwise}`); so may words of
the command and the address. They are filled in when the server is started, so no secret lies in
this value. Whoever wrote it (`origin`) decides which variables may be named: a person all of
theirs, a repository only those of `env.allow` and the usual few (`permissions.child_environment`).

The digest of a server is what a person's approval is bound to. It covers the words of the command,
the address, the names and templates of variables and headers, the workspace where the file came
with one, and how far the sandbox is opened. Not covered: the program that the command names. Who
can replace it can do what the sandbox lets the server do.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

from ferrule.core.calls import compact
from ferrule.core.errors import ConfigError
from ferrule.permissions.child_environment import child_environment, looks_secret
from ferrule.permissions.variables import loads_code
from ferrule.tools.reliability import Policies

Origin = Literal["program", "person", "repository"]
Era = Literal["auto", "2026-07-28", "2025-11-25"]
Transport = Literal["stdio", "http", "sse"]
ERAS: tuple[Era, ...] = ("auto", "2026-07-28", "2025-11-25")

NAME_LIMIT = 32
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True)
class OAuth:
    """Signing in to a server that asks for it. Without `client_id` the client registers itself (RFC
    7591).
    """

    client_id: str = ""
    client_secret: str = ""
    """A reference, `${NAME}`."""
    scope: str = ""
    metadata_url: str = ""
    """Where the client describes itself, in place of registering (a client id metadata document of
    the person's own).
    """
    port: int = 0
    """Of the address on this machine that the browser comes back to; 0 takes any that is free."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """One server. Either `command` (started here, spoken to over its standard streams) or `url`.

    `network` are hosts that a started server may reach, `readable` and `writable` folders it sees
    besides the workspace; without `workspace` it does not see that either. `era` pins a version of
    the protocol. `only` and `without` choose among its tools by the server's own names. `hints`
    believes what its tools say of themselves (`readOnlyHint`): for servers whose author the person
    trusts. `identity` sends it who a call is for. Times are in seconds. Raises ConfigError for what
    cannot be meant.
    """

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    transport: Transport = "stdio"
    era: Era = "auto"
    network: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    workspace: bool = True
    policies: Policies = Policies()
    connect_timeout: float = 30.0
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    deferred: bool = False
    hints: bool = False
    identity: bool = False
    oauth: OAuth | None = None
    origin: Origin = "program"
    place: str = ""
    """The folder whose file names it; empty unless `origin` is `repository`."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > NAME_LIMIT:
            hint = (
                f"letters, digits, `-` and single `_`, beginning with a letter, {NAME_LIMIT} at "
                "the most"
            )
            raise ConfigError(f"`{self.name}` cannot be the name of a server", hint=hint)
        if bool(self.command) == bool(self.url):
            raise ConfigError(f"server `{self.name}` needs a `command` or a `url`, one of them")
        if self.url and self.transport == "stdio":
            object.__setattr__(self, "transport", "http")
        if self.url:
            _check_url(self.name, self.url)
        for name in self.headers:
            if not _HEADER.fullmatch(name):
                raise ConfigError(f"server `{self.name}`: `{name}` is no name of a header")
        if self.era not in ERAS:
            raise ConfigError(
                f"server `{self.name}`: era `{self.era}`", hint=f"use one of {', '.join(ERAS)}"
            )

    def covered(self) -> dict[str, Any]:
        """What the digest covers, as JSON, in words for a person."""
        said: dict[str, Any] = {"url": self.url} if self.url else {"command": list(self.command)}
        said["transport"] = self.transport
        for key in ("env", "headers"):
            if given := getattr(self, key):
                said[key] = {name: _shown(name, given[name]) for name in sorted(given)}
        if self.oauth is not None:
            said["oauth"] = {"client_id": self.oauth.client_id, "scope": self.oauth.scope}
        if self.command:
            said["network"], said["readable"] = sorted(self.network), sorted(self.readable)
            said["writable"], said["workspace"] = sorted(self.writable), self.workspace
        if self.place:
            said["folder"] = self.place
        return said

    def digest(self) -> str:
        """SHA-256 (hex) over what `covered` shows, and over what it hides of literal values."""
        hidden = [
            [name, value]
            for given in (self.env, self.headers)
            for name, value in sorted(given.items())
        ]
        return hashlib.sha256(compact([self.name, self.covered(), hidden]).encode()).hexdigest()

    def variables(self) -> tuple[str, ...]:
        """The names of variables that it refers to, sorted."""
        secret = self.oauth.client_secret if self.oauth else ""
        texts = (*self.command, self.url, secret, *self.env.values(), *self.headers.values())
        return tuple(sorted({found[1] for text in texts for found in _REFERENCE.finditer(text)}))


@dataclass(frozen=True, slots=True)
class Filled:
    """A server's texts with variables filled in. Holds secrets: neither shown nor kept."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    url: str
    headers: Mapping[str, str]
    secret: str

    def __repr__(self) -> str:
        return "Filled(…)"


def fill(
    server: McpServer, *, allowed: tuple[str, ...] = (), parent: Mapping[str, str] | None = None
) -> Filled:
    """Fill in variables from `parent` (this process's by default). `allowed` are names that a
    repository may use.

    Raises ConfigError naming the variable that is not set or may not be used, never its value.
    """
    given = os.environ if parent is None else parent
    if server.origin == "repository":
        for name in server.env:
            if loads_code(name):
                raise ConfigError(
                    f"server `{server.name}`: `{name}` makes programs load something else"
                )
        given = child_environment(given, add=allowed).values
    put = _filler(server, given)
    url = put(server.url)
    if url:
        _check_url(server.name, url)
    return Filled(
        tuple(put(word) for word in server.command),
        {name: put(value) for name, value in server.env.items()},
        url,
        {name: put(value) for name, value in server.headers.items()},
        put(server.oauth.client_secret) if server.oauth else "",
    )


def _filler(server: McpServer, given: Mapping[str, str]) -> Callable[[str], str]:
    def put(text: str) -> str:
        return _REFERENCE.sub(value, text)

    def value(found: re.Match[str]) -> str:
        name, otherwise = found[1], found[2]
        if name in given:
            return given[name]
        if otherwise is not None:
            return otherwise
        hint = "set it"
        if server.origin == "repository":
            hint = (
                "set it, and name it in `env.allow`: a repository's server gets no other variables"
            )
        raise ConfigError(
            f"server `{server.name}` refers to `{name}`, which it does not get", hint=hint
        )

    return put


def _shown(name: str, value: str) -> str:
    """A value as it was written; literal ones that may be secret only by their length."""
    if _REFERENCE.search(value) or not (looks_secret(name) or name.lower() == "authorization"):
        return value
    return f"({len(value)} characters)"


def _check_url(name: str, url: str) -> None:
    if _REFERENCE.search(url):
        return  # looked at again once it is filled in
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username
        or parts.fragment
    ):
        raise ConfigError(
            f"server `{name}`: `{parts.scheme}://{parts.hostname}` cannot be its address",
            hint="write `https://host/path`, without a name or password in it",
        )
    if parts.scheme == "http" and not is_local(parts.hostname):
        raise ConfigError(
            f"server `{name}`: `http://{parts.hostname}` would send everything in the clear",
            hint="use https; plain http is for this machine only",
        )


def is_local(host: str) -> bool:
    """Whether a host, as it is written in an address, is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
