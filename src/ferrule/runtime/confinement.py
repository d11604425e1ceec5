"""The sandbox as the settings ask for it."""

from __future__ import annotations

from pathlib import Path

from ferrule.permissions.protected_names import DEFAULT, Names
from ferrule.sandbox.policy import Aspect, Bounds, Policy
from ferrule.storage.settings.settings import Settings

MIB = 1024 * 1024


def policy_of(settings: Settings, root: Path | None = None, names: Names = DEFAULT) -> Policy:
    """What the settings say about commands. `root` is the workspace without links in its path."""
    return Policy(
        root=root or Path(settings.workspace).resolve(),
        names=names,
        readable=tuple(
            str(Path(one).expanduser().absolute()) for one in settings["sandbox.readable"]
        ),
        writable=tuple(
            str(Path(one).expanduser().absolute()) for one in settings["sandbox.writable"]
        ),
        network=tuple(settings["sandbox.network"]),
        bounds=Bounds(
            settings["sandbox.memory"] * MIB,
            settings["sandbox.processes"],
            settings["sandbox.file_size"] * MIB,
        ),
        require=frozenset(Aspect(one) for one in settings["sandbox.require"]),
    )
