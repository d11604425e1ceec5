"""Hard links: checks that all names of a file are in the workspace and may be read."""

from __future__ import annotations

import os
import stat
from dataclasses import field

from ferrule.core.value_class import mutable
from ferrule.permissions.protected_names import ProtectedNames

from .folder_trees import FolderTree

_Inode = tuple[int, int, int, int]


@mutable
class HardLinkCheck:
    """Counts the readable names of files that have several.

    One walk counts all such files. Counts are cached by device, inode, number of names and change
    time: adding or removing a name changes the last two, so a cached count is never outdated.
    `limit` is the most entries of that walk; in a larger tree no such file may be read.
    """

    tree: FolderTree
    names: ProtectedNames
    limit: int
    _counts: dict[_Inode, int] = field(default_factory=dict[_Inode, int])

    def are_all_names_readable(self, status: os.stat_result) -> bool:
        """Return whether all names of a file are below the root and may be read. Raises OSError."""
        if status.st_nlink == 1:
            return True
        key = _inode(status)
        if key not in self._counts:
            self._counts = self._count()
            self._counts.setdefault(key, 0)
        return self._counts[key] == status.st_nlink

    def find_names(self, status: os.stat_result) -> list[tuple[str, ...]]:
        """Return the names of a file below the root; none in a tree beyond the limit.

        Raises OSError.
        """
        found: list[tuple[str, ...]] = []
        for number, (below, other) in enumerate(self.tree.walk(())):
            if number > self.limit:
                return []
            if (other.st_dev, other.st_ino) == (status.st_dev, status.st_ino):
                found.append(below)
        return found

    def _count(self) -> dict[_Inode, int]:
        counts: dict[_Inode, int] = {}
        for number, (below, status) in enumerate(self.tree.walk(())):
            if number > self.limit:
                return {}
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                readable = self.names.check("/".join(below), write=False) is None
                counts[_inode(status)] = counts.get(_inode(status), 0) + readable
        return counts


def _inode(status: os.stat_result) -> _Inode:
    return (status.st_dev, status.st_ino, status.st_nlink, status.st_ctime_ns)
