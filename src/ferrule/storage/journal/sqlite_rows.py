"""Reading a session's rows from an SQLite journal, a page at a time.

No statement stays open between pages: an open read would pin an old state of the file, and the next
append on the same connection would fail because another process had written meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from ferrule.core.errors import JournalError

from . import hash_chain
from .sqlite_database import SEQ_BITS

PAGE_ROWS = 128
"""Rows read at once."""
SESSION_NUMBER_LIMIT = 1 << 63 - SEQ_BITS
"""From this number of a session on, a row's key has no space left for its events."""
_RAW = "seal, " + ", ".join(
    f"CAST({name} AS BLOB)" for name in ("run", "tenant", "user", "kind", "time", "body")
)
RAW_COLUMNS = f"{_RAW}, hash"
"""The columns that `hash_chain.check` needs."""


def key_range(no: int) -> tuple[int, int]:
    """Return the first and last possible key of a session's rows.

    Raises:
        JournalError: No session can have this number.
    """
    if not 0 < no < SESSION_NUMBER_LIMIT:
        raise JournalError(
            f"the table of sessions contains the impossible session number {no}",
            code="journal_corrupt",
            hint=(
                "`ferrule sessions salvage` keeps what is intact in a new journal and the old "
                "one aside"
            ),
        )
    return no << SEQ_BITS, (no + 1 << SEQ_BITS) - 1


def read_page(
    db: sqlite3.Connection, no: int, start: int, columns: str, *, limit: int = PAGE_ROWS
) -> list[tuple[Any, ...]]:
    """Return rows of a session from number `start` on, as `(seq, *columns)`."""
    low, high = key_range(no)
    sql = (
        f"SELECT id - {low}, {columns} FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT "
        f"{limit}"
    )
    return db.execute(sql, (low + start, high)).fetchall()


def read_raw_rows(
    db: sqlite3.Connection, session: str, no: int, lock: AbstractContextManager[object]
) -> Iterator[tuple[Any, ...]]:
    """Yield all rows of a session for `hash_chain.check`.

    The last row of a page is read again with the next page: had another process appended in
    between, its seal would be out of date.

    Raises:
        JournalError: A row cannot be read. The message names the first one.
    """
    held: tuple[Any, ...] | None = None
    limit = PAGE_ROWS
    while True:
        start = held[0] if held else 0
        try:
            with lock:
                rows = read_page(db, no, start, RAW_COLUMNS, limit=limit)
        except sqlite3.DatabaseError:
            if limit > 2 or (limit == 2 and held is None):
                # Somewhere in this page the file is damaged: go on row by row up to that place.
                limit = 2 if limit > 2 else 1
                continue
            if held is not None:
                yield held
            hash_chain.raise_broken(session, start + 1, "cannot be read")
        if not rows or (held is not None and len(rows) == 1):
            yield from rows
            return
        yield from rows[:-1]
        held = rows[-1]
        limit = max(limit, 2)


def read_last_row(db: sqlite3.Connection, session: str, no: int) -> tuple[int, bytes, bool]:
    """Return number and hash of a session's last row, and whether it has its seal."""
    row = db.execute(
        (
            f"SELECT id - {no << SEQ_BITS}, hash, seal FROM records WHERE id BETWEEN ? AND ? ORDER "
            "BY id DESC LIMIT 1"
        ),
        key_range(no),
    ).fetchone()
    if row is None:
        hash_chain.raise_broken(session, 1, "and what may follow it are missing")
    seq, digest, mark = row
    if not isinstance(digest, bytes):
        hash_chain.raise_broken(session, seq, "was changed")
    return seq, digest, mark == hash_chain.seal(digest)
