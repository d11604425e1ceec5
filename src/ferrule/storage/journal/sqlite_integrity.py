r"""Integrity of a journal's file beyond hash chains; how sessions are added and removed.

A chain proves the events of one session. It says nothing about what is stored beside them: when the
table of sessions says it ended, events that belong to no session, a session without any rows, an
index or a trigger that does not belong there. Those are checked here.

The one row of `session_set` binds the table of sessions: `numbers` is how many numbers were ever
given out (none is given twice), `mark` the exclusive or of

    SHA-256( number \n session \n tenant \n user )        in UTF-8

over all sessions in the table. A session that vanished leaves its number and its part of the mark
behind.

Not noticed: changes by somebody who computed these hashes again, or who replaced the whole file by
an older copy (or an empty one). Checkpoints protect against both (`audit.checkpoints`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from hashlib import sha256

from ferrule.core.errors import JournalError
from ferrule.core.events import SessionArchived

from . import hash_chain, sqlite_rows
from .sqlite_database import SEQ_BITS, TABLES

_ENDS = (
    "SELECT nullif(first.names IS s.session || char(10) || s.tenant || char(10) || s.user, 1),"
    " last.id - :low, nullif(last.time IS s.time, 1) FROM sessions s"
    " JOIN records first ON first.id = :low + 1"
    " JOIN records last ON last.id = (SELECT max(id) FROM records WHERE id BETWEEN :low AND :high)"
    " WHERE s.no = :no"
)
"""Null where the first and the last row of a session fit the table of sessions."""
_EMPTY_MARK = bytes(32)
"""The mark of a journal without sessions."""
_MOST_NAMED = 100
"""Missing sessions in a row that are named one by one."""


def check_unhashed_columns(db: sqlite3.Connection, session: str, no: int) -> None:
    """Check what is not hashed: the names in the first row, and the time of the session's end.

    Raises:
        JournalError: One of them does not fit (`journal_corrupt`). The message names the event.
    """
    low, high = sqlite_rows.key_range(no)
    keys = {"low": low, "high": high, "no": no}
    first, last, time = db.execute(_ENDS, keys).fetchone() or (None, 1, None)
    if first is not None:
        what = "names another session or owner than the table of sessions"
        hash_chain.raise_broken(session, 1, what)
    if time is not None:
        what = "has another time than the table of sessions says"
        hash_chain.raise_broken(session, last, what)


def find_problems(db: sqlite3.Connection) -> list[str]:
    """Return a sentence for each problem of the file, as it was at one moment."""
    # Without a transaction, writes of another process between two queries would look like changes.
    db.execute("BEGIN")
    try:
        problems = [*_schema_problems(db), *_structure_problems(db)]
        if problems:
            # What is read from damaged or foreign tables means nothing.
            return problems
        return [
            *_events_without_session(db),
            *_sessions_without_events(db),
            *_missing_numbers(db),
            *_session_set_problems(db),
        ]
    finally:
        db.execute("ROLLBACK")


def _schema_problems(db: sqlite3.Connection) -> Iterator[str]:
    """Yield problems of tables, index and trigger: another trigger would set wrong seals."""
    fresh = sqlite3.connect(":memory:")
    try:
        fresh.executescript(TABLES)
        sql = "SELECT type, name, tbl_name, sql FROM sqlite_master"
        expected = set(fresh.execute(sql).fetchall())
        found = set(db.execute(sql).fetchall())
    finally:
        fresh.close()
    expected_names = {name for _, name, *_ in expected}
    for kind, name, *_ in sorted(expected ^ found, key=str):
        problem = "was changed" if name in expected_names else "does not belong there"
        yield f"the {kind} `{name}` of the file {problem}"


def _structure_problems(db: sqlite3.Connection) -> Iterator[str]:
    for (message,) in db.execute("PRAGMA integrity_check(20)").fetchall():
        if message != "ok":
            yield f"the file is damaged: {message}"


def read_session_numbers(db: sqlite3.Connection) -> set[int]:
    """Return the numbers of the sessions in the table of sessions."""
    return {no for (no,) in db.execute("SELECT no FROM sessions")}


def _events_without_session(db: sqlite3.Connection) -> Iterator[str]:
    """Yield events of no session. It takes one step per session, not per event."""
    known = read_session_numbers(db)
    sql = "SELECT id, names FROM records WHERE id >= ? ORDER BY id LIMIT 1"
    first = -(1 << 63)
    while row := db.execute(sql, (first,)).fetchone():
        key, names = row
        no = key >> SEQ_BITS
        if no not in known:
            name = f" (`{names.split(chr(10))[0]}`)" if isinstance(names, str) else ""
            yield f"session number {no}{name} has events and is missing from the table of sessions"
        if no >= (1 << 31) - 1:
            return
        first = (no + 1) << SEQ_BITS


def _sessions_without_events(db: sqlite3.Connection) -> Iterator[str]:
    """Yield sessions without an event.

    The first event and its session are written together, so the events were removed.
    """
    sql = (
        "SELECT session FROM sessions s WHERE NOT EXISTS"
        f" (SELECT 1 FROM records WHERE id BETWEEN s.no << {SEQ_BITS} AND (s.no + 1 << {SEQ_BITS}) "
        f"- "
        "1) ORDER BY no"
    )
    for (session,) in db.execute(sql):
        yield f"session `{session}`: all of its events are missing"


def _missing_numbers(db: sqlite3.Connection) -> Iterator[str]:
    """Yield numbers that were given out but belong to no session and to no archived one."""
    numbers = [no for (no,) in db.execute("SELECT no FROM sessions ORDER BY no")]
    sql = "SELECT numbers FROM session_set WHERE typeof(numbers) = 'integer'"
    given_out = sum(number for (number,) in db.execute(sql))
    # Looking for archived sessions reads every event: only where a number is missing.
    archived = _archived_numbers(db) if len(numbers) < given_out else set[int]()
    expected = 1
    for no in (*numbers, given_out + 1):
        end = min(no, expected + _MOST_NAMED)
        missing = [number for number in range(expected, end) if number not in archived]
        for number in missing:
            yield f"session number {number} is missing, and nothing says that it was archived"
        if missing and no > end:
            yield f"session numbers {end} to {no - 1} were not checked: too many are missing"
        expected = no + 1


def _archived_numbers(db: sqlite3.Connection) -> set[int]:
    sql = (
        "SELECT json_extract(body, '$.number') FROM records WHERE kind = 'session.archived' AND "
        "json_valid(body)"
    )
    return {number for (number,) in db.execute(sql)}


def _session_set_problems(db: sqlite3.Connection) -> Iterator[str]:
    """Yield problems of the table of sessions compared with the row in `session_set`."""
    set_rows = db.execute("SELECT numbers, mark FROM session_set").fetchall()
    sessions = db.execute("SELECT no, session, tenant, user FROM sessions ORDER BY no").fetchall()
    if len(set_rows) != 1:
        yield f"the table `session_set` has {len(set_rows)} rows, and should have one"
        return
    numbers, mark = set_rows[0]
    expected = _EMPTY_MARK
    for no, *names in sessions:
        if not all(isinstance(name, str) for name in names):
            yield "the table of sessions was changed: a name in it is not text"
            return
        expected = _exclusive_or(expected, _session_hash(no, *names))
    highest = max((no for no, *_ in sessions), default=0)
    if mark != expected or type(numbers) is not int or numbers < highest:
        yield (
            "the table of sessions was changed: a session was changed, added or removed, or the "
            "mark in `session_set` was changed"
        )


def remove_session(db: sqlite3.Connection, no: int, gone: SessionArchived) -> None:
    """Delete a session's rows, inside the caller's transaction.

    Raises:
        JournalError: The session does not end as `gone` says.
    """
    last = sqlite_rows.read_last_row(db, gone.session, no)
    is_sealed = last.seal == hash_chain.seal(last.hash)
    if (last.seq, last.hash.hex(), is_sealed) != (gone.events, gone.head, True):
        raise JournalError(
            f"session `{gone.session}` has changed since it was archived: nothing was removed",
            code="journal_conflict",
            hint="archive it again",
            retryable=True,
        )
    db.execute("DELETE FROM records WHERE id BETWEEN ? AND ?", sqlite_rows.key_range(no))
    row = db.execute(
        "DELETE FROM sessions WHERE no = ? RETURNING no, session, tenant, user", (no,)
    ).fetchone()
    numbers, mark = _read_session_set(db)
    _write_session_set(db, numbers, _exclusive_or(mark, _session_hash(*row)))


def add_session(
    db: sqlite3.Connection, session: str, tenant: str, user: str, *, no: int = 0
) -> int:
    """Enter a session, inside the caller's transaction; return its number, by default the next one.

    The caller says where it ends when its events are written.

    Raises:
        JournalError: The numbers that were given out are no longer known (`journal_corrupt`).
    """
    numbers, mark = _read_session_set(db)
    no = no or numbers + 1
    row = (no, session, tenant, user)
    db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, 0, x'')", row)
    _write_session_set(db, max(numbers, no), _exclusive_or(mark, _session_hash(*row)))
    return no


def _read_session_set(db: sqlite3.Connection) -> tuple[int, bytes]:
    found = db.execute("SELECT numbers, mark FROM session_set").fetchone() or (None, None)
    numbers, mark = found
    (highest,) = db.execute("SELECT coalesce(max(no), 0) FROM sessions").fetchone()
    if (
        not isinstance(numbers, int)
        or not isinstance(mark, bytes)
        or len(mark) != len(_EMPTY_MARK)
        or numbers < highest
    ):
        raise JournalError(
            (
                "the table `session_set` of the journal was changed: no session can be added or "
                "removed"
            ),
            code="journal_corrupt",
            hint=(
                "`ferrule sessions salvage` keeps what is intact in a new journal and the old "
                "one aside"
            ),
        )
    return numbers, mark


def _write_session_set(db: sqlite3.Connection, numbers: int, mark: bytes) -> None:
    db.execute("UPDATE session_set SET numbers = ?, mark = ?", (numbers, mark))


def _session_hash(no: int, session: str, tenant: str, user: str) -> bytes:
    """Return what one session adds to the mark of the set."""
    return sha256("\n".join((str(no), session, tenant, user)).encode()).digest()


def _exclusive_or(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))
