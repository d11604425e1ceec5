"""What must hold of a journal's file beyond the chains of its sessions, and how a session enters it
and leaves it.

A chain proves the events of one session. It says nothing of what stands beside it: to whom the
table of sessions gives it, events that belong to no session, a session of which no row is left, the
trigger that moves the seal. Here it is said.

The one row of `session_set` binds the table of sessions: `numbers` is how many numbers were ever
given out (none is given twice), `mark` the exclusive or of

    SHA-256( number \\n session \\n tenant \\n user )        in UTF-8

over all sessions that are in the table. A session that vanished leaves its number and its part of
the mark behind.

Not seen: what somebody did who computed these hashes anew, or who put an older copy (an empty one,
too) in the place of the whole file. Against both there are checkpoints (`checkpoints`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from hashlib import sha256

from ferrule.core.errors import JournalError
from ferrule.core.events import SessionArchived

from . import hash_chain, sqlite_rows
from .sqlite_database import BITS, TABLES

_MARKS = (
    "SELECT id - ?1 FROM records WHERE id BETWEEN ?1 AND ?2 AND (tenant IS NOT ?3 OR user IS NOT ?4"
    " OR session IS NOT CASE WHEN id = ?1 + 1 THEN ?5 END"
    " OR typeof(seal) <> 'blob' OR typeof(time) <> 'integer' OR typeof(run) <> 'text' OR "
    "typeof(kind) <> 'text'"
    " OR typeof(tenant) <> 'text' OR typeof(user) <> 'text' OR typeof(body) <> 'text' OR "
    "typeof(hash) <> 'blob')"
    " ORDER BY id LIMIT 1"
)
_NO_SESSION = bytes(32)
"""The mark of a journal without sessions."""
_NAMED = 100
"""Missing sessions in a row that are named one by one."""


def check_marks(db: sqlite3.Connection, session: str, no: int) -> None:
    """Check what of a session's rows is not hashed: whose they are by the table of sessions, and
    how they are stored.

    Raises JournalError (`journal_corrupt`) naming the first event that does not fit.
    """
    owner = db.execute("SELECT tenant, user FROM sessions WHERE no = ?", (no,)).fetchone() or (
        None,
        None,
    )
    low, high = sqlite_rows.span(no)
    wrong = db.execute(_MARKS, (low, high, *owner, session)).fetchone()
    if wrong is not None:
        what = (
            "does not belong to whom the table of sessions says, or is not stored as it was written"
        )
        hash_chain.broken(session, wrong[0], what)


def findings(db: sqlite3.Connection) -> list[str]:
    """A sentence for each thing that does not hold of the file, all of it seen as it was at one
    moment.
    """
    # Without this, what another process writes between two looks would be called a change.
    db.execute("BEGIN")
    try:
        found = [*_schema(db), *_structure(db)]
        # What is read from tables that are damaged, or are others, means nothing.
        return found or [*_strangers(db), *_emptied(db), *_gaps(db), *_set(db)]
    finally:
        db.execute("ROLLBACK")


def _schema(db: sqlite3.Connection) -> Iterator[str]:
    """Tables, index and trigger as they were made: with another trigger the seals would lie."""
    fresh = sqlite3.connect(":memory:")
    try:
        fresh.executescript(TABLES)
        sql = "SELECT type, name, tbl_name, sql FROM sqlite_master"
        made, found = set(fresh.execute(sql).fetchall()), set(db.execute(sql).fetchall())
    finally:
        fresh.close()
    for kind, name, *_ in sorted(made ^ found, key=str):
        state = (
            "is not as it was made"
            if any(row[1] == name for row in made)
            else "does not belong there"
        )
        yield f"the {kind} `{name}` of the file {state}"


def _structure(db: sqlite3.Connection) -> Iterator[str]:
    for (said,) in db.execute("PRAGMA integrity_check(20)").fetchall():
        if said != "ok":
            yield f"the file is damaged: {said}"


def known_numbers(db: sqlite3.Connection) -> set[int]:
    """Numbers of the sessions in the table of sessions."""
    return {no for (no,) in db.execute("SELECT no FROM sessions")}


def _strangers(db: sqlite3.Connection) -> Iterator[str]:
    """Events of no session. One step per session, not per event."""
    known = known_numbers(db)
    first = -(1 << 63)
    while row := db.execute(
        "SELECT id, session FROM records WHERE id >= ? ORDER BY id LIMIT 1", (first,)
    ).fetchone():
        no = row[0] >> BITS
        if no not in known:
            named = f" (`{row[1]}`)" if row[1] else ""
            yield f"session number {no}{named} has events and is missing from the table of sessions"
        if no >= (1 << 31) - 1:
            return
        first = (no + 1) << BITS


def _emptied(db: sqlite3.Connection) -> Iterator[str]:
    """Sessions without an event: the first event and its session are written together, so the
    events were taken away.
    """
    sql = (
        "SELECT session FROM sessions s WHERE NOT EXISTS"
        f" (SELECT 1 FROM records WHERE id BETWEEN s.no << {BITS} AND (s.no + 1 << {BITS}) - "
        "1) ORDER BY no"
    )
    for (session,) in db.execute(sql):
        yield f"session `{session}`: all of its events are missing"


def _gaps(db: sqlite3.Connection) -> Iterator[str]:
    """Numbers that were given out and belong to nothing: a session that was taken away. Archived
    ones are accounted for.
    """
    numbers = [no for (no,) in db.execute("SELECT no FROM sessions ORDER BY no")]
    sql = (
        "SELECT json_extract(body, '$.number') FROM records WHERE kind = 'session.archived' AND "
        "json_valid(body)"
    )
    archived = {number for (number,) in db.execute(sql)}
    given = sum(
        number
        for (number,) in db.execute(
            "SELECT numbers FROM session_set WHERE typeof(numbers) = 'integer'"
        )
    )
    expected = 1
    for no in (*numbers, given + 1):
        missing = [
            number
            for number in range(expected, min(no, expected + _NAMED))
            if number not in archived
        ]
        for number in missing:
            yield f"session number {number} is missing, and nothing says that it was archived"
        if missing and no > expected + _NAMED:
            yield (
                f"session numbers {expected + _NAMED} to {no - 1} were not looked at: too many "
                "are missing"
            )
        expected = no + 1


def _set(db: sqlite3.Connection) -> Iterator[str]:
    """Whether the table of sessions is the one that the row beside it tells of."""
    told = db.execute("SELECT numbers, mark FROM session_set").fetchall()
    found = db.execute("SELECT * FROM sessions ORDER BY no").fetchall()
    if len(told) != 1:
        yield f"the table `session_set` has {len(told)} rows, and should have one"
        return
    numbers, mark = told[0]
    if any(not isinstance(name, str) for _, *names in found for name in names):
        yield "the table of sessions is not as it was written: a name in it is no text"
        return
    made = _NO_SESSION
    for row in found:
        made = _exclusive_or(made, _part(*row))
    highest = max((no for no, *_ in found), default=0)
    if mark != made or type(numbers) is not int or numbers < highest:
        yield (
            "the table of sessions is not as it was written: a session was changed, added or "
            "taken away,"
            " or the mark in `session_set` was changed"
        )


def remove(db: sqlite3.Connection, no: int, gone: SessionArchived) -> None:
    """Delete a session's rows, inside the caller's transaction. Raises JournalError if it does not
    end as `gone` says.
    """
    seq, digest, sealed = sqlite_rows.last(db, gone.session, no)
    if (seq, digest.hex(), sealed) != (gone.events, gone.head, True):
        raise JournalError(
            f"session `{gone.session}` has changed since it was archived: nothing was removed",
            code="journal_conflict",
            hint="archive it again",
            retryable=True,
        )
    db.execute("DELETE FROM records WHERE id BETWEEN ? AND ?", sqlite_rows.span(no))
    row = db.execute("DELETE FROM sessions WHERE no = ? RETURNING *", (no,)).fetchone()
    numbers, mark = _known_set(db)
    _write_set(db, numbers, _exclusive_or(mark, _part(*row)))


def add(db: sqlite3.Connection, session: str, tenant: str, user: str, *, no: int = 0) -> int:
    """Enter a session, inside the caller's transaction, with its own number or the next one; the
    number.

    Raises JournalError (`journal_corrupt`) if nobody can say any more which numbers were given out.
    """
    numbers, mark = _known_set(db)
    no = no or numbers + 1
    row = (no, session, tenant, user)
    db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", row)
    _write_set(db, max(numbers, no), _exclusive_or(mark, _part(*row)))
    return no


def _known_set(db: sqlite3.Connection) -> tuple[int, bytes]:
    found = db.execute("SELECT numbers, mark FROM session_set").fetchone() or (None, None)
    numbers, mark = found
    (highest,) = db.execute("SELECT coalesce(max(no), 0) FROM sessions").fetchone()
    if (
        not isinstance(numbers, int)
        or not isinstance(mark, bytes)
        or len(mark) != len(_NO_SESSION)
        or numbers < highest
    ):
        raise JournalError(
            (
                "the table `session_set` of the journal is not as it was made: no session can be "
                "added or taken away"
            ),
            code="journal_corrupt",
            hint=(
                "`ferrule sessions salvage` keeps what is intact in a new journal and the old "
                "one aside"
            ),
        )
    return numbers, mark


def _write_set(db: sqlite3.Connection, numbers: int, mark: bytes) -> None:
    db.execute("UPDATE session_set SET numbers = ?, mark = ?", (numbers, mark))


def _part(no: int, session: str, tenant: str, user: str) -> bytes:
    """What one session adds to the mark of the set."""
    return sha256("\n".join((str(no), session, tenant, user)).encode()).digest()


def _exclusive_or(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))
