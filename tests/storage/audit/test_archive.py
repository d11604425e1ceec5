"""Archives: what leaves the journal is in a file that verifies, that it left is recorded, and
nothing is ever in neither.
"""

from __future__ import annotations

import gzip
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError, FerruleError, JournalError, SessionNotFound
from ferrule.core.events import Noticed, RunFinished, RunStarted, SessionArchived
from ferrule.core.identity import Identity
from ferrule.storage.audit.verification import (
    ARCHIVE_SESSION_PREFIX,
    open_lines,
    verify_file,
    verify_sessions,
)
from ferrule.storage.export.archive import archive_sessions, find_closed_sessions, import_sessions
from ferrule.storage.export.jsonl import read_jsonl
from ferrule.storage.journal.sqlite import SqliteJournal

PROGRAM = Path(__file__).with_name("archiving.py")


def filled(path: Path, *sessions: str, events: int = 5, user: str = "ann") -> dict[str, Any]:
    """Sessions with one finished run each; their records."""
    with SqliteJournal(path) as journal:
        for session in sessions:
            me = Identity("local", user, session, "r1")
            told = [Noticed("n", f"{session} {number} ä\ud83d") for number in range(events)]
            journal.append(
                session, "r1", [RunStarted("go"), *told, RunFinished("done")], identity=me
            )
        return {session: list(journal.records(session)) for session in sessions}


def everywhere(path: Path, *files: Path) -> dict[str, Any]:
    """Every session that the journal or one of the archives holds."""
    found: dict[str, Any] = {}
    for file in files:
        if file.exists():
            with open_lines(file) as lines:
                for record in read_jsonl(lines):
                    found.setdefault(record.session, []).append(record)
    with SqliteJournal(path) as journal:
        for info in journal.sessions():
            if not info.session.startswith(ARCHIVE_SESSION_PREFIX):
                found[info.session] = list(journal.records(info.session))
    return found


def test_sessions_move_into_a_file_that_verifies_and_come_back_byte_for_byte(
    path: Path, tmp_path: Path
) -> None:
    records = filled(path, "s1", "s2", "s3")
    file = tmp_path / "archives" / "old.jsonl.gz"
    with SqliteJournal(path) as journal:
        done = archive_sessions(journal, ["s1", "s2"], file)
        assert (done.sessions, done.events, done.kept) == (["s1", "s2"], 14, {})
        for gone in ("s1", "s2"):
            with pytest.raises(SessionNotFound):
                journal.head(gone)
        verified = verify_file(file)
        assert verified.is_intact and [one.session for one in verified.sessions] == ["s1", "s2"]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert list(file.parent.iterdir()) == [file]
        assert import_sessions(journal, file) == ["s1", "s2"]
        assert {name: list(journal.records(name)) for name in records} == records
        assert verify_sessions(journal).is_intact


def test_that_a_session_was_archived_is_recorded_with_its_head_and_for_its_owner(
    path: Path, tmp_path: Path
) -> None:
    records = filled(path, "s1") | filled(path, "s2", user="bob")
    with SqliteJournal(path) as journal:
        first = archive_sessions(journal, ["s1"], tmp_path / "1.jsonl.gz")
        second = archive_sessions(journal, ["s2"], tmp_path / "2.jsonl.gz")
        told = {
            info.user: [record.event for record in journal.records(info.session)]
            for info in journal.sessions()
        }
        assert verify_sessions(journal).is_intact
    assert told == {
        "ann": [
            SessionArchived(
                "s1", 7, records["s1"][-1].hash, str(first.file), first.sha256, 1, "local", "ann"
            )
        ],
        "bob": [
            SessionArchived(
                "s2", 7, records["s2"][-1].hash, str(second.file), second.sha256, 2, "local", "bob"
            )
        ],
    }
    with gzip.open(second.file, "rt") as lines:
        assert f'"previous":"{first.sha256}"' in next(iter(lines))


