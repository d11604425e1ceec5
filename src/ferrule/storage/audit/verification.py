"""Verification of a journal, an export or an archive: the one check that all interfaces use.

A chain is checked event by event (`hash_chain`), then what is stored beside the chains
(`storage.journal.sqlite_integrity`), what was signed (`checkpoints`) and what became of archived
sessions. Every finding names the first event that does not hold.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from ferrule.core.errors import FerruleError, JournalError, SessionNotFound
from ferrule.core.events import JournalRecord, SessionArchived
from ferrule.core.value_class import frozen
from ferrule.storage.artifacts.store import ArtifactMissing, ArtifactStore, Scope
from ferrule.storage.export.jsonl import check_header, is_sealed, read_jsonl, split_lines
from ferrule.storage.journal.protocols import CheckableJournal, Journal

from .checkpoints import Checkpoint, compare_events, find_contradictions, is_signed_by
from .export import read_export
from .signing import Verifier


@frozen
class Finding:
    """A problem. `session` is "" if it concerns the file, `event` 0 if it is no single event's."""

    text: str
    session: str = ""
    event: int = 0


@dataclass(slots=True)
class CheckedSession:
    """A session that was checked.

    `head` is the hash of its last event; `signed` the last event that a checkpoint covers.
    """

    session: str
    events: int = 0
    head: str = ""
    signed: int = 0
    archived: str = ""
    """The file that contains it, if it is no longer in the journal."""


@dataclass(slots=True)
class Verification:
    """What was checked, and the problems found. `notes` say what the check cannot know."""

    sessions: list[CheckedSession] = field(default_factory=list[CheckedSession])
    findings: list[Finding] = field(default_factory=list[Finding])
    notes: list[str] = field(default_factory=list[str])

    @property
    def is_intact(self) -> bool:
        """Whether no problem was found."""
        return not self.findings

    def as_record(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"schema": "ferrule.audit_verify.v1", "whole": self.is_intact, **asdict(self)}


def verify_sessions(
    journal: Journal,
    sessions: Sequence[str] | None = None,
    *,
    points: Sequence[Checkpoint] = (),
    verifier: Verifier | None = None,
    artifacts: ArtifactStore | None = None,
) -> Verification:
    """Check these sessions, or by default all of them and the journal itself.

    Problems are reported, not raised. What others write or archive meanwhile is no problem.

    Args:
        journal: The journal.
        sessions: Ids of sessions; None checks all and the journal itself.
        points: Checkpoints to compare with.
        verifier: Only checkpoints of this key count.
        artifacts: Where outputs of the sessions are kept: each must still be what its name, the
            hash in the journal, says. What was removed is no problem: they are not kept for ever.

    Raises:
        SessionNotFound: A named session does not exist.
    """
    done = Verification()
    if verifier is not None:
        points = [point for point in points if point.key == verifier.name]
    names = _list_sessions(journal, done) if sessions is None else sessions
    for session in names:
        own_points = [point for point in points if point.session == session]
        try:
            done.sessions.append(
                _check_session(journal, session, own_points, verifier, done.findings)
            )
            if artifacts is not None:
                done.findings += _check_artifacts(journal, session, artifacts)
        except SessionNotFound:
            if sessions is not None:
                raise
            # It was archived after the sessions were listed. If it vanished otherwise, the check
            # of the whole journal reports it.
    if sessions is None:
        if isinstance(journal, CheckableJournal):
            done.findings += [Finding(text) for text in _check_journal(journal)]
        _check_archived(journal, points, done)
        if not any(one.signed for one in done.sessions):
            done.notes.append(
                "no checkpoint covers this journal: if it was computed again, or replaced by an "
                "older copy, that goes unnoticed"
            )
    if points:
        done.notes += [
            f"session `{one.session}`: events {one.signed + 1} to {one.events} are not signed"
            for one in done.sessions
            if one.signed < one.events
        ]
    return done


def _list_sessions(journal: Journal, done: Verification) -> list[str]:
    try:
        return [info.session for info in journal.sessions()]
    except JournalError as error:
        done.findings.append(Finding(error.detail))
        return []


def _check_session(
    journal: Journal,
    session: str,
    points: list[Checkpoint],
    verifier: Verifier | None,
    findings: list[Finding],
) -> CheckedSession:
    checked = CheckedSession(session)
    try:
        problems = list(find_contradictions(journal, session, points, verifier))
        checked.events, checked.head = journal.head(session)
        findings += [Finding(text, session) for text in problems]
        if not problems:
            checked.signed = max((point.seq for point in points), default=0)
    except SessionNotFound:
        raise
    except JournalError as error:
        findings.append(Finding(error.detail, error.session or session, error.event))
    return checked


