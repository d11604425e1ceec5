"""The MCP servers of the command line: what the settings and files name, put together for a run or
a command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.permissions.protected_names import DEFAULT, Names
from ferrule.sandbox.policy import Policy
from ferrule.storage import paths
from ferrule.storage.settings.settings import Settings
from ferrule.tools.reliability import POLICY

if TYPE_CHECKING:
    from ferrule.connectors.mcp import Ground, McpServer, Servers
    from ferrule.connectors.mcp.configuration import Loaded
    from ferrule.connectors.mcp.definitions import Manifest

_FILES = ("mcp.json",)


def servers_of(
    settings: Settings,
    confine: Policy,
    taken: Iterable[str],
    handed: Mapping[str, Any] | None = None,
) -> Servers | None:
    """The servers of a run, none of them started; None, and nothing loaded for it, where nobody
    names any. Close it with the agent.

    `confine` is what commands may do: servers are held under the same bounds. `taken` are the names
    of the other tools. `handed` are entries of a program that the person works in: each is used if
    they approved the very same one among their own, and else named in a notice.

    Raises ConfigError for a policy that cannot be read: a server must not run with another one than
    was written.
    """
    theirs = settings.repository.state == "trusted" and ".mcp.json" in settings.repository.files
    own = any((paths.config() / name).exists() for name in _FILES) or _named(settings)
    if not theirs and not own and not handed:
        return None
    from ferrule.connectors.mcp import connect

    loaded = load(settings)
    if loaded.policy_errors:
        raise ConfigError("\n".join(loaded.policy_errors), code=POLICY)
    ground = ground_of(settings, confine.root, confine.names)
    more, problems = _approved(handed or {}, loaded.servers)
    servers = connect((*loaded.servers, *more), ground=ground, taken=taken)
    servers.note(*loaded.problems, *problems)
    return servers


def _approved(
    handed: Mapping[str, Any], known: tuple[McpServer, ...]
) -> tuple[tuple[McpServer, ...], list[str]]:
    """Those of the entries that the person approved, and a sentence for each of the others."""
    from ferrule.connectors.mcp import Approvals
    from ferrule.connectors.mcp.configuration import read_server

    used: list[McpServer] = []
    problems: list[str] = []
    book, own = Approvals(), {one.name: one for one in known}
    for name, entry in handed.items():
        try:
            server = read_server(name, entry, f"the server `{name}` that was handed over")
        except ConfigError as error:
            problems.append(error.detail)
            continue
        if server is None or (name in own and own[name].digest() == server.digest()):
            continue
        if name in own:
            problems.append(
                f"server `{name}` that was handed over is not used: your own of that name is"
            )
        elif book.look(server).manifest is None:
            problems.append(
                f"server `{name}` that was handed over is not started: you have not approved "
                "it; write it into"
                f" `{paths.config() / _FILES[0]}` and run `ferrule mcp approve {name}`"
            )
        else:
            used.append(server)
    return tuple(used), problems


def load(settings: Settings, *, as_trusted: bool = False) -> Loaded:
    """What the settings and files name."""
    from ferrule.connectors.mcp import load_servers

    return load_servers(
        settings.repository, paths.config(), _named(settings), as_trusted=as_trusted
    )


def ground_of(settings: Settings, root: Path | None = None, names: Names | None = None) -> Ground:
    """Where servers are started and how they are held, as the settings say it for commands."""
    from ferrule.connectors.mcp import Ground

    from .confinement import policy_of

    extended = DEFAULT.extended(
        reserved=settings["reserved.extend"], secret=settings["secrets.extend"]
    )
    return Ground(
        root or Path(settings.workspace).resolve(),
        names=names or extended,
        on_gap=settings["sandbox.mode"],
        bounds=policy_of(settings).bounds,
        allow_env=tuple(settings["env.allow"]),
    )


def _named(settings: Settings) -> object:
    return settings.values.get("mcp_servers") or None


async def listed(settings: Settings, server: McpServer) -> Manifest:
    """What a server offers now. It is started for that. Raises ConfigError, also for what it did
    not say: a person asked.
    """
    from ferrule.connectors.mcp import Approvals
    from ferrule.connectors.mcp.server import Live

    live = Live(server, ground_of(settings), Approvals(), None)
    try:
        return await live.list()
    except ToolFailed as error:
        raise ConfigError(error.message, code="mcp_server") from error
    finally:
        await live.close()
