"""Finds the file that a call is about: by its name, by a descriptor, or by one's name on /proc.

Anybody may hold any file (O_PATH reads nothing and is not mediated), so what a caller calls it says
little. A call on a file gets a handle here, is judged by where that handle leads
(`CallRequest.check_change`, `CallRequest.open_replacement`), and is performed on the handle.
"""

from __future__ import annotations

import os
import stat
from errno import EACCES, ENOTDIR

from . import raw_calls
from .caller_process import CallRefused
from .path_resolution import ResolvedName
from .raw_calls import AT_EMPTY_PATH, AT_FDCWD, O_NOFOLLOW, O_PATH
from .requests import CallRequest

_PROC_SECRETS = frozenset(
    {
        b"kcore",
        b"keys",
        b"key-users",
        b"kpagecount",
        b"kpageflags",
        b"kpagecgroup",
        b"sched_debug",
        b"timer_list",
    }
)


def find_target(request: CallRequest, base: int, path: int, flags: int, *, follow: bool) -> int:
    """Return a handle of what a call is about; with AT_EMPTY_PATH that can be `base` itself.

    `path` is the number of the argument that points to the name. The handle is kept until the call
    is answered.
    """
    if flags & AT_EMPTY_PATH and not request.read_string(path):
        return find_descriptor(request, base)
    return _find_named(request, base, path, follow=follow)


def find_descriptor(request: CallRequest, base: int) -> int:
    """Return a handle of what one of the caller's descriptors holds, or of its working folder."""
    if base == AT_FDCWD:
        return request.handles.working_folder(request.caller)
    return request.handles.keep(request.caller.open_descriptor(base))


def _find_named(request: CallRequest, base: int, path: int, *, follow: bool) -> int:
    """Return a handle of what is by a name. Refused if nothing is, or nobody may look at it."""
    start = request.resolve(base, request.read_string(path))
    plain = start.plain
    if not plain:  # `/`, `.`, `..`: no link can be one of these
        return request.handles.keep(raw_calls.openat(start.folder, start.name, O_PATH, 0))
    slashes = start.name != plain
    # Without slashes: after those the kernel would follow a link of /proc as ours.
    bare = ResolvedName(start.folder, start.path, plain, start.on_proc, start.foreign, start.direct)
    if follow or slashes:
        place, handle = request.context.resolver.follow(request.caller, bare, request.handles)
        if handle < 0:
            raise CallRefused(-handle)
    else:
        place = bare
        handle = request.handles.keep(raw_calls.openat(bare.folder, plain, O_PATH | O_NOFOLLOW, 0))
    if slashes and not stat.S_ISDIR(os.fstat(handle).st_mode):
        raise CallRefused(ENOTDIR)
    _check_proc(request, place)
    return handle


def _check_proc(request: CallRequest, place: ResolvedName) -> None:
    """Refuse what on /proc belongs to other processes or their sockets.

    What is about the machine and what is the caller's own is allowed.
    """
    if not place.on_proc:
        return
    parts = (place.path + b"/" + place.plain).split(b"/")[2:]
    if (parts[:1] and parts[0] in _PROC_SECRETS) or b"net" in parts[1:4]:
        raise CallRefused(EACCES)
    is_process = bool(parts[:1]) and parts[0].isdigit()
    if place.foreign and is_process and int(parts[0]) != request.caller.process():
        raise CallRefused(EACCES)
