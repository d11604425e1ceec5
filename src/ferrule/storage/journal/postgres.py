"""The journal in PostgreSQL, for many machines: the same chain, the same promises.

A session has one writer at a time, wherever it runs.

    journal = PostgresJournal("postgresql://ferrule@db.example.com/ferrule")

An append is one statement, also one to many sessions (`postgres_append_statement`): it moves the
end of the session (its row in `sessions`) from where this writer left it, under the token it was
given (`postgres_lease`), and adds the rows of the events. If anybody else moved the end or took the
session, nothing is written. The append is durable when it returns, as far as the server is
(`synchronous_commit` is left as it is set).

If a connection breaks during an append, it is not known whether the append was recorded. The
journal connects again and takes the session with a new token, so that a statement still on its way
can no longer do anything. The end of the session then says what happened, and the append is
finished or repeated once. If that takes longer than `seconds`, it raises JournalError
(`journal_unsure`), and the next append finds out first: given the same events again, it does not
record them twice.

There is no `salvage` here; it is for files. Repair a database from its backups; `verify` says what
is wrong.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from ferrule.core.errors import FerruleError, JournalError
from ferrule.core.events import Event, JournalRecord, SessionOpened
from ferrule.core.identity import Identity
from ferrule.core.limits import OUTPUT_CAP
from ferrule.tools.forking import watch_forks

from . import hash_chain, postgres_lease, postgres_sessions
from .postgres_append_statement import (
    APPEND_BATCHES,
    APPEND_ENDS,
    BatchEntry,
    build_outcome_values,
    build_values,
)
from .postgres_connection import SECONDS, ConnectionLost, PostgresConnection, Rows, is_storable
from .postgres_lease import Lease, PostgresLeases, start_renewal
from .protocols import JobWatch
from .records import (
    EventChain,
    WriterState,
    check_times,
    make_records,
    not_json_error,
    read_records,
)
from .sessions import SessionInfo, unknown_session_error

PAGE_ROWS = 128
"""Rows read at once."""
_NAMES = 4
"""How many names a row begins with, a line each, before its kind."""

_APPEND = """
WITH head AS (
    UPDATE {s}.sessions SET seq = %s, hash = %s, seal = %s, time = %s, tenant = %s, "user" = %s,
           until = clock_timestamp() + %s * interval '1 second'
    WHERE no = %s AND token = %s AND seq = %s AND hash = %s RETURNING no
)
INSERT INTO {s}.records (no, seq, time, run, kind, tenant, "user", body, hash)
SELECT head.no, event.seq, event.time, %s, event.kind, %s, %s, event.body, event.hash
FROM head,
     unnest(%s::integer[], %s::bigint[], %s::text[], %s::text[], %s::bytea[])
         AS event (seq, time, kind, body, hash)
RETURNING 1
"""
_KNOWN = (
    'SELECT no, seq, hash, token, seal, time, tenant, "user" FROM {s}.sessions WHERE session = '
    "%s AND seq > 0"
)
_ANY_KNOWN = "SELECT session FROM {s}.sessions WHERE session = ANY(%s) AND seq > 0"
_LAST = (
    "SELECT r.seq, r.hash, s.seal FROM {s}.records r JOIN {s}.sessions s USING (no)"
    " WHERE no = %s ORDER BY r.seq DESC LIMIT 1"
)
_NOT_STARTED = (
    "SELECT session FROM {s}.sessions s WHERE seq < 1"
    " AND EXISTS (SELECT FROM {s}.records r WHERE r.no = s.no) ORDER BY no"
)
_STRAY = (
    "SELECT DISTINCT no FROM {s}.records r"
    " WHERE NOT EXISTS (SELECT FROM {s}.sessions s WHERE s.no = r.no) ORDER BY no"
)
_HASH_AT = "SELECT hash FROM {s}.records WHERE no = %s AND seq = %s"
_END = "SELECT seq FROM {s}.sessions WHERE no = %s"
_PAGE = (
    'SELECT seq, time, run, kind, body, hash, tenant, "user" FROM {s}.records'
    " WHERE no = %s AND seq >= %s ORDER BY seq LIMIT %s"
)


class _SessionRow(NamedTuple):
    """The row of a session in the table of sessions."""

    no: int
    seq: int
    hash: bytes
    token: int
    seal: bytes
    time: int
    tenant: str
    user: str


@dataclass(slots=True)
class _PendingAppend:
    """An append that may have been recorded: the session's end `before` and `after` it."""

    before: tuple[int, bytes]
    after: tuple[int, bytes]
    run: str
    events: list[Event]
    records: list[JournalRecord]


