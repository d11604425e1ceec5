"""Checks on one name in an open folder: is it a regular file, and is its content still the same?

`folder` is a descriptor; no check follows a link. What the checks raise besides ToolFailed are
OSErrors with the number the kernel would use, for `permissions.filesystem.os_errors` to put into
words.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed

from .paths import shown

ABSENT = "absent"
"""Instead of a digest: there is no file."""

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Never waits for the other end of a pipe and never makes a terminal ours."""


def error(number: int) -> OSError:
    """An OSError of the right class with the system's own words."""
    return OSError(number, os.strerror(number))


def status_of(folder: int, name: str) -> os.stat_result:
    """The thing of this name itself. Raises OSError."""
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def check_regular(status: os.stat_result, path: str) -> None:
    """Raises unless this is the stat of a regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise error(errno.EISDIR)
    if stat.S_ISLNK(status.st_mode):
        raise error(errno.ELOOP)
    raise ToolFailed(
        ErrorType.VALIDATION_FAILED,
        f"{shown(path)} is a pipe, socket or device, not a regular file",
    )


def regular(folder: int, name: str, path: str) -> os.stat_result | None:
    """The stat of a regular file, None if there is nothing of this name; anything else is
    refused.
    """
    try:
        status = status_of(folder, name)
    except FileNotFoundError:
        return None
    check_regular(status, path)
    return status


def open_regular(folder: int, name: str, path: str) -> int:
    """A descriptor for reading a regular file, owned by the caller."""
    # Looked at before it is opened: opening a device can already do something.
    check_regular(status_of(folder, name), path)
    descriptor = os.open(name, READ, dir_fd=folder)
    try:
        check_regular(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_unchanged(folder: int, name: str, path: str, expect: str) -> None:
    """Raises unless the SHA-256 (hex) of the file is `expect`, or there is none and `expect` is
    ABSENT.
    """
    if regular(folder, name, path) is None:
        found = ABSENT
    else:
        with os.fdopen(open_regular(folder, name, path), "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    if found == expect:
        return
    if expect == ABSENT:
        raise error(errno.EEXIST)
    what = "is gone" if found == ABSENT else "has changed"
    raise ToolFailed(
        ErrorType.IO_ERROR,
        f"{shown(path)} {what} since it was read; nothing was written. Read it again first",
    )


def check_replaceable(moved: os.stat_result, there: os.stat_result | None, source: str) -> None:
    """Only a file may take the place of a file."""
    if there is not None and not stat.S_ISREG(moved.st_mode):
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED,
            f"{shown(source)} is no file and cannot take the place of one",
        )


def make_folder(above: int, name: str, *, last: bool) -> None:
    """A folder of this name, new or already there; a file or a link of this name is refused.

    `last` False: more folders will be made in it.
    """
    try:
        os.mkdir(name, dir_fd=above)
    except FileExistsError:
        status = status_of(above, name)
        if stat.S_ISLNK(status.st_mode):
            raise error(errno.ELOOP) from None
        if not stat.S_ISDIR(status.st_mode):
            raise error(errno.EEXIST if last else errno.ENOTDIR) from None
