"""Artifacts in PostgreSQL: the shared contract, and what only a server can show."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from cluster import Cluster
from faulty import AFTER, BEFORE, PASS, Faulty
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifact_retention import ArtifactRetention, Days
from ferrule.core.errors import FerruleError
from ferrule.storage.artifacts.postgres import PostgresArtifactStore
from ferrule.storage.artifacts.store import (
    ArtifactMissing,
    ArtifactStore,
    ArtifactTooLarge,
)
from ferrule.storage.journal.postgres_schema import create_script, grant_script
from ferrule.testing.artifact_conformance import MINE, ArtifactConformance

BATCH_CHUNKS = 4
DAY = 24 * 60 * 60 * 1000
CHUNK_SIZE = 256 * 1024

Sql = Callable[..., list[tuple[object, ...]]]
LARGE = CHUNK_SIZE * BATCH_CHUNKS


class TestPostgres(ArtifactConformance):
    @pytest.fixture(autouse=True)
    def _database(self, dsn: str, schema: str) -> None:
        self.dsn, self.schema = dsn, schema

    def open_store(self) -> ArtifactStore:
        return PostgresArtifactStore(self.dsn, schema=self.schema, seconds=60)


class TestRetention(ArtifactRetention):
    @pytest.fixture(autouse=True)
    def _database(self, dsn: str, schema: str, sql: Sql) -> None:
        self.dsn, self.schema, self.sql = dsn, schema, sql

    def open_limited(
        self, clock: Days, *, days: int | None = None, max_bytes: int | None = None
    ) -> ArtifactStore:
        return PostgresArtifactStore(
            self.dsn, schema=self.schema, seconds=60, days=days, max_bytes=max_bytes, now=clock
        )

    def is_empty(self) -> bool:
        return self.sql("SELECT count(*) FROM chunks") == [(0,)]


@pytest.fixture
def store(dsn: str, schema: str) -> Iterator[PostgresArtifactStore]:
    one = PostgresArtifactStore(dsn, schema=schema, seconds=60)
    yield one
    one.close()


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.integers(0, 40_000)), max_size=5),
    st.integers(0, 2 * CHUNK_SIZE),
    st.integers(0, 2 * CHUNK_SIZE),
)
def test_any_range_of_any_bytes_comes_back(
    store: PostgresArtifactStore, repeated: list[tuple[bytes, int]], offset: int, size: int
) -> None:
    parts = [piece * times for piece, times in repeated]
    whole = b"".join(parts)
    kept = store.put(MINE, parts)
    assert (kept.sha256, kept.size) == (hashlib.sha256(whole).hexdigest(), len(whole))
    assert store.read(MINE, kept.reference, offset, size) == whole[offset : offset + size]
    assert b"".join(store.read_chunks(MINE, kept.reference, offset)) == whole[offset:]


@pytest.mark.parametrize("size", [LARGE - 1, LARGE, LARGE + 1, 3 * LARGE])
def test_what_is_about_a_batch_is_kept_once_however_often(
    store: PostgresArtifactStore, sql: Sql, size: int
) -> None:
    parts = [b"x" * 1000] * (size // 1000) + [b"y" * (size % 1000)]
    first, second = store.put(MINE, parts), store.put(MINE, [b"".join(parts)], mime="text/csv")
    assert first.sha256 == second.sha256
    assert store.find(MINE, first.reference) == second
    assert b"".join(store.read_chunks(MINE, first.reference)) == b"".join(parts)
    assert sql("SELECT count(*) FROM artifacts") == [(1,)]
    assert sql("SELECT sum(length(data)) FROM chunks") == [(size,)]


GROWN = """
import resource, sys
from ferrule.storage.artifacts.postgres import PostgresArtifactStore
from ferrule.storage.artifacts.store import CHUNK_SIZE
from ferrule.testing.artifact_conformance import MINE
store, piece = PostgresArtifactStore(sys.argv[1], schema=sys.argv[2]), b"x" * CHUNK_SIZE
store.put(MINE, [piece] * 9)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept = store.put(MINE, (piece for _ in range(80)))
assert kept.size == sum(map(len, store.read_chunks(MINE, kept.reference))) == 80 * CHUNK_SIZE
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_a_large_artifact_is_written_and_read_in_bounded_memory(dsn: str, schema: str) -> None:
    command = [sys.executable, "-c", GROWN, dsn, schema]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert int(ran.stdout) < 12 << 20


DIES = """
import os, signal, sys
from ferrule.storage.artifacts.postgres import BATCH_CHUNKS, PostgresArtifactStore
from ferrule.storage.artifacts.store import CHUNK_SIZE
from ferrule.testing.artifact_conformance import MINE
def parts():
    yield b"x" * (CHUNK_SIZE * BATCH_CHUNKS * 2)
    os.kill(os.getpid(), signal.SIGKILL)
PostgresArtifactStore(sys.argv[1], schema=sys.argv[2]).put(MINE, parts())
"""


def test_a_process_that_dies_while_it_keeps_leaves_nothing_to_be_seen(
    dsn: str, schema: str, sql: Sql
) -> None:
    ran = subprocess.run([sys.executable, "-c", DIES, dsn, schema], check=False, timeout=60)
    assert ran.returncode == -signal.SIGKILL
    assert sql("SELECT count(*) > 0 FROM chunks") == [(True,)]
    clock = Days()
    (made,) = sql("SELECT made FROM artifacts")[0]
    assert isinstance(made, int)
    clock.seconds = made / 1000
    store = PostgresArtifactStore(dsn, schema=schema, seconds=60, now=clock)
    assert store.list(MINE) == []
    # It might be somebody's who still writes: it goes when it is a day old.
    assert store.sweep() == 0 and sql("SELECT count(*) FROM artifacts") == [(1,)]
    clock.seconds += DAY / 1000 + 1
    assert store.sweep() == 0
    assert sql("SELECT count(*) FROM artifacts") == sql("SELECT count(*) FROM chunks") == [(0,)]
    store.close()


