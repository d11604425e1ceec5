"""Looks at and removes whole folders. Every folder is opened anew beneath the root: no link is
followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from .open_beneath import OpenFolder, folder

Found = tuple[tuple[str, ...], os.stat_result]
"""Components below the root as the file system spells them, and the stat of the thing itself."""


@dataclass(slots=True)
class Tree:
    """A root (a descriptor, -1 when it is closed) and the way to open what is beneath it."""

    root: int
    open_folder: OpenFolder

    def scan(self, parts: tuple[str, ...]) -> list[Found]:
        """What is in one folder, by name. What vanishes meanwhile is left out. Raises OSError."""
        found: list[Found] = []
        with (
            folder(self.open_folder, self.root, parts, os.O_RDONLY) as descriptor,
            os.scandir(descriptor) as items,
        ):
            for item in items:
                with suppress(FileNotFoundError):
                    found.append(((*parts, item.name), item.stat(follow_symlinks=False)))
        found.sort(key=lambda one: one[0])
        return found

    def everything(self, parts: tuple[str, ...]) -> Iterator[Found]:
        """All that is below a folder, nothing pruned, folders before what is in them. Raises
        OSError.
        """
        waiting = self.scan(parts)[::-1]
        while waiting:
            found = waiting.pop()
            yield found
            if stat.S_ISDIR(found[1].st_mode):
                waiting += self.scan(found[0])[::-1]

    def remove(self, parts: tuple[str, ...]) -> None:
        """Deletes a folder and all below it, links themselves included. Raises OSError half-way if
        it must.
        """
        folders = [parts]
        for below, status in self.everything(parts):
            if stat.S_ISDIR(status.st_mode):
                folders.append(below)
            else:
                with folder(self.open_folder, self.root, below[:-1]) as parent:
                    os.unlink(below[-1], dir_fd=parent)
        for one in reversed(folders):
            with folder(self.open_folder, self.root, one[:-1]) as parent:
                os.rmdir(one[-1], dir_fd=parent)
