"""A connection to PostgreSQL: opened when it is first needed, bounded in time, opened again when it
was lost; errors in words.

Every statement commits by itself (autocommit), so nothing is ever half done and no transaction
stays open between two calls. A statement has until its deadline: then the connection is closed,
because nobody can say what state it is in. Whether such a statement took effect is unknown
(`Lost`). `ask` repeats it, which is right for what only reads or gives the same when done twice;
who needs to know more uses `attempt`.

The bound covers the network and a server that stands still. It does not cover looking up a host's
name, which the system library does in its own time. A password is never part of a message.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError, FerruleError

from .postgres_schema import upgrade

if TYPE_CHECKING:
    from psycopg import Connection, Error
    from psycopg.abc import RV, PQGen

    class Bounded(Connection[tuple[Any, ...]]):
        deadline: float


SECONDS = 10.0
"""What one call may take by default, reconnecting included: as long as SQLite waits for another
process.
"""
_PAUSES = (0.0, 0.05, 0.2, 0.5)
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")

Values = Sequence[Any] | Mapping[str, Any]
Rows = list[tuple[Any, ...]]


class Lost(Exception):
    """The connection went away while a statement was on its way: it took effect, or it did not."""


class Postgres:
    """One connection to one schema. `lock` is held by whoever uses it. `part` is the set of tables
    that is needed.

    `kind` is the error that is raised, with codes that begin with `prefix`. Raises ConfigError for
    a DSN that is none.
    """

    def __init__(
        self,
        dsn: str,
        *,
        part: str,
        kind: type[FerruleError],
        prefix: str,
        schema: str = "ferrule",
        seconds: float = SECONDS,
    ) -> None:
        if not _SCHEMA.fullmatch(schema):
            raise ConfigError(
                f"schema = `{schema[:80]}`: lower case letters, digits and `_`, not "
                "beginning with a digit"
            )
        if not 0 < seconds < math.inf:
            raise ConfigError(f"seconds = {seconds}: must be more than 0 and finite")
        self.schema = schema
        self.seconds = seconds
        self.lock = threading.RLock()
        self._given = _parsed(dsn)
        self._part, self._kind, self._prefix = part, kind, prefix
        self._connection: Bounded | None = None
        self._upgraded = self._closed = False

    @property
    def where(self) -> str:
        """The database, without who connects and how."""
        given = self._given
        place = "/".join(str(given[name]) for name in ("host", "dbname") if given.get(name))
        return (
            f"postgresql://{place}"
            if place
            else f"postgresql:service={given.get('service', 'default')}"
        )

    def until(self, seconds: float | None = None) -> float:
        """A deadline from now on, on the clock that `attempt` and `ask` want."""
        return time.monotonic() + (self.seconds if seconds is None else seconds)

    # ---- statements

    def ask(self, sql: str, values: Values = (), *, doing: str, until: float | None = None) -> Rows:
        """Its rows, repeated while the connection gets lost and there is time. Raises `kind`."""
        until = self.until() if until is None else until
        tries = 0
        while True:
            try:
                return self.attempt(sql, values, doing=doing, until=until)
            except Lost as lost:
                tries += 1
                if not self.pause(tries, until):
                    raise self.unreachable(doing, lost) from lost

    def attempt(self, sql: str, values: Values = (), *, doing: str, until: float) -> Rows:
        """Its rows, tried once. Raises Lost, and `kind` for what the server refused: then nothing
        happened.
        """
        psycopg = _psycopg()
        with self.lock:
            connection = self._open(doing, until)
            connection.deadline = until
            try:
                cursor = connection.execute(sql.encode(), values or None)
                return cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                if _is_lost(connection, error):
                    self.drop()
                    raise Lost(_first_line(error)) from error
                raise self.in_words(error, doing) from error
            except BaseException:
                # Interrupted: what is still on its way must not be read as the answer to the next
                #     statement.
                self.drop()
                raise

    def pause(self, tries: int, until: float) -> bool:
        """Wait a little before trying again. False if there is no time left."""
        pause = _PAUSES[min(tries, len(_PAUSES)) - 1]
        left = until - time.monotonic()
        if left <= pause:
            return False
        time.sleep(pause)
        return True

    def drop(self) -> None:
        """Close the connection; the next statement opens another."""
        with self.lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """Close it for good. Safe to call twice; statements after it raise `kind`."""
        with self.lock:
            self._closed = True
            self.drop()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def opened(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None

    # ---- connecting

    def _open(self, doing: str, until: float) -> Bounded:
        if self._closed:
            raise self._kind(f"the {self._prefix} is closed", code=f"{self._prefix}_closed")
        if self._connection is None:
            self._connection = self._connect(doing, until)
        return self._connection

    def _connect(self, doing: str, until: float) -> Bounded:
        psycopg, again = _psycopg(), self._upgraded
        left = max(until - time.monotonic(), 0.001)
        try:
            connection = _bounded().connect(**self._parameters(left))
        except psycopg.OperationalError as error:
            if again:
                raise Lost(_first_line(error)) from error
            raise self.unreachable(doing, error) from error
        connection.deadline = until
        try:
            self._prepare(connection, doing)
        except psycopg.Error as error:
            lost = _is_lost(connection, error)
            connection.close()
            if lost:
                raise Lost(_first_line(error)) from error
            raise self.in_words(error, doing) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _parameters(self, seconds: float) -> dict[str, Any]:
        # libpq takes 2 seconds for the least; what it and the kernel are told here is only the
        # outer bound.
        whole = max(2, math.ceil(min(seconds, self.seconds)))
        own = {
            "application_name": "ferrule",
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": whole * 1000,
        }
        fixed = {"connect_timeout": whole, "client_encoding": "UTF8", "autocommit": True}
        return {**own, **self._given, **fixed}

    def _prepare(self, connection: Bounded, doing: str) -> None:
        """What must hold on every connection. The server gives up before we do: nothing goes on
        behind our back for long.
        """
        limit = f"{math.ceil(self.seconds * 1000)}ms"
        row = connection.execute(
            b"SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', "
            b"%s, false),"
            b" current_setting('server_encoding'), pg_is_in_recovery()",
            (limit, limit),
        ).fetchone()
        assert row is not None
        if row[2] != "UTF8":
            raise self._error(
                "unusable", doing, f"its encoding is {row[2]}, and must be UTF8", "", None
            )
        if row[3]:
            # Where several hosts are named, the next try may meet the one that takes writes.
            connection.close()
            raise _psycopg().OperationalError("the server is a standby and takes no writes")
        if not self._upgraded:
            upgrade(connection, self.schema, self._part, self._kind, self._prefix)
            self._upgraded = True

    # ---- words

    def unreachable(self, doing: str, error: BaseException) -> FerruleError:
        """The error for a server that could not be reached in time. Whether the last try took
        effect may be unknown.
        """
        hint = "check that the server runs and takes connections from here"
        return self._error(
            "unreachable", doing, f"it cannot be reached ({_first_line(error)})", hint, True
        )

    def in_words(self, error: Error, doing: str) -> FerruleError:
        """What the server refused, as ours."""
        state = error.sqlstate or ""
        for start, (code, reason, hint) in _WORDS.items():
            if state.startswith(start):
                return self._error(
                    code,
                    doing,
                    f"{reason} ({_first_line(error)})",
                    hint,
                    True if code == "busy" else None,
                )
        return self._error("unusable", doing, _first_line(error), "", None)

    def _error(
        self, code: str, doing: str, reason: str, hint: str, retryable: bool | None
    ) -> FerruleError:
        return self._kind(
            f"{self._prefix} `{self.where}`, {doing}: {reason}",
            code=f"{self._prefix}_{code}",
            hint=hint,
            retryable=retryable,
        )


_WORDS = {
    "53100": (
        "full",
        "its disk is full",
        "free some space; nothing after the last event was recorded",
    ),
    "55P03": ("busy", "another process kept it locked", "look for a transaction that hangs"),
    "57014": ("busy", "it took too long", "look for what slows the database down"),
    "40": ("busy", "another transaction was in the way", "try again"),
    "23": ("conflict", "another writer was here", "two programs must not drive one session"),
    "42501": (
        "unusable",
        "this role may not",
        "see `grants` in ferrule.storage.journal.postgres_schema for what it needs",
    ),
    "42P01": ("unusable", "its tables are gone", "restore them, or name another schema"),
    "3F": ("unusable", "its tables are gone", "restore them, or name another schema"),
}

_GONE = ("08", "57P01", "57P02", "57P03", "53300", "25006")
"""States of a connection that is of no use any more: broken, the server going down or starting,
full, or become a standby.
"""


def _is_lost(connection: Bounded, error: Error) -> bool:
    psycopg = _psycopg()
    state = error.sqlstate or ""
    if connection.closed or connection.broken or state.startswith(_GONE):
        return True
    # Without a state it is no answer of the server: we gave up waiting, or the line is dead.
    return not state and isinstance(error, psycopg.OperationalError)


def storable(text: str) -> bool:
    """Whether PostgreSQL can hold it as text: no NUL, no lone surrogates. What it cannot hold names
    nothing in it.
    """
    return "\0" not in text and text == text.encode("utf-8", "ignore").decode()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _parsed(dsn: str) -> dict[str, Any]:
    psycopg = _psycopg()
    from psycopg.conninfo import conninfo_to_dict

    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.Error:
        # The parser quotes what it could not read, and that may be a password.
        raise ConfigError(
            "the address of the PostgreSQL database cannot be read",
            hint=(
                "write `postgresql://user@host/database`; special characters of a password are "
                "percent-encoded"
            ),
        ) from None


@cache
def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError(
            "PostgreSQL needs the package psycopg", hint="pip install 'ferrule[scale]'"
        ) from error
    return psycopg


@cache
def _bounded() -> type[Bounded]:
    """A connection whose every wait ends at its deadline."""
    from psycopg import Connection

    class Bounded(Connection[tuple[Any, ...]]):
        deadline = math.inf

        def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
            if timeout is None and self.deadline < math.inf:
                timeout = max(self.deadline - time.monotonic(), 0.0)
            return super().wait(gen, interval, timeout)

        def __del__(self, *_: Any) -> None:
            # An agent closes no journal, and a program that ends is no place for warnings: the
            # server notices.
            self.close()

    return Bounded  # pyright: ignore[reportReturnType]  the same class, as the type checker knows it above
