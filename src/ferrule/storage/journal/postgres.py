"""The journal in PostgreSQL, for many machines: the same chain, the same promises, one writer per
session wherever it runs.

    journal = PostgresJournal("postgresql://ferrule@db.example.com/ferrule")

An append is one statement: it moves the end of the session (its row in `sessions`) from where this
writer left it, under the token it was given (`postgres_lease`), and adds the rows of the events. If
anybody else moved the end or took the session, nothing is written. It is durable when it returns,
as far as the server is (`synchronous_commit` is left as it is set).

A connection that breaks during an append leaves open whether it was recorded. We connect again and
take the session with a new token, so that whatever is still on its way can do nothing any more;
then the end of the session says what is the case, and the append is finished or made once. If that
takes longer than `seconds`, JournalError (`journal_unsure`) says so, and the next append finds out
first: given the same events again, it does not record them twice.

Not here: `salvage`, which is for files. What a database holds is repaired from its backups;
`verify` says what is wrong.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from ferrule.core.errors import ConfigError, FerruleError, JournalError
from ferrule.core.events import Event, Record, decode
from ferrule.core.identity import Identity
from ferrule.core.limits import OUTPUT_CAP

from . import hash_chain, postgres_lease, postgres_sessions
from .postgres_connection import SECONDS, Lost, Postgres, Rows, storable
from .postgres_lease import PostgresLeases, Taken, keep_renewing
from .sessions import SessionInfo, unknown
from .sqlite import Writing, chained

PAGE = 128
"""Rows read at once."""

_APPEND = """
WITH head AS (
    UPDATE {s}.sessions SET seq = %s, hash = %s, seal = %s, time = %s, tenant = %s, "user" = %s,
           until = clock_timestamp() + %s * interval '1 second'
    WHERE no = %s AND token = %s AND seq = %s AND hash = %s RETURNING no
)
INSERT INTO {s}.records (no, seq, time, run, kind, tenant, "user", body, hash)
SELECT head.no, event.seq, event.time, %s, event.kind, %s, %s, event.body, event.hash
FROM head, unnest(%s::integer[], %s::bigint[], %s::text[], %s::text[], %s::bytea[]) AS event (seq, time, kind, body, hash)
RETURNING 1
"""
_KNOWN = (
    'SELECT no, seq, hash, token, seal, time, tenant, "user" FROM {s}.sessions WHERE session = '
    "%s AND seq > 0"
)
_LAST = (
    "SELECT r.seq, r.hash, s.seal FROM {s}.records r JOIN {s}.sessions s USING (no)"
    " WHERE no = %s ORDER BY r.seq DESC LIMIT 1"
)
_UNBEGUN = (
    "SELECT session FROM {s}.sessions s WHERE seq < 1"
    " AND EXISTS (SELECT FROM {s}.records r WHERE r.no = s.no) ORDER BY no"
)
_STRAY = (
    "SELECT DISTINCT no FROM {s}.records r"
    " WHERE NOT EXISTS (SELECT FROM {s}.sessions s WHERE s.no = r.no) ORDER BY no"
)
_RECORDED = "SELECT hash FROM {s}.records WHERE no = %s AND seq = %s"
_END = "SELECT seq FROM {s}.sessions WHERE no = %s"
_PAGE = (
    'SELECT seq, time, run, kind, body, hash, tenant, "user" FROM {s}.records'
    " WHERE no = %s AND seq >= %s ORDER BY seq LIMIT %s"
)


class _Known(NamedTuple):
    """What the table of sessions says of one."""

    no: int
    seq: int
    hash: bytes
    token: int
    seal: bytes
    time: int
    tenant: str
    user: str


@dataclass(slots=True)
class _Pending:
    """An append that may have been recorded: where the session stood `before`, and what it would
    be.
    """

    before: tuple[int, bytes]
    after: tuple[int, bytes]
    run: str
    events: list[Event]
    records: list[Record]


@dataclass(slots=True)
class _Held(Writing):
    """A session that is ours: its row in the table, our token, and what we are not sure of.
    `Writing.no` stays 0: `row` is used.
    """

    row: int = 0
    token: int = 0
    pending: _Pending | None = None


class PostgresJournal:
    """A `Journal` in a PostgreSQL database (13 or newer). Connects, and makes its tables, with the
    first use.

    `dsn` is whatever libpq takes (a URL, `host=… dbname=…`, `service=…`); a password can stay out
    of it (`~/.pgpass`, PGPASSWORD). `seconds` bounds each call, reconnecting included;
    `lease_seconds` is how long a session stays with a process that is not heard of any more. `now`
    is the clock in seconds since 1970. Raises ConfigError for a DSN that cannot be read.
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
        if max_result_bytes > OUTPUT_CAP:
            raise ConfigError(f"max_result_bytes = {max_result_bytes}: at most {OUTPUT_CAP}")
        self._db = Postgres(
            dsn, part="journal", kind=JournalError, prefix="journal", schema=schema, seconds=seconds
        )
        self._leases = PostgresLeases(self._db, lease_seconds)
        self._sql = {
            sql: sql.format(s=f'"{schema}"')
            for sql in (_APPEND, _KNOWN, _LAST, _UNBEGUN, _STRAY, _RECORDED, _END, _PAGE)
        }
        self._now = now
        self._cap = max_result_bytes
        self._held: dict[str, _Held] = {}
        self._lost: set[str] = set()
        self._stopped = threading.Event()
        self._renewing = False

    @property
    def where(self) -> str:
        """The database, for people: no password and no user in it."""
        return self._db.where

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
        if at is not None and len(at) != len(events):
            raise ValueError("`at` needs one time per event")
        with self._db.lock:
            self._check_open()
            until = self._db.until()
            held = self._held.get(session)
            if held is None or held.identity is not identity or held.run != run:
                held = self._address(session, run, identity, until)
            if not events:
                return []
            done = self._settled(session, held, events, until) if held.pending else []
            events, at = events[len(done) :], None if at is None else at[len(done) :]
            if not events:
                return done
            before = held.seq, held.hash
            try:
                records, rows = chained(
                    session, held, events, at, int(self._now() * 1000), self._cap
                )
            except (TypeError, ValueError, KeyError) as error:
                raise JournalError(
                    f"an event is not JSON: {error}", code="journal_event"
                ) from error
            pending = _Pending(before, (held.seq, held.hash), run, list(events), records)
            self._write(session, held, rows, pending, until)
            return done + records

    def _write(
        self,
        session: str,
        held: _Held,
        rows: list[tuple[Any, ...]],
        pending: _Pending,
        until: float,
    ) -> None:
        """Record rows, once, however often the connection breaks. Raises JournalError."""
        doing = f"recording in `{session}`"
        tries = 0
        while True:
            held.pending, (held.seq, held.hash) = pending, pending.before
            try:
                written = self._db.attempt(
                    self._sql[_APPEND], self._values(held, rows, pending), doing=doing, until=until
                )
            except Lost as lost:
                tries += 1
                if not self._db.pause(tries, until):
                    raise self._unsure(session, pending, lost) from lost
                if self._was_recorded(session, held, until):
                    return
                continue
            except FerruleError:
                # The server said no, so nothing was recorded.
                held.pending = None
                raise
            held.pending = None
            if len(written) != len(rows):
                self._refused(session, held, until)
            held.seq, held.hash = pending.after
            return

    def _values(
        self, held: _Held, rows: list[tuple[Any, ...]], pending: _Pending
    ) -> tuple[Any, ...]:
        seqs, seals, times, _, kinds, _, _, bodies, hashes, _ = (
            list(column) for column in zip(*rows, strict=True)
        )
        tenant, user = held.owner
        return (
            *pending.after,
            seals[-1],
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

    def _settled(
        self, session: str, held: _Held, events: Sequence[Event], until: float
    ) -> list[Record]:
        """Find out about an append that nobody was sure of: its records, if it is there and
        `events` begin with its.
        """
        pending = held.pending
        assert pending is not None
        if not self._was_recorded(session, held, until):
            return []
        if held.run == pending.run and list(events[: len(pending.events)]) == pending.events:
            return pending.records
        raise JournalError(
            (
                f"session `{session}`: events that an earlier append was not sure of were "
                "recorded after all"
            ),
            code="journal_conflict",
            hint="resume the session: its journal has more than this process believes",
        )

    def _was_recorded(self, session: str, held: _Held, until: float) -> bool:
        """Whether the pending append is in the journal; it cannot get there any more if not. Raises
        JournalError.
        """
        pending = held.pending
        assert pending is not None
        try:
            taken = self._leases.take(session, held.owner, until)
        except JournalError as error:
            if error.code == "journal_unreachable":
                raise self._unsure(session, pending, error) from error
            if error.code != "journal_leased":
                raise
            taken = None
        ends = (taken.seq, taken.hash) if taken else None
        if taken is not None and ends in (pending.before, pending.after):
            held.row, held.token, held.pending = taken.no, taken.token, None
            held.seq, held.hash = taken.seq, taken.hash
            return ends == pending.after
        # Another took over and may have gone on. What we sent can only stand where it would have
        # stood.
        rows = self._ask(_RECORDED, (held.row, pending.after[0]), f"reading `{session}`", until)
        if taken is not None:
            self._leases.release([taken.no], until)
        self._drop(session)
        if rows and rows[0][0] == pending.after[1]:
            return True
        raise _taken_over(session)

    def _refused(self, session: str, held: _Held, until: float) -> NoReturn:
        rows = self._ask(_KNOWN, (session,), f"reading `{session}`", until)
        self._drop(session)
        if held.seq and rows and rows[0][3] == held.token:
            raise JournalError(
                (
                    f"session `{session}`: its journal was changed by somebody else at event "
                    f"{rows[0][1]}"
                ),
                code="journal_conflict",
                hint=(
                    "`ferrule sessions verify` says whether it is whole; was the database "
                    "restored from a backup?"
                ),
            )
        raise _taken_over(session)

    def _unsure(self, session: str, pending: _Pending, error: BaseException) -> JournalError:
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

    def _address(self, session: str, run: str, identity: Identity, until: float) -> _Held:
        """Take the session for this run and identity."""
        owner = (identity.tenant, identity.user)
        address = _address(session, run, *owner)
        if session in self._lost:
            raise _taken_over(session)
        held = self._held.get(session) or self._take(session, owner, until)
        if held.seq or held.pending:
            if held.owner != owner:
                raise unknown(session)
        else:
            held.owner = owner
        held.run, held.identity, held.address = run, identity, address
        return held

    def _take(self, session: str, owner: tuple[str, str] | None, until: float) -> _Held:
        taken = self._leases.take(session, owner, until)
        if taken.seq:
            self._check_end(session, taken, until)
        held = _Held(
            0, taken.seq, taken.hash, (taken.tenant, taken.user), row=taken.no, token=taken.token
        )
        self._held[session] = held
        if not self._renewing:
            self._renewing = True
            keep_renewing(self._renew, self._leases.seconds / 3, self._stopped)
        return held

    def _check_end(self, session: str, taken: Taken, until: float) -> None:
        rows = self._ask(_LAST, (taken.no,), f"reading `{session}`", until)
        if not rows or rows[0] != (taken.seq, taken.hash, hash_chain.seal(taken.hash)):
            self._leases.release([taken.no], until)
            _check_last(session, rows, taken.seq)

    def _renew(self) -> None:
        with self._db.lock:
            held = {one.row: one.token for one in self._held.values() if one.pending is None}
            if not held or self._db.closed:
                return
            try:
                lost = self._leases.renew(held, self._db.until(postgres_lease.PATIENCE))
            except (Lost, FerruleError):
                # The next append, or the next time, finds out whether the sessions are still ours.
                return
            for session in [name for name, one in self._held.items() if one.row in lost]:
                self._drop(session)

    def _drop(self, session: str) -> None:
        """No longer ours: what this process believes of it is out of date, until it takes it anew
        and reads.
        """
        self._held.pop(session, None)
        self._lost.add(session)

    def lease(self, session: str) -> None:
        with self._db.lock:
            self._check_open()
            _address(session)
            self._lost.discard(session)
            if session not in self._held:
                self._take(session, None, self._db.until())

    def release(self, session: str) -> None:
        with self._db.lock:
            self._lost.discard(session)
            held = self._held.pop(session, None)
            if held is not None and not self._db.closed:
                self._leases.release([held.row], self._db.until())

    # ---- reading

    def records(self, session: str, *, after: int = 0) -> Iterator[Record]:
        no = self._known(session).no
        expected = max(after, 0) + 1
        while page := self._ask(_PAGE, (no, expected, PAGE), f"reading `{session}`"):
            for seq, at, run, kind, body, digest, tenant, user in page:
                if seq != expected:
                    _broken(session, expected, "is missing")
                try:
                    event = decode(kind, json.loads(body))
                except (ValueError, TypeError, AttributeError):
                    _broken(session, seq, "cannot be read")
                yield Record(session, seq, at, run, event, digest.hex(), tenant, user, body)
                expected += 1

    def head(self, session: str) -> tuple[int, str]:
        known = self._known(session)
        return known.seq, known.hash.hex()

    def verify(self, session: str) -> None:
        known = self._known(session)
        try:
            checked = deque(hash_chain.check(session, self._raw(session, known)), maxlen=1)
        except JournalError as error:
            error.hint = _HINT
            raise
        if checked[0][1] != known.hash:
            _broken(session, known.seq, "was changed")

    def _raw(self, session: str, known: _Known) -> Iterator[tuple[Any, ...]]:
        """The rows for `hash_chain.check`, up to the end that the session had, and one more if its
        row says less than there is.
        """
        start = 1
        while page := self._ask(_PAGE, (known.no, start, PAGE), "checking"):
            for seq, at, run, kind, body, digest, tenant, user in page:
                if seq > known.seq and self._ask(_END, (known.no,), "checking")[0][0] > known.seq:
                    # Somebody appended meanwhile: that is for the next check.
                    return
                parts = (run, tenant, user, kind, str(at), body)
                mark = known.seal if seq == known.seq else hash_chain.UNSEALED
                yield seq, mark, *(part.encode() for part in parts), digest
                if (tenant, user) != (known.tenant, known.user):
                    _broken(session, seq, "does not belong to whom the table of sessions says")
                if seq == known.seq and at != known.time:
                    _broken(session, seq, "has another time than the table of sessions says")
            start = page[-1][0] + 1

    def findings(self) -> list[str]:
        """What does not hold beyond the chains of the sessions, a sentence each; that a session is
        gone is not seen.
        """
        unbegun = self._ask(_UNBEGUN, (), "checking")
        stray = self._ask(_STRAY, (), "checking")
        return [
            *(
                f"session `{session}` has events, and the table of sessions says none"
                for (session,) in unbegun
            ),
            *(
                f"session number {no} has events and is missing from the table of sessions"
                for (no,) in stray
            ),
        ]

    def sessions(
        self, *, tenant: str | None = None, user: str | None = None, limit: int | None = None
    ) -> list[SessionInfo]:
        return postgres_sessions.listed(self._db, tenant, user, limit)

    def find(
        self, prefix: str, *, tenant: str | None = None, user: str | None = None
    ) -> SessionInfo:
        return postgres_sessions.find(self._db, prefix, tenant, user)

    def _known(self, session: str) -> _Known:
        self._check_open()
        rows = (
            self._ask(_KNOWN, (session,), f"looking for `{session}`") if storable(session) else []
        )
        if not rows:
            raise unknown(session)
        return _Known(*rows[0])

    def _ask(self, sql: str, values: Sequence[Any], doing: str, until: float | None = None) -> Rows:
        return self._db.ask(self._sql[sql], values, doing=doing, until=until)

    # ---- the end

    def _check_open(self) -> None:
        if self._db.closed:
            raise JournalError("the journal is closed", code="journal_closed")

    def close(self) -> None:
        self._stopped.set()
        with self._db.lock:
            if self._held and self._db.opened:
                rows = [held.row for held in self._held.values()]
                self._leases.release(rows, self._db.until(postgres_lease.PATIENCE))
            self._held.clear()
            self._db.close()

    def __enter__(self) -> PostgresJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_HINT = "restore the database from a backup; `ferrule sessions export` takes out what is intact"


def _address(session: str, *names: str) -> str:
    """`hash_chain.address`, also for what PostgreSQL cannot hold as text. Raises JournalError."""
    if not storable("".join((session, *names))):
        raise JournalError(f"not a usable name in {(session, *names)!r}", code="journal_name")
    run, tenant, user = names or ("", "", "")
    return hash_chain.address(session, run, tenant, user)


def _broken(session: str, seq: int, what: str) -> NoReturn:
    try:
        hash_chain.broken(session, seq, what)
    except JournalError as error:
        error.hint = _HINT
        raise


def _check_last(session: str, rows: Rows, end: int) -> NoReturn:
    """The error for a session whose last event is not where its row says."""
    last = rows[0][0] if rows else 0
    if last < end:
        _broken(session, last + 1, "and what may follow it are missing")
    if last > end:
        _broken(session, end + 1, "follows the end of the session")
    _broken(session, end, "was changed, or what followed it was cut off")


def _taken_over(session: str) -> JournalError:
    return JournalError(
        f"session `{session}` was taken over by another process while this one was not heard of",
        code="journal_leased",
        hint="resume it: its journal may have more than this process believes",
        retryable=False,
    )
