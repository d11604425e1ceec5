"""Artifacts in an object store: S3, Google Cloud Storage, Azure; a folder or memory in tests.

    <prefix>/<scope>/<sha256>          the bytes
    <prefix>/<scope>/<sha256>.json     the description; written last, when all is complete
    <prefix>/drafts/<id>               an artifact that is being stored and has no hash yet

The layout and the rules are those of `files`. What fits into one part is stored by one request;
more is uploaded part by part to a draft and copied within the store. An object appears completely
or not at all. A process that dies leaves a draft, bytes without a description, or an unfinished
upload: nobody can read them. `sweep` removes the first two after a day; unfinished uploads need a
lifecycle rule of the bucket (AbortIncompleteMultipartUpload).

Credentials come from the environment, as the provider's own programs take them (AWS_…, GOOGLE_…,
AZURE_…), never from a URL.

Not protected: against those who may read the bucket. If the same bytes of the same session are
removed and stored again at the same moment, they may be gone afterwards.
"""

from __future__ import annotations

import json
import math
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

from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError
from ferrule.storage import paths

from .intake import ArtifactsUnavailable, Intake, SweepSchedule
from .store import CHUNK_SIZE, Artifact, ArtifactMissing, Scope, parse_reference

if TYPE_CHECKING:
    from obstore.store import ObjectStore
else:
    ObjectStore = Any

