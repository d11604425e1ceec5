"""Detect changes of a person's own files, by content.

Watched are the person's settings folder, without Ferrule's own state, cache and journal that may
lie in it, and what plugins name (`PartsInternals.watched`). The
configuration of a repository is checked by `storage.trust`, which reads and hashes all of it each
time; here a file is read again only if its modification time, size or inode changed. Not noticed: a
change that keeps all three.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from ferrule.storage import paths

MAX_FILES = 4_000
"""How many files are watched at most."""
MAX_DEPTH = 6
"""How many folders deep files are watched."""
MAX_HASHED_BYTES = 4 << 20
"""Files up to this many bytes are compared by content, larger ones by time, size and inode."""

_DATABASE = ".db"
"""How the suffix of a journal begins, and that of what the database keeps beside it."""

Stamp = tuple[int, int, int]


class WatchedFiles:
    """The watched files of one run.

    `hash_files` returns the hash of each file by its name; equal results mean that nothing changed.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Stamp, str]] = {}

    def hash_files(self, watched: Iterable[Path]) -> dict[str, str]:
        """Return the hash of each file by its absolute path; an unreadable file is left out.

        Args:
            watched: Files, and folders with all files below, besides the person's settings folder.
        """
        found: dict[str, tuple[Stamp, str]] = {}
        for path in _list_files(watched):
            if len(found) == MAX_FILES:
                break
            entry = self._read(path)
            if entry is not None:
                found[path] = entry
        self._known = found
        return {path: digest for path, (_, digest) in found.items()}

    def _read(self, path: str) -> tuple[Stamp, str] | None:
        try:
            status = Path(path).stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            known = self._known.get(path)
            if known is not None and known[0] == stamp:
                return known
            if status.st_size > MAX_HASHED_BYTES:
                return stamp, str(stamp)
            with open(path, "rb", opener=_open_nonblocking) as file:
                return stamp, sha256(file.read(MAX_HASHED_BYTES)).hexdigest()
        except OSError:
            # Gone or unreadable, so it has no effect either; whoever loads it reports that.
            return None


def _list_files(watched: Iterable[Path]) -> Iterator[str]:
    own = frozenset(str(folder) for folder in (paths.state(), paths.cache()))
    for path in dict.fromkeys((*watched, paths.config())):
        if path.is_dir():
            yield from _walk(path, MAX_DEPTH, own)
        else:
            yield str(path)


def _walk(folder: str | Path, depth: int, without: frozenset[str]) -> Iterator[str]:
    """Yield regular files and links below a folder. Links to folders are not followed."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth and entry.path not in without:
                yield from _walk(entry.path, depth - 1, without)
        elif entry.is_file() and not Path(entry.name).suffix.startswith(_DATABASE):
            yield entry.path


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
