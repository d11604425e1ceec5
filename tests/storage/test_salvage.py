"""Salvage keeps what is intact, says what is not, and loses nothing of the old file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ferrule.core.errors import JournalError, SessionNotFound
from ferrule.core.events import Noticed
from ferrule.storage.journal.salvage import salvage
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.journal_conformance import ME, STORY

EVENTS = tuple(Noticed("n", f"{number:03} " + "x" * 300) for number in range(1, 101))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        for session in ("s1", "s2", "s3"):
            journal.append(session, "r1", EVENTS, identity=ME)
    return path


def edited(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


def test_an_intact_journal_comes_through_whole(path: Path) -> None:
    with SqliteJournal(path) as journal:
        before = {name: list(journal.records(name)) for name in ("s1", "s2", "s3")}
    bytes_before = path.read_bytes()
    salvaged = salvage(path)
    assert salvaged.lost == [] and salvaged.kept == {"s1": 100, "s2": 100, "s3": 100}
    assert salvaged.aside.read_bytes() == bytes_before
    with SqliteJournal(path) as journal:
        assert {name: list(journal.records(name)) for name in ("s1", "s2", "s3")} == before
        for name in before:
            journal.verify(name)


def test_a_session_is_kept_up_to_the_event_that_does_not_hold(path: Path) -> None:
    edited(path, f"UPDATE records SET body = body || ' ' WHERE id = {(2 << 32) + 40}")
    salvaged = salvage(path)
    assert salvaged.kept == {"s1": 100, "s2": 39, "s3": 100}
    assert [
        sentence for sentence in salvaged.lost if "`s2`: event 40 was changed" in sentence
    ] == salvaged.lost
    with SqliteJournal(path) as journal:
        journal.verify("s2")
        *kept, notice = journal.records("s2")
        assert [record.event for record in kept] == list(EVENTS[:39])
        assert isinstance(notice.event, Noticed) and notice.event.topic == "journal.salvaged"
        journal.append("s2", "r1", STORY[1:2], identity=ME)


def test_a_damaged_page_costs_only_what_follows_it_in_one_session(path: Path) -> None:
    pages = bytearray(path.read_bytes())
    place = pages.index(b"050 xxx", pages.index(b"050 xxx") + 1)
    start = place // 4096 * 4096
    pages[start : start + 4096] = b"\xa5" * 4096
    path.write_bytes(bytes(pages))
    salvaged = salvage(path)
    cut = [count for count in salvaged.kept.values() if count < 100]
    assert len(salvaged.kept) == 3 and len(cut) == len(salvaged.lost) == 1
    assert 30 < cut[0] < 50
    with SqliteJournal(path) as journal:
        for info in journal.sessions():
            journal.verify(info.session)
    assert b"\xa5" * 4096 in salvaged.aside.read_bytes()


def test_names_are_found_again_without_the_table_of_sessions(path: Path) -> None:
    edited(path, "DELETE FROM sessions")
    assert salvage(path).kept == {"s1": 100, "s2": 100, "s3": 100}
    with SqliteJournal(path) as journal:
        assert {info.session for info in journal.sessions(tenant="local", user="me")} == {
            "s1",
            "s2",
            "s3",
        }


def test_a_session_without_its_first_event_is_reported_and_stays_aside(path: Path) -> None:
    edited(path, f"DELETE FROM records WHERE id = {(1 << 32) + 1}")
    salvaged = salvage(path)
    assert (
        salvaged.kept == {"s2": 100, "s3": 100} and "`s1`: event 1 is missing" in salvaged.lost[0]
    )
    with SqliteJournal(path) as journal, pytest.raises(SessionNotFound):
        journal.verify("s1")
    with SqliteJournal(salvaged.aside) as old:
        assert len(old.sessions()) == 3


def test_events_still_in_the_write_ahead_log_are_kept(tmp_path: Path, path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append("s1", "r1", STORY[1:2], identity=ME)
        other = tmp_path / "crashed.db"
        for suffix in ("", "-wal"):
            other.with_name(other.name + suffix).write_bytes(
                path.with_name(path.name + suffix).read_bytes()
            )
    assert other.with_name("crashed.db-wal").stat().st_size > 0
    assert salvage(other).kept["s1"] == 101


def test_two_salvages_keep_two_old_files(path: Path) -> None:
    first, second = salvage(path), salvage(path)
    assert first.aside != second.aside and first.aside.exists() and second.aside.exists()


def test_a_journal_in_use_is_not_salvaged(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append("s1", "r1", STORY[1:2], identity=ME)
        with pytest.raises(JournalError, match="in use"):
            salvage(path)
    with pytest.raises(JournalError, match="no journal"):
        salvage(path.with_name("nowhere.db"))


def test_a_file_of_which_nothing_can_be_read_is_still_kept(path: Path) -> None:
    path.write_bytes(b"not a database " * 1000)
    salvaged = salvage(path)
    assert salvaged.kept == {} and salvaged.lost
    assert salvaged.aside.read_bytes() == b"not a database " * 1000
    with SqliteJournal(path) as journal:
        journal.append("s1", "r1", STORY, identity=ME)
