"""What must hold of a journal's file beyond the chains of its sessions, and taking a session out of it.

A chain proves the events of one session. It says nothing of what stands beside it: to whom the table of sessions gives it,
events that belong to no session, a session of which no row is left, the trigger that moves the end mark. Here it is said.

Not seen: that the newest session is gone with all its rows and its place in the table of sessions, or that the whole file is an older copy. Against both there are
checkpoints (`checkpoints`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from ferrule.core.errors import JournalError
from ferrule.core.events import SessionArchived

from . import chain, rows
from .database import BITS, TABLES

_MARKS = (
    "SELECT id - ?1 FROM records WHERE id BETWEEN ?1 AND ?2 AND (tenant IS NOT ?3 OR user IS NOT ?4"
    " OR session IS NOT CASE WHEN id = ?1 + 1 THEN ?5 END"
    " OR typeof(tip) <> 'integer' OR typeof(time) <> 'integer' OR typeof(run) <> 'text' OR typeof(kind) <> 'text'"
    " OR typeof(tenant) <> 'text' OR typeof(user) <> 'text' OR typeof(body) <> 'text' OR typeof(hash) <> 'blob')"
    " ORDER BY id LIMIT 1"
)


def check_marks(db: sqlite3.Connection, session: str, no: int) -> None:
    """Check what of a session's rows is not hashed: whose they are by the table of sessions, and how they are stored.

    Raises JournalError (`journal_corrupt`) naming the first event that does not fit.
    """
    owner = db.execute("SELECT tenant, user FROM sessions WHERE no = ?", (no,)).fetchone() or (None, None)
    low, high = rows.span(no)
    wrong = db.execute(_MARKS, (low, high, *owner, session)).fetchone()
    if wrong is not None:
        what = "does not belong to whom the table of sessions says, or is not stored as it was written"
        chain.broken(session, wrong[0], what)


def findings(db: sqlite3.Connection) -> list[str]:
    """A sentence for each thing that does not hold of the file, all of it seen as it was at one moment."""
    # Without this, what another process writes between two looks would be called a change.
    db.execute("BEGIN")
    try:
        return [*_schema(db), *_structure(db), *_strangers(db), *_emptied(db), *_gaps(db)]
    finally:
        db.execute("ROLLBACK")


def _schema(db: sqlite3.Connection) -> Iterator[str]:
    """Tables, index and trigger as they were made: with another trigger the end marks would lie."""
    fresh = sqlite3.connect(":memory:")
    try:
        fresh.executescript(TABLES)
        sql = "SELECT type, name, tbl_name, sql FROM sqlite_master"
        made, found = set(fresh.execute(sql).fetchall()), set(db.execute(sql).fetchall())
    finally:
        fresh.close()
    for kind, name, *_ in sorted(made ^ found, key=str):
        state = "is not as it was made" if any(row[1] == name for row in made) else "does not belong there"
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
    """Sessions without an event: the first event and its session are written together, so the events were taken away."""
    sql = (
        "SELECT session FROM sessions s WHERE NOT EXISTS"
        f" (SELECT 1 FROM records WHERE id BETWEEN s.no << {BITS} AND (s.no + 1 << {BITS}) - 1) ORDER BY no"
    )
    for (session,) in db.execute(sql):
        yield f"session `{session}`: all of its events are missing"


def _gaps(db: sqlite3.Connection) -> Iterator[str]:
    """Numbers that were given out and belong to nothing: a session that was taken away. Archived ones are accounted for."""
    numbers = [no for (no,) in db.execute("SELECT no FROM sessions ORDER BY no")]
    sql = "SELECT json_extract(body, '$.number') FROM records WHERE kind = 'session.archived' AND json_valid(body)"
    archived = {number for (number,) in db.execute(sql)}
    expected = 1
    for no in numbers:
        for missing in range(expected, min(no, expected + 1000)):
            if missing not in archived:
                yield f"session number {missing} is missing, and nothing says that it was archived"
        expected = no + 1


def remove(db: sqlite3.Connection, no: int, gone: SessionArchived) -> None:
    """Delete a session's rows, inside the caller's transaction. Raises JournalError if it does not end as `gone` says."""
    seq, digest, tip = rows.last(db, gone.session, no)
    if (seq, digest.hex(), tip) != (gone.events, gone.head, True):
        raise JournalError(
            f"session `{gone.session}` has changed since it was archived: nothing was removed",
            code="journal_conflict",
            hint="archive it again",
            retryable=True,
        )
    db.execute("DELETE FROM records WHERE id BETWEEN ? AND ?", rows.span(no))
    db.execute("DELETE FROM sessions WHERE no = ?", (no,))
