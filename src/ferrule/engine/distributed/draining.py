"""A worker's journal as its jobs see it: nothing is written once the worker leaves.

Ending a process cancels what runs in it, and a run that is cancelled journals that. A worker that
is asked to stop must not end other people's runs: they stay open, as after a `kill -9`, and another
worker continues them. Leases are still released, each when its run has stopped here, so that nobody
has to wait for them to expire.

The end of a run that began here carries the outcome of its job with it, in one statement, where the
journal is in the database of the jobs (`OutcomeJournal`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ferrule.core.errors import JournalError
from ferrule.core.events import Event, JournalRecord, ModelFailed, RunFinished, RunStarted
from ferrule.core.identity import Identity
from ferrule.storage.journal.protocols import Journal, OutcomeJournal, RemoteJournal
from ferrule.storage.journal.sessions import SessionInfo

from .job_run import describe_end
from .jobs import Job


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
            raise JournalError("this worker stops: others continue its runs", code="journal_left")

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


@dataclass(slots=True)
class _ExpectedEnd:
    """A job whose run is worked, and what was seen of the run."""

    job: Job
    has_begun_here: bool = False
    is_typed: bool = False
    failed: ModelFailed | None = None
    has_outcome: bool = False
    """Whether its outcome is written."""


class DrainingRemoteJournal(DrainingJournal):
    """A journal on a server, whose writes sessions share, until `leave`."""

    def __init__(self, journal: RemoteJournal) -> None:
        super().__init__(journal)
        self._remote = journal
        self._outcomes = journal if isinstance(journal, OutcomeJournal) else None
        self._expected: dict[str, _ExpectedEnd] = {}

    def expect(self, job: Job) -> None:
        """Write the outcome of this job with the end of its run, if that begins here."""
        self._expected[job.run] = _ExpectedEnd(job)

    def forget(self, run: str) -> bool:
        """Expect the end of a run no more. Return whether its outcome was written."""
        return self._expected.pop(run).has_outcome

    def append_batches(self, batches: Sequence[tuple[Identity, Sequence[Event]]]) -> None:
        self._check()
        ended = self._find_ends(batches) if self._outcomes is not None else {}
        if self._outcomes is None or not ended:
            self._remote.append_batches(batches)
            return
        self._outcomes.append_ends(batches, ended)
        for run in ended:
            if run in self._expected:
                self._expected[run].has_outcome = True

    def _find_ends(
        self, batches: Sequence[tuple[Identity, Sequence[Event]]]
    ) -> dict[str, dict[str, Any]]:
        """Return the outcomes of jobs that end with these events, by run."""
        ended: dict[str, dict[str, Any]] = {}
        for identity, events in batches:
            expected = self._expected.get(identity.run)
            if expected is None or not _is_of(expected.job, identity):
                continue
            for event in events:
                if isinstance(event, RunStarted):
                    expected.has_begun_here = True
                    expected.is_typed = event.output_request is not None
                elif isinstance(event, ModelFailed):
                    expected.failed = event
                elif isinstance(event, RunFinished) and expected.has_begun_here:
                    ended[identity.run] = describe_end(
                        expected.job, event, expected.failed, typed=expected.is_typed
                    )
        return ended

    def release_batch(self, sessions: Sequence[str]) -> None:
        self._remote.release_batch(sessions)

    def find_known(self, sessions: Sequence[str]) -> set[str]:
        return self._remote.find_known(sessions)


def _is_of(job: Job, identity: Identity) -> bool:
    return (identity.tenant, identity.user, identity.session) == (
        job.tenant,
        job.user,
        job.session,
    )


def make_draining(journal: Journal) -> DrainingJournal:
    """Return the journal as jobs of a worker see it."""
    if isinstance(journal, RemoteJournal):
        return DrainingRemoteJournal(journal)
    return DrainingJournal(journal)