def _check_artifacts(journal: Journal, session: str, artifacts: ArtifactStore) -> Iterator[Finding]:
    try:
        info = journal.find(session)
        scope = Scope(info.tenant, info.user, info.session)
        kept = artifacts.list(scope)
    except FerruleError:
        return  # What is wrong with the session itself is among the findings.
    for artifact in kept:
        digest = hashlib.sha256()
        try:
            for part in artifacts.read_chunks(scope, artifact.reference):
                digest.update(part)
        except ArtifactMissing:
            continue
        if digest.hexdigest() != artifact.sha256:
            text = f"session `{session}`: the kept output `{artifact.reference}` was changed"
            yield Finding(text, session)


def _check_journal(journal: CheckableJournal) -> list[str]:
    try:
        return journal.find_problems()
    except JournalError as error:
        return [error.detail]


def _check_archived(journal: Journal, points: Sequence[Checkpoint], done: Verification) -> None:
    """Check sessions that were signed or archived, and are not in the journal."""
    present = {one.session for one in done.sessions}
    try:
        archived = {one.session: one for one in read_archived_sessions(journal)}
    except JournalError:
        # The problem is among the findings already; without these events nothing can be checked.
        return
    for session, event in archived.items():
        if session not in present:
            done.sessions.append(
                CheckedSession(session, event.events, event.head, archived=event.file)
            )
    for event in {one.file: one for one in archived.values()}.values():
        _check_archive_file(event, done)
    last_points: dict[str, Checkpoint] = {}
    for point in points:
        last = last_points.get(point.session)
        if point.session not in present and (last is None or point.seq > last.seq):
            last_points[point.session] = point
    for session, point in last_points.items():
        _check_archived_point(session, archived.get(session), point, done)


def _check_archived_point(
    session: str, archived: SessionArchived | None, last: Checkpoint, done: Verification
) -> None:
    if archived is None:
        text = (
            f"session `{session}` is gone: checkpoint {last.line} signed its event "
            f"{last.seq}, and nothing says that it was archived"
        )
        done.findings.append(Finding(text, session))
    elif (last.seq, last.hash) == (archived.events, archived.head):
        checked = next(one for one in done.sessions if one.session == session)
        checked.signed = last.seq
    elif last.seq >= archived.events:
        text = (
            f"session `{session}` was archived with {archived.events} events and another head "
            f"than checkpoint {last.line} signed"
        )
        done.findings.append(Finding(text, session))


def _check_archive_file(archived: SessionArchived, done: Verification) -> None:
    """Check that an archive is the file that was written. A missing one may have been moved."""
    try:
        with Path(archived.file).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        done.notes.append(f"the archive `{archived.file}` was not found, so it was not checked")
        return
    if digest != archived.sha256:
        text = f"the archive `{archived.file}` is not the file that was written"
        done.findings.append(Finding(text))


def read_archived_sessions(journal: Journal) -> Iterator[SessionArchived]:
    """Yield what this journal recorded as archived, oldest first within each owner."""
    for info in journal.sessions():
        if not info.session.startswith(ARCHIVE_SESSION_PREFIX):
            continue
        for record in journal.records(info.session):
            if isinstance(record.event, SessionArchived):
                yield record.event


ARCHIVE_SESSION_PREFIX = "archived-"
"""How sessions are named that record what was archived, for one owner each."""


# ---- files

_UNSEALED = (
    "line 1: the sessions of this file carry no seal, so nothing shows that they end where it "
    "ends: it is of an older version, or was cut off and changed"
)


