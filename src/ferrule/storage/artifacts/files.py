"""Artifacts as files in the state folder: the store that needs nothing but a disk.

    <state>/artifacts/<scope>/           mode 0700; the name is a hash of tenant, user and session
    <state>/artifacts/<scope>/<sha256>         the bytes, mode 0600
    <state>/artifacts/<scope>/<sha256>.json    what is known of them; written last, so what it describes is whole

Files are written under a draft's name, synced and renamed. A process that dies leaves a draft, or
bytes without a
description: nobody can read either, and `sweep` removes them after a day. Folders and files are
opened by descriptor and without following links; a file that is a link, has a second name or
another owner does not exist.

Not protected: against programs of the same user, who may read and change the files as they may read
the journal. The hash is checked when bytes are kept, not with every read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

from ferrule.core.calls import compact
from ferrule.storage import paths

from .intake import Unswept
from .store import PIECE, Artifact, ArtifactMissing, ArtifactTooLarge, Scope, hash_of

DAY = 86_400.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SCOPE = re.compile(r"[0-9a-f]{40}")
_LARGEST_DESCRIPTION = 4096
_LOOKS = 100


class FileArtifacts:
    """Fulfils `ArtifactStore`. `root` is by default `artifacts` in the person's state folder, made
    with the first `put`.

    `max_bytes` bounds what all scopes hold together, `days` the age; either may be None. What was
    just kept is never swept. `now` is the wall clock, in seconds.
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
        self._unswept = Unswept(max_bytes)

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
        with self._begun(scope, draft) as (folder, file):
            try:
                digest, size, lines = self._write(file, parts)
                os.replace(draft, digest, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                _remove(folder, draft)
                raise
            artifact = Artifact(digest, size, mime, lines, int(self._now() * 1000), tool)
            self._describe(folder, artifact)
            os.fsync(folder)
        if self._unswept.due(artifact.size):
            self._sweep(keep=artifact.sha256)
        return artifact

    @contextlib.contextmanager
    def _begun(self, scope: Scope, draft: str) -> Generator[tuple[int, int]]:
        """The folder of a scope and an empty file in it. `_write` closes the file."""
        for last in (False, False, True):
            with self._opened(scope, make=True) as folder:
                try:
                    file = os.open(draft, _NEW, 0o600, dir_fd=folder)
                except FileNotFoundError:
                    # A sweep removed the empty folder after we opened it.
                    if last:
                        raise
                    continue
                yield folder, file
                return

    def _write(self, draft: int, parts: Iterable[bytes]) -> tuple[str, int, int]:
        digest, size, lines = hashlib.sha256(), 0, 0
        with os.fdopen(draft, "wb", buffering=PIECE) as file:
            for part in parts:
                size += len(part)
                if self._max_bytes is not None and size > self._max_bytes:
                    raise ArtifactTooLarge(
                        (
                            f"an output of more than {self._max_bytes} bytes is more than all "
                            "artifacts together may be"
                        ),
                        hint="raise `artifacts.max_bytes`",
                    )
                digest.update(part)
                lines += part.count(b"\n")
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest(), size, lines

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
            with os.fdopen(os.open(draft, _NEW, 0o600, dir_fd=folder), "wb") as file:
                file.write(compact(known).encode("utf-8", "replace"))
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
            digest = hash_of(reference)
            with self._opened(scope) as folder:
                # The description first: what has none cannot be seen any more.
                gone = _remove(folder, f"{digest}.json")
                return _remove(folder, digest) and gone
        except ArtifactMissing:
            return False

    # ---- reading

    def find(self, scope: Scope, reference: str) -> Artifact:
        """See `ArtifactStore.find`."""
        digest = hash_of(reference)
        with self._opened(scope, reference) as folder:
            artifact = _described(folder, digest)
        if artifact is None:
            raise ArtifactMissing(reference)
        return artifact

    def read(self, scope: Scope, reference: str, offset: int, size: int) -> bytes:
        """See `ArtifactStore.read`."""
        with self._content(scope, reference) as file:
            data = bytearray()
            while len(data) < size:
                piece = os.pread(file, min(size - len(data), PIECE), offset + len(data))
                if not piece:
                    break
                data += piece
            return bytes(data)

    def pieces(self, scope: Scope, reference: str, offset: int = 0) -> Iterator[bytes]:
        """See `ArtifactStore.pieces`."""
        with self._content(scope, reference) as file:
            while piece := os.pread(file, PIECE, offset):
                yield piece
                offset += len(piece)

    def list(self, scope: Scope) -> list[Artifact]:
        """See `ArtifactStore.list`."""
        try:
            with self._opened(scope) as folder:
                names = [name for name in _names(folder) if name.endswith(".json")]
                found = [_described(folder, name.removesuffix(".json")) for name in names]
        except ArtifactMissing:
            return []
        return sorted(
            (one for one in found if one), key=lambda one: (one.made, one.sha256), reverse=True
        )

    def close(self) -> None:
        """Nothing stays open between calls."""

    @contextlib.contextmanager
    def _content(self, scope: Scope, reference: str) -> Generator[int]:
        digest = hash_of(reference)
        with self._opened(scope, reference) as folder:
            known = _described(folder, digest)
            file = None if known is None else _file(folder, digest)
        if file is None:
            raise ArtifactMissing(reference)
        try:
            yield file
        finally:
            os.close(file)

    @contextlib.contextmanager
    def _opened(self, scope: Scope, reference: str = "", *, make: bool = False) -> Generator[int]:
        """The folder of a scope as a descriptor. Raises ArtifactMissing if there is none, or it is
        a link.
        """
        if make:
            paths.private_folder(self.root)
        try:
            root = os.open(self.root, _FOLDER)
        except OSError as error:
            if make:
                raise
            raise ArtifactMissing(reference) from error
        try:
            folder = _scope_folder(root, scope.key, make)
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
        """See `ArtifactStore.sweep`. Also what crashed processes left behind."""
        return self._sweep()

    def _sweep(self, keep: str = "") -> int:
        kept: list[tuple[float, int, str, str]] = []
        gone = 0
        now = self._now()
        for scope, folder in self._folders():
            try:
                for name, made, size in _entries(folder, now):
                    if name != keep and self._days is not None and now - made > self._days * DAY:
                        gone += _forget(folder, name)
                    else:
                        kept.append((made, size, scope, name))
            finally:
                os.close(folder)
        return gone + self._shrink(kept, keep)

    def _shrink(self, kept: list[tuple[float, int, str, str]], keep: str) -> int:
        total, gone = sum(size for _, size, _, _ in kept), 0
        doomed: list[tuple[str, str]] = []
        for _, size, scope, name in sorted(kept):
            if self._max_bytes is None or total <= self._max_bytes:
                break
            if name != keep:
                doomed.append((scope, name))
                total -= size
        by_scope = dict(self._folders()) if doomed else {}
        try:
            for scope, name in doomed:
                gone += _forget(by_scope[scope], name) if scope in by_scope else 0
        finally:
            for folder in by_scope.values():
                os.close(folder)
        self._drop_empty()
        return gone

    def _folders(self) -> Iterator[tuple[str, int]]:
        """Every scope's folder, open; who takes one closes it."""
        try:
            root = os.open(self.root, _FOLDER)
        except OSError:
            return
        try:
            for name in filter(_SCOPE.fullmatch, _names(root)):
                with contextlib.suppress(OSError):
                    yield name, os.open(name, _FOLDER, dir_fd=root)
        finally:
            os.close(root)

    def _drop_empty(self) -> None:
        with contextlib.suppress(OSError):
            for path in self.root.iterdir():
                # Fails for a folder that holds something, which is the check.
                if _SCOPE.fullmatch(path.name):
                    with contextlib.suppress(OSError):
                        path.rmdir()


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _scope_folder(root: int, name: str, make: bool) -> int | None:
    # A sweep may remove an empty folder between its making and its opening: it is made again.
    for _ in range(3 if make else 1):
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=root)
        try:
            return os.open(name, _FOLDER, dir_fd=root)
        except FileNotFoundError:
            continue
        except OSError:
            if make:
                raise
            return None
    return None


