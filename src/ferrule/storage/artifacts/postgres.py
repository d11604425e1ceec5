"""Artifacts in PostgreSQL, in chunks: for journals in PostgreSQL and results of some megabytes.

A row of `artifacts` describes one, rows of `chunks` contain its bytes, `PIECE` each. What fits into
one batch is stored by one statement. More is written batch by batch under a row without a hash,
which nobody can find, and gets its hash with the last statement; no transaction stays open while a
slow source is read. A process that dies leaves such a row, and `sweep` removes it after a day.
Reading takes one chunk at a time.

Not protected: against roles that may read the tables. Workers need no right to change or remove
chunks (`grant_script` in `postgres_schema`); those are removed with their artifact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ferrule.core.errors import FerruleError
from ferrule.storage.journal.postgres_connection import SECONDS, PostgresConnection, Rows

from .intake import ArtifactsUnavailable, Intake, SweepSchedule
from .store import CHUNK_SIZE, Artifact, ArtifactMissing, Scope, parse_reference

BATCH_CHUNKS = 4
"""Chunks that are sent at once: with their copies being sent, what a `put` holds in memory."""
DAY = 86_400_000
_REMOVED_AT_ONCE = 20
"""Artifacts that are removed at once: a statement must end in time."""

_KEEP = """
WITH kept AS (
    INSERT INTO {s}.artifacts (scope, sha256, size, mime, lines, made, tool)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (scope, sha256) DO UPDATE
    SET made = excluded.made, mime = excluded.mime, tool = excluded.tool
    RETURNING no
)
INSERT INTO {s}.chunks (artifact, part, data)
SELECT kept.no, piece.part, piece.data
FROM kept, unnest(%s::integer[], %s::bytea[]) AS piece (part, data)
ON CONFLICT DO NOTHING
"""
_BEGIN = "INSERT INTO {s}.artifacts (scope, made) VALUES (%s, %s) RETURNING no"
_CHUNKS = """
INSERT INTO {s}.chunks (artifact, part, data)
SELECT %s, piece.part, piece.data FROM unnest(%s::integer[], %s::bytea[]) AS piece (part, data)
ON CONFLICT DO NOTHING
"""
_FINISH = """
UPDATE {s}.artifacts SET sha256 = %s, size = %s, mime = %s, lines = %s, made = %s, tool = %s
WHERE no = %s AND (sha256 IS NULL OR sha256 = %s) RETURNING no
"""
_TOUCH = (
    "UPDATE {s}.artifacts SET made = %s, mime = %s, tool = %s WHERE scope = %s AND sha256 = %s "
    "RETURNING no"
)
_DISCARD = "DELETE FROM {s}.artifacts WHERE no = %s AND sha256 IS NULL"
_DELETE = "DELETE FROM {s}.artifacts WHERE scope = %s AND sha256 = %s RETURNING no"
_FIND = (
    "SELECT sha256, size, mime, lines, made, tool, no FROM {s}.artifacts WHERE scope = %s AND "
    "sha256 = %s"
)
_LIST = """
SELECT sha256, size, mime, lines, made, tool FROM {s}.artifacts
WHERE scope = %s AND sha256 IS NOT NULL
ORDER BY made DESC, sha256 DESC
"""
_PART = "SELECT substring(data FROM %s FOR %s) FROM {s}.chunks WHERE artifact = %s AND part = %s"
_DELETE_UNFINISHED = """
DELETE FROM {s}.artifacts WHERE no IN (
    SELECT no FROM {s}.artifacts WHERE sha256 IS NULL AND made < %s LIMIT %s
) RETURNING no
"""
_DELETE_EXPIRED = """
DELETE FROM {s}.artifacts WHERE no IN (
    SELECT no FROM {s}.artifacts WHERE sha256 IS NOT NULL AND made < %s AND sha256 <> %s
    ORDER BY made LIMIT %s
) AND made < %s RETURNING no
"""
_DELETE_SURPLUS = """
DELETE FROM {s}.artifacts WHERE no IN (
    SELECT no FROM (
        SELECT no, made, sha256,
               sum(size) OVER (ORDER BY sha256 = %s DESC, made DESC, no DESC) AS upto
        FROM {s}.artifacts WHERE sha256 IS NOT NULL
    ) newest WHERE upto > %s AND sha256 <> %s ORDER BY made, no LIMIT %s
) RETURNING no
"""
_ALL = (
    _KEEP,
    _BEGIN,
    _CHUNKS,
    _FINISH,
    _TOUCH,
    _DISCARD,
    _DELETE,
    _FIND,
    _LIST,
    _PART,
    _DELETE_UNFINISHED,
    _DELETE_EXPIRED,
    _DELETE_SURPLUS,
)


class PostgresArtifactStore:
    """An `ArtifactStore` in a PostgreSQL database.

    It connects, and creates its tables, on first use; see `PostgresJournal` for `dsn` and
    `seconds`. `max_bytes` limits all scopes together, `days` the age; either may be None. `now` is
    the clock in seconds since 1970.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "ferrule",
        max_bytes: int | None = 1 << 30,
        days: float | None = 30.0,
        seconds: float = SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._db = PostgresConnection(
            dsn,
            part="artifacts",
            kind=ArtifactsUnavailable,
            prefix="artifacts",
            schema=schema,
            seconds=seconds,
        )
        self._sql = {sql: sql.format(s=f'"{schema}"') for sql in _ALL}
        self._max_bytes = max_bytes
        self._days = days
        self._now = now
        self._unswept = SweepSchedule(max_bytes)

    # ---- writing

    def put(
        self, scope: Scope, parts: Iterable[bytes], *, mime: str = "text/plain", tool: str = ""
    ) -> Artifact:
        """See `ArtifactStore.put`."""
        intake = Intake(self._max_bytes)
        blocks = intake.blocks(parts, CHUNK_SIZE)
        first = list(islice(blocks, BATCH_CHUNKS))
        if len(first) < BATCH_CHUNKS:
            artifact = intake.to_artifact(mime, tool, self._now())
            known = (artifact.size, artifact.mime, artifact.lines, artifact.made, artifact.tool)
            self._query(_KEEP, scope.key, artifact.sha256, *known, list(range(len(first))), first)
        else:
            artifact = self._put_large(
                scope, first, blocks, lambda: intake.to_artifact(mime, tool, self._now())
            )
        if self._unswept.is_due(artifact.size):
            self._sweep(keep=artifact.sha256)
        return artifact

    def _put_large(
        self,
        scope: Scope,
        batch: list[bytes],
        blocks: Iterator[bytes],
        known: Callable[[], Artifact],
    ) -> Artifact:
        no = self._query(_BEGIN, scope.key, int(self._now() * 1000))[0][0]
        try:
            written = 0
            while batch:
                self._query(_CHUNKS, no, list(range(written, written + len(batch))), batch)
                written += len(batch)
                batch = list(islice(blocks, BATCH_CHUNKS))
            artifact = known()
            self._finish(scope, no, artifact)
        except BaseException:
            self._discard(no)
            raise
        return artifact

    def _finish(self, scope: Scope, no: int, artifact: Artifact) -> None:
        """Give the written bytes their hash.

        If the scope has these bytes already, that artifact becomes young and the new bytes are
        removed.
        """
        digest, size, mime, lines = artifact.sha256, artifact.size, artifact.mime, artifact.lines
        made, tool = artifact.made, artifact.tool
        for _ in range(10):
            try:
                if not self._query(_FINISH, digest, size, mime, lines, made, tool, no, digest):
                    raise ArtifactsUnavailable(
                        "a sweep removed the artifact before it was complete: that took over a day"
                    )
                return
            except ArtifactsUnavailable as error:
                if error.code != "artifacts_conflict":
                    raise
            if self._query(_TOUCH, made, mime, tool, scope.key, digest):
                self._discard(no)
                return
        raise ArtifactsUnavailable(
            "other processes keep storing and removing the same bytes", retryable=True
        )

    def _discard(self, no: int) -> None:
        try:
            self._query(_DISCARD, no)
        except FerruleError:
            # Nobody can find it, and `sweep` removes it after a day. The error that made us discard
            # it is the more useful one.
            self._db.disconnect()

    def delete(self, scope: Scope, reference: str) -> bool:
        """See `ArtifactStore.delete`."""
        try:
            return bool(self._query(_DELETE, scope.key, parse_reference(reference)))
        except ArtifactMissing:
            return False

    # ---- reading

    def find(self, scope: Scope, reference: str) -> Artifact:
        """See `ArtifactStore.find`."""
        return self._find(scope, reference)[0]

    def read(self, scope: Scope, reference: str, offset: int, size: int) -> bytes:
        """See `ArtifactStore.read`."""
        artifact, no = self._find(scope, reference)
        end = min(offset + size, artifact.size)
        data = bytearray()
        while offset + len(data) < end:
            data += self._read_chunk(reference, no, offset + len(data), end)
        return bytes(data)

    def read_chunks(self, scope: Scope, reference: str, offset: int = 0) -> Iterator[bytes]:
        """See `ArtifactStore.read_chunks`."""
        artifact, no = self._find(scope, reference)
        while offset < artifact.size:
            piece = self._read_chunk(reference, no, offset, artifact.size)
            yield piece
            offset += len(piece)

    def list(self, scope: Scope) -> list[Artifact]:
        """See `ArtifactStore.list`."""
        return [Artifact(*row) for row in self._query(_LIST, scope.key)]

    def close(self) -> None:
        """See `ArtifactStore.close`."""
        self._db.close()

    def _find(self, scope: Scope, reference: str) -> tuple[Artifact, int]:
        rows = self._query(_FIND, scope.key, parse_reference(reference))
        if not rows:
            raise ArtifactMissing(reference)
        *known, no = rows[0]
        return Artifact(*known), no

    def _read_chunk(self, reference: str, no: int, start: int, end: int) -> bytes:
        """Return bytes from `start` to `end`, or to the end of the chunk.

        Raises ArtifactMissing if the artifact was removed meanwhile.
        """
        part, within = divmod(start, CHUNK_SIZE)
        rows = self._query(_PART, within + 1, min(end - start, CHUNK_SIZE - within), no, part)
        if not rows or not rows[0][0]:
            raise ArtifactMissing(reference)
        return rows[0][0]

    # ---- retention

    def sweep(self) -> int:
        """See `ArtifactStore.sweep`. Also removes what crashed processes left behind."""
        return self._sweep()

    def _sweep(self, keep: str = "") -> int:
        now = int(self._now() * 1000)
        self._remove(_DELETE_UNFINISHED, now - DAY)
        removed = 0
        if self._days is not None:
            before = now - int(self._days * DAY)
            removed += self._remove(_DELETE_EXPIRED, before, keep, after=(before,))
        if self._max_bytes is not None:
            removed += self._remove(_DELETE_SURPLUS, keep, self._max_bytes, keep)
        return removed

    def _remove(self, sql: str, *values: Any, after: Sequence[Any] = ()) -> int:
        removed = 0
        while rows := self._query(sql, *values, _REMOVED_AT_ONCE, *after):
            removed += len(rows)
        return removed

    def _query(self, sql: str, *values: Any) -> Rows:
        # Each statement has the same effect when it is done twice, so it is repeated when a
        # connection is lost.
        return self._db.query(self._sql[sql], values, doing="keeping results")
