"""Resolves a caller's name: to a handle of a folder, and a last component not looked up yet.

The folder is held by descriptor from here on, so that what is judged is what is used. Links on the
way are followed by the kernel. A folder on a mount that is not in our view is refused: it came from
another process, its path says nothing, and its masks are not ours. Names that lead through /proc
mean the caller's process and not ours: these few are walked here, one component at a time, and only
the caller's own entries are followed. Another process's (`/proc/1/cwd`!) are refused.
"""

from __future__ import annotations

import os
import stat
from errno import EACCES, ELOOP, ENOENT, ENOTDIR

from . import raw_calls
from .caller_process import Caller, CallRefused
from .raw_calls import AT_FDCWD, O_NOFOLLOW, O_PATH

MAX_LINKS = 40


class Handles:
    """Descriptors that are closed when the call was answered."""

    __slots__ = ("_open", "_working_folder")

    def __init__(self) -> None:
        self._open: list[int] = []
        self._working_folder = -1

    def working_folder(self, caller: Caller) -> int:
        """Return the caller's working folder, the same one for both names of a call."""
        if self._working_folder < 0:
            self._working_folder = self.keep(caller.open_working_folder())
        return self._working_folder

    def keep(self, descriptor: int) -> int:
        """Keep and return a descriptor. Below zero, it is the errno of the call that failed."""
        if descriptor < 0:
            raise CallRefused(-descriptor)
        self._open.append(descriptor)
        return descriptor

    def release(self, descriptor: int) -> None:
        """Leave a descriptor, if it is kept here, to whoever closes it."""
        if descriptor in self._open:
            self._open.remove(descriptor)

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()


class ResolvedName:
    """A name in a folder.

    `path` is where the folder is, `direct` whether the kernel alone followed the path there.
    `foreign`: on /proc and not about the caller's process, so that nothing there may be opened for
    it.
    """

    __slots__ = ("direct", "folder", "foreign", "name", "on_proc", "path")

    def __init__(
        self, folder: int, path: bytes, name: bytes, on_proc: bool, foreign: bool, direct: bool
    ) -> None:
        self.folder = folder
        self.path = path
        self.name = name
        self.on_proc = on_proc
        self.foreign = foreign
        self.direct = direct

    @property
    def plain(self) -> bytes:
        """The name without slashes at its end; empty for those that no call can create.

        Those are `/`, `.` and `..`.
        """
        name = self.name.rstrip(b"/")
        return b"" if name in (b".", b"..") else name


