"""The journal in PostgreSQL: the shared contract, and what only a server can show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

import pytest
from cluster import Cluster
from faulty import AFTER, BEFORE, PASS, Faulty
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule import Agent, Permissions, Scripted, Storage, tool
from ferrule.core.errors import ConfigError, JournalError, SessionNotFound
from ferrule.core.events import Event, Noticed, RunFinished, RunStarted
from ferrule.core.identity import Identity
from ferrule.models.scripted import calls, says
from ferrule.storage.audit.verification import verify_sessions
from ferrule.storage.export.jsonl import export_jsonl, import_jsonl
from ferrule.storage.journal.postgres import PostgresJournal
from ferrule.storage.journal.postgres_schema import MIGRATIONS, create_script, grant_script
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.journal_conformance import ME, STORY, JournalConformance

PAGE_ROWS = 128

Sql = Callable[..., list[tuple[object, ...]]]
LONG = 3600.0
"""A lease that no test outlives."""


class TestPostgres(JournalConformance):
    @pytest.fixture(autouse=True)
    def _database(self, dsn: str, schema: str) -> None:
        self.dsn, self.schema = dsn, schema

    def open_journal(self) -> Journal:
        return PostgresJournal(self.dsn, schema=self.schema, lease_seconds=LONG, seconds=60)

    def reopen(self, journal: Journal) -> Journal:
        return PostgresJournal(self.dsn, schema=self.schema, lease_seconds=LONG, seconds=60)


@pytest.fixture
def journal(dsn: str, schema: str) -> Iterator[PostgresJournal]:
    with PostgresJournal(dsn, schema=schema, lease_seconds=LONG, seconds=60) as one:
        yield one


@pytest.fixture
def other(dsn: str, schema: str) -> Iterator[PostgresJournal]:
    """The same journal on another machine."""
    with PostgresJournal(dsn, schema=schema, lease_seconds=LONG, seconds=60) as one:
        yield one


def note(text: object = "") -> list[Event]:
    return [Noticed("n", str(text))]


def texts(journal: Journal, session: str = "s1") -> list[str]:
    return [
        record.event.text
        for record in journal.records(session)
        if isinstance(record.event, Noticed)
    ]


# ---- the same chain


TEXT = st.text(max_size=30)
EVENTS = st.one_of(
    st.builds(Noticed, TEXT, st.text(st.characters(), max_size=30)),
    st.builds(RunStarted, TEXT),
    st.builds(RunFinished, st.sampled_from(["done", "limit"]), TEXT),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(EVENTS, min_size=1, max_size=4), min_size=1, max_size=4))
def test_the_same_events_have_the_same_hashes_as_in_sqlite(
    journal: PostgresJournal, batches: list[list[Event]]
) -> None:
    session = uuid4().hex
    with SqliteJournal(":memory:") as file:
        for batch in batches:
            at = [1_800_000_000_000] * len(batch)
            kept = journal.append(session, "r1", batch, identity=ME, times=at)
            assert kept == file.append(session, "r1", batch, identity=ME, times=at)
        assert list(journal.records(session)) == list(file.records(session))
        assert journal.head(session) == file.head(session)
        journal.verify(session)
        assert journal.find(session) == file.find(session)
    journal.release(session)


def test_sessions_go_from_a_file_to_the_database_and_back_with_their_hashes(
    journal: PostgresJournal, tmp_path: Path
) -> None:
    with SqliteJournal(tmp_path / "j.db") as file, SqliteJournal(":memory:") as back:
        file.append("s1", "r1", STORY, identity=ME)
        file.append("s1", "r2", STORY[1:], identity=ME)
        exported = list(export_jsonl(file.records("s1")))
        assert import_jsonl(journal, exported) == ["s1"]
        assert list(export_jsonl(journal.records("s1"))) == exported
        assert import_jsonl(back, export_jsonl(journal.records("s1"))) == ["s1"]
        assert back.head("s1") == file.head("s1") == journal.head("s1")
        with pytest.raises(JournalError, match="already"):
            import_jsonl(journal, exported)


# ---- one writer


def test_a_writer_whose_session_was_taken_over_writes_nothing_more_until_it_takes_it_anew(
    journal: PostgresJournal, other: PostgresJournal, sql: Sql
) -> None:
    journal.append("s1", "r1", note("one"), identity=ME)
    with pytest.raises(JournalError, match="in use"):
        other.append("s1", "r2", note("early"), identity=ME)
    sql("UPDATE sessions SET until = clock_timestamp() - interval '1 second'")
    other.append("s1", "r2", note("two"), identity=ME)
    for _ in range(2):
        with pytest.raises(JournalError, match="taken over") as refused:
            journal.append("s1", "r1", note("stale"), identity=ME)
        assert refused.value.code == "journal_leased"
    other.release("s1")
    # The other one is gone, but what this one believes of the session is still out of date.
    with pytest.raises(JournalError, match="taken over"):
        journal.append("s1", "r1", note("stale"), identity=ME)
    journal.lease("s1")
    journal.append("s1", "r1", note("three"), identity=ME)
    assert texts(other) == ["one", "two", "three"]
    other.verify("s1")


@pytest.mark.parametrize("begun", [True, False])
def test_a_writer_is_refused_also_where_the_one_that_took_over_has_written_nothing_yet(
    journal: PostgresJournal, other: PostgresJournal, sql: Sql, begun: bool
) -> None:
    journal.lease("s1")
    if begun:
        journal.append("s1", "r1", note("one"), identity=ME)
    sql("UPDATE sessions SET until = clock_timestamp() - interval '1 second'")
    other.lease("s1")
    with pytest.raises(JournalError, match="taken over"):
        journal.append("s1", "r1", note("stale"), identity=ME)
    journal.release("s1")
    other.append("s1", "r2", note("two"), identity=ME)
    assert texts(other) == (["one"] if begun else []) + ["two"]
    with pytest.raises(JournalError, match="in use"):
        journal.lease("s1")


def test_an_expired_lease_that_nobody_wanted_is_still_good(
    journal: PostgresJournal, other: PostgresJournal, sql: Sql
) -> None:
    journal.append("s1", "r1", note("one"), identity=ME)
    sql("UPDATE sessions SET until = clock_timestamp() - interval '1 day'")
    journal.append("s1", "r1", note("two"), identity=ME)
    with pytest.raises(JournalError, match="in use"):
        other.lease("s1")
    assert texts(journal) == ["one", "two"]


WRITER = """
import sys
from ferrule.core.errors import JournalError
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.storage.journal.postgres import PostgresJournal
journal = PostgresJournal(sys.argv[1], schema=sys.argv[2], lease_seconds=float(sys.argv[4]), seconds=60)
who = Identity("local", "me", sys.argv[3], "r1")
for line in sys.stdin:
    try:
        print(journal.append(sys.argv[3], "r1", [Noticed("n", line.strip())], identity=who)[-1].seq, flush=True)
    except JournalError as error:
        print(error.code, flush=True)
