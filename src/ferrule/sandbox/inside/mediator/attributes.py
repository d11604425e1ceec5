"""Changes the metadata of files: mode, owner, times, extended attributes.

No file gets the set-user-id or set-group-id bit. Landlock knows nothing of metadata. Where it is
used alone, metadata is changed here, by a handle of the file, and only where the command may write:
below the roots and in the session's own folders, and not of what is withheld.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from errno import EINVAL, EPERM

from . import raw_calls
from .caller_process import CallRefused
from .raw_calls import AT_FDCWD
from .requests import CallRequest
from .target_files import find_target

_NO_FOLLOW = 0x100
_MAX_VALUE = 65_536
_MODE = 0o7777
_SET_ID_BITS = 0o6000
_NANOSECONDS = 1_000_000_000

_Perform = Callable[[CallRequest], int]


def _handle(request: CallRequest, base: int, path: int | None, flags: int = 0) -> bytes:
    """Return the file as a path of ours that means it whatever becomes of its name.

    With `path` None it is the descriptor `base` itself.
    """
    if path is None or not request.call.arguments[path]:
        handle = request.handles.keep(request.caller.open_descriptor(base))
    else:
        handle = find_target(request, base, path, flags, follow=not flags & _NO_FOLLOW)
    _check_writable(request, handle)
    request.check_still_waiting()
    return b"/proc/self/fd/%d" % handle


def _check_writable(request: CallRequest, handle: int) -> None:
    """Refuse to change what the command may not write. Where mounts are used, they refuse that."""
    if not request.context.withheld.without_mounts:
        return
    place = request.find_place(handle)
    if place is None:
        return
    if not request.context.withheld.is_writable(b"/".join(place)):
        raise CallRefused(EPERM)
    request.check_change(handle)


def _make_chmod(
    base: int | None, path: int | None, mode: int, flags: int | None = None
) -> _Perform:
    def perform(request: CallRequest) -> int:
        handle_flags = 0 if flags is None else request.call.integer(flags)
        target = _handle(request, _base(request, base), path, handle_flags)
        new_mode = request.call.integer(mode) & _MODE
        if new_mode & _SET_ID_BITS and not stat.S_ISDIR(os.stat(target).st_mode):  # noqa: PTH116  no pathlib in here
            raise CallRefused(EPERM)
        os.chmod(target, new_mode)  # noqa: PTH101  no pathlib in here
        return 0

    return perform


def _make_chown(
    base: int | None, path: int | None, owner: int, flags: int | None = None, fixed: int = 0
) -> _Perform:
    def perform(request: CallRequest) -> int:
        handle_flags = fixed if flags is None else request.call.integer(flags)
        target = _handle(request, _base(request, base), path, handle_flags)
        os.chown(target, request.call.integer(owner), request.call.integer(owner + 1))
        return 0

    return perform


def _make_set_times(
    base: int | None, path: int | None, times: int, form: str, flags: int | None = None
) -> _Perform:
    """Return the call that sets times, which `form` describes.

    `=qqqq` is seconds and a part, twice; `=qq` is seconds alone, twice.
    """

    def perform(request: CallRequest) -> int:
        handle_flags = 0 if flags is None else request.call.integer(flags)
        address = request.call.arguments[times]
        data = None
        if address:
            data = request.context.memory.read_exactly(
                request.call.thread, address, struct.calcsize(form)
            )
        timespecs = (
            None if data is None else _timespecs(struct.unpack(form, data), micro=flags is None)
        )
        target = _handle(request, _base(request, base), path, handle_flags)
        return raw_calls.utimensat(AT_FDCWD, target, timespecs, 0)

    return perform


def _timespecs(values: tuple[int, ...], *, micro: bool) -> bytes:
    """Return the times as `utimensat` takes them: seconds and nanoseconds, twice."""
    if len(values) == 2:
        return struct.pack("=qqqq", values[0], 0, values[1], 0)
    if not micro:
        return struct.pack("=qqqq", *values)
    if not all(0 <= part < _NANOSECONDS // 1000 for part in values[1::2]):
        raise CallRefused(EINVAL)
    return struct.pack("=qqqq", values[0], values[1] * 1000, values[2], values[3] * 1000)


def _make_set_attribute(path: int | None, flags: int = 0) -> _Perform:
    def perform(request: CallRequest) -> int:
        size = request.call.arguments[3]
        if size > _MAX_VALUE:
            return -EINVAL
        value = request.context.memory.read_exactly(
            request.call.thread, request.call.arguments[2], size
        )
        target = _handle(request, _base(request, None if path is not None else 0), path, flags)
        os.setxattr(target, request.read_string(1), value, request.call.integer(4))
        return 0

    return perform


def _make_remove_attribute(path: int | None, flags: int = 0) -> _Perform:
    def perform(request: CallRequest) -> int:
        target = _handle(request, _base(request, None if path is not None else 0), path, flags)
        os.removexattr(target, request.read_string(1))
        return 0

    return perform


def _base(request: CallRequest, base: int | None) -> int:
    return AT_FDCWD if base is None else request.call.integer(base)


ATTRIBUTE_CALLS: dict[str, _Perform] = {
    "chmod": _make_chmod(None, 0, 1),
    "fchmod": _make_chmod(0, None, 1),
    "fchmodat": _make_chmod(0, 1, 2),
    "fchmodat2": _make_chmod(0, 1, 2, 3),
    "chown": _make_chown(None, 0, 1),
    "lchown": _make_chown(None, 0, 1, fixed=_NO_FOLLOW),
    "fchown": _make_chown(0, None, 1),
    "fchownat": _make_chown(0, 1, 2, 4),
    "utime": _make_set_times(None, 0, 1, "=qq"),
    "utimes": _make_set_times(None, 0, 1, "=qqqq"),
    "futimesat": _make_set_times(0, 1, 2, "=qqqq"),
    "utimensat": _make_set_times(0, 1, 2, "=qqqq", 3),
    "setxattr": _make_set_attribute(0),
    "lsetxattr": _make_set_attribute(0, _NO_FOLLOW),
    "fsetxattr": _make_set_attribute(None),
    "removexattr": _make_remove_attribute(0),
    "lremovexattr": _make_remove_attribute(0, _NO_FOLLOW),
    "fremovexattr": _make_remove_attribute(None),
}
"""By the name of the call, for the mediator."""

MODE_CALLS = {name: perform for name, perform in ATTRIBUTE_CALLS.items() if "chmod" in name}
"""Those that may give a file its owner's rights: they are mediated everywhere."""
