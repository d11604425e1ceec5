"""Where a caller's name leads: to a handle of a folder, and a last component that nobody has looked
up yet.

The folder is held by descriptor from here on, so that what is judged is what is used. Links on the
way are followed by the kernel. A folder on a mount that is not in our view is refused: it came from
somebody else, its path says nothing, and what lies over its names is not what lies over ours. Names
that lead through /proc mean the caller's process and not ours: these few are walked here, one
component at a time, and only the caller's own entries are followed. Another process's
(`/proc/1/cwd`!) are refused.
"""

from __future__ import annotations

import os
import stat
from errno import EACCES, ELOOP, ENOENT, ENOTDIR

from . import file_calls
from .callers import Caller, Refusal
from .file_calls import AT_FDCWD, O_NOFOLLOW, O_PATH

MOST_LINKS = 40


class Handles:
    """Descriptors that are closed when the call was answered."""

    __slots__ = ("_open", "_working_folder")

    def __init__(self) -> None:
        self._open: list[int] = []
        self._working_folder = -1

    def working_folder(self, caller: Caller) -> int:
        """The caller's folder, the same one for both names of a call."""
        if self._working_folder < 0:
            self._working_folder = self.keep(caller.working_folder())
        return self._working_folder

    def keep(self, descriptor: int) -> int:
        """The descriptor; what is below zero is the errno of the call that failed."""
        if descriptor < 0:
            raise Refusal(-descriptor)
        self._open.append(descriptor)
        return descriptor

    def __contains__(self, descriptor: int) -> bool:
        return descriptor in self._open

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()


