"""Opens and checks regular files in an open folder.

`folder` is a descriptor, and no check follows a link. Besides ToolFailed the checks raise OSError
with the number that the kernel would use, which `os_errors` explains.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed

from .opened_files import READ
from .paths import quote_path

ABSENT = "absent"
"""The digest of a file that does not exist."""


def os_error(number: int) -> OSError:
    """Return the OSError for an error number, with the system's message."""
    return OSError(number, os.strerror(number))


def stat_name(folder: int, name: str) -> os.stat_result:
    """Return the stat of a name without following links. Raises OSError."""
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def check_regular(status: os.stat_result, path: str) -> None:
    """Raise OSError or ToolFailed unless this is the stat of a regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise os_error(errno.EISDIR)
    if stat.S_ISLNK(status.st_mode):
        raise os_error(errno.ELOOP)
    raise ToolFailed(
        ErrorType.VALIDATION_FAILED,
        f"{quote_path(path)} is a pipe, socket or device, not a regular file",
    )


def stat_regular(folder: int, name: str, path: str) -> os.stat_result | None:
    """Return the stat of a regular file, or None if nothing has this name. Raises otherwise."""
    try:
        status = stat_name(folder, name)
    except FileNotFoundError:
        return None
    check_regular(status, path)
    return status


def open_regular(folder: int, name: str, path: str) -> int:
    """Open a regular file for reading. The caller owns the descriptor."""
    # Checked before it is opened, because opening a device can already have an effect.
    check_regular(stat_name(folder, name), path)
    descriptor = os.open(name, READ, dir_fd=folder)
    try:
        check_regular(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_unchanged(folder: int, name: str, path: str, expect: str) -> None:
    """Raise unless the SHA-256 (hex) of the file is `expect`; ABSENT expects that it is missing."""
    if stat_regular(folder, name, path) is None:
        found = ABSENT
    else:
        with os.fdopen(open_regular(folder, name, path), "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    if found == expect:
        return
    if expect == ABSENT:
        raise os_error(errno.EEXIST)
    change = "is gone" if found == ABSENT else "has changed"
    raise ToolFailed(
        ErrorType.IO_ERROR,
        f"{quote_path(path)} {change} since it was read; nothing was written. Read it again first",
    )


def check_replaceable(moved: os.stat_result, there: os.stat_result | None, source: str) -> None:
    """Raise ToolFailed if a moved folder or link would replace a file."""
    if there is not None and not stat.S_ISREG(moved.st_mode):
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED,
            f"{quote_path(source)} is not a file and cannot replace one",
        )


def make_folder(above: int, name: str, *, last: bool) -> None:
    """Create a folder unless it exists. Raises OSError if a file or a link has the name.

    Args:
        above: The folder that will contain it, as a descriptor.
        name: Its name.
        last: False if further folders will be created in it.
    """
    try:
        os.mkdir(name, dir_fd=above)
    except FileExistsError:
        status = stat_name(above, name)
        if stat.S_ISLNK(status.st_mode):
            raise os_error(errno.ELOOP) from None
        if not stat.S_ISDIR(status.st_mode):
            raise os_error(errno.EEXIST if last else errno.ENOTDIR) from None
