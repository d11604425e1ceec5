"""Whether anybody wrote to a journal since the last look: cheap enough to ask several times a
second.

SQLite keeps a number (`PRAGMA data_version`) that changes, for a connection, with every commit of
another one, in whatever process (https://sqlite.org/pragma.html). So the look has a connection of
its own, that only reads and holds no transaction open: it neither waits for a writer nor makes one
wait. Other journals cannot say; there the answer is always yes.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from .sqlite import Journal, SqliteJournal
from .sqlite_database import in_words


class Changes(Protocol):
    """Asked by one reader at a time, from any thread."""

    def changed(self) -> bool:
        """Whether something may have been written since the last time; the first time: yes. Raises
        JournalError.
        """
        ...

    def close(self) -> None: ...


class Always:
    """For a journal that cannot say."""

    def changed(self) -> bool:
        return True

    def close(self) -> None:
        """There is nothing to give back."""


class FileChanges:
    """For a journal in a file. Opens it with the first question."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._version = -1
        self._closed = False

    def changed(self) -> bool:
        with self._lock:
            if self._closed:
                return False
            try:
                if self._db is None:
                    where = f"file:{quote(str(self._path))}?mode=ro"
                    self._db = sqlite3.connect(
                        where, uri=True, isolation_level=None, check_same_thread=False
                    )
                (version,) = self._db.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error as error:
                raise in_words(error, str(self._path), "looking for changes") from error
            before, self._version = self._version, version
            return version != before

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
                self._db = None


def changes_of(journal: Journal) -> Changes:
    """What tells whether the journal changed. Close it."""
    if isinstance(journal, SqliteJournal) and journal.path is not None:
        return FileChanges(journal.path)
    return Always()
