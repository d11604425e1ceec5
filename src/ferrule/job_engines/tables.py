"""Create the tables of an engine in the database of the journal, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

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
