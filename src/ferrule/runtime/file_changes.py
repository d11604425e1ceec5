"""What a person's own files were when they were last looked at, told apart by content: for whoever
must notice that they changed.

Looked at are the person's settings folder, skills outside `.ferrule`, and the instructions that
hold in a folder (`AGENTS.md` and its fallbacks). What a repository configures is looked at by
`storage.trust`, which reads and hashes all of it each time; here a file is read again only where
its time, size or number changed. Not noticed: a change that keeps all three.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from ferrule.storage import paths

MOST = 4_000
"""Files that are looked at."""
DEEPEST = 6
LARGEST = 4 << 20
"""Bytes of a file that is told apart by content; a larger one by time, size and number."""
_SKILLS = (".agents/skills", ".claude/skills")

Stamp = tuple[int, int, int]


class Watched:
    """One workspace's. `look` gives the hash of each file by its name; equal values mean that
    nothing changed.
    """

    def __init__(self, workspace: Path, instructions: Sequence[str]) -> None:
        self._workspace = workspace
        self._instructions = tuple(instructions)
        self._known: dict[str, tuple[Stamp, str]] = {}

    def look(self) -> dict[str, str]:
        """Files by their absolute names. What cannot be read counts as not there."""
        found: dict[str, tuple[Stamp, str]] = {}
        for path in self._files():
            if len(found) == MOST:
                break
            if (seen := self._seen(path)) is not None:
                found[path] = seen
        self._known = found
        return {path: digest for path, (_, digest) in found.items()}

    def _seen(self, path: str) -> tuple[Stamp, str] | None:
        try:
            about = Path(path).stat()
            stamp = (about.st_mtime_ns, about.st_size, about.st_ino)
            known = self._known.get(path)
            if known is not None and known[0] == stamp:
                return known
            if about.st_size > LARGEST:
                return stamp, str(stamp)
            with open(path, "rb", opener=_without_waiting) as file:
                return stamp, sha256(file.read(LARGEST)).hexdigest()
        except OSError:
            # Gone, or not for us: then it has no effect either, and whoever uses it says so.
            return None

    def _files(self) -> Iterator[str]:
        for folder in (self._workspace, *self._workspace.parents):
            yield from (str(folder / name) for name in self._instructions)
        yield from _below(paths.config(), DEEPEST)
        for name in _SKILLS:
            yield from _below(self._workspace / name, DEEPEST)
        yield from _below(Path.home() / _SKILLS[0], DEEPEST)


def _below(folder: str | Path, depth: int) -> Iterator[str]:
    """Regular files and links below a folder. Links to folders are not followed."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _below(entry.path, depth - 1)
        elif entry.is_file():
            yield entry.path


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
