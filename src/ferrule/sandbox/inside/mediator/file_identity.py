"""Identifies a file so that no later file can be taken for it.

Inode numbers are used again as soon as a file is gone. What is compared here is the handle that a
file server would give a client, which contains the generation of the inode where the file system
counts these, and the moment at which the file was made.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from errno import EOPNOTSUPP

if sys.platform == "linux":
    from . import raw_calls

_EMPTY_PATH = 0x1000
_CURRENT_FOLDER = -100
_NO_FOLLOW = 0x100
# AT_HANDLE_FID: also where no server could export the file system (Linux 6.5).
_HANDLE_ONLY = 0x200
_MAX_HANDLE = 128
_HEAD = struct.Struct("=Ii")
_buffer = ctypes.create_string_buffer(_HEAD.size + _MAX_HANDLE)
_mount = ctypes.c_int()


def identify(folder: int, name: bytes = b"") -> str:
    """Return what tells a file from all others, earlier and later ones.

    Without a name it is the file of the descriptor. Empty where the file system cannot tell, and
    where there is no such file: an empty identity equals nothing. Only Linux can tell.
    """
    if sys.platform != "linux":
        return ""
    born = raw_calls.birth_of(folder, name, _NO_FOLLOW | _EMPTY_PATH)
    handle = _handle(folder, name)
    return f"{born}:{handle.hex()}" if born and handle else ""


def _handle(folder: int, name: bytes) -> bytes:
    for flags in (_EMPTY_PATH, _EMPTY_PATH | _HANDLE_ONLY):
        _HEAD.pack_into(_buffer, 0, _MAX_HANDLE, 0)
        result = raw_calls.name_to_handle(
            folder, name, ctypes.byref(_buffer), ctypes.byref(_mount), flags
        )
        if result == 0:
            size, _ = _HEAD.unpack_from(_buffer)
            return _buffer.raw[4 : _HEAD.size + size]
        if result != -EOPNOTSUPP:
            return b""
    return b""


def identify_path(path: str | os.PathLike[str]) -> str:
    """Identify the file at a path; a link at its end is not followed."""
    return identify(_CURRENT_FOLDER, os.fsencode(path))
