"""Archives a session and kills itself with SIGKILL at one point. Not a test: `test_archive` starts
it.

    archiving.py JOURNAL FILE POINT SESSION...

POINT is `writing` (half a draft), `checked` (before the file gets its name), `named` (before it
loses its other one), `deleted` (inside the transaction that removes the first session), `removed`
(before the second one is), `import` (after the first batch of an import of FILE), or `none`.
"""

from __future__ import annotations

import gzip
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ferrule.storage.export import archive as archiving
from ferrule.storage.journal import sqlite as storing
from ferrule.storage.journal import sqlite_integrity
from ferrule.storage.journal.sqlite import SqliteJournal

JOURNAL, FILE, POINT, *SESSIONS = sys.argv[1:]


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def after(calls: int, real: Any) -> Any:
    """`real` for so many calls; the next one is the last thing this process does."""
    left = [calls]

    def counted(*args: Any, **more: Any) -> Any:
        if left[0] == 0:
            die()
        left[0] -= 1
        return real(*args, **more)

    return counted


def main() -> int:
    match POINT:
        case "writing":
            gzip.GzipFile.write = after(2, gzip.GzipFile.write)  # type: ignore[method-assign]
        case "checked":
            os.link = die
        case "named":
            Path.unlink = after(1, Path.unlink)  # type: ignore[method-assign]
        case "deleted":
            sqlite_integrity.remove_session = lambda *args: (REMOVE(*args), die())  # type: ignore[assignment]
        case "removed":
            SqliteJournal.remove_archived = after(1, SqliteJournal.remove_archived)  # type: ignore[method-assign]
        case "import":
            SqliteJournal.append = after(1, SqliteJournal.append)  # type: ignore[method-assign]
        case _:
            pass
    with storing.SqliteJournal(JOURNAL) as journal:
        if POINT == "import":
            archiving.import_sessions(journal, Path(FILE))
        else:
            archiving.archive_sessions(journal, SESSIONS, Path(FILE))
    return 0


REMOVE = sqlite_integrity.remove_session

if __name__ == "__main__":
    sys.exit(main())
