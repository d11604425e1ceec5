"""One writer per session, across processes: a kernel lock on one byte of a lock file.

The kernel gives the lock back when the descriptor is closed, also by `kill -9`, so a dead owner
never has to be guessed from its process id (which is misleading across containers and reboots). The
locks belong to the open file (`F_OFD_SETLK`), so two journals in one process exclude each other as
well; where the platform has only per-process locks they do not. A forked child shares its parent's
leases and must not use its journal.
"""

from __future__ import annotations

import fcntl
import os
import struct
import weakref
from hashlib import sha256
from pathlib import Path
from typing import Final

from ferrule.core.errors import JournalError

_SETLK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_SETLKW: Final[int | None] = getattr(fcntl, "F_OFD_SETLKW", None)

_IN_USE_BYTE: Final = 1 << 60
"""The byte that everybody who has the journal open locks together; sessions' bytes are below it."""


class FileLeases:
    """The leases of one journal. Without a path (a journal in memory) they are only counted.

    They end with `close`, or with this object.
    """

    def __init__(self, path: Path | None) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = -1 if path is None else os.open(path, flags, 0o600)
        self._held: set[str] = set()
        self._finalizer = None
        if path is not None:
            self._finalizer = weakref.finalize(self, os.close, self._descriptor)

    @property
    def has_any(self) -> bool:
        """Whether a session is taken."""
        return bool(self._held)

    def take(self, session: str) -> None:
        """Take the session; taking it twice is the same as once.

        Raises:
            JournalError: Another process has it (`journal_leased`).
        """
        if session in self._held:
            return
        if self._descriptor >= 0 and not self._lock(_offset(session)):
            raise JournalError(
                f"session `{session}` is in use by another process",
                code="journal_leased",
                hint="wait until it ends, or start a new session",
                retryable=True,
            )
        self._held.add(session)

    def release(self, session: str) -> None:
        """Release the session, if it was taken."""
        if session in self._held and self._descriptor >= 0:
            self._set(fcntl.F_UNLCK, _offset(session), wait=False)
        self._held.discard(session)

    def mark_in_use(self) -> None:
        """Mark the journal as in use; any number of processes may.

        Raises:
            JournalError: It is being salvaged (`journal_busy`).
        """
        if self._descriptor >= 0 and not self._lock(_IN_USE_BYTE, fcntl.F_RDLCK):
            raise JournalError("the journal is being salvaged", code="journal_busy", retryable=True)

    def lock_exclusively(self) -> bool:
        """Lock the whole journal until `close`. Return whether nobody else uses it."""
        return self._descriptor < 0 or self._lock(_IN_USE_BYTE)

    def lock_creation(self) -> None:
        """Wait for the right to create the file; `unlock_creation` gives it back."""
        if self._descriptor >= 0:
            self._set(fcntl.F_WRLCK, 0, wait=True)

    def unlock_creation(self) -> None:
        if self._descriptor >= 0:
            self._set(fcntl.F_UNLCK, 0, wait=False)

    def close(self) -> None:
        """Release everything."""
        if self._finalizer is not None:
            self._finalizer()
        self._descriptor = -1
        self._held.clear()

    def _lock(self, offset: int, kind: int = fcntl.F_WRLCK) -> bool:
        try:
            self._set(kind, offset, wait=False)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _set(self, kind: int, offset: int, *, wait: bool) -> None:
        operation = _SETLKW if wait else _SETLK
        if operation is not None:
            # struct flock of Linux: type, whence, start, length, pid (must be 0 for these locks).
            fcntl.fcntl(
                self._descriptor, operation, struct.pack("hhqqi0q", kind, os.SEEK_SET, offset, 1, 0)
            )
            return
        how = {fcntl.F_UNLCK: fcntl.LOCK_UN, fcntl.F_RDLCK: fcntl.LOCK_SH}.get(kind, fcntl.LOCK_EX)
        how |= 0 if wait else fcntl.LOCK_NB
        fcntl.lockf(self._descriptor, how, 1, offset)


def _offset(session: str) -> int:
    """Return the byte that stands for a session: 56 bits of its hash, after byte 0."""
    return 1 + int.from_bytes(sha256(session.encode("utf-8", "surrogatepass")).digest()[:7], "big")