@contextmanager
def open_lines(path: Path) -> Generator[Iterator[str]]:
    """Open an export, compressed or not; return its lines, each with its newline.

    Raises:
        JournalError: The file is not text, or cannot be unpacked.
    """
    with path.open("rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if is_gzip else path.open("rb") as file:
        yield _lines(cast("IO[bytes]", file), str(path))


def _lines(file: IO[bytes], path: str) -> Iterator[str]:
    number = 0
    try:
        for line in split_lines(file):
            number += 1
            yield line.decode()
    except UnicodeDecodeError as error:
        raise JournalError(
            f"line {number} is not text: it was changed ({error.reason})", code="journal_corrupt"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise JournalError(
            f"line {number + 1} cannot be unpacked: `{path}` is cut off or damaged ({error})",
            code="journal_corrupt",
        ) from error


def verify_file(
    path: Path, *, points: Sequence[Checkpoint] = (), verifier: Verifier | None = None
) -> Verification:
    """Check an export of a journal, an archive, or an export of the audit.

    The first line says which of them it is. Problems are reported, not raised.

    Raises:
        JournalError: The file is of another kind (`journal_foreign`), or newer or older than this
            version reads (`journal_newer`, `journal_older`).
    """
    with open_lines(path) as lines:
        first = next(lines, "")
        all_lines = chain([first] if first else [], lines)
        if first.startswith('{"ferrule":"audit"'):
            return _verify_export(all_lines, verifier)
        return _verify_records(all_lines, first, points, verifier)


def _verify_export(lines: Iterator[str], verifier: Verifier | None) -> Verification:
    done = Verification()
    place = ""
    try:
        for record in read_export(lines, verifier):
            place = ""
            if record.get("type") == "session":
                done.sessions.append(
                    CheckedSession(record["session"], record["events"], record["head"])
                )
            elif record.get("type") == "call":
                place = f" (after call `{record['call_id']}`)"
    except JournalError as error:
        if error.code in ("journal_foreign", "journal_newer", "journal_older"):
            raise
        session = done.sessions[-1].session if done.sessions else ""
        done.findings.append(Finding(f"{error.detail}{place}", session))
    if verifier is None and done.is_intact:
        done.notes.append("without `--key` this shows that the file is intact, not who wrote it")
    return done


def _verify_records(
    lines: Iterator[str], first: str, points: Sequence[Checkpoint], verifier: Verifier | None
) -> Verification:
    done = Verification()
    seen: dict[str, CheckedSession] = {}
    watch = _CheckpointComparison(points, verifier)
    session = ""
    event = 0
    try:
        for record in read_jsonl(lines):
            session = record.session
            event = record.seq
            checked = seen.setdefault(session, CheckedSession(session))
            checked.events = event
            checked.head = record.hash
            watch.add(record)
    except JournalError as error:
        if error.code in ("journal_foreign", "journal_newer", "journal_older"):
            raise
        # Bytes that are not text are noticed before it is known which event they belong to.
        done.findings.append(
            Finding(error.detail, error.session or session, error.event or event + 1)
        )
    else:
        if not is_sealed(first):
            done.findings.append(Finding(_UNSEALED))
        done.findings += [Finding(text) for text in _check_listed(first, seen)]
        done.findings += watch.findings(seen)
    done.sessions = list(seen.values())
    return done


def _check_listed(first: str, seen: dict[str, CheckedSession]) -> Iterator[str]:
    """Compare the sessions that an archive lists with those that it contains."""
    header = check_header(first).get("archive")
    if not isinstance(header, dict):
        return
    listed = cast("list[dict[str, Any]]", cast("dict[str, Any]", header).get("sessions") or [])
    heads = {str(row.get("session")): (row.get("events"), row.get("head")) for row in listed}
    for session in heads.keys() - seen.keys():
        yield f"session `{session}` is missing: the first line lists it"
    for session, one in seen.items():
        if heads.get(session) != (one.events, one.head):
            yield f"session `{session}` is not the one that the first line lists"


class _CheckpointComparison:
    """Compares events, as they are read, with checkpoints."""

    def __init__(self, points: Sequence[Checkpoint], verifier: Verifier | None) -> None:
        self._verifier = verifier
        self._signed: dict[str, dict[int, list[Checkpoint]]] = {}
        self._events: dict[str, dict[int, str]] = {}
        for point in points:
            if verifier is None or point.key == verifier.name:
                self._signed.setdefault(point.session, {}).setdefault(point.seq, []).append(point)

    def add(self, record: JournalRecord) -> None:
        if record.seq in self._signed.get(record.session, ()):
            self._events.setdefault(record.session, {})[record.seq] = record.hash

    def findings(self, seen: dict[str, CheckedSession]) -> Iterator[Finding]:
        """Yield the problems of the sessions, and set how far each is signed."""
        for session, checked in seen.items():
            signed = self._signed.get(session, {})
            for point in chain.from_iterable(signed.values()):
                if self._verifier is not None and not is_signed_by(point, self._verifier):
                    text = f"checkpoint {point.line}: the signature is not of this key"
                    yield Finding(text, session, point.seq)
            events = {**self._events.get(session, {}), checked.events: checked.head}
            problems = list(compare_events(session, signed, sorted(events.items())))
            for text in problems:
                yield Finding(text, session)
            checked.signed = 0 if problems else max(signed, default=0)
