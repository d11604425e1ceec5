"""The description of one MCP server: what is started or reached, with what, and with which rights.

    McpServer("git", command=("mcp-server-git", "--repository", "."))
    McpServer(
        "docs",
        url="https://mcp.example.com/mcp",
        headers={"Authorization": "Bearer ${DOCS_TOKEN}"},
    )

Values of `env` and `headers` may refer to variables (`${NAME}`, `${NAME:-default}`); so may the
arguments of the command and the URL. They are filled in when the server is started, so this value
holds no secret. The `origin` of the description decides which variables it may refer to: a person
may use all of theirs, a repository only those of `env.allow` and the usual few
(`permissions.child_environment`).

A person's approval is bound to the digest of the description. It covers the arguments of the
command, the URL, the names and templates of variables and headers, the workspace if the
description comes from one, and what the sandbox lets the server do. Not covered: the program that
the command names. A server that gets more than commands have is only started if commands can write
neither its program nor what that loads (`stdio`).
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen, options
from ferrule.core.web_addresses import split_web_address
from ferrule.permissions.child_environment import filter_environment, is_secret_variable
from ferrule.permissions.command_variables import loads_code
from ferrule.sandbox.deputies import DeputyRights
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.tools.reliability import Policies

from .package_runners import RunnerNeeds, find_runner_needs

Origin = Literal["program", "person", "repository"]
Era = Literal["auto", "2026-07-28", "2025-11-25"]
Transport = Literal["stdio", "http", "sse"]
ERAS: tuple[Era, ...] = ("auto", "2026-07-28", "2025-11-25")

NAME_LIMIT = 32
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_VARIABLE_LINE = re.compile(r"^(?:export )?([A-Za-z_][A-Za-z0-9_]*)=(.*?)[ \t\r]*$", re.M)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@frozen
class OAuth:
    """How to sign in to a server that asks for it.

    Without `client_id` the client registers itself (RFC 7591).
    """

    client_id: str = ""
    client_secret: str = ""
    """A reference to a variable, `${NAME}`."""
    scope: str = ""
    metadata_url: str = ""
    """Address of the person's own client id metadata document, used instead of registering."""
    port: int = 0
    """Local port that the browser returns to; 0 takes any free one."""


