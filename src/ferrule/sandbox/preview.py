"""What a previewed command would change: an overlay's upper folder, compared with the lower one.

    seen = preview(upper, root, policy.names)
    seen.changes        created, changed and deleted files, sorted by name
    seen.cut            there is more than is listed

Rules of this file:

* A file that was copied up but is what it was (content, mode, owner; not its times) is no change.
  Content is compared up to a limit of bytes in all (`MAX_COMPARED_BYTES`); beyond it a copied file
  counts as changed.
* A renamed file is one deleted and one created: an overlay knows nothing else. Folders are listed,
  with a slash at the end, only where no file inside shows them: empty ones, and those whose mode or
  owner changed.
* Of a name that no tool may read, neither content nor size is looked at.
* Everything is opened by descriptor, one name at a time, and no link is followed: the upper folder
  holds whatever the command put there.

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

from ferrule.core.value_class import frozen
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames

from .command import Change

MAX_CHANGES = 10_000
"""Changes that are listed at most."""
MAX_COMPARED_BYTES = 256 << 20
"""Bytes of content that are compared at most."""
MAX_DEPTH = 128
"""Nested folders that are looked into at most: each level holds two descriptors."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 18


@frozen
class PreviewedChanges:
    """The changes.

    `truncated`: some are missing (too many, too deep, or a folder was unreadable).
    """

    changes: tuple[Change, ...]
    truncated: bool = False


def list_changes(
    upper: Path,
    lower: Path,
    names: ProtectedNames = DEFAULT_NAMES,
    *,
    attributes: str = "user",
    max_changes: int = MAX_CHANGES,
    max_compared_bytes: int = MAX_COMPARED_BYTES,
) -> PreviewedChanges:
    """List what `upper` changes about `lower`. The overlay must no longer be in use.

    Args:
        upper: The folder that the overlay wrote to.
        lower: The folder below it.
        names: The names that no tool may read.
        attributes: `user` or `trusted`, as the overlay was mounted.
        max_changes: Changes that are listed at most.
        max_compared_bytes: Bytes of content that are compared at most.

    Raises:
        OSError: One of the two folders cannot be read.
    """
    comparison = _Comparison(names, attributes, max_changes, max_compared_bytes)
    with _open_folder(upper) as above, _open_folder(lower) as below:
        comparison.compare(above, below, "", opaque=False)
    return PreviewedChanges(
        tuple(sorted(comparison.changes, key=lambda change: change.name)), comparison.cut
    )


