"""Folders in the folder for temporary files that are gone afterwards, however we end.

    folder = TemporaryFolder("mcp")
    try: ... folder.path ...
    finally: folder.remove()

A folder is closed to other users and removed by its owner, or at the end of the interpreter. If our
process is killed, it stays, and whoever makes the next one removes it: a lock in it that nobody
holds says that its process is gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

_PREFIX = "ferrule-"
_LOCK = "lock"


class TemporaryFolder:
    """A folder of this process.

    Args:
        purpose: A word in its name.

    Attributes:
        base: The folder, with the lock in it.
        path: An empty folder in it.
    """

    def __init__(self, purpose: str) -> None:
        _remove_abandoned()
        self.base = Path(os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-")))
        # Held until our process ends, however that happens. It gets its name when it is held:
        # others take a folder whose lock nobody holds for abandoned.
        made = self.base / f"{_LOCK}.new"
        lock = os.open(made, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._finalizer = weakref.finalize(self, _remove, str(self.base), lock, os.getpid())
        fcntl.flock(lock, fcntl.LOCK_EX)
        made.rename(self.base / _LOCK)
        self.path = self.base / "files"
        self.path.mkdir(mode=0o700)

    def remove(self) -> None:
        """Remove the folder and what is in it; again does nothing.

        Nor does it in a process that was forked from ours.
        """
        self._finalizer()


def _remove(base: str, lock: int, owner: int) -> None:
    if owner == os.getpid():
        remove_folder(base)
        os.close(lock)


def remove_folder(folder: str) -> None:
    """Remove a folder, also where a command took away its own rights on what is in it.

    What cannot be removed stays.
    """
    if sys.version_info >= (3, 12):
        shutil.rmtree(folder, onexc=_retry_with_rights)
    else:
        shutil.rmtree(folder, onerror=_retry_with_rights)


def _retry_with_rights(function: Callable[..., object], path: str, _: object) -> None:
    try:
        os.chmod(os.path.dirname(path), stat.S_IRWXU)  # noqa: PTH101, PTH120  paths as rmtree gives them
        if function not in (os.open, os.scandir, os.lstat):
            function(path)
            return
        mode = os.lstat(path).st_mode
        # A folder that was opened to us once is not tried again: each try has one folder less.
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(path, stat.S_IRWXU)  # noqa: PTH101  paths as rmtree gives them
            remove_folder(path)
    except OSError:
        return  # it is in the system's temporary folder, where things may stay


def _remove_abandoned() -> None:
    """Remove our folders whose process is gone."""
    for base in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if base.is_symlink() or base.stat().st_uid != os.geteuid():
                continue
            lock = os.open(base / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # another's, or being made just now
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(str(base))
        except OSError:
            continue  # its process lives
        finally:
            os.close(lock)
