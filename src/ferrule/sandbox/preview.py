"""What a previewed command would change: read from the upper folder of an overlay, against the
folder below it.

    seen = preview(upper, root, policy.names)
    seen.changes        created, changed and deleted files, sorted by name
    seen.cut            there is more than is listed

Rules of this file:

* A file that was copied up but is what it was (content, mode, owner; not its times) is no change.
  Content is compared up to `COMPARED` bytes in all; beyond that a copied file counts as changed.
* A renamed file is one deleted and one created: an overlay knows nothing else. Folders are listed,
  with a slash at the end, only where no file inside says it: empty ones, and those whose mode or
  owner changed.
* Of a name that no tool may read, neither content nor size is looked at.
* Everything is opened by descriptor, one name at a time, and no link is followed: the upper folder
  is what the command made it.

Source of the format: overlayfs.rst of the kernel. A whiteout is a character device 0:0, or an empty
file with the attribute `overlay.whiteout` in a folder marked `x`; a folder with `overlay.opaque`
hides what is below it. The attributes live below `user.` where the overlay was mounted with
`userxattr`, below `trusted.` elsewhere; only there do they mean something.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.core.frozen import frozen
from ferrule.permissions.protected_names import DEFAULT, Names

from .command import Change

MOST = 10_000
"""Changes that are listed at the most."""
COMPARED = 256 << 20
"""Bytes of content that are compared at the most."""
DEEPEST = 128
"""Folders within folders that are looked into: each holds two descriptors."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PIECE = 1 << 18


@frozen
class Preview:
    """`cut`: some changes are missing (too many, too deep, or a folder that cannot be read)."""

    changes: tuple[Change, ...]
    cut: bool = False


def preview(
    upper: Path,
    lower: Path,
    names: Names = DEFAULT,
    *,
    attributes: str = "user",
    most: int = MOST,
    compared: int = COMPARED,
) -> Preview:
    """List what `upper` changes about `lower`. The overlay must not be in use any more. Raises
    OSError.

    `attributes`: `user` or `trusted`, as the overlay was mounted.
    """
    reading = _Reading(names, attributes, most, compared)
    with _opened(upper) as above, _opened(lower) as below:
        reading.folder(above, below, "", opaque=False)
    return Preview(tuple(sorted(reading.changes, key=lambda change: change.name)), reading.cut)


