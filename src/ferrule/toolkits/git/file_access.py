"""Which files git may use, held by the kernel: those of the workspace, its own and the system's.

What lies in `.git` is written by commands, and git follows every link there: a folder of objects,
one pack, one branch may lead to another repository, whose contents git would print.
`readable_repository` looks for links first and says which it found; but a command that runs at the
same time can plant one after that look. So git, and all that it starts, runs behind a wall
(Landlock): a file counts by where it lies, whatever name or link led to it, and all that is opened
outside of the workspace is refused.

Not held by the wall: hard links, since each name of a file is as good as the others (a confined
command can make none to a file outside; a local clone is made of them); repositories in folders of
the system that everybody may read. Where the kernel has no Landlock of version 2 (Linux 5.19), the
look before is all there is.
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
_MOVING = 2
"""The version of Landlock that lets files be moved between folders, which git does."""
_CERTIFICATES = ("/var/lib/ca-certificates",)
_PARTS = ("lib", "lib64", "libexec", "share")


def wall(program: str, folder: Path, *, writes: bool) -> Wall | None:
    """The wall around a git that runs in the root of a workspace, with `folder` as its `GIT_DIR`.
    None: this kernel has none.

    Nothing in the workspace is a program to it.
    """
    if abi() < _MOVING:
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
    """The same wall, with the shadow of another repository of the workspace in it."""
    return _opened(outer, [(str(folder), _READ)], tcp=False)


def for_web(outer: Wall | None, environment: Mapping[str, str]) -> Wall | None:
    """The same wall for fetching by HTTPS: TCP, certificates, how names are resolved."""
    named = [environment[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in environment]
    files = [(path, _READ) for path in (*_CERTIFICATES, *named)]
    return _opened(outer, [*files, *_resolving()], tcp=True)


def for_ssh(outer: Wall | None, program: str) -> Wall | None:
    """The same wall for fetching by SSH: TCP, the person's keys and known hosts, how names are
    resolved.
    """
    keys = os.path.expanduser("~/.ssh")  # noqa: PTH111  a path as text, like the others
    return _opened(outer, [(keys, _READ), *_installed(program), *_resolving()], tcp=True)


def _opened(outer: Wall | None, more: Iterable[Granted], *, tcp: bool) -> Wall | None:
    if outer is None:
        return None
    return replace(outer, granted=(*outer.granted, *more), tcp=tcp)


def _installed(program: str) -> list[Granted]:
    """A program that does not lie in a system folder: its file, and the folders beside it that hold
    its parts.
    """
    real = Path(program).resolve()
    if real.parts[1] in SYSTEM:
        return []
    prefix = real.parent.parent
    return [(str(real), LOOK), *((str(prefix / part), LOOK) for part in _PARTS)]


def _resolving() -> list[Granted]:
    """`/etc/resolv.conf` is a link on many machines."""
    real = Path("/etc/resolv.conf").resolve()
    return [(str(real.parent), _READ)]
