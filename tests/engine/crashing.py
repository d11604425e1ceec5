"""A `ferrule run` that kills itself with SIGKILL at one journal write. Not a test: `test_crash`
starts it.

    crashing.py WHERE N ARGUMENTS...

WHERE is `before` or `after` the Nth write, `inside` its transaction (rows inserted, nothing
committed), or `effect`: after the Nth effect happened and before its answer is recorded.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from ferrule.engine import driver as driving
from ferrule.storage.journal import sqlite as storing
from ferrule.storage.journal.sqlite import SqliteJournal

WHERE, AT = sys.argv[1], int(sys.argv[2])
counted = {"writes": 0, "effects": 0}
append_of_journal = SqliteJournal.append
open_of_journal = storing.open_database


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def append(self: SqliteJournal, *args: Any, **kwargs: Any) -> Any:
    counted["writes"] += 1
    if WHERE == "before" and counted["writes"] == AT:
        die()
    done = append_of_journal(self, *args, **kwargs)
    if WHERE == "after" and counted["writes"] == AT:
        die()
    return done


class Watched:
    """A connection that ends everything where a transaction was about to be committed."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self._connection = getattr(db, "connection", db)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def cursor(self) -> Watched:
        return Watched(self._db.cursor())

    def execute(self, sql: str, *rest: Any) -> Any:
        if sql == "COMMIT" and WHERE == "inside" and counted["writes"] == AT:
            die()
        return self._db.execute(sql, *rest)


class Dispatcher(driving.Dispatcher):
    async def execute(self, prepared: Any, context: Any) -> Any:
        outcome = await super().execute(prepared, context)
        counted["effects"] += 1
        if WHERE == "effect" and counted["effects"] == AT:
            die()
        return outcome


def main() -> int:
    from ferrule.cli.exit_codes import run
    from ferrule.engine import session_builder

    SqliteJournal.append = append  # type: ignore[method-assign]
    storing.open_database = lambda *args: Watched(open_of_journal(*args))  # type: ignore[assignment]
    session_builder.Dispatcher = Dispatcher  # type: ignore[misc]
    code = run(sys.argv[3:])
    print(counted["writes"], file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
