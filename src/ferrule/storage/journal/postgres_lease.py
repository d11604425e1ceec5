"""One writer per session, across machines: a row with an expiry, and a token per writer.

A holder is a journal, identified by a random id. Taking a session raises its token by one, and
every append names the token it was given: a journal that was stopped, cut off or suspended while
another took over has an old token and can no longer write, whatever it believes. The expiry only
says from when on others may take over; the clock is the server's alone.

A thread renews the leases; an append renews, too. After `kill -9` a session is therefore free only
when the lease has run out (`seconds`), and not at once as with a file, whose locks the kernel gives
back.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

from ferrule.core.errors import FerruleError, JournalError

from .hash_chain import FIRST_HASH
from .postgres_connection import ConnectionLost, PostgresConnection
from .sessions import unknown_session_error

SECONDS = 30.0
"""How long a session stays with a holder that is no longer heard of."""
PATIENCE = 2.0
"""Seconds that a renewal may take: it delays appends for no longer."""

_TAKE = """
INSERT INTO {s}.sessions AS held (session, hash, holder, until)
VALUES (%(session)s, %(first)s, %(holder)s, clock_timestamp() + %(seconds)s * interval '1 second')
ON CONFLICT (session) DO UPDATE
SET token = held.token + 1, holder = excluded.holder, until = excluded.until
WHERE (held.holder IS NULL OR held.holder = excluded.holder OR held.until < clock_timestamp())
  AND (held.seq = 0 OR %(tenant)s::text IS NULL
       OR (held.tenant = %(tenant)s AND held."user" = %(user)s))
RETURNING no, token, seq, hash, tenant, "user"
"""
_OWNER = """SELECT tenant, "user", seq FROM {s}.sessions WHERE session = %s"""
# A session that was never written belongs to nobody: its row is deleted. The rights of a worker
# suffice for such a row only.
RELEASE = """
WITH given AS (
    SELECT no FROM unnest(%(nos)s::bigint[]) WITH ORDINALITY AS given (no, place)
    WHERE no > 0 AND place > 0
), unwritten AS (
    DELETE FROM {s}.sessions USING given
    WHERE sessions.no = given.no AND CASE WHEN holder = %(holder)s THEN seq = 0 END
)
UPDATE {s}.sessions SET holder = NULL, until = NULL FROM given
WHERE sessions.no = given.no AND CASE WHEN holder = %(holder)s THEN seq > 0 END
"""
"""Written so that the planner looks up each session by its number (see
`postgres_append_statement`): of a CASE it does not think that it leaves few rows.
"""
_RENEW = """
UPDATE {s}.sessions AS mine SET until = clock_timestamp() + %(seconds)s * interval '1 second'
FROM unnest(%(nos)s::bigint[], %(tokens)s::bigint[]) AS held (no, token)
WHERE mine.no = held.no AND mine.token = held.token RETURNING mine.no
"""
_RENEW_AND_ASK = f"""
WITH renewed AS ({_RENEW})
SELECT (SELECT json_agg(no) FROM renewed),
    (SELECT json_agg(run) FROM {{s}}.outcomes
        WHERE run = ANY(%(runs)s::text[]) AND cancelled AND ended IS NULL)
"""


class Lease(NamedTuple):
    """A session that this journal has now: its row, the token to write with, and its end."""

    no: int
    token: int
    seq: int
    hash: bytes
    tenant: str
    user: str


class PostgresLeases:
    """The leases of one journal. Statements run under the lock of `db`."""

    def __init__(self, db: PostgresConnection, seconds: float) -> None:
        self._db = db
        self.seconds = seconds
        self.holder = uuid4()
        self._take, self._release, self._renew, self._renew_and_ask, self._owner = (
            sql.format(s=f'"{db.schema}"')
            for sql in (_TAKE, RELEASE, _RENEW, _RENEW_AND_ASK, _OWNER)
        )

    def take(self, session: str, owner: tuple[str, str] | None, until: float) -> Lease:
        """Become the writer of a session, with a new token even if we were it already.

        Raises:
            JournalError: Another process is the writer (`journal_leased`).
            SessionNotFound: The session belongs to somebody else than `owner`.
        """
        tenant, user = owner or (None, None)
        values = {
            "session": session,
            "first": FIRST_HASH,
            "holder": self.holder,
            "seconds": self.seconds,
            "tenant": tenant,
            "user": user,
        }
        doing = f"taking `{session}`"
        rows = self._db.query(self._take, values, doing=doing, until=until)
        if rows:
            return Lease(*rows[0])
        owners = self._db.query(self._owner, (session,), doing=doing, until=until)
        if owner and owners and owners[0][2] and owners[0][:2] != owner:
            raise unknown_session_error(session)
        raise JournalError(
            f"session `{session}` is in use by another process",
            code="journal_leased",
            hint=(
                f"wait until it ends (if it died, {self.seconds:g} s at the most), or start a "
                "new session"
            ),
            retryable=True,
        )

    def release(self, nos: list[int], until: float) -> None:
        """Let others take these sessions. If the server cannot be reached, the expiry does it."""
        try:
            self._db.query_once(
                self._release, {"nos": nos, "holder": self.holder}, doing="releasing", until=until
            )
        except ConnectionLost:
            self._db.disconnect()
        except FerruleError as error:
            if not error.code.endswith("_unreachable"):
                raise

    def renew(self, held: Mapping[int, int], until: float) -> set[int]:
        """Renew the leases of the sessions `{row: token}`. Return those that others have taken.

        Raises:
            ConnectionLost, JournalError: The statement failed.
        """
        values = {"nos": list(held), "tokens": list(held.values()), "seconds": self.seconds}
        rows = self._db.query_once(self._renew, values, doing="renewing leases", until=until)
        return set(held) - {row[0] for row in rows}

    def renew_and_ask(
        self, held: Mapping[int, int], runs: Sequence[str], until: float
    ) -> tuple[set[int], list[str]]:
        """Renew leases; return the sessions that others have taken, and the runs to be cancelled.

        Args:
            held: The sessions, as for `renew`.
            runs: Runs of jobs (`engine.distributed`) that this process works.
            until: The deadline.

        Raises:
            ConnectionLost, JournalError: The statement failed.
        """
        values = {
            "nos": list(held),
            "tokens": list(held.values()),
            "seconds": self.seconds,
            "runs": list(runs),
        }
        doing = "renewing leases"
        renewed, cancelled = self._db.query_once(
            self._renew_and_ask, values, doing=doing, until=until
        )[0]
        return set(held) - set(renewed or ()), list(cancelled or ())


def start_renewal(renew: Callable[[], None], every: float, stopped: threading.Event) -> None:
    """Call an object's method periodically in a thread, until `stopped` is set or it is gone."""
    method = weakref.WeakMethod(renew)

    def work() -> None:
        while not stopped.wait(every):
            alive = method()
            if alive is None:
                return
            alive()
            del alive

    threading.Thread(target=work, name="ferrule-leases", daemon=True).start()
