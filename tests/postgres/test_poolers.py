"""A pooler between Ferrule and the server: what it shares with other programs is left as it was."""

from __future__ import annotations

from faulty import Faulty

from ferrule.core.errors import JournalError
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.storage.journal.postgres import PostgresJournal
from ferrule.storage.journal.postgres_connection import PostgresConnection

ME = Identity("t", "u", "s1", "r")
SHOWN = (
    "SELECT name, setting, reset_val FROM pg_settings"
    " WHERE name IN ('statement_timeout', 'lock_timeout') ORDER BY name"
)


def connect(dsn: str, schema: str) -> PostgresConnection:
    return PostgresConnection(
        dsn, part="journal", kind=JournalError, prefix="journal", schema=schema
    )


def test_behind_a_pooler_nothing_is_set_and_nothing_prepared(faulty: Faulty, schema: str) -> None:
    faulty.refuses_options = True
    with PostgresJournal(faulty.dsn, schema=schema) as journal:
        for number in range(20):
            journal.append("s1", "r", [Noticed("test", str(number))], identity=ME)
        shown = journal._db.query(SHOWN, doing="looking")  # pyright: ignore[reportPrivateUsage]
        prepared = journal._db.query(  # pyright: ignore[reportPrivateUsage]
            "SELECT count(*) FROM pg_prepared_statements", doing="looking"
        )
    assert shown == [("lock_timeout", "0", "0"), ("statement_timeout", "0", "0")]
    assert prepared == [(0,)]


def test_a_connection_of_our_own_has_the_bounds_from_its_beginning(dsn: str, schema: str) -> None:
    connection = connect(dsn, schema)
    try:
        shown = connection.query(SHOWN, doing="looking")
    finally:
        connection.close()
    # `RESET ALL` and `DISCARD ALL` keep what a connection began with.
    assert shown == [("lock_timeout", "10000", "10000"), ("statement_timeout", "10000", "10000")]


def test_options_of_the_address_hold_beside_ours(dsn: str, schema: str) -> None:
    connection = connect(f"{dsn} options='-c work_mem=5MB'", schema)
    try:
        rows = connection.query("SHOW work_mem", doing="looking")
        assert connection.query(SHOWN, doing="looking")[1][1] == "10000"
    finally:
        connection.close()
    assert rows == [("5MB",)]
