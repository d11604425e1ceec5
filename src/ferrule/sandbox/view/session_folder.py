"""The folder that a session's commands have as their `/tmp` and home, and where what is laid over
names lies.

It is made below the system's temporary folder, closed to other users, and removed when the session
ends. If our process is killed, it stays: whoever makes the next one removes what nobody holds the
lock of.
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

from .layout import Places

_PREFIX = "ferrule-session-"
_LOCK = "lock"


class SessionFolder:
    """A folder that is made when it is first needed. `remove` takes it away with all that is in it,
    for good.
    """

    def __init__(self) -> None:
        self._places: Places | None = None
        self._lock = -1
        self._owner = os.getpid()

    def make(self) -> Places:
        """What is where. Made once."""
        if self._places is None:
            _remove_forgotten()
            base = Path(os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX)))
            # Held until our process ends, however that happens.
            self._lock = os.open(base / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            _furnish(base)
            self._places = Places(str(base))
        return self._places

    def remove(self) -> None:
        """Nothing where it was never made, was removed already, or belongs to the process that we
        were forked from.
        """
        if self._lock >= 0 and self._places is not None and self._owner == os.getpid():
            remove(self._places.base)
            os.close(self._lock)
            self._lock = -1


def _furnish(base: Path) -> None:
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


def remove(folder: str) -> None:
    """Remove a folder, also where a command took away its own rights on what is in it. What cannot
    be removed stays.
    """
    if sys.version_info >= (3, 12):
        shutil.rmtree(folder, onexc=_insist)
    else:
        shutil.rmtree(folder, onerror=_insist)


def _insist(function: Callable[..., object], path: str, _: object) -> None:
    try:
        os.chmod(os.path.dirname(path), stat.S_IRWXU)  # noqa: PTH101, PTH120  paths as rmtree gives them
        if function in (os.open, os.scandir, os.lstat):
            os.chmod(path, stat.S_IRWXU)  # noqa: PTH101  paths as rmtree gives them
            shutil.rmtree(path, ignore_errors=True)
        else:
            function(path)
    except OSError:
        return  # it lies in the system's temporary folder, where things are left


def _remove_forgotten() -> None:
    """Folders of ours whose process is gone."""
    for base in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if base.is_symlink() or base.stat().st_uid != os.geteuid():
                continue
            lock = os.open(base / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # another's, or being made just now
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(str(base))
        except OSError:
            continue  # its process lives
        finally:
            os.close(lock)
