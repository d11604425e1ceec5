"""Where a session keeps what its commands say: a folder of its own, outside the workspace, gone
with the session.

    <state>/commands/<random>.lock     held (flock) for as long as the session lives
    <state>/commands/<random>/         mode 0700; files are made with O_EXCL and O_NOFOLLOW, mode 0600

A lock that can be taken belongs to a session that died: its folder is removed when the next one
begins. The kernel lets go of a lock with its process, so a new process with an old number confuses
nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from uuid import uuid4

from ferrule.core.errors import FerruleError
from ferrule.storage import paths

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """The folder of one session. Made when it is asked for; `close` removes it, at the latest the
    interpreter's end.
    """

    def __init__(self) -> None:
        above, ours = _above()
        reap(above)
        name, lock = _locked(above)
        self.path = above / name
        self.path.mkdir(mode=0o700)
        self._descriptor = os.open(
            self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
        self._finalizer = weakref.finalize(self, _remove, self.path, self._descriptor, lock, ours)

    def create(self, name: str) -> int:
        """A new file, for writing."""
        return os.open(name, _NEW, 0o600, dir_fd=self._descriptor)

    def open(self, name: str, identity: tuple[int, ...]) -> int:
        """A file for reading, if it is still the one that `identity_of` tells of. Raises
        FileNotFoundError.
        """
        descriptor = os.open(
            name,
            os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            dir_fd=self._descriptor,
        )
        status = os.fstat(descriptor)
        if identity_of(status)[: len(identity)] != identity or not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise FileNotFoundError(f"`{name}` was replaced")
        return descriptor

    def remove(self, name: str) -> None:
        """Remove a file that may be gone already."""
        if self._descriptor >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._descriptor)

    def close(self) -> None:
        """Remove the folder and all it holds. Safe to call twice; what is asked of it afterwards
        fails.
        """
        # Never used again: its number may soon belong to something else.
        self._descriptor = -1
        self._finalizer()


def _above() -> tuple[Path, bool]:
    """The folder of all sessions; where the state folder cannot be written, a fresh one that is
    ours alone.
    """
    try:
        return paths.private_folder(paths.state() / "commands"), False
    except FerruleError:
        return Path(tempfile.mkdtemp(prefix="ferrule-commands-")), True


def identity_of(status: os.stat_result) -> tuple[int, ...]:
    """Device, inode, and when it was last changed: without the last for a file that is still
    written.
    """
    return status.st_dev, status.st_ino, status.st_ctime_ns


def reap(above: Path) -> None:
    """Remove the folders of sessions that are no more."""
    for lock in sorted(above.glob("*.lock")):
        descriptor = _try(lock)
        if descriptor is None:
            continue
        try:
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _try(lock: Path) -> int | None:
    """The lock as a descriptor if nobody holds it."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None  # removed by another one in the same moment, or no file of ours
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _locked(above: Path) -> tuple[str, int]:
    """A fresh name whose lock we hold."""
    while True:
        name = uuid4().hex
        descriptor = os.open(above / f"{name}.lock", _NEW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return name, descriptor
        # Someone reaped it between its making and our lock.
        os.close(descriptor)


def _remove(path: Path, descriptor: int, lock: int, ours: bool) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.with_suffix(".lock").unlink(missing_ok=True)
    if ours:
        path.parent.rmdir()
    os.close(descriptor)
    os.close(lock)
