"""What is said about a file and is not in it: mode, owner, times, extended attributes.

No file gets the set-user-id or set-group-id bit. Landlock knows nothing of these. Where it stands
alone they are changed here, by a handle of the file, and only where the command may write: below
the roots and in the session's own folders, and not of what is withheld.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from errno import EINVAL, EPERM

from . import file_calls, guarded_calls
from .callers import Refusal
from .file_calls import AT_EMPTY_PATH, AT_FDCWD
from .requests import Request

_NO_FOLLOW = 0x100
_MOST_VALUE = 65_536
_MODE = 0o7777
_GAINED = 0o6000
_NANO = 1_000_000_000

_Perform = Callable[[Request], int]


def _handle(request: Request, base: int, path: int | None, flags: int = 0) -> bytes:
    """The file as a path of ours that means it whatever becomes of its name. `path` None: the
    descriptor `base` itself.
    """
    if path is None or not request.asked.arguments[path]:
        handle = request.handles.keep(request.caller.descriptor(base))
    elif flags & AT_EMPTY_PATH and not request.text(path):
        folder = request.handles.working_folder(request.caller) if base == AT_FDCWD else -1
        handle = folder if folder >= 0 else request.handles.keep(request.caller.descriptor(base))
    else:
        _, handle = guarded_calls.found(request, base, path, follow=not flags & _NO_FOLLOW)
    _judge(request, handle)
    request.still_waits()
    return b"/proc/self/fd/%d" % handle


def _judge(request: Request, handle: int) -> None:
    """Refusal of what the command may not write. Where mounts hold, they refuse that."""
    if not request.ground.covers.alone:
        return
    try:
        path = request.ground.resolver.where(handle)
    except Refusal:
        return  # a pipe, memory: it lies nowhere
    if not request.ground.covers.writable(path):
        raise Refusal(EPERM)
    folder, _, name = path.rpartition(b"/")
    request.ground.covers.enter(folder or b"/", name)
    request.ground.covers.touch(os.fstat(handle))


def _chmod(base: int | None, path: int | None, mode: int, flags: int | None = None) -> _Perform:
    def perform(request: Request) -> int:
        how = 0 if flags is None else request.asked.integer(flags)
        target = _handle(request, _base(request, base), path, how)
        given = request.asked.integer(mode) & _MODE
        if given & _GAINED and not stat.S_ISDIR(os.stat(target).st_mode):  # noqa: PTH116  no pathlib in here
            raise Refusal(EPERM)
        os.chmod(target, given)  # noqa: PTH101  no pathlib in here
        return 0

    return perform


def _chown(
    base: int | None, path: int | None, owner: int, flags: int | None = None, fixed: int = 0
) -> _Perform:
    def perform(request: Request) -> int:
        how = fixed if flags is None else request.asked.integer(flags)
        integer = request.asked.integer
        os.chown(
            _handle(request, _base(request, base), path, how), integer(owner), integer(owner + 1)
        )
        return 0

    return perform


def _times(
    base: int | None, path: int | None, times: int, form: str, flags: int | None = None
) -> _Perform:
    """`form`: how the two times are written: `=qqqq` seconds and a part, `=qq` seconds alone."""

    def perform(request: Request) -> int:
        how = 0 if flags is None else request.asked.integer(flags)
        address = request.asked.arguments[times]
        given = None
        if address:
            given = request.ground.memory.exactly(
                request.asked.thread, address, struct.calcsize(form)
            )
        spec = None if given is None else _spec(struct.unpack(form, given), micro=flags is None)
        target = _handle(request, _base(request, base), path, how)
        return file_calls.utimensat(AT_FDCWD, target, spec, 0)

    return perform


def _spec(values: tuple[int, ...], *, micro: bool) -> bytes:
    """As `utimensat` takes them: seconds and nanoseconds, twice."""
    if len(values) == 2:
        return struct.pack("=qqqq", values[0], 0, values[1], 0)
    if not micro:
        return struct.pack("=qqqq", *values)
    if not all(0 <= part < _NANO // 1000 for part in values[1::2]):
        raise Refusal(EINVAL)
    return struct.pack("=qqqq", values[0], values[1] * 1000, values[2], values[3] * 1000)


def _set_attribute(path: int | None, flags: int = 0) -> _Perform:
    def perform(request: Request) -> int:
        size = request.asked.arguments[3]
        if size > _MOST_VALUE:
            return -EINVAL
        value = request.ground.memory.exactly(
            request.asked.thread, request.asked.arguments[2], size
        )
        target = _handle(request, _base(request, None if path is not None else 0), path, flags)
        os.setxattr(target, request.text(1), value, request.asked.integer(4))
        return 0

    return perform


def _remove_attribute(path: int | None, flags: int = 0) -> _Perform:
    def perform(request: Request) -> int:
        target = _handle(request, _base(request, None if path is not None else 0), path, flags)
        os.removexattr(target, request.text(1))
        return 0

    return perform


def _base(request: Request, base: int | None) -> int:
    return AT_FDCWD if base is None else request.asked.integer(base)


ATTRIBUTES: dict[str, _Perform] = {
    "chmod": _chmod(None, 0, 1),
    "fchmod": _chmod(0, None, 1),
    "fchmodat": _chmod(0, 1, 2),
    "fchmodat2": _chmod(0, 1, 2, 3),
    "chown": _chown(None, 0, 1),
    "lchown": _chown(None, 0, 1, fixed=_NO_FOLLOW),
    "fchown": _chown(0, None, 1),
    "fchownat": _chown(0, 1, 2, 4),
    "utime": _times(None, 0, 1, "=qq"),
    "utimes": _times(None, 0, 1, "=qqqq"),
    "futimesat": _times(0, 1, 2, "=qqqq"),
    "utimensat": _times(0, 1, 2, "=qqqq", 3),
    "setxattr": _set_attribute(0),
    "lsetxattr": _set_attribute(0, _NO_FOLLOW),
    "fsetxattr": _set_attribute(None),
    "removexattr": _remove_attribute(0),
    "lremovexattr": _remove_attribute(0, _NO_FOLLOW),
    "fremovexattr": _remove_attribute(None),
}
"""By the name of the call, for `Mediator`."""

MODES = {name: perform for name, perform in ATTRIBUTES.items() if "chmod" in name}
"""Those that may give a file its owner's rights: asked about everywhere."""
