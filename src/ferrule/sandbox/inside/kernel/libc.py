"""Functions of the C library that Python lacks.

They fail with OSError, whose file name is the name of the function.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache


@cache
def library() -> ctypes.CDLL:
    """Return the C library, loaded once: loading costs more than the calls made with it."""
    return ctypes.CDLL(None, use_errno=True)


def call_libc(function: str, *arguments: int | bytes | ctypes.c_void_p | None) -> int:
    """Call a function of the C library and return its result.

    Raises OSError if that is -1, or if there is no such function here (ENOSYS).
    """
    found = getattr(library(), function, None)
    if found is None:
        raise OSError(38, os.strerror(38), function)
    result = found(*(ctypes.c_long(one) if isinstance(one, int) else one for one in arguments))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), function)
    return result