@dataclass(slots=True)
class _HeldSession(WriterState):
    """A session that this process writes: its row, our token, and an append we are not sure of.

    `WriterState.no` stays 0; `row` is used instead.
    """

    row: int = 0
    token: int = 0
    pending: _PendingAppend | None = None


class PostgresJournal:
    """A `Journal` in a PostgreSQL database (13 or newer).

    It connects, and creates its tables, on first use.

    Args:
        dsn: Whatever libpq takes (a URL, `host=… dbname=…`, `service=…`). A password can stay out
            of it (`~/.pgpass`, PGPASSWORD).
        seconds: The bound of each call, reconnecting included.
        lease_seconds: How long a session stays with a process that is no longer heard of.
        now: The clock in seconds since 1970.

    Raises:
        ConfigError: The DSN cannot be parsed.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "ferrule",
        seconds: float = SECONDS,
        lease_seconds: float = postgres_lease.SECONDS,
        now: Callable[[], float] = time.time,
        max_result_bytes: int = OUTPUT_CAP,
    ) -> None:
        self._chain = EventChain(now, max_result_bytes)
        self._db = PostgresConnection(
            dsn, part="journal", kind=JournalError, prefix="journal", schema=schema, seconds=seconds
        )
        self._leases = PostgresLeases(self._db, lease_seconds)
        self._sql = {
            sql: sql.format(s=f'"{schema}"')
            for sql in (
                _APPEND,
                APPEND_BATCHES,
                APPEND_ENDS,
                _KNOWN,
                _ANY_KNOWN,
                _LAST,
                _NOT_STARTED,
                _STRAY,
                _HASH_AT,
                _END,
                _PAGE,
            )
        }
        self._held: dict[str, _HeldSession] = {}
        self._lost: set[str] = set()
        self._stopped = threading.Event()
        self._renewing = False
        self._job_watch: JobWatch | None = None
        self._is_left = False
        watch_forks(self)

    def after_fork(self) -> None:
        """Hold nothing in a forked child: the leases are its parent's, and so is their renewal."""
        self._held = {}
        self._renewing = False
        self._stopped = threading.Event()

    @property
    def schema(self) -> str:
        """The schema that its tables are in."""
        return self._db.schema

    @property
    def where(self) -> str:
        """The database for display, without password and user."""
        return self._db.where

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
        check_times(events, times)
        with self._db.lock:
            self._check_writing()
            until = self._db.deadline()
            held = self._held.get(session)
            was_held = held is not None
            if held is None or held.identity is not identity or held.run != run:
                held = self._hold(session, run, identity, until)
            if not events:
                return []
            if not was_held and held.seq and isinstance(events[0], SessionOpened):
                # Somebody else opened it since it was looked for.
                self.release(session)
                raise _not_new_error(session)
            done = self._settle(session, held, events, until) if held.pending else []
            events = events[len(done) :]
            if times is not None:
                times = times[len(done) :]
            if not events:
                return done
            before = (held.seq, held.hash)
            try:
                kept, rows = self._chain.extend(session, held, events, times)
            except (TypeError, ValueError, KeyError) as error:
                raise not_json_error(error) from error
            records = make_records(session, run, held, kept, rows)
            pending = _PendingAppend(before, (held.seq, held.hash), run, list(events), records)
            self._write(session, held, rows, pending, until)
            return done + records

    def append_batches(self, batches: Sequence[tuple[Identity, Sequence[Event]]]) -> None:
        """Append to several sessions in one statement; see `BatchJournal.append_batches`.

        If the connection breaks, it raises JournalError (`journal_unsure`), and the next append to
        each of the sessions finds out.
        """
        outcomes: Mapping[str, Mapping[str, Any]] = {}
        if self._job_watch is not None:
            outcomes = self._job_watch.find_ends(batches)
        with self._db.lock:
            self._check_writing()
            until = self._db.deadline()
            held = {
                identity.session: self._find_writer(identity)
                for identity, events in batches
                if events
            }
            entries: list[BatchEntry] = []
            try:
                for identity, events in batches:
                    if events:
                        entries.append(self._extend(held[identity.session], identity, events))
            except BaseException as error:
                _rewind(held.values())
                if isinstance(error, TypeError | ValueError | KeyError):
                    raise not_json_error(error) from error
                raise
            if entries:
                self._write_batches(held, entries, outcomes, until)
        if outcomes and self._job_watch is not None:
            self._job_watch.note_ends(outcomes)

    def _find_writer(self, identity: Identity) -> _HeldSession:
        """Return the state of a session that may be written; a new one has the row 0."""
        session = identity.session
        held = self._held.get(session)
        if held is not None and held.pending is not None:
            raise self._unsure_error(session, held.pending, ConnectionLost("a write before it"))
        if held is None or held.identity is not identity or held.run != identity.run:
            owner = (identity.tenant, identity.user)
            address = _row_prefix(session, identity.run, *owner)
            if session in self._lost:
                raise _taken_over_error(session)
            held = held or _HeldSession(0, 0, hash_chain.FIRST_HASH, owner)
            _assign(session, held, identity.run, identity, address)
        return held

    def _extend(
        self, held: _HeldSession, identity: Identity, events: Sequence[Event]
    ) -> BatchEntry:
        before = (held.seq, held.hash)
        held.pending = _PendingAppend(before, before, held.run, list(events), [])
        kept, rows = self._chain.extend(identity.session, held, events)
        records = make_records(identity.session, held.run, held, kept, rows)
        after = (held.seq, held.hash)
        held.pending = _PendingAppend(before, after, held.run, list(events), records)
        return BatchEntry(
            identity.session, held.run, held.owner, held.row, held.token, before, after, rows
        )

    def _write_batches(
        self,
        held: dict[str, _HeldSession],
        entries: list[BatchEntry],
        outcomes: Mapping[str, Mapping[str, Any]],
        until: float,
    ) -> None:
        values = build_values(entries)
        if outcomes:
            values |= build_outcome_values(outcomes)
        values["holder"] = self._leases.holder
        values["seconds"] = self._leases.seconds
        doing = f"recording in {len(entries)} sessions"
        try:
            written = self._db.query_once(
                self._sql[APPEND_ENDS if outcomes else APPEND_BATCHES],
                values,
                doing=doing,
                until=until,
            )
        except FerruleError:
            # The server refused it, so nothing was recorded.
            _rewind(held.values())
            raise
        except BaseException as error:
            for session, one in held.items():
                assert one.pending is not None
                one.seq, one.hash = one.pending.before
                self._keep(session, one)
            if isinstance(error, ConnectionLost):
                first = entries[0].session
                pending = held[first].pending
                assert pending is not None
                raise self._unsure_error(first, pending, error) from error
            raise
        opened: dict[str, list[int]] = written[0][1] or {}
        for session, one in held.items():
            one.pending = None
            if session in opened:
                one.row, one.token = opened[session]
                self._keep(session, one)

    def _write(
        self,
        session: str,
        held: _HeldSession,
        rows: list[tuple[Any, ...]],
        pending: _PendingAppend,
        until: float,
    ) -> None:
        """Record rows exactly once, however often the connection breaks. Raises JournalError."""
        doing = f"recording in `{session}`"
        tries = 0
        while True:
            held.pending = pending
            held.seq, held.hash = pending.before
            try:
                written = self._db.query_once(
                    self._sql[_APPEND], self._values(held, rows, pending), doing=doing, until=until
                )
            except ConnectionLost as lost:
                tries += 1
                if not self._db.wait_before_retry(tries, until):
                    raise self._unsure_error(session, pending, lost) from lost
                if self._was_recorded(session, held, until):
                    return
                continue
            except FerruleError:
                # The server refused it, so nothing was recorded.
                held.pending = None
                raise
            held.pending = None
            if len(written) != len(rows):
                self._raise_refused(session, held, until)
            held.seq, held.hash = pending.after
            return

    def _values(
        self, held: _HeldSession, rows: list[tuple[Any, ...]], pending: _PendingAppend
    ) -> tuple[Any, ...]:
        seqs, times, _, kinds, bodies, hashes, _ = (
            list(column) for column in zip(*rows, strict=True)
        )
        tenant, user = held.owner
        return (
            *pending.after,
            hash_chain.seal(pending.after[1]),
            times[-1],
            tenant,
            user,
            self._leases.seconds,
            held.row,
            held.token,
            *pending.before,
            held.run,
            tenant,
            user,
            seqs,
            times,
            kinds,
            bodies,
            hashes,
        )

    def _settle(
        self, session: str, held: _HeldSession, events: Sequence[Event], until: float
    ) -> list[JournalRecord]:
        """Find out whether the pending append was recorded.

        Returns its records if it was and `events` begin with its events.
        """
        pending = held.pending
        assert pending is not None
        if not self._was_recorded(session, held, until):
            return []
        if held.run == pending.run and list(events[: len(pending.events)]) == pending.events:
            return pending.records
        raise JournalError(
            (
                f"session `{session}`: events of an earlier append with an unknown outcome were "
                "recorded after all"
            ),
            code="journal_conflict",
            hint="resume the session: its journal has more events than this process knows of",
        )

    def _was_recorded(self, session: str, held: _HeldSession, until: float) -> bool:
        """Return whether the pending append is in the journal; if not, it can no longer get there.

        Raises:
            JournalError: It could not be found out, or another process took the session over.
        """
        pending = held.pending
        assert pending is not None
        try:
            taken = self._leases.take(session, held.owner, until)
        except JournalError as error:
            if error.code == "journal_unreachable":
                raise self._unsure_error(session, pending, error) from error
            if error.code != "journal_leased":
                raise
            taken = None
        ends = (taken.seq, taken.hash) if taken else None
        if taken is not None and ends in (pending.before, pending.after):
            held.row = taken.no
            held.token = taken.token
            held.pending = None
            held.seq = taken.seq
            held.hash = taken.hash
            return ends == pending.after
        # Another process took over and may have gone on. What we sent can only be at the number
        # that it was meant for.
        rows = self._query(_HASH_AT, (held.row, pending.after[0]), f"reading `{session}`", until)
        if taken is not None:
            self._leases.release([taken.no], until)
        self._drop(session)
        if rows and rows[0][0] == pending.after[1]:
            return True
        raise _taken_over_error(session)

    def _raise_refused(self, session: str, held: _HeldSession, until: float) -> NoReturn:
        rows = self._query(_KNOWN, (session,), f"reading `{session}`", until)
        self._drop(session)
        if held.seq and rows and rows[0][3] == held.token:
            raise JournalError(
                (
                    f"session `{session}`: its journal was changed by somebody else at event "
                    f"{rows[0][1]}"
                ),
                code="journal_conflict",
                hint=(
                    "`ferrule sessions verify` says whether it is complete; was the database "
                    "restored from a backup?"
                ),
            )
        raise _taken_over_error(session)

    def _unsure_error(
        self, session: str, pending: _PendingAppend, error: BaseException
    ) -> JournalError:
        first, last = pending.before[0] + 1, pending.after[0]
        return JournalError(
            (
                f"session `{session}`: it is not known whether events {first} to {last} were "
                f"recorded ({error})"
            ),
            code="journal_unsure",
            hint="the next attempt to record them finds out, and does not record them twice",
            retryable=True,
        )

    # ---- leases

    def _hold(self, session: str, run: str, identity: Identity, until: float) -> _HeldSession:
        """Become the writer of the session for this run and identity."""
        owner = (identity.tenant, identity.user)
        address = _row_prefix(session, run, *owner)
        if session in self._lost:
            raise _taken_over_error(session)
        held = self._held.get(session) or self._take(session, owner, until)
        _assign(session, held, run, identity, address)
        return held

    def _take(self, session: str, owner: tuple[str, str] | None, until: float) -> _HeldSession:
        taken = self._leases.take(session, owner, until)
        if taken.seq:
            self._check_end(session, taken, until)
        held = _HeldSession(
            0, taken.seq, taken.hash, (taken.tenant, taken.user), row=taken.no, token=taken.token
        )
        self._keep(session, held)
        return held

    def _keep(self, session: str, held: _HeldSession) -> None:
        """Have a session from now on, and renew its lease."""
        self._held[session] = held
        if not self._renewing:
            self._renewing = True
            start_renewal(self._renew, self._leases.seconds / 3, self._stopped)

    def _check_end(self, session: str, taken: Lease, until: float) -> None:
        rows = self._query(_LAST, (taken.no,), f"reading `{session}`", until)
        if not rows or rows[0] != (taken.seq, taken.hash, hash_chain.seal(taken.hash)):
            self._leases.release([taken.no], until)
            _raise_wrong_end(session, rows, taken.seq)

    def _renew(self) -> None:
        with self._db.lock:
            held = {one.row: one.token for one in self._held.values() if one.pending is None}
            runs = () if self._job_watch is None else self._job_watch.list_runs()
            if not (held or runs) or self._db.is_closed:
                return
            until = self._db.deadline(postgres_lease.PATIENCE)
            cancelled: list[str] = []
            try:
                if runs:
                    lost, cancelled = self._leases.renew_and_ask(held, runs, until)
                else:
                    lost = self._leases.renew(held, until)
            except (ConnectionLost, FerruleError):
                # The next append, or the next time, finds out whether the sessions are still ours.
                return
            for session in [name for name, one in self._held.items() if one.row in lost]:
                self._drop(session)
        if cancelled and self._job_watch is not None:
            self._job_watch.cancel_runs(cancelled)

    def watch_jobs(self, watch: JobWatch) -> None:
        """Write outcomes with the ends of runs, and tell who works jobs which to cancel.

        Which runs somebody wants cancelled is asked with each renewal of leases.
        """
        self._job_watch = watch

    def stop_writing(self) -> None:
        """Make writing raise JournalError (`journal_left`) from now on; leases can be released.

        Ending a process cancels what runs in it, and a run that is cancelled journals that. Without
        it the run stays open, as after a `kill -9`, and another process continues it.
        """
        self._is_left = True

    def _check_writing(self) -> None:
        self._check_open()
        if self._is_left:
            raise JournalError("this process stops: others continue its runs", code="journal_left")

    def _drop(self, session: str) -> None:
        """Give up a session that is no longer ours.

        What this process knows of it is out of date until it takes the session again and reads it.
        """
        self._held.pop(session, None)
        self._lost.add(session)

    def lease(self, session: str) -> None:
        with self._db.lock:
            self._check_writing()
            _row_prefix(session)
            self._lost.discard(session)
            if session not in self._held:
                self._take(session, None, self._db.deadline())

    def release(self, session: str) -> None:
        self.release_batch([session])

    def release_batch(self, sessions: Sequence[str]) -> None:
        with self._db.lock:
            self._lost.difference_update(sessions)
            released = [self._held.pop(session, None) for session in sessions]
            rows = [held.row for held in released if held is not None]
            if rows and not self._db.is_closed:
                self._leases.release(rows, self._db.deadline())

    # ---- reading

    def records(self, session: str, *, after: int = 0) -> Iterator[JournalRecord]:
        no = self._session_row(session).no

        def read_page(start: int) -> Rows:
            return self._query(_PAGE, (no, start, PAGE_ROWS), f"reading `{session}`")

        yield from read_records(session, after, read_page, _raise_broken)

    def head(self, session: str) -> tuple[int, str]:
        known = self._session_row(session)
        return known.seq, known.hash.hex()

    def find_known(self, sessions: Sequence[str]) -> set[str]:
        self._check_open()
        asked = [session for session in sessions if is_storable(session)]
        rows = self._query(_ANY_KNOWN, (asked,), f"looking for {len(asked)} sessions")
        return {session for (session,) in rows}

    def verify(self, session: str) -> None:
        known = self._session_row(session)
        try:
            checked = deque(hash_chain.check_rows(session, self._raw(session, known)), maxlen=1)
        except JournalError as error:
            error.hint = _HINT
            raise
        seq, digest = checked[0] if checked else (0, b"")
        if seq < known.seq:
            _raise_broken(session, seq + 1, "and what may follow it are missing")
        if digest != known.hash or known.seal != hash_chain.seal(digest):
            _raise_broken(session, known.seq, "was changed, or what followed it was cut off")

    def _raw(self, session: str, known: _SessionRow) -> Iterator[tuple[int, bytes | None, bytes]]:
        """Yield the rows for `hash_chain.check_rows`, up to the end that the session had.

        Raises:
            JournalError: There are more events than the session's row says, or one has another
                owner.
        """
        start = 1
        while page := self._query(_PAGE, (known.no, start, PAGE_ROWS), "checking"):
            for seq, at, run, kind, body, digest, tenant, user in page:
                if seq > known.seq:
                    if self._query(_END, (known.no,), "checking")[0][0] > known.seq:
                        # Somebody appended meanwhile: that is for the next check.
                        return
                    _raise_broken(session, seq, "follows the end of the session")
                head = "\n".join((session, run, tenant, user, kind))
                row = f"{head}\n{seq}\n{at}\n{body}" if head.count("\n") == _NAMES else None
                yield seq, None if row is None else row.encode(), digest
                if (tenant, user) != (known.tenant, known.user):
                    _raise_broken(
                        session, seq, "does not belong to the owner in the table of sessions"
                    )
                if seq == known.seq and at != known.time:
                    _raise_broken(session, seq, "has another time than the table of sessions says")
            start = page[-1][0] + 1

    def find_problems(self) -> list[str]:
        """Return a sentence for each problem beyond the chains; missing sessions stay unnoticed."""
        problems = [
            f"session `{session}` has events, and the table of sessions says none"
            for (session,) in self._query(_NOT_STARTED, (), "checking")
        ]
        problems += [
            f"session number {no} has events and is missing from the table of sessions"
            for (no,) in self._query(_STRAY, (), "checking")
        ]
        return problems

    def sessions(
        self, *, tenant: str | None = None, user: str | None = None, limit: int | None = None
    ) -> list[SessionInfo]:
        return postgres_sessions.list_sessions(self._db, tenant, user, limit)

    def find(
        self, prefix: str, *, tenant: str | None = None, user: str | None = None
    ) -> SessionInfo:
        return postgres_sessions.find_session(self._db, prefix, tenant, user)

    def _session_row(self, session: str) -> _SessionRow:
        self._check_open()
        if not is_storable(session):
            raise unknown_session_error(session)
        rows = self._query(_KNOWN, (session,), f"looking for `{session}`")
        if not rows:
            raise unknown_session_error(session)
        return _SessionRow(*rows[0])

    def _query(
        self, sql: str, values: Sequence[Any], doing: str, until: float | None = None
    ) -> Rows:
        return self._db.query(self._sql[sql], values, doing=doing, until=until)

    # ---- the end

    def _check_open(self) -> None:
        if self._db.is_closed:
            raise JournalError("the journal is closed", code="journal_closed")

    def close(self) -> None:
        self._stopped.set()
        with self._db.lock:
            if self._held and self._db.is_connected:
                rows = [held.row for held in self._held.values()]
                self._leases.release(rows, self._db.deadline(postgres_lease.PATIENCE))
            self._held.clear()
            self._db.close()

    def __enter__(self) -> PostgresJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_HINT = "restore the database from a backup; `ferrule sessions export` takes out what is intact"


