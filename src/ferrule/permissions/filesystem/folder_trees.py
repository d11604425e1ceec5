"""Walks and removes folders, and counts the names of files that have several (hard links).

Each folder is opened beneath the root, and no link is followed.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field
from operator import attrgetter

from ferrule.core.value_class import mutable
from ferrule.permissions.protected_names import ProtectedNames

from .entry import Kind
from .open_beneath import PATH_ONLY, OpenFolder, folder_descriptor

ScannedName = tuple[str, os.stat_result]
"""A name in a folder as the file system spells it, and a stat that follows no link."""

FoundFile = tuple[tuple[str, ...], os.stat_result]
"""Components below the root as the file system spells them, and a stat that follows no link."""


@mutable
class FolderListing:
    """The names in a folder as the file system spells them, and what they are.

    Attributes:
        names: In no order: sorting many takes as long as listing them.
        special: The kinds of those that are not regular files. No link is followed.
    """

    names: list[str]
    special: dict[str, Kind]

    def kind(self, name: str) -> Kind:
        return self.special.get(name, "file")

    def counts(self) -> Counter[Kind]:
        """Return how many there are of each kind."""
        counts = Counter(self.special.values())
        counts["file"] = len(self.names) - len(self.special)
        return counts

    def leave_out(self, refused: frozenset[str]) -> None:
        """Remove names."""
        if refused.isdisjoint(self.names):
            return
        self.names = [name for name in self.names if name not in refused]
        for name in refused:
            self.special.pop(name, None)

    def leave_out_hidden(self) -> int:
        """Remove the names that begin with a dot, and return how many there were."""
        hidden = [name for name in self.names if name.startswith(".")]
        self.leave_out(frozenset(hidden))
        return len(hidden)


@mutable
class FolderTree:
    """A root (a descriptor, -1 once it is closed) and a function that opens folders beneath it.

    A root that was removed and made again at its `path` is found again, under the same descriptor.
    """

    descriptor: int
    open_folder: OpenFolder
    path: str = ""

    @property
    def root(self) -> int:
        """The descriptor of the root."""
        if self.descriptor >= 0 and self.path and os.fstat(self.descriptor).st_nlink == 0:
            self._open_again()
        return self.descriptor

    def close(self) -> None:
        """Forget the descriptor, whose number may soon belong to another file."""
        self.descriptor = -1

    def _open_again(self) -> None:
        # What stands at the path by now must be a folder there, and nothing that a link leads to.
        if os.path.realpath(self.path) != self.path:
            return
        flags = PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            found = os.open(self.path, flags)
        except OSError:
            return
        try:
            os.dup2(found, self.descriptor, inheritable=False)
        finally:
            os.close(found)

    def scan_folder(self, parts: tuple[str, ...]) -> list[ScannedName]:
        """Return what is in a folder, sorted by name. What vanishes meanwhile is left out."""
        # Walks come here for every folder: no context manager, and no `try` for each name.
        descriptor = self.open_folder(self.root, parts, os.O_RDONLY)
        try:
            with os.scandir(descriptor) as scanned:
                items = sorted(scanned, key=attrgetter("name"))
            try:
                return [(item.name, item.stat(follow_symlinks=False)) for item in items]
            except FileNotFoundError:
                return self.stat_names(parts, [item.name for item in items])
        finally:
            os.close(descriptor)

    def list_names(self, parts: tuple[str, ...]) -> FolderListing:
        """Return what is in a folder, as far as the folder itself says it.

        Made of few objects, since a folder may hold a hundred thousand names.
        """
        with (
            folder_descriptor(self.open_folder, self.root, parts, os.O_RDONLY) as descriptor,
            os.scandir(descriptor) as scanned,
        ):
            items = list(scanned)
            special: dict[str, Kind] = {
                item.name: _kind_of(item)
                for item in items
                if not item.is_file(follow_symlinks=False)
            }
        return FolderListing([item.name for item in items], special)

    def stat_names(self, parts: tuple[str, ...], names: Iterable[str]) -> list[ScannedName]:
        """Return names in a folder, each with a stat. What is not there any more is left out."""
        found: list[ScannedName] = []
        with folder_descriptor(self.open_folder, self.root, parts) as descriptor:
            for name in names:
                try:
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                found.append((name, status))
        return found

    def list_folder(self, parts: tuple[str, ...]) -> list[FoundFile]:
        """Return what `scan_folder` returns, with all components of each name."""
        return [((*parts, name), status) for name, status in self.scan_folder(parts)]

    def walk(self, parts: tuple[str, ...]) -> Iterator[FoundFile]:
        """Yield all that is below a folder, each folder before what is in it. Raises OSError."""
        waiting = self.list_folder(parts)[::-1]
        while waiting:
            found = waiting.pop()
            yield found
            if stat.S_ISDIR(found[1].st_mode):
                waiting += self.list_folder(found[0])[::-1]

    def remove(self, parts: tuple[str, ...]) -> None:
        """Delete a folder and all below it; links are deleted, not followed.

        Raises:
            OSError: Something could not be deleted. What was deleted before stays deleted.
        """
        folders = [parts]
        for below, status in self.walk(parts):
            if stat.S_ISDIR(status.st_mode):
                folders.append(below)
            else:
                with folder_descriptor(self.open_folder, self.root, below[:-1]) as parent:
                    os.unlink(below[-1], dir_fd=parent)
        for parts in reversed(folders):
            with folder_descriptor(self.open_folder, self.root, parts[:-1]) as parent:
                os.rmdir(parts[-1], dir_fd=parent)


def _kind_of(item: os.DirEntry[str]) -> Kind:
    if item.is_dir(follow_symlinks=False):
        return "dir"
    return "link" if item.is_symlink() else "other"


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
