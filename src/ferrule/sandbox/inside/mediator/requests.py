"""One call of a command, and what all its calls share.

Shared are the rules, the lock, what was refused and what was made.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from errno import EACCES, EDQUOT

from . import file_calls
from .callers import Caller, Gone, Memory, Refusal
from .file_identity import identify
from .name_rules import FREE, REFUSED, SECRET, Rules
from .notifications import Asked, Listener
from .path_resolution import Handles, Place, Resolver
from .withheld_files import Covers

MOST_REPORTED = 1000
_COUNT = 8
"""Bytes of the count of names that running commands made and that must be hidden."""


class Made:
    """A file that the command created and that is hidden from commands of others.

    It has a secret name, or is a socket. `identity` as of `file_identity`. `name` is relative to
    its root.
    """

    __slots__ = ("identity", "name")

    def __init__(self, identity: str, name: str) -> None:
        self.identity = identity
        self.name = name


class Ground:
    """What the calls of one command share.

    `lock` is a descriptor of a file that all mediators of a workspace share and no command sees.
    Creating a name holds it shared, moving a folder exclusively: otherwise one command could check
    a folder's content while another adds to it.
    """

    def __init__(self, listener: Listener, rules: Rules, lock: int | None) -> None:
        self.listener = listener
        self.rules = rules
        self.covers = Covers()
        self.memory = Memory()
        self.resolver = Resolver(rules.usual)
        self.refused: list[str] = []
        self.made: list[Made] = []
        self.openers: set[int] = set()
        self.own: set[str] = set(rules.own)
        self._quota = rules.room
        self._counted = 0
        # Opened again: locks belong to an open file, and forks of one server share inherited ones.
        self._lock = (
            None if lock is None else os.open(f"/proc/self/fd/{lock}", os.O_RDWR | os.O_CLOEXEC)
        )
        self._umask = os.umask(0)
        os.umask(self._umask)

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """Let no mediator create a name meanwhile. What was looked up before may have changed."""
        self.hold(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self.hold(fcntl.LOCK_SH)

    def hold(self, how: int) -> None:
        if self._lock is not None:
            fcntl.flock(self._lock, how)

    def use_umask(self, umask: int) -> None:
        """Use the caller's umask while we create for it, so that default ACLs work as they do."""
        if umask != self._umask:
            os.umask(umask)
            self._umask = umask

    def refuse(self, name: str) -> Refusal:
        """Remember a refused name. Returns the refusal to raise."""
        if name not in self.refused and len(self.refused) < MOST_REPORTED:
            self.refused.append(name)
        return Refusal(EACCES)

    def note_made(self, identity: str, name: str) -> None:
        if identity:
            self.own.add(identity)
            self.made.append(Made(identity, name))

    def take_room(self, count: int = 1) -> None:
        """Count names that must be hidden from commands of others. Refused if there are too many.

        Counted are the names that were there when the command began, and those that commands made
        since that run at the same time: the latter in the file that all their mediators share,
        until `leave_room`.
        """
        used = self._change_used(count)
        if used > self._quota:
            self._change_used(-count)
            raise Refusal(EDQUOT)
        self._counted += count

    def leave_room(self) -> None:
        """Give back what was counted. The command is over: the next scan sees what it left."""
        self._change_used(-self._counted)
        self._counted = 0

    def _change_used(self, count: int) -> int:
        if self._lock is None:
            return self._counted + count
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            used = int.from_bytes(os.pread(self._lock, _COUNT, 0), "little") + count
            os.pwrite(self._lock, max(used, 0).to_bytes(_COUNT, "little"), 0)
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)
        return used


class Request:
    """One call of one caller."""

    __slots__ = ("_texts", "call", "caller", "context", "handles")

    def __init__(self, context: Ground, call: Asked, caller: Caller) -> None:
        self.context = context
        self.call = call
        self.caller = caller
        self.handles = Handles()
        self._texts: dict[int, bytes] = {}

    def text(self, index: int) -> bytes:
        """Return the string that an argument points to.

        It is read once: the caller may change it at any time.
        """
        if index not in self._texts:
            self._texts[index] = self.context.memory.text(
                self.call.thread, self.call.arguments[index]
            )
        return self._texts[index]

    def place(self, base: int, path: bytes) -> Place:
        path = self.context.covers.instead(path)
        found = self.context.resolver.place(self.caller, base, path, self.handles)
        self.context.covers.enter(found.path, change=False)
        return found

    def still_waits(self) -> None:
        """Raise if the caller was killed: then what was read may not be its own.

        Asked last before anything happens.
        """
        if not self.context.listener.waits(self.call):
            raise Gone

    def name_of(self, place: Place) -> str | None:
        """Return the name relative to a root.

        None if the place is below none, or no call can create it.
        """
        plain = place.plain
        if not plain or place.on_proc:
            return None
        return self.context.rules.relative(place.path, plain)

    def check(self, place: Place, *, folder: bool = False, room: bool = True) -> str | None:
        """Check a name that is to be created. Returns it if that is to be reported.

        Refused if the rules forbid it. `room`: it is not there yet, and so counts.
        """
        self.context.covers.enter(place.path, place.plain)
        name = self.name_of(place)
        if name is None:
            return None
        verdict = self.context.rules.decide(name, folder=folder)
        if verdict == REFUSED:
            raise self.context.refuse(name)
        if verdict != SECRET:
            return None
        if room:
            self.context.take_room()
        return name

    def check_socket(self, place: Place) -> str | None:
        """Check the name of a socket, which is hidden from commands of others whatever its name."""
        secret = self.check(place)
        name = self.name_of(place)
        if secret is None and name is not None:
            self.context.take_room()
        return name

    def verdict(self, name: str | None, *, folder: bool) -> int:
        return FREE if name is None else self.context.rules.decide(name, folder=folder)

    def made(self, place: Place, name: str | None) -> None:
        """Report what was created at a place, if `name` says that it is to be reported."""
        if name is not None:
            self.context.note_made(identify(place.folder, place.plain), name)

    def exists(self, place: Place) -> bool:
        handle = file_calls.openat(
            place.folder, place.name, file_calls.O_PATH | file_calls.O_NOFOLLOW, 0
        )
        if handle >= 0:
            os.close(handle)
        return handle >= 0

    def seen(self, place: Place, handle: int, status: os.stat_result, flags: int) -> int | None:
        """Return what is opened in place of a file, as `withheld_files` has it.

        That works also for a file named by one of the caller's descriptors (`/proc/self/fd/7`).
        """
        folder = place.path
        name = place.plain
        if place.on_proc and self.context.covers:
            try:
                folder, _, name = self.context.resolver.where(handle).rpartition(b"/")
            except Refusal:
                return None  # a pipe, a socket: it is in no folder
        return self.context.covers.seen(folder or b"/", name, status, flags)

    def is_own(self, folder: int, name: bytes = b"") -> bool:
        """Return whether commands of the session made a file.

        It is the one of this name, or the one that a descriptor holds.
        """
        return bool(self.context.own) and identify(folder, name) in self.context.own


def is_folder(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode)
