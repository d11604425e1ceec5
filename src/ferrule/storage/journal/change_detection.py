"""Whether a journal was written since the last check: cheap enough for several checks a second.

SQLite keeps a number (`PRAGMA data_version`) that changes, for a connection, with every commit of
another one, in whatever process (https://sqlite.org/pragma.html). The check therefore has a
connection of its own, which only reads and keeps no transaction open: it neither waits for a writer
nor makes one wait. Other journals cannot tell; for them the answer is always yes.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from ferrule.tools.forking import finalize_quietly, make_rlock

from .protocols import Journal
from .sqlite import SqliteJournal
from .sqlite_database import translate_error


class ChangeDetector(Protocol):
    """Tells whether a journal was written. Used by one reader at a time, from any thread."""

    def has_changed(self) -> bool:
        """Return whether something may have been written since the last call; True the first time.

        Raises:
            JournalError: The file cannot be read.
        """
        ...

    def close(self) -> None: ...


class AlwaysChanged:
    """For a journal that cannot tell."""

    def has_changed(self) -> bool:
        return True

    def close(self) -> None: ...


class SqliteChangeDetector:
    """For a journal in a file, which is opened with the first check."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = make_rlock(is_quiet=True)
        self._db: sqlite3.Connection | None = None
        self._version = -1
        self._closed = False

    def has_changed(self) -> bool:
        with self._lock:
            if self._closed:
                return False
            try:
                if self._db is None:
                    where = f"file:{quote(str(self._path))}?mode=ro"
                    self._db = sqlite3.connect(
                        where, uri=True, isolation_level=None, check_same_thread=False
                    )
                    finalize_quietly(self, self._lock, self._db.close)
                (version,) = self._db.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error as error:
                raise translate_error(error, str(self._path), "looking for changes") from error
            changed = version != self._version
            self._version = version
            return changed

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()


def create_change_detector(journal: Journal) -> ChangeDetector:
    """Return the change detector for a journal. The caller closes it."""
    if isinstance(journal, SqliteJournal) and journal.path is not None:
        return SqliteChangeDetector(journal.path)
    return AlwaysChanged()
