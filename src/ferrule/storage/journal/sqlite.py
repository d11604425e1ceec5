"""The journal in an SQLite file, or in memory.

See `hash_chain` for the hashes, `sqlite_database` for the file. Everything else that is known of a
session (transcript, audit, replay, exports, lists) is read from its journal.
"""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from ferrule.core.errors import JournalError
from ferrule.core.events import Event, JournalRecord, SessionArchived
from ferrule.core.identity import Identity
from ferrule.core.limits import OUTPUT_CAP
from ferrule.tools.forking import finalize_quietly, make_lock, make_rlock, watch_forks

from . import hash_chain, sessions, sqlite_integrity
from . import sqlite_rows as rows
from .records import (
    EventChain,
    WriterState,
    check_times,
    make_records,
    not_json_error,
    read_records,
)
from .sessions import SessionInfo, unknown_session_error
from .sqlite_database import open_database, open_leases, translate_error
from .sqlite_lease import FileLeases

T = TypeVar("T")

INSERT_RECORD = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)"
MOVE_END = "UPDATE sessions SET time = ?, seal = ? WHERE no = ?"
"""Say where a session ends, with each append to it."""
_PARENTS_CONNECTIONS: list[tuple[sqlite3.Connection, sqlite3.Cursor | None]] = []
"""In a forked child: connections of its parent, which are kept so that nothing closes them."""


