"""The sandbox policy of commands, from the settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ferrule.core.errors import FerruleError
from ferrule.core.vocabulary import PermissionMode
from ferrule.permissions.call_analysis import OpenedFolders
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.sandbox.network.allowed_hosts import AllowedHosts
from ferrule.sandbox.openings import Opening
from ferrule.sandbox.policy import Protection, ResourceLimits, SandboxPolicy
from ferrule.storage import paths
from ferrule.storage.settings.settings import USER_FILE_NAME, Settings
from ferrule.storage.settings.writing import open_for_folder, set_mode_of_folder

MIB = 1024 * 1024


def make_sandbox_policy(
    settings: Settings, root: Path | None = None, names: ProtectedNames = DEFAULT_NAMES
) -> SandboxPolicy:
    """Make the sandbox policy of commands. `root` is the workspace, its path free of links.

    Raises:
        ConfigError: An entry of `sandbox.network` does not say exactly what it opens.
    """
    network = tuple(settings["sandbox.network"])
    if network:
        AllowedHosts.parse(network)
    return SandboxPolicy(
        root=root or Path(os.path.realpath(settings.workspace)),
        names=names,
        readable=_absolute_paths(settings["sandbox.readable"]),
        writable=_absolute_paths(settings["sandbox.writable"]),
        network=network,
        limits=ResourceLimits(
            settings["sandbox.memory"] * MIB,
            settings["sandbox.processes"],
            settings["sandbox.file_size"] * MIB,
        ),
        git_hooks=settings["sandbox.git_hooks"],
        require=frozenset(Protection(one) for one in settings["sandbox.require"]),
    )


def make_opening_writer(settings: Settings) -> Callable[[Opening], None]:
    """Return what writes an opening into the person's settings, for this workspace alone.

    It raises ConfigError if that cannot be done.
    """
    root = os.path.realpath(settings.workspace)

    def remember(opening: Opening) -> None:
        open_for_folder(paths.config() / USER_FILE_NAME, root, opening.key, opening.target)

    return remember


def make_mode_writer(
    settings: Settings, notice: Callable[[str], None]
) -> Callable[[PermissionMode], None]:
    """Return what keeps the mode that a person chose for this workspace in their settings.

    A folder whose own configuration they do not trust is not remembered. Never raises: the mode
    holds for the session in any case, and `notice` gets what became of the memory.
    """
    root = os.path.realpath(settings.workspace)

    def remember(mode: PermissionMode) -> None:
        if settings.repository.state not in ("trusted", "absent"):
            notice(
                f"mode {mode} until this session ends; a trusted folder would remember it "
                "(`ferrule trust`)"
            )
            return
        file = paths.config() / USER_FILE_NAME
        try:
            set_mode_of_folder(file, root, mode)
        except FerruleError as error:
            notice(f"mode {mode} until this session ends; it is not remembered: {error}")
            return
        notice(f"mode {mode}, remembered for this folder in `{file}`; `/mode default` ends it")

    return remember


def forget_mode(settings: Settings) -> bool:
    """Remove the mode that is remembered for this workspace. Return whether one was in force.

    Raises ConfigError if the person's settings cannot be written.
    """
    if not any(name.startswith("folders.") and name.endswith(".mode") for name in settings.values):
        return False
    file = paths.config() / USER_FILE_NAME
    return set_mode_of_folder(file, os.path.realpath(settings.workspace), "")


def find_opened_folders(settings: Settings) -> OpenedFolders:
    """Return the folders outside the workspace that a command may name: those it can reach."""
    return OpenedFolders(
        _absolute_paths(settings["sandbox.readable"]),
        _absolute_paths(settings["sandbox.writable"]),
    )


def list_own_folders() -> tuple[str, ...]:
    """Return the folders of Ferrule itself, which nothing opens for commands."""
    own = (paths.config(), paths.state(), paths.cache())
    return tuple(os.path.realpath(folder) for folder in own)


def list_own_names(workspace: Path) -> tuple[str, ...]:
    """Return the folders of Ferrule itself that lie in a workspace, as patterns of its names.

    So in a home that is the workspace, nothing reads or writes trust, rules, journal and hooks.
    """
    root = os.path.realpath(workspace).rstrip("/")
    own = list_own_folders()
    return tuple(folder.removeprefix(root) for folder in own if folder.startswith(f"{root}/"))


def _absolute_paths(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(Path(path).expanduser().absolute()) for path in paths)
