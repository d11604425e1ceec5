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

from ferrule.sandbox.command import Wall
from ferrule.sandbox.inside.kernel.landlock import LOOK, Granted, abi
from ferrule.sandbox.inside.kernel.landlock_rules import devices
from ferrule.sandbox.view.layout import SYSTEM

_READ = ("read", "list")
_WRITE = (*_READ, "write", "create", "remove", "move")
_MINIMUM_ABI = 2
"""The version of Landlock that allows moving files between folders, which git does."""
_CERTIFICATES = ("/var/lib/ca-certificates",)
_PARTS = ("lib", "lib64", "libexec", "share")


def wall(program: str, folder: Path, *, writes: bool) -> Wall | None:
    """Return the wall around a git that runs in the root of a workspace; None if there is none.

    Nothing in the workspace may be run as a program.

    Args:
        folder: The `GIT_DIR` of git.
    """
    if abi() < _MINIMUM_ABI:
        return None
    words = _WRITE if writes else _READ
    return Wall(
        (
            (".", words),
            (str(folder), words),
            ("/proc", _READ),
            ("/sys/devices/system/cpu", _READ),
            *devices(),
            *((f"/{name}", LOOK) for name in SYSTEM),
            *_installed(program),
        )
    )


def for_reading(outer: Wall | None, folder: Path) -> Wall | None:
    """Extend a wall by the shadow of another repository of the workspace."""
    return _extend(outer, [(str(folder), _READ)], tcp=False)


def for_web(outer: Wall | None, environment: Mapping[str, str]) -> Wall | None:
    """Extend a wall for fetching by HTTPS: TCP, certificates, name resolution."""
    named = [environment[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in environment]
    files = [(path, _READ) for path in (*_CERTIFICATES, *named)]
    return _extend(outer, [*files, *_name_resolution()], tcp=True)


def for_ssh(outer: Wall | None, program: str) -> Wall | None:
    """Extend a wall for fetching by SSH: TCP, the person's keys, known hosts, name resolution."""
    keys = os.path.expanduser("~/.ssh")  # noqa: PTH111  a path as text, like the others
    return _extend(outer, [(keys, _READ), *_installed(program), *_name_resolution()], tcp=True)


def _extend(outer: Wall | None, more: Iterable[Granted], *, tcp: bool) -> Wall | None:
    if outer is None:
        return None
    return replace(outer, granted=(*outer.granted, *more), tcp=tcp)


def _installed(program: str) -> list[Granted]:
    """Return a program outside of the system folders: its file, and the folders of its parts."""
    real = Path(program).resolve()
    if real.parts[1] in SYSTEM:
        return []
    prefix = real.parent.parent
    return [(str(real), LOOK), *((str(prefix / part), LOOK) for part in _PARTS)]


def _name_resolution() -> list[Granted]:
    """Return the folder of `/etc/resolv.conf`, which is a link on many machines."""
    real = Path("/etc/resolv.conf").resolve()
    return [(str(real.parent), _READ)]
