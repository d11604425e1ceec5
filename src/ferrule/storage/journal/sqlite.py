"""The journal: the one memory of everything that happened. See `hash_chain` for the hashes,
`sqlite_database` for the file.

Everything else that tells of a session (transcript, audit, replay, exports, lists) is read from it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from ferrule.core.errors import ConfigError, JournalError
from ferrule.core.events import (
    CallEvaluated,
    Event,
    Record,
    SessionArchived,
    ToolAnswered,
    Unknown,
    decode,
    spell,
)
from ferrule.core.identity import Identity
from ferrule.core.limits import OUTPUT_CAP

from . import hash_chain, sessions, sqlite_integrity
from . import sqlite_rows as rows
from .lease import Leases
from .sessions import SessionInfo, unknown
from .sqlite_database import BITS, in_words, make_lock, open_database

T = TypeVar("T")


class Journal(Protocol):
    """An append-only log of events, one chain of hashes per session
    (`ferrule.testing.journal_conformance`).

    Contract:

    * `append` is all or nothing, and durable against the death of this process before it returns.
      `seq` counts from 1 without gaps. It raises JournalError and records nothing if the journal
      cannot be written.
    * A session has one writer at a time: the first `append` (or `lease`) takes it, until `release`,
      `close` or the death of the process (where others cannot see it die, some time after that).
      Another writer gets JournalError (`journal_leased`). Other sessions are not held up.
    * A session belongs to the tenant and user of its first event; for all others it does not exist.
    * No result is kept beyond the cap: it is cut, marked `partial` and says so.
    * `records` streams in order, in time proportional to what is read, and may run while others
      append. `verify` raises JournalError (`journal_corrupt`) naming the session and the first
      event that does not hold.
    * Safe to use from several threads.
    """

    def append(
        self,
        session: str,
        run: str,
        events: Sequence[Event],
        *,
        identity: Identity,
        at: Sequence[int] | None = None,
    ) -> list[Record]:
        """Add events to a session, opening it if it is new; the records as they were written.

        `at` gives a time (ms since 1970) per event that is copied from elsewhere; else it is now.
        """
        ...

    def records(self, session: str, *, after: int = 0) -> Iterator[Record]:
        """The events after number `after`, oldest first. Raises SessionNotFound, JournalError."""
        ...

    def head(self, session: str) -> tuple[int, str]:
        """Number and hash of the last event: kept elsewhere, they prove the session up to there."""
        ...

    def verify(self, session: str) -> None:
        """Check the whole chain. Raises SessionNotFound, JournalError."""
        ...

    def sessions(
        self, *, tenant: str | None = None, user: str | None = None, limit: int | None = None
    ) -> list[SessionInfo]:
        """Sessions, the one used last first; all of them where no tenant or user is given."""
        ...

    def find(
        self, prefix: str, *, tenant: str | None = None, user: str | None = None
    ) -> SessionInfo:
        """The session with this id or the only one whose id starts so. Raises SessionNotFound."""
        ...

    def lease(self, session: str) -> None:
        """Become the writer of a session before writing. Raises JournalError (`journal_leased`)."""
        ...

    def release(self, session: str) -> None:
        """Let others write the session."""
        ...

    def close(self) -> None:
        """Give everything back. Safe to call twice; any other call after it raises JournalError."""
        ...


@runtime_checkable
class Sharing(Protocol):
    """A journal in which many small writes cost more than one that holds them all."""

    def append_all(self, batches: Sequence[tuple[Identity, Sequence[Event]]]) -> None:
        """`append` for several sessions, each named once, in one write: all or nothing. Raises what
        `append` raises.
        """
        ...


@runtime_checkable
class Checkable(Protocol):
    """A journal that can say what does not hold of it beyond the chains of its sessions."""

    def findings(self) -> list[str]:
        """A sentence for each thing that does not hold. Raises JournalError where it cannot be
        looked at.
        """
        ...


@dataclass(slots=True)
class Writing:
    """Where a session that a journal writes stands. `no` is 0 until its first event is written."""

    no: int
    seq: int
    hash: bytes
    owner: tuple[str, str]
    run: str = ""
    identity: Identity | None = None
    address: str = ""


INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_RESULTS = frozenset({ToolAnswered, CallEvaluated})


def chained(
    session: str,
    writing: Writing,
    events: Sequence[Event],
    at: Sequence[int] | None,
    now: int,
    cap: int,
) -> tuple[list[Record], list[tuple[Any, ...]]]:
    """The events as they will be kept and their rows, each hashed with the one before (see
    `hash_chain`); `writing` moves along.

    A row is `(key, seal, time, run, kind, tenant, user, body, hash, session or None)`, as `INSERT`
    wants it.
    """
    records: list[Record] = []
    made: list[tuple[Any, ...]] = []
    key, seq, previous = writing.no << BITS, writing.seq, writing.hash
    run, address, (tenant, user) = writing.run, writing.address, writing.owner
    last = len(events) - 1
    for event in events:
        seq += 1
        if at is not None:
            now = at[len(made)]
        kind, text = spell(event)
        # A character is at most 4 bytes, and JSON only makes a text longer: most results are never
        # measured.
        if type(event) in _RESULTS and len(text) * 4 > cap:
            event = hash_chain.bound(event, cap)
            kind, text = spell(event)
        elif type(event) is Unknown:
            hash_chain.check_kind(kind)
        try:
            row = f"{address}{kind}\n{seq}\n{now}\n{text}".encode()
        except UnicodeEncodeError:
            text = hash_chain.escaped(text)
            row = f"{address}{kind}\n{seq}\n{now}\n{text}".encode()
        previous = sha256(previous + row).digest()
        first = session if seq == 1 else None
        mark = hash_chain.seal(previous) if len(made) == last else hash_chain.UNSEALED
        made.append((key | seq, mark, now, run, kind, tenant, user, text, previous, first))
        records.append(Record(session, seq, now, run, event, previous.hex(), tenant, user, text))
    writing.seq, writing.hash = seq, previous
    return records, made


class SqliteJournal:
    """A `Journal` in one SQLite file, or in memory. Opens (and makes) the file with the first use.

    `durability` is `process` or `power` (see `sqlite_database`), `now` the clock in seconds since
    1970.
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
        self._now = now
        self._cap = max_result_bytes
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        # One for all appends: to make one for each costs as much as the seal of an event.
        self._cursor: sqlite3.Cursor | None = None
        self._leases = Leases(None)
        self._writing: dict[str, Writing] = {}
        self._closed = False
        if max_result_bytes > OUTPUT_CAP:
            raise ConfigError(f"max_result_bytes = {max_result_bytes}: at most {OUTPUT_CAP}")

    # ---- writing

    def append(
        self,
        session: str,
        run: str,
        events: Sequence[Event],
        *,
        identity: Identity,
        at: Sequence[int] | None = None,
    ) -> list[Record]:
        # In the loop of every run: each event is spelled once, and all of them are one small write.
        if at is not None and len(at) != len(events):
            raise ValueError("`at` needs one time per event")
        with self._lock:
            writing = self._writing.get(session)
            if writing is None or writing.identity is not identity or writing.run != run:
                writing = self._address(session, run, identity)
            if not events:
                return []
            db = cast(sqlite3.Cursor, self._cursor)
            try:
                if many := len(events) > 1 or not writing.no:
                    db.execute("BEGIN IMMEDIATE")
                    writing.no = writing.no or self._new_session(session, writing)
                records, made = chained(
                    session, writing, events, at, int(self._now() * 1000), self._cap
                )
                if many:
                    db.executemany(INSERT, made)
                    db.execute("COMMIT")
                else:
                    db.execute(INSERT, made[0])
            except BaseException as error:
                if said := self._failed(error, [session]):
                    raise said from error
                raise
            return records

    def append_all(self, batches: Sequence[tuple[Identity, Sequence[Event]]]) -> None:
        with self._lock:
            batches = [batch for batch in batches if batch[1]]
            sessions = [identity.session for identity, _ in batches]
            try:
                for identity, _ in batches:
                    writing = self._writing.get(identity.session)
                    if (
                        writing is None
                        or writing.identity is not identity
                        or writing.run != identity.run
                    ):
                        self._address(identity.session, identity.run, identity)
                if batches:
                    self._write_all(cast(sqlite3.Connection, self._db), batches)
            except BaseException as error:
                if said := self._failed(error, sessions):
                    raise said from error
                raise

    def _write_all(
        self, db: sqlite3.Connection, batches: Sequence[tuple[Identity, Sequence[Event]]]
    ) -> None:
        now = int(self._now() * 1000)
        rows: list[tuple[Any, ...]] = []
        db.execute("BEGIN IMMEDIATE")
        for identity, events in batches:
            session = identity.session
            writing = self._writing[session]
            writing.no = writing.no or self._new_session(session, writing)
            rows += chained(session, writing, events, None, now, self._cap)[1]
        db.executemany(INSERT, rows)
        db.execute("COMMIT")

    def _failed(self, error: BaseException, sessions: Sequence[str]) -> JournalError | None:
        """Forget where the sessions stood; the error in words, where there are better ones than its
        own.
        """
        for session in sessions:
            self._forget(session)
        if isinstance(error, sqlite3.Error):
            return in_words(error, str(self.path), f"recording in `{'`, `'.join(sessions)}`")
        if isinstance(error, TypeError | ValueError | KeyError):
            return JournalError(f"an event is not JSON: {error}", code="journal_event")
        return None

    def _forget(self, session: str) -> None:
        # After a failure only the file knows what was written: read it again before the next
        # append.
        self._writing.pop(session, None)
        if self._db is not None and self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _address(self, session: str, run: str, identity: Identity) -> Writing:
        """Take the session for this run and identity."""
        owner = (identity.tenant, identity.user)
        address = hash_chain.address(session, run, *owner)
        writing = self._writing.get(session) or self._take(session, owner)
        if writing.owner != owner:
            raise unknown(session)
        writing.run, writing.identity, writing.address = run, identity, address
        return writing

    def _take(self, session: str, owner: tuple[str, str]) -> Writing:
        row = self._row(session)
        if row is not None and (row[1], row[2]) != owner:
            raise unknown(session)
        self.lease(session)
        # Again: only now can nobody else write it.
        row = self._row(session)
        if row is None:
            writing = Writing(0, 0, hash_chain.FIRST, owner)
        else:
            no = row[0]
            seq, digest, sealed = self._read(
                f"reading `{session}`", lambda db: rows.last(db, session, no)
            )
            if not sealed:
                hash_chain.broken(session, seq + 1, "and what may follow it are missing")
            writing = Writing(no, seq, digest, (row[1], row[2]))
        self._writing[session] = writing
        return writing

    def _new_session(self, session: str, writing: Writing) -> int:
        return sqlite_integrity.add(cast(sqlite3.Connection, self._db), session, *writing.owner)

    def lease(self, session: str) -> None:
        with self._lock:
            self._open()
            self._leases.take(session)

    def release(self, session: str) -> None:
        with self._lock:
            self._writing.pop(session, None)
            self._leases.release(session)

    # ---- reading

    def records(self, session: str, *, after: int = 0) -> Iterator[Record]:
        no = self._known(session)
        expected = max(after, 0) + 1
        columns = "time, run, kind, CAST(body AS BLOB), hash, tenant, user"
        while page := self._read(
            f"reading `{session}`", lambda db, start=expected: rows.page(db, no, start, columns)
        ):
            for seq, at, run, kind, body, digest, tenant, user in page:
                if seq != expected:
                    hash_chain.broken(session, expected, "is missing")
                try:
                    text = body.decode()
                    event = decode(kind, json.loads(text))
                    spelled = digest.hex()
                except (ValueError, TypeError, AttributeError):
                    hash_chain.broken(session, seq, "cannot be read")
                yield Record(session, seq, at, run, event, spelled, tenant, user, text)
                expected += 1

    def head(self, session: str) -> tuple[int, str]:
        no = self._known(session)
        try:
            seq, digest, _ = self._read(
                f"reading `{session}`", lambda db: rows.last(db, session, no)
            )
        except JournalError:
            self._check_there(session, no)
            raise
        return seq, digest.hex()

    def verify(self, session: str) -> None:
        no = self._known(session)
        try:
            for _ in hash_chain.check(session, rows.raw(self._open(), session, no, self._lock)):
                pass
            self._read(
                f"checking `{session}`", lambda db: sqlite_integrity.check_marks(db, session, no)
            )
        except JournalError:
            self._check_there(session, no)
            raise

    def findings(self) -> list[str]:
        """What does not hold of the file as a whole, beyond the chains of its sessions; a sentence
        each (see `sqlite_integrity`).
        """
        return self._read("checking it", sqlite_integrity.findings) if self._exists() else []

    def retire(self, gone: SessionArchived, session: str, *, identity: Identity) -> None:
        """Remove a session that was archived, and record that in `session`: both or neither.

        Raises JournalError, and removes nothing, if it is in use or no longer ends as `gone` says;
        SessionNotFound.
        """
        with self._lock:
            no = self._known(gone.session)
            self.lease(gone.session)
            try:
                writing = self._address(session, identity.run, identity)
                db = cast(sqlite3.Connection, self._db)
                db.execute("BEGIN IMMEDIATE")
                sqlite_integrity.remove(db, no, gone)
                writing.no = writing.no or self._new_session(session, writing)
                told = replace(gone, number=no)
                _, made = chained(
                    session, writing, [told], None, int(self._now() * 1000), self._cap
                )
                db.execute(INSERT, made[0])
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise in_words(error, str(self.path), f"archiving `{gone.session}`") from error
            finally:
                if self._db is not None and self._db.in_transaction:
                    self._forget(session)
                self.release(gone.session)

    def sessions(
        self, *, tenant: str | None = None, user: str | None = None, limit: int | None = None
    ) -> list[SessionInfo]:
        if not self._exists():
            return []
        return self._read("listing sessions", lambda db: sessions.listed(db, tenant, user, limit))

    def find(
        self, prefix: str, *, tenant: str | None = None, user: str | None = None
    ) -> SessionInfo:
        if not self._exists():
            raise unknown(prefix)
        return self._read(
            f"looking for `{prefix}`", lambda db: sessions.find(db, prefix, tenant, user)
        )

    def _known(self, session: str) -> int:
        row = self._row(session) if self._exists() else None
        if row is None:
            raise unknown(session)
        return row[0]

    def _check_there(self, session: str, no: int) -> None:
        """Raises SessionNotFound if somebody archived the session while it was read: its events are
        not missing then.
        """
        if self._known(session) != no:
            raise unknown(session)

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
                raise in_words(error, str(self.path), doing) from error

    # ---- the file

    def _exists(self) -> bool:
        # A closed journal "exists", so that `_open` says why it cannot be read.
        return (
            self._closed or self._db is not None or (self.path is not None and self.path.exists())
        )

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise JournalError("the journal is closed", code="journal_closed")
        if self._db is None:
            if self.path is not None:
                self._leases = make_lock(self.path)
                self._leases.present()
            try:
                self._db = open_database(self.path, self._durability, self._leases)
                self._cursor = self._db.cursor()
            except BaseException:
                # Else this process would seem to use a file that it could not open, and nothing
                # could salvage it.
                self._leases.close()
                raise
        return self._db

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._writing.clear()
            if self._db is not None:
                self._db.close()
                self._db = None
                self._cursor = None
            self._leases.close()

    def __enter__(self) -> SqliteJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
