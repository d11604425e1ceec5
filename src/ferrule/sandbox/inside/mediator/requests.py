"""One call of a command, and what all its calls share.

Shared are the rules, the lock, what was refused and what was made.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, ENOENT, EROFS

from . import raw_calls
from .caller_process import Caller, CallerGone, CallerMemory, CallRefused
from .file_identity import identify
from .name_rules import FREE, REFUSED, SECRET, NameRules
from .notifications import PendingCall, SeccompListener
from .path_resolution import Handles, NameResolver, ResolvedName
from .withheld_files import WithheldFiles

MAX_REMEMBERED = 1000
_OUT_OF_VIEW = (-ENOENT, -EROFS)
"""Errors that a call which creates something has where the view ends, or is read-only.

Also those of a folder that exists nowhere: whoever reads the report looks at the machine.
"""
_MEMORY = b"/memfd:"
"""What the path of memory begins with. A file that has names is something else."""
_COUNT = 8
"""Bytes of the count of names that running commands made and that must be hidden."""


class NeedsExclusive(Exception):
    """A call is judged by what a folder contains: nobody may create a name there meanwhile."""


class CreatedFile:
    """A file that the command created and that is hidden from commands of others.

    It has a secret name, or is a socket. `identity` as of `file_identity`. `name` is relative to
    its root.
    """

    __slots__ = ("identity", "name")

    def __init__(self, identity: str, name: str) -> None:
        self.identity = identity
        self.name = name


class MediatorContext:
    """What the calls of one command share.

    `lock` is a descriptor of a file that all mediators of a workspace share and no command sees.
    Creating a name holds it shared, moving a folder exclusively: otherwise one command could check
    a folder's content while another adds to it.
    """

    def __init__(self, listener: SeccompListener, rules: NameRules, lock: int | None) -> None:
        self.listener = listener
        self.rules = rules
        self.withheld = WithheldFiles()
        self.memory = CallerMemory()
        self.resolver = NameResolver(rules.roots_off_proc)
        self.refused_names: list[str] = []
        self.denied_paths: dict[bytes, None] = {}
        self.created_files: list[CreatedFile] = []
        self.opener_pids: set[int] = set()
        self.own_files: set[str] = set(rules.own_files)
        self._quota = rules.name_quota
        self._counted = 0
        # Not opened again, which Landlock may refuse: these locks belong to processes.
        self._lock = None if lock is None else os.dup(lock)
        self.is_exclusive = False
        self._umask = os.umask(0)
        os.umask(self._umask)

    @contextmanager
    def lock_exclusively(self) -> Generator[None]:
        """Let no mediator create a name meanwhile. What was looked up before may have changed."""
        self.lock(fcntl.LOCK_EX)
        self.is_exclusive = True
        try:
            yield
        finally:
            self.is_exclusive = False
            self.lock(fcntl.LOCK_SH)

    def lock(self, how: int) -> None:
        if self._lock is None:
            return
        if how == fcntl.LOCK_EX:
            # Two that wait for each other to give up the shared one would wait for ever.
            fcntl.lockf(self._lock, fcntl.LOCK_UN, 1, _COUNT)
        fcntl.lockf(self._lock, how, 1, _COUNT)

    def use_umask(self, umask: int) -> None:
        """Use the caller's umask while we create for it, so that default ACLs work as they do."""
        if umask != self._umask:
            os.umask(umask)
            self._umask = umask

    def refuse(self, name: str) -> CallRefused:
        """Remember a refused name. Returns the refusal to raise."""
        shown = self.rules.show(name)
        if shown not in self.refused_names and len(self.refused_names) < MAX_REMEMBERED:
            self.refused_names.append(shown)
        return CallRefused(EACCES)

    def note_created(self, identity: str, name: str) -> None:
        if identity:
            self.own_files.add(identity)
            self.created_files.append(CreatedFile(identity, name))

    def count_names(self, count: int = 1) -> None:
        """Count names that must be hidden from commands of others. Refused if there are too many.

        Counted are the names that were there when the command began, and those that commands made
        since that run at the same time: the latter in the file that all their mediators share,
        until `release_names`.
        """
        used = self._change_used(count)
        if used > self._quota:
            self._change_used(-count)
            raise CallRefused(EDQUOT)
        self._counted += count

    def release_names(self) -> None:
        """Give back what was counted. The command is over: the next scan sees what it left."""
        self._change_used(-self._counted)
        self._counted = 0

    def _change_used(self, count: int) -> int:
        if self._lock is None:
            return self._counted + count
        fcntl.lockf(self._lock, fcntl.LOCK_EX, _COUNT)
        try:
            used = int.from_bytes(os.pread(self._lock, _COUNT, 0), "little") + count
            os.pwrite(self._lock, max(used, 0).to_bytes(_COUNT, "little"), 0)
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN, _COUNT)
        return used