@dataclass(slots=True)
class _Reading:
    names: Names
    attributes: str
    most: int
    compared: int
    changes: list[Change] = field(default_factory=list[Change])
    cut: bool = False

    def folder(self, above: int, below: int | None, at: str, *, opaque: bool) -> None:
        """A folder of the upper tree. `below` is the same folder of the lower one, if it is a
        folder there.

        `opaque`: what is below is gone, so whatever is not here was deleted.
        """
        marked = self._attribute(above, "opaque")
        opaque = opaque or marked == b"y"
        here = sorted(_listed(above))
        for name in here:
            if self._full():
                return
            status = os.stat(name, dir_fd=above, follow_symlinks=False)
            there = _status(name, below)
            if self._whiteout(status, above, name, marked):
                self._gone(below, name, there, at + name)
            elif stat.S_ISDIR(status.st_mode):
                self._made_folder(above, below, name, status, there, at, opaque)
            else:
                self._file(above, below, name, status, there, at)
        if opaque and below is not None:
            for name in sorted(set(_listed(below)) - set(here)):
                self._gone(below, name, _status(name, below), at + name)

    def _made_folder(
        self,
        above: int,
        below: int | None,
        name: str,
        status: os.stat_result,
        there: os.stat_result | None,
        at: str,
        opaque: bool,
    ) -> None:
        kept = there is not None and stat.S_ISDIR(there.st_mode)
        if there and not kept:
            self._add(at + name, "deleted")
        if kept and _rights(status) != _rights(there):
            self._add(f"{at}{name}/", "changed")
        before = len(self.changes)
        with self._inside(above, name, f"{at}{name}") as inner:
            if inner is None:
                return
            with self._inside(below if kept else None, name, f"{at}{name}") as under:
                self.folder(inner, under, f"{at}{name}/", opaque=opaque)
            if not kept and len(self.changes) == before:
                self._add(f"{at}{name}/", "created")

    def _file(
        self,
        above: int,
        below: int | None,
        name: str,
        status: os.stat_result,
        there: os.stat_result | None,
        at: str,
    ) -> None:
        rel = at + name
        hidden = self.names.check(_shown(rel), write=False) is not None
        if there and stat.S_ISDIR(there.st_mode):
            self._gone(below, name, there, rel)
            there = None
        if (
            there
            and below is not None
            and not hidden
            and self._same(above, below, name, status, there)
        ):
            return
        size = 0 if hidden or not stat.S_ISREG(status.st_mode) else status.st_size
        self._add(rel, "changed" if there else "created", size)

    def _gone(self, below: int | None, name: str, there: os.stat_result | None, rel: str) -> None:
        """Something of the lower tree that is not there any more: a file, or all files of a
        folder.
        """
        if there is None or self._full():
            return
        if not stat.S_ISDIR(there.st_mode):
            self._add(rel, "deleted")
            return
        with self._inside(below, name, rel) as inner:
            if inner is None:
                return
            within = sorted(_listed(inner))
            for each in within:
                self._gone(inner, each, _status(each, inner), f"{rel}/{each}")
            if not within:
                self._add(f"{rel}/", "deleted")

    def _same(
        self, above: int, below: int, name: str, status: os.stat_result, there: os.stat_result
    ) -> bool:
        if _rights(status) != _rights(there):
            return False
        if stat.S_ISLNK(status.st_mode):
            return os.readlink(name, dir_fd=above) == os.readlink(name, dir_fd=below)
        if not stat.S_ISREG(status.st_mode):
            return status.st_rdev == there.st_rdev
        if status.st_size != there.st_size or status.st_size > self.compared:
            return False
        self.compared -= status.st_size
        try:
            return _equal(above, below, name)
        except OSError:
            return False  # What cannot be read cannot be called the same.

    def _whiteout(
        self, status: os.stat_result, folder: int, name: str, marked: bytes | None
    ) -> bool:
        if stat.S_ISCHR(status.st_mode):
            return status.st_rdev == 0
        if marked != b"x" or not stat.S_ISREG(status.st_mode) or status.st_size:
            return False
        return self._attribute(f"/proc/self/fd/{folder}/{name}", "whiteout") is not None

    def _attribute(self, place: int | str, name: str) -> bytes | None:
        """The overlay's own attribute of a folder or file; None if it has none."""
        try:
            return os.getxattr(place, f"{self.attributes}.overlay.{name}")
        except OSError:  # ENODATA; a file system without attributes cannot hold an upper folder.
            return None

    @contextmanager
    def _inside(self, folder: int | None, name: str, rel: str) -> Generator[int | None]:
        """A folder in an open one. None if there is none to open, if it is too deep, or if it
        cannot be read.
        """
        if folder is None or rel.count("/") >= DEEPEST:
            self.cut = self.cut or folder is not None
            yield None
            return
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=folder)
        except OSError:
            self.cut = True
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _add(self, rel: str, kind: str, size: int = 0) -> None:
        if not self._full():
            self.changes.append(Change(_shown(rel), kind, size))

    def _full(self) -> bool:
        full = len(self.changes) >= self.most
        self.cut = self.cut or full
        return full


@contextmanager
def _opened(folder: Path) -> Generator[int]:
    descriptor = os.open(folder, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _listed(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _status(name: str, folder: int | None) -> os.stat_result | None:
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _rights(status: os.stat_result | None) -> tuple[int, int, int] | None:
    """Type and mode, owner, group. A link's mode means nothing and never differs."""
    return (status.st_mode, status.st_uid, status.st_gid) if status else None


def _equal(above: int, below: int, name: str) -> bool:
    with _read(above, name) as new, _read(below, name) as old:
        while True:
            piece, other = os.read(new, _PIECE), os.read(old, _PIECE)
            if piece != other:
                return False
            if not piece:
                return True


@contextmanager
def _read(folder: int, name: str) -> Generator[int]:
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _shown(name: str) -> str:
    """A file name as text: bytes that are not UTF-8 are escaped, so that it can be journaled."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
