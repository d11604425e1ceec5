"""Artifacts as files in the state folder: the store that needs only a disk.

    <state>/artifacts/<scope>/                 mode 0700; named by a hash of tenant, user, session
    <state>/artifacts/<scope>/<sha256>         the bytes, mode 0600
    <state>/artifacts/<scope>/<sha256>.json    the description; written last, when all is complete

Files are written under a draft name, synced and renamed. A process that dies leaves a draft, or
bytes without a description: nobody can read either, and `sweep` removes them after a day. Folders
and files are opened by descriptor and without following links; a file that is a link, has a second
name or another owner does not exist.

Not protected: against programs of the same user, who may read and change the files as they may read
the journal. The hash is checked when bytes are stored, not with every read.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

from ferrule.core.calls import encode_json
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.storage import paths

from .intake import Intake, SweepSchedule
from .store import CHUNK_SIZE, Artifact, ArtifactMissing, Scope, parse_reference

DAY = 86_400.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_EXISTING_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SCOPE = compile_lazily(r"[0-9a-f]{40}")
_LARGEST_DESCRIPTION = 4096
_OPEN_TRIES = 100


class FileArtifactStore:
    """An `ArtifactStore` in a folder.

    `root` is by default `artifacts` in the user's state folder, created by the first `put`.
    `max_bytes` limits all scopes together, `days` the age; either may be None. The artifact that
    was just stored is never swept. `now` is the wall clock, in seconds.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        *,
        max_bytes: int | None = 1 << 30,
        days: float | None = 30.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._root = None if root is None else Path(root).expanduser().absolute()
        self._max_bytes = max_bytes
        self._days = days
        self._now = now
        self._unswept = SweepSchedule(max_bytes)

    @property
    def root(self) -> Path:
        """The folder of all scopes."""
        if self._root is None:
            self._root = paths.state() / "artifacts"
        return self._root

    # ---- writing

    def put(
        self, scope: Scope, parts: Iterable[bytes], *, mime: str = "text/plain", tool: str = ""
    ) -> Artifact:
        """See `ArtifactStore.put`."""
        draft = f".{token_hex(16)}"
        with self._open_draft(scope, draft) as (folder, file):
            try:
                digest, size, lines = self._write(file, parts)
                os.replace(draft, digest, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                _remove(folder, draft)
                raise
            artifact = Artifact(digest, size, mime, lines, int(self._now() * 1000), tool)
            self._describe(folder, artifact)
            os.fsync(folder)
        if self._unswept.is_due(artifact.size):
            self._sweep(keep=artifact.sha256)
        return artifact

    @contextlib.contextmanager
    def _open_draft(self, scope: Scope, draft: str) -> Generator[tuple[int, int]]:
        """Open the folder of a scope and a new file in it. `_write` closes the file."""
        for is_last_try in (False, False, True):
            with self._open_scope(scope, create=True) as folder:
                try:
                    file = os.open(draft, _NEW_FILE, 0o600, dir_fd=folder)
                except FileNotFoundError:
                    # A sweep removed the empty folder after we opened it.
                    if is_last_try:
                        raise
                    continue
                yield folder, file
                return

    def _write(self, draft: int, parts: Iterable[bytes]) -> tuple[str, int, int]:
        intake = Intake(self._max_bytes)
        with os.fdopen(draft, "wb", buffering=CHUNK_SIZE) as file:
            for part in parts:
                intake.add(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return intake.sha256, intake.size, intake.lines

    def _describe(self, folder: int, artifact: Artifact) -> None:
        draft = f".{token_hex(16)}"
        known = {
            "version": 1,
            "size": artifact.size,
            "mime": artifact.mime[:200],
            "lines": artifact.lines,
            "made": artifact.made,
            "tool": artifact.tool[:200],
        }
        try:
            with os.fdopen(os.open(draft, _NEW_FILE, 0o600, dir_fd=folder), "wb") as file:
                file.write(encode_json(known).encode("utf-8", "replace"))
                file.flush()
                os.fsync(file.fileno())
            os.utime(draft, (artifact.made / 1000, artifact.made / 1000), dir_fd=folder)
            os.replace(draft, f"{artifact.sha256}.json", src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            _remove(folder, draft)
            raise

    def delete(self, scope: Scope, reference: str) -> bool:
        """See `ArtifactStore.delete`."""
        try:
            digest = parse_reference(reference)
            with self._open_scope(scope) as folder:
                return _remove_artifact(folder, digest)
        except ArtifactMissing:
            return False

    # ---- reading

    def find(self, scope: Scope, reference: str) -> Artifact:
        """See `ArtifactStore.find`."""
        digest = parse_reference(reference)
        with self._open_scope(scope, reference) as folder:
            artifact = _read_description(folder, digest)
        if artifact is None:
            raise ArtifactMissing(reference)
        return artifact

    def read(self, scope: Scope, reference: str, offset: int, size: int) -> bytes:
        """See `ArtifactStore.read`."""
        with self._open_content(scope, reference) as file:
            data = bytearray()
            while len(data) < size:
                piece = os.pread(file, min(size - len(data), CHUNK_SIZE), offset + len(data))
                if not piece:
                    break
                data += piece
            return bytes(data)

    def read_chunks(self, scope: Scope, reference: str, offset: int = 0) -> Iterator[bytes]:
        """See `ArtifactStore.read_chunks`."""
        with self._open_content(scope, reference) as file:
            while piece := os.pread(file, CHUNK_SIZE, offset):
                yield piece
                offset += len(piece)

    def list(self, scope: Scope) -> list[Artifact]:
        """See `ArtifactStore.list`."""
        try:
            with self._open_scope(scope) as folder:
                names = [name for name in _list_names(folder) if name.endswith(".json")]
                found = [_read_description(folder, name.removesuffix(".json")) for name in names]
        except ArtifactMissing:
            return []
        artifacts = [artifact for artifact in found if artifact is not None]
        return sorted(artifacts, key=lambda one: (one.made, one.sha256), reverse=True)

    def close(self) -> None:
        """Do nothing: no file stays open between calls."""

    @contextlib.contextmanager
    def _open_content(self, scope: Scope, reference: str) -> Generator[int]:
        digest = parse_reference(reference)
        with self._open_scope(scope, reference) as folder:
            if _read_description(folder, digest) is None:
                raise ArtifactMissing(reference)
            file = _open_file(folder, digest)
        if file is None:
            raise ArtifactMissing(reference)
        try:
            yield file
        finally:
            os.close(file)

    @contextlib.contextmanager
    def _open_scope(
        self, scope: Scope, reference: str = "", *, create: bool = False
    ) -> Generator[int]:
        """Open the folder of a scope as a descriptor.

        Raises ArtifactMissing if there is none, or it is a link.
        """
        if create:
            paths.make_private_folder(self.root)
        try:
            root = os.open(self.root, _FOLDER)
        except OSError as error:
            if create:
                raise
            raise ArtifactMissing(reference) from error
        try:
            folder = _open_scope_folder(root, scope.key, create)
        finally:
            os.close(root)
        if folder is None:
            raise ArtifactMissing(reference)
        try:
            yield folder
        finally:
            os.close(folder)

    # ---- retention

    def sweep(self) -> int:
        """See `ArtifactStore.sweep`. Also removes what crashed processes left behind."""
        return self._sweep()

    def _sweep(self, keep: str = "") -> int:
        kept: list[tuple[float, int, str, str]] = []
        removed = 0
        now = self._now()
        max_age = math.inf if self._days is None else self._days * DAY
        for scope, folder in self._folders():
            try:
                for name, made, size in _entries(folder, now):
                    if name != keep and now - made > max_age:
                        removed += _remove_artifact(folder, name)
                    else:
                        kept.append((made, size, scope, name))
            finally:
                os.close(folder)
        return removed + self._shrink(kept, keep)

    def _shrink(self, kept: list[tuple[float, int, str, str]], keep: str) -> int:
        """Remove the oldest artifacts until the rest is within the limit."""
        total = sum(size for _, size, _, _ in kept)
        surplus: list[tuple[str, str]] = []
        for _, size, scope, name in sorted(kept):
            if self._max_bytes is None or total <= self._max_bytes:
                break
            if name != keep:
                surplus.append((scope, name))
                total -= size
        folders = dict(self._folders()) if surplus else {}
        removed = 0
        try:
            for scope, name in surplus:
                if scope in folders:
                    removed += _remove_artifact(folders[scope], name)
        finally:
            for folder in folders.values():
                os.close(folder)
        self._remove_empty_folders()
        return removed

    def _folders(self) -> Iterator[tuple[str, int]]:
        """Yield every scope's folder, open; the caller closes it."""
        try:
            root = os.open(self.root, _FOLDER)
        except OSError:
            return
        try:
            for name in filter(_SCOPE.fullmatch, _list_names(root)):
                with contextlib.suppress(OSError):
                    yield name, os.open(name, _FOLDER, dir_fd=root)
        finally:
            os.close(root)

    def _remove_empty_folders(self) -> None:
        with contextlib.suppress(OSError):
            for path in self.root.iterdir():
                # Fails for a folder that is not empty, which is the check.
                if _SCOPE.fullmatch(path.name):
                    with contextlib.suppress(OSError):
                        path.rmdir()


def _list_names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _open_scope_folder(root: int, name: str, create: bool) -> int | None:
    # A sweep may remove an empty folder after it was created and before it is opened.
    for _ in range(3 if create else 1):
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=root)
        try:
            return os.open(name, _FOLDER, dir_fd=root)
        except FileNotFoundError:
            continue
        except OSError:
            if create:
                raise
            return None
    return None


def _open_file(folder: int, name: str) -> int | None:
    """Open one of our files for reading.

    Returns None for what is not a plain file, has a second name or another owner.
    """
    # A file without any name was replaced or deleted after we opened it: open what has the name
    # now.
    for _ in range(_OPEN_TRIES):
        try:
            file = os.open(name, _EXISTING_FILE, dir_fd=folder)
        except OSError:
            return None
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid():
            return file
        os.close(file)
        if status.st_nlink:
            return None
    return None


def _read_description(folder: int, digest: str) -> Artifact | None:
    """Return the artifact, if its description can be read and gives the right number of bytes."""
    description = _open_file(folder, f"{digest}.json")
    content = _open_file(folder, digest)
    try:
        if description is None or content is None:
            return None
        known = json.loads(os.read(description, _LARGEST_DESCRIPTION))
        if type(known) is not dict:
            return None
        known = cast("dict[str, Any]", known)
        size, lines, made = (int(known[key]) for key in ("size", "lines", "made"))
        if os.fstat(content).st_size != size:
            return None
        return Artifact(
            digest, size, str(known.get("mime", "")), lines, made, str(known.get("tool", ""))
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    finally:
        for file in (description, content):
            if file is not None:
                os.close(file)


def _entries(folder: int, now: float) -> Iterator[tuple[str, float, int]]:
    """Yield hash, time and size of each artifact; remove leftovers that are older than a day."""
    names = set(_list_names(folder))
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            digest = name.removesuffix(".json")
            if name != digest and digest in names:
                content = os.stat(digest, dir_fd=folder, follow_symlinks=False)
                yield digest, status.st_mtime, content.st_size
            elif f"{name}.json" not in names and now - status.st_mtime > DAY:
                _remove(folder, name)


def _remove_artifact(folder: int, digest: str) -> bool:
    # The description first: an artifact without one cannot be seen.
    had_description = _remove(folder, f"{digest}.json")
    return _remove(folder, digest) and had_description


def _remove(folder: int, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, IsADirectoryError):
        return False
    return True
