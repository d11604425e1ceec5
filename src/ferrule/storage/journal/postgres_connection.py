"""A connection to PostgreSQL that opens on first use, is bounded in time, and reconnects when lost.

Every statement commits by itself (autocommit), so nothing is ever half done and no transaction
stays open between two calls. A statement has a deadline; after it the connection is closed, because
its state is unknown. Whether such a statement took effect is unknown too (`ConnectionLost`).
`query` repeats it, which is right for statements that only read or give the same result when done
twice; use `query_once` to find out.

The bound covers the network and a server that does not answer. It does not cover looking up a
host's name, which takes the system library as long as it takes. A password is never part of a
message.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.tools.forking import make_rlock, watch_forks

from .postgres_schema import upgrade

if TYPE_CHECKING:
    from psycopg import Connection, Error
    from psycopg.abc import RV, PQGen

    class DeadlineConnection(Connection[tuple[Any, ...]]):
        """A connection whose calls end at a time of the monotonic clock."""

        deadline: float
else:
    Error = Any


SECONDS = 10.0
"""The default bound of one call, reconnecting included: as long as SQLite waits for a lock."""
KEEPALIVES = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""For libpq: a connection whose other end is gone is noticed within half a minute."""
_PAUSES = (0.0, 0.05, 0.2, 0.5)
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

Values = Sequence[Any] | Mapping[str, Any]
Rows = list[tuple[Any, ...]]


class ConnectionLost(Exception):
    """The connection broke during a statement, which may or may not have taken effect."""


_PARENTS_CONNECTIONS: list[DeadlineConnection] = []
"""In a forked child: connections of its parent, which are kept so that nothing closes them."""


