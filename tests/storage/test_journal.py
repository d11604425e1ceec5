"""The SQLite journal: the shared contract, and what only a file can show."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError, JournalError, SessionNotFound
from ferrule.core.events import Event, Noticed, RunStarted
from ferrule.core.identity import Identity
from ferrule.storage.journal import hash_chain, sqlite_rows
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.salvage import salvage
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.journal.sqlite_database import open_database
from ferrule.storage.journal.sqlite_lease import FileLeases
from ferrule.testing.journal_conformance import ME, STORY, JournalConformance


class TestMemory(JournalConformance):
    def open_journal(self) -> Journal:
        return SqliteJournal(":memory:")


class TestFile(JournalConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "state" / "journal.db"

    def open_journal(self) -> Journal:
        return SqliteJournal(self.path)

    def reopen(self, journal: Journal) -> Journal:
        return SqliteJournal(self.path)


class TestPowerSafe(TestFile):
    def open_journal(self) -> Journal:
        return SqliteJournal(self.path, durability="power")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def recorded(path: Path, events: tuple[Event, ...] = STORY, session: str = "s1") -> None:
    with SqliteJournal(path) as journal:
        journal.append(session, "r1", events, identity=ME)


def test_the_clock_is_the_one_given(path: Path) -> None:
    ticks = iter((1.0, 2.0))
    with SqliteJournal(path, now=lambda: next(ticks)) as journal:
        journal.append("s1", "r1", STORY[:2], identity=ME)
        journal.append("s1", "r1", STORY[2:3], identity=ME)
        assert [record.time for record in journal.records("s1")] == [1_000, 1_000, 2_000]


@pytest.mark.parametrize("name", ["\udcff", "s\0", "s1\n", ""])
def test_a_name_that_no_session_can_have_is_not_found(path: Path, name: str) -> None:
    with SqliteJournal(path) as journal:
        journal.append("s1", "r1", STORY[:2], identity=ME)
        with pytest.raises(SessionNotFound):
            journal.find(name)


def test_reading_makes_no_file(path: Path) -> None:
    with SqliteJournal(path.parent / "new" / "j.db") as journal:
        assert journal.sessions() == []
        with pytest.raises(SessionNotFound):
            journal.verify("s1")
    assert list(path.parent.iterdir()) == []


@pytest.mark.proves("state.private")
def test_only_the_owner_can_read_the_journal(path: Path) -> None:
    path = path.parent / "new" / "deep" / "j.db"
    old = os.umask(0)
    try:
        with SqliteJournal(path) as journal:
            journal.append("s1", "r1", STORY, identity=ME)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert set(modes.values()) == {0o600} and len(modes) >= 3
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("power", 2)])
def test_appends_are_synced_as_durability_says_also_where_the_file_was_just_created(
    path: Path, durability: str, level: int
) -> None:
    for _ in ("created", "opened again"):
        db = open_database(path, durability, FileLeases(None))
        assert db.execute("PRAGMA synchronous").fetchone() == (level,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        db.close()


def test_unknown_durability_and_a_raised_cap_are_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="durability"):
        SqliteJournal(path, durability="hope").append("s1", "r1", STORY, identity=ME)
    with pytest.raises(ConfigError, match="max_result_bytes"):
        SqliteJournal(path, max_result_bytes=100_000)


WRITER = """
import sys
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.storage.journal.sqlite import SqliteJournal
path, session, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
journal = SqliteJournal(path)
for number in range(1, count + 1):
    journal.append(session, "r1", [Noticed("n", "x" * 200)], identity=Identity("local", "me", session, "r1"))
    print(number, flush=True)
