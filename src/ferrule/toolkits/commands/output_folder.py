"""The folder of a session's command outputs: outside the workspace, removed with the session.

    <state>/commands/<random>.lock     locked (flock) as long as the session lives
    <state>/commands/<random>/         mode 0700; files have mode 0600 (O_EXCL and O_NOFOLLOW)

A lock that can be taken belongs to a session that died: its folder is removed when the next session
begins. The kernel releases a lock with its process, so a new process with an old number does no
harm.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import weakref
from pathlib import Path
from uuid import uuid4

from ferrule.core.errors import FerruleError
from ferrule.sandbox.temporary_folder import TemporaryFolder
from ferrule.storage import paths

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputFolder:
    """The folder of one session, made on demand.

    `close` removes it, or the end of the interpreter does.
    """

    def __init__(self) -> None:
        parent, temporary = _parent_folder()
        remove_dead_folders(parent)
        name, lock = _lock_new_name(parent)
        self.path = parent / name
        self.path.mkdir(mode=0o700)
        self._descriptor = os.open(
            self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
        self._finalizer = weakref.finalize(
            self, _remove, self.path, self._descriptor, lock, temporary
        )

    def create(self, name: str) -> int:
        """Create a file, and return a descriptor for writing."""
        return os.open(name, _CREATE_FLAGS, 0o600, dir_fd=self._descriptor)

    def open(self, name: str, identity: tuple[int, ...]) -> int:
        """Open a file for reading if it is still the one with this `file_identity`.

        Raises:
            FileNotFoundError: The file is gone or was replaced.
        """
        descriptor = os.open(
            name,
            os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            dir_fd=self._descriptor,
        )
        status = os.fstat(descriptor)
        if file_identity(status)[: len(identity)] != identity or not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise FileNotFoundError(f"`{name}` was replaced")
        return descriptor

    def remove(self, name: str) -> None:
        """Remove a file that may already be gone."""
        if self._descriptor >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._descriptor)

    def close(self) -> None:
        """Remove the folder and its content. Safe to call twice; it cannot be used again."""
        # The descriptor's number may soon belong to something else.
        self._descriptor = -1
        self._finalizer()


def _parent_folder() -> tuple[Path, TemporaryFolder | None]:
    """Return the folder of all sessions.

    If the state folder cannot be written, it is a temporary one of our own.
    """
    try:
        return paths.make_private_folder(paths.state() / "commands"), None
    except FerruleError:
        temporary = TemporaryFolder("commands")
        return temporary.path, temporary


def file_identity(status: os.stat_result) -> tuple[int, ...]:
    """Return device, inode, and time of the last change of a file.

    A file that is still being written is compared without the last.
    """
    return status.st_dev, status.st_ino, status.st_ctime_ns


def remove_dead_folders(parent: Path) -> None:
    """Remove the folders of sessions that have died."""
    for lock in sorted(parent.glob("*.lock")):
        descriptor = _try_lock(lock)
        if descriptor is None:
            continue
        try:
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _try_lock(lock: Path) -> int | None:
    """Return the lock as a descriptor if nobody holds it."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None  # Removed by another process at the same moment, or not a file of ours.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _lock_new_name(parent: Path) -> tuple[str, int]:
    """Return a new name, and its lock which we hold."""
    while True:
        name = uuid4().hex
        descriptor = os.open(parent / f"{name}.lock", _CREATE_FLAGS, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return name, descriptor
        # Another session removed it before we had the lock.
        os.close(descriptor)


def _remove(path: Path, descriptor: int, lock: int, temporary: TemporaryFolder | None) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.with_suffix(".lock").unlink(missing_ok=True)
    if temporary is not None:
        temporary.remove()
    os.close(descriptor)
    os.close(lock)
