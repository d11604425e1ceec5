"""Opens a file for a caller that may create it by that, and hands it over.

A file that exists is held by a handle first and opened through it, so that what was looked at is
what is opened. What does not exist is created exclusively. Where opening would wait (a FIFO without
its other end) a fork waits.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
from errno import EACCES, EAGAIN, EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENXIO

from . import raw_calls
from .caller_process import CallRefused
from .file_identity import identify
from .path_resolution import MAX_LINKS, ResolvedName
from .raw_calls import AT_FDCWD, O_NOFOLLOW, O_PATH
from .requests import CallRequest

_CREATING = os.O_CREAT | os.O_EXCL
_NAMELESS = 0o20000000  # __O_TMPFILE, which os.O_TMPFILE joins with O_DIRECTORY
_TERMINAL = os.makedev(5, 0)
_FIRST_PTY, _LAST_PTY = 136, 143  # majors of the terminals in /dev/pts, 256 each
_CHECK_SECONDS = 1.0


def open_or_create(request: CallRequest, base: int, path: int, flags: int, mode: int) -> int | None:
    """Perform an opening call that may create a file.

    `path` is the number of the argument that points to the name. Returns an errno below zero; None
    if the caller was given its descriptor, or a fork will do that.
    """
    if flags & (os.O_DIRECTORY | _NAMELESS):
        return -EINVAL
    start = request.resolve(base, request.read_string(path))
    for _ in range(MAX_LINKS):
        place, handle = _look_up(request, start, flags)
        if place.name != place.plain:
            return _creation_error(place, flags)
        secret = request.check_creation(place, room=handle < 0)
        request.check_still_waiting()
        if handle >= 0:
            return -EACCES if place.foreign else open_existing(request, handle, flags)
        if handle != -ENOENT:
            return handle
        request.context.use_umask(request.caller.umask())
        created = raw_calls.openat(place.folder, place.name, flags | _CREATING, mode)
        if created >= 0:
            request.handles.keep(created)
            if secret is not None:
                request.context.note_created(identify(created), secret)
            return give_descriptor(request, created, flags)
        if created != -EEXIST:
            return created
        # Another process created it meanwhile: it is looked up again.
    return -EAGAIN


def _look_up(request: CallRequest, start: ResolvedName, flags: int) -> tuple[ResolvedName, int]:
    """Return where the name leads, and a handle of what is there or an errno below zero."""
    if not start.plain or start.name != start.plain:
        return start, -EISDIR
    if not flags & (os.O_NOFOLLOW | os.O_EXCL):
        return request.context.resolver.follow(request.caller, start, request.handles)
    handle = raw_calls.openat(start.folder, start.name, O_PATH | O_NOFOLLOW, 0)
    if handle >= 0:
        request.handles.keep(handle)
    return start, handle


def _creation_error(place: ResolvedName, flags: int) -> int:
    """Return the kernel's errno for a name that cannot be that of a new file.

    That is `.`, `..`, `/` or one with a slash at its end.
    """
    opened = raw_calls.openat(place.folder, place.name, flags | os.O_CREAT, 0)
    if opened >= 0:
        os.close(opened)
        return -EISDIR
    return opened


def open_existing(request: CallRequest, handle: int, flags: int) -> int | None:
    """Hand over what a handle holds, which is no folder."""
    if flags & os.O_EXCL:
        return -EEXIST
    status = os.fstat(handle)
    replacement = request.open_replacement(handle, status, flags)
    if replacement is not None:
        return give_descriptor(request, reopen(request.handles.keep(replacement), flags), flags)
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        return -ELOOP
    if kind == stat.S_IFDIR:
        return -EISDIR
    if kind == stat.S_IFIFO:
        return _open_pipe(request, handle, flags)
    if kind == stat.S_IFCHR and status.st_rdev == _TERMINAL:
        handle = _open_own_terminal(request)
    return give_descriptor(request, reopen(handle, flags), flags)


def reopen(handle: int, flags: int) -> int:
    """Open what a handle holds. A terminal never becomes our controlling terminal."""
    flags = flags & ~(_CREATING | os.O_NOFOLLOW) | os.O_NOCTTY
    return raw_calls.openat(AT_FDCWD, b"/proc/self/fd/%d" % handle, flags, 0)


def give_descriptor(request: CallRequest, descriptor: int, flags: int) -> int | None:
    """Hand a file over, or return the errno that opening it failed with."""
    if descriptor < 0:
        return descriptor
    request.handles.release(descriptor)
    request.context.listener.answer_with_descriptor(request.call, descriptor, flags)
    return None


def _open_own_terminal(request: CallRequest) -> int:
    """Return a handle of the terminal that /dev/tty is for the caller."""
    device = request.caller.terminal()
    if not _FIRST_PTY <= os.major(device) <= _LAST_PTY:
        raise CallRefused(ENXIO)
    number = (os.major(device) - _FIRST_PTY) * 256 + os.minor(device)
    return request.handles.keep(raw_calls.openat(AT_FDCWD, b"/dev/pts/%d" % number, O_PATH, 0))


def _open_pipe(request: CallRequest, handle: int, flags: int) -> int | None:
    """Open a FIFO. Only where the caller would have to wait is there a fork."""
    access = flags & os.O_ACCMODE
    if flags & os.O_NONBLOCK or access == os.O_RDWR:
        return give_descriptor(request, reopen(handle, flags), flags)
    if access == os.O_WRONLY:
        opened = reopen(handle, flags | os.O_NONBLOCK)
        if opened >= 0:
            fcntl.fcntl(opened, fcntl.F_SETFL, flags & (os.O_APPEND | os.O_DIRECT | os.O_NOATIME))
        if opened != -ENXIO:
            return give_descriptor(request, opened, flags)
    try:
        opener = os.fork()
    except OSError:
        return -EAGAIN
    if opener:
        request.context.opener_pids.add(opener)
        return None
    _wait_and_give(request, handle, flags)
    return None


def _wait_and_give(request: CallRequest, handle: int, flags: int) -> None:
    """Open the FIFO however long it takes, hand it over, and end. In the fork; never returns."""
    status = 1

    def end_if_gone(number: int, frame: object) -> None:
        if not request.context.listener.is_waiting(request.call):
            os._exit(0)

    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGALRM, end_if_gone)
        signal.setitimer(signal.ITIMER_REAL, _CHECK_SECONDS, _CHECK_SECONDS)
        try:
            # `os.open` calls the handler when it is interrupted, and goes on waiting.
            opened = os.open(f"/proc/self/fd/{handle}", flags & ~(_CREATING | os.O_NOFOLLOW))
        except OSError as error:
            request.context.listener.answer(request.call, -(error.errno or EACCES))
        else:
            signal.setitimer(signal.ITIMER_REAL, 0)
            request.context.listener.answer_with_descriptor(request.call, opened, flags)
        status = 0
    finally:
        os._exit(status)