class SqliteJournal:
    """A `Journal` in one SQLite file, or in memory (`:memory:`).

    The file is opened, and created if it is missing, on first use. It is closed by `close`, or with
    this object. `durability` is `process` or `power` (see `sqlite_database`); `now` is the clock in
    seconds since 1970.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        durability: str = "process",
        now: Callable[[], float] = time.time,
        max_result_bytes: int = OUTPUT_CAP,
    ) -> None:
        self.path = None if str(path) == ":memory:" else Path(path).expanduser().absolute()
        self._durability = durability
        self._chain = EventChain(now, max_result_bytes)
        self._lock = make_rlock(is_quiet=True)
        watch_forks(self)
        self._db: sqlite3.Connection | None = None
        # One for all appends: creating one for each costs as much as an event's seal.
        self._cursor: sqlite3.Cursor | None = None
        self._file: tuple[int, int] | None = None
        self._leases = FileLeases(None)
        self._writing: dict[str, WriterState] = {}
        self._closed = False
        self._finalizer: weakref.finalize[..., SqliteJournal] | None = None

    def after_fork(self) -> None:
        """Open the file anew in a forked child: connection and leases are its parent's.

        What is in memory is the child's own copy.
        """
        if self.path is None or self._db is None:
            return
        # Closing a connection that a fork has copied would act on its parent's.
        _PARENTS_CONNECTIONS.append((self._db, self._cursor))
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        self._db = None
        self._cursor = None
        self._leases.close()
        self._leases = FileLeases(None)
        self._writing.clear()

    # ---- writing

    def append(
        self,
        session: str,
        run: str,
        events: Sequence[Event],
        *,
        identity: Identity,
        times: Sequence[int] | None = None,
    ) -> list[JournalRecord]:
        """Write events at the end of a session, in one transaction; see `Journal.append`."""
        # Every run comes through here: each event is encoded once, and all of them are one small
        # write.
        check_times(events, times)
        with self._lock:
            writing = self._writing.get(session)
            if writing is None or writing.identity is not identity or writing.run != run:
                writing = self._address(session, run, identity)
            if not events:
                return []
            db = cast(sqlite3.Cursor, self._cursor)
            self._require_file()
            try:
                db.execute("BEGIN IMMEDIATE")
                writing.no = writing.no or self._add_session(session, writing)
                kept, new_rows = self._chain.extend(session, writing, events, times)
                db.executemany(INSERT_RECORD, new_rows)
                db.execute(MOVE_END, (new_rows[-1][1], hash_chain.seal(writing.hash), writing.no))
                db.execute("COMMIT")
            except BaseException as error:
                self._raise_clearer(error, [session])
                raise
            return make_records(session, run, writing, kept, new_rows)

    def append_batches(self, batches: Sequence[tuple[Identity, Sequence[Event]]]) -> None:
        with self._lock:
            batches = [batch for batch in batches if batch[1]]
            try:
                for identity, _ in batches:
                    session, run = identity.session, identity.run
                    writing = self._writing.get(session)
                    if writing is None or writing.identity is not identity or writing.run != run:
                        self._address(session, run, identity)
                if batches:
                    self._require_file()
                    self._write_all(cast(sqlite3.Connection, self._db), batches)
            except BaseException as error:
                self._raise_clearer(error, [identity.session for identity, _ in batches])
                raise

    def _write_all(
        self, db: sqlite3.Connection, batches: Sequence[tuple[Identity, Sequence[Event]]]
    ) -> None:
        new_rows: list[tuple[Any, ...]] = []
        ends: list[tuple[int, bytes, int]] = []
        db.execute("BEGIN IMMEDIATE")
        for identity, events in batches:
            session = identity.session
            writing = self._writing[session]
            writing.no = writing.no or self._add_session(session, writing)
            _, session_rows = self._chain.extend(session, writing, events)
            new_rows += session_rows
            ends.append((session_rows[-1][1], hash_chain.seal(writing.hash), writing.no))
        db.executemany(INSERT_RECORD, new_rows)
        db.executemany(MOVE_END, ends)
        db.execute("COMMIT")

    def _raise_clearer(self, error: BaseException, sessions: Sequence[str]) -> None:
        """Forget the state of the sessions; raise a clearer error than `error`, if there is one."""
        for session in sessions:
            self._forget(session)
        if isinstance(error, sqlite3.Error):
            doing = f"recording in `{'`, `'.join(sessions)}`"
            raise translate_error(error, str(self.path), doing) from error
        if isinstance(error, TypeError | ValueError | KeyError):
            raise not_json_error(error) from error

    def _forget(self, session: str) -> None:
        # After a failure only the file knows what was written: the next append reads it first.
        self._writing.pop(session, None)
        if self._db is not None and self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _address(self, session: str, run: str, identity: Identity) -> WriterState:
        """Become the writer of the session for this run and identity."""
        owner = (identity.tenant, identity.user)
        address = hash_chain.row_prefix(session, run, *owner)
        writing = self._writing.get(session) or self._take(session, owner)
        if writing.owner != owner:
            raise unknown_session_error(session)
        writing.run = run
        writing.identity = identity
        writing.row_prefix = address
        return writing

    def _take(self, session: str, owner: tuple[str, str]) -> WriterState:
        """Take the session's lease and return where its chain of events ends."""
        row = self._row(session)
        if row is not None and (row[1], row[2]) != owner:
            raise unknown_session_error(session)
        self.lease(session)
        # Look again: only now can nobody else write it.
        row = self._row(session)
        if row is None:
            writing = WriterState(0, 0, hash_chain.FIRST_HASH, owner)
        else:
            no = row[0]
            last = self._read(
                f"reading `{session}`", lambda db: rows.read_last_row(db, session, no)
            )
            hash_chain.check_end(session, last.seq, last.hash, last.seal)
            owner = (row[1], row[2])
            writing = WriterState(no, last.seq, last.hash, owner, last_run=last.run)
        self._writing[session] = writing
        return writing

    def _add_session(self, session: str, writing: WriterState) -> int:
        return sqlite_integrity.add_session(
            cast(sqlite3.Connection, self._db), session, *writing.owner
        )

    def lease(self, session: str) -> None:
        with self._lock:
            self._open()
            self._leases.take(session)
            IDLE_FILES.discard(self)

    def release(self, session: str) -> None:
        with self._lock:
            self._writing.pop(session, None)
            self._leases.release(session)
            is_idle = self._has_open_file and not self._leases.has_any
        if is_idle:
            IDLE_FILES.add(self)

    # ---- reading

    def records(self, session: str, *, after: int = 0) -> Iterator[JournalRecord]:
        no, tenant, user = self._find_row(session)

        def read_page(start: int) -> list[tuple[Any, ...]]:
            return self._read(
                f"reading `{session}`", lambda db: rows.read_page(db, no, start, (tenant, user))
            )

        yield from read_records(session, after, read_page, hash_chain.raise_broken)

    def head(self, session: str) -> tuple[int, str]:
        no = self._number(session)
        try:
            last = self._read(
                f"reading `{session}`", lambda db: rows.read_last_row(db, session, no)
            )
        except JournalError:
            self._check_there(session, no)
            raise
        return last.seq, last.hash.hex()

    def verify(self, session: str) -> None:
        no, tenant, user = self._find_row(session)
        try:
            raw = rows.read_raw_rows(self._open, no, (session, tenant, user), self._lock)
            deque(hash_chain.check_rows(session, raw), maxlen=0)
            self._read(
                f"checking `{session}`",
                lambda db: sqlite_integrity.check_unhashed_columns(db, session, no),
            )
        except JournalError:
            self._check_there(session, no)
            raise

    def find_problems(self) -> list[str]:
        """Return a sentence for each problem of the file as a whole (see `sqlite_integrity`).

        The hash chains of the sessions are checked by `verify`.
        """
        if not self._exists():
            return []
        return self._read("checking it", sqlite_integrity.find_problems)

    def remove_archived(self, gone: SessionArchived, session: str, *, identity: Identity) -> None:
        """Remove an archived session and record that in `session`: both or neither.

        Raises:
            JournalError: The session is in use or no longer ends as `gone` says. Nothing was
                removed.
            SessionNotFound: There is no such session.
        """
        with self._lock:
            no = self._number(gone.session)
            self.lease(gone.session)
            try:
                writing = self._address(session, identity.run, identity)
                db = cast(sqlite3.Connection, self._db)
                db.execute("BEGIN IMMEDIATE")
                sqlite_integrity.remove_session(db, no, gone)
                writing.no = writing.no or self._add_session(session, writing)
                _, new_rows = self._chain.extend(session, writing, [replace(gone, number=no)])
                db.execute(INSERT_RECORD, new_rows[0])
                db.execute(MOVE_END, (new_rows[-1][1], hash_chain.seal(writing.hash), writing.no))
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise translate_error(
                    error, str(self.path), f"archiving `{gone.session}`"
                ) from error
            finally:
                if self._db is not None and self._db.in_transaction:
                    self._forget(session)
                self.release(gone.session)

    def sessions(
        self, *, tenant: str | None = None, user: str | None = None, limit: int | None = None
    ) -> list[SessionInfo]:
        if not self._exists():
            return []
        return self._read(
            "listing sessions", lambda db: sessions.list_sessions(db, tenant, user, limit)
        )

    def find(
        self, prefix: str, *, tenant: str | None = None, user: str | None = None
    ) -> SessionInfo:
        if not self._exists():
            raise unknown_session_error(prefix)
        return self._read(
            f"looking for `{prefix}`", lambda db: sessions.find_session(db, prefix, tenant, user)
        )

    def _number(self, session: str) -> int:
        return self._find_row(session)[0]

    def _find_row(self, session: str) -> tuple[int, str, str]:
        row = self._row(session) if self._exists() else None
        if row is None:
            raise unknown_session_error(session)
        return row

    def _check_there(self, session: str, no: int) -> None:
        """Raise SessionNotFound if the session was archived while it was read.

        Its events are not missing then.
        """
        if self._number(session) != no:
            raise unknown_session_error(session)

    def _row(self, session: str) -> tuple[int, str, str] | None:
        sql = "SELECT no, tenant, user FROM sessions WHERE session = ?"
        return self._read(
            f"looking for `{session}`", lambda db: db.execute(sql, (session,)).fetchone()
        )

    def _read(self, doing: str, query: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            db = self._open()
            try:
                return query(db)
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise translate_error(error, str(self.path), doing) from error

    # ---- the file

    def _exists(self) -> bool:
        # A closed journal "exists", so that `_open` says why it cannot be read.
        return (
            self._closed or self._db is not None or (self.path is not None and self.path.exists())
        )

    def _require_file(self) -> None:
        """Raise JournalError if the open file is not the one at the path any more.

        What is written into a deleted file is lost when it is closed.
        """
        if _find_file(self.path) != self._file:
            raise JournalError(
                f"journal `{self.path}`: it was deleted or replaced while it was in use; what "
                "would be recorded now would be lost",
                code="journal_removed",
                hint="put the file back, or start the program again with a new journal",
            )

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise JournalError("the journal is closed", code="journal_closed")
        if self._db is None:
            if self.path is not None:
                self._leases = open_leases(self.path)
                self._leases.mark_in_use()
            try:
                self._db = open_database(self.path, self._durability, self._leases)
                self._finalizer = finalize_quietly(self, self._lock, self._db.close)
                self._cursor = self._db.cursor()
                self._file = _find_file(self.path)
            except BaseException:
                # Otherwise this process would count as a user of a file that it could not open, and
                # nothing could salvage it.
                self._leases.close()
                raise
            if self._has_open_file:
                IDLE_FILES.add(self)
        return self._db

    @property
    def _has_open_file(self) -> bool:
        return self._db is not None and self.path is not None

    def close_idle(self) -> bool:
        """Close the file until it is needed again; see `IdleFiles`."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._leases.has_any:
                return False
            self._close_file()
            return True
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._close_file()
        IDLE_FILES.discard(self)

    def _close_file(self) -> None:
        self._writing.clear()
        if self._finalizer is not None:
            self._finalizer()
        self._db = None
        self._cursor = None
        self._leases.close()

    def __enter__(self) -> SqliteJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _find_file(path: Path | None) -> tuple[int, int] | None:
    """Return which file is at a path: its device and number. None if there is none."""
    if path is None:
        return None
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


MAX_IDLE_FILES = 8
"""Maximum number of idle files that stay open, each with three descriptors."""


class IdleFile(Protocol):
    """A file that can be closed while nobody needs it; its owner opens it again."""

    def close_idle(self) -> bool:
        """Close the file. Return whether it is closed: not if it is needed just now."""
        ...


class IdleFiles:
    """The idle files of a process, the one that was used last at the end. Thread-safe."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._files: weakref.WeakKeyDictionary[IdleFile, None] = weakref.WeakKeyDictionary()

    def add(self, file: IdleFile) -> None:
        """Take note that a file is idle, and close the one that has been for the longest time."""
        with self._lock:
            self._files.pop(file, None)
            self._files[file] = None
            oldest = None
            if len(self._files) > MAX_IDLE_FILES:
                oldest = next(iter(self._files.keys()))
                self._files.pop(oldest)
        if oldest is not None and not oldest.close_idle():
            with self._lock:
                self._files[oldest] = None

    def discard(self, file: IdleFile) -> None:
        """Take note that a file is in use, or closed."""
        with self._lock:
            self._files.pop(file, None)


IDLE_FILES = IdleFiles()
"""Those of the journals of this process."""
