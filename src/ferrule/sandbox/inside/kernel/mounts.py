"""Mounts: carries out the steps that `layout.py` worked out, in a mount namespace of our own.

Uses the calls of Linux 5.12 (open_tree, mount_setattr, move_mount): a copy of a tree is made
read-only before it can be seen, with everything that is mounted below it, and nothing that was
forbidden in it before becomes allowed.

A step is `(action, place, detail)`; places are absolute, as the command will see them:

    tmpfs PLACE OPTIONS         a new folder in memory
    folder PLACE MODE           made with what is missing above it; the mode octal
    link PLACE TARGET
    read PLACE SOURCE           the source, read-only, no devices
    write PLACE SOURCE          the source, writable, no devices
    device PLACE SOURCE         the source, a device
    proc PLACE, pts PLACE       new ones, of our namespaces
    overlay PLACE FOLDER        changes to what is at the place go to `FOLDER/upper`
                                (`FOLDER/work` is the kernel's)
    cover PLACE SOURCE          the source laid over what has the name, even a link; it must exist
    hold PLACE                  what is there, read-only
    seal PLACE                  this one mount read-only, not those below it
    drop PLACE                  unmounted
"""

from __future__ import annotations

import os
import stat
import struct

from .libc import call_libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Step = tuple[str, str, str]

# These numbers are the same on every architecture.
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_CLONE = 1
_CLOEXEC = 0o2000000
_EMPTY = 0x1000
_RECURSIVE = 0x8000
_FROM_EMPTY = 4
_TO_EMPTY = 0x40
_READ_ONLY = 1
_NOSUID = 2
_NODEV = 4
_NOEXEC = 8
_MS_NOSUID = 2
_MS_NODEV = 4
_MS_NOEXEC = 8
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_MS_READ_ONLY = 1
_MS_REMOUNT = 0x20
_MS_BIND = 0x1000
_MNT_DETACH = 2


class StepFailed(Exception):
    """A step could not be carried out. The text says which and why."""


def make_private() -> None:
    """Separate the mounts: what is mounted outside does not appear here, nor vice versa."""
    call_libc("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)


def build_view(view: str, steps: Iterable[Step]) -> None:
    """Make a new root over the folder `view`, and build the view in it.

    Sources outside are opened first; places are looked up only when the new root is ours. A link in
    the view (`/bin`, or what a command left in the workspace) then leads to where it leads for
    commands, and nowhere else.
    """
    steps = list(dict.fromkeys(steps))
    make_private()
    sources = {
        step: _copy_source(step) for step in steps if step[0] in ATTRIBUTES and step[0] != "hold"
    }
    call_libc(
        "mount", b"tmpfs", os.fsencode(view), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=755,size=16m"
    )
    os.mkdir(view + _OUTSIDE)  # noqa: PTH102  no pathlib in here
    os.chdir(view)
    call_libc("syscall", _PIVOT[os.uname().machine], b".", os.fsencode("." + _OUTSIDE))
    os.chdir("/")
    # The old root stays until a new /proc is mounted: the kernel requires a visible old one.
    apply_steps([step for step in steps if step[0] == "proc"])
    call_libc("umount2", os.fsencode(_OUTSIDE), _MNT_DETACH)
    os.rmdir(_OUTSIDE)  # noqa: PTH106  no pathlib in here
    apply_steps([step for step in steps if step[0] != "proc"], sources)


_OUTSIDE = "/.outside"
_PIVOT = {"x86_64": 155, "aarch64": 41}
ATTRIBUTES = {
    "read": _READ_ONLY | _NOSUID | _NODEV,
    "write": _NOSUID | _NODEV,
    "device": _NOSUID | _NOEXEC,
    "cover": _READ_ONLY | _NOSUID | _NODEV | _NOEXEC,
    "hold": _READ_ONLY,
}
"""What is added to the mounts that a step copies."""


def apply_steps(steps: Iterable[Step], sources: Mapping[Step, int] | None = None) -> None:
    """Carry out steps. `sources` are copies of what they mount, taken before.

    Raises StepFailed.
    """
    for step in steps:
        action, place, detail = step
        try:
            if action in ATTRIBUTES:
                _mount_copy(step, sources)
            else:
                ACTIONS[action](place, detail)
        except OSError as error:
            raise _build_failure(step, error) from error


def folders_above_masks(steps: Iterable[Step]) -> frozenset[str]:
    """Return the folders that contain something mounted over a name.

    If they were moved, they would take it along.
    """
    folders: set[str] = set()
    for action, place, _ in steps:
        folder = place.rpartition("/")[0] if action in ("cover", "hold") else ""
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(folders)


def _build_failure(step: Step, error: OSError) -> StepFailed:
    return StepFailed(
        f"`{' '.join(step).strip()}`: {error.strerror} ({error.filename or 'no such place'})"
    )


def _copy_source(step: Step) -> int:
    try:
        return _clone(_AT_FDCWD, os.fsencode(step[2]), ATTRIBUTES[step[0]])
    except OSError as error:
        raise _build_failure(step, error) from error


def _mount_copy(step: Step, sources: Mapping[Step, int] | None) -> None:
    """Put a copy of a tree of mounts in its place."""
    action, place, _ = step
    covers = action in ("cover", "hold")
    target = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC) if covers else _AT_FDCWD
    tree = -1
    try:
        if action == "hold":
            tree = _clone(target, b"", ATTRIBUTES[action])
        else:
            tree = sources[step] if sources else _copy_source(step)
        if covers:
            call_libc("syscall", _MOVE_MOUNT, tree, b"", target, b"", _FROM_EMPTY | _TO_EMPTY)
        else:
            _ensure_place(place, tree)
            call_libc("syscall", _MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(place), _FROM_EMPTY)
    finally:
        for descriptor in (target, tree):
            if descriptor >= 0:
                os.close(descriptor)


