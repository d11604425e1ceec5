"""Artifacts in PostgreSQL, in chunks: for where the journal is there already and results are some
megabytes, not gigabytes.

A row of `artifacts` says what is known of one, rows of `chunks` hold its bytes, `PIECE` each. What
fits into one batch is kept by one statement. More is written batch by batch under a row without a
hash, which nobody can find, and gets its hash with the last statement; no transaction stays open
while a slow source is read. A process that dies leaves such a row, and `sweep` removes it after a
day. Reading takes one chunk at a time.

Not protected: against roles that may read the tables. Workers need no right to change or remove
chunks (`grants` in `postgres_schema`); they go with their artifact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ferrule.core.errors import FerruleError
from ferrule.storage.journal.postgres_connection import SECONDS, Postgres, Rows

from .intake import ArtifactsUnavailable, Intake, Unswept
from .store import PIECE, Artifact, ArtifactMissing, Scope, hash_of

BATCH = 4
"""Chunks that go to the server at once: with their copies on the way, what a `put` holds in memory.
"""
DAY = 86_400_000
_FEW = 20
"""Artifacts that are removed at once: a statement must end in time."""

_KEEP = """
WITH kept AS (
    INSERT INTO {s}.artifacts (scope, sha256, size, mime, lines, made, tool) VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (scope, sha256) DO UPDATE SET made = excluded.made, mime = excluded.mime, tool = excluded.tool
    RETURNING no
)
INSERT INTO {s}.chunks (artifact, part, data)
SELECT kept.no, piece.part, piece.data FROM kept, unnest(%s::integer[], %s::bytea[]) AS piece (part, data)
ON CONFLICT DO NOTHING
"""
_BEGIN = "INSERT INTO {s}.artifacts (scope, made) VALUES (%s, %s) RETURNING no"
_CHUNKS = """
INSERT INTO {s}.chunks (artifact, part, data)
SELECT %s, piece.part, piece.data FROM unnest(%s::integer[], %s::bytea[]) AS piece (part, data) ON CONFLICT DO NOTHING
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
SELECT sha256, size, mime, lines, made, tool FROM {s}.artifacts WHERE scope = %s AND sha256 IS NOT NULL
ORDER BY made DESC, sha256 DESC
"""
_PART = "SELECT substring(data FROM %s FOR %s) FROM {s}.chunks WHERE artifact = %s AND part = %s"
_LEFT = """
DELETE FROM {s}.artifacts WHERE no IN (SELECT no FROM {s}.artifacts WHERE sha256 IS NULL AND made < %s LIMIT %s) RETURNING no
"""
_OLD = """
DELETE FROM {s}.artifacts WHERE no IN (
    SELECT no FROM {s}.artifacts WHERE sha256 IS NOT NULL AND made < %s AND sha256 <> %s ORDER BY made LIMIT %s
) AND made < %s RETURNING no
"""
_MORE = """
DELETE FROM {s}.artifacts WHERE no IN (
    SELECT no FROM (
        SELECT no, made, sha256, sum(size) OVER (ORDER BY sha256 = %s DESC, made DESC, no DESC) AS upto
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
    _LEFT,
    _OLD,
    _MORE,
)


class PostgresArtifacts:
    """Fulfils `ArtifactStore`. Connects, and makes its tables, with the first use; see
    `PostgresJournal` for `dsn` and `seconds`.

    `max_bytes` bounds what all scopes hold together, `days` the age; either may be None. `now` is
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
        self._db = Postgres(
            dsn,
            part="artifacts",
            kind=ArtifactsUnavailable,
            prefix="artifacts",
            schema=schema,
            seconds=seconds,
        )
        self._sql = {sql: sql.format(s=f'"{schema}"') for sql in _ALL}
        self._max_bytes, self._days, self._now = max_bytes, days, now
        self._unswept = Unswept(max_bytes)

    # ---- writing

    def put(
        self, scope: Scope, parts: Iterable[bytes], *, mime: str = "text/plain", tool: str = ""
    ) -> Artifact:
        """See `ArtifactStore.put`."""
        intake = Intake(self._max_bytes)
        blocks = intake.blocks(parts, PIECE)
        first = list(islice(blocks, BATCH))
        if len(first) < BATCH:
            artifact = intake.artifact(mime, tool, self._now())
            known = (artifact.size, artifact.mime, artifact.lines, artifact.made, artifact.tool)
            self._ask(_KEEP, scope.key, artifact.sha256, *known, list(range(len(first))), first)
        else:
            artifact = self._put_large(
                scope, first, blocks, lambda: intake.artifact(mime, tool, self._now())
            )
        if self._unswept.due(artifact.size):
            self._sweep(keep=artifact.sha256)
        return artifact

    def _put_large(
        self,
        scope: Scope,
        batch: list[bytes],
        blocks: Iterator[bytes],
        known: Callable[[], Artifact],
    ) -> Artifact:
        no = self._ask(_BEGIN, scope.key, int(self._now() * 1000))[0][0]
        try:
            written = 0
            while batch:
                self._ask(_CHUNKS, no, list(range(written, written + len(batch))), batch)
                written += len(batch)
                batch = list(islice(blocks, BATCH))
            artifact = known()
            self._finish(scope, no, artifact)
        except BaseException:
            self._discard(no)
            raise
        return artifact

    def _finish(self, scope: Scope, no: int, artifact: Artifact) -> None:
        """Give what was written its hash; where the scope has these bytes already, they become
        young and ours go.
        """
        digest, size, mime, lines = artifact.sha256, artifact.size, artifact.mime, artifact.lines
        made, tool = artifact.made, artifact.tool
        for _ in range(10):
            try:
                if not self._ask(_FINISH, digest, size, mime, lines, made, tool, no, digest):
                    raise ArtifactsUnavailable(
                        "what was being kept was removed by a sweep: it took over a day"
                    )
                return
            except ArtifactsUnavailable as error:
                if error.code != "artifacts_conflict":
                    raise
            if self._ask(_TOUCH, made, mime, tool, scope.key, digest):
                self._discard(no)
                return
        raise ArtifactsUnavailable(
            "others keep and remove the same bytes all the time", retryable=True
        )

    def _discard(self, no: int) -> None:
        try:
            self._ask(_DISCARD, no)
        except FerruleError:
            # Nobody can find it, and `sweep` removes it after a day. What made us discard it is the
            # better error.
            self._db.drop()

    def delete(self, scope: Scope, reference: str) -> bool:
        """See `ArtifactStore.delete`."""
        try:
            return bool(self._ask(_DELETE, scope.key, hash_of(reference)))
        except ArtifactMissing:
            return False

    # ---- reading

    def find(self, scope: Scope, reference: str) -> Artifact:
        """See `ArtifactStore.find`."""
        return self._found(scope, reference)[0]

    def read(self, scope: Scope, reference: str, offset: int, size: int) -> bytes:
        """See `ArtifactStore.read`."""
        artifact, no = self._found(scope, reference)
        end, data = min(offset + size, artifact.size), bytearray()
        while offset + len(data) < end:
            data += self._part(reference, no, offset + len(data), end)
        return bytes(data)

    def pieces(self, scope: Scope, reference: str, offset: int = 0) -> Iterator[bytes]:
        """See `ArtifactStore.pieces`."""
        artifact, no = self._found(scope, reference)
        while offset < artifact.size:
            piece = self._part(reference, no, offset, artifact.size)
            yield piece
            offset += len(piece)

    def list(self, scope: Scope) -> list[Artifact]:
        """See `ArtifactStore.list`."""
        return [Artifact(*row) for row in self._ask(_LIST, scope.key)]

    def close(self) -> None:
        """See `ArtifactStore.close`."""
        self._db.close()

    def _found(self, scope: Scope, reference: str) -> tuple[Artifact, int]:
        rows = self._ask(_FIND, scope.key, hash_of(reference))
        if not rows:
            raise ArtifactMissing(reference)
        *known, no = rows[0]
        return Artifact(*known), no

    def _part(self, reference: str, no: int, start: int, end: int) -> bytes:
        """From `start` to `end`, or to the end of the chunk. Raises ArtifactMissing if it was
        removed meanwhile.
        """
        part, within = divmod(start, PIECE)
        rows = self._ask(_PART, within + 1, min(end - start, PIECE - within), no, part)
        if not rows or not rows[0][0]:
            raise ArtifactMissing(reference)
        return rows[0][0]

    # ---- retention

    def sweep(self) -> int:
        """See `ArtifactStore.sweep`. Also what crashed processes left behind."""
        return self._sweep()

    def _sweep(self, keep: str = "") -> int:
        now, gone = int(self._now() * 1000), 0
        self._remove(_LEFT, now - DAY)
        if self._days is not None:
            before = now - int(self._days * DAY)
            gone += self._remove(_OLD, before, keep, after=(before,))
        if self._max_bytes is not None:
            gone += self._remove(_MORE, keep, self._max_bytes, keep)
        return gone

    def _remove(self, sql: str, *values: Any, after: Sequence[Any] = ()) -> int:
        gone = 0
        while rows := self._ask(sql, *values, _FEW, *after):
            gone += len(rows)
        return gone

    def _ask(self, sql: str, *values: Any) -> Rows:
        # Each statement gives the same when it is done twice, so it is repeated where a connection
        # gets lost.
        return self._db.ask(self._sql[sql], values, doing="keeping results")
