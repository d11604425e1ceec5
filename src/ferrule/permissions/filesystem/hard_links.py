"""Hard links: does every name of a file lie in the workspace, and may all of them be read?"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from ferrule.permissions.protected_names import Names

from .folder_trees import Tree

_Inode = tuple[int, int, int, int]


@dataclass(slots=True)
class NameCount:
    """Counts the readable names of files that have several.

    A count is kept under device, inode, number of names and change time: giving or taking a name
    changes the last two, so a count that is found is still right. One walk counts all such files.
    `limit` bounds that walk in entries; in a larger tree no such file counts as known.
    """

    tree: Tree
    names: Names
    limit: int
    _counts: dict[_Inode, int] = field(default_factory=dict[_Inode, int])

    def all_readable(self, status: os.stat_result) -> bool:
        """Whether each name of this file was met under the root and may be read. Raises OSError."""
        if status.st_nlink == 1:
            return True
        key = _inode(status)
        if key not in self._counts:
            self._counts = self._count()
            self._counts.setdefault(key, 0)
        return self._counts[key] == status.st_nlink

    def _count(self) -> dict[_Inode, int]:
        counts: dict[_Inode, int] = {}
        for number, (below, status) in enumerate(self.tree.everything(())):
            if number > self.limit:
                return {}
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                readable = self.names.check("/".join(below), write=False) is None
                counts[_inode(status)] = counts.get(_inode(status), 0) + readable
        return counts


def _inode(status: os.stat_result) -> _Inode:
    return (status.st_dev, status.st_ino, status.st_nlink, status.st_ctime_ns)
