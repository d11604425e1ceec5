"""Whatever is taken out of a journal or changed in it is noticed, for journals of any history.

Who does it here may delete rows, change any byte, and put any bytes that are stored somewhere in
the journal in the place of others. They compute no hash: the hashes have no key, so whoever
computes them anew is noticed by checkpoints alone (`test_signing`).
"""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ferrule.core.events import Event, Noticed, RunFinished, RunStarted
from ferrule.core.identity import Identity
from ferrule.storage.audit.verification import verify_sessions
from ferrule.storage.export.archive import archive_sessions
from ferrule.storage.journal.sqlite import SqliteJournal

BITS = 32
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Noticed, TEXT, TEXT),
    st.builds(RunStarted, TEXT),
    st.builds(RunFinished, st.just("done"), TEXT),
)
NAMES = ("a", "b", "c")
HISTORIES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.lists(EVENTS, min_size=1, max_size=3)),
    min_size=1,
    max_size=8,
)
"""Which session is appended to, and what."""
Stored = bytes | str | int | None


@contextmanager
def opened(path: Path) -> Generator[sqlite3.Connection]:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        yield db
    finally:
        db.close()


class Tampered:
    """A journal's file, to be changed in one way after another and checked after each."""

    def __init__(self, folder: Path, history: list[tuple[str, list[Event]]], archived: str) -> None:
        self.path = folder / "journal.db"
        self._copies = itertools.count()
        with SqliteJournal(self.path) as journal:
            for session, events in history:
                me = Identity("local", "me", session, "r1")
                journal.append(session, "r1", events, identity=me)
                journal.release(session)
            if archived in {session for session, _ in history}:
                archive_sessions(journal, [archived], folder / "archive.jsonl.gz")
            assert verify_sessions(journal).findings == []
        self.bytes = self.path.read_bytes()
        with opened(self.path) as db:
            self.keys = [key for (key,) in db.execute("SELECT id FROM records ORDER BY id")]
            self.sessions = [no for (no,) in db.execute("SELECT no FROM sessions ORDER BY no")]
            self.tables = [
                name
                for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]

    @contextmanager
    def changing(self, what: str) -> Generator[sqlite3.Connection]:
        """Change a copy of the file. Fails if the change is one, and nobody notices."""
        copy = self.path.with_name(f"copy-{next(self._copies)}.db")
        copy.write_bytes(self.bytes)
        with opened(copy) as db:
            db.execute("PRAGMA synchronous = OFF")
            before = list(db.iterdump())
            db.execute("BEGIN")
            yield db
            db.execute("COMMIT")
            changed = list(db.iterdump()) != before
        with SqliteJournal(copy) as journal:
            done = verify_sessions(journal)
        assert not (changed and done.is_intact), f"nobody noticed: {what}"

    def columns(self) -> Iterator[tuple[str, str, int]]:
        """Every column of every row of every table: `(table, column, rowid)`."""
        with opened(self.path) as db:
            for table in self.tables:
                names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
                rows = [row for (row,) in db.execute(f"SELECT rowid FROM {table}")]
                yield from ((table, name, row) for name, row in itertools.product(names, rows))

    def value(self, table: str, column: str, row: int) -> Stored:
        with opened(self.path) as db:
            return db.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)).fetchone()[0]


@contextmanager
def made(history: list[tuple[str, list[Event]]], archived: str) -> Generator[Tampered]:
    with tempfile.TemporaryDirectory() as folder:
        yield Tampered(Path(folder), history, archived)


def bounded(number: int) -> settings:
    # Each example is hundreds of changes: what is smallest says nothing more, and takes minutes to
    # find.
    return settings(
        max_examples=number, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
    )


@bounded(4)
@given(HISTORIES, st.sampled_from(["", *NAMES]))
def test_every_run_of_events_that_is_taken_out_is_missed(history: Any, archived: str) -> None:
    with made(history, archived) as journal:
        for first, last in itertools.combinations_with_replacement(journal.keys, 2):
            with journal.changing(f"events {first} to {last}") as db:
                db.execute("DELETE FROM records WHERE id BETWEEN ? AND ?", (first, last))


