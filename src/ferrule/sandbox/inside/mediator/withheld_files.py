"""What is withheld where no mount can be laid over it: by path, and by the file itself, which may
have other names.

The mediator asks here before it opens, links, moves or removes anything. For namespaces there is
nothing in it: there mounts lie over the same names, and the kernel refuses.

`steps` are those of `layout.finishing`: what is covered is seen as the thing that would lie over it
(an empty folder, a file that nobody may open, a `.git/config` without secrets), what is held can be
read and not changed.
"""

from __future__ import annotations

import os
import stat
from errno import EACCES, EROFS

from . import file_calls
from .callers import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..kernel.mounts import Step

FREE, HELD, HIDDEN = 0, 1, 2
_SHARED = b"/dev/shm/"
_MOST_KEPT = 16_384
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC


class Covers:
    """`held`: what stands for `HELD` in the sources of steps. `roots`: folders that may be written.
    `shared`: the folder that stands in for /dev/shm, which programs reach by opening alone. Paths
    are absolute, as the kernel gives them.
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
        self._held: set[bytes] = set()
        self._kept: dict[bytes, int] = {}
        for action, place, source in steps:
            path = os.fsencode(place)
            if action == "hold":
                self._held.add(path)
            elif action == "cover":
                self._hidden[path] = os.fsencode(source.replace(*held, 1))
                self._note_file(path)
        self._empty = not (self._hidden or self._held)
        self.alone = bool(self._roots)
        """Whether nothing but these holds: no mounts."""

    def __bool__(self) -> bool:
        """Whether anything is withheld."""
        return not self._empty

    def _note_file(self, path: bytes) -> None:
        try:
            status = os.lstat(path)
        except OSError:
            return  # gone since it was looked at: by its path it is withheld all the same
        if not stat.S_ISDIR(status.st_mode):
            self._files[status.st_dev, status.st_ino] = self._hidden[path]

    def instead(self, path: bytes) -> bytes:
        """The name that is looked up for this one."""
        if self._shared and path.startswith(_SHARED):
            return self._shared + path[len(_SHARED) - 1 :]
        return path

    def enter(self, folder: bytes, name: bytes = b"", *, change: bool = True) -> None:
        """Refusal where a folder, or a name in it, is hidden; where it is held, if something is to
        `change`.
        """
        if self._empty:
            return
        how = self._how(folder)
        if how < HIDDEN and name:
            path = _joined(folder, name)
            how = HIDDEN if path in self._hidden else max(how, HELD if path in self._held else FREE)
        if how == HIDDEN:
            raise Refusal(EACCES)
        if how == HELD and change:
            raise Refusal(EROFS)

    def writable(self, path: bytes) -> bool:
        """Whether a path lies in one of the roots, or is one."""
        return (path + b"/").startswith(self._roots)

    def touch(self, status: os.stat_result | None) -> None:
        """Refusal if this file is hidden, by whatever name."""
        if status is not None and (status.st_dev, status.st_ino) in self._files:
            raise Refusal(EACCES)

    def seen(self, folder: bytes, name: bytes, status: os.stat_result, flags: int) -> int | None:
        """A handle of what is opened in place of this file; None: the file itself. Refusal if it
        may not be opened.
        """
        if self._empty:
            return None
        cover = self._hidden.get(_joined(folder, name)) or self._files.get(
            (status.st_dev, status.st_ino)
        )
        if cover is None or self._how(folder) == HIDDEN:
            self.enter(folder, name, change=bool(flags & _WRITING))
            return None
        found = file_calls.openat(file_calls.AT_FDCWD, cover, os.O_PATH | os.O_NOFOLLOW, 0)
        if found < 0:
            raise Refusal(EACCES)
        return found

    def _how(self, folder: bytes) -> int:
        known = self._kept.get(folder)
        if known is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            known = self._kept[folder] = self._look(folder)
        return known

    def _look(self, folder: bytes) -> int:
        found, path = FREE, folder
        while path:
            if path in self._hidden:
                return HIDDEN
            if path in self._held:
                found = HELD
            path = path.rpartition(b"/")[0]
        return found


def _joined(folder: bytes, name: bytes) -> bytes:
    return folder.rstrip(b"/") + b"/" + name