class Place:
    """A name in a folder. `path` is where the folder is, `direct` whether the kernel alone followed
    the way there.

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
        """The name without slashes at its end; empty for those that no call can create (`/`, `.`,
        `..`).
        """
        name = self.name.rstrip(b"/")
        return b"" if name in (b".", b"..") else name


class Resolver:
    """Resolves names for callers. `usual` are folders without a procfs below, which most names lead
    to.
    """

    def __init__(self, usual: tuple[bytes, ...] = ()) -> None:
        self._own = os.open("/proc/self/fd", os.O_PATH)
        self._usual = usual
        self._mounts: set[int] = set()

    def where(self, descriptor: int) -> bytes:
        """The absolute path of an open file."""
        path = os.readlink(b"%d" % descriptor, dir_fd=self._own)
        if not path.startswith(b"/"):
            raise Refusal(EACCES if stat.S_ISDIR(os.fstat(descriptor).st_mode) else ENOTDIR)
        return path

    def _check_mount(self, folder: int, path: bytes) -> None:
        """Refusal of a folder that another view has. Mounts of ours never change, so each is looked
        at once.
        """
        mount = file_calls.mount_of(folder)
        if mount in self._mounts:
            return
        if not self._mounts:
            self._mounts.update(map(self._mount_at, self._usual))
        if mount < 0 or mount != self._mount_at(path):
            raise Refusal(EACCES)
        self._mounts.add(mount)

    def _mount_at(self, path: bytes) -> int:
        found = file_calls.open_folder(AT_FDCWD, path)
        if found < 0:
            return found
        try:
            return file_calls.mount_of(found)
        finally:
            os.close(found)

    def place(self, caller: Caller, base: int, path: bytes, handles: Handles) -> Place:
        """`base` is a descriptor number of the caller's, or AT_FDCWD for its folder."""
        if not path:
            raise Refusal(ENOENT)
        if path.startswith(b"/"):
            return self.place_from(caller, AT_FDCWD, path, handles)
        if base == AT_FDCWD:
            return self.place_from(caller, handles.working_folder(caller), path, handles)
        return self.place_from(caller, handles.keep(caller.descriptor(base)), path, handles)

    def place_from(self, caller: Caller, folder: int, path: bytes, handles: Handles) -> Place:
        """The same, from a folder of ours; AT_FDCWD stands for the root and needs an absolute
        path.
        """
        parent, name = _split(path)
        found, direct = folder, True
        if parent:
            found = file_calls.open_folder(folder, parent)
            if found == -ELOOP:
                found, direct = self._walk(caller, folder, parent, handles), False
            elif found < 0:
                raise Refusal(-found)
            else:
                handles.keep(found)
        where = self.where(found)
        on_proc = not where.startswith(self._usual) and file_calls.on_proc(found)
        if on_proc and direct:
            # The kernel took `self` for us.
            found, direct = self._walk(caller, folder, parent, handles), False
            where = self.where(found)
            on_proc = file_calls.on_proc(found)
        self._check_mount(found, where)
        foreign = on_proc and not _owns(caller, where)
        return Place(found, where, name, on_proc, foreign, direct)

    def _walk(self, caller: Caller, base: int, path: bytes, handles: Handles) -> int:
        """The folder at `path`, one component at a time."""
        here = (
            handles.keep(file_calls.openat(AT_FDCWD, b"/", O_PATH, 0))
            if path.startswith(b"/")
            else base
        )
        parts = path.split(b"/")[::-1]
        links = 0
        while parts:
            part = parts.pop()
            if part in (b"", b"."):
                continue
            found = handles.keep(file_calls.openat(here, part, O_PATH | O_NOFOLLOW, 0))
            if not stat.S_ISLNK(os.fstat(found).st_mode):
                here = found
                continue
            links += 1
            if links > MOST_LINKS:
                raise Refusal(ELOOP)
            text = self._link(caller, here, part, found, handles)
            if isinstance(text, int):
                here = text
                rest = b"/".join(reversed(parts)).lstrip(b"/")
                if rest and (found := self._beyond(here, rest, handles)) is not None:
                    return found
                continue
            if text.startswith(b"/"):
                here = handles.keep(file_calls.openat(AT_FDCWD, b"/", O_PATH, 0))
            parts += text.split(b"/")[::-1]
        if not stat.S_ISDIR(os.fstat(here).st_mode):
            raise Refusal(ENOTDIR)
        return here

    def _beyond(self, folder: int, path: bytes, handles: Handles) -> int | None:
        """What is left of a way that led out of /proc: the kernel's again, unless it leads back
        there.
        """
        found = file_calls.open_folder(folder, path)
        if found == -ELOOP:
            return None
        handles.keep(found)
        return None if file_calls.on_proc(found) else found

    def _link(
        self, caller: Caller, folder: int, name: bytes, link: int, handles: Handles
    ) -> bytes | int:
        """The text of a link; for an entry of /proc that leads to an open file, a handle of that
        file.
        """
        if not file_calls.on_proc(folder):
            return os.readlink(b"", dir_fd=link)
        where = self.where(folder)
        if where == b"/proc":
            if name == b"self":
                return b"%d" % caller.process()
            if name == b"thread-self":
                return b"%d/task/%d" % (caller.process(), caller.thread)
            return os.readlink(b"", dir_fd=link)
        if not _owns(caller, where):
            raise Refusal(EACCES)
        return handles.keep(file_calls.openat(folder, name, O_PATH, 0))

    def follow(self, caller: Caller, place: Place, handles: Handles) -> tuple[Place, int]:
        """The place that links at the end lead to, and a handle of the file there.

        The handle is an errno below zero if there is none: then the place is where it would be.
        """
        for _ in range(MOST_LINKS):
            found = file_calls.openat(place.folder, place.name, O_PATH | O_NOFOLLOW, 0)
            if found < 0:
                return place, found
            handles.keep(found)
            if not stat.S_ISLNK(os.fstat(found).st_mode):
                return place, found
            text = self._link(caller, place.folder, place.name, found, handles)
            if isinstance(text, int):
                return place, text
            place = self.place_from(caller, place.folder, text, handles)
            if not place.plain:
                return place, handles.keep(file_calls.openat(place.folder, place.name, O_PATH, 0))
        raise Refusal(ELOOP)


def _owns(caller: Caller, where: bytes) -> bool:
    """Whether a folder of /proc is about the caller's own process."""
    own = b"/proc/%d" % caller.process()
    return where == own or where.startswith(own + b"/")


def _split(path: bytes) -> tuple[bytes, bytes]:
    """The folder's path (empty: where it begins) and the last component with the slashes after
    it.
    """
    plain = path.rstrip(b"/")
    if not plain:
        return path[:1], path[:1]
    end = plain.rfind(b"/") + 1
    return path[:end], path[end:]
