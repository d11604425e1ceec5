"""Notifications of the kernel through a seccomp listener, and the answers it takes.

Layouts and numbers from `linux/seccomp.h`. The kernel tells the sizes of its structures, which may
grow: what comes after the fields known here is left zero.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
from errno import EACCES, EINTR, ENOENT

from ..kernel import system_calls
from ..kernel.libc import library

_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_VALID = 0x40082102
_ADD = 0x40182103
_FLAGS = 0x40082104
_SYNCHRONOUS = 1  # wake the caller on the processor that answers: half the latency of a question
_ADD_AND_ANSWER = 2
_GET_SIZES = 3
_WAIT_KILLABLE_SINCE = (5, 19)
"""From here on the filter is installed so that no signal takes a caller out of its call
(`kernel.seccomp`), but one that kills it.
"""

_CALL = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_DESCRIPTOR = struct.Struct("=QIIII")


_SIG_SETMASK = 2
_ALL_SIGNALS = ctypes.create_string_buffer(b"\xff" * 128, 128)
_block_signals = ctypes.CDLL(None).pthread_sigmask
_block_signals.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class PendingCall:
    """A call that waits for its answer.

    It has a number, six argument words and the thread, as pid 1 numbers it.
    """

    __slots__ = ("arguments", "id", "number", "thread")

    def __init__(self, id: int, thread: int, number: int, arguments: tuple[int, ...]) -> None:
        self.id = id
        self.thread = thread
        self.number = number
        self.arguments = arguments

    def integer(self, index: int) -> int:
        """Return an argument that is an `int` for the kernel."""
        value = self.arguments[index] & 0xFFFFFFFF
        return value - 0x100000000 if value & 0x80000000 else value


class SeccompListener:
    """The listener's descriptor, and one buffer for everything that is read from it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        sizes = _sizes()
        self._buffer = bytearray(max(sizes[0], _CALL.size))
        self._zeros = bytes(len(self._buffer))
        self._mask = ctypes.create_string_buffer(128)
        self._padding = bytes(max(0, sizes[1] - _ANSWER.size))
        self._receive = _with_size(_RECEIVE, len(self._buffer))
        self._send = _with_size(_SEND, _ANSWER.size + len(self._padding))
        self._callers_wait = _kernel_version() >= _WAIT_KILLABLE_SINCE
        try:
            fcntl.ioctl(descriptor, _FLAGS, _SYNCHRONOUS)
        except OSError:
            return  # before Linux 6.6: slower, the same otherwise

    def receive(self) -> PendingCall | None:
        """Return the next call. Blocks if there is none.

        None if its caller is gone already, or a signal came.
        """
        self._buffer[:] = self._zeros
        try:
            fcntl.ioctl(self.descriptor, self._receive, self._buffer, True)
        except OSError as error:
            if error.errno in (ENOENT, EINTR):
                return None
            raise
        id, thread, _, number, _, _, *arguments = _CALL.unpack_from(self._buffer)
        return PendingCall(id, thread, number, tuple(arguments))

    def is_waiting(self, call: PendingCall) -> bool:
        """Return whether the caller still waits, so that its thread number is its own."""
        try:
            fcntl.ioctl(self.descriptor, _VALID, call.id.to_bytes(8, "little"))
        except OSError:
            return False
        return True

    def answer(self, call: PendingCall, result: int) -> None:
        """Answer with what the call returns: a value, or an errno below zero.

        A caller that is gone needs no answer.
        """
        value, error = (0, result) if result < 0 else (result, 0)
        answer = _ANSWER.pack(call.id, value, error, 0) + self._padding
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.descriptor, self._send, answer)

    def answer_with_descriptor(self, call: PendingCall, descriptor: int, flags: int) -> None:
        """Answer with our descriptor, at the caller's lowest free number, and close it here.

        If the caller has too many descriptors, the call fails with that errno.

        One that can write is closed before the caller goes on: a program that it writes and starts
        is busy (ETXTBSY) as long as anybody else can write to it. Before Linux 5.19 a signal to the
        caller between the two steps would leave it a descriptor that it does not know of; there
        both are one step, and the descriptor is closed as soon as we run again.
        """
        is_writer = flags & os.O_ACCMODE != os.O_RDONLY
        if is_writer and self._callers_wait:
            added = self._add(call, descriptor, 0, flags & os.O_CLOEXEC)
            os.close(descriptor)
            self.answer(call, added)
            return
        added = self._add(call, descriptor, _ADD_AND_ANSWER, flags & os.O_CLOEXEC)
        os.close(descriptor)
        if added < 0:
            self.answer(call, added)

    def _add(self, call: PendingCall, descriptor: int, how: int, close_on_exec: int) -> int:
        """Give the caller a copy of a descriptor. Return its number, or an errno below zero."""
        entry = bytearray(_DESCRIPTOR.pack(call.id, how, descriptor, 0, close_on_exec))
        # A signal to us in the middle would have the kernel answer 0: standard input, as the caller
        # would read it.
        _block_signals(_SIG_SETMASK, _ALL_SIGNALS, self._mask)
        try:
            return fcntl.ioctl(self.descriptor, _ADD, entry, True)
        except OSError as error:
            return -(error.errno or EACCES)
        finally:
            _block_signals(_SIG_SETMASK, self._mask, None)


def _kernel_version() -> tuple[int, int]:
    major, _, rest = os.uname().release.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _sizes() -> tuple[int, int]:
    """Return the bytes of a notification and of an answer on this kernel."""
    buffer = ctypes.create_string_buffer(6)
    number = system_calls.number("seccomp")
    library().syscall(
        ctypes.c_long(number or -1), ctypes.c_long(_GET_SIZES), ctypes.c_long(0), buffer
    )
    notification, answer, _ = struct.unpack("=HHH", buffer.raw)
    return notification, answer


def _with_size(operation: int, size: int) -> int:
    """Return an ioctl's number for this size of the structure, which is a part of it."""
    return operation & ~(0x3FFF << 16) | size << 16