"""


def writer(path: Path, session: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), session, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.proves("journal.survives-kill")
@pytest.mark.parametrize("wait_for", [1, 7, 150])
def test_every_acknowledged_event_survives_kill_9(path: Path, wait_for: int) -> None:
    process = writer(path, "s1", 1_000_000)
    assert process.stdout is not None
    acknowledged = 0
    for line in process.stdout:
        acknowledged = int(line)
        if acknowledged == wait_for:
            break
    process.send_signal(signal.SIGKILL)
    acknowledged = max(
        [acknowledged, *(int(line) for line in process.stdout if line.endswith("\n"))]
    )
    process.stdout.close()
    assert process.wait(timeout=30) == -signal.SIGKILL
    with SqliteJournal(path) as journal:
        journal.verify("s1")
        assert journal.head("s1")[0] in (acknowledged, acknowledged + 1)
        # The lease died with its owner: the session can be taken up at once.
        journal.append("s1", "r1", [Noticed("n", "after")], identity=ME)
        journal.verify("s1")


def test_two_processes_write_two_sessions_of_one_journal(path: Path) -> None:
    processes = [writer(path, name, 400) for name in ("s1", "s2", "s3")]
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    with SqliteJournal(path) as journal:
        for name in ("s1", "s2", "s3"):
            journal.verify(name)
            assert journal.head(name)[0] == 400


def test_a_session_held_by_another_process_is_refused_until_that_process_is_gone(
    path: Path,
) -> None:
    process = writer(path, "s1", 1_000_000)
    assert process.stdout is not None
    process.stdout.readline()
    with SqliteJournal(path) as journal:
        with pytest.raises(JournalError, match="in use") as refused:
            journal.lease("s1")
        assert refused.value.code == "journal_leased" and refused.value.retryable
        process.kill()
        process.communicate(timeout=30)
        journal.lease("s1")


def test_a_stranger_cannot_hold_up_the_owner_of_a_session(path: Path) -> None:
    recorded(path)
    with SqliteJournal(path) as stranger, SqliteJournal(path) as owner:
        with pytest.raises(SessionNotFound):
            stranger.append("s1", "r1", STORY, identity=Identity("local", "you", "s1", "r1"))
        owner.append("s1", "r1", STORY, identity=ME)


def test_threads_may_share_a_journal(path: Path) -> None:
    with SqliteJournal(path) as journal:

        def work(name: str) -> None:
            for number in range(100):
                journal.append(
                    name, "r1", [Noticed("n", str(number)), Noticed("n", "")], identity=ME
                )
                assert sum(1 for _ in journal.records(name)) == 2 * number + 2

        threads = [threading.Thread(target=work, args=(f"s{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for number in range(4):
            journal.verify(f"s{number}")
            assert journal.head(f"s{number}")[0] == 200


@pytest.mark.parametrize(
    "count", [1, sqlite_rows.PAGE_ROWS - 1, sqlite_rows.PAGE_ROWS, sqlite_rows.PAGE_ROWS + 1]
)
@pytest.mark.parametrize("seen", [1, 2, sqlite_rows.PAGE_ROWS - 1])
def test_checking_a_session_that_grows_meanwhile_finds_nothing_wrong(
    path: Path, count: int, seen: int
) -> None:
    recorded(path, tuple(Noticed("n", str(number)) for number in range(count)))
    with SqliteJournal(path) as journal:
        reader = sqlite3.connect(path)
        checking = hash_chain.check_rows(
            "s1",
            sqlite_rows.read_raw_rows(lambda: reader, 1, ("s1", "local", "me"), threading.Lock()),
        )
        checked = [seq for seq, _ in itertools.islice(checking, min(seen, count - 1))]
        journal.append("s1", "r1", [Noticed("n", "more")] * 3, identity=ME)
        checked += [seq for seq, _ in checking]
        reader.close()
    assert checked == list(range(1, len(checked) + 1)) and len(checked) in (count, count + 3)


@pytest.mark.proves("journal.tamper-evident")
@pytest.mark.parametrize(
    "mark", [sqlite_rows.PAGE_ROWS - 1, sqlite_rows.PAGE_ROWS, sqlite_rows.PAGE_ROWS + 1]
)
def test_the_seal_of_another_event_is_reported_whichever_it_is(path: Path, mark: int) -> None:
    recorded(path, tuple(Noticed("n", str(number)) for number in range(2 * sqlite_rows.PAGE_ROWS)))
    with closing(sqlite3.connect(path)) as db, db:
        (digest,) = db.execute("SELECT hash FROM records WHERE id = ?", (BASE + mark,)).fetchone()
        own = hashlib.blake2s(digest, digest_size=16).digest()
        db.execute("UPDATE sessions SET seal = ?", (own,))
    with (
        SqliteJournal(path) as journal,
        pytest.raises(JournalError, match="the seal of the session was changed"),
    ):
        journal.verify("s1")


# ---- damage


@pytest.mark.proves("journal.tamper-evident")
def test_the_chain_is_that_of_its_description_and_anybody_can_compute_it(path: Path) -> None:
    recorded(path)
    db = sqlite3.connect(path)
    stored = db.execute("SELECT run, kind, time, body, hash FROM records ORDER BY id").fetchall()
    ((tenant, user, seal),) = db.execute("SELECT tenant, user, seal FROM sessions").fetchall()
    db.close()
    previous = b"\0" * 32
    assert [run for run, *_ in stored] == ["r1", *[None] * (len(STORY) - 1)]
    for seq, (_, kind, time, body, digest) in enumerate(stored, 1):
        row = "\n".join(["s1", "r1", tenant, user, kind, str(seq), str(time), body])
        previous = hashlib.sha256(previous + row.encode()).digest()
        assert digest == previous
    assert seal == hashlib.blake2s(previous, digest_size=16).digest()
    with SqliteJournal(path) as journal:
        assert journal.head("s1") == (len(STORY), previous.hex())


def edited(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.executescript(statement)


BASE = 1 << 32
TAMPERED = {
    "changed text": (
        f"UPDATE records SET body = replace(body, 'a.txt', 'b.txt') WHERE id = {BASE + 3}",
        3,
    ),
    "changed time": (f"UPDATE records SET time = time + 1 WHERE id = {BASE + 1}", 1),
    "changed run": (f"UPDATE records SET run = 'r2' WHERE id = {BASE + 4}", 4),
    "changed kind": (f"UPDATE records SET kind = 'notice' WHERE id = {BASE + 5}", 5),
    "changed tenant": ("UPDATE sessions SET tenant = 'other'", 1),
    "changed user": ("UPDATE sessions SET user = 'other'", 1),
    "a run that is written again": (f"UPDATE records SET run = 'r1' WHERE id = {BASE + 4}", 4),
    "no run": (f"UPDATE records SET run = NULL WHERE id = {BASE + 1}", 1),
    "names in the middle": (f"UPDATE records SET names = 's1' WHERE id = {BASE + 3}", 3),
    "no names": ("UPDATE records SET names = NULL", 1),
    "another time of the end": ("UPDATE sessions SET time = time - 1", 7),
    "changed hash": (f"UPDATE records SET hash = zeroblob(32) WHERE id = {BASE + 6}", 6),
    "time that is no number": (f"UPDATE records SET time = 'x' WHERE id = {BASE + 2}", 2),
    "missing in the middle": (f"DELETE FROM records WHERE id = {BASE + 4}", 4),
    "missing at the start": (f"DELETE FROM records WHERE id = {BASE + 1}", 1),
    "tail cut off": (f"DELETE FROM records WHERE id >= {BASE + 6}", 6),
    "everything cut off": ("DELETE FROM records", 1),
    "renamed session": ("UPDATE sessions SET session = 's2'", 1),
    "tail cut off and its seal kept": (
        f"DELETE FROM records WHERE id >= {BASE + 6};"
        f"UPDATE sessions SET time = (SELECT time FROM records WHERE id = {BASE + 5})",
        6,
    ),
    "tail cut off and a seal made up": (
        (
            f"DELETE FROM records WHERE id >= {BASE + 6};"
            f"UPDATE sessions SET seal = (SELECT substr(hash, 1, 16) FROM records WHERE id = {BASE + 5})"
        ),
        6,
    ),
    "odd seal": ("UPDATE sessions SET seal = 1", 8),
    "no seal": ("UPDATE sessions SET seal = zeroblob(16)", 8),
    "line break moved between names": (
        (
            "UPDATE sessions SET tenant = tenant || char(10) || user, user = 'session.opened';"
            f"UPDATE records SET kind = '1' WHERE id = {BASE + 1}"
        ),
        1,
    ),
}


@pytest.mark.proves("journal.tamper-evident")
@pytest.mark.parametrize(("statement", "seq"), TAMPERED.values(), ids=list(TAMPERED))
def test_tampering_is_reported_with_session_and_event(path: Path, statement: str, seq: int) -> None:
    recorded(path)
    edited(path, statement)
    session = "s2" if "renamed" in statement or "'s2'" in statement else "s1"
    with SqliteJournal(path) as journal, pytest.raises(JournalError) as found:
        journal.verify(session)
    assert found.value.code == "journal_corrupt"
    assert f"session `{session}`: event {seq} " in found.value.detail


def test_two_events_that_changed_places_are_reported(path: Path) -> None:
    recorded(path)
    edited(
        path,
        f"UPDATE records SET id = {BASE} WHERE id = {BASE + 3}",
        f"UPDATE records SET id = {BASE + 3} WHERE id = {BASE + 4}",
        f"UPDATE records SET id = {BASE + 4} WHERE id = {BASE}",
    )
    with (
        SqliteJournal(path) as journal,
        pytest.raises(JournalError, match="event 3 was changed, moved"),
    ):
        journal.verify("s1")


def test_a_cut_tail_is_noticed_before_anything_is_added(path: Path) -> None:
    recorded(path)
    edited(path, f"DELETE FROM records WHERE id >= {BASE + 6}")
    with SqliteJournal(path) as journal, pytest.raises(JournalError, match="event 6"):
        journal.append("s1", "r1", STORY[:1], identity=ME)


def test_reading_past_a_gap_or_a_broken_body_is_an_error(path: Path) -> None:
    recorded(path)
    edited(path, f"UPDATE records SET body = '{{' WHERE id = {BASE + 6}")
    with (
        SqliteJournal(path) as journal,
        pytest.raises(JournalError, match="event 6 cannot be read"),
    ):
        list(journal.records("s1"))
    edited(path, f"DELETE FROM records WHERE id = {BASE + 2}")
    with SqliteJournal(path) as journal, pytest.raises(JournalError, match="event 2 is missing"):
        list(journal.records("s1"))


COLUMNS = ("run", "kind", "body", "hash", "names")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SqliteJournal:
    path = tmp_path_factory.mktemp("shared") / "journal.db"
    recorded(path)
    return SqliteJournal(path)


@pytest.mark.proves("journal.tamper-evident")
@settings(max_examples=150, deadline=None)
@given(
    seq=st.integers(1, len(STORY)),
    column=st.sampled_from(COLUMNS),
    where=st.integers(0),
    flip=st.integers(1, 255),
)
def test_no_single_byte_of_a_row_can_change_unseen(
    shared: SqliteJournal, seq: int, column: str, where: int, flip: int
) -> None:
    key = BASE + seq
    with closing(sqlite3.connect(str(shared.path))) as db:
        kept, kind = db.execute(
            f"SELECT CAST({column} AS BLOB), typeof({column}) FROM records WHERE id = ?", (key,)
        ).fetchone()
        assume(kept)
        changed = bytearray(kept)
        changed[where % len(kept)] ^= flip
        change = f"UPDATE records SET {column} = CAST(? AS {kind}) WHERE id = ?"
        try:
            with db:
                db.execute(change, (bytes(changed), key))
            with pytest.raises(JournalError) as found:
                shared.verify("s1")
            assert f"event {seq} " in found.value.detail
        finally:
            with db:
                db.execute(change, (kept, key))
    shared.verify("s1")


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def cut_within_a_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3000)


def beheaded(path: Path) -> None:
    path.write_bytes(b"x" * 100 + path.read_bytes()[100:])


def overwritten(path: Path) -> None:
    pages = bytearray(path.read_bytes())
    pages[-8192:] = os.urandom(8192)
    path.write_bytes(bytes(pages))


@pytest.mark.parametrize("damage", [truncated, cut_within_a_page, beheaded, overwritten])
def test_a_damaged_file_is_reported_as_damaged(path: Path, damage: Callable[[Path], None]) -> None:
    recorded(path, tuple(Noticed("n", str(number) * 300) for number in range(60)))
    damage(path)
    with SqliteJournal(path) as journal, pytest.raises(JournalError) as found:
        journal.verify("s1")
    assert found.value.code == "journal_corrupt" and "salvage" in found.value.hint


@pytest.mark.parametrize("cut", [1, 100, 2048, 4095, 4096, 4097, 9000])
def test_nothing_is_written_on_a_journal_whose_end_is_missing(path: Path, cut: int) -> None:
    recorded(path, tuple(Noticed("n", str(number) * 300) for number in range(60)))
    os.truncate(path, path.stat().st_size - cut)
    before = path.read_bytes()
    with SqliteJournal(path) as journal, pytest.raises(JournalError) as found:
        journal.append("s2", "r1", [RunStarted("more")], identity=ME)
    assert found.value.code == "journal_corrupt" and "salvage" in found.value.hint
    assert path.read_bytes() == before


def test_a_journal_that_another_connection_grows_is_not_taken_for_cut(path: Path) -> None:
    with SqliteJournal(path) as journal:
        for number in range(40):
            journal.append("s1", "r1", [Noticed("n", "x" * 3000)], identity=ME)
            with SqliteJournal(path) as other:
                assert other.head("s1")[0] == number + 1


def test_garbage_after_the_end_does_no_harm(path: Path) -> None:
    recorded(path)
    with path.open("ab") as file:
        file.write(b"\0garbage" * 1000)
    with SqliteJournal(path) as journal:
        journal.append("s1", "r1", [RunStarted("more")], identity=ME)
        journal.verify("s1")
        assert journal.head("s1")[0] == len(STORY) + 1


def test_a_journal_of_a_newer_version_is_left_alone(path: Path) -> None:
    recorded(path)
    edited(path, "PRAGMA user_version = 99")
    before = path.read_bytes()
    with (
        SqliteJournal(path) as journal,
        pytest.raises(JournalError, match="newer version") as found,
    ):
        journal.append("s1", "r1", STORY, identity=ME)
    assert found.value.code == "journal_newer" and path.read_bytes() == before


def test_a_journal_of_an_older_version_is_left_alone_and_its_reader_told_what_to_do(
    path: Path,
) -> None:
    recorded(path)
    edited(path, "PRAGMA user_version = 2")
    before = path.read_bytes()
    with (
        SqliteJournal(path) as journal,
        pytest.raises(JournalError, match="older version") as found,
    ):
        journal.append("s1", "r1", STORY, identity=ME)
    assert found.value.code == "journal_older" and "move it away" in found.value.hint
    with pytest.raises(JournalError, match="older version"):
        salvage(path)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    edited(path, "CREATE TABLE cookies (name)")
    with (
        SqliteJournal(path) as journal,
        pytest.raises(JournalError, match="not a journal") as found,
    ):
        journal.append("s1", "r1", STORY, identity=ME)
    assert found.value.code == "journal_foreign"


# ---- places that cannot be written

CRAMPED = """
import os, resource, sys
from ferrule.core.errors import JournalError
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.storage.journal.sqlite import SqliteJournal
me, path, done = Identity("local", "me", "s1", "r1"), sys.argv[1], 0
journal = SqliteJournal(path)
journal.append("s1", "r1", [Noticed("n", "")], identity=me)
if sys.argv[2] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
else:
    journal.close()
    os.chmod(os.path.dirname(path), 0o500)
    os.chmod(path, 0o400)
    if os.getuid() == 0:
        os.chown(os.path.dirname(path), 12345, 12345)
        os.chown(path, 12345, 12345)
        os.chown(path + ".lock", 12345, 12345)
        os.setgid(12345)
        os.setuid(12345)
    journal = SqliteJournal(path)
try:
    for done in range(1, 1000):
        journal.append("s1", "r1", [Noticed("n", "x" * 5000)], identity=me)
except JournalError as error:
    print(done, error.code, bool(error.hint), flush=True)
    os._exit(3)
"""


@pytest.mark.parametrize(
    ("how", "code"), [("full", "journal_full"), ("read-only", "journal_unusable")]
)
def test_an_event_that_cannot_be_written_is_an_error_and_the_rest_stays(
    how: str, code: str
) -> None:
    # Not under pytest's folders: the process that gives up its rights could not enter these.
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "state" / "journal.db"
        ended = subprocess.run(
            [sys.executable, "-c", CRAMPED, str(path), how],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 3, ended.stderr
        failed_at, found, hint = ended.stdout.split()
        assert (found, hint) == (code, "True")
        path.parent.chmod(0o700)
        path.chmod(0o600)
        with SqliteJournal(path) as journal:
            journal.verify("s1")
            assert journal.head("s1")[0] == int(failed_at)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        SqliteJournal(tmp_path / "file" / "journal.db") as journal,
        pytest.raises(JournalError) as found,
    ):
        journal.append("s1", "r1", STORY, identity=ME)
    assert "file" in found.value.detail and found.value.hint
