"""What commands see of a repository around their workspace: placeholders for its tracked files.

Where the workspace is a subfolder of a repository, git looks at every file that it tracks, also at
those beside the workspace, which commands do not see. Missing, they would count as deleted, and
`git commit -a` would delete them. So each has a placeholder that nobody can open, with the size and
the time that the index has: git takes it for unchanged. What cannot be done is what would need
their content: a rebase or a switch that changes them stops with an error.

git does not go by time and size where a file is as new as the index. Such a placeholder has the
content that the index names, which every command can read with `git show`, if it is an object of
its own (no pack).

All of it comes from the index and the objects. Commands can write these, so nothing else is looked
up by them. Format: gitformat-index(5), versions 2 to 4.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.repositories import Repository, parse_git_config, read_text

MAX_ENTRIES = 200_000
"""Tracked files that get a placeholder."""
_MAX_BYTES = 256 * 1024 * 1024
_MAX_OBJECT = 4 * 1024 * 1024
"""Bytes of a file whose content a placeholder gets."""
_HEADER = struct.Struct(">4sLL")
_STATUS = struct.Struct(">10L")
_LINK = 0o120000
_FILE = 0o100000
_MODULE = 0o160000
_EXTENDED = 0x4000
_SKIPPED = 0x4000


@frozen
class IndexEntry:
    """A tracked file, with what git compares. `mode` is git's."""

    name: str
    mode: int
    seconds: int
    nanoseconds: int
    size: int
    object_id: str


class SiblingPlaceholders:
    """Keeps the placeholders of one session. Not thread-safe; its calls block.

    Args:
        repository: The repository, whose work tree is around the workspace.
        root: The workspace.
        folder: Where the placeholders are made.
        names: The names whose content no command may read.
    """

    def __init__(
        self, repository: Repository, root: str, folder: Path, names: ProtectedNames
    ) -> None:
        self._names = names.only_lists()
        self.folder = folder
        self._objects = Path(repository.common_dir, "objects")
        self._index = Path(repository.git_dir, "index")
        self._config = f"{repository.common_dir}/config"
        self._inside = os.path.relpath(root, repository.work_tree) + "/"
        self._stamp: tuple[int, ...] = ()
        self._made: dict[str, IndexEntry] = {}
        folder.mkdir(exist_ok=True)

    def add_places(self, places: Iterable[tuple[str, bool]]) -> None:
        """Make places where something else of the view is mounted: names, and whether folders."""
        for name, is_folder in places:
            place = self.folder / name
            with suppress(OSError):
                if is_folder:
                    place.mkdir(parents=True, exist_ok=True)
                else:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.touch()

    def update(self) -> None:
        """Make the placeholders as the index is now."""
        try:
            status = self._index.stat()
        except OSError:
            return
        stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        if stamp == self._stamp:
            return
        wanted = {entry.name: entry for entry in self._read() if self._is_beside(entry.name)}
        for name in self._made.keys() - wanted.keys():
            self._remove(name)
        for name, entry in wanted.items():
            if self._made.get(name) != entry:
                self._remove(name)
                self._make(entry, self._read_object(entry, int(status.st_mtime)))
        self._made = wanted
        self._stamp = stamp

    def _is_beside(self, name: str) -> bool:
        parts = name.split("/")
        is_plain = not any(part in ("", ".", "..", ".git") for part in parts)
        return is_plain and not f"{name}/".startswith(self._inside)

    def _read(self) -> list[IndexEntry]:
        settings = dict(parse_git_config(read_text(self._config)))
        hash_size = 32 if settings.get("extensions.objectformat") == "sha256" else 20
        try:
            with self._index.open("rb") as file:
                return list(read_index(file.read(_MAX_BYTES), hash_size))
        except (OSError, ValueError, struct.error, IndexError):
            return []

    def _remove(self, name: str) -> None:
        place = self.folder / name
        with suppress(OSError):
            if stat.S_ISDIR(place.lstat().st_mode):
                place.rmdir()
            else:
                place.unlink()

    def _read_object(self, entry: IndexEntry, index_seconds: int) -> bytes | None:
        """Return the content of a file that git would compare; None if it does not."""
        if entry.size and entry.seconds < index_seconds:
            return None
        if self._names.check(entry.name, write=False) is not None:
            return None
        place = self._objects / entry.object_id[:2] / entry.object_id[2:]
        try:
            with place.open("rb") as file:
                data = zlib.decompressobj().decompress(file.read(_MAX_OBJECT), _MAX_OBJECT)
        except (OSError, zlib.error):
            return None
        heading, _, content = data.partition(b"\0")
        return content if heading == b"blob %d" % len(content) else None

    def _make(self, entry: IndexEntry, content: bytes | None) -> None:
        place = self.folder / entry.name
        modified = entry.seconds * 10**9 + entry.nanoseconds
        times = (modified, modified)
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            kind = stat.S_IFMT(entry.mode)
            if kind == _LINK:
                target = b"x" * max(1, min(entry.size, 4000)) if content is None else content
                place.symlink_to(os.fsdecode(target))
                os.utime(place, ns=times, follow_symlinks=False)
            elif kind == _FILE:
                place.write_bytes(content or b"")
                os.truncate(place, entry.size if content is None else len(content))
                os.utime(place, ns=times)
                place.chmod((entry.mode & 0o111) | (0 if content is None else 0o444))
            elif kind == _MODULE:
                place.mkdir(exist_ok=True)

    def clear(self) -> None:
        """Remove all placeholders."""
        shutil.rmtree(self.folder, ignore_errors=True)


def read_index(data: bytes, hash_size: int) -> Iterator[IndexEntry]:
    """Yield the entries of an index that are checked out.

    Raises:
        ValueError: It is none, or of a version that is not known.
    """
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("this is no index of git")
    at = _HEADER.size
    previous = b""
    for _ in range(min(count, MAX_ENTRIES)):
        start = at
        _, _, seconds, nanoseconds, _, _, mode, _, _, size = _STATUS.unpack_from(data, at)
        at += _STATUS.size
        object_id = data[at : at + hash_size].hex()
        at += hash_size
        (flags,) = struct.unpack_from(">H", data, at)
        at += 2
        is_skipped = False
        if flags & _EXTENDED:
            (more,) = struct.unpack_from(">H", data, at)
            is_skipped = bool(more & _SKIPPED)
            at += 2
        if version == 4:
            strip, at = _read_number(data, at)
            end = data.index(b"\0", at)
            name = previous[: len(previous) - strip] + data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            name = data[at:end]
            at = start + (end - start + 8) // 8 * 8
        previous = name
        if not is_skipped:
            yield IndexEntry(os.fsdecode(name), mode, seconds, nanoseconds, size, object_id)


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """Read a number as in offsets of packs; return it and where it ends."""
    byte = data[at]
    value = byte & 127
    while byte & 128:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 127)
    return value, at + 1