class NameResolver:
    """Resolves names for callers. `usual` are folders without a procfs below.

    Most names lead to these.
    """

    def __init__(self, usual: tuple[bytes, ...] = ()) -> None:
        self._fd_folder = os.open("/proc/self/fd", os.O_PATH)
        self._usual = usual
        self._known_mounts: set[int] = set()

    def path_of(self, descriptor: int) -> bytes:
        """Return the absolute path of an open file."""
        path = os.readlink(b"%d" % descriptor, dir_fd=self._fd_folder)
        if not path.startswith(b"/"):
            raise CallRefused(EACCES if stat.S_ISDIR(os.fstat(descriptor).st_mode) else ENOTDIR)
        return path

    def _check_mount(self, folder: int, path: bytes) -> None:
        """Refuse a folder of another view.

        Mounts of ours never change, so each is checked once. What is no folder holds no names,
        whatever it is mounted on: a device, or a file that a caller names its calls relative to.
        """
        mount = raw_calls.mount_of(folder)
        if mount in self._known_mounts:
            return
        if not self._known_mounts:
            self._known_mounts.update(map(self._mount_at, self._usual))
        if mount < 0 or mount != self._mount_at(path):
            is_folder = stat.S_ISDIR(os.fstat(folder).st_mode)
            raise CallRefused(EACCES if is_folder else ENOTDIR)
        self._known_mounts.add(mount)

    def _mount_at(self, path: bytes) -> int:
        found = raw_calls.open_folder(AT_FDCWD, path)
        if found < 0:
            return found
        try:
            return raw_calls.mount_of(found)
        finally:
            os.close(found)

    def resolve(self, caller: Caller, base: int, path: bytes, handles: Handles) -> ResolvedName:
        """Resolve a name. `base` is a descriptor number of the caller's, or AT_FDCWD."""
        if not path:
            raise CallRefused(ENOENT)
        if path.startswith(b"/"):
            return self.resolve_from(caller, AT_FDCWD, path, handles)
        if base == AT_FDCWD:
            return self.resolve_from(caller, handles.working_folder(caller), path, handles)
        return self.resolve_from(caller, handles.keep(caller.open_descriptor(base)), path, handles)

    def resolve_from(
        self, caller: Caller, folder: int, path: bytes, handles: Handles
    ) -> ResolvedName:
        """Resolve a name from a folder of ours; AT_FDCWD is the root and needs an absolute path."""
        parent_path, name = _split(path)
        parent = folder
        direct = True
        if parent_path:
            parent = raw_calls.open_folder(folder, parent_path)
            direct = parent != -ELOOP
            if direct:
                handles.keep(parent)
            else:
                parent = self._walk(caller, folder, parent_path, handles)
        where = self.path_of(parent)
        on_proc = not where.startswith(self._usual) and raw_calls.is_on_proc(parent)
        if on_proc and direct:
            # The kernel took `self` for us.
            direct = False
            parent = self._walk(caller, folder, parent_path, handles)
            where = self.path_of(parent)
            on_proc = raw_calls.is_on_proc(parent)
        self._check_mount(parent, where)
        foreign = on_proc and not _owns(caller, where)
        return ResolvedName(parent, where, name, on_proc, foreign, direct)

    def _walk(self, caller: Caller, base: int, path: bytes, handles: Handles) -> int:
        """Return the folder at `path`, walked one component at a time."""
        folder = (
            handles.keep(raw_calls.openat(AT_FDCWD, b"/", O_PATH, 0))
            if path.startswith(b"/")
            else base
        )
        parts = path.split(b"/")[::-1]
        links = 0
        while parts:
            part = parts.pop()
            if part in (b"", b"."):
                continue
            handle = handles.keep(raw_calls.openat(folder, part, O_PATH | O_NOFOLLOW, 0))
            if not stat.S_ISLNK(os.fstat(handle).st_mode):
                folder = handle
                continue
            links += 1
            if links > MAX_LINKS:
                raise CallRefused(ELOOP)
            target = self._read_link(caller, folder, part, handle, handles)
            if isinstance(target, int):
                folder = target
                rest = b"/".join(reversed(parts)).lstrip(b"/")
                rest_folder = self._open_rest(folder, rest, handles) if rest else None
                if rest_folder is not None:
                    return rest_folder
                continue
            if target.startswith(b"/"):
                folder = handles.keep(raw_calls.openat(AT_FDCWD, b"/", O_PATH, 0))
            parts += target.split(b"/")[::-1]
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            raise CallRefused(ENOTDIR)
        return folder

    def _open_rest(self, folder: int, path: bytes, handles: Handles) -> int | None:
        """Open the rest of a path that led out of /proc.

        The kernel follows it, unless it leads back there: then None.
        """
        found = raw_calls.open_folder(folder, path)
        if found == -ELOOP:
            return None
        handles.keep(found)
        return None if raw_calls.is_on_proc(found) else found

    def _read_link(
        self, caller: Caller, folder: int, name: bytes, link: int, handles: Handles
    ) -> bytes | int:
        """Return the text of a link; for a link of /proc to an open file, a handle of that file."""
        if not raw_calls.is_on_proc(folder):
            return os.readlink(b"", dir_fd=link)
        where = self.path_of(folder)
        if where == b"/proc":
            if name == b"self":
                return b"%d" % caller.process()
            if name == b"thread-self":
                return b"%d/task/%d" % (caller.process(), caller.thread)
            return os.readlink(b"", dir_fd=link)
        if not _owns(caller, where):
            raise CallRefused(EACCES)
        return handles.keep(raw_calls.openat(folder, name, O_PATH, 0))

    def follow(
        self, caller: Caller, place: ResolvedName, handles: Handles
    ) -> tuple[ResolvedName, int]:
        """Follow links at the end. Returns where they lead, and a handle of the file there.

        The handle is an errno below zero if there is none: then the place is where it would be.
        """
        for _ in range(MAX_LINKS):
            found = raw_calls.openat(place.folder, place.name, O_PATH | O_NOFOLLOW, 0)
            if found < 0:
                return place, found
            handles.keep(found)
            if not stat.S_ISLNK(os.fstat(found).st_mode):
                return place, found
            target = self._read_link(caller, place.folder, place.name, found, handles)
            if isinstance(target, int):
                return place, target
            place = self.resolve_from(caller, place.folder, target, handles)
            if not place.plain:
                return place, handles.keep(raw_calls.openat(place.folder, place.name, O_PATH, 0))
        raise CallRefused(ELOOP)


def _owns(caller: Caller, where: bytes) -> bool:
    """Return whether a folder of /proc is about the caller's own process."""
    own = b"/proc/%d" % caller.process()
    return where == own or where.startswith(own + b"/")


def _split(path: bytes) -> tuple[bytes, bytes]:
    """Split a path into its folder and its last component with the slashes after it.

    The folder's path is empty where the path is a single name.
    """
    plain = path.rstrip(b"/")
    if not plain:
        return path[:1], path[:1]
    end = plain.rfind(b"/") + 1
    return path[:end], path[end:]