def _file(folder: int, name: str) -> int | None:
    """A file of ours, open for reading; None for what is no plain file, has a second name or
    another owner.
    """
    # Without any name, it was replaced or deleted between our two looks at it: what has the name
    # now is opened.
    for _ in range(_LOOKS):
        try:
            file = os.open(name, _OLD, dir_fd=folder)
        except OSError:
            return None
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid():
            return file
        os.close(file)
        if status.st_nlink:
            return None
    return None


def _described(folder: int, digest: str) -> Artifact | None:
    """What the description says, if there is one, it can be read, and the bytes are as many as it
    says.
    """
    description, content = _file(folder, f"{digest}.json"), _file(folder, digest)
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
    """Hash, time and size of each artifact; leftovers of a day ago are removed on the way."""
    names = set(_names(folder))
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if name.endswith(".json") and name.removesuffix(".json") in names:
                content = os.stat(name.removesuffix(".json"), dir_fd=folder, follow_symlinks=False)
                yield name.removesuffix(".json"), status.st_mtime, content.st_size
            elif f"{name}.json" not in names and now - status.st_mtime > DAY:
                _remove(folder, name)


def _forget(folder: int, digest: str) -> int:
    gone = _remove(folder, f"{digest}.json")
    return int(_remove(folder, digest) and gone)


def _remove(folder: int, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, IsADirectoryError):
        return False
    return True
