"""What this machine has that a view is made of: looked at once for a session. And the session's own folder."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ferrule.guard.reserved import DEFAULT

from . import certificates
from .layout import SYSTEM, Places, Surroundings
from .toolchains import toolchains

_MOST = 20_000
"""Entries of /etc that are looked at: beyond, folders are covered whole."""

_CLOSED = (
    "shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "ssl/private", "pki/tls/private", "krb5.keytab",
    "wireguard", "openvpn", "letsencrypt", "NetworkManager/system-connections", "docker", "kubernetes", "rancher", "ppp",
)  # fmt: skip
"""Below /etc: covered whoever may read them."""


def look(environment: Mapping[str, str], home: str, places: Places) -> Surroundings:
    """Look at this machine. `environment` is that of the commands: their PATH says which toolchains they use."""
    binds = toolchains(Path(home), environment.get("PATH", ""), (sys.prefix, sys.base_prefix))
    closed = dict(_closed(Path("/etc")))
    closed.update((hidden, os.path.isdir(hidden)) for bind in binds for hidden in bind.hidden)  # noqa: PTH112  text, as all of them
    return Surroundings(
        places=places,
        home=home,
        top=dict(_top()),
        closed=closed,
        proc=frozenset(os.listdir("/proc")),  # noqa: PTH208  names, not paths
        devices=frozenset(os.listdir("/dev")),  # noqa: PTH208  names, not paths
        toolchains=binds,
        processors=Path("/sys/devices/system/cpu").is_dir(),
    )


def _top() -> Iterator[tuple[str, str]]:
    for name in SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            yield name, str(path.readlink())
        elif path.is_dir():
            yield name, ""


def _closed(folder: Path) -> Iterator[tuple[str, bool]]:
    """What of /etc is to be covered, and whether it is a folder.

    Besides the table: what not everybody may read (we may be root, and commands have our number), and what has a
    secret's name unless it is a public certificate.
    """
    left = _MOST
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            entries = list(os.scandir(here))
        except OSError:
            continue  # commands cannot look into it either
        for entry in entries:
            left -= 1
            status = entry.stat(follow_symlinks=False)
            is_folder = stat.S_ISDIR(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                continue  # what it leads to has a name of its own
            if _is_closed(folder, entry, status) or (is_folder and left < 0):
                yield entry.path, is_folder
            elif is_folder:
                waiting.append(Path(entry.path))


def _is_closed(folder: Path, entry: os.DirEntry[str], status: os.stat_result) -> bool:
    name = os.path.relpath(entry.path, folder)
    if name in _CLOSED or not status.st_mode & (stat.S_IROTH | stat.S_IXOTH):
        return True
    if DEFAULT.check(entry.name, write=False) is None:
        return False
    return not (stat.S_ISREG(status.st_mode) and _public(entry.path))


def _public(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123  one of thousands
            return certificates.only_public(file.read(certificates.LIMIT + 1))
    except OSError:
        return False
