"""Functions of the C library that Python does not have. They fail with OSError, named after what was called."""

from __future__ import annotations

import ctypes
import os

_loaded: list[ctypes.CDLL] = []


def call(function: str, *arguments: int | bytes | ctypes.c_void_p | None) -> int:
    """What the function returns. OSError if that is -1, or if there is no such function here (ENOSYS)."""
    if not _loaded:
        _loaded.append(ctypes.CDLL(None, use_errno=True))
    found = getattr(_loaded[0], function, None)
    if found is None:
        raise OSError(38, os.strerror(38), function)
    result = found(*(ctypes.c_long(one) if isinstance(one, int) else one for one in arguments))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), function)
    return result
