"""Landlock: a process irrevocably gives up all access that is not granted here.

It holds for everything that it starts. Rights have names, so that a plan can be made without a
kernel (`landlock_rules.py`); what a name means depends on the version (ABI) that the kernel
supports:

    1  the rights on files below      2  `move` between folders (before, it was always refused)
    3  truncating belongs to `write`  4  TCP
    5  ioctl on devices: `device`     6  signals and abstract sockets
    7  what is written to the audit log

What no version restricts: changing modes, owners, times and attributes; looking at a file's size or
at whether it exists; connecting to a socket that has a path. What a capability overrides:
CAP_PERFMON and CAP_SYS_ADMIN read the memory of other processes in spite of it, so capabilities are
given up as well. Sources: `linux/landlock.h`, landlock(7).
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

RIGHTS = {
    "execute": EXECUTE,
    "read": READ_FILE,
    "list": READ_DIR,
    "write": WRITE_FILE | TRUNCATE,
    "create": MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM,
    "remove": REMOVE_DIR | REMOVE_FILE,
    "move": REFER,
    "device": IOCTL_DEV,
}
"""The rights that may be granted. Making device nodes is in none of them."""

READ_RIGHTS = ("read", "list", "execute")
ALL_RIGHTS = tuple(RIGHTS)

_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that make sense for a file; the kernel refuses the others for one."""

_HANDLED_SINCE = ((1, (1 << 13) - 1), (2, REFER), (3, TRUNCATE), (5, IOCTL_DEV))
_TCP = 0b11  # bind, connect
_ABSTRACT_SOCKETS = 1
_SIGNALS = 2
_QUIET = 0b1  # refusals of this very program are not written to the audit log

_VERSION = 1
_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

PathRule = tuple[str, tuple[str, ...]]
"""An absolute path and rights. For a folder they hold for everything below it."""


class LandlockUnavailable(Exception):
    """Landlock could not be applied. The text says why."""


class Ruleset:
    """What is granted. Every other access to files is refused.

    `abi`: use no more than this version. `tcp`: TCP may be used. `signals`, `abstract_sockets`:
    processes and abstract sockets outside may be reached. `quiet`: refusals are kept out of the
    audit log. `files`: False leaves the access to files as it is, within what was given up before
    (except for making device nodes: something must be refused).
    """

    __slots__ = ("abi", "abstract_sockets", "files", "quiet", "rules", "signals", "tcp")

    def __init__(
        self,
        rules: Iterable[PathRule],
        *,
        abi: int = NEWEST,
        tcp: bool = False,
        signals: bool = False,
        abstract_sockets: bool = False,
        quiet: bool = False,
        files: bool = True,
    ) -> None:
        self.files = files
        self.rules = tuple(rules)
        self.abi = abi
        self.tcp = tcp
        self.signals = signals
        self.abstract_sockets = abstract_sockets
        self.quiet = quiet


def handled_rights(abi: int) -> int:
    """Return all rights on files that this version can refuse."""
    return sum(bits for since, bits in _HANDLED_SINCE if abi >= since)


def rights_mask(rights: Iterable[str], abi: int, *, folder: bool = True) -> int:
    """Return rights as the bits of this version."""
    bits = 0
    for right in rights:
        bits |= RIGHTS[right]
    return bits & handled_rights(abi) & (-1 if folder else _FILE_RIGHTS)


def pack_ruleset(spec: Ruleset, abi: int) -> bytes:
    """Return `struct landlock_ruleset_attr`, as long as this version has it."""
    attributes = struct.pack("=Q", handled_rights(abi) if spec.files else MAKE_CHAR | MAKE_BLOCK)
    if abi >= 4:
        attributes += struct.pack("=Q", 0 if spec.tcp else _TCP)
    if abi >= 6:
        scoped = 0
        if not spec.signals:
            scoped |= _SIGNALS
        if not spec.abstract_sockets:
            scoped |= _ABSTRACT_SOCKETS
        attributes += struct.pack("=Q", scoped)
    return attributes


def kernel_abi() -> int:
    """Return the version that this kernel supports, 0 if Landlock is missing or switched off."""
    if sys.platform != "linux":
        return 0
    try:
        return _system_call("landlock_create_ruleset", None, 0, _VERSION)
    except (OSError, system_calls.UnknownMachine):
        return 0


def restrict(spec: Ruleset) -> int:
    """Give up everything that is not granted. Returns the version that was used.

    Paths that do not exist grant nothing, nor do symbolic links: they would grant what they lead
    to.

    Raises:
        LandlockUnavailable: Nothing could be given up.
    """
    version = min(kernel_abi(), spec.abi, NEWEST)
    if version < 1:
        raise LandlockUnavailable("this kernel has no Landlock, or it is switched off")
    attributes = pack_ruleset(spec, version)
    try:
        rules = _system_call("landlock_create_ruleset", attributes, len(attributes), 0)
        try:
            for path, rights in spec.rules:
                _grant(rules, path, rights, version)
            _no_new_privileges()
            flags = _QUIET if spec.quiet and version >= 7 else 0
            _system_call("landlock_restrict_self", rules, flags)
        finally:
            os.close(rules)
    except OSError as error:
        raise LandlockUnavailable(
            f"Landlock could not be applied: {error.strerror} ({error.filename})"
        ) from error
    return version


def _grant(rules: int, path: str, rights: tuple[str, ...], version: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        bits = rights_mask(rights, version, folder=kind == stat.S_IFDIR)
        if bits and kind != stat.S_IFLNK:
            _system_call(
                "landlock_add_rule", rules, _BENEATH, struct.pack("=Qi", bits, descriptor), 0
            )
    finally:
        os.close(descriptor)


def _no_new_privileges() -> None:
    arguments = (ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if library().prctl(_PR_SET_NO_NEW_PRIVS, *arguments):
        raise OSError(ctypes.get_errno(), "no_new_privs could not be set", "prctl")


def _system_call(name: str, *arguments: int | bytes | None) -> int:
    number = system_calls.number(name)
    if number is None:
        raise OSError(ENOSYS, os.strerror(ENOSYS), name)
    encoded = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    result = library().syscall(ctypes.c_long(number), *encoded)
    if result < 0:
        error = ctypes.get_errno()
        # "Compiled in, but switched off at boot" has an error number of its own.
        reason = "switched off" if error == EOPNOTSUPP else os.strerror(error)
        raise OSError(error, reason, name)
    return result
