"""Landlock: a process gives up, for itself and all it starts, whatever it was not granted here. For
good.

Rights are words, so that a plan can be made without a kernel (`landlock_rules.py`); what a word
means depends on the version (ABI) that the kernel speaks:

    1  the rights on files below      2  `move` between folders (before, that was always refused)
    3  truncating belongs to `write`  4  TCP                        5  ioctl on devices belongs to `device`
    6  signals and abstract sockets   7  what is written to the audit log

What no version knows: changing modes, owners, times and attributes; looking at a file's size or at
whether it exists; connecting to a socket that has a path. What a capability overrules: CAP_PERFMON
and CAP_SYS_ADMIN read the memory of other processes in spite of it, so capabilities are given up as
well. Sources: `linux/landlock.h`, landlock(7).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from errno import ENOSYS, EOPNOTSUPP

from . import system_calls
from .libc import library

NEWEST = 7

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (
    1 << bit for bit in range(6, 13)
)
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

WORDS = {
    "execute": EXECUTE,
    "read": READ_FILE,
    "list": READ_DIR,
    "write": WRITE_FILE | TRUNCATE,
    "create": MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM,
    "remove": REMOVE_DIR | REMOVE_FILE,
    "move": REFER,
    "device": IOCTL_DEV,
}
"""What may be granted. Making device nodes is in no word."""

LOOK = ("read", "list", "execute")
ALL = tuple(WORDS)

_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that make sense for a file; the kernel refuses the others for one."""

_SINCE = ((1, (1 << 13) - 1), (2, REFER), (3, TRUNCATE), (5, IOCTL_DEV))
_TCP = 0b11  # bind, connect
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_QUIET = 0b1  # refusals of this very program are not written to the audit log

_VERSION = 1
_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

Granted = tuple[str, tuple[str, ...]]
"""An absolute path and words: for a folder they hold for all below it."""


class Unavailable(Exception):
    """Landlock could not be applied. Says why."""


class Spec:
    """What is granted. Everything else on files is refused.

    `abi`: speak as if the kernel knew no more than this version. `tcp`: TCP may be used. `signals`,
    `abstract_sockets`: processes and abstract sockets outside may be reached. `quiet`: refusals are
    kept out of the audit log. `files`: False leaves files as they are (but for device nodes:
    something must be refused), within what was given up before.
    """

    __slots__ = ("abi", "abstract_sockets", "files", "granted", "quiet", "signals", "tcp")

    def __init__(
        self,
        granted: Iterable[Granted],
        *,
        abi: int = NEWEST,
        tcp: bool = False,
        signals: bool = False,
        abstract_sockets: bool = False,
        quiet: bool = False,
        files: bool = True,
    ) -> None:
        self.files = files
        self.granted = tuple(granted)
        self.abi = abi
        self.tcp = tcp
        self.signals = signals
        self.abstract_sockets = abstract_sockets
        self.quiet = quiet


def handled(abi: int) -> int:
    """All rights on files that this version can refuse."""
    return sum(bits for since, bits in _SINCE if abi >= since)


def access(words: Iterable[str], abi: int, *, folder: bool = True) -> int:
    """Words as bits of this version."""
    bits = 0
    for word in words:
        bits |= WORDS[word]
    return bits & handled(abi) & (-1 if folder else _OF_FILES)


def ruleset(spec: Spec, abi: int) -> bytes:
    """`struct landlock_ruleset_attr`, as long as this version has it."""
    attributes = struct.pack("=Q", handled(abi) if spec.files else MAKE_CHAR | MAKE_BLOCK)
    if abi >= 4:
        attributes += struct.pack("=Q", 0 if spec.tcp else _TCP)
    if abi >= 6:
        scoped = (0 if spec.signals else _SIGNALS) | (
            0 if spec.abstract_sockets else _ABSTRACT_SOCKETS
        )
        attributes += struct.pack("=Q", scoped)
    return attributes


def abi() -> int:
    """The version that this kernel speaks, 0 if it has no Landlock or it is switched off."""
    if sys.platform != "linux":
        return 0
    try:
        return _system_call("landlock_create_ruleset", None, 0, _VERSION)
    except (OSError, system_calls.UnknownMachine):
        return 0


def restrict(spec: Spec) -> int:
    """Give up all but what is granted; the answer is the version that was used.

    Paths that do not exist grant nothing, nor do symbolic links: they would grant what they lead
    to. `Unavailable` if nothing could be given up.
    """
    version = min(abi(), spec.abi, NEWEST)
    if version < 1:
        raise Unavailable("this kernel has no Landlock, or it is switched off")
    attributes = ruleset(spec, version)
    try:
        rules = _system_call("landlock_create_ruleset", attributes, len(attributes), 0)
        try:
            for path, words in spec.granted:
                _grant(rules, path, words, version)
            _no_new_privileges()
            flags = _QUIET if spec.quiet and version >= 7 else 0
            _system_call("landlock_restrict_self", rules, flags)
        finally:
            os.close(rules)
    except OSError as error:
        raise Unavailable(
            f"Landlock could not be applied: {error.strerror} ({error.filename})"
        ) from error
    return version


def _grant(rules: int, path: str, words: tuple[str, ...], version: int) -> None:
    try:
        found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        kind = stat.S_IFMT(os.fstat(found).st_mode)
        bits = access(words, version, folder=kind == stat.S_IFDIR)
        if bits and kind != stat.S_IFLNK:
            _system_call("landlock_add_rule", rules, _BENEATH, struct.pack("=Qi", bits, found), 0)
    finally:
        os.close(found)


def _no_new_privileges() -> None:
    words = (ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if library().prctl(_PR_SET_NO_NEW_PRIVS, *words):
        raise OSError(ctypes.get_errno(), "no_new_privs could not be set", "prctl")


def _system_call(name: str, *arguments: int | bytes | None) -> int:
    number = system_calls.number(name)
    if number is None:
        raise OSError(ENOSYS, os.strerror(ENOSYS), name)
    words = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    result = library().syscall(ctypes.c_long(number), *words)
    if result < 0:
        error = ctypes.get_errno()
        # Compiled in and switched off at boot reads differently from not there.
        raise OSError(error, "switched off" if error == EOPNOTSUPP else os.strerror(error), name)
    return result
