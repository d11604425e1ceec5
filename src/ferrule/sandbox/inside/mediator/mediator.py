"""The mediator: performs the calls of a command's processes that create names, or refuses them.

It runs as pid 1 of the command's namespace, with the same view of files and, once
`drop_file_capabilities` was called, no more rights on files than the command. A caller waits in its
call until the answer; what it asked for is read from its memory once, looked up by descriptor,
judged, and performed here. The kernel never reads the caller's memory again, so there is no moment
between check and use.

Errors are those of the kernel, since the kernel performs the call. A refused name is EACCES.
Different from a call made directly, and harmless: too many open files is noticed after a file was
created; F_GETFL does not show O_NOFOLLOW for a file that existed; what a caller opens on /proc by
name must be its own; a signal with a handler that interrupts (no SA_RESTART) may end any of these
calls with EINTR, always before it was performed (before Linux 5.19: also after).
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Callable, Mapping
from errno import EACCES, EEXIST, EINVAL, ENOENT, ENOSYS, EPERM
from functools import cache

from ..kernel import system_calls
from . import raw_calls
from .attributes import MODE_CALLS
from .caller_process import CallerCache, CallerGone, CallRefused
from .name_rules import REFUSED, NameRules
from .notifications import PendingCall, SeccompListener
from .opening import open_or_create
from .raw_calls import AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW
from .renaming import rename
from .requests import CallRequest, CreatedFile, MediatorContext, NeedsExclusive
from .target_files import find_target
from .withheld_files import WithheldFiles

_CAP_SYS_PTRACE = 19
_AF_UNIX = 1
_MAX_ADDRESS = 128
_NODES = (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK)


class Mediator:
    """Answers the calls that come through one listener.

    Single-threaded; whoever owns the loop calls `handle_one`.

    Attributes:
        refused_names: Names below the roots that were asked for and denied.
        denied_paths: Absolute paths where nothing could be created since the view ends there, or is
            read-only.
        created_files: What was created that others may not see.
        opener_pids: Process ids of forks that wait for a FIFO; whoever reaps them may take them
            out.

    Args:
        more_calls: Calls beyond the creating ones (`open_and_remove_calls`).
        withheld: What is withheld without a mount.
    """

    def __init__(
        self,
        listener: int,
        rules: NameRules,
        lock: int | None = None,
        *,
        more_calls: Mapping[str, Callable[[CallRequest], int | None]] | None = None,
        withheld: WithheldFiles | None = None,
    ) -> None:
        self._listener = SeccompListener(listener)
        self._context = MediatorContext(self._listener, rules, lock)
        if withheld is not None:
            self._context.withheld = withheld
        self._callers = CallerCache()
        self._calls = creating_calls()
        # Without mounts the view is the machine's, and nothing in it is read-only or missing.
        self._noted_calls = frozenset(self._calls) if withheld is None else frozenset[int]()
        if more_calls is not None:
            self._calls = {**self._calls, **_by_number(more_calls)}

    @property
    def refused_names(self) -> list[str]:
        return self._context.refused_names

    @property
    def denied_paths(self) -> dict[bytes, None]:
        return self._context.denied_paths

    @property
    def created_files(self) -> list[CreatedFile]:
        return self._context.created_files

    @property
    def opener_pids(self) -> set[int]:
        return self._context.opener_pids

    def release_names(self) -> None:
        """Stop counting what the command made as being made. Called when it is over."""
        self._context.release_names()

    def fileno(self) -> int:
        return self._listener.descriptor

    def handle_one(self) -> None:
        """Answer one call. To be called when the descriptor is readable."""
        call = self._listener.receive()
        if call is None:
            return
        result: int | None = -EACCES
        for _ in range(2):
            try:
                result = self._perform(call)
            except CallerGone:
                # Either the caller was killed, or another thread had its number when it was cached.
                self._callers.forget(call.thread)
                if not self._listener.is_waiting(call):
                    return
                continue
            break
        if result is not None:
            self._listener.answer(call, result)

    def _perform(self, call: PendingCall) -> int | None:
        perform = self._calls.get(call.number)
        if perform is None:
            return -ENOSYS
        request = CallRequest(self._context, call, self._callers.find(call.thread))
        self._context.lock(fcntl.LOCK_SH)
        try:
            result = _perform_alone_if_needed(perform, request)
        except CallRefused as refusal:
            result = -refusal.error
        except OSError as error:
            result = -(error.errno or EACCES)
        finally:
            self._context.lock(fcntl.LOCK_UN)
            request.handles.close()
        if result is not None and result < 0 and call.number in self._noted_calls:
            request.note_denied(result)
        return result


def _perform_alone_if_needed(
    perform: Callable[[CallRequest], int | None], request: CallRequest
) -> int | None:
    try:
        return perform(request)
    except NeedsExclusive:
        with request.context.lock_exclusively():
            return perform(request)


def _open(request: CallRequest) -> int | None:
    integer = request.call.integer
    return open_or_create(request, AT_FDCWD, 0, integer(1), integer(2) & 0o7777)


def _openat(request: CallRequest) -> int | None:
    integer = request.call.integer
    return open_or_create(request, integer(0), 1, integer(2), integer(3) & 0o7777)


def _creat(request: CallRequest) -> int | None:
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    return open_or_create(request, AT_FDCWD, 0, flags, request.call.integer(1) & 0o7777)


def _mkdir(request: CallRequest) -> int:
    return _make_folder(request, AT_FDCWD, request.read_string(0), request.call.integer(1))


def _mkdirat(request: CallRequest) -> int:
    return _make_folder(
        request, request.call.integer(0), request.read_string(1), request.call.integer(2)
    )


def _make_folder(request: CallRequest, base: int, path: bytes, mode: int) -> int:
    place = request.resolve(base, path)
    secret = request.check_creation(place, folder=True)
    request.context.use_umask(request.caller.umask())
    request.check_still_waiting()
    result = raw_calls.mkdirat(place.folder, place.name, mode & 0o177777)
    if result == 0:
        request.report_created(place, secret)
    return result


def _mknod(request: CallRequest) -> int:
    return _make_node(request, AT_FDCWD, 0, 1)


def _mknodat(request: CallRequest) -> int:
    return _make_node(request, request.call.integer(0), 1, 2)


def _make_node(request: CallRequest, base: int, path: int, index: int) -> int:
    """Create a node.

    Devices are refused even where the kernel has one that needs no rights (the whiteout, 0:0).
    """
    mode = request.call.integer(index) & 0o177777
    kind = stat.S_IFMT(mode)
    if kind not in _NODES:
        return -EPERM if kind == stat.S_IFDIR else -EINVAL
    place = request.resolve(base, request.read_string(path))
    if kind in (stat.S_IFCHR, stat.S_IFBLK):
        return -EEXIST if request.exists(place) else -EPERM
    secret = (
        request.check_socket_creation(place)
        if kind == stat.S_IFSOCK
        else request.check_creation(place)
    )
    request.context.use_umask(request.caller.umask())
    request.check_still_waiting()
    result = raw_calls.mknodat(place.folder, place.name, mode, 0)
    if result == 0:
        request.report_created(place, secret)
    return result


def _symlink(request: CallRequest) -> int:
    return _make_link(request, request.read_string(0), AT_FDCWD, request.read_string(1))


def _symlinkat(request: CallRequest) -> int:
    return _make_link(
        request, request.read_string(0), request.call.integer(1), request.read_string(2)
    )


def _make_link(request: CallRequest, target: bytes, base: int, path: bytes) -> int:
    if not target:
        return -ENOENT
    place = request.resolve(base, path)
    request.check_link(request.name_of(place))
    secret = request.check_creation(place)
    request.check_still_waiting()
    result = raw_calls.symlinkat(target, place.folder, place.name)
    if result == 0:
        request.report_created(place, secret)
    return result


def _link(request: CallRequest) -> int:
    return _make_hard_link(request, AT_FDCWD, 0, AT_FDCWD, 1, 0)


def _linkat(request: CallRequest) -> int:
    integer = request.call.integer
    return _make_hard_link(request, integer(0), 1, integer(2), 3, integer(4))


def _make_hard_link(
    request: CallRequest, old_base: int, old_path: int, new_base: int, new_path: int, flags: int
) -> int:
    if flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH):
        return -EINVAL
    source = find_target(request, old_base, old_path, flags, follow=bool(flags & AT_SYMLINK_FOLLOW))
    _check_link_source(request, source)
    place = request.resolve(new_base, request.read_string(new_path))
    if stat.S_ISLNK(os.fstat(source).st_mode):
        request.check_link(request.name_of(place))
    secret = request.check_creation(place)
    is_named = request.name_of(place) is not None
    if secret is None and is_named and request.is_own(source):
        request.context.count_names()  # another name of what is hidden is hidden
    request.check_still_waiting()
    old_name = b"/proc/self/fd/%d" % source
    result = raw_calls.linkat(AT_FDCWD, old_name, place.folder, place.name, AT_SYMLINK_FOLLOW)
    if result == 0:
        request.report_created(place, secret)
    return result


def _check_link_source(request: CallRequest, source: int) -> None:
    """Refuse a file that must not get a name that means less than the one it has."""
    where = request.find_place(source)
    name = None if where is None else request.context.rules.relative(*where)
    if name is not None and request.verdict(name, folder=False) == REFUSED:
        raise request.context.refuse(name)
    request.check_change(source)


def _rename(request: CallRequest) -> int:
    return rename(request, AT_FDCWD, 0, AT_FDCWD, 1, 0)


def _renameat(request: CallRequest) -> int:
    return rename(request, request.call.integer(0), 1, request.call.integer(2), 3, 0)


def _renameat2(request: CallRequest) -> int:
    integer = request.call.integer
    return rename(request, integer(0), 1, integer(2), 3, integer(4))


def _bind(request: CallRequest) -> int:
    """Bind a socket, whose address may be a name.

    The socket is the caller's own, so that its address reads as it was given.
    """
    size = request.call.integer(2)
    if not 0 <= size <= _MAX_ADDRESS:
        return -EINVAL
    address = request.context.memory.read_exactly(
        request.call.thread, request.call.arguments[1], size
    )
    socket = request.handles.keep(request.caller.duplicate_descriptor(request.call.integer(0)))
    path = address[2:].partition(b"\0")[0]
    if size <= 2 or struct.unpack_from("=H", address)[0] != _AF_UNIX or not path:
        request.check_still_waiting()
        return raw_calls.bind(socket, address, size)
    # The kernel follows the path itself here: nobody may change it after we have.
    with request.context.lock_exclusively():
        return _bind_name(request, socket, address, path)


def _bind_name(request: CallRequest, socket: int, address: bytes, path: bytes) -> int:
    place = request.resolve(AT_FDCWD, path)
    if not place.direct:
        return -EACCES
    made = request.check_socket_creation(place)
    request.context.use_umask(request.caller.umask())
    if not path.startswith(b"/"):
        os.fchdir(request.handles.working_folder(request.caller))
    try:
        request.check_still_waiting()
        result = raw_calls.bind(socket, address, len(address))
    finally:
        os.chdir("/")
    if result == 0:
        request.report_created(place, made)
    return result


_CREATING_CALLS: dict[str, Callable[[CallRequest], int | None]] = {
    "bind": _bind,
    "creat": _creat,
    "link": _link,
    "linkat": _linkat,
    "mkdir": _mkdir,
    "mkdirat": _mkdirat,
    "mknod": _mknod,
    "mknodat": _mknodat,
    "open": _open,
    "openat": _openat,
    "rename": _rename,
    "renameat": _renameat,
    "renameat2": _renameat2,
    "symlink": _symlink,
    "symlinkat": _symlinkat,
}


@cache
def creating_calls() -> dict[int, Callable[[CallRequest], int | None]]:
    """Return what performs the creating calls, by their numbers here.

    Asked for once before mediators are forked, it costs them nothing.
    """
    return _by_number({**_CREATING_CALLS, **MODE_CALLS})


def _by_number(
    performed: Mapping[str, Callable[[CallRequest], int | None]],
) -> dict[int, Callable[[CallRequest], int | None]]:
    names = system_calls.names_by_number()
    return {number: performed[name] for number, name in names.items() if name in performed}


def drop_file_capabilities() -> None:
    """Keep the right to look into processes and give up all others.

    We may then do with files what callers may. It is irrevocable, for this process and its forks;
    user and group ids stay. Raises OSError if the kernel refuses.
    """
    permitted = raw_calls.permitted_capabilities()
    result = raw_calls.keep_capabilities(permitted & 1 << _CAP_SYS_PTRACE)
    if result < 0:
        raise OSError(-result, f"capabilities could not be given up: {os.strerror(-result)}")
