"""A worker's journal as its jobs see it: nothing is written once the worker leaves.

Ending a process cancels what runs in it, and a run that is cancelled journals that. A worker that
is asked to stop must not end other people's runs: they stay open, as after a `kill -9`, and another
worker continues them. Leases are still released, each when its run has stopped here, so that nobody
has to wait for them to expire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ferrule.core.errors import JournalError
from ferrule.core.events import Event, JournalRecord
from ferrule.core.identity import Identity
from ferrule.storage.journal.protocols import Journal, RemoteJournal
from ferrule.storage.journal.sessions import SessionInfo


class DrainingJournal:
    """Another journal, until `leave`. Closing it closes that one."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.left = False

    def leave(self) -> None:
        """Make `append` and `lease` raise JournalError (`journal_left`) from now on."""
        self.left = True

    def append(
        self,
        session: str,
        run: str,
        events: Sequence[Event],
        *,
        identity: Identity,
        times: Sequence[int] | None = None,
    ) -> list[JournalRecord]:
        self._check()
        return self._journal.append(session, run, events, identity=identity, times=times)

    def lease(self, session: str) -> None:
        self._check()
        self._journal.lease(session)

    def _check(self) -> None:
        if self.left:
            raise JournalError(
                "this worker leaves: others go on with its runs", code="journal_left"
            )

    def records(self, session: str, *, after: int = 0) -> Iterator[JournalRecord]:
        return self._journal.records(session, after=after)

    def head(self, session: str) -> tuple[int, str]:
        return self._journal.head(session)

    def verify(self, session: str) -> None:
        self._journal.verify(session)

    def sessions(
        self, *, tenant: str | None = None, user: str | None = None, limit: int | None = None
    ) -> list[SessionInfo]:
        return self._journal.sessions(tenant=tenant, user=user, limit=limit)

    def find(
        self, prefix: str, *, tenant: str | None = None, user: str | None = None
    ) -> SessionInfo:
        return self._journal.find(prefix, tenant=tenant, user=user)

    def release(self, session: str) -> None:
        self._journal.release(session)

    def close(self) -> None:
        self._journal.close()


class DrainingRemoteJournal(DrainingJournal):
    """A journal on a server, whose writes sessions share, until `leave`."""

    def __init__(self, journal: RemoteJournal) -> None:
        super().__init__(journal)
        self._remote = journal

    def append_batches(self, batches: Sequence[tuple[Identity, Sequence[Event]]]) -> None:
        self._check()
        self._remote.append_batches(batches)

    def release_batch(self, sessions: Sequence[str]) -> None:
        self._remote.release_batch(sessions)

    def find_known(self, sessions: Sequence[str]) -> set[str]:
        return self._remote.find_known(sessions)


def make_draining(journal: Journal) -> DrainingJournal:
    """Return the journal as jobs of a worker see it."""
    if isinstance(journal, RemoteJournal):
        return DrainingRemoteJournal(journal)
    return DrainingJournal(journal)
