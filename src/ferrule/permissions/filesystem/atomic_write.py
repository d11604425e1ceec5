"""Replaces a file atomically: readers see the old or the new content, also after a crash.

New content is written to a new inode in the same folder (O_EXCL, an unguessable name), flushed to
disk, and renamed over the old file. So a hard link to the old file keeps the old content (unless
`replace_by_link` gives it the new one), and a link put in its place is replaced, not followed.
Kept: permission bits, and owner and group as far as the process may set them. Not kept: set-uid
bits, ACLs and extended attributes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache

TEMPORARY_PREFIX = ".ferrule-tmp-"
"""Prefix of unfinished files. It is reserved, so no tool lists or opens what a crash left."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_REPLACE = 1  # RENAME_NOREPLACE, renameat2(2)


@contextmanager
def write_temporary(folder: int, data: bytes, like: os.stat_result | None) -> Generator[str]:
    """Write a temporary file that the block may rename, and yield its name.

    The file is removed if it still exists after the block.

    Args:
        folder: The descriptor of the folder.
        data: The content.
        like: The file that will be replaced. Only its owner can read the new content until it has
            that file's mode. Without it the mode is that of any new file (0666 less the umask).

    Raises:
        OSError: The file cannot be written.
    """
    name = TEMPORARY_PREFIX + os.urandom(8).hex()
    descriptor = os.open(name, _CREATE, 0o600 if like else 0o666, dir_fd=folder)
    try:
        try:
            if like:
                _copy_mode(descriptor, like)
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)
        yield name
    finally:
        # It is gone after a rename. If it cannot be removed, an error of the block matters more.
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)


def rename(from_folder: int, name: str, to_folder: int, new: str, *, replace: bool) -> None:
    """Rename a file. Raises FileExistsError if the new name is taken and `replace` is False."""
    if replace:
        os.rename(name, new, src_dir_fd=from_folder, dst_dir_fd=to_folder)
        return
    code = _rename_no_replace()(from_folder, os.fsencode(name), to_folder, os.fsencode(new))
    if code in (errno.EINVAL, errno.ENOSYS):
        _rename_after_check(from_folder, name, to_folder, new)
    elif code:
        raise OSError(code, os.strerror(code), new)


def replace_by_link(
    folder: int, name: str, other_folder: int, other: str, before: os.stat_result
) -> None:
    """Make a name another one (hard link) of a file, if it still is one of the file before.

    Raises OSError.
    """
    status = os.stat(other, dir_fd=other_folder, follow_symlinks=False)
    if (status.st_dev, status.st_ino) != (before.st_dev, before.st_ino):
        return
    temporary = TEMPORARY_PREFIX + os.urandom(8).hex()
    os.link(name, temporary, src_dir_fd=folder, dst_dir_fd=other_folder, follow_symlinks=False)
    try:
        os.rename(temporary, other, src_dir_fd=other_folder, dst_dir_fd=other_folder)
    except OSError:
        os.unlink(temporary, dir_fd=other_folder)
        raise


def _copy_mode(descriptor: int, like: os.stat_result) -> None:
    if os.geteuid() == 0 or like.st_gid != os.getegid():
        with suppress(PermissionError):
            os.fchown(descriptor, like.st_uid if os.geteuid() == 0 else -1, like.st_gid)
    os.fchmod(descriptor, like.st_mode & 0o777)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def _rename_after_check(from_folder: int, name: str, to_folder: int, new: str) -> None:
    # For file systems without RENAME_NOREPLACE. Not atomic: a file created between the two calls
    # is lost.
    with suppress(FileNotFoundError):
        os.stat(new, dir_fd=to_folder, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
    os.rename(name, new, src_dir_fd=from_folder, dst_dir_fd=to_folder)


@cache
def _rename_no_replace() -> Callable[[int, bytes, int, bytes], int]:
    """Return renameat2 of the C library as a function that returns 0 or an error number."""
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return lambda from_folder, name, to_folder, new: errno.ENOSYS

    def call(from_folder: int, name: bytes, to_folder: int, new: bytes) -> int:
        answer = function(from_folder, name, to_folder, new, ctypes.c_uint(_NO_REPLACE))
        return 0 if answer == 0 else ctypes.get_errno()

    return call