def _rewind(sessions: Iterable[_HeldSession]) -> None:
    """Forget a batch of which nothing was recorded."""
    for held in sessions:
        if held.pending is not None:
            held.seq, held.hash = held.pending.before
            held.pending = None


def _assign(session: str, held: _HeldSession, run: str, identity: Identity, address: str) -> None:
    """Write the session for this run and identity from now on. Raises SessionNotFound."""
    owner = (identity.tenant, identity.user)
    if held.seq or held.pending:
        if held.owner != owner:
            raise unknown_session_error(session)
    else:
        held.owner = owner
    held.run = run
    held.identity = identity
    held.row_prefix = address


def _row_prefix(session: str, *names: str) -> str:
    """Call `hash_chain.address`, and refuse what PostgreSQL cannot hold as text.

    Raises:
        JournalError: A name cannot be used.
    """
    if not is_storable("".join((session, *names))):
        raise JournalError(f"unusable name in {(session, *names)!r}", code="journal_name")
    run, tenant, user = names or ("", "", "")
    return hash_chain.row_prefix(session, run, tenant, user)


def _raise_broken(session: str, seq: int, what: str) -> NoReturn:
    try:
        hash_chain.raise_broken(session, seq, what)
    except JournalError as error:
        error.hint = _HINT
        raise


def _raise_wrong_end(session: str, rows: Rows, end: int) -> NoReturn:
    """Raise the error for a session whose last event is not where its row says."""
    last = rows[0][0] if rows else 0
    if last < end:
        _raise_broken(session, last + 1, "and what may follow it are missing")
    if last > end:
        _raise_broken(session, end + 1, "follows the end of the session")
    _raise_broken(session, end, "was changed, or what followed it was cut off")


def _not_new_error(session: str) -> JournalError:
    return JournalError(
        f"session `{session}` exists already",
        code="journal_conflict",
        hint="resume it, or give a new one another id",
    )


def _taken_over_error(session: str) -> JournalError:
    return JournalError(
        f"session `{session}` was taken over by another process while this one did not respond",
        code="journal_leased",
        hint="resume it: its journal may have more events than this process knows of",
        retryable=False,
    )