class PostgresConnection:
    """One connection to one schema. Whoever uses it holds `lock`.

    Args:
        part: The set of tables that is needed (`postgres_schema`).
        kind: The class of the errors that are raised.
        prefix: What their codes begin with.

    Raises:
        ConfigError: The DSN cannot be parsed, or `schema` or `seconds` cannot be used.
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
        if not _SCHEMA_NAME.fullmatch(schema):
            raise ConfigError(
                f"schema = `{schema[:80]}`: lower case letters, digits and `_`, not "
                "beginning with a digit"
            )
        if not 0 < seconds < math.inf:
            raise ConfigError(f"seconds = {seconds}: must be more than 0 and finite")
        self.schema = schema
        self.seconds = seconds
        self.lock = make_rlock()
        watch_forks(self)
        self._dsn_parts = _parse_dsn(dsn)
        self._part, self._kind, self._prefix = part, kind, prefix
        self._connection: DeadlineConnection | None = None
        self._upgraded = self._closed = False
        self._is_pooled = False
        """Whether a pooler stands before the server, which shares connections among programs."""

    def after_fork(self) -> None:
        """Connect anew in a forked child: the connection is its parent's."""
        if self._connection is not None:
            _PARENTS_CONNECTIONS.append(self._connection)
            self._connection = None

    @property
    def where(self) -> str:
        """The database for display, without credentials and options."""
        given = self._dsn_parts
        place = "/".join(str(given[name]) for name in ("host", "dbname") if given.get(name))
        if place:
            return f"postgresql://{place}"
        return f"postgresql:service={given.get('service', 'default')}"

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler shares connections among programs; known once it has connected."""
        return self._is_pooled

    def deadline(self, seconds: float | None = None) -> float:
        """Return a deadline from now on, on the clock of `query_once` and `query`."""
        return time.monotonic() + (self.seconds if seconds is None else seconds)

    # ---- statements

    def query(
        self, sql: str, values: Values = (), *, doing: str, until: float | None = None
    ) -> Rows:
        """Run a statement and return its rows; repeat it while connections break and there is time.

        Raises:
            FerruleError: The server refused it or cannot be reached (an error of class `kind`).
        """
        until = self.deadline() if until is None else until
        tries = 0
        while True:
            try:
                return self.query_once(sql, values, doing=doing, until=until)
            except ConnectionLost as lost:
                tries += 1
                if not self.wait_before_retry(tries, until):
                    raise self.unreachable_error(doing, lost) from lost

    def query_once(self, sql: str, values: Values = (), *, doing: str, until: float) -> Rows:
        """Run a statement once and return its rows.

        Raises:
            ConnectionLost: The connection broke; the statement may have taken effect.
            FerruleError: The server refused it, so nothing happened (an error of class `kind`).
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
                    self.disconnect()
                    raise ConnectionLost(_first_line(error)) from error
                raise self.translate_error(error, doing) from error
            except BaseException:
                # Interrupted: an answer still on its way must not be read as that of the next
                # statement.
                self.disconnect()
                raise

    def wait_before_retry(self, tries: int, until: float) -> bool:
        """Wait a little before trying again. Return False if there is no time left."""
        pause = _PAUSES[min(tries, len(_PAUSES)) - 1]
        left = until - time.monotonic()
        if left <= pause:
            return False
        time.sleep(pause)
        return True

    def disconnect(self) -> None:
        """Close the connection; the next statement opens another."""
        with self.lock:
            connection = self._connection
            self._connection = None
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """Close it for good. Safe to call twice; later statements raise a `kind` error."""
        with self.lock:
            self._closed = True
            self.disconnect()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None

    # ---- connecting

    def _open(self, doing: str, until: float) -> DeadlineConnection:
        if self._closed:
            raise self._kind(f"the {self._prefix} is closed", code=f"{self._prefix}_closed")
        if self._connection is None:
            self._connection = self._connect(doing, until)
        return self._connection

    def _connect(self, doing: str, until: float) -> DeadlineConnection:
        psycopg = _psycopg()
        left = max(until - time.monotonic(), 0.001)
        parameters = self._parameters(left)
        try:
            try:
                connection = _connection_class().connect(**parameters)
            except psycopg.OperationalError as error:
                if self._is_pooled or not _is_about_options(error):
                    raise
                self._is_pooled = True
                connection = _connection_class().connect(**self._parameters(left))
        except psycopg.OperationalError as error:
            if self._upgraded:
                # It was connected before, so this is a reconnection, which may be tried again.
                raise ConnectionLost(_first_line(error)) from error
            raise self.unreachable_error(doing, error) from error
        connection.deadline = until
        try:
            self._prepare(connection, doing)
        except psycopg.Error as error:
            lost = _is_lost(connection, error)
            connection.close()
            if lost:
                raise ConnectionLost(_first_line(error)) from error
            raise self.translate_error(error, doing) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _parameters(self, seconds: float) -> dict[str, Any]:
        # 2 seconds are the least that libpq accepts; libpq and the kernel get only the outer bound.
        whole = max(2, math.ceil(min(seconds, self.seconds)))
        own = {
            "application_name": "ferrule",
            **KEEPALIVES,
            "tcp_user_timeout": whole * 1000,
        }
        fixed: dict[str, Any] = {
            "connect_timeout": whole,
            "client_encoding": "UTF8",
            "autocommit": True,
        }
        if self._is_pooled:
            fixed["prepare_threshold"] = None
        else:
            given = self._dsn_parts.get("options", "")
            limit = self._limit
            fixed["options"] = f"-c statement_timeout={limit} -c lock_timeout={limit} {given}"
        return {**own, **self._dsn_parts, **fixed}

    @property
    def _limit(self) -> int:
        """Milliseconds after which the server itself ends a statement."""
        return math.ceil(self.seconds * 1000)

    def _prepare(self, connection: DeadlineConnection, doing: str) -> None:
        """Check a new connection.

        The server's own timeout, a parameter of the connection, ends a statement before our
        deadline, so nothing continues unnoticed for long. Where it did not arrive, a pooler gives
        its connections to other programs, too: nothing is set there, and nothing prepared.
        """
        row = connection.execute(
            b"SELECT setting, current_setting('server_encoding'), pg_is_in_recovery()"
            b" FROM pg_settings WHERE name = 'statement_timeout'"
        ).fetchone()
        assert row is not None
        if row[0] != str(self._limit):
            self._is_pooled = True
            connection.prepare_threshold = None
        if row[1] != "UTF8":
            raise self._error("unusable", doing, f"its encoding is {row[1]}, and must be UTF8")
        if row[2]:
            # If there are several hosts, the next try may reach the one that accepts writes.
            connection.close()
            raise _psycopg().OperationalError("the server is a standby and takes no writes")
        if not self._upgraded:
            upgrade(connection, self.schema, self._part, self._kind, self._prefix)
            self._upgraded = True

    # ---- words

    def unreachable_error(self, doing: str, error: BaseException) -> FerruleError:
        """Return the error for a server that could not be reached in time.

        Whether the last try took effect may be unknown.
        """
        return self._error(
            "unreachable",
            doing,
            f"it cannot be reached ({_first_line(error)})",
            hint=choose_hint(error, "check that the server runs and accepts connections from here"),
            retryable=True,
        )

    def translate_error(self, error: Error, doing: str) -> FerruleError:
        """Return the server's error as ours."""
        state = error.sqlstate or ""
        for start, (code, reason, hint) in _REASONS.items():
            if state.startswith(start):
                retryable = True if code == "busy" else None
                reason = f"{reason} ({_first_line(error)})"
                return self._error(code, doing, reason, hint=hint, retryable=retryable)
        return self._error("unusable", doing, _first_line(error))

    def _error(
        self, code: str, doing: str, reason: str, *, hint: str = "", retryable: bool | None = None
    ) -> FerruleError:
        return self._kind(
            f"{self._prefix} `{self.where}`, {doing}: {reason}",
            code=f"{self._prefix}_{code}",
            hint=hint,
            retryable=retryable,
        )


