"""Namespaces, capabilities and limits: what the processes of a sandbox are cut off from."""

from __future__ import annotations

import contextlib
import os
import resource
import struct

from .libc import call_libc

NEW_MOUNTS = 0x00020000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
_NEW_SHARED = 0x00020000 | 0x40000000 | 0x08000000 | 0x04000000
"""CLONE_NEW{NS,NET,IPC,UTS}: what the commands of a session share."""
_NEW_OWN = 0x00020000 | 0x02000000
"""CLONE_NEW{NS,CGROUP}: what each command has of its own, besides its processes."""

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_CAP_AMBIENT = 47
_PR_SET_NO_NEW_PRIVS = 38
_AMBIENT_CLEAR_ALL = 4
_VERSION_3 = struct.pack("=Ii", 0x20080522, 0)
_SECURE = 0b11101111
"""Every secure bit of capabilities(7) but KEEP_CAPS, locked: being user 0 gives no rights."""


def unshare_processes(user: bool) -> None:
    """Give what is forked from here on process ids of its own.

    With `user` it also has the rights of a user namespace.
    """
    if user:
        unshare_user()
    call_libc("unshare", NEW_PID)


def unshare_user() -> None:
    """Enter a user namespace of our own, with our user and group ids and all rights in it."""
    uid, gid = os.geteuid(), os.getegid()
    call_libc("unshare", NEW_USER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def lock_mounts() -> None:
    """Copy all mounts so that each is locked to what it lies on.

    The kernel locks mounts that are copied for a less privileged user namespace than the one that
    made them: none can be taken off its place, not even when the copy's last process ends. Whoever
    still holds a folder then sees what lies over the names in it. So this is to be called in
    another user namespace than the one that the mounts were made in.
    """
    call_libc("unshare", NEW_MOUNTS)


def unshare_session() -> None:
    """Enter new mount, network, IPC and UTS namespaces, for a session."""
    call_libc("unshare", _NEW_SHARED)


def unshare_command() -> None:
    """Enter a copy of the mounts, and a cgroup namespace. For pid 1 of a command."""
    call_libc("unshare", _NEW_OWN)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def disable_dumping() -> None:
    """Close this process's entries in /proc (memory, descriptors, links) to its user; no ptrace."""
    call_libc("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def drop_bounding_set() -> None:
    """Deny capabilities to all programs that are executed later, whoever owns them.

    This process keeps what it has.
    """
    for capability in range(64):
        try:
            call_libc("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError:
            break  # beyond the last one


def deny_new_rights() -> None:
    """Prevent that anything executed from here on gains rights.

    Being user 0 gives none, nor does the owner of a program.
    """
    # Who may not set them has few capabilities, and gains none below.
    with contextlib.suppress(PermissionError):
        call_libc("prctl", _PR_SET_SECUREBITS, _SECURE, 0, 0, 0)
    with contextlib.suppress(OSError):  # before Linux 4.3 there are none
        call_libc("prctl", _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    call_libc("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_capabilities() -> None:
    """Irrevocably drop all capabilities: effective, permitted and inheritable."""
    call_libc("capset", _VERSION_3, bytes(24))


def set_resource_limits(limits: dict[str, int | None]) -> None:
    """Limit each process, by the names of the resource module (`FSIZE`). None: unchanged.

    There are no core dumps.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, value in limits.items():
        if value is None:
            continue
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        effective = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (effective, effective))
