"""A file, folder or link in the workspace, as tools and people see it."""

from __future__ import annotations

import os
import stat
from typing import Literal

from ferrule.core.value_class import frozen

Kind = Literal["file", "dir", "link", "other"]


@frozen
class FileEntry:
    """A file, folder or link. A link is described itself, never what it points to.

    Bytes of a name that are not UTF-8 appear as U+FFFD; such a name can be listed but not opened.

    Attributes:
        path: Relative to the workspace; `""` is the root.
        size: In bytes.
        modified: In seconds since 1970.
        mode: The permission bits.
        links: The number of names of the file (hard links).
    """

    path: str
    name: str
    kind: Kind
    size: int
    modified: float
    mode: int
    links: int = 1

    @staticmethod
    def from_stat(path: str, status: os.stat_result) -> FileEntry:
        """Return the entry for a stat that did not follow links."""
        shown = show_path(path)
        return FileEntry(
            path=shown,
            name=shown.rpartition("/")[2] or ".",
            kind=kind_of_mode(status.st_mode),
            size=status.st_size,
            modified=status.st_mtime,
            mode=stat.S_IMODE(status.st_mode),
            links=status.st_nlink,
        )


def show_path(path: str) -> str:
    """Return a path with U+FFFD for bytes that are not UTF-8."""
    return path if path.isascii() else os.fsencode(path).decode(errors="replace")


def kind_of_mode(mode: int) -> Kind:
    """Return the kind of what has this mode, as a stat that followed no link reports it."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"