_REASONS = {
    "53100": (
        "full",
        "its disk is full",
        "free some space; nothing after the last event was recorded",
    ),
    "55P03": ("busy", "another process kept it locked", "look for a transaction that hangs"),
    "57014": ("busy", "it took too long", "look for what slows the database down"),
    "22012": (
        "conflict",
        "a session is not where this process left it",
        "each session that is written alone says more",
    ),
    "40": ("busy", "another transaction was in the way", "try again"),
    "23": ("conflict", "another program wrote to it", "two programs must not write one session"),
    "42501": (
        "unusable",
        "this role lacks a right",
        "see `grant_script` in ferrule.storage.journal.postgres_schema for what it needs",
    ),
    "42P01": ("unusable", "its tables are gone", "restore them, or name another schema"),
    "3F": ("unusable", "its tables are gone", "restore them, or name another schema"),
}

_OTHER_VERSION = "its tables are of another version: bring them up to date"
_HINTS = {
    "25006": (
        "read-only",
        "it is a standby, or may only be read: name the primary, for instance with "
        "`target_session_attrs=read-write`",
    ),
    "3D000": ("does not exist", "create it, or name another one"),
    "42501": ("permission denied", "this role lacks a right, which an administrator can give it"),
    "42703": ("", _OTHER_VERSION),
    "42710": ("", _OTHER_VERSION),
    "42883": ("", _OTHER_VERSION),
    "42P01": ("", _OTHER_VERSION),
    "53100": ("No space left", "its disk is full: free some space"),
    "53300": (
        "too many connections",
        "it has no connection left: raise `max_connections`, or run fewer workers",
    ),
}
"""What to do, by the state of an error; while connecting there is only its text."""


def choose_hint(error: BaseException, otherwise: str) -> str:
    """Return what can be done about an error of any driver for PostgreSQL."""
    cause = error.__cause__ or error
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return _HINTS.get(state, ("", otherwise))[1]
    found = (hint for words, hint in _HINTS.values() if words and words in str(cause))
    return next(found, otherwise)


_UNUSABLE_STATES = ("08", "57P01", "57P02", "57P03", "53300", "25006")
"""States of a connection that can no longer be used.

It is broken, the server is going down, starting or full, or it has become a standby.
"""


def _is_about_options(error: Error) -> bool:
    """Whether a connection was refused for its parameters, as PgBouncer does."""
    text = str(error).lower()
    return "startup parameter" in text or "options" in text


def _is_lost(connection: DeadlineConnection, error: Error) -> bool:
    psycopg = _psycopg()
    state = error.sqlstate or ""
    if connection.closed or connection.broken or state.startswith(_UNUSABLE_STATES):
        return True
    # Without a state it is not the server's answer: we gave up waiting, or the connection is dead.
    return not state and isinstance(error, psycopg.OperationalError)


def is_storable(text: str) -> bool:
    """Return whether PostgreSQL can store a string as text: no NUL, no lone surrogates."""
    return "\0" not in text and text == text.encode("utf-8", "ignore").decode()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _parse_dsn(dsn: str) -> dict[str, Any]:
    psycopg = _psycopg()
    from psycopg.conninfo import conninfo_to_dict

    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.Error:
        # The parser quotes what it could not read, and that may be a password.
        raise ConfigError(
            "the address of the PostgreSQL database cannot be read",
            hint=(
                "write `postgresql://user@host/database` and percent-encode special characters "
                "of a password"
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
def _connection_class() -> type[DeadlineConnection]:
    """Return the class of connections whose every wait ends at their deadline."""
    from psycopg import Connection

    class DeadlineConnection(Connection[tuple[Any, ...]]):
        deadline = math.inf

        def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
            if timeout is None and self.deadline < math.inf:
                timeout = max(self.deadline - time.monotonic(), 0.0)
            return super().wait(gen, interval, timeout)

        def __del__(self, *_: Any) -> None:
            # An agent closes no journal, and a program that ends should not warn: the server
            # notices.
            self.close()

    return DeadlineConnection  # pyright: ignore[reportReturnType]  the class that is declared above
