"""Servers out of files: a repository's `.mcp.json`, the person's own `mcp.json`, and `mcp_servers`
of their settings.

    {"mcpServers": {"git": {"command": "mcp-server-git", "args": ["--repository", "."], "env":
    {"TZ": "UTC"}},
                    "docs": {"type": "http", "url": "https://mcp.example.com/mcp", "headers":
                    {"Authorization": "Bearer ${DOCS_TOKEN}"}}}}

The shape is the one that other programs write (`type` may be `stdio`, `http`, `streamable-http` or
`sse`); `mcp_servers` is a mapping of the same entries, or a list of them with a `name`
(requirements 001 and 004: also `transport`, `transport_mode` and a `command` that is a list). The
keys of `KEYS` besides are ours. What a repository may not decide is refused there: which tools are
believed (`hints`), who is told who calls (`identity`), and signing in.

A repository's file does nothing before the repository is trusted, and then every server of it still
waits for its own approval.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.storage.trust import Snapshot
from ferrule.tools.reliability import POLICY, policies

from .spec import McpServer, OAuth, Origin, Transport

REPOSITORY_FILE = ".mcp.json"
OWN_FILE = "mcp.json"
KEYS = (
    "name",
    "type",
    "transport",
    "transport_mode",
    "command",
    "args",
    "env",
    "url",
    "headers",
    "era",
    "network",
    "readable",
    "writable",
    "workspace",
    "policy",
    "tool_policies",
    "connect_timeout",
    "tools",
    "without",
    "deferred",
    "hints",
    "identity",
    "oauth",
    "disabled",
    "description",
)
_NOT_FOR_REPOSITORIES = ("hints", "identity", "oauth")
_TRANSPORTS: dict[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "sse": "sse",
    "auto": "stdio",
}
_OAUTH = ("client_id", "client_secret", "scope", "metadata_url", "port")
_MOST = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Loaded:
    """Servers of all files, the person's own first; `problems` are sentences about entries that
    cannot be used.

    `policy_errors` are those among them that say a policy which cannot be read: with these no run
    begins.
    """

    servers: tuple[McpServer, ...]
    problems: tuple[str, ...] = ()
    policy_errors: tuple[str, ...] = ()


def load_servers(
    seen: Snapshot | None = None,
    own: Path | None = None,
    settings: Any = None,
    *,
    as_trusted: bool = False,
) -> Loaded:
    """What a repository as `Trust.look` saw it, the person's settings folder `own`, and their
    `mcp_servers` bring.

    An entry that cannot be used is a problem, and the others hold. `as_trusted` reads what is not
    trusted yet, to check it.
    """
    servers: list[McpServer] = []
    problems: list[str] = []
    policy_errors: list[str] = []
    for where, entries, origin, place in _sources(seen, own, settings, as_trusted, problems):
        for name, entry in entries:
            try:
                one = read_server(name, entry, f"{where}: `{name}`", origin=origin, place=place)
            except ConfigError as error:
                said = str(error).replace("\n", "; ")
                problems.append(said)
                policy_errors += [said] if error.code == POLICY else []
            else:
                servers += [one] if one is not None else []
    return Loaded(tuple(servers), tuple(problems), tuple(policy_errors))


_Source = tuple[str, list[tuple[str, Any]], Origin, str]


def _sources(
    seen: Snapshot | None, own: Path | None, settings: Any, as_trusted: bool, problems: list[str]
) -> Iterator[_Source]:
    try:
        if settings:
            yield "mcp_servers", _entries(settings, "mcp_servers"), "person", ""
        if own is not None and (data := _read(own / OWN_FILE)) is not None:
            yield str(own / OWN_FILE), parse_file(data, str(own / OWN_FILE)), "person", ""
        trusted = seen is not None and (seen.state == "trusted" or as_trusted)
        if seen is not None and trusted and REPOSITORY_FILE in seen.files:
            data = seen.files[REPOSITORY_FILE]
            yield REPOSITORY_FILE, parse_file(data, REPOSITORY_FILE), "repository", seen.workspace
    except ConfigError as error:
        problems.append(str(error).replace("\n", "; "))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read `{path}`: {error.strerror}") from error


def parse_file(data: bytes, where: str) -> list[tuple[str, Any]]:
    """The entries of a file in the shape of `.mcp.json`. Raises ConfigError."""
    if len(data) > _MOST:
        raise ConfigError(f"{where}: more than {_MOST} bytes")
    try:
        content: Any = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: it is not JSON: {error}") from error
    listed: Any = (
        cast("Mapping[str, Any]", content).get("mcpServers")
        if isinstance(content, Mapping)
        else None
    )
    if listed is None:
        raise ConfigError(
            f"{where}: there is no `mcpServers`", hint='write `{"mcpServers": {"name": {…}}}`'
        )
    return _entries(listed, f"{where}: `mcpServers`")


def _entries(listed: Any, where: str) -> list[tuple[str, Any]]:
    if isinstance(listed, Mapping):
        return [(str(name), entry) for name, entry in cast("Mapping[str, Any]", listed).items()]
    if isinstance(listed, (list, tuple)):
        items = cast("Iterable[Any]", listed)
        return [
            (str(cast("Any", one).get("name", "")) if isinstance(one, Mapping) else "", one)
            for one in items
        ]
    raise ConfigError(f"{where} must be a mapping of names to servers, or a list of servers")


def read_server(
    name: str, entry: Any, where: str, *, origin: Origin = "person", place: str = ""
) -> McpServer | None:
    """One entry; None if it is switched off (`disabled`). Raises ConfigError naming the key."""
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where} must hold `key: value` pairs")
    given = cast("Mapping[str, Any]", entry)
    for key in given:
        if key not in KEYS:
            raise ConfigError(f"{where}: unknown key `{key}`", hint=f"known: {', '.join(KEYS)}")
        if origin == "repository" and key in _NOT_FOR_REPOSITORIES:
            raise ConfigError(f"{where}: `{key}` cannot be set by a repository")
    if given.get("disabled") is True:
        return None
    read = _Entry(given, where)
    era: Any = read.text("era") or "auto"
    return McpServer(
        name,
        command=read.command(),
        env=read.texts_by_name("env"),
        url=read.text("url"),
        headers=read.texts_by_name("headers"),
        transport=read.transport(),
        era=era,
        network=read.texts("network"),
        readable=read.texts("readable"),
        writable=read.texts("writable"),
        workspace=read.flag("workspace", True),
        policies=policies(given.get("policy"), given.get("tool_policies"), where),
        connect_timeout=read.seconds("connect_timeout", 30.0),
        only=read.texts("tools") if "tools" in given else None,
        without=read.texts("without"),
        deferred=read.flag("deferred", False),
        hints=read.flag("hints", False),
        identity=read.flag("identity", False),
        oauth=read.oauth(),
        origin=origin,
        place=place,
    )


class _Entry:
    """Takes keys out of an entry by their type. Raises ConfigError naming the key."""

    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        self._given = given
        self._where = where

    def text(self, key: str) -> str:
        return self._typed(key, str, "a text", "")

    def flag(self, key: str, default: bool) -> bool:
        return self._typed(key, bool, "true or false", default)

    def seconds(self, key: str, default: float) -> float:
        found = self._given.get(key, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found <= 600:
            raise ConfigError(
                f"{self._where}: `{key}` must be seconds, more than 0 and 600 at the most"
            )
        return float(found)

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._typed(key, (list, tuple), "a list of texts", [])
        if not all(isinstance(one, str) for one in found):
            raise ConfigError(f"{self._where}: `{key}` must be a list of texts")
        return tuple(found)

    def texts_by_name(self, key: str) -> dict[str, str]:
        found = self._typed(key, Mapping, "a mapping of names to texts", {})
        if not all(
            isinstance(name, str) and isinstance(value, str) for name, value in found.items()
        ):
            raise ConfigError(f"{self._where}: `{key}` must be a mapping of names to texts")
        return dict(found)

    def command(self) -> tuple[str, ...]:
        found = self._given.get("command")
        words = (
            self.texts("command") if isinstance(found, (list, tuple)) else (self.text("command"),)
        )
        return (*words, *self.texts("args")) if words and words[0] else ()

    def transport(self) -> Transport:
        said = self.text("type") or self.text("transport") or self.text("transport_mode") or "auto"
        if said not in _TRANSPORTS:
            raise ConfigError(
                f"{self._where}: `{said}` is no transport", hint="use `stdio`, `http` or `sse`"
            )
        found = _TRANSPORTS[said]
        if said not in ("auto", "stdio") and not self._given.get("url"):
            raise ConfigError(f"{self._where}: a server of the type `{said}` needs a `url`")
        return found

    def oauth(self) -> OAuth | None:
        found = self._given.get("oauth")
        if found is None or found is False:
            return None
        if found is True:
            return OAuth()
        if not isinstance(found, Mapping) or set(cast("Mapping[str, Any]", found)) - set(_OAUTH):
            raise ConfigError(f"{self._where}: `oauth` must be true, or hold {', '.join(_OAUTH)}")
        fields = cast("Mapping[str, Any]", found)
        secret = str(fields.get("client_secret", ""))
        if secret and not secret.startswith("${"):
            raise ConfigError(
                f"{self._where}: `oauth.client_secret` holds a secret",
                hint="name a variable: `${NAME}`",
            )
        port = fields.get("port", 0)
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65536:
            raise ConfigError(f"{self._where}: `oauth.port` must be the number of a port")
        texts = {key: str(fields.get(key, "")) for key in ("client_id", "scope", "metadata_url")}
        return OAuth(client_secret=secret, port=port, **texts)

    def _typed(self, key: str, kind: Any, said: str, default: Any) -> Any:
        found = self._given.get(key, default)
        if not isinstance(found, kind):
            raise ConfigError(f"{self._where}: `{key}` must be {said}")
        return found
