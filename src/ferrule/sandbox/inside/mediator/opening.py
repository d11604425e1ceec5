"""Opens a file for a caller that may thereby create it, and hands it over.

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

from . import file_calls
from .callers import Refusal
from .file_calls import AT_FDCWD, O_NOFOLLOW, O_PATH
from .file_identity import identify
from .path_resolution import MOST_LINKS, Place
from .requests import Request

_CREATING = os.O_CREAT | os.O_EXCL
_NAMELESS = 0o20000000  # __O_TMPFILE, which os.O_TMPFILE joins with O_DIRECTORY
_TERMINAL = os.makedev(5, 0)
_FIRST_PTY, _LAST_PTY = 136, 143  # majors of the terminals in /dev/pts, 256 each
_ASK_AGAIN = 1.0


def open_for(request: Request, base: int, path: int, flags: int, mode: int) -> int | None:
    """What the call returns if it fails; None if the caller was given its descriptor, or a fork
    will do that.

    `path` is the number of the argument that points to the name.
    """
    if flags & (os.O_DIRECTORY | _NAMELESS):
        return -EINVAL
    start = request.place(base, request.text(path))
    for _ in range(MOST_LINKS):
        place, handle = _look_up(request, start, flags)
        if place.name != place.plain:
            return _why_not(place, flags)
        secret = request.check(place, room=handle < 0)
        request.still_waits()
        if handle >= 0:
            return -EACCES if place.foreign else open_existing(request, place, handle, flags)
        if handle != -ENOENT:
            return handle
        request.ground.use_umask(request.caller.umask())
        created = file_calls.openat(place.folder, place.name, flags | _CREATING, mode)
        if created >= 0:
            request.handles.keep(created)
            if secret is not None:
                request.ground.note_made(identify(created), secret)
            return give(request, created, flags)
        if created != -EEXIST:
            return created
        # Somebody created it meanwhile: it is looked up again.
    return -EAGAIN


def _look_up(request: Request, start: Place, flags: int) -> tuple[Place, int]:
    """Where the name leads, and a handle of what is there or an errno below zero."""
    if not start.plain or start.name != start.plain:
        return start, -EISDIR
    if not flags & (os.O_NOFOLLOW | os.O_EXCL):
        return request.ground.resolver.follow(request.caller, start, request.handles)
    found = file_calls.openat(start.folder, start.name, O_PATH | O_NOFOLLOW, 0)
    if found >= 0:
        request.handles.keep(found)
    return start, found


def _why_not(place: Place, flags: int) -> int:
    """The kernel's errno for a name that cannot be that of a new file: `.`, `..`, `/` or one with a
    slash at its end.
    """
    found = file_calls.openat(place.folder, place.name, flags | os.O_CREAT, 0)
    if found >= 0:
        os.close(found)
        return -EISDIR
    return found


def open_existing(request: Request, place: Place, handle: int, flags: int) -> int | None:
    """Hand over what a handle holds, which is no folder."""
    if flags & os.O_EXCL:
        return -EEXIST
    status = os.fstat(handle)
    instead = request.seen(place, handle, status, flags)
    if instead is not None:
        return give(request, reopen(request.handles.keep(instead), flags), flags)
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        return -ELOOP
    if kind == stat.S_IFDIR:
        return -EISDIR
    if kind == stat.S_IFIFO:
        return _open_pipe(request, handle, flags)
    if kind == stat.S_IFCHR and status.st_rdev == _TERMINAL:
        handle = _own_terminal(request)
    return give(request, reopen(handle, flags), flags)


def reopen(handle: int, flags: int) -> int:
    """Open what a handle holds. The terminal that this may be is to be the caller's, never ours."""
    flags = flags & ~(_CREATING | os.O_NOFOLLOW) | os.O_NOCTTY
    return file_calls.openat(AT_FDCWD, b"/proc/self/fd/%d" % handle, flags, 0)


def give(request: Request, descriptor: int, flags: int) -> int | None:
    """Hand a file over, or the errno that opening it failed with."""
    if descriptor < 0:
        return descriptor
    try:
        request.ground.listener.give(request.asked, descriptor, flags & os.O_CLOEXEC)
    finally:
        if descriptor not in request.handles:
            os.close(descriptor)
    return None


def _own_terminal(request: Request) -> int:
    """A handle of the terminal that /dev/tty is for the caller."""
    device = request.caller.terminal()
    if not _FIRST_PTY <= os.major(device) <= _LAST_PTY:
        raise Refusal(ENXIO)
    number = (os.major(device) - _FIRST_PTY) * 256 + os.minor(device)
    return request.handles.keep(file_calls.openat(AT_FDCWD, b"/dev/pts/%d" % number, O_PATH, 0))


def _open_pipe(request: Request, handle: int, flags: int) -> int | None:
    """A FIFO. Only where the caller would have to wait is there a fork."""
    access = flags & os.O_ACCMODE
    if flags & os.O_NONBLOCK or access == os.O_RDWR:
        return give(request, reopen(handle, flags), flags)
    if access == os.O_WRONLY:
        found = reopen(handle, flags | os.O_NONBLOCK)
        if found >= 0:
            fcntl.fcntl(found, fcntl.F_SETFL, flags & (os.O_APPEND | os.O_DIRECT | os.O_NOATIME))
        if found != -ENXIO:
            return give(request, found, flags)
    try:
        opener = os.fork()
    except OSError:
        return -EAGAIN
    if opener:
        request.ground.openers.add(opener)
        return None
    _wait_and_give(request, handle, flags)
    return None


def _wait_and_give(request: Request, handle: int, flags: int) -> None:
    """In the fork: open the FIFO however long it takes, hand it over, end. Never returns."""
    status = 1

    def end_if_gone(number: int, frame: object) -> None:
        if not request.ground.listener.waits(request.asked):
            os._exit(0)

    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGALRM, end_if_gone)
        signal.setitimer(signal.ITIMER_REAL, _ASK_AGAIN, _ASK_AGAIN)
        try:
            # The interpreter's own: it calls the handler when it is interrupted, and goes on
            # waiting.
            found = os.open(f"/proc/self/fd/{handle}", flags & ~(_CREATING | os.O_NOFOLLOW))
        except OSError as error:
            request.ground.listener.answer(request.asked, -(error.errno or EACCES))
        else:
            signal.setitimer(signal.ITIMER_REAL, 0)
            request.ground.listener.give(request.asked, found, flags & os.O_CLOEXEC)
        status = 0
    finally:
        os._exit(status)
