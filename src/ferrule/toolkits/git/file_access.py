"""The files that git may use, enforced by the kernel: the workspace's, its own and the system's.

What is in `.git` is written by commands, and git follows every link there: a folder of objects, one
pack or one branch may lead to another repository, whose contents git would print.
`readable_repository` looks for links first and names those it found; but a command that runs at the
same time can plant one after that check. So git, and everything it starts, runs behind a wall
(Landlock): a file counts by where it is, whatever name or link led to it, and everything outside of
the workspace is refused.

Not covered by the wall: hard links, since each name of a file is as good as the others (a confined
command can make none to a file outside; a local clone is made of them); repositories in folders of
the system that everybody may read. If the kernel has no Landlock of version 2 (Linux 5.19), the
earlier check is the only protection.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ferrule.sandbox.command import LandlockAccess
from ferrule.sandbox.inside.kernel.landlock import READ_RIGHTS, PathRule, kernel_abi
from ferrule.sandbox.inside.kernel.landlock_rules import device_rules
from ferrule.sandbox.view.layout import SYSTEM

_READ = ("read", "list")
_WRITE = (*_READ, "write", "create", "remove", "move")
_MINIMUM_ABI = 2
"""The version of Landlock that allows moving files between folders, which git does."""
_CERTIFICATES = ("/var/lib/ca-certificates",)
_PARTS = ("lib", "lib64", "libexec", "share")


def make_wall(
    program: str, folder: Path, *, outside: Iterable[str] = (), writes: bool
) -> LandlockAccess | None:
    """Return the wall around a git that runs in the root of a workspace; None if there is none.

    Nothing in the workspace may be run as a program.

    Args:
        program: Path of git.
        folder: The `GIT_DIR` of git.
        outside: Folders of the repository of the workspace that lie outside of it.
        writes: Whether git may change the workspace and its folder.
    """
    if kernel_abi() < _MINIMUM_ABI:
        return None
    words = _WRITE if writes else _READ
    return LandlockAccess(
        (
            (".", words),
            (str(folder), words),
            *((place, words) for place in outside),
            ("/proc", _READ),
            ("/sys/devices/system/cpu", _READ),
            *device_rules(),
            *((f"/{name}", READ_RIGHTS) for name in SYSTEM),
            *_find_installation(program),
        )
    )


def extend_for_reading(outer: LandlockAccess | None, folder: Path) -> LandlockAccess | None:
    """Extend a wall by the shadow of another repository of the workspace."""
    return _extend(outer, [(str(folder), _READ)], tcp=False)


def extend_for_web(
    outer: LandlockAccess | None, environment: Mapping[str, str]
) -> LandlockAccess | None:
    """Extend a wall for fetching by HTTPS: TCP, certificates, name resolution."""
    named = [environment[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in environment]
    files = [(path, _READ) for path in (*_CERTIFICATES, *named)]
    return _extend(outer, [*files, *_name_resolution()], tcp=True)


def extend_for_ssh(outer: LandlockAccess | None, program: str) -> LandlockAccess | None:
    """Extend a wall for fetching by SSH: TCP, the person's keys, known hosts, name resolution."""
    keys = os.path.expanduser("~/.ssh")  # noqa: PTH111  a path as text, like the others
    return _extend(
        outer, [(keys, _READ), *_find_installation(program), *_name_resolution()], tcp=True
    )


def _extend(
    outer: LandlockAccess | None, more: Iterable[PathRule], *, tcp: bool
) -> LandlockAccess | None:
    if outer is None:
        return None
    return replace(outer, rules=(*outer.rules, *more), tcp=tcp)


def _find_installation(program: str) -> list[PathRule]:
    """Return a program outside of the system folders: its file, and the folders of its parts."""
    real = Path(program).resolve()
    if real.parts[1] in SYSTEM:
        return []
    prefix = real.parent.parent
    return [(str(real), READ_RIGHTS), *((str(prefix / part), READ_RIGHTS) for part in _PARTS)]


def _name_resolution() -> list[PathRule]:
    """Return the folder of `/etc/resolv.conf`, which is a link on many machines."""
    real = Path("/etc/resolv.conf").resolve()
    return [(str(real.parent), _READ)]
