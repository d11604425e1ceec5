"""A `ferrule run` that kills itself with SIGKILL at one journal write. Not a test: `test_crash` starts it.

    crashing.py WHERE N ARGUMENTS...

WHERE is `before` or `after` the Nth write, `inside` its transaction (rows inserted, nothing committed), or `effect`:
after the Nth effect happened and before its answer is recorded.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from ferrule.engine import driver as driving
from ferrule.store import journal as journals
from ferrule.store.journal import SqliteJournal

where, at = sys.argv[1], int(sys.argv[2])
writes = effects = 0
original = SqliteJournal.append
original_spell = SqliteJournal._spell


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def append(self: SqliteJournal, *args: Any, **kwargs: Any) -> Any:
    global writes
    writes += 1
    if where == "before" and writes == at:
        die()
    done = original(self, *args, **kwargs)
    if where == "after" and writes == at:
        die()
    return done


def spell(self: SqliteJournal, *args: Any, **kwargs: Any) -> Any:
    # Called between the rows of a transaction.
    if where == "inside" and writes == at:
        die()
    return original_spell(self, *args, **kwargs)


class Dispatcher(driving.Dispatcher):
    async def execute(self, prepared: Any, context: Any) -> Any:
        global effects
        outcome = await super().execute(prepared, context)
        effects += 1
        if where == "effect" and effects == at:
            die()
        return outcome


def main() -> int:
    from ferrule.engine import agent
    from ferrule.faces.cli.root import run

    SqliteJournal.append = append  # type: ignore[method-assign]
    SqliteJournal._spell = spell  # type: ignore[method-assign]
    agent.Dispatcher = Dispatcher  # type: ignore[misc]
    return run(sys.argv[3:])


if __name__ == "__main__":
    assert journals
    sys.exit(main())
