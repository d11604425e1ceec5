"""The process that made a call: its memory, its folders and descriptors, its umask.

Everything is asked through a handle of /proc/THREAD, kept between calls. A handle belongs to a
process and not to a number: once the process has ended, every question through it fails, whoever
has the number by then. Memory is read by number; after reading, it is checked that the caller still
waits, and so had the number.
"""

from __future__ import annotations

import ctypes
import os
from errno import EACCES, EBADF, EFAULT, ENAMETOOLONG, ENOENT, EPERM, ESRCH

from . import raw_calls
from .raw_calls import AT_FDCWD, O_PATH

PAGE = 4096
PATH_MAX = 4096
_FIRST_READ = 512
"""Bytes that are read first: nearly every path is shorter."""

_PIDFD_THREAD = os.O_EXCL


class CallerGone(Exception):
    """The caller was killed while it waited: nobody needs an answer."""


class CallRefused(Exception):
    """The call fails with this errno."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


class _Range(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("start", ctypes.c_size_t), ("size", ctypes.c_size_t))


class CallerMemory:
    """Reads the memory of callers into one buffer."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(PATH_MAX)
        self._view = memoryview(self._buffer).cast("B")
        self._here = _Range(ctypes.addressof(self._buffer), 0)
        self._there = _Range(0, 0)
        self._ranges = ctypes.addressof(self._here), ctypes.addressof(self._there)

    def read(self, thread: int, address: int, size: int) -> bytes:
        """Read up to `size` bytes (at most 4096) that do not cross into what is not mapped.

        EFAULT if there are none.
        """
        self._here.size = self._there.size = size
        self._there.start = address
        here, there = self._ranges
        count = raw_calls.read_memory(thread, here, 1, there, 1, 0)
        if count == -ESRCH:
            raise CallerGone
        if count <= 0:
            raise CallRefused(EACCES if count == -EPERM else EFAULT)
        return self._view[:count].tobytes()

    def read_string(self, thread: int, address: int) -> bytes:
        """Read a string that ends with a zero byte, and return it without that.

        ENAMETOOLONG if it does not end within 4096 bytes.
        """
        found = b""
        while len(found) < PATH_MAX:
            position = address + len(found)
            page_rest = PAGE - position % PAGE
            wanted = PATH_MAX if found else _FIRST_READ
            chunk = self.read(thread, position, min(page_rest, PATH_MAX - len(found), wanted))
            head, zero, _ = chunk.partition(b"\0")
            found += head
            if zero:
                return found
        raise CallRefused(ENAMETOOLONG)

    def read_exactly(self, thread: int, address: int, size: int) -> bytes:
        """Read `size` bytes (at most 4096). EFAULT if a part of them is not mapped."""
        found = b""
        while len(found) < size:
            position = address + len(found)
            found += self.read(thread, position, min(size - len(found), PAGE - position % PAGE))
        return found


class Caller:
    """A thread that waits in a call."""

    __slots__ = ("_folder", "_status", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self._folder = raw_calls.openat(AT_FDCWD, b"/proc/%d" % thread, O_PATH | os.O_CLOEXEC, 0)
        self._status = -1
        if self._folder < 0:
            raise CallerGone

    def close(self) -> None:
        for descriptor in (self._folder, self._status):
            if descriptor >= 0:
                os.close(descriptor)

    def open_working_folder(self) -> int:
        """Return a new handle of the folder that its relative names begin in."""
        return self._check_result(raw_calls.openat(self._folder, b"cwd", O_PATH | os.O_CLOEXEC, 0))

    def open_descriptor(self, number: int) -> int:
        """Return a new handle of the file behind one of its descriptors, of any kind."""
        if number < 0:
            raise CallRefused(EBADF)
        found = raw_calls.openat(self._folder, b"fd/%d" % number, O_PATH | os.O_CLOEXEC, 0)
        if found == -EACCES:
            # A process that nobody may look into: the folder is not ours.
            return self.duplicate_descriptor(number)
        if found == -ENOENT:
            raise CallRefused(EBADF)
        return self._check_result(found)

    def duplicate_descriptor(self, number: int) -> int:
        """Return its descriptor itself, shared: for sockets, which cannot be opened again."""
        process = raw_calls.pidfd_open(self.thread, _PIDFD_THREAD)
        if process < 0:  # before Linux 6.9 there are only handles of processes
            process = raw_calls.pidfd_open(self.process(), 0)
        if process == -ESRCH:
            raise CallerGone
        if process < 0:
            raise CallRefused(EACCES)
        found = raw_calls.pidfd_getfd(process, number, 0)
        os.close(process)
        if found < 0:
            raise CallRefused(EBADF if found == -EBADF else EACCES)
        return found

    def umask(self) -> int:
        return int(self._field(b"\nUmask:"), 8)

    def process(self) -> int:
        """Return the process that the thread belongs to."""
        return int(self._field(b"\nTgid:"))

    def terminal(self) -> int:
        """Return the device number of its controlling terminal, 0 if there is none.

        Source: proc(5), `stat`, field 7.
        """
        stat = raw_calls.openat(self._folder, b"stat", os.O_RDONLY | os.O_CLOEXEC, 0)
        try:
            line = os.read(self._check_result(stat), PAGE)
        except ProcessLookupError:
            raise CallerGone from None
        finally:
            if stat >= 0:
                os.close(stat)
        return int(line[line.rindex(b")") :].split()[5])

    def _field(self, name: bytes) -> bytes:
        if self._status < 0:
            self._status = self._check_result(
                raw_calls.openat(self._folder, b"status", os.O_RDONLY | os.O_CLOEXEC, 0)
            )
        try:
            lines = os.pread(self._status, 512, 0)
        except ProcessLookupError:
            raise CallerGone from None
        found = lines.find(name)
        if found < 0:
            raise CallerGone  # it is being killed, and has released what this line tells
        start = found + len(name)
        return lines[start : lines.index(b"\n", start)]

    def _check_result(self, result: int) -> int:
        if result in (-ENOENT, -ESRCH):
            raise CallerGone
        if result < 0:
            raise CallRefused(-result)
        return result


class CallerCache:
    """The most recent callers, with their handles."""

    MOST = 64

    def __init__(self) -> None:
        self._known: dict[int, Caller] = {}

    def find(self, thread: int) -> Caller:
        """Return the caller with this number.

        It may be one that had the number before: then questions to it raise the error for a caller
        that is gone.
        """
        caller = self._known.get(thread)
        if caller is None:
            caller = Caller(thread)
            if len(self._known) >= self.MOST:
                self.forget(next(iter(self._known)))
            self._known[thread] = caller
        return caller

    def forget(self, thread: int) -> None:
        caller = self._known.pop(thread, None)
        if caller is not None:
            caller.close()