@options
class McpServer:
    """One MCP server, with either a `command` to start (spoken to over stdio) or a `url`.

    Args:
        name: Letters, digits, `-` and single `_`; tools are called `name__tool`.
        network: Hosts that a started server may reach.
        readable: Folders that a started server may read besides the workspace.
        writable: Folders that a started server may write besides the workspace.
        workspace: Whether a started server sees the workspace.
        era: The version of the protocol, or `auto` to find it out.
        only: The server's own names of the tools to offer; None offers all.
        without: The server's own names of tools to leave out.
        hints: Whether to believe what the server's tools say of themselves (`readOnlyHint`). For
            servers whose author the person trusts.
        identity: Whether to send the server the identity that a call is for.
        connect_timeout: In seconds.

    Raises:
        ConfigError: The description contradicts itself or has an invalid value.
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
    cwd: str = ""
    """Where a started server works: a folder, from the workspace; empty for the workspace."""
    env_file: str = ""
    """A file of `NAME=value` lines whose variables a started server gets."""
    folder: str = ""
    """The folder whose file describes the server; empty unless `origin` is `repository`."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > NAME_LIMIT:
            hint = (
                "use letters, digits, `-` and single `_`, starting with a letter, at most "
                f"{NAME_LIMIT} characters"
            )
            raise ConfigError(f"`{self.name}` cannot be the name of a server", hint=hint)
        if bool(self.command) == bool(self.url):
            found = "both `command` and `url`" if self.url else "neither `command` nor `url`"
            raise ConfigError(
                f"server `{self.name}` has {found}",
                hint="name one of them: what starts the server, or where it is",
            )
        if self.url and self.transport == "stdio":
            object.__setattr__(self, "transport", "http")
        if self.url:
            _check_url(self.name, self.url)
        for name in self.headers:
            if not _HEADER.fullmatch(name):
                raise ConfigError(f"server `{self.name}`: `{name}` is not a valid header name")
        if self.era not in ERAS:
            raise ConfigError(
                f"server `{self.name}`: unknown era `{self.era}`",
                hint=f"use one of {', '.join(ERAS)}",
            )

    def approval_facts(self) -> dict[str, Any]:
        """Return what the digest covers, as JSON that a person can read."""
        facts: dict[str, Any] = {"url": self.url} if self.url else {"command": list(self.command)}
        facts["transport"] = self.transport
        for key in ("env", "headers"):
            values = getattr(self, key)
            if values:
                facts[key] = {name: _describe_value(name, values[name]) for name in sorted(values)}
        if self.oauth is not None:
            facts["oauth"] = {"client_id": self.oauth.client_id, "scope": self.oauth.scope}
        if self.command:
            facts["network"] = sorted(self.network)
            facts["readable"] = sorted(self.readable)
            facts["writable"] = sorted(self.writable)
            facts["workspace"] = self.workspace
            facts |= self._runner_facts()
        if self.folder:
            facts["folder"] = self.folder
        return facts

    @property
    def needs(self) -> RunnerNeeds:
        """What its command needs besides what is described.

        A repository's server always runs in the sandbox: what it calls a container may be anything.
        """
        needs = find_runner_needs(self.name, self.command)
        is_trusted = self.origin != "repository"
        return replace(needs, is_container=needs.is_container and is_trusted)

    def choose_rights(self, commands: SandboxPolicy) -> DeputyRights:
        """Return whether it gets more than commands have.

        Variables with their values in a repository's file are no more: commands can read it.

        Args:
            commands: What commands may do.
        """
        # Our own interpreter and its packages hold nothing but code.
        own = (sys.prefix, sys.base_prefix)
        readable = (str(commands.root), *commands.readable, *commands.writable, *own)
        writable = (str(commands.root), *commands.writable)
        has_values = bool(self.env) and (
            self.origin != "repository" or any(map(_REFERENCE.search, self.env.values()))
        )
        has_more = (
            has_values,
            self.env_file,
            self.needs.is_container,
            self.needs.cache,
            any(map(_REFERENCE.search, self.command)),
            not _are_within((*self.readable, *([self.cwd] if self.cwd else [])), readable),
            not _are_within(self.writable, writable),
            not set(commands.network).issuperset(self.network),
        )
        return DeputyRights.OWN if any(has_more) else DeputyRights.COMMANDS

    def _runner_facts(self) -> dict[str, Any]:
        """Return what is there only for some servers, so that older approvals of others hold."""
        needs = self.needs
        facts: dict[str, Any] = {}
        if needs.hosts:
            facts["downloads from"] = sorted(needs.hosts)
        if needs.is_container:
            facts["confined by"] = "its container, not by the sandbox"
        if self.cwd:
            facts["cwd"] = self.cwd
        if self.env_file:
            facts["env file"] = self.env_file
        return facts

    def digest(self) -> str:
        """Return SHA-256 (hex) over `approval_facts` and over the literal values that it hides."""
        hidden = [*sorted(self.env.items()), *sorted(self.headers.items())]
        text = encode_json([self.name, self.approval_facts(), hidden])
        return hashlib.sha256(text.encode()).hexdigest()

    def variables(self) -> tuple[str, ...]:
        """Return the sorted names of the variables that the description refers to."""
        secret = self.oauth.client_secret if self.oauth else ""
        texts = (*self.command, self.url, secret, *self.env.values(), *self.headers.values())
        names: set[str] = set()
        for text in texts:
            names.update(match[1] for match in _REFERENCE.finditer(text))
        return tuple(sorted(names))


