"""The journal of an agent: who makes it, and who closes it."""

from __future__ import annotations

import os
from pathlib import Path

from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.locations import create_journal
from ferrule.tools.forking import make_lock


class AgentJournal:
    """The journal that an agent was given, or the one at the place that it was told.

    A journal that was given belongs to whoever made it. One at a path or an address is made here
    when it is first needed; `close` closes it, and the next use makes another one. One in memory
    stays, because its sessions would be lost: it ends with the agent.
    """

    def __init__(self, where: Journal | str | Path | None) -> None:
        self._where = ":memory:" if where is None or where == "" else where
        self._lock = make_lock()
        self._made: Journal | None = None

    @property
    def is_file(self) -> bool:
        """Whether it is kept in a file of this machine."""
        where = self._where
        if isinstance(where, (str, os.PathLike)):
            return str(where) != ":memory:" and "://" not in str(where)
        return isinstance(where, SqliteJournal) and where.path is not None

    def open(self) -> Journal:
        """Return the journal. Raises ConfigError if none can be kept there."""
        where = self._where
        if not isinstance(where, (str, os.PathLike)):
            return where
        with self._lock:
            if self._made is None:
                self._made = create_journal(where)
            return self._made

    def close(self) -> None:
        """Close what was made here, unless it is in memory. Safe to call twice."""
        if self._where == ":memory:":
            return
        with self._lock:
            made = self._made
            self._made = None
        if made is not None:
            made.close()