def test_removing_what_says_that_a_session_was_archived_is_noticed(
    path: Path, tmp_path: Path
) -> None:
    filled(path, "s1", "s2")
    with SqliteJournal(path) as journal:
        archive_sessions(journal, ["s1"], tmp_path / "1.jsonl.gz")
    db = sqlite3.connect(path)
    db.execute("DELETE FROM records WHERE kind = 'session.archived'")
    db.execute("DELETE FROM sessions WHERE session LIKE 'archived-%'")
    db.commit()
    db.close()
    with SqliteJournal(path) as journal:
        texts = [finding.text for finding in verify_sessions(journal).findings]
    assert any("session number 1 is missing" in text for text in texts)


def test_an_archive_that_was_replaced_or_is_gone_is_said(path: Path, tmp_path: Path) -> None:
    filled(path, "s1", "s2")
    file = tmp_path / "1.jsonl.gz"
    with SqliteJournal(path) as journal:
        archive_sessions(journal, ["s1"], file)
        data = file.read_bytes()
        file.write_bytes(data + b"\0")
        (finding,) = verify_sessions(journal).findings
        assert "is not the file that was written" in finding.text
        file.unlink()
        done = verify_sessions(journal)
        assert done.is_intact and any("was not found" in note for note in done.notes)


def test_a_session_in_use_and_one_that_does_not_verify_stay(path: Path, tmp_path: Path) -> None:
    filled(path, "s1", "s2", "s3")
    db = sqlite3.connect(path)
    db.execute(f"UPDATE records SET time = 1 WHERE id = {(2 << 32) + 3}")
    db.commit()
    db.close()
    with SqliteJournal(path) as writer, SqliteJournal(path) as journal:
        writer.lease("s1")
        done = archive_sessions(journal, ["s1", "s2", "s3"], tmp_path / "x.jsonl.gz")
        assert done.sessions == ["s3"] and set(done.kept) == {"s1", "s2"}
        assert "in use" in done.kept["s1"] and "event 3" in done.kept["s2"]
        writer.append(
            "s1", "r1", [Noticed("n", "goes on")], identity=Identity("local", "ann", "s1", "r1")
        )
        journal.verify("s1")
        # The leases of what stayed were given back.
        writer.release("s1")
        journal.append(
            "s1", "r1", [Noticed("n", "x")], identity=Identity("local", "ann", "s1", "r1")
        )


def test_nothing_is_written_where_nothing_can_be_archived_and_no_file_is_replaced(
    path: Path, tmp_path: Path
) -> None:
    filled(path, "s1")
    with SqliteJournal(path) as writer, SqliteJournal(path) as journal:
        writer.lease("s1")
        assert archive_sessions(journal, ["s1"], tmp_path / "x.jsonl.gz").sha256 == ""
        assert not (tmp_path / "x.jsonl.gz").exists()
        writer.release("s1")
        (tmp_path / "x.jsonl.gz").write_text("mine")
        with pytest.raises(ConfigError, match="already"):
            archive_sessions(journal, ["s1"], tmp_path / "x.jsonl.gz")
    assert (tmp_path / "x.jsonl.gz").read_text() == "mine"


def test_closed_sessions_are_those_that_ended_long_enough_ago(path: Path) -> None:
    with SqliteJournal(path, now=lambda: 1.0) as journal:
        for name, events in {
            "done": [RunStarted("go"), RunFinished("done")],
            "open": [RunStarted("go")],
            "bare": [Noticed("n", "x")],
        }.items():
            journal.append(name, "r", events, identity=Identity("local", "ann", name, "r"))
    filled(path, "new")
    with SqliteJournal(path) as journal:
        assert [info.session for info in find_closed_sessions(journal, 2_000)] == ["bare", "done"]
        assert find_closed_sessions(journal, 0) == []


