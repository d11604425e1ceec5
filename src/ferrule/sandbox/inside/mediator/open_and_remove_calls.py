"""Calls that a mediator performs besides creating ones: removing names, opening any file.

Opening is mediated where nothing is mounted. Without a view of its own a command sees every name of
the machine. What it may open is then limited by Landlock, which applies to the mediator too; only
somebody who knows the names can say which are withheld below that. So every opening call comes
here, is resolved by descriptor, judged, and performed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from errno import EINVAL, EISDIR, ELOOP, ENOTDIR

from . import opening, raw_calls
from .name_rules import REFUSED
from .path_resolution import ResolvedName
from .raw_calls import AT_FDCWD
from .requests import CallRequest
from .target_files import find_target

_REMOVE_FOLDER = 0x200
_NAMELESS = 0o20000000  # __O_TMPFILE, which os.O_TMPFILE joins with O_DIRECTORY


def _unlink(request: CallRequest) -> int:
    return _remove(request, AT_FDCWD, 0, 0)


def _rmdir(request: CallRequest) -> int:
    return _remove(request, AT_FDCWD, 0, _REMOVE_FOLDER)


def _unlinkat(request: CallRequest) -> int:
    return _remove(request, request.call.integer(0), 1, request.call.integer(2))


def _remove(request: CallRequest, base: int, path: int, flags: int) -> int:
    """Remove a name, unless it is refused.

    A mount over a link would lie over what it leads to: that such a link stays is ensured here.
    """
    folder = bool(flags & _REMOVE_FOLDER)
    place = request.resolve(base, request.read_string(path))
    if place.plain:
        name = request.name_of(place)
        status = _status(place)
        is_refused = request.verdict(name, folder=folder) == REFUSED
        if status is not None and name is not None and is_refused:
            raise request.context.refuse(name)
        request.context.withheld.check_name(place.path, place.plain)
        request.context.withheld.check_file(status)
    request.check_still_waiting()
    if folder:
        os.rmdir(place.name, dir_fd=place.folder)
    else:
        os.unlink(place.name, dir_fd=place.folder)
    return 0


def _status(place: ResolvedName) -> os.stat_result | None:
    try:
        return os.stat(place.plain, dir_fd=place.folder, follow_symlinks=False)
    except OSError:
        return None  # the call itself says why


def _open(request: CallRequest) -> int | None:
    integer = request.call.integer
    return _open_any(request, AT_FDCWD, 0, integer(1), integer(2) & 0o7777)


def _openat(request: CallRequest) -> int | None:
    integer = request.call.integer
    return _open_any(request, integer(0), 1, integer(2), integer(3) & 0o7777)


def _open_any(request: CallRequest, base: int, path: int, flags: int, mode: int) -> int | None:
    if flags & os.O_CREAT:
        return opening.open_or_create(request, base, path, flags, mode)
    if flags & os.O_TRUNC and flags & os.O_ACCMODE == os.O_RDONLY:
        return -EINVAL  # before version 3 Landlock takes it for reading
    handle = find_target(request, base, path, 0, follow=not flags & os.O_NOFOLLOW)
    status = os.fstat(handle)
    if stat.S_ISLNK(status.st_mode):
        return -ELOOP
    if flags & os.O_DIRECTORY and not stat.S_ISDIR(status.st_mode):
        return -ENOTDIR
    if flags & _NAMELESS:
        return _open_nameless(request, handle, flags, mode)
    request.check_still_waiting()
    return _give_opened(request, handle, status, flags & ~os.O_EXCL)


def _give_opened(
    request: CallRequest, handle: int, status: os.stat_result, flags: int
) -> int | None:
    if not stat.S_ISDIR(status.st_mode):
        return opening.open_existing(request, handle, flags)
    replacement = request.open_replacement(handle, status, flags)
    folder = handle if replacement is None else request.handles.keep(replacement)
    return opening.give_descriptor(request, opening.reopen(folder, flags), flags)


def _open_nameless(request: CallRequest, handle: int, flags: int, mode: int) -> int | None:
    """Open a file without a name, in a folder. Naming it is another call."""
    request.check_change(handle)
    request.context.use_umask(request.caller.umask())
    request.check_still_waiting()
    return opening.give_descriptor(request, raw_calls.openat(handle, b".", flags, mode), flags)


def _truncate(request: CallRequest) -> int:
    handle = find_target(request, AT_FDCWD, 0, 0, follow=True)
    status = os.fstat(handle)
    if stat.S_ISDIR(status.st_mode):
        return -EISDIR
    if not stat.S_ISREG(status.st_mode):
        return -EINVAL
    request.check_change(handle)
    size = request.call.arguments[1]
    if size >= 1 << 63:
        return -EINVAL
    request.check_still_waiting()
    # By writing: that is a right of its own in every version of Landlock.
    opened = request.handles.keep(
        raw_calls.openat(AT_FDCWD, b"/proc/self/fd/%d" % handle, os.O_WRONLY | os.O_CLOEXEC, 0)
    )
    os.ftruncate(opened, size)
    return 0


REMOVING_CALLS: dict[str, Callable[[CallRequest], int | None]] = {
    "rmdir": _rmdir,
    "unlink": _unlink,
    "unlinkat": _unlinkat,
}
OPENING_CALLS: dict[str, Callable[[CallRequest], int | None]] = {
    "open": _open,
    "openat": _openat,
    "truncate": _truncate,
}
"""By the name of the call, for the mediator."""
