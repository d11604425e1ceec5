"""What a worker gives up before it reads its first script.

Its socket is descriptor 0 and no other descriptor can be opened after `lock`: no file, no
connection, no pipe. It writes no file and leaves no core. Its memory is bounded twice: the script
is stopped politely when the process holds more than its bound (`Watch`), and the kernel refuses
what is far beyond (RLIMIT_AS).

Not protected: a hole in the Starlark library would give a script what this process still has, which
is system calls without descriptors. Scripts have no other way to Python or to the system.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import time

SLACK = 128 << 20
"""Bytes of address space beyond the bound: what an allocator takes in advance."""
_PEEK_EVERY = 0.05
_PAGE = resource.getpagesize()


class Watch:
    """Asked about every thousand instructions: must the script stop? `stopped` says why (`timeout`,
    `memory`).

    Ends the whole process where its owner is gone.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._deadline = self._peek_at = 0.0
        self._memory = 0
        self._most = resource.getrlimit(resource.RLIMIT_AS)[1]
        self.stopped = ""

    def begin(self, seconds: float | None, memory: int) -> None:
        """A script starts: it may take `seconds` (None: no bound here) and `memory` bytes."""
        now = time.monotonic()
        self._deadline = float("inf") if seconds is None else now + seconds
        self._memory, self._peek_at, self.stopped = self.resident() + memory, now + _PEEK_EVERY, ""
        space = self._size() + memory + SLACK
        if self._most != resource.RLIM_INFINITY:
            space = min(space, self._most)  # Whoever started us had less to give.
        resource.setrlimit(resource.RLIMIT_AS, (space, self._most))

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
        """Bytes of memory that this process holds."""
        return int(os.pread(self._statm, 64, 0).split()[1]) * _PAGE

    def _size(self) -> int:
        return int(os.pread(self._statm, 64, 0).split()[0]) * _PAGE


def lock() -> None:
    """No new descriptors, no files, no core, no processes. Nothing can be imported after this."""
    numbers = os.listdir("/proc/self/fd")  # noqa: PTH208  pathlib is one more import for each worker
    open_now = max(int(name) for name in numbers if _is_open(int(name))) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now, open_now))
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))


def _is_open(number: int) -> bool:
    # The descriptor that listed the folder is in the list and closed by now.
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
