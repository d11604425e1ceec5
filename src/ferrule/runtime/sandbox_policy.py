"""The sandbox policy of commands, from the settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.sandbox.policy import Protection, ResourceLimits, SandboxPolicy
from ferrule.storage.settings.settings import Settings

MIB = 1024 * 1024


def make_sandbox_policy(
    settings: Settings, root: Path | None = None, names: ProtectedNames = DEFAULT_NAMES
) -> SandboxPolicy:
    """Make the sandbox policy of commands. `root` is the workspace, its path free of links."""
    return SandboxPolicy(
        root=root or Path(settings.workspace).resolve(),
        names=names,
        readable=_absolute_paths(settings["sandbox.readable"]),
        writable=_absolute_paths(settings["sandbox.writable"]),
        network=tuple(settings["sandbox.network"]),
        limits=ResourceLimits(
            settings["sandbox.memory"] * MIB,
            settings["sandbox.processes"],
            settings["sandbox.file_size"] * MIB,
        ),
        require=frozenset(Protection(one) for one in settings["sandbox.require"]),
    )


def _absolute_paths(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(Path(path).expanduser().absolute()) for path in paths)
