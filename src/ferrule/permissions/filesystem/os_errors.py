"""Explains errors of the operating system to a model: type, path as it was given, next step."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed

from .paths import quote_path

_TRANSIENT = {
    errno.EAGAIN,
    errno.EINTR,
    errno.EBUSY,
    errno.EMFILE,
    errno.ENFILE,
    errno.ESTALE,
    errno.ETXTBSY,
}

_MEANINGS: dict[int, tuple[ErrorType, str]] = {
    errno.ENOENT: (
        ErrorType.NOT_FOUND,
        "not found: {path} does not exist; look for it with `list_files` or `search_files`",
    ),
    errno.ENOTDIR: (ErrorType.NOT_FOUND, "not found: a part of {path} is a file, not a folder"),
    errno.ELOOP: (
        ErrorType.PERMISSION_DENIED,
        (
            "{path} is, or leads through, a symbolic link, and links are not followed; name the "
            "real file"
        ),
    ),
    errno.EXDEV: (
        ErrorType.IO_ERROR,
        "cannot {verb} {path}: it would cross into another file system",
    ),
    errno.EISDIR: (
        ErrorType.VALIDATION_FAILED,
        "{path} is a folder; name a file, or use `list_files`",
    ),
    errno.ENXIO: (
        ErrorType.VALIDATION_FAILED,
        "{path} is a socket or a device, not a regular file",
    ),
    errno.ENAMETOOLONG: (
        ErrorType.VALIDATION_FAILED,
        "a component of {path} is too long for the file system",
    ),
    errno.EEXIST: (
        ErrorType.VALIDATION_FAILED,
        "{path} exists already; choose another name or overwrite it on purpose",
    ),
    errno.ENOTEMPTY: (
        ErrorType.VALIDATION_FAILED,
        "{path} is not empty; pass `recursive: true` to delete all of it",
    ),
    errno.ENOSPC: (
        ErrorType.IO_ERROR,
        "cannot {verb} {path}: the disk is full; what was there before is unchanged",
    ),
    errno.EDQUOT: (
        ErrorType.IO_ERROR,
        "cannot {verb} {path}: the disk quota is used up; what was there before is unchanged",
    ),
    errno.EROFS: (
        ErrorType.IO_ERROR,
        "cannot {verb} {path}: the file system is read-only; ask the person",
    ),
    errno.EACCES: (
        ErrorType.IO_ERROR,
        "cannot {verb} {path}: the operating system does not allow it; ask the person",
    ),
    errno.EPERM: (
        ErrorType.IO_ERROR,
        "cannot {verb} {path}: the operating system does not allow it; ask the person",
    ),
}


def explain_os_error(error: OSError, path: str, verb: str = "open") -> ToolFailed:
    """Return an error of the operating system as a tool failure.

    Args:
        error: What the operating system reported.
        path: The path as the model gave it.
        verb: What was tried.
    """
    number = error.errno or 0
    error_type, template = _MEANINGS.get(
        number, (ErrorType.IO_ERROR, "cannot {verb} {path}: {reason}")
    )
    reason = os.strerror(number) if number else str(error)
    text = template.format(path=quote_path(path), verb=verb, reason=reason)
    return ToolFailed(error_type, text, transient=number in _TRANSIENT)


@contextmanager
def explain_os_errors(
    path: str, verb: str, near: Callable[[], list[str]] = list[str]
) -> Generator[None]:
    """Turn every OSError of the block into a ToolFailed about `path`.

    Args:
        path: The path as the model gave it.
        verb: What is tried.
        near: Returns similar names, for the case that `path` does not exist.
    """
    try:
        yield
    except OSError as error:
        failure = explain_os_error(error, path, verb)
        names = near() if error.errno == errno.ENOENT else []
        if names:
            suggestion = " or ".join(map(quote_path, names))
            failure = ToolFailed(
                failure.error_type,
                f"not found: {quote_path(path)} does not exist; did you mean {suggestion}?",
            )
        raise failure from error
