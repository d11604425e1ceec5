"""What is granted where Landlock is used alone, so that masked names stay out of reach.

Pure but for `listing`. Landlock can only grant, and what is granted for a folder holds for
everything below it. A folder with a masked name somewhere below may therefore only be listed, and
its other entries are granted one by one:

    root/            list                    contains a masked name
    root/.env        nothing                 masked
    root/src/        everything
    root/sub/        list                    contains a masked name
    root/sub/k.pem   nothing                 masked
    root/sub/a.py    everything on a file

Not protected, and said in the report: names of masked files can be seen (and what a masked folder
contains can be listed); no file can be created, removed or renamed in a folder that contains a
masked name; entries that come later are not granted; existence and size are visible to everyone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping

from .landlock import ALL_RIGHTS, READ_RIGHTS, PathRule

FILE, FOLDER, OTHER = "file", "folder", "other"

Listing = Callable[[str], Mapping[str, str]]
"""Returns the entries of a folder: name to FILE, FOLDER or OTHER.

Links are OTHER: they are granted nothing, what they lead to may be.
"""

_FILE_RIGHTS = ("read", "write", "execute", "device")
_ONLY_LIST = ("list",)

# Not /dev/pts and /dev/shm: they hold what other processes show and share.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def folder_rules(
    root: str,
    masked: Iterable[str],
    listing: Listing,
    *,
    read_only: Iterable[str] = (),
    readable: Iterable[str] = (),
    writable: Iterable[str] = (),
) -> tuple[PathRule, ...]:
    """Return everything that a command is granted. All paths are absolute.

    Args:
        root: The workspace.
        masked: Names in any of the folders, of which nothing is granted.
        listing: Lists the entries of a folder.
        read_only: Names in `root` or one of `writable` that may only be read.
        readable: Folders besides these: the system's, toolchains, what a person opened.
        writable: Further folders that may be written.
    """
    masked_names = _name_set(masked)
    read_only_names = _name_set(read_only)
    granted: list[PathRule] = []
    for folder in readable:
        granted += _read_only_grants(folder, FOLDER, masked_names, read_only_names, listing)
    for folder in (root, *writable):
        granted += _full_grants(folder, FOLDER, masked_names, read_only_names, listing)
    return tuple(granted)


def device_rules() -> tuple[PathRule, ...]:
    """Return what every program needs of /dev."""
    return tuple((path, ("read", "write", "device")) for path in DEVICES)


class _NameSet:
    """Names, and the folders that have one of them somewhere below."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.above = frozenset[str]().union(*map(_ancestors, names))


def _name_set(names: Iterable[str]) -> _NameSet:
    return _NameSet(frozenset(name.rstrip("/") or "/" for name in names))


def _ancestors(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) or "/" for count in range(1, len(parts))]


def _full_grants(
    path: str, kind: str, masked: _NameSet, read_only: _NameSet, listing: Listing
) -> list[PathRule]:
    if kind == OTHER or path in masked.names:
        return []
    if path in read_only.names:
        return _read_only_grants(path, kind, masked, read_only, listing)
    if path not in masked.above and path not in read_only.above:
        return [(path, ALL_RIGHTS if kind == FOLDER else _FILE_RIGHTS)]
    granted: list[PathRule] = [(path, _ONLY_LIST)]
    for name, entry_kind in sorted(listing(path).items()):
        granted += _full_grants(
            f"{path.rstrip('/')}/{name}", entry_kind, masked, read_only, listing
        )
    return granted


def _read_only_grants(
    path: str, kind: str, masked: _NameSet, read_only: _NameSet, listing: Listing
) -> list[PathRule]:
    """Grant to read a name and not to write it, leaving out what is masked below it."""
    if kind == OTHER or path in masked.names:
        return []
    if path not in masked.above:
        return [(path, READ_RIGHTS if kind == FOLDER else ("read", "execute"))]
    granted: list[PathRule] = [(path, _ONLY_LIST)]
    for name, entry_kind in sorted(listing(path).items()):
        granted += _read_only_grants(
            f"{path.rstrip('/')}/{name}", entry_kind, masked, read_only, listing
        )
    return granted


def list_folder(path: str) -> dict[str, str]:
    """Return the entries of a folder on disk.

    One that cannot be listed has none: then nothing in it is granted.
    """
    found: dict[str, str] = {}
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                found[entry.name] = _kind(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return {}
    return found


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return FOLDER
    return OTHER if stat.S_ISLNK(mode) else FILE
