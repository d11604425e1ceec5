"""Artifacts in an object store: S3, Google Cloud Storage, Azure, by URL; a folder or memory in
tests.

    <prefix>/<scope>/<sha256>          the bytes
    <prefix>/<scope>/<sha256>.json     what is known of them; written last, so what it describes is whole
    <prefix>/drafts/<id>               what is being kept and has no hash yet

The layout and the rules are those of `files`. What fits into one part is put in one request; more
is uploaded part by part to a draft and copied within the store. An object appears whole or not at
all. A process that dies leaves a draft, bytes without a description, or an unfinished upload:
nobody can read them. `sweep` removes the first two after a day; unfinished uploads take a lifecycle
rule of the bucket (AbortIncompleteMultipartUpload).

Credentials come from the environment, as the provider's own programs take them (AWS_…, GOOGLE_…,
AZURE_…), never from a URL.

Not protected: against who may read the bucket; and where the same bytes of the same session are
removed and kept again in the same moment, they may be gone afterwards.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from ferrule.core.calls import compact
from ferrule.core.errors import ConfigError
from ferrule.storage import paths

from .intake import ArtifactsUnavailable, Intake, Unswept
from .store import PIECE, Artifact, ArtifactMissing, Scope, hash_of

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = frozenset(("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "file", "memory"))
"""What URLs may begin with."""
PART = 8 << 20
"""Bytes of one part of an upload. Two are on their way while a third is gathered."""
LARGEST = 5 << 30
"""What a store copies in one request; nothing larger is kept."""
DAY = 86_400.0
_AT_ONCE = 8
_TIMEOUT = "30s"


class ObjectArtifacts:
    """Fulfils `ArtifactStore`. `where` is a URL (`s3://bucket/prefix`), or a store of obstore's.

    `max_bytes` bounds what all scopes hold together, `days` the age; either may be None, and for a
    bucket of many machines a lifecycle rule does the same without listing it. `now` is the wall
    clock, in seconds. Raises ConfigError for a URL that cannot be used.
    """

    def __init__(
        self,
        where: str | ObjectStore,
        *,
        max_bytes: int | None = 1 << 30,
        days: float | None = 30.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = _opened(where) if isinstance(where, str) else where
        self._max_bytes, self._days, self._now = max_bytes, days, now
        self._unswept = Unswept(max_bytes)

    # ---- writing

    def put(
        self, scope: Scope, parts: Iterable[bytes], *, mime: str = "text/plain", tool: str = ""
    ) -> Artifact:
        """See `ArtifactStore.put`."""
        intake = Intake(LARGEST if self._max_bytes is None else min(self._max_bytes, LARGEST))
        blocks = intake.blocks(parts, PART)
        first = next(blocks, b"")
        second = next(blocks, None)
        if second is None:
            artifact = intake.artifact(mime, tool, self._now())
            with _in_words("keeping a result"):
                _obstore().put(
                    self._store, f"{scope.key}/{artifact.sha256}", first, use_multipart=False
                )
        else:
            rest = chain((first, second), blocks)
            del first, second
            artifact = self._put_large(
                scope, rest, lambda: intake.artifact(mime, tool, self._now())
            )
        self._describe(scope, artifact)
        if self._unswept.due(artifact.size):
            self._sweep(keep=artifact.sha256)
        return artifact

    def _put_large(
        self, scope: Scope, blocks: Iterator[bytes], known: Callable[[], Artifact]
    ) -> Artifact:
        obstore, draft = _obstore(), f"drafts/{token_hex(16)}"
        with _in_words("keeping a result"):
            writer = obstore.open_writer(self._store, draft, buffer_size=PART, max_concurrency=2)
        try:
            try:
                for block in blocks:
                    with _in_words("keeping a result"):
                        writer.write(block)
            except BaseException:
                # The store forgets no unfinished upload by itself: it is finished, and removed as a
                # whole.
                with suppress(*_failures()):
                    writer.close()
                raise
            with _in_words("keeping a result"):
                writer.close()
                artifact = known()
                obstore.copy(self._store, draft, f"{scope.key}/{artifact.sha256}")
            return artifact
        finally:
            # Nobody can find it, and `sweep` removes it after a day.
            with suppress(ArtifactsUnavailable):
                self._remove(draft)

    def _describe(self, scope: Scope, artifact: Artifact) -> None:
        known = {
            "version": 1,
            "size": artifact.size,
            "mime": artifact.mime,
            "lines": artifact.lines,
            "made": artifact.made,
            "tool": artifact.tool,
        }
        path = f"{scope.key}/{artifact.sha256}.json"
        with _in_words("describing a result"):
            _obstore().put(self._store, path, compact(known).encode(), use_multipart=False)

    def delete(self, scope: Scope, reference: str) -> bool:
        """See `ArtifactStore.delete`."""
        try:
            path = f"{scope.key}/{hash_of(reference)}"
        except ArtifactMissing:
            return False
        there = self._size(path) is not None and self._size(f"{path}.json") is not None
        # The description first: what has none cannot be seen any more.
        self._remove(f"{path}.json")
        self._remove(path)
        return there

    def _remove(self, path: str) -> None:
        # Some stores say that what is not there was removed, others that it is not there.
        with suppress(FileNotFoundError), _in_words("removing a result", may_lack=True):
            _obstore().delete(self._store, path)

    # ---- reading

    def find(self, scope: Scope, reference: str) -> Artifact:
        """See `ArtifactStore.find`."""
        digest = hash_of(reference)
        known = self._described(scope.key, digest)
        if known is None or self._size(f"{scope.key}/{digest}") != known.size:
            raise ArtifactMissing(reference)
        return known

    def read(self, scope: Scope, reference: str, offset: int, size: int) -> bytes:
        """See `ArtifactStore.read`."""
        known = self._described(scope.key, hash_of(reference))
        if known is None:
            raise ArtifactMissing(reference)
        end = min(offset + size, known.size)
        return self._range(scope, reference, offset, end) if offset < end else b""

    def pieces(self, scope: Scope, reference: str, offset: int = 0) -> Iterator[bytes]:
        """See `ArtifactStore.pieces`."""
        size, most = self.find(scope, reference).size, PIECE
        while offset < size:
            data = memoryview(self._range(scope, reference, offset, min(offset + most, size)))
            for start in range(0, len(data), PIECE):
                yield bytes(data[start : start + PIECE])
            # A request takes longer than its bytes: who reads on gets more with each.
            offset, most = offset + len(data), min(2 * most, PART // 2)

    def list(self, scope: Scope) -> list[Artifact]:
        """See `ArtifactStore.list`."""
        sizes = {path.rpartition("/")[2]: size for path, size, _ in self._listed(scope.key)}
        names = [name for name in sizes if f"{name}.json" in sizes]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ferrule-artifacts") as threads:
            found = threads.map(partial(self._described, scope.key), names)
            whole = [one for one in found if one is not None and one.size == sizes[one.sha256]]
        return sorted(whole, key=lambda one: (one.made, one.sha256), reverse=True)

    def close(self) -> None:
        """Connections belong to obstore and are given back with the store."""

    def _described(self, scope: str, digest: str) -> Artifact | None:
        try:
            with _in_words("looking for a result", may_lack=True):
                data = _obstore().get(self._store, f"{scope}/{digest}.json").bytes()
        except FileNotFoundError:
            return None
        try:
            known: Any = json.loads(bytes(data))
            size, lines, made = (int(known[key]) for key in ("size", "lines", "made"))
            return Artifact(digest, size, str(known["mime"]), lines, made, str(known["tool"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def _range(self, scope: Scope, reference: str, start: int, end: int) -> bytes:
        path = f"{scope.key}/{hash_of(reference)}"
        try:
            with _in_words("reading a result", may_lack=True):
                return bytes(_obstore().get_range(self._store, path, start=start, end=end))
        except FileNotFoundError:
            raise ArtifactMissing(reference) from None

    def _size(self, path: str) -> int | None:
        try:
            with _in_words("looking for a result", may_lack=True):
                return _obstore().head(self._store, path)["size"]
        except FileNotFoundError:
            return None

    def _listed(self, prefix: str | None = None) -> Iterator[tuple[str, int, float]]:
        """Path, size and age of what lies below a prefix; the age in seconds since 1970, by the
        store's clock.
        """
        with _in_words("listing results"):
            for some in _obstore().list(self._store, prefix):
                for one in some:
                    yield one["path"], one["size"], one["last_modified"].timestamp()

    # ---- retention

    def sweep(self) -> int:
        """See `ArtifactStore.sweep`. Also what crashed processes left behind. Lists everything
        there is.
        """
        return self._sweep()

    def _sweep(self, keep: str = "") -> int:
        now = self._now()
        everything = {path: (size, at) for path, size, at in self._listed()}
        kept: list[tuple[float, str, int]] = []
        gone = 0
        for path, (size, at) in everything.items():
            scope, _, name = path.partition("/")
            described = everything.get(f"{path}.json")
            if scope == "drafts" or (described is None and not name.endswith(".json")):
                if now - at > DAY:
                    self._remove(path)
            elif described is not None:
                old = (
                    self._days is not None
                    and now - described[1] > self._days * DAY
                    and name != keep
                )
                if old and self._forget(path, now - (self._days or 0) * DAY):
                    gone += 1
                else:
                    kept.append((described[1], path, size))
        return gone + self._shrink(sorted(kept), keep)

    def _shrink(self, kept: list[tuple[float, str, int]], keep: str) -> int:
        total, gone = sum(size for _, _, size in kept), 0
        for at, path, size in kept:
            if self._max_bytes is None or total <= self._max_bytes:
                break
            # What was kept again since we listed it is young: a second of grace for stores that
            # know no fractions.
            if not path.endswith(f"/{keep}") and self._forget(path, at + 1, by_store=True):
                gone += 1
                total -= size
        return gone

    def _forget(self, path: str, latest: float, *, by_store: bool = False) -> bool:
        """Remove one, unless it was kept again after `latest`: by what it says of itself, or by the
        store's clock.
        """
        scope, _, digest = path.rpartition("/")
        if by_store:
            with suppress(FileNotFoundError), _in_words("looking for a result", may_lack=True):
                again = _obstore().head(self._store, f"{path}.json")["last_modified"].timestamp()
                if again > latest:
                    return False
        else:
            known = self._described(scope, digest)
            if known is not None and known.made / 1000 > latest:
                return False
        self._remove(f"{path}.json")
        self._remove(path)
        return True


def _opened(url: str) -> ObjectStore:
    scheme = url.partition("://")[0].lower()
    if "://" not in url or scheme not in SCHEMES:
        listed = ", ".join(f"`{one}://`" for one in ("s3", "gs", "az", "file"))
        raise ConfigError(
            f"artifacts cannot be kept in `{_shown(url)}`", hint=f"use {listed}, or a folder"
        )
    if "@" in url.partition("://")[2].partition("/")[0] and scheme not in ("abfs", "abfss"):
        raise ConfigError(
            f"`{_shown(url)}` holds a key",
            hint="keys come from the environment, as in AWS_ACCESS_KEY_ID",
        )
    if scheme == "file":
        paths.private_folder(Path(url.partition("://")[2]))
    _obstore()
    from obstore.store import from_url

    client: Any = {"timeout": _TIMEOUT, "connect_timeout": "10s"}
    retry: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}
    try:
        if scheme in ("file", "memory"):
            return from_url(url)
        return from_url(url, client_options=client, retry_config=retry)
    except _failures() as error:
        raise ConfigError(
            f"artifacts cannot be kept in `{_shown(url)}`: {_first_line(error)}"
        ) from error


def _shown(url: str) -> str:
    """A URL without what stands before an `@`."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"[:200]


@contextmanager
def _in_words(doing: str, *, may_lack: bool = False) -> Generator[None]:
    """What obstore raises as ours. With `may_lack`, that something is not there stays
    FileNotFoundError.
    """
    try:
        yield
    except _failures() as error:
        if may_lack and isinstance(error, FileNotFoundError):
            raise
        raise ArtifactsUnavailable(f"{doing}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    # The lines after the first are for who debugs the store, and may hold requests.
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _failures() -> tuple[type[Exception], ...]:
    _obstore()
    from obstore.exceptions import BaseError

    return (BaseError, OSError)


def _obstore() -> Any:
    try:
        import obstore
    except ImportError as error:
        raise ConfigError(
            "object stores need the package obstore", hint="pip install 'ferrule[objects]'"
        ) from error
    return obstore
