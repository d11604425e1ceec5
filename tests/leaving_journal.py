"""A journal in a file that can be told to write nothing any more, as that of a worker."""

from __future__ import annotations

from typing import Any

from ferrule.core.errors import JournalError
from ferrule.storage.journal.sqlite import SqliteJournal


class LeavingJournal(SqliteJournal):
    is_left = False

    def stop_writing(self) -> None:
        self.is_left = True

    def _check(self) -> None:
        if self.is_left:
            raise JournalError("this process stops", code="journal_left")

    def append(self, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return super().append(*args, **kwargs)

    def append_batches(self, *args: Any) -> None:
        self._check()
        super().append_batches(*args)

    def lease(self, session: str) -> None:
        self._check()
        super().lease(session)