@dataclass(slots=True)
class _Comparison:
    names: ProtectedNames
    attributes: str
    most: int
    compared: int
    changes: list[Change] = field(default_factory=list[Change])
    cut: bool = False

    def compare(self, upper: int, lower: int | None, prefix: str, *, opaque: bool) -> None:
        """Compare a folder of the upper tree.

        `lower` is the same folder of the lower tree, if it is a folder there. `opaque`: what the
        lower tree has is hidden, so whatever is not here was deleted.
        """
        mark = self._attribute(upper, "opaque")
        opaque = opaque or mark == b"y"
        names = sorted(_list_names(upper))
        for name in names:
            if self._is_full():
                return
            upper_status = os.stat(name, dir_fd=upper, follow_symlinks=False)
            lower_status = _stat_or_none(name, lower)
            if self._is_whiteout(upper_status, upper, name, mark):
                self._add_deleted(lower, name, lower_status, prefix + name)
            elif stat.S_ISDIR(upper_status.st_mode):
                self._compare_folder(upper, lower, name, upper_status, lower_status, prefix, opaque)
            else:
                self._compare_file(upper, lower, name, upper_status, lower_status, prefix)
        if opaque and lower is not None:
            for name in sorted(set(_list_names(lower)) - set(names)):
                self._add_deleted(lower, name, _stat_or_none(name, lower), prefix + name)

    def _compare_folder(
        self,
        upper: int,
        lower: int | None,
        name: str,
        upper_status: os.stat_result,
        lower_status: os.stat_result | None,
        prefix: str,
        opaque: bool,
    ) -> None:
        is_folder_below = lower_status is not None and stat.S_ISDIR(lower_status.st_mode)
        if lower_status and not is_folder_below:
            self._add(prefix + name, "deleted")
        if is_folder_below and _mode_and_owner(upper_status) != _mode_and_owner(lower_status):
            self._add(f"{prefix}{name}/", "changed")
        count_before = len(self.changes)
        with self._open_inside(upper, name, f"{prefix}{name}") as upper_inner:
            if upper_inner is None:
                return
            with self._open_inside(
                lower if is_folder_below else None, name, f"{prefix}{name}"
            ) as lower_inner:
                self.compare(upper_inner, lower_inner, f"{prefix}{name}/", opaque=opaque)
            if not is_folder_below and len(self.changes) == count_before:
                self._add(f"{prefix}{name}/", "created")

    def _compare_file(
        self,
        upper: int,
        lower: int | None,
        name: str,
        upper_status: os.stat_result,
        lower_status: os.stat_result | None,
        prefix: str,
    ) -> None:
        relative = prefix + name
        hidden = self.names.check(_printable(relative), write=False) is not None
        if lower_status and stat.S_ISDIR(lower_status.st_mode):
            self._add_deleted(lower, name, lower_status, relative)
            lower_status = None
        if (
            lower_status
            and lower is not None
            and not hidden
            and self._is_unchanged(upper, lower, name, upper_status, lower_status)
        ):
            return
        size = 0 if hidden or not stat.S_ISREG(upper_status.st_mode) else upper_status.st_size
        self._add(relative, "changed" if lower_status else "created", size)

    def _add_deleted(
        self, lower: int | None, name: str, lower_status: os.stat_result | None, relative: str
    ) -> None:
        """Add what is gone from the lower tree: a file, or all files of a folder."""
        if lower_status is None or self._is_full():
            return
        if not stat.S_ISDIR(lower_status.st_mode):
            self._add(relative, "deleted")
            return
        with self._open_inside(lower, name, relative) as inner:
            if inner is None:
                return
            children = sorted(_list_names(inner))
            for child in children:
                self._add_deleted(inner, child, _stat_or_none(child, inner), f"{relative}/{child}")
            if not children:
                self._add(f"{relative}/", "deleted")

    def _is_unchanged(
        self,
        upper: int,
        lower: int,
        name: str,
        upper_status: os.stat_result,
        lower_status: os.stat_result,
    ) -> bool:
        if _mode_and_owner(upper_status) != _mode_and_owner(lower_status):
            return False
        if stat.S_ISLNK(upper_status.st_mode):
            return os.readlink(name, dir_fd=upper) == os.readlink(name, dir_fd=lower)
        if not stat.S_ISREG(upper_status.st_mode):
            return upper_status.st_rdev == lower_status.st_rdev
        if upper_status.st_size != lower_status.st_size or upper_status.st_size > self.compared:
            return False
        self.compared -= upper_status.st_size
        try:
            return _has_equal_content(upper, lower, name)
        except OSError:
            return False  # What cannot be read cannot be called the same.

    def _is_whiteout(
        self, upper_status: os.stat_result, folder: int, name: str, mark: bytes | None
    ) -> bool:
        if stat.S_ISCHR(upper_status.st_mode):
            return upper_status.st_rdev == 0
        if mark != b"x" or not stat.S_ISREG(upper_status.st_mode) or upper_status.st_size:
            return False
        return self._attribute(f"/proc/self/fd/{folder}/{name}", "whiteout") is not None

    def _attribute(self, place: int | str, name: str) -> bytes | None:
        """Return the overlay's own attribute of a folder or file; None if it has none."""
        try:
            return os.getxattr(place, f"{self.attributes}.overlay.{name}")
        except OSError:  # ENODATA; a file system without attributes cannot hold an upper folder.
            return None

    @contextmanager
    def _open_inside(self, folder: int | None, name: str, relative: str) -> Generator[int | None]:
        """Open a folder inside an open one.

        Yields None if there is none to open, if it is too deep, or if it cannot be read.
        """
        if folder is None or relative.count("/") >= MAX_DEPTH:
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

    def _add(self, relative: str, kind: str, size: int = 0) -> None:
        if not self._is_full():
            self.changes.append(Change(_printable(relative), kind, size))

    def _is_full(self) -> bool:
        full = len(self.changes) >= self.most
        self.cut = self.cut or full
        return full


@contextmanager
def _open_folder(folder: Path) -> Generator[int]:
    descriptor = os.open(folder, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _list_names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _stat_or_none(name: str, folder: int | None) -> os.stat_result | None:
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _mode_and_owner(status: os.stat_result | None) -> tuple[int, int, int] | None:
    """Return type and mode, owner, group. A link's mode means nothing and never differs."""
    return (status.st_mode, status.st_uid, status.st_gid) if status else None


def _has_equal_content(upper: int, lower: int, name: str) -> bool:
    with _open_file(upper, name) as new, _open_file(lower, name) as old:
        while True:
            chunk = os.read(new, _CHUNK)
            other = os.read(old, _CHUNK)
            if chunk != other:
                return False
            if not chunk:
                return True


@contextmanager
def _open_file(folder: int, name: str) -> Generator[int]:
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _printable(name: str) -> str:
    """Return a file name as text for the journal: bytes that are not UTF-8 are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