@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("writing", {"s1", "s2", "s3"}),
        ("checked", {"s1", "s2", "s3"}),
        ("named", {"s1", "s2", "s3"}),
        ("deleted", {"s1", "s2", "s3"}),
        ("removed", {"s2", "s3"}),
        ("none", {"s3"}),
    ],
)
def test_killed_at_any_point_nothing_is_lost_and_the_next_attempt_ends_it(
    path: Path, tmp_path: Path, point: str, left: set[str]
) -> None:
    records = filled(path, "s1", "s2", "s3", events=40)
    file = tmp_path / "old.jsonl.gz"
    command = [sys.executable, str(PROGRAM), str(path), str(file), point, "s1", "s2"]
    code = subprocess.run(command, timeout=60, check=False).returncode
    assert code == (0 if point == "none" else -signal.SIGKILL)
    assert everywhere(path, file) == records
    with SqliteJournal(path) as journal:
        assert verify_sessions(journal).is_intact
        assert {info.session for info in journal.sessions()} - {
            f"{ARCHIVE_SESSION_PREFIX}a"
        } >= left
        assert left == {
            info.session
            for info in journal.sessions()
            if not info.session.startswith(ARCHIVE_SESSION_PREFIX)
        }
        again = tmp_path / ("old.jsonl.gz" if not file.exists() else "again.jsonl.gz")
        done = archive_sessions(journal, sorted(left - {"s3"}), again)
        assert done.kept == {} and verify_sessions(journal).is_intact
    assert everywhere(path, file, again).keys() == records.keys()


def test_an_import_that_was_killed_is_taken_up_where_it_ended(path: Path, tmp_path: Path) -> None:
    records = filled(path, "s1", "s2", events=300)
    file = tmp_path / "old.jsonl.gz"
    with SqliteJournal(path) as journal:
        archive_sessions(journal, ["s1", "s2"], file)
    command = [sys.executable, str(PROGRAM), str(path), str(file), "import"]
    assert subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL
    with SqliteJournal(path) as journal:
        assert 0 < journal.head("s1")[0] < 302
        assert import_sessions(journal, file) == ["s1", "s2"]
        assert {name: list(journal.records(name)) for name in records} == records
        with pytest.raises(JournalError, match="already has another session"):
            journal.append(
                "s1", "r1", [Noticed("n", "x")], identity=Identity("local", "ann", "s1", "r1")
            )
            import_sessions(journal, file)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    folder = tmp_path_factory.mktemp("packed")
    filled(folder / "j.db", "s1", "s2")
    with SqliteJournal(folder / "j.db") as journal:
        archive_sessions(journal, ["s1", "s2"], folder / "a.jsonl.gz")
    data = (folder / "a.jsonl.gz").read_bytes()
    return data, gzip.decompress(data)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(draw=st.randoms(use_true_random=False), cut=st.booleans())
def test_a_changed_or_cut_archive_is_noticed_or_holds_the_same(
    packed: tuple[bytes, bytes],
    tmp_path_factory: pytest.TempPathFactory,
    draw: random.Random,
    cut: bool,
) -> None:
    data = bytearray(packed[0])
    at = draw.randrange(len(data))
    if cut:
        del data[at:]
    else:
        data[at] ^= draw.randrange(1, 256)
    path = tmp_path_factory.mktemp("x") / "a.jsonl.gz"
    path.write_bytes(bytes(data))
    try:
        whole = verify_file(path).is_intact
    except FerruleError:
        return
    if whole:
        assert gzip.decompress(bytes(data)) == packed[1]


@pytest.mark.parametrize("session", ["s1", "s2"])
def test_a_session_that_was_taken_out_of_an_archive_is_named(
    packed: tuple[bytes, bytes], tmp_path: Path, session: str
) -> None:
    lines = packed[1].decode().splitlines(keepends=True)
    kept = [line for line in lines[1:] if f'{{"session":"{session}"' not in line]
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress("".join([lines[0], *kept]).encode()))
    (finding,) = verify_file(path).findings
    assert f"session `{session}` is missing" in finding.text


def test_archiving_and_importing_need_no_memory_for_the_whole_session(
    path: Path, tmp_path: Path
) -> None:
    big = "x" * 7_000
    me = Identity("local", "ann", "s1", "r1")
    with SqliteJournal(path) as journal:
        for _ in range(4):
            journal.append("s1", "r1", [Noticed("n", big)] * 200, identity=me)
        file = tmp_path / "a.jsonl.gz"
        tracemalloc.start()
        archive_sessions(journal, ["s1"], file)
        import_sessions(journal, file)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # 5.6 MB of events; a page of rows and a batch of records may be held at once.
    assert most < 4_000_000, most
