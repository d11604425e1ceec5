"""Walks and removes folders. Each folder is opened beneath the root, and no link is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from .open_beneath import OpenFolder, folder_descriptor

ScannedName = tuple[str, os.stat_result]
"""A name in a folder as the file system spells it, and a stat that follows no link."""

FoundFile = tuple[tuple[str, ...], os.stat_result]
"""Components below the root as the file system spells them, and a stat that follows no link."""


@dataclass(slots=True)
class FolderTree:
    """A root (a descriptor, -1 once it is closed) and a function that opens folders beneath it."""

    root: int
    open_folder: OpenFolder

    def scan_folder(self, parts: tuple[str, ...]) -> list[ScannedName]:
        """Return what is in a folder, sorted by name. What vanishes meanwhile is left out."""
        found: list[ScannedName] = []
        with (
            folder_descriptor(self.open_folder, self.root, parts, os.O_RDONLY) as descriptor,
            os.scandir(descriptor) as items,
        ):
            for item in items:
                try:
                    found.append((item.name, item.stat(follow_symlinks=False)))
                except FileNotFoundError:
                    continue
        found.sort(key=itemgetter(0))
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
