"""Functions of the C library that Python does not have. They fail with OSError, named after what
was called.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache


@cache
def library() -> ctypes.CDLL:
    """The C library, loaded once: each time costs more than the calls that are made with it."""
    return ctypes.CDLL(None, use_errno=True)


def call(function: str, *arguments: int | bytes | ctypes.c_void_p | None) -> int:
    """What the function returns. OSError if that is -1, or if there is no such function here
    (ENOSYS).
    """
    found = getattr(library(), function, None)
    if found is None:
        raise OSError(38, os.strerror(38), function)
    result = found(*(ctypes.c_long(one) if isinstance(one, int) else one for one in arguments))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), function)
    return result
