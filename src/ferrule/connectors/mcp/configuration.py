"""MCP servers from files: a repository's `.mcp.json`, the person's `mcp.json` and `mcp_servers`.

    {
        "mcpServers": {
            "git": {
                "command": "mcp-server-git",
                "args": ["--repository", "."],
                "env": {"TZ": "UTC"}
            },
            "docs": {
                "type": "http",
                "url": "https://mcp.example.com/mcp",
                "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}
            }
        }
    }

The shape is the one that other programs write (`type` may be `stdio`, `http`, `streamable-http` or
`sse`). `mcp_servers` of the person's settings is a mapping of the same entries, or a list of them
with a `name` (requirements 001 and 004: also `transport`, `transport_mode` and a `command` that is
a list). The other keys of `KEYS` are Ferrule's own. Keys that a repository may not decide are
refused in its file: which tools are believed (`hints`), who is told the caller's identity
(`identity`), and signing in (`oauth`).

A repository's file does nothing before the repository is trusted, and then each of its servers
still waits for its own approval.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from ferrule.connectors.json_values import mapping_or_empty
from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen
from ferrule.storage.settings.yaml_tree import parse_json
from ferrule.storage.trust import ConfigurationSnapshot
from ferrule.tools.reliability import POLICY_ERROR, read_policies

from .foreign_entries import translate_entry
from .package_runners import FIRST_START_SECONDS, find_runner_needs
from .spec import McpServer, OAuth, Origin, Transport

REPOSITORY_FILE = ".mcp.json"
PERSONAL_FILE = "mcp.json"
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
    "cwd",
    "envFile",
)
_PERSON_ONLY_KEYS = ("hints", "identity", "oauth")
_TRANSPORTS: dict[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "sse": "sse",
    "auto": "stdio",
}
_OAUTH_KEYS = ("client_id", "client_secret", "scope", "metadata_url", "port")
_MAX_FILE_BYTES = 1024 * 1024


@frozen
class LoadedServers:
    """The servers of all files, the person's own first.

    Args:
        problems: Sentences about entries that cannot be used.
        policy_errors: The problems that are an unreadable policy; with these no run begins.
        remarks: Sentences about what was not taken over of entries that can be used.
    """

    servers: tuple[McpServer, ...]
    problems: tuple[str, ...] = ()
    policy_errors: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def load_servers(
    repository: ConfigurationSnapshot | None = None,
    settings_folder: Path | None = None,
    settings: Any = None,
    *,
    as_trusted: bool = False,
) -> LoadedServers:
    """Read the servers of a repository, of the person's settings folder and of their settings.

    An entry that cannot be used becomes a problem; the others count.

    Args:
        repository: The repository, as `Trust.read` saw it.
        settings_folder: The person's settings folder.
        settings: The value of `mcp_servers`.
        as_trusted: Read the file of a repository that is not trusted yet, to check it.
    """
    servers: list[McpServer] = []
    problems: list[str] = []
    policy_errors: list[str] = []
    remarks: list[str] = []
    for where, entries, origin, place in _sources(
        repository, settings_folder, settings, as_trusted, problems
    ):
        for name, entry in entries:
            try:
                said: list[str] = []
                server = read_server(
                    name, entry, f"{where}: `{name}`", origin=origin, folder=place, remarks=said
                )
                remarks += (f"server `{name}`: {remark}" for remark in said)
            except ConfigError as error:
                problem = str(error).replace("\n", "; ")
                problems.append(problem)
                if error.code == POLICY_ERROR:
                    policy_errors.append(problem)
            else:
                if server is not None:
                    servers.append(server)
    return LoadedServers(
        tuple(servers), tuple(problems), tuple(policy_errors), tuple(dict.fromkeys(remarks))
    )


_Source = tuple[str, list[tuple[str, Any]], Origin, str]


def _sources(
    seen: ConfigurationSnapshot | None,
    own: Path | None,
    settings: Any,
    as_trusted: bool,
    problems: list[str],
) -> Iterator[_Source]:
    try:
        if settings:
            yield "mcp_servers", _entries(settings, "mcp_servers"), "person", ""
        if own is not None:
            path = own / PERSONAL_FILE
            data = _read(path)
            if data is not None:
                yield str(path), parse_file(data, str(path)), "person", ""
        if seen is None or not (seen.state == "trusted" or as_trusted):
            return
        if REPOSITORY_FILE in seen.files:
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
    """Return the names and entries of a file in the shape of `.mcp.json`. Raises ConfigError."""
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError(f"{where}: more than {_MAX_FILE_BYTES} bytes")
    listed = mapping_or_empty(parse_json(data, where)).get("mcpServers")
    if listed is None:
        raise ConfigError(
            f"{where}: there is no `mcpServers`", hint='write `{"mcpServers": {"name": {…}}}`'
        )
    return _entries(listed, f"{where}: `mcpServers`")


def _entries(listed: Any, where: str) -> list[tuple[str, Any]]:
    if isinstance(listed, Mapping):
        return [(str(name), entry) for name, entry in cast("Mapping[str, Any]", listed).items()]
    if isinstance(listed, (list, tuple)):
        entries = cast("Iterable[Any]", listed)
        return [(str(mapping_or_empty(entry).get("name", "")), entry) for entry in entries]
    raise ConfigError(f"{where} must be a mapping of names to servers, or a list of servers")


def read_server(
    name: str,
    entry: Any,
    where: str,
    *,
    origin: Origin = "person",
    folder: str = "",
    remarks: list[str] | None = None,
) -> McpServer | None:
    """Read one entry; return None if it is `disabled`. Raises ConfigError naming the key.

    Args:
        name: The server's name.
        entry: The entry, in Ferrule's keys or in those of other programs.
        where: What errors begin with.
        origin: Whose entry it is.
        folder: The repository, if it is its entry.
        remarks: Takes sentences about what was not taken over.
    """
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where} must hold `key: value` pairs")
    given, said = translate_entry(cast("Mapping[str, Any]", entry))
    if remarks is not None:
        remarks += said
    for key in given:
        if key not in KEYS:
            hint = suggest_names(key, KEYS, f"known: {', '.join(KEYS)}")
            raise ConfigError(f"{where}: unknown key `{key}`", hint=hint)
        if origin == "repository" and key in _PERSON_ONLY_KEYS:
            raise ConfigError(f"{where}: `{key}` cannot be set by a repository")
    if given.get("disabled") is True:
        return None
    reader = _EntryReader(given, where)
    if remarks is not None:
        bare = [text for text in (*reader.command(), reader.text("url")) if _BARE.match(text)]
        remarks += (f"`{text}` is taken as it stands; a variable is `${{NAME}}`" for text in bare)
    era: Any = reader.text("era") or "auto"
    return McpServer(
        name,
        command=reader.command(),
        env=reader.texts_by_name("env"),
        url=reader.text("url"),
        headers=reader.texts_by_name("headers"),
        transport=reader.transport(),
        era=era,
        network=reader.texts("network"),
        readable=reader.texts("readable"),
        writable=reader.texts("writable"),
        workspace=reader.flag("workspace", True),
        policies=read_policies(given.get("policy"), given.get("tool_policies"), where),
        connect_timeout=reader.seconds("connect_timeout", _default_timeout(reader.command())),
        cwd=reader.text("cwd"),
        env_file=reader.text("envFile"),
        only=reader.texts("tools") if "tools" in given else None,
        without=reader.texts("without"),
        deferred=reader.flag("deferred", False),
        hints=reader.flag("hints", False),
        identity=reader.flag("identity", False),
        oauth=reader.oauth(),
        origin=origin,
        folder=folder,
    )


def _default_timeout(command: tuple[str, ...]) -> float:
    """Return how long a server may take to start: longer if it may have to be downloaded."""
    needs = find_runner_needs("", command)
    return FIRST_START_SECONDS if needs.hosts or needs.is_container else 30.0


_BARE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*(/|$)")
"""An argument that a shell would fill in."""


class _EntryReader:
    """Takes values of the expected type out of an entry. Raises ConfigError naming the key."""

    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        self._given = given
        self._where = where

    def text(self, key: str) -> str:
        return self._get_typed(key, str, "a text", "")

    def flag(self, key: str, default: bool) -> bool:
        return self._get_typed(key, bool, "true or false", default)

    def seconds(self, key: str, default: float) -> float:
        found = self._given.get(key, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found <= 600:
            raise ConfigError(
                f"{self._where}: `{key}` must be seconds, more than 0 and at most 600"
            )
        return float(found)

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._get_typed(key, (list, tuple), "a list of texts", [])
        if not all(isinstance(text, str) for text in found):
            raise ConfigError(f"{self._where}: `{key}` must be a list of texts")
        return tuple(found)

    def texts_by_name(self, key: str) -> dict[str, str]:
        found = self._get_typed(key, Mapping, "a mapping of names to texts", {})
        if not all(
            isinstance(name, str) and isinstance(value, str) for name, value in found.items()
        ):
            raise ConfigError(f"{self._where}: `{key}` must be a mapping of names to texts")
        return dict(found)

    def command(self) -> tuple[str, ...]:
        found = self._given.get("command")
        if isinstance(found, (list, tuple)):
            words = self.texts("command")
        else:
            words = (self.text("command"),)
        if not words or not words[0]:
            return ()
        return (*words, *self.texts("args"))

    def transport(self) -> Transport:
        given = self.text("type") or self.text("transport") or self.text("transport_mode") or "auto"
        if given not in _TRANSPORTS:
            raise ConfigError(
                f"{self._where}: unknown transport `{given}`", hint="use `stdio`, `http` or `sse`"
            )
        found = _TRANSPORTS[given]
        if given not in ("auto", "stdio") and not self._given.get("url"):
            raise ConfigError(f"{self._where}: a server of the type `{given}` needs a `url`")
        return found

    def oauth(self) -> OAuth | None:
        found = self._given.get("oauth")
        if found is None or found is False:
            return None
        if found is True:
            return OAuth()
        if not isinstance(found, Mapping) or set(cast("Mapping[str, Any]", found)) - set(
            _OAUTH_KEYS
        ):
            raise ConfigError(
                f"{self._where}: `oauth` must be true, or hold {', '.join(_OAUTH_KEYS)}"
            )
        fields = cast("Mapping[str, Any]", found)
        secret = str(fields.get("client_secret", ""))
        if secret and not secret.startswith("${"):
            raise ConfigError(
                f"{self._where}: `oauth.client_secret` holds a secret",
                hint="name a variable: `${NAME}`",
            )
        port = fields.get("port", 0)
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65536:
            raise ConfigError(f"{self._where}: `oauth.port` must be a port number")
        texts = {key: str(fields.get(key, "")) for key in ("client_id", "scope", "metadata_url")}
        return OAuth(client_secret=secret, port=port, **texts)

    def _get_typed(self, key: str, kind: Any, expected: str, default: Any) -> Any:
        found = self._given.get(key, default)
        if not isinstance(found, kind):
            raise ConfigError(f"{self._where}: `{key}` must be {expected}")
        return found
