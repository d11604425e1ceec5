"""What is granted where Landlock stands alone, so that masked names stay out of reach. Pure but for
`listing`.

Landlock can only grant, and what is granted for a folder holds for everything below it. A folder
with a masked name somewhere below therefore grants no more than to be listed, and its other entries
are granted one by one:

    root/            list                    holds a masked name
    root/.env        nothing                 masked
    root/src/        everything
    root/sub/        list                    holds a masked name
    root/sub/k.pem   nothing                 masked
    root/sub/a.py    everything on a file

Not protected, and said in the report: names of masked files can be seen (and what a masked folder
holds can be listed); no file can be created, removed or renamed in a folder that holds a masked
name; entries that come later are not granted; existence and size are open to everyone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping

from .landlock import ALL, LOOK, Granted

FILE, FOLDER, OTHER = "file", "folder", "other"

Listing = Callable[[str], Mapping[str, str]]
"""Entries of a folder: name to FILE, FOLDER or OTHER (links: they are granted nothing, what they
lead to may be).
"""

_ON_FILES = ("read", "write", "execute", "device")
_ONLY_LIST = ("list",)

# /proc: files about a process outside are refused by Landlock itself, which lets nobody look out of
# its domain.
SYSTEM = (
    "/proc",
    "/sys/devices/system/cpu",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
)
# Not /dev/pts and /dev/shm: they hold what other processes show and share.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def grants(
    root: str,
    masked: Iterable[str],
    listing: Listing,
    *,
    read_only: Iterable[str] = (),
    readable: Iterable[str] = (),
    writable: Iterable[str] = (),
) -> tuple[Granted, ...]:
    """Everything a command is granted. All paths are absolute.

    `masked` are names in any of the folders, `read_only` in `root` or one of `writable`. `readable`
    are folders beside
    these: the system's, toolchains, what a person opened.
    """
    hidden, fixed = _below(masked), _below(read_only)
    found: list[Granted] = []
    for folder in readable:
        found += _fixed_in(folder, FOLDER, hidden, fixed, listing)
    for folder in (root, *writable):
        found += _grants_in(folder, FOLDER, hidden, fixed, listing)
    return tuple(found)


def devices() -> tuple[Granted, ...]:
    """What every program needs of /dev."""
    return tuple((path, ("read", "write", "device")) for path in DEVICES)


class _Names:
    """Names, and the folders that hold one somewhere below."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.above = frozenset(above for name in names for above in _ancestors(name))


def _below(names: Iterable[str]) -> _Names:
    return _Names(frozenset(name.rstrip("/") or "/" for name in names))


def _ancestors(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) or "/" for count in range(1, len(parts))]


def _grants_in(
    path: str, kind: str, hidden: _Names, fixed: _Names, listing: Listing
) -> list[Granted]:
    if kind == OTHER or path in hidden.names:
        return []
    if path in fixed.names:
        return _fixed_in(path, kind, hidden, fixed, listing)
    if path not in hidden.above and path not in fixed.above:
        return [(path, ALL if kind == FOLDER else _ON_FILES)]
    found: list[Granted] = [(path, _ONLY_LIST)]
    for name, entry in sorted(listing(path).items()):
        found += _grants_in(f"{path.rstrip('/')}/{name}", entry, hidden, fixed, listing)
    return found


def _fixed_in(
    path: str, kind: str, hidden: _Names, fixed: _Names, listing: Listing
) -> list[Granted]:
    """A name that may be read and not written, with what is masked below it left out."""
    if kind == OTHER or path in hidden.names:
        return []
    if path not in hidden.above:
        return [(path, LOOK if kind == FOLDER else ("read", "execute"))]
    found: list[Granted] = [(path, _ONLY_LIST)]
    for name, entry in sorted(listing(path).items()):
        found += _fixed_in(f"{path.rstrip('/')}/{name}", entry, hidden, fixed, listing)
    return found


def listing(path: str) -> dict[str, str]:
    """The entries of a folder on disk. One that cannot be listed has none: then nothing in it is
    granted.
    """
    found: dict[str, str] = {}
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                mode = entry.stat(follow_symlinks=False).st_mode
                found[entry.name] = (
                    FOLDER if stat.S_ISDIR(mode) else OTHER if stat.S_ISLNK(mode) else FILE
                )
    except OSError:
        return {}
    return found