"""


class Writer:
    """A worker in a process of its own that appends what it is told."""

    def __init__(self, dsn: str, schema: str, session: str = "s1", lease: float = LONG) -> None:
        command = [sys.executable, "-c", WRITER, dsn, schema, session, str(lease)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def say(self, text: str) -> None:
        stdin: IO[str] | None = self.process.stdin
        assert stdin is not None
        stdin.write(f"{text}\n")
        stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def worker(dsn: str, schema: str) -> Iterator[Writer]:
    one = Writer(dsn, schema)
    yield one
    one.end()


def test_a_frozen_process_that_wakes_after_its_lease_records_nothing(
    worker: Writer, journal: PostgresJournal, sql: Sql
) -> None:
    worker.say("before")
    assert worker.hear() == "1"
    os.kill(worker.process.pid, signal.SIGSTOP)
    try:
        worker.say("after")
        with pytest.raises(JournalError, match="in use"):
            journal.lease("s1")
        sql("UPDATE sessions SET until = clock_timestamp() - interval '1 second'")
        journal.append("s1", "r2", note("taken over"), identity=ME)
    finally:
        os.kill(worker.process.pid, signal.SIGCONT)
    assert worker.hear() == "journal_leased"
    assert texts(journal) == ["before", "taken over"]
    journal.verify("s1")


@pytest.mark.proves("postgres.survives-kill")
def test_what_a_killed_process_was_told_is_recorded_is_there_and_its_session_is_free_when_the_lease_runs_out(
    worker: Writer, journal: PostgresJournal, sql: Sql
) -> None:
    for number in range(1, 21):
        worker.say(str(number))
    heard = [worker.hear() for _ in range(7)]
    worker.process.send_signal(signal.SIGKILL)
    worker.end()
    assert heard == [str(number) for number in range(1, 8)]
    with pytest.raises(JournalError, match="in use") as refused:
        journal.lease("s1")
    assert refused.value.retryable
    sql("UPDATE sessions SET until = clock_timestamp() - interval '1 second'")
    journal.append("s1", "r2", note("after"), identity=ME)
    journal.verify("s1")
    kept = texts(journal)
    assert kept == [*(str(number) for number in range(1, len(kept))), "after"] and len(kept) >= 8


def test_a_session_that_waits_is_kept_by_renewing_its_lease(cluster: Cluster, schema: str) -> None:
    import psycopg

    with PostgresJournal(cluster.dsn(), schema=schema, lease_seconds=0.3, seconds=60) as journal:
        journal.append("s1", "r1", note(), identity=ME)
        with psycopg.connect(cluster.dsn(), autocommit=True) as watching:
            watching.execute("LISTEN renewed")
            cluster.sql(
                "CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN PERFORM pg_notify('renewed', NEW.session); RETURN NULL; END $$;"
                "CREATE TRIGGER told AFTER UPDATE ON sessions FOR EACH ROW EXECUTE FUNCTION told()",
                schema=schema,
            )
            heard = list(watching.notifies(timeout=60, stop_after=2))
        assert [one.payload for one in heard] == ["s1", "s1"]
    # Closed: nothing is held, and nobody renews.
    assert cluster.sql("SELECT holder, until FROM sessions", schema=schema) == [(None, None)]


def test_one_of_many_that_want_a_session_at_once_gets_it(dsn: str, schema: str) -> None:
    journals = [
        PostgresJournal(dsn, schema=schema, lease_seconds=LONG, seconds=60) for _ in range(8)
    ]
    start = threading.Barrier(len(journals))

    def want(number: int) -> str:
        start.wait(30)
        try:
            journals[number].append("s1", "r1", note(number), identity=ME)
        except JournalError as error:
            return error.code if error.code == "journal_leased" else str(error)
        return "mine"

    with ThreadPoolExecutor(len(journals)) as threads:
        said = sorted(threads.map(want, range(len(journals))))
    for one in journals:
        one.close()
    # They all found an empty database, too: one of them made the tables.
    assert said == ["journal_leased"] * 7 + ["mine"]


def test_sessions_of_many_threads_and_processes_do_not_hold_each_other_up(
    dsn: str, schema: str
) -> None:
    workers = [Writer(dsn, schema, f"p{number}") for number in range(2)]
    with PostgresJournal(dsn, schema=schema, seconds=60) as journal:

        def work(name: str) -> None:
            for number in range(40):
                journal.append(name, "r1", [*note(number), *note()], identity=ME)
                assert sum(1 for _ in journal.records(name)) == 2 * number + 2

        with ThreadPoolExecutor(4) as threads:
            done = threads.map(work, [f"t{number}" for number in range(4)])
            for number in range(40):
                for one in workers:
                    one.say(str(number))
            assert [[one.hear() for _ in range(40)] for one in workers] == [
                [str(n) for n in range(1, 41)]
            ] * 2
            list(done)
        for name in ("t0", "t1", "t2", "t3", "p0", "p1"):
            journal.verify(name)
        assert {info.events for info in journal.sessions()} == {80, 40}
    for one in workers:
        one.end()


def test_a_session_that_was_opened_and_never_used_leaves_nothing(
    journal: PostgresJournal, other: PostgresJournal, sql: Sql
) -> None:
    journal.lease("s1")
    assert other.sessions() == []
    with pytest.raises(JournalError, match="in use"):
        other.append("s1", "r1", note(), identity=ME)
    with pytest.raises(SessionNotFound):
        other.head("s1")
    journal.release("s1")
    assert sql("SELECT * FROM sessions") == []


# ---- lines that break


@contextmanager
def impatient(journal: PostgresJournal, seconds: float = 0.3) -> Generator[None]:
    """Calls give up early. The journal connected before with time enough: the machine may be
    slow.
    """
    journal._db.seconds = seconds
    yield
    journal._db.seconds = 60


WORDS = st.lists(st.sampled_from([PASS, BEFORE, AFTER]), max_size=4)


@pytest.mark.proves("postgres.exactly-once")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(1, 3), WORDS), min_size=1, max_size=4))
def test_however_the_line_breaks_each_event_is_recorded_once_and_in_order(
    faulty: Faulty, schema: str, appends: list[tuple[int, list[str]]]
) -> None:
    wanted: list[str] = []
    session = uuid4().hex
    faulty.plan.clear()
    with PostgresJournal(faulty.dsn, schema=schema, lease_seconds=LONG, seconds=60) as journal:
        journal.lease(session)
        for count, plan in appends:
            events = [Noticed("n", f"{len(wanted) + n}") for n in range(count)]
            wanted += [event.text for event in events]
            faulty.plan.extend(plan)
            records = journal.append(session, "r1", events, identity=ME)
            assert [record.event for record in records] == events
        faulty.plan.clear()
        assert texts(journal, session) == wanted
        journal.verify(session)


@pytest.mark.proves("postgres.exactly-once")
@pytest.mark.parametrize("restart", [signal.SIGINT, signal.SIGQUIT], ids=["orderly", "crash"])
def test_a_restart_of_the_database_between_two_appends_goes_unnoticed(
    cluster: Cluster, journal: PostgresJournal, other: PostgresJournal, restart: signal.Signals
) -> None:
    journal.append("s1", "r1", note("one"), identity=ME)
    reading = journal.records("s1")
    journal.append("s1", "r1", [event for n in range(PAGE_ROWS) for event in note(n)], identity=ME)
    next(reading)
    cluster.restart(restart)
    with pytest.raises(JournalError, match="in use"):
        other.lease("s1")
    journal.append("s1", "r1", note("two"), identity=ME)
    assert [record.seq for record in reading] == list(range(2, PAGE_ROWS + 3))
    assert texts(other) == ["one", *map(str, range(PAGE_ROWS)), "two"]
    other.verify("s1")


@pytest.mark.proves("postgres.exactly-once")
@pytest.mark.parametrize("last_word", [BEFORE, AFTER])
def test_an_append_nobody_is_sure_of_is_found_out_by_the_next_and_not_doubled(
    faulty: Faulty, schema: str, last_word: str, dsn: str
) -> None:
    with PostgresJournal(faulty.dsn, schema=schema, lease_seconds=LONG, seconds=60) as journal:
        journal.append("s1", "r1", note("one"), identity=ME)
        # The connection breaks, and so does every one that is tried after it while there is time.
        faulty.plan.extend([last_word, *[BEFORE] * 500])
        with (
            impatient(journal),
            pytest.raises(JournalError, match="whether events 2 to 2") as unsure,
        ):
            journal.append("s1", "r1", note("two"), identity=ME)
        assert unsure.value.code == "journal_unsure" and unsure.value.retryable
        faulty.plan.clear()
        records = journal.append("s1", "r1", [*note("two"), *note("three")], identity=ME)
        assert [record.seq for record in records] == [2, 3]
        assert texts(journal) == ["one", "two", "three"]
        journal.verify("s1")


@pytest.mark.proves("postgres.exactly-once")
def test_going_on_with_other_events_than_those_that_were_recorded_after_all_is_an_error(
    faulty: Faulty, schema: str
) -> None:
    with PostgresJournal(faulty.dsn, schema=schema, lease_seconds=LONG, seconds=60) as journal:
        journal.append("s1", "r1", note("one"), identity=ME)
        faulty.plan.extend([AFTER, *[BEFORE] * 500])
        with impatient(journal), pytest.raises(JournalError, match="not known"):
            journal.append("s1", "r1", note("two"), identity=ME)
        faulty.plan.clear()
        with pytest.raises(JournalError, match="recorded after all") as conflict:
            journal.append("s1", "r1", note("something else"), identity=ME)
        assert conflict.value.code == "journal_conflict"
        assert texts(journal) == ["one", "two"]


def test_a_server_that_says_nothing_holds_up_an_append_for_a_bounded_time_only(
    faulty: Faulty, schema: str
) -> None:
    with PostgresJournal(faulty.dsn, schema=schema, lease_seconds=LONG, seconds=60) as journal:
        journal.append("s1", "r1", note("one"), identity=ME)
        faulty.stalled.set()
        with impatient(journal), pytest.raises(JournalError, match="not known"):
            journal.append("s1", "r1", note("two"), identity=ME)
        assert faulty.given_up.wait(30)
        faulty.stalled.clear()
        journal.append("s1", "r1", note("two"), identity=ME)
        assert texts(journal) == ["one", "two"]


@pytest.mark.parametrize(
    ("first", "code"), [("server", "journal_busy"), ("client", "journal_unsure")]
)
def test_a_row_that_somebody_keeps_locked_is_an_error_and_nothing_is_recorded(
    cluster: Cluster, journal: PostgresJournal, schema: str, first: str, code: str
) -> None:
    import psycopg

    journal.append("s1", "r1", note("one"), identity=ME)
    if first == "server":
        journal._db.query("SELECT set_config('lock_timeout', '50ms', false)", doing="hurrying")
    with psycopg.connect(cluster.dsn()) as locking:
        locking.execute(f'UPDATE "{schema}".sessions SET seq = seq'.encode())
        with (
            impatient(journal, 60 if first == "server" else 0.3),
            pytest.raises(JournalError) as refused,
        ):
            journal.append("s1", "r1", note("two"), identity=ME)
        locking.rollback()
    assert refused.value.code == code and refused.value.retryable
    journal.append("s1", "r1", note("two"), identity=ME)
    assert texts(journal) == ["one", "two"]


def test_a_database_that_is_not_there_is_an_error_without_the_password() -> None:
    with PostgresJournal("postgresql://me:s3cret@127.0.0.1:1/none", seconds=2) as journal:
        for act in (lambda: journal.append("s1", "r1", STORY, identity=ME), journal.sessions):
            with pytest.raises(JournalError, match="cannot be reached") as refused:
                act()
            assert refused.value.code == "journal_unreachable" and "s3cret" not in str(
                refused.value
            )
            assert "127.0.0.1/none" in refused.value.detail and refused.value.hint
    with pytest.raises(ConfigError) as unreadable:
        PostgresJournal("postgresql://me:s3cret@[::1/none")
    assert "s3cret" not in str(unreadable.value)


# ---- tampering


TAMPERED = {
    "changed text": ("UPDATE records SET body = replace(body, 'a.txt', 'b.txt') WHERE seq = 3", 3),
    "changed time": ("UPDATE records SET time = time + 1 WHERE seq = 1", 1),
    "changed run": ("UPDATE records SET run = 'r2' WHERE seq = 4", 4),
    "changed kind": ("UPDATE records SET kind = 'notice' WHERE seq = 5", 5),
    "changed tenant": ("UPDATE records SET tenant = 'other' WHERE seq = 2", 2),
    "changed user": ("""UPDATE records SET "user" = 'other' WHERE seq = 7""", 7),
    "changed hash": ("UPDATE records SET hash = decode(repeat('00', 32), 'hex') WHERE seq = 6", 6),
    "missing in the middle": ("DELETE FROM records WHERE seq = 4", 4),
    "missing at the start": ("DELETE FROM records WHERE seq = 1", 1),
    "tail cut off": ("DELETE FROM records WHERE seq >= 6", 6),
    "everything cut off": ("DELETE FROM records", 1),
    "tail cut off and the end moved": (
        "DELETE FROM records WHERE seq >= 6; UPDATE sessions SET seq = 5",
        5,
    ),
    "renamed session": ("UPDATE sessions SET session = 's2'", 1),
    "end moved back": ("UPDATE sessions SET seq = 3", 4),
    "last hash changed": ("UPDATE sessions SET hash = decode(repeat('00', 32), 'hex')", 7),
    "two changed places": (
        "UPDATE records SET seq = 99 WHERE seq = 3; UPDATE records SET seq = 3 WHERE seq = 4;"
        "UPDATE records SET seq = 4 WHERE seq = 99",
        3,
    ),
    "line break moved between names": (
        (
            'UPDATE records SET run = run || chr(10) || tenant, tenant = "user", "user" = kind, '
            "kind = '2' WHERE seq = 2"
        ),
        2,
    ),
}


@pytest.mark.parametrize(("statement", "seq"), TAMPERED.values(), ids=list(TAMPERED))
def test_tampering_is_reported_with_session_and_event(
    journal: PostgresJournal, sql: Sql, statement: str, seq: int
) -> None:
    journal.append("s1", "r1", STORY, identity=ME)
    journal.release("s1")
    sql(statement)
    session = "s2" if "'s2'" in statement else "s1"
    with pytest.raises(JournalError) as found:
        journal.verify(session)
    assert found.value.code == "journal_corrupt" and "backup" in found.value.hint
    assert f"session `{session}`: event {seq} " in found.value.detail


BESIDE = {
    "tail cut off and the end made to fit": (
        "DELETE FROM records WHERE seq >= 6;"
        "UPDATE sessions SET seq = 5, hash = (SELECT hash FROM records WHERE seq = 5),"
        " time = (SELECT time FROM records WHERE seq = 5)"
    ),
    "the seal of the hash's own bytes": "UPDATE sessions SET seal = substr(hash, 1, 16)",
    "another owner": """UPDATE sessions SET "user" = 'eve'""",
    "another tenant": "UPDATE sessions SET tenant = 'evil'",
    "another time": "UPDATE sessions SET time = time + 1",
    "a session said to have no event": "UPDATE sessions SET seq = 0",
}


@pytest.mark.parametrize("statement", BESIDE.values(), ids=list(BESIDE))
def test_what_no_chain_holds_is_checked_too(
    journal: PostgresJournal, sql: Sql, statement: str
) -> None:
    journal.append("s1", "r1", STORY, identity=ME)
    journal.release("s1")
    assert verify_sessions(journal).is_intact
    sql(statement)
    assert not verify_sessions(journal).is_intact


def test_every_run_of_events_that_is_taken_out_is_missed(
    journal: PostgresJournal, sql: Sql
) -> None:
    count = len(STORY)
    runs = [(first, last) for first in range(1, count + 1) for last in range(first, count + 1)]
    for first, last in runs:
        session = f"s{first}-{last}"
        journal.append(session, "r1", STORY, identity=Identity("local", "me", session, "r1"))
        journal.verify(session)
        gone = "(SELECT no FROM sessions WHERE session = %s)"
        sql(
            f"DELETE FROM records WHERE no = {gone} AND seq BETWEEN %s AND %s", session, first, last
        )
        with pytest.raises(JournalError, match=f"event {first} ") as found:
            journal.verify(session)
        assert found.value.code == "journal_corrupt"


@pytest.mark.parametrize(
    ("statement", "event"),
    [
        ("DELETE FROM records WHERE seq >= 6", "event 6 and what may follow"),
        ("UPDATE sessions SET seq = 5", "event 6 follows the end"),
        ("UPDATE sessions SET hash = '\\x00'", "event 7 was changed"),
        (
            (
                "DELETE FROM records WHERE seq >= 6; UPDATE sessions SET seq = 5, hash = (SELECT "
                "hash FROM records WHERE seq = 5)"
            ),
            "event 5 was changed, or what followed it was cut off",
        ),
    ],
)
def test_a_session_without_its_end_is_noticed_before_anything_is_added(
    journal: PostgresJournal, other: PostgresJournal, sql: Sql, statement: str, event: str
) -> None:
    journal.append("s1", "r1", STORY, identity=ME)
    journal.release("s1")
    sql(statement)
    with pytest.raises(JournalError, match=event):
        other.append("s1", "r1", STORY[:1], identity=ME)


def test_an_end_that_was_moved_while_the_session_is_written_stops_the_writer(
    journal: PostgresJournal, sql: Sql
) -> None:
    journal.append("s1", "r1", STORY, identity=ME)
    sql("UPDATE sessions SET seq = 5")
    with pytest.raises(JournalError, match="changed by somebody else") as found:
        journal.append("s1", "r1", note(), identity=ME)
    assert found.value.code == "journal_conflict"


def test_reading_past_a_gap_or_a_broken_body_is_an_error(
    journal: PostgresJournal, sql: Sql
) -> None:
    journal.append("s1", "r1", STORY, identity=ME)
    sql("UPDATE records SET body = '{' WHERE seq = 6")
    with pytest.raises(JournalError, match="event 6 cannot be read"):
        list(journal.records("s1"))
    assert journal.find("s1").events == len(STORY)
    sql("DELETE FROM records WHERE seq = 2")
    with pytest.raises(JournalError, match="event 2 is missing"):
        list(journal.records("s1"))


def test_checking_a_session_that_grows_meanwhile_finds_nothing_wrong(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    journal.append(
        "s1", "r1", [event for n in range(PAGE_ROWS + 1) for event in note(n)], identity=ME
    )
    stop = threading.Event()

    def grow() -> int:
        grown = 0
        while not stop.is_set():
            journal.append("s1", "r1", note() * 3, identity=ME)
            grown += 1
        return grown

    with ThreadPoolExecutor(1) as threads:
        growing = threads.submit(grow)
        try:
            for _ in range(15):
                other.verify("s1")
        finally:
            stop.set()
        assert growing.result(60) >= 0


# ---- tables and rights


def test_tables_of_a_newer_version_are_left_alone(
    journal: PostgresJournal, dsn: str, schema: str, sql: Sql
) -> None:
    journal.append("s1", "r1", STORY, identity=ME)
    sql("INSERT INTO versions (part, version) VALUES ('journal', 99)")
    with (
        PostgresJournal(dsn, schema=schema, seconds=60) as late,
        pytest.raises(JournalError, match="newer") as found,
    ):
        late.append("s2", "r1", STORY, identity=ME)
    assert found.value.code == "journal_newer"
    assert sql("SELECT count(*) FROM sessions") == [(1,)]


def test_tables_are_brought_from_each_version_to_the_next_and_keep_what_they_hold(
    journal: PostgresJournal, dsn: str, schema: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append("s1", "r1", STORY, identity=ME)
    later = (
        *MIGRATIONS["journal"],
        'ALTER TABLE "{schema}".sessions ADD COLUMN colour text;',
        "SELECT 1;",
    )
    monkeypatch.setitem(MIGRATIONS, "journal", later)
    for _ in range(2):
        with PostgresJournal(dsn, schema=schema, seconds=60) as late:
            assert len(list(late.records("s1"))) == len(STORY)
    assert sql("SELECT version FROM versions WHERE part = 'journal' ORDER BY version") == [
        (1,),
        (2,),
        (3,),
        (4,),
    ]
    assert sql("SELECT colour FROM sessions") == [(None,)]


def test_a_worker_needs_no_right_to_make_tables_or_to_change_what_was_recorded(
    cluster: Cluster, schema: str
) -> None:
    import psycopg

    role = f"worker_{schema}"
    cluster.sql(create_script(schema, "journal"))
    cluster.sql(f"CREATE ROLE {role} LOGIN; " + grant_script(role, schema, "journal"))
    try:
        with PostgresJournal(cluster.dsn(role), schema=schema, seconds=60) as journal:
            journal.lease("s0")
            journal.release("s0")
            journal.append("s1", "r1", STORY, identity=ME)
            journal.release("s1")
            journal.append("s1", "r2", STORY[1:], identity=ME)
            journal.verify("s1")
            assert journal.find("s1").runs == 2
        with psycopg.connect(cluster.dsn(role), autocommit=True) as connection:
            for statement in (
                "UPDATE {s}.records SET body = '{}'",
                "DELETE FROM {s}.records",
                "TRUNCATE {s}.records",
                "CREATE TABLE {s}.mine (x int)",
                "INSERT INTO {s}.versions (part, version) VALUES ('journal', 99)",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.replace("{s}", f'"{schema}"').encode())
            # A session with events cannot go either.
            with pytest.raises(psycopg.errors.ForeignKeyViolation):
                connection.execute(f'DELETE FROM "{schema}".sessions'.encode())
        with (
            PostgresJournal(cluster.dsn(role), schema=f"{schema}x") as nowhere,
            pytest.raises(JournalError, match="lacks a right") as refused,
        ):
            nowhere.sessions()
        assert refused.value.code == "journal_unusable"
    finally:
        cluster.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize("name", ["", "Upper", 'a"b', "a.b", "x" * 64, "1a"])
def test_a_schema_is_a_plain_name(name: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        PostgresJournal("host=/nowhere", schema=name)


def test_names_that_the_database_cannot_hold_are_nobodys(journal: PostgresJournal) -> None:
    for name in ("nul\0", "half \ud83d"):
        for ask in (journal.head, journal.verify, journal.find):
            with pytest.raises(SessionNotFound):
                ask(name)
        with pytest.raises(JournalError, match="name"):
            journal.append(name, "r1", STORY, identity=ME)
        with pytest.raises(JournalError, match="name"):
            journal.lease(name)


# ---- an agent on two machines


@tool(side_effect="write")
def note_down(text: str) -> str:
    """Note something down."""
    return f"noted {text}"


async def test_a_session_begun_on_one_machine_goes_on_on_another(
    dsn: str, schema: str, journal: PostgresJournal, other: PostgresJournal
) -> None:
    model = Scripted([calls(("note_down", {"text": "milk"})), says("Done.")])
    here = Agent(
        model,
        [note_down],
        permissions=Permissions(allow=["note_down"]),
        storage=Storage(journal=journal, user="ann"),
    )
    session = here.session()
    assert (await session.run("Note milk.")).text == "Done."
    there = Agent(
        Scripted([says("Milk.")]), [note_down], storage=Storage(journal=other, user="ann")
    )
    with pytest.raises(JournalError, match="in use"):
        there.resume(session.id)
    await session.close()
    resumed = there.resume(session.id)
    assert (await resumed.run("What did you note?")).text == "Milk."
    await resumed.close()
    with pytest.raises(SessionNotFound):
        Agent(Scripted([]), storage=Storage(journal=other, user="eve")).resume(session.id)
    journal.verify(session.id)
    assert journal.find(session.id).runs == 2


def test_many_events_at_once_are_one_statement(journal: PostgresJournal, sql: Sql) -> None:
    many: Sequence[Event] = [event for n in range(2000) for event in note(n)]
    journal.append("s1", "r1", many, identity=Identity("local", "me", "s1", "r1"))
    assert journal.head("s1")[0] == 2000
    assert sql("SELECT count(DISTINCT xmin::text) FROM records") == [(1,)]


def test_the_statement_of_the_page_removes_old_sessions_that_nobody_has_open(
    journal: PostgresJournal, sql: Sql, schema: str
) -> None:
    page = Path(__file__).parents[2] / "docs/durability.md"
    text = page.read_text(encoding="utf-8").partition("#### Remove old sessions")[2]
    statement = (
        text.partition("```sql\n")[2].partition("```")[0].replace("ferrule.", f'"{schema}".')
    )
    for session in ("old", "held", "new"):
        journal.append(session, "r1", note(1), identity=Identity("local", "me", session, "r1"))
    sql("UPDATE sessions SET time = 0 WHERE session <> 'new'")
    sql("UPDATE sessions SET until = now() + interval '1 hour' WHERE session = 'held'")
    sql("UPDATE sessions SET until = NULL WHERE session <> 'held'")
    sql(statement)
    assert sql("SELECT session FROM sessions ORDER BY session") == [("held",), ("new",)]
    assert sql("SELECT count(DISTINCT no) FROM records") == [(2,)]
