"""What a journal can do, whatever database it is kept in.

`Journal` is the contract of every journal; some also are `BatchJournal`, `RemoteJournal` or
`CheckableJournal`. `JobWatch` is whom one tells of jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ferrule.core.events import Event, JournalRecord
from ferrule.core.identity import Identity

from .sessions import SessionInfo


class Journal(Protocol):
    """An append-only log of events, with one chain of hashes per session.

    Contract (checked by `ferrule.testing.journal_conformance`):

    * `append` is all or nothing. Before it returns, the events survive the death of this process.
      `seq` counts from 1 without gaps. If the journal cannot be written, it raises JournalError and
      records nothing.
    * A session has one writer at a time: the first `append` (or `lease`) takes it, until `release`,
      `close` or the death of the process (where others cannot see it die, some time after that).
      Another writer gets JournalError (`journal_leased`). Other sessions are not held up.
    * A session belongs to the tenant and user of its first event; for all others it does not exist.
    * No result is kept beyond the cap: it is cut, marked `partial` and says so.
    * `records` streams in order, in time proportional to what is read, and may run while others
      append. `verify` raises JournalError (`journal_corrupt`) naming the session and the first
      event that does not hold.
    * It is safe to use from several threads.
    """

    def append(
        self,
        session: str,
        run: str,
        events: Sequence[Event],
        *,
        identity: Identity,
        times: Sequence[int] | None = None,
    ) -> list[JournalRecord]:
        """Add events to a session, opening it if it is new; return the records that were written.

        Args:
            session: Id of the session.
            run: Id of the run that they belong to, or "".
            events: The events, in order.
            identity: Whose session it is.
            times: A time (ms since 1970) per event, for events copied from elsewhere. The default
                is now.

        Raises:
            JournalError: Nothing was recorded, or (`journal_unsure`) it is not known whether it
                was.
            SessionNotFound: The session belongs to another tenant or user.
        """
        ...

    def records(self, session: str, *, after: int = 0) -> Iterator[JournalRecord]:
        """Yield events after number `after`, oldest first. Raises SessionNotFound, JournalError."""
        ...

    def head(self, session: str) -> tuple[int, str]:
        """Return the number and hash of the last event.

        Kept elsewhere, they prove the session up to there.
        """
        ...

    def verify(self, session: str) -> None:
        """Check the whole chain. Raises SessionNotFound, JournalError."""
        ...

    def sessions(
        self, *, tenant: str | None = None, user: str | None = None, limit: int | None = None
    ) -> list[SessionInfo]:
        """Return sessions, the one used last first, of one tenant and user or of everybody."""
        ...

    def find(
        self, prefix: str, *, tenant: str | None = None, user: str | None = None
    ) -> SessionInfo:
        """Return the session with this id, or the only one whose id starts with it.

        Raises:
            SessionNotFound: There is none, or there are several.
        """
        ...

    def lease(self, session: str) -> None:
        """Become the writer of a session before writing. Raises JournalError (`journal_leased`)."""
        ...

    def release(self, session: str) -> None:
        """Let others write the session."""
        ...

    def close(self) -> None:
        """Release everything. Safe to call twice; any other call after it raises JournalError."""
        ...


@runtime_checkable
class BatchJournal(Protocol):
    """A journal in which many small writes cost more than one that contains them all."""

    def append_batches(self, batches: Sequence[tuple[Identity, Sequence[Event]]]) -> None:
        """Append to several sessions, each named once, in one write: all or nothing.

        Raises what `append` raises.
        """
        ...


@runtime_checkable
class RemoteJournal(Journal, BatchJournal, Protocol):
    """A batch journal on a server: each write takes a network and a disk, so threads do them.

    A new session is taken by its first append, not before: that is a write less.
    """

    def release_batch(self, sessions: Sequence[str]) -> None:
        """Let others write these sessions, with one write."""
        ...

    def find_known(self, sessions: Sequence[str]) -> set[str]:
        """Return those of the sessions that have events. Raises JournalError."""
        ...


class JobWatch(Protocol):
    """Who works jobs (`engine.distributed`) whose outcomes are in one database with the journal.

    The journal calls it in threads of its own.
    """

    def list_runs(self) -> Sequence[str]:
        """Return the runs that are worked."""
        ...

    def cancel_runs(self, runs: list[str]) -> None:
        """End runs that somebody wants cancelled; each is named until its job has an outcome."""
        ...

    def find_ends(
        self, batches: Sequence[tuple[Identity, Sequence[Event]]]
    ) -> Mapping[str, Mapping[str, Any]]:
        """Return the outcomes, by run, of jobs that end with these events.

        They are written with the events: all or nothing.
        """
        ...

    def note_ends(self, outcomes: Mapping[str, Mapping[str, Any]]) -> None:
        """Take note that these outcomes are written."""
        ...


@runtime_checkable
class CheckableJournal(Protocol):
    """A journal that can check itself beyond the chains of its sessions."""

    def find_problems(self) -> list[str]:
        """Return a sentence for each problem. Raises JournalError if the journal cannot be read."""
        ...