SCHEMES = frozenset(("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "file", "memory"))
"""The schemes of URLs that are accepted."""
PART_BYTES = 8 << 20
"""Bytes of one part of an upload. Two are being sent while a third is gathered."""
MAX_OBJECT_BYTES = 5 << 30
"""What a store copies in one request; nothing larger is stored."""
DAY = 86_400.0
_THREADS = 8
_TIMEOUT = "30s"


class ObjectArtifactStore:
    """An `ArtifactStore` in an object store.

    Args:
        where: A URL (`s3://bucket/prefix`), or one of obstore's stores.
        max_bytes: The limit of all scopes together, or None. For a bucket that many machines use, a
            lifecycle rule does the same without listing the bucket.
        days: The limit of the age, or None.
        now: The wall clock, in seconds.

    Raises:
        ConfigError: The URL cannot be used.
    """

    def __init__(
        self,
        where: str | ObjectStore,
        *,
        max_bytes: int | None = 1 << 30,
        days: float | None = 30.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = _open_store(where) if isinstance(where, str) else where
        self._max_bytes = max_bytes
        self._days = days
        self._now = now
        self._unswept = SweepSchedule(max_bytes)

    # ---- writing

    def put(
        self, scope: Scope, parts: Iterable[bytes], *, mime: str = "text/plain", tool: str = ""
    ) -> Artifact:
        """See `ArtifactStore.put`."""
        intake = Intake(
            MAX_OBJECT_BYTES if self._max_bytes is None else min(self._max_bytes, MAX_OBJECT_BYTES)
        )
        blocks = intake.blocks(parts, PART_BYTES)
        first = next(blocks, b"")
        second = next(blocks, None)
        if second is None:
            artifact = intake.to_artifact(mime, tool, self._now())
            with _translate_errors("keeping a result"):
                _obstore().put(
                    self._store, f"{scope.key}/{artifact.sha256}", first, use_multipart=False
                )
        else:
            rest = chain((first, second), blocks)
            del first, second
            artifact = self._put_large(
                scope, rest, lambda: intake.to_artifact(mime, tool, self._now())
            )
        self._describe(scope, artifact)
        if self._unswept.is_due(artifact.size):
            self._sweep(keep=artifact.sha256)
        return artifact

    def _put_large(
        self, scope: Scope, blocks: Iterator[bytes], known: Callable[[], Artifact]
    ) -> Artifact:
        obstore = _obstore()
        draft = f"drafts/{token_hex(16)}"
        with _translate_errors("keeping a result"):
            writer = obstore.open_writer(
                self._store, draft, buffer_size=PART_BYTES, max_concurrency=2
            )
        try:
            try:
                for block in blocks:
                    with _translate_errors("keeping a result"):
                        writer.write(block)
            except BaseException:
                # The store does not forget an unfinished upload: finish it, then remove it.
                with suppress(*_error_types()):
                    writer.close()
                raise
            with _translate_errors("keeping a result"):
                writer.close()
                artifact = known()
                obstore.copy(self._store, draft, f"{scope.key}/{artifact.sha256}")
            return artifact
        finally:
            # If this fails, nobody can find the draft, and `sweep` removes it after a day.
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
        with _translate_errors("describing a result"):
            _obstore().put(self._store, path, encode_json(known).encode(), use_multipart=False)

    def delete(self, scope: Scope, reference: str) -> bool:
        """See `ArtifactStore.delete`."""
        try:
            path = f"{scope.key}/{parse_reference(reference)}"
        except ArtifactMissing:
            return False
        existed = self._size(path) is not None and self._size(f"{path}.json") is not None
        self._remove_artifact(path)
        return existed

    def _remove_artifact(self, path: str) -> None:
        # The description first: an artifact without one cannot be seen.
        self._remove(f"{path}.json")
        self._remove(path)

    def _remove(self, path: str) -> None:
        # For an object that does not exist, some stores report success, others that it is missing.
        with suppress(FileNotFoundError), _translate_errors("removing a result", missing_ok=True):
            _obstore().delete(self._store, path)

    # ---- reading

    def find(self, scope: Scope, reference: str) -> Artifact:
        """See `ArtifactStore.find`."""
        digest = parse_reference(reference)
        known = self._read_description(scope.key, digest)
        if known is None or self._size(f"{scope.key}/{digest}") != known.size:
            raise ArtifactMissing(reference)
        return known

    def read(self, scope: Scope, reference: str, offset: int, size: int) -> bytes:
        """See `ArtifactStore.read`."""
        known = self._read_description(scope.key, parse_reference(reference))
        if known is None:
            raise ArtifactMissing(reference)
        end = min(offset + size, known.size)
        return self._range(scope, reference, offset, end) if offset < end else b""

    def read_chunks(self, scope: Scope, reference: str, offset: int = 0) -> Iterator[bytes]:
        """See `ArtifactStore.read_chunks`."""
        size = self.find(scope, reference).size
        request_size = CHUNK_SIZE
        while offset < size:
            end = min(offset + request_size, size)
            data = memoryview(self._range(scope, reference, offset, end))
            for start in range(0, len(data), CHUNK_SIZE):
                yield bytes(data[start : start + CHUNK_SIZE])
            offset += len(data)
            # A request takes longer than its bytes: a reader who goes on gets more with each.
            request_size = min(2 * request_size, PART_BYTES // 2)

    def list(self, scope: Scope) -> list[Artifact]:
        """See `ArtifactStore.list`."""
        sizes = {path.rpartition("/")[2]: size for path, size, _ in self._list_objects(scope.key)}
        names = [name for name in sizes if f"{name}.json" in sizes]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="ferrule-artifacts") as threads:
            found = threads.map(partial(self._read_description, scope.key), names)
            complete = [one for one in found if one is not None and one.size == sizes[one.sha256]]
        return sorted(complete, key=lambda one: (one.made, one.sha256), reverse=True)

    def close(self) -> None:
        """Do nothing: connections belong to obstore and are closed with its store."""

    def _read_description(self, scope: str, digest: str) -> Artifact | None:
        try:
            with _translate_errors("looking for a result", missing_ok=True):
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
        path = f"{scope.key}/{parse_reference(reference)}"
        try:
            with _translate_errors("reading a result", missing_ok=True):
                return bytes(_obstore().get_range(self._store, path, start=start, end=end))
        except FileNotFoundError:
            raise ArtifactMissing(reference) from None

    def _size(self, path: str) -> int | None:
        try:
            with _translate_errors("looking for a result", missing_ok=True):
                return _obstore().head(self._store, path)["size"]
        except FileNotFoundError:
            return None

    def _list_objects(self, prefix: str | None = None) -> Iterator[tuple[str, int, float]]:
        """Yield path, size and time of the objects below a prefix.

        The time is in seconds since 1970, by the store's clock.
        """
        with _translate_errors("listing results"):
            for batch in _obstore().list(self._store, prefix):
                for item in batch:
                    yield item["path"], item["size"], item["last_modified"].timestamp()

    # ---- retention

    def sweep(self) -> int:
        """See `ArtifactStore.sweep`. Also removes what crashes left; lists the whole bucket."""
        return self._sweep()

    def _sweep(self, keep: str = "") -> int:
        now = self._now()
        oldest = -math.inf if self._days is None else now - self._days * DAY
        objects = {path: (size, time) for path, size, time in self._list_objects()}
        kept: list[tuple[float, str, int]] = []
        removed = 0
        for path, (size, modified) in objects.items():
            scope, _, name = path.partition("/")
            description = objects.get(f"{path}.json")
            if scope == "drafts" or (description is None and not name.endswith(".json")):
                if now - modified > DAY:
                    self._remove(path)
            elif description is not None:
                _, stored = description
                if stored < oldest and name != keep and self._remove_unless_newer(path, oldest):
                    removed += 1
                else:
                    kept.append((stored, path, size))
        return removed + self._shrink(sorted(kept), keep)

    def _shrink(self, kept: list[tuple[float, str, int]], keep: str) -> int:
        """Remove the oldest artifacts until the rest is within the limit."""
        total = sum(size for _, _, size in kept)
        removed = 0
        for stored, path, size in kept:
            if self._max_bytes is None or total <= self._max_bytes:
                break
            # Keep what was stored again since we listed it. One second more, for stores whose
            # times have no fractions.
            if not path.endswith(f"/{keep}") and self._remove_unless_newer(
                path, stored + 1, by_store=True
            ):
                removed += 1
                total -= size
        return removed

    def _remove_unless_newer(self, path: str, latest: float, *, by_store: bool = False) -> bool:
        """Remove an artifact, unless it was stored again after `latest`.

        When that was is taken from its description, or with `by_store` from the store's clock.
        """
        scope, _, digest = path.rpartition("/")
        if by_store:
            with (
                suppress(FileNotFoundError),
                _translate_errors("looking for a result", missing_ok=True),
            ):
                description = _obstore().head(self._store, f"{path}.json")
                if description["last_modified"].timestamp() > latest:
                    return False
        else:
            known = self._read_description(scope, digest)
            if known is not None and known.made / 1000 > latest:
                return False
        self._remove_artifact(path)
        return True


def _open_store(url: str) -> ObjectStore:
    scheme = url.partition("://")[0].lower()
    if "://" not in url or scheme not in SCHEMES:
        listed = ", ".join(f"`{one}://`" for one in ("s3", "gs", "az", "file"))
        raise ConfigError(
            f"artifacts cannot be kept in `{_redact_url(url)}`", hint=f"use {listed}, or a folder"
        )
    host = url.partition("://")[2].partition("/")[0]
    if "@" in host and scheme not in ("abfs", "abfss"):
        raise ConfigError(
            f"`{_redact_url(url)}` contains a key",
            hint="put keys into the environment, such as AWS_ACCESS_KEY_ID",
        )
    if scheme == "file":
        paths.make_private_folder(Path(url.partition("://")[2]))
    _obstore()
    from obstore.store import from_url

    client: Any = {"timeout": _TIMEOUT, "connect_timeout": "10s"}
    retry: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}
    try:
        if scheme in ("file", "memory"):
            return from_url(url)
        return from_url(url, client_options=client, retry_config=retry)
    except (*_error_types(), ValueError) as error:
        raise ConfigError(
            f"artifacts cannot be kept in `{_redact_url(url)}`: {_first_line(error)}"
        ) from error


def _redact_url(url: str) -> str:
    """Return a URL without what comes before an `@`."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"[:200]


@contextmanager
def _translate_errors(doing: str, *, missing_ok: bool = False) -> Generator[None]:
    """Raise obstore's errors as ours. With `missing_ok`, FileNotFoundError stays as it is."""
    try:
        yield
    except _error_types() as error:
        if missing_ok and isinstance(error, FileNotFoundError):
            raise
        raise ArtifactsUnavailable(f"{doing}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    # Further lines are for debugging the store, and may contain requests.
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _error_types() -> tuple[type[Exception], ...]:
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