def _tmpfs(place: str, options: str) -> None:
    _ensure_folder(place, 0o755)
    call_libc(
        "mount", b"tmpfs", os.fsencode(place), b"tmpfs", _MS_NOSUID | _MS_NODEV, options.encode()
    )


def _folder(place: str, mode: str) -> None:
    _ensure_folder(place, int(mode, 8))
    os.chmod(place, int(mode, 8))  # noqa: PTH101  no pathlib in here


def _ensure_folder(place: str, mode: int) -> None:
    try:
        os.mkdir(place, mode)  # noqa: PTH102  no pathlib in here
    except FileExistsError:
        return
    except FileNotFoundError:
        _ensure_folder(os.path.dirname(place), 0o755)  # noqa: PTH120  no pathlib in here
        os.mkdir(place, mode)  # noqa: PTH102  no pathlib in here


def _link(place: str, target: str) -> None:
    _ensure_folder(os.path.dirname(place), 0o755)  # noqa: PTH120  no pathlib in here
    os.symlink(target, place)  # noqa: PTH211  no pathlib in here


def _clone(folder: int, source: bytes, attributes: int) -> int:
    """Return a copy of a tree of mounts, mounted nowhere yet, with these attributes added."""
    flags = _CLONE | _CLOEXEC | _RECURSIVE | (0 if source else _EMPTY)
    tree = call_libc("syscall", _OPEN_TREE, folder, source, flags)
    request = struct.pack("QQQQ", attributes, 0, 0, 0)
    try:
        call_libc("syscall", _MOUNT_SETATTR, tree, b"", _EMPTY | _RECURSIVE, request, len(request))
    except OSError:
        os.close(tree)
        raise
    return tree


def _ensure_place(place: str, tree: int) -> None:
    """Make sure that there is a mount point of the right type."""
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        _ensure_folder(place, 0o755)
        return
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    except FileExistsError:
        return
    except FileNotFoundError:
        _ensure_folder(os.path.dirname(place), 0o755)  # noqa: PTH120  no pathlib in here
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))


def _proc(place: str, _: str) -> None:
    _ensure_folder(place, 0o555)
    call_libc(
        "mount", b"proc", os.fsencode(place), b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None
    )


def _pts(place: str, _: str) -> None:
    _ensure_folder(place, 0o755)
    options = b"newinstance,ptmxmode=0666,mode=620"
    call_libc("mount", b"devpts", os.fsencode(place), b"devpts", _MS_NOSUID | _MS_NOEXEC, options)


def _overlay(place: str, folder: str) -> None:
    lower = _escape_separators(place)
    upper = _escape_separators(folder)
    options = f"lowerdir={lower},upperdir={upper}/upper,workdir={upper}/work,userxattr"
    call_libc(
        "mount",
        b"overlay",
        os.fsencode(place),
        b"overlay",
        _MS_NOSUID | _MS_NODEV,
        os.fsencode(options),
    )


def _escape_separators(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _seal(place: str, _: str) -> None:
    request = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    call_libc("syscall", _MOUNT_SETATTR, _AT_FDCWD, os.fsencode(place), 0, request, len(request))


def make_proc_read_only() -> None:
    """Make `/proc` read-only, with the call that every kernel has.

    bubblewrap is used where there are no newer ones.
    """
    flags = _MS_REMOUNT | _MS_BIND | _MS_READ_ONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    call_libc("mount", b"none", b"/proc", None, flags, None)


def _drop(place: str, _: str) -> None:
    call_libc("umount2", os.fsencode(place), _MNT_DETACH)


ACTIONS = {
    "tmpfs": _tmpfs,
    "folder": _folder,
    "link": _link,
    "proc": _proc,
    "pts": _pts,
    "overlay": _overlay,
    "seal": _seal,
    "drop": _drop,
}
"""The actions that copy no existing tree of mounts."""
