"""What a worker gives up before it reads its first script.

Its socket is descriptor 0, and no other descriptor can be opened after `lock`: no file, no
connection, no pipe. It writes no file and leaves no core dump. Its memory is limited twice: the
script is stopped when the process exceeds its limit (`LimitWatch`), and the kernel refuses what is
far beyond (RLIMIT_AS).

Not protected: a vulnerability in the Starlark library would give a script what this process still
has, which is system calls without descriptors. Scripts have no other way to Python or the system.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import sys
import time

SLACK = 128 << 20
"""Bytes of address space beyond the limit, which an allocator takes in advance."""
_PEEK_EVERY = 0.05
PORTABLE = os.environ.get("FERRULE_PORTABLE") == "1" or not os.path.exists("/proc/self/statm")  # noqa: PTH110  no pathlib in here
"""Where there is no `/proc`, or it is switched off.

How much address space is used already is not known then, so the kernel's own limit is that much
further off (`UNKNOWN`), and some systems do not have one.
"""
UNKNOWN = 1 << 30
_PAGE = resource.getpagesize()


class LimitWatch:
    """Decides whether the script must stop; asked about every thousand instructions.

    `stopped` says why (`timeout`, `memory`). It ends the whole process if its owner is gone.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._statm = -1 if PORTABLE else os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._deadline = 0.0
        self._peek_at = 0.0
        self._memory = 0
        self._hard_limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        self.stopped = ""

    def begin(self, seconds: float | None, memory: int) -> None:
        """Start watching a script. It may take `seconds` (None: no limit) and `memory` bytes."""
        now = time.monotonic()
        self._deadline = float("inf") if seconds is None else now + seconds
        self._memory = self.resident() + memory
        self._peek_at = now + _PEEK_EVERY
        self.stopped = ""
        space = self._size() + memory + SLACK
        if self._hard_limit != resource.RLIM_INFINITY:
            space = min(space, self._hard_limit)
        try:
            resource.setrlimit(resource.RLIMIT_AS, (space, self._hard_limit))
        except (ValueError, OSError):
            if not PORTABLE:
                raise

    def __call__(self) -> bool:
        now = time.monotonic()
        if now > self._deadline:
            self.stopped = "timeout"
        elif self.resident() > self._memory:
            self.stopped = "memory"
        elif now > self._peek_at:
            self._peek_at = now + _PEEK_EVERY
            if self._poll.poll(0) and not self._channel.recv(1, socket.MSG_PEEK):
                os._exit(0)
        return bool(self.stopped)

    def resident(self) -> int:
        """Return the bytes of memory that this process uses, or has used at most (`PORTABLE`)."""
        if PORTABLE:
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return most if sys.platform == "darwin" else most * 1024
        return int(os.pread(self._statm, 64, 0).split()[1]) * _PAGE

    def _size(self) -> int:
        if PORTABLE:
            return UNKNOWN
        return int(os.pread(self._statm, 64, 0).split()[0]) * _PAGE


def lock_down() -> None:
    """Forbid new descriptors, files, core dumps and processes.

    Nothing can be imported after this.
    """
    numbers = os.listdir("/dev/fd" if PORTABLE else "/proc/self/fd")  # noqa: PTH208  pathlib is one more import for each worker
    open_now = max(int(name) for name in numbers if _is_open(int(name))) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now, open_now))
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))


def _is_open(number: int) -> bool:
    # The list contains the descriptor that it was read with, which is closed by now.
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
