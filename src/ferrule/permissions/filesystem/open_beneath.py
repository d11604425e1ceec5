"""Opens folders beneath a root by descriptor, so that no link on the way can lead elsewhere.

There are two implementations with the same results (tests/permissions/test_workspace.py runs both):

* `open_by_openat2`: one system call, `openat2` with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and
  RESOLVE_NO_MAGICLINKS (Linux 5.6; openat2(2), uapi/linux/openat2.h).
* `open_by_walk`: one `openat` with O_NOFOLLOW per component, for other kernels and for containers
  whose system call filter refuses `openat2`.

Both refuse every symbolic link, also one that stays inside: this is stricter than refusing those
that escape, and avoids the race between checking a link and following it. Callers finish with a
call on the last component relative to the returned descriptor, again without following links.

Not protected: a folder that someone with rights outside moves out of the workspace while it is open
here, and mounts below the root, which are followed (whoever mounted them meant it).
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache

PORTABLE = "FERRULE_PORTABLE"
"""With this variable set to 1, Linux is used as any POSIX system.

The calls that only it has (`openat2`, `O_PATH`, `prctl`, `memfd`, namespaces, `/proc`) are left
out, so that what other systems run is tested here.
"""


def is_portable() -> bool:
    """Whether the calls that only Linux has are switched off."""
    return os.environ.get(PORTABLE) == "1"


OpenFolder = Callable[[int, Sequence[str], int], int]
"""(root descriptor, components, extra flags) -> descriptor of the folder, owned by the caller.

Components are plain names: not empty, no `/`, not `.` or `..`. Raises OSError: ELOOP for a link on
the way, ENOTDIR for a file, ENOENT if there is nothing.
"""

PATH_ONLY = 0 if is_portable() else getattr(os, "O_PATH", 0)
"""A descriptor that only names a folder: needs no read permission on it."""

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SYS_OPENAT2 = 437  # the same on every architecture but alpha, where the probe fails
_RESOLVE = 0x08 | 0x04 | 0x02  # BENEATH | NO_SYMLINKS | NO_MAGICLINKS
_MAX_RETRIES = 16


def open_by_walk(root: int, parts: Sequence[str], flags: int = PATH_ONLY) -> int:
    """Open a folder component by component, on any POSIX 2008 system."""
    current = os.open(".", _FOLDER | (PATH_ONLY if parts else flags), dir_fd=root)
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        try:
            following = os.open(part, _FOLDER | (flags if last else PATH_ONLY), dir_fd=current)
        except OSError as error:
            # O_DIRECTORY reports a link as "not a directory": report what it really is.
            if error.errno == errno.ENOTDIR and _is_link(part, current):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part) from None
            raise
        finally:
            os.close(current)
        current = following
    return current


def open_by_openat2(root: int, parts: Sequence[str], flags: int = PATH_ONLY) -> int:
    """Open a folder with one system call.

    Raises:
        OSError: ENOSYS or EPERM if the kernel or a system call filter does not allow `openat2`.
    """
    path = os.fsencode("/".join(parts) or ".")
    # Without O_NOFOLLOW: together with O_PATH it would turn ELOOP into "not a directory".
    flags |= os.O_DIRECTORY | os.O_CLOEXEC
    answer = _openat2()(root, path, flags)
    for _ in range(_MAX_RETRIES):
        # EAGAIN: a rename elsewhere disturbed the lookup, and the kernel asks to retry.
        if answer != -errno.EAGAIN:
            break
        answer = _openat2()(root, path, flags)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer), os.fsdecode(path))
    return answer


@cache
def select_open_folder() -> OpenFolder:
    """Return the strongest implementation that this kernel supports, after trying it once."""
    # On other systems the number is another call's.
    if is_portable() or sys.platform != "linux":
        return open_by_walk
    probe = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(open_by_openat2(probe, ()))
    except (OSError, AttributeError):
        return open_by_walk
    finally:
        os.close(probe)
    return open_by_openat2


@contextmanager
def folder_descriptor(
    open_folder: OpenFolder, root: int, parts: Sequence[str], flags: int = PATH_ONLY
) -> Generator[int]:
    """Open a folder for the duration of a block, and yield its descriptor."""
    descriptor = open_folder(root, parts, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


@cache
def _openat2() -> Callable[[int, bytes, int], int]:
    """Return the system call as a function that returns a descriptor or a negative error number."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    system_call = library.syscall
    system_call.restype = ctypes.c_long
    # Declared once: walks come here for every folder, and converting arguments took most of it.
    system_call.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
    )

    @cache
    def make_open_how(flags: int) -> ctypes.Array[ctypes.c_uint64]:
        return (ctypes.c_uint64 * 3)(flags, 0, _RESOLVE)  # struct open_how: flags, mode, resolve

    def openat2(root: int, path: bytes, flags: int) -> int:
        how = make_open_how(flags)
        answer = system_call(_SYS_OPENAT2, root, path, how, ctypes.sizeof(how))
        return int(answer) if answer >= 0 else -ctypes.get_errno()

    return openat2