def test_too_much_that_came_piece_by_piece_is_not_kept_and_not_read_to_its_end(
    dsn: str, schema: str, sql: Sql
) -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"x" * CHUNK_SIZE

    store = PostgresArtifactStore(dsn, schema=schema, seconds=60, max_bytes=2 * LARGE)
    with pytest.raises(ArtifactTooLarge):
        store.put(MINE, endless())
    assert read == 2 * BATCH_CHUNKS + 1
    assert sql("SELECT count(*) FROM artifacts") == [(0,)]
    store.close()


def test_an_artifact_that_is_removed_while_it_is_read_is_missing(
    store: PostgresArtifactStore,
) -> None:
    kept = store.put(MINE, [b"x" * 3 * CHUNK_SIZE])
    reading = store.read_chunks(MINE, kept.reference)
    assert len(next(reading)) == CHUNK_SIZE
    store.delete(MINE, kept.reference)
    with pytest.raises(ArtifactMissing):
        next(reading)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from([PASS, BEFORE, AFTER]), max_size=5),
    st.sampled_from([1, LARGE - 1, LARGE + 9]),
)
def test_however_the_line_breaks_an_artifact_is_whole(
    faulty: Faulty, schema: str, plan: list[str], size: int
) -> None:
    faulty.plan.clear()
    store = PostgresArtifactStore(faulty.dsn, schema=schema, seconds=60)
    assert store.delete(MINE, "art-" + "0" * 64) is False
    faulty.plan.extend(plan)
    kept = store.put(MINE, [b"x" * size])
    assert b"".join(store.read_chunks(MINE, kept.reference)) == b"x" * size
    faulty.plan.clear()
    store.close()


@pytest.mark.parametrize("word", [BEFORE, AFTER])
@pytest.mark.parametrize("again", [False, True])
def test_a_line_that_breaks_at_the_last_statement_leaves_one_artifact(
    faulty: Faulty, schema: str, sql: Sql, word: str, again: bool
) -> None:
    def parts() -> Iterator[bytes]:
        yield b"x" * 2 * LARGE
        # Asked for more, with everything written but the end.
        faulty.plan.append(word)

    store = PostgresArtifactStore(faulty.dsn, schema=schema, seconds=60)
    for _ in range(1 + again):
        kept = store.put(MINE, parts())
    assert faulty.plan == type(faulty.plan)()
    assert store.find(MINE, kept.reference) == kept and store.list(MINE) == [kept]
    assert sql("SELECT count(*), (SELECT count(*) FROM chunks) FROM artifacts") == [
        (1, 2 * BATCH_CHUNKS)
    ]
    store.close()


def test_the_same_bytes_kept_and_removed_by_many_at_once_are_whole_or_missing(
    dsn: str, schema: str
) -> None:
    data = b"x" * (LARGE + 5)
    stores = [PostgresArtifactStore(dsn, schema=schema, seconds=60) for _ in range(4)]
    wrong: list[object] = []

    def work(store: PostgresArtifactStore, number: int) -> None:
        for _ in range(5):
            kept = store.put(MINE, [data])
            try:
                if store.read(MINE, kept.reference, 0, len(data)) != data:
                    wrong.append(number)
            except ArtifactMissing:
                pass
            if number % 2:
                store.delete(MINE, kept.reference)

    threads = [threading.Thread(target=work, args=(store, n)) for n, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == [] and not any(thread.is_alive() for thread in threads)
    for store in stores:
        store.close()


def test_a_worker_needs_no_right_to_change_chunks(cluster: Cluster, schema: str) -> None:
    import psycopg

    role = f"worker_{schema}"
    cluster.sql(create_script(schema, "artifacts"))
    cluster.sql(f"CREATE ROLE {role} LOGIN; " + grant_script(role, schema, "artifacts"))
    try:
        store = PostgresArtifactStore(cluster.dsn(role), schema=schema, seconds=60)
        kept = store.put(MINE, [b"x" * (LARGE + 1)])
        assert store.put(MINE, [b"small"]).size == 5
        assert store.delete(MINE, kept.reference) is True and store.sweep() == 0
        store.close()
        with psycopg.connect(cluster.dsn(role), autocommit=True) as connection:
            for statement in ("UPDATE {s}.chunks SET data = ''", "DELETE FROM {s}.chunks"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.replace("{s}", f'"{schema}"').encode())
    finally:
        cluster.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_database_that_is_not_there_is_an_error_that_says_nothing_of_an_artifact() -> None:
    store = PostgresArtifactStore("postgresql://me:s3cret@127.0.0.1:1/none", seconds=2)
    with pytest.raises(FerruleError, match="cannot be reached") as refused:
        store.put(MINE, [b"x"])
    assert refused.value.code == "artifacts_unreachable" and "s3cret" not in str(refused.value)
    with pytest.raises(FerruleError) as unread:
        store.read(MINE, "art-" + "0" * 64, 0, 1)
    assert not isinstance(unread.value, ArtifactMissing)
    store.close()
    with pytest.raises(FerruleError, match="closed"):
        store.put(MINE, [b"x"])