class CallRequest:
    """One call of one caller."""

    __slots__ = ("_last", "_texts", "call", "caller", "context", "handles")

    def __init__(self, context: MediatorContext, call: PendingCall, caller: Caller) -> None:
        self._last: tuple[int, bytes] | None = None
        self.context = context
        self.call = call
        self.caller = caller
        self.handles = Handles()
        self._texts: dict[int, bytes] = {}

    def read_string(self, index: int) -> bytes:
        """Return the string that an argument points to.

        It is read once: the caller may change it at any time.
        """
        if index not in self._texts:
            self._texts[index] = self.context.memory.read_string(
                self.call.thread, self.call.arguments[index]
            )
        return self._texts[index]

    def note_denied(self, result: int) -> None:
        """Note the last name that the call was about, if its error may be the view's."""
        denied = self.context.denied_paths
        if result not in _OUT_OF_VIEW or self._last is None or len(denied) >= MAX_REMEMBERED:
            return
        base, path = self._last
        if not path.startswith((b"/", b"..")) and result == -ENOENT:
            return  # below the working folder, which is in view
        try:
            folder = b"" if path.startswith(b"/") else self._folder_of(base)
        except (CallerGone, CallRefused, OSError):
            return
        denied[os.path.normpath(b"/" + (folder + b"/" + path).lstrip(b"/"))] = None

    def _folder_of(self, base: int) -> bytes:
        handles = Handles()
        try:
            if base == raw_calls.AT_FDCWD:
                return self.context.resolver.path_of(handles.working_folder(self.caller))
            descriptor = handles.keep(self.caller.open_descriptor(base))
            return self.context.resolver.path_of(descriptor)
        finally:
            handles.close()

    def resolve(self, base: int, path: bytes) -> ResolvedName:
        self._last = base, path
        path = self.context.withheld.redirect(path)
        found = self.context.resolver.resolve(self.caller, base, path, self.handles)
        self.context.withheld.check_name(found.path, change=False)
        return found

    def check_still_waiting(self) -> None:
        """Raise if the caller was killed: then what was read may not be its own.

        Asked last before anything happens.
        """
        if not self.context.listener.is_waiting(self.call):
            raise CallerGone

    def name_of(self, place: ResolvedName) -> str | None:
        """Return the name relative to a root.

        None if the place is below none, or no call can create it.

        Raises:
            NeedsExclusive: It may make its folder a repository, as others of its names may.
        """
        plain = place.plain
        if not plain or place.on_proc:
            return None
        if not self.context.is_exclusive and self.context.rules.may_become(place.path, plain):
            raise NeedsExclusive
        return self.context.rules.relative(place.path, plain)

    def check_creation(
        self, place: ResolvedName, *, folder: bool = False, room: bool = True
    ) -> str | None:
        """Check a name that is to be created. Returns it if that is to be reported.

        Refused if the rules forbid it. `room`: it is not there yet, and so counts.
        """
        self.context.withheld.check_name(place.path, place.plain)
        name = self.name_of(place)
        if name is None:
            return None
        verdict = self.context.rules.decide(name, folder=folder)
        if verdict == REFUSED:
            raise self.context.refuse(name)
        if verdict != SECRET:
            return None
        if room:
            self.context.count_names()
        return name

    def check_link(self, name: str | None) -> None:
        """Refuse a name, relative to a root, that a symbolic link may not have."""
        if name is not None and self.context.rules.forbids_link(name):
            raise self.context.refuse(name)

    def check_socket_creation(self, place: ResolvedName) -> str | None:
        """Check the name of a socket, which is hidden from commands of others whatever its name."""
        secret = self.check_creation(place)
        name = self.name_of(place)
        if secret is None and name is not None:
            self.context.count_names()
        return name

    def verdict(self, name: str | None, *, folder: bool) -> int:
        return FREE if name is None else self.context.rules.decide(name, folder=folder)

    def report_created(self, place: ResolvedName, name: str | None) -> None:
        """Report what was created at a place, if `name` says that it is to be reported."""
        if name is not None:
            self.context.note_created(identify(place.folder, place.plain), name)

    def exists(self, place: ResolvedName) -> bool:
        handle = raw_calls.openat(
            place.folder, place.name, raw_calls.O_PATH | raw_calls.O_NOFOLLOW, 0
        )
        if handle >= 0:
            os.close(handle)
        return handle >= 0

    def find_place(self, handle: int) -> tuple[bytes, bytes] | None:
        """Return where a handle leads: a folder, and a name in it.

        None if it is in no folder: a pipe, a socket, memory.
        """
        try:
            path = self.context.resolver.path_of(handle)
        except CallRefused:
            return None
        if path.startswith(_MEMORY) and not os.fstat(handle).st_nlink:
            return None
        folder, _, name = path.rpartition(b"/")
        return folder or b"/", name

    def check_change(self, handle: int) -> None:
        """Refuse a file that is withheld or may only be read, by where its handle leads.

        For all that changes a file, or gives it another name.
        """
        if not self.context.withheld:
            return
        place = self.find_place(handle)
        if place is not None:
            self.context.withheld.check_name(*place)
        self.context.withheld.check_file(os.fstat(handle))

    def open_replacement(self, handle: int, status: os.stat_result, flags: int) -> int | None:
        """Return what is opened in place of the file that a handle leads to (`withheld_files`)."""
        if not self.context.withheld:
            return None
        place = self.find_place(handle)
        if place is None:
            return None
        return self.context.withheld.open_replacement(*place, status, flags)

    def is_own(self, folder: int, name: bytes = b"") -> bool:
        """Return whether commands of the session made a file.

        It is the one of this name, or the one that a descriptor holds.
        """
        return bool(self.context.own_files) and identify(folder, name) in self.context.own_files


def is_folder(status: os.stat_result) -> bool:
    """Return whether a status is that of a folder."""
    return stat.S_ISDIR(status.st_mode)
