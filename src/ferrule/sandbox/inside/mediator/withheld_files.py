"""What is withheld where nothing can be mounted over it: by path, and by the file itself.

A file may have other names. The mediator asks here before it opens, links, moves or removes
anything. With namespaces nothing is in it: there mounts lie over the same names, and the kernel
refuses.

`steps` are those of `layout.finishing`: what is covered is seen as the thing that would lie over it
(an empty folder, a file that nobody may open, a `.git/config` without secrets), what is held can be
read and not changed.
"""

from __future__ import annotations

import os
import stat
from errno import EACCES, EROFS

from . import raw_calls
from .caller_process import CallRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..kernel.mounts import Step

FREE, HELD, HIDDEN = 0, 1, 2
_SHARED = b"/dev/shm/"
_MAX_CACHED = 16_384
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC


class WithheldFiles:
    """The withheld names and files. Paths are absolute, as the kernel gives them.

    `held`: what stands for the session's own folder in the sources of steps, and where that is.
    `roots`: folders that may be written. `shared`: the folder that stands in for /dev/shm, which
    programs reach by opening alone.
    """

    def __init__(
        self,
        steps: Iterable[Step] = (),
        held: tuple[str, str] = ("", ""),
        roots: Iterable[str] = (),
        shared: str = "",
    ) -> None:
        self._shared = os.fsencode(shared)
        self._roots = tuple(os.fsencode(root).rstrip(b"/") + b"/" for root in roots)
        self._hidden: dict[bytes, bytes] = {}
        self._files: dict[tuple[int, int], bytes] = {}
        self._read_only: set[bytes] = set()
        self._levels: dict[bytes, int] = {}
        for action, place, source in steps:
            path = os.fsencode(place)
            if action == "hold":
                self._read_only.add(path)
            elif action == "cover":
                self._hidden[path] = os.fsencode(source.replace(*held, 1))
                self._note_file(path)
        self._empty = not (self._hidden or self._read_only)
        self.without_mounts = bool(self._roots)
        """Whether nothing but these rules protects names: there are no mounts."""

    def __bool__(self) -> bool:
        """Return whether anything is withheld."""
        return not self._empty

    def _note_file(self, path: bytes) -> None:
        try:
            status = os.lstat(path)
        except OSError:
            return  # gone since it was looked at: by its path it is withheld all the same
        if not stat.S_ISDIR(status.st_mode):
            self._files[status.st_dev, status.st_ino] = self._hidden[path]

    def redirect(self, path: bytes) -> bytes:
        """Return the name that is looked up for this one."""
        if self._shared and path.startswith(_SHARED):
            return self._shared + path[len(_SHARED) - 1 :]
        return path

    def check_name(self, folder: bytes, name: bytes = b"", *, change: bool = True) -> None:
        """Refuse a folder, or a name in it, that is hidden; or held, if it is to `change`."""
        if self._empty:
            return
        level = self._level(folder)
        if level < HIDDEN and name:
            path = _join_path(folder, name)
            if path in self._hidden:
                level = HIDDEN
            elif path in self._read_only:
                level = max(level, HELD)
        if level == HIDDEN:
            raise CallRefused(EACCES)
        if level == HELD and change:
            raise CallRefused(EROFS)

    def is_writable(self, path: bytes) -> bool:
        """Return whether a path lies in one of the roots, or is one."""
        return (path + b"/").startswith(self._roots)

    def check_file(self, status: os.stat_result | None) -> None:
        """Refuse this file if it is hidden, by whatever name."""
        if status is not None and (status.st_dev, status.st_ino) in self._files:
            raise CallRefused(EACCES)

    def open_replacement(
        self, folder: bytes, name: bytes, status: os.stat_result, flags: int
    ) -> int | None:
        """Return a handle of what is opened in place of this file; None for the file itself.

        Refused if it may not be opened.
        """
        if self._empty:
            return None
        cover = self._hidden.get(_join_path(folder, name)) or self._files.get(
            (status.st_dev, status.st_ino)
        )
        if cover is None or self._level(folder) == HIDDEN:
            self.check_name(folder, name, change=bool(flags & _WRITING))
            return None
        handle = raw_calls.openat(raw_calls.AT_FDCWD, cover, os.O_PATH | os.O_NOFOLLOW, 0)
        if handle < 0:
            raise CallRefused(EACCES)
        return handle

    def _level(self, folder: bytes) -> int:
        level = self._levels.get(folder)
        if level is None:
            if len(self._levels) >= _MAX_CACHED:
                self._levels.clear()
            level = self._levels[folder] = self._find_level(folder)
        return level

    def _find_level(self, folder: bytes) -> int:
        level = FREE
        path = folder
        while path:
            if path in self._hidden:
                return HIDDEN
            if path in self._read_only:
                level = HELD
            path = path.rpartition(b"/")[0]
        return level


def _join_path(folder: bytes, name: bytes) -> bytes:
    return folder.rstrip(b"/") + b"/" + name
