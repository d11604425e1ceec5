"""Reading a session's rows from an SQLite journal, a page at a time.

No statement stays open between pages: an open read would pin an old state of the file, and the next
append on the same connection would fail because another process had written meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from ferrule.core.errors import JournalError
from ferrule.core.value_class import frozen

from . import hash_chain
from .sqlite_database import SEQ_BITS

PAGE_ROWS = 128
"""Rows read at once."""
SESSION_NUMBER_LIMIT = 1 << 63 - SEQ_BITS
"""From this number of a session on, a row's key has no space left for its events."""
_PAGE = (
    "SELECT id - :low, time, run, kind, CAST(body AS BLOB), hash FROM records"
    f" WHERE id BETWEEN :low + :start AND :high ORDER BY id LIMIT {PAGE_ROWS}"
)
_RAW_PAGE = (
    "SELECT id - :low, time, run, kind, body, hash, names FROM records"
    " WHERE id BETWEEN :low + :start AND :high ORDER BY id LIMIT :limit"
)
_END = (
    "SELECT seal, EXISTS (SELECT 1 FROM records WHERE id BETWEEN ? AND ?) FROM sessions"
    " WHERE no = ?"
)
"""The seal of a session, and whether it has rows with these keys."""
_RUN_AT = (
    "SELECT run FROM records WHERE id BETWEEN ? AND ? AND run IS NOT NULL ORDER BY id DESC LIMIT 1"
)
"""The run of a row: it is only written where it is another one than in the row before."""


@frozen
class LastRow:
    """A session's last row, and the seal of the session."""

    seq: int
    hash: bytes
    run: str
    seal: bytes


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
    db: sqlite3.Connection, no: int, start: int, owner: tuple[str, str]
) -> list[tuple[Any, ...]]:
    """Return rows of a session from number `start` on, as `records.read_records` needs them."""
    low, high = key_range(no)
    run = _read_run(db, low, low + start - 1) if start > 1 else None
    page: list[tuple[Any, ...]] = []
    keys = {"low": low, "start": start, "high": high}
    for seq, time, new_run, kind, body, digest in db.execute(_PAGE, keys).fetchall():
        run = run if new_run is None else new_run
        page.append((seq, time, run, kind, body, digest, *owner))
    return page


def _read_run(db: sqlite3.Connection, low: int, key: int) -> Any:
    (run,) = db.execute(_RUN_AT, (low, key)).fetchone() or (None,)
    return run


def read_raw_rows(
    connect: Callable[[], sqlite3.Connection],
    no: int,
    names: tuple[str, str, str],
    lock: AbstractContextManager[object],
) -> Iterator[tuple[int, bytes | None, bytes]]:
    """Yield all rows of a session for `hash_chain.check_rows`, then check that it ends there.

    Args:
        connect: Returns the connection; called for each page, as it may be another one then.
        no: The number of the session.
        names: Its id, its tenant and its user.
        lock: Held while the connection is used.

    Raises:
        JournalError: A row cannot be read, or the session does not end with the last one. The
            message names the first one.
    """
    session, tenant, user = names
    prefix = current_run = ""
    seq = start = 0
    digest = b""
    limit = PAGE_ROWS
    while True:
        try:
            with lock:
                page, end = read_raw_page(connect(), no, start, limit)
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            if limit == 1:
                hash_chain.raise_broken(session, seq + 1, "cannot be read")
            # Somewhere in this page the file is damaged: go on row by row up to that place.
            limit = 1
            continue
        for seq, time, run, kind, body, digest, first_names in page:
            # What could be stored in two ways is stored in one: the other is a change.
            fits = (
                (first_names is None) == (seq > 1)
                and type(time) is int
                and type(kind) is str
                and "\n" not in kind
                and type(body) is str
                and type(digest) is bytes
            )
            if run is not None or not prefix:
                fits = fits and type(run) is str and (not prefix or run != current_run)
                current_run = run
                prefix = f"{session}\n{run}\n{tenant}\n{user}\n"
                fits = fits and prefix.count("\n") == len(names) + 1
            row = f"{prefix}{kind}\n{seq}\n{time}\n{body}".encode() if fits else None
            yield seq, row, digest
        if end is not None:
            hash_chain.check_end(session, seq, digest, end[0])
            return
        start = seq + 1


def read_raw_page(
    db: sqlite3.Connection, no: int, start: int, limit: int
) -> tuple[list[tuple[Any, ...]], tuple[Any] | None]:
    """Return rows from number `start` on, and with the last ones the seal of the session."""
    low, high = key_range(no)
    keys = {"low": low, "start": start, "high": high, "limit": limit}
    page = db.execute(_RAW_PAGE, keys).fetchall()
    if len(page) == limit:
        return page, None
    # In one statement: between two, another process could append and write another seal.
    after = low + (page[-1][0] + 1 if page else start)
    mark, has_grown = db.execute(_END, (after, high, no)).fetchone() or (None, False)
    return page, None if has_grown else (mark,)


def read_last_row(db: sqlite3.Connection, session: str, no: int) -> LastRow:
    """Return a session's last row, as it is at one moment."""
    low, high = key_range(no)
    row = db.execute(
        "SELECT id - :low, id, hash, (SELECT seal FROM sessions WHERE no = :no) FROM records"
        " WHERE id BETWEEN :low AND :high ORDER BY id DESC LIMIT 1",
        {"low": low, "high": high, "no": no},
    ).fetchone()
    if row is None:
        hash_chain.raise_broken(session, 1, "and what may follow it are missing")
    seq, key, digest, mark = row
    if not isinstance(digest, bytes):
        hash_chain.raise_broken(session, seq, "was changed")
    return LastRow(seq, digest, _read_run(db, low, key), mark)