@bounded(4)
@given(HISTORIES, st.sampled_from(["", *NAMES]))
def test_every_set_of_sessions_that_is_taken_out_with_all_its_rows_is_missed(
    history: Any, archived: str
) -> None:
    with made(history, archived) as journal:
        some = range(1, len(journal.sessions) + 1)
        sets = [gone for count in some for gone in itertools.combinations(journal.sessions, count)]
        for gone, counted in itertools.product(sets, (False, True)):
            numbers = ", ".join(map(str, gone))
            with journal.changing(f"sessions {numbers}") as db:
                db.execute(f"DELETE FROM sessions WHERE no IN ({numbers})")
                db.execute(f"DELETE FROM records WHERE id >> {BITS} IN ({numbers})")
                if counted:
                    db.execute(
                        "UPDATE session_set SET numbers = (SELECT coalesce(max(no), 0) FROM "
                        "sessions)"
                    )


@bounded(4)
@given(HISTORIES, st.sampled_from(["", *NAMES]))
def test_every_row_of_every_table_that_is_taken_out_is_missed(history: Any, archived: str) -> None:
    with made(history, archived) as journal:
        for table, row in {(table, row) for table, _, row in journal.columns()}:
            with journal.changing(f"row {row} of {table}") as db:
                db.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))


@bounded(4)
@given(HISTORIES)
def test_no_seal_that_is_stored_or_made_of_stored_bytes_hides_that_a_tail_was_cut_off(
    history: Any,
) -> None:
    with made(history, "") as journal:
        seals = [f"(SELECT seal FROM sessions WHERE no = {no})" for no in journal.sessions]
        last = "(SELECT {} FROM records WHERE id = {})"
        ends = ("hash", "substr(hash, 1, 16)", "substr(hash, 17)", "zeroblob(16)", "1")
        for first, end in itertools.product(journal.keys, (*seals, *ends)):
            if first - 1 not in journal.keys:
                continue
            no = first >> BITS
            seal = end if end in seals else last.format(end, first - 1)
            with journal.changing(f"the tail from {first}, and the seal {seal}") as db:
                time = last.format("time", first - 1)
                db.execute(f"UPDATE sessions SET seal = {seal}, time = {time} WHERE no = {no}")
                after = no + 1 << BITS
                db.execute("DELETE FROM records WHERE id >= ? AND id < ?", (first, after))


def changed(value: Stored, draw: st.DataObject) -> Stored:
    """The value with one byte changed, or a byte added, or of another type."""
    if value is None:
        return draw.draw(st.sampled_from(["", b"", 0, "a"]))
    if isinstance(value, int):
        return value ^ draw.draw(st.integers(1, 255)) << 8 * draw.draw(st.integers(0, 5))
    as_bytes = value if isinstance(value, bytes) else value.encode()
    how = draw.draw(st.sampled_from(["flip", "add", "cut", "type"]))
    if how == "type":
        return value.encode() if isinstance(value, str) else value.hex()
    if how == "add" or not as_bytes:
        other = as_bytes + draw.draw(st.binary(min_size=1, max_size=1))
    elif how == "cut":
        other = as_bytes[:-1]
    else:
        at = draw.draw(st.integers(0, len(as_bytes) - 1))
        flip = draw.draw(st.integers(1, 255))
        other = as_bytes[:at] + bytes([as_bytes[at] ^ flip]) + as_bytes[at + 1 :]
    return other if isinstance(value, bytes) else other.decode("utf-8", "replace")


@bounded(3)
@given(HISTORIES, st.sampled_from(["", *NAMES]), st.data())
def test_every_value_of_every_table_that_is_changed_is_noticed(
    history: Any, archived: str, draw: st.DataObject
) -> None:
    with made(history, archived) as journal:
        for table, column, row in journal.columns():
            value = journal.value(table, column, row)
            other = changed(value, draw)
            with journal.changing(
                f"{column} of row {row} of {table}: {value!r} to {other!r}"
            ) as db:
                try:
                    db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (other, row))
                except sqlite3.Error:
                    # The table itself refuses it: a number that is no number, a name that is there
                    # already.
                    continue
