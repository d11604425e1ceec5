"""The MCP servers of the command line: what the settings and files name, put together for a run or a command."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.guard.reserved import DEFAULT, Names
from ferrule.guard.sandbox.policy import Policy
from ferrule.store import paths
from ferrule.store.settings import Settings

if TYPE_CHECKING:
    from ferrule.connect.mcp import Ground, Servers
    from ferrule.connect.mcp.reading import Loaded

_FILES = ("mcp.json",)


def servers_of(settings: Settings, confine: Policy, taken: Iterable[str]) -> Servers | None:
    """The servers of a run, none of them started; None, and nothing loaded for it, where nobody names any. Close it with the agent.

    `confine` is what commands may do: servers are held under the same bounds. `taken` are the names of the other tools.
    """
    theirs = settings.repository.state == "trusted" and ".mcp.json" in settings.repository.files
    if not theirs and not any((paths.config() / name).exists() for name in _FILES) and not _named(settings):
        return None
    from ferrule.connect.mcp import connect

    loaded = load(settings)
    ground = ground_of(settings, confine.root, confine.names)
    servers = connect(loaded.servers, ground=ground, taken=taken)
    servers.note(*loaded.problems)
    return servers


def load(settings: Settings, *, as_trusted: bool = False) -> Loaded:
    """What the settings and files name."""
    from ferrule.connect.mcp import load_servers

    return load_servers(settings.repository, paths.config(), _named(settings), as_trusted=as_trusted)


def ground_of(settings: Settings, root: Path | None = None, names: Names | None = None) -> Ground:
    """Where servers are started and how they are held, as the settings say it for commands."""
    from ferrule.connect.mcp import Ground

    from .confinement import policy_of

    extended = DEFAULT.extended(reserved=settings["reserved.extend"], secret=settings["secrets.extend"])
    return Ground(
        root or Path(settings.workspace).resolve(),
        names=names or extended,
        on_gap=settings["sandbox.mode"],
        bounds=policy_of(settings).bounds,
        allow_env=tuple(settings["env.allow"]),
    )


def _named(settings: Settings) -> object:
    return settings.values.get("mcp_servers") or None
