"""Tell which names of a repository git ignores: files that nobody reviewed.

It reads the `.gitignore` files from the repository's root down to the name, and
`.git/info/exclude` (gitignore(5)). An ignored folder hides everything below it, whatever deeper
files say. Git itself is not run, since a repository's configuration could make it run something
else. Not read: the person's global excludes, and files named by `core.excludesFile`. A tracked file
that matches counts as ignored, too.
"""

from __future__ import annotations

from pathlib import Path

from ferrule.core.errors import ToolFailed
from ferrule.extensions.repository import find_repository_root
from ferrule.permissions.filesystem.gitignore import FILE_NAME, MAX_BYTES, IgnoreFile
from ferrule.permissions.filesystem.workspace import Workspace


class GitIgnoredFiles:
    """Answers for one workspace. Closing it leaves the workspace open."""

    def __init__(self, workspace: Workspace, home: Path | None = None) -> None:
        root, _ = find_repository_root(workspace.root, home)
        self._inner = workspace
        self._tree = Workspace(root)
        self._above = workspace.root.relative_to(root).as_posix()
        self._specs: dict[str, IgnoreFile | None] = {}

    def close(self) -> None:
        self._tree.close()

    def __call__(self, name: str, *, folder: bool = False) -> bool:
        """Return whether git ignores `name`, relative to the workspace."""
        whole = name if self._above == "." else f"{self._above}/{name}"
        parts = whole.split("/")
        for depth in range(1, len(parts) + 1):
            last = depth == len(parts)
            if self._is_matched("/".join(parts[:depth]), folder=folder or not last):
                return True
        return False

    def _is_matched(self, name: str, *, folder: bool) -> bool:
        """Return what the nearest file with a matching pattern says of exactly this name."""
        above = name.split("/")[:-1]
        for depth in range(len(above), -1, -1):
            verdict = self._verdict(
                "/".join([*above[:depth], FILE_NAME]), "/".join(above[:depth]), name, folder
            )
            if verdict is not None:
                return verdict
        return bool(self._verdict(".git/info/exclude", "", name, folder))

    def _verdict(self, file: str, base: str, name: str, folder: bool) -> bool | None:
        if file not in self._specs:
            self._specs[file] = self._read(file)
        spec = self._specs[file]
        if spec is None:
            return None
        below = name[len(base) + 1 :] if base else name
        return spec.check(below, folder=folder)

    def _read(self, file: str) -> IgnoreFile | None:
        tree, name = self._tree, file
        if self._above != "." and file.startswith(f"{self._above}/"):
            # Names are reserved relative to the workspace. Opened from above, ordinary names could
            # look reserved.
            tree, name = self._inner, file.removeprefix(f"{self._above}/")
        try:
            return IgnoreFile(tree.read(name, limit=MAX_BYTES))
        except ToolFailed:
            return None  # Missing, or something that git does not read either, such as a link.
