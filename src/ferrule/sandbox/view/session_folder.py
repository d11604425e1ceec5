"""The folder with the `/tmp` and home of a session's commands, and with what is laid over names.

It is made below the system's temporary folder, closed to other users, and removed when the session
ends. If our process is killed, it stays: whoever makes the next one removes those whose lock nobody
holds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .layout import SessionPaths

_PREFIX = "ferrule-session-"
_LOCK = "lock"


class SessionFolder:
    """A folder that is made when it is first needed.

    `remove` removes it for good, with everything in it.
    """

    def __init__(self) -> None:
        self._places: SessionPaths | None = None
        self._lock = -1
        self._owner = os.getpid()

    def make(self) -> SessionPaths:
        """Make the folder, once, and return its paths."""
        if self._places is None:
            _remove_abandoned()
            base = Path(os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX)))
            # Held until our process ends, however that happens. It gets its name when it is held:
            # others take a folder whose lock nobody holds for abandoned.
            made = base / f"{_LOCK}.new"
            self._lock = os.open(made, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            made.rename(base / _LOCK)
            _create_contents(base)
            self._places = SessionPaths(str(base))
        return self._places

    def remove(self) -> None:
        """Remove the folder.

        Does nothing if it was never made, was removed already, or belongs to the process that we
        were forked from.
        """
        if self._lock >= 0 and self._places is not None and self._owner == os.getpid():
            remove_folder(self._places.base)
            os.close(self._lock)
            self._lock = -1


def _create_contents(base: Path) -> None:
    for name in ("tmp", "home", "view", "held", "held/empty", "held/covers", "held/previews"):
        (base / name).mkdir(mode=0o700)
    for name, mode in (
        ("tmp", 0o1777),
        ("held", 0o755),
        ("held/empty", 0o555),
        ("held/covers", 0o755),
    ):
        (base / name).chmod(mode)
    closed = base / "held/closed"
    closed.touch()
    closed.chmod(0)


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
