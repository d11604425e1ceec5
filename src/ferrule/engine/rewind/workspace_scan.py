"""Which names of a workspace are kept when what a session does to its files is remembered.

Left out are folders of version control, unless they are asked for, folders that a `.gitignore`
excludes, and folders of packages and caches (`PACKAGES`): what is in them can be made again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ferrule.core.errors import FerruleError
from ferrule.permissions.command_analysis.program_facts import word_set
from ferrule.permissions.filesystem.gitignore import FILE_NAME
from ferrule.permissions.filesystem.ignore_rules import IgnoreRules, is_ignored
from ferrule.permissions.filesystem.workspace import VERSION_CONTROL, Workspace

MAX_ENTRIES = 20_000
"""Maximum names of a workspace that is scanned."""
PACKAGES = word_set(
    "node_modules .venv venv __pycache__ .mypy_cache .pytest_cache .ruff_cache .tox"
)

Stamp = tuple[int, int, int, int, int]
"""Inode, size, times and mode of a file: if it is the same, so is the content."""


class WorkspaceTooLarge(FerruleError):
    """A workspace has more than is kept of one."""

    code = "workspace_too_large"


class WorkspaceScan:
    """Lists the names of a workspace that are kept.

    Args:
        workspace: The workspace.
        repositories: Whether folders called `.git` are listed too, with all that is in them.
    """

    def __init__(self, workspace: Workspace, *, repositories: bool = False) -> None:
        self._workspace = workspace
        self._left_out = VERSION_CONTROL - {".git"} if repositories else VERSION_CONTROL
        self._rules: dict[str, tuple[Stamp, IgnoreRules]] = {}

    def list_names(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the names, folders before what is in them. Raises WorkspaceTooLarge."""
        waiting: list[tuple[str, tuple[IgnoreRules, ...]]] = [("", ())]
        count = 0
        while waiting:
            folder, rules = waiting.pop()
            found = self._workspace.list_status(folder)
            count += len(found)
            if count > MAX_ENTRIES:
                raise WorkspaceTooLarge(f"it holds more than {MAX_ENTRIES} names")
            is_git = ".git" in folder.split("/")
            if not is_git:
                rules = self._add_rules(folder, found, rules)
            for name, status in found:
                if stat.S_ISDIR(status.st_mode):
                    last = name.rpartition("/")[2]
                    left_out = last in self._left_out or last in PACKAGES
                    if not is_git and (left_out or is_ignored(rules, name, folder=True)):
                        continue
                    waiting.append((name, rules))
                yield name, status

    def _add_rules(
        self,
        folder: str,
        found: list[tuple[str, os.stat_result]],
        above: tuple[IgnoreRules, ...],
    ) -> tuple[IgnoreRules, ...]:
        name = f"{folder}/{FILE_NAME}" if folder else FILE_NAME
        status = next((status for path, status in found if path == name), None)
        if status is None or not stat.S_ISREG(status.st_mode):
            return above
        stamp = make_stamp(status)
        known = self._rules.get(folder)
        if known is None or known[0] != stamp:
            rules = IgnoreRules.read(self._workspace, folder)
            if rules is None:
                return above
            self._rules[folder] = known = (stamp, rules)
        return (known[1], *above)


def make_stamp(status: os.stat_result) -> Stamp:
    """Return the stamp of a file."""
    return (
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_mode,
    )
