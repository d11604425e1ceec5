"""What the engines in the database of the journal share: tables made once, bounded connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from psycopg_pool import AsyncConnectionPool

from ferrule.engine.distributed.engines import reach
from ferrule.storage.journal.postgres_connection import KEEPALIVES

CONNECTING: dict[str, Any] = {"prepare_threshold": None, "connect_timeout": 10, **KEEPALIVES}
"""For psycopg: a pooler may stand before the database, so nothing is prepared."""
SILENT_SECONDS = 30.0
"""Seconds that a statement of a worker may be unanswered: what stands before a server that is gone
may still answer keepalives.
"""
_LOCK = "SELECT pg_advisory_xact_lock(1178948178)"


def make_tables(database: str, whose: str, table: str, script: Callable[[], str]) -> None:
    """Run a script if a table is missing, one process at a time. Raises EngineUnreachable."""
    with reach(whose, psycopg.Error), psycopg.connect(database, **CONNECTING) as db:
        db.execute(_LOCK)
        if db.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
            db.execute(script().encode())


class _BoundedConnection(psycopg.AsyncConnection[Any]):
    """A connection whose statements fail if they are not answered."""

    async def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        return await super().wait(gen, interval, SILENT_SECONDS if timeout is None else timeout)


def make_pool(database: str) -> AsyncConnectionPool[Any]:
    """Make the connections of a worker, not opened yet. Each statement is committed by itself.

    No connection is checked before its use: that would double what an idle worker asks.
    """
    return AsyncConnectionPool(
        database,
        connection_class=_BoundedConnection,
        kwargs=CONNECTING,
        # Not among `kwargs`: libraries open further connections with these and `autocommit`.
        configure=_commit_each,
        min_size=1,
        max_size=4,
        open=False,
    )


async def _commit_each(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.set_autocommit(True)
