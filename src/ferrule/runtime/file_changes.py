"""Detect changes of a person's own files, by content.

Watched are the person's settings folder, skills outside `.ferrule`, and the instruction files of a
folder (`AGENTS.md` and its fallbacks) and of the person, without what they import. The
configuration of a repository is checked by `storage.trust`, which reads and hashes all of it each
time; here a file is read again only if its modification time, size or inode changed. Not noticed: a
change that keeps all three.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from ferrule.storage import paths

from .instruction_text import own_instruction_files

MAX_FILES = 4_000
"""How many files are watched at most."""
MAX_DEPTH = 6
"""How many folders deep files are watched."""
MAX_HASHED_BYTES = 4 << 20
"""Files up to this many bytes are compared by content, larger ones by time, size and inode."""
_SKILL_FOLDERS = (".agents/skills", ".claude/skills")

Stamp = tuple[int, int, int]


class WatchedFiles:
    """The watched files of one workspace.

    `hash_files` returns the hash of each file by its name; equal results mean that nothing changed.
    """

    def __init__(self, workspace: Path, instructions: Sequence[str]) -> None:
        self._workspace = workspace
        self._instructions = tuple(instructions)
        self._known: dict[str, tuple[Stamp, str]] = {}

    def hash_files(self) -> dict[str, str]:
        """Return the hash of each file by its absolute path; an unreadable file is left out."""
        found: dict[str, tuple[Stamp, str]] = {}
        for path in self._files():
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

    def _files(self) -> Iterator[str]:
        for folder in (self._workspace, *self._workspace.parents):
            yield from (str(folder / name) for name in self._instructions)
        yield from map(str, own_instruction_files())
        yield from _walk(paths.config(), MAX_DEPTH)
        for folder in (self._workspace, Path.home()):
            for name in _SKILL_FOLDERS:
                yield from _walk(folder / name, MAX_DEPTH)


def _walk(folder: str | Path, depth: int) -> Iterator[str]:
    """Yield regular files and links below a folder. Links to folders are not followed."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _walk(entry.path, depth - 1)
        elif entry.is_file():
            yield entry.path


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