@frozen
class FilledServer:
    """A server's texts with variables filled in. Holds secrets, so it is never shown or stored."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    url: str
    headers: Mapping[str, str]
    secret: str

    def __repr__(self) -> str:
        return "Filled(…)"


def fill_variables(
    server: McpServer,
    *,
    allowed: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> FilledServer:
    """Fill in the variables of a server's description.

    Args:
        server: The description.
        allowed: Variables that a repository may use.
        environment: The variables; those of this process by default.

    Raises:
        ConfigError: A variable is not set or may not be used. Names the variable, never its value.
    """
    variables = os.environ if environment is None else environment
    if server.origin == "repository":
        for name in server.env:
            if loads_code(name):
                raise ConfigError(
                    f"server `{server.name}`: `{name}` makes programs load other code"
                )
        variables = filter_environment(variables, add=allowed).values
    substitute = _make_substitute(server, variables)
    from_file = _read_env_file(server)
    url = substitute(server.url)
    if url:
        _check_url(server.name, url)
    return FilledServer(
        tuple(substitute(word) for word in server.command),
        {**from_file, **{name: substitute(value) for name, value in server.env.items()}},
        url,
        {name: substitute(value) for name, value in server.headers.items()},
        substitute(server.oauth.client_secret) if server.oauth else "",
    )


def _read_env_file(server: McpServer) -> dict[str, str]:
    """Read the variables of a person's own server from its file.

    Raises:
        ConfigError: It cannot be read, or the server is a repository's: such files are secrets.
    """
    if not server.env_file:
        return {}
    if server.origin == "repository":
        raise ConfigError(
            f"server `{server.name}`: a repository's server gets no `envFile`",
            hint="write it into your own `mcp.json`",
        )
    file = Path(server.env_file).expanduser()
    try:
        text = file.read_text("utf-8", "replace")
    except OSError as error:
        raise ConfigError(
            f"server `{server.name}`: cannot read `{file}`: {error.strerror}"
        ) from error
    return {name: value.strip("\"'") for name, value in _VARIABLE_LINE.findall(text)}


def _make_substitute(server: McpServer, variables: Mapping[str, str]) -> Callable[[str], str]:
    def substitute(text: str) -> str:
        return _REFERENCE.sub(value, text)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        default = match[2]
        if name in variables:
            return variables[name]
        if default is not None:
            return default
        hint = "set it"
        if server.origin == "repository":
            hint = (
                "set it, and name it in `env.allow`: a repository's server gets no other variables"
            )
        raise ConfigError(
            f"server `{server.name}` refers to `{name}`, which it does not get", hint=hint
        )

    return substitute


def _are_within(folders: Iterable[str], others: tuple[str, ...]) -> bool:
    """Whether each folder is one of the others or below one; relative ones start at the first."""
    allowed = [os.path.realpath(one) for one in others]
    places = [Path(os.path.realpath(Path(others[0], Path(one).expanduser()))) for one in folders]
    return all(any(place.is_relative_to(one) for one in allowed) for place in places)


def _describe_value(name: str, value: str) -> str:
    """Return a value as it was written, or only the length of a literal one that may be secret."""
    if _REFERENCE.search(value) or not (
        is_secret_variable(name) or name.lower() == "authorization"
    ):
        return value
    return f"({len(value)} characters)"


def _check_url(name: str, url: str) -> None:
    if _REFERENCE.search(url):
        return  # checked again after it is filled in
    parts = split_web_address(url)
    if parts is None or not parts.hostname or parts.username or parts.fragment:
        shown = "its URL" if parts is None else f"`{parts.scheme}://{parts.hostname}`"
        raise ConfigError(
            f"server `{name}`: {shown} is not a valid URL for it",
            hint="write `https://host/path`, without a user name, password or fragment",
        )
    if parts.scheme == "http" and not is_local(parts.hostname):
        raise ConfigError(
            f"server `{name}`: `http://{parts.hostname}` would send everything in the clear",
            hint="use https; plain http is for this machine only",
        )


def is_local(host: str) -> bool:
    """Return whether a host, as written in a URL, is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
