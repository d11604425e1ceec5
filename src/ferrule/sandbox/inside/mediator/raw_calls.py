"""System calls on files as the kernel has them: a result, or an errno below zero.

For the mediator, which passes on what the kernel says and must not pay for an exception each time.
Unlike `os.open`, `openat` here adds no O_CLOEXEC: the flags of a file that is handed to a caller
are the ones that it asked for, and a mediator never executes a program.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from errno import ENOSYS

from ..kernel import system_calls

AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000

O_PATH, O_NOFOLLOW, O_DIRECTORY = os.O_PATH, os.O_NOFOLLOW, os.O_DIRECTORY

_NO_MAGIC_LINKS = 0x02

_library = ctypes.CDLL(None, use_errno=True)
_int = ctypes.c_int
_text = ctypes.c_char_p
_word = ctypes.c_long
_pointer = ctypes.c_void_p


def _call(function: str, *arguments: type) -> Callable[..., int]:
    """Return a function of the C library. Its -1 becomes an errno below zero."""
    found = getattr(_library, function)
    found.argtypes = arguments
    found.restype = _word
    get_errno = ctypes.get_errno

    def call(*values: object) -> int:
        result: int = found(*values)
        # -1 alone, in 32 or 64 bits, is a failure of the functions used here.
        return -get_errno() if result in (-1, 0xFFFFFFFF) else result

    return call


def _system_call(name: str, *arguments: type) -> Callable[..., int]:
    number = system_calls.number(name)
    if number is None:
        return lambda *values: -ENOSYS
    prototype = ctypes.CFUNCTYPE(_word, _word, *arguments, use_errno=True)
    found = prototype(("syscall", _library))
    get_errno = ctypes.get_errno

    def call(*values: object) -> int:
        result: int = found(number, *values)
        return -get_errno() if result == -1 else result

    return call


openat = _call("openat", _int, _text, _int, ctypes.c_uint)
"""(folder, name, flags, mode)"""
mkdirat = _call("mkdirat", _int, _text, ctypes.c_uint)
symlinkat = _call("symlinkat", _text, _int, _text)
"""(target, folder, name)"""
linkat = _call("linkat", _int, _text, _int, _text, _int)
renameat2 = _system_call("renameat2", _word, _text, _word, _text, ctypes.c_ulong)
mknodat = _system_call("mknodat", _word, _text, ctypes.c_ulong, ctypes.c_ulong)
"""(folder, name, mode, device)"""
utimensat = _call("utimensat", _int, _text, _pointer, _int)
"""(folder, name, two `struct timespec` as bytes or None for now, flags)"""
bind = _call("bind", _int, _text, ctypes.c_uint)
pidfd_open = _system_call("pidfd_open", _word, _word)
pidfd_getfd = _system_call("pidfd_getfd", _word, _word, _word)
read_memory = _call(
    "process_vm_readv", _int, _pointer, ctypes.c_ulong, _pointer, ctypes.c_ulong, ctypes.c_ulong
)

_openat2 = _system_call("openat2", _word, _text, _pointer, _word)


class _How(ctypes.Structure):
    """`struct open_how`."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_folder = _How(os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, _NO_MAGIC_LINKS)


_statfs = _call("fstatfs", _int, _pointer)
_statfs_buffer = ctypes.create_string_buffer(256)
_PROC = 0x9FA0


def is_on_proc(descriptor: int) -> bool:
    """Return whether a file is on procfs.

    `struct statfs` begins with the type of the file system.
    """
    result = _statfs(descriptor, ctypes.byref(_statfs_buffer))
    return result < 0 or int.from_bytes(_statfs_buffer[:8], "little") == _PROC


def open_folder(base: int, path: bytes) -> int:
    """Open a handle of the folder at `path` below `base`.

    Links are followed; those of /proc to open files give ELOOP.
    """
    return _openat2(base, path, ctypes.byref(_folder), ctypes.sizeof(_folder))


_statx = _system_call("statx", _word, _text, _word, ctypes.c_ulong, _pointer)
_statx_buffer = ctypes.create_string_buffer(256)
_STATX_NUMBER = 0x100
_STATX_BIRTH = 0x800
_STATX_MOUNT = 0x1000
_NUMBER = struct.Struct("=Q")
_BIRTH = struct.Struct("=qI")
_DEVICE = struct.Struct("=II")
_AT_INODE = 32
_AT_BIRTH = 80
_AT_DEVICE = 136
_AT_MOUNT = 144


def mount_of(descriptor: int) -> int:
    """Return the number of the mount that a file was opened on.

    It is an errno below zero where it cannot be told (before Linux 5.8).
    """
    result = _statx(descriptor, b"", AT_EMPTY_PATH, _STATX_MOUNT, ctypes.byref(_statx_buffer))
    if result < 0:
        return result
    found: int = _NUMBER.unpack_from(_statx_buffer, _AT_MOUNT)[0]
    return found


def birth_of(folder: int, name: bytes, flags: int) -> str:
    """Return `DEVICE:INODE:MOMENT`, the moment being when the file was made.

    Empty where that is not known or there is no such file.
    """
    mask = _STATX_NUMBER | _STATX_BIRTH
    if _statx(folder, name, flags, mask, ctypes.byref(_statx_buffer)) < 0:
        return ""
    if int.from_bytes(_statx_buffer[:4], "little") & mask != mask:
        return ""
    inode: int = _NUMBER.unpack_from(_statx_buffer, _AT_INODE)[0]
    seconds, nanoseconds = _BIRTH.unpack_from(_statx_buffer, _AT_BIRTH)
    device = os.makedev(*_DEVICE.unpack_from(_statx_buffer, _AT_DEVICE))
    return f"{device}:{inode}:{seconds}.{nanoseconds:09}"


name_to_handle = _system_call("name_to_handle_at", _word, _text, _pointer, _pointer, _word)
"""(folder, name, `struct file_handle`, where the mount's number goes, flags)"""


_capget = _call("capget", _pointer, _pointer)
_capset = _call("capset", _pointer, _pointer)
_CAPABILITY_HEADER = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread


def permitted_capabilities() -> int:
    """Return the permitted capabilities, one bit each."""
    header = ctypes.create_string_buffer(_CAPABILITY_HEADER)
    data = ctypes.create_string_buffer(24)
    if _capget(header, data) < 0:
        return 0
    words = struct.unpack("=6I", data.raw)
    return words[1] | words[4] << 32


def keep_capabilities(kept: int) -> int:
    """Make these the permitted and effective capabilities; none is inherited."""
    low = kept & 0xFFFFFFFF
    high = kept >> 32
    header = ctypes.create_string_buffer(_CAPABILITY_HEADER)
    data = ctypes.create_string_buffer(struct.pack("=6I", low, low, 0, high, high, 0), 24)
    return _capset(header, data)
