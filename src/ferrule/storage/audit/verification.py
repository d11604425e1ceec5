"""Whether a journal, an export or an archive is what was recorded: the one check that interfaces
call.

A chain is checked event by event (`hash_chain`), then what stands beside the chains
(`storage.journal.sqlite_integrity`), what was signed (`checkpoints`) and what became of archived
sessions. Every finding names the first event that does not hold.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import JournalError, SessionNotFound
from ferrule.core.events import Record, SessionArchived
from ferrule.core.frozen import frozen
from ferrule.storage.export.jsonl import check_header, read_jsonl
from ferrule.storage.journal.sqlite import Checkable, Journal

from .checkpoints import Checkpoint, compared, contradictions, signature_holds
from .export import read_export
from .signing import Verifier


@frozen
class Finding:
    """What does not hold. `session` is "" for what concerns the file, `event` 0 for what is about
    no single event.
    """

    text: str
    session: str = ""
    event: int = 0


@dataclass(slots=True)
class Checked:
    """A session that was looked at. `head` is the hash of its last event; `signed` the last event
    that a checkpoint covers.
    """

    session: str
    events: int = 0
    head: str = ""
    signed: int = 0
    archived: str = ""
    """The file it is in, if it is not in the journal any more."""


@dataclass(slots=True)
class Verified:
    """What was checked, and what does not hold. `notes` say what the check cannot know."""

    sessions: list[Checked] = field(default_factory=list[Checked])
    findings: list[Finding] = field(default_factory=list[Finding])
    notes: list[str] = field(default_factory=list[str])

    @property
    def whole(self) -> bool:
        """Nothing was found."""
        return not self.findings

    def as_record(self) -> dict[str, Any]:
        """As JSON values."""
        return {"schema": "ferrule.audit_verify.v1", "whole": self.whole, **asdict(self)}


def verify_sessions(
    journal: Journal,
    sessions: Sequence[str] | None = None,
    *,
    points: Sequence[Checkpoint] = (),
    verifier: Verifier | None = None,
) -> Verified:
    """Check these sessions; all of them, and the file itself, if none are named.

    With a `verifier` only checkpoints of its key count. Never raises for what does not hold;
    SessionNotFound for a name. What others write or archive meanwhile is no finding.
    """
    done = Verified()
    if verifier is not None:
        points = [point for point in points if point.key == verifier.name]
    for session in sessions if sessions is not None else _every(journal, done):
        mine = [point for point in points if point.session == session]
        try:
            done.sessions.append(_session(journal, session, mine, verifier, done.findings))
        except SessionNotFound:
            if sessions is not None:
                raise
            # It was archived since they were listed. If it vanished otherwise, the journal as a
            # whole shows it.
    if sessions is None:
        if isinstance(journal, Checkable):
            done.findings += [Finding(text) for text in _beside(journal)]
        _archived(journal, points, done)
        if not any(point.signed for point in done.sessions):
            done.notes.append(
                "no checkpoint covers this journal: who computed it anew, or put an older "
                "copy in its place, is not seen"
            )
    unsigned = [one for one in done.sessions if points and one.signed < one.events]
    done.notes += [
        f"session `{one.session}`: events {one.signed + 1} to {one.events} are not signed"
        for one in unsigned
    ]
    return done


def _every(journal: Journal, done: Verified) -> list[str]:
    try:
        return [info.session for info in journal.sessions()]
    except JournalError as error:
        done.findings.append(Finding(error.detail))
        return []


def _session(
    journal: Journal,
    session: str,
    points: list[Checkpoint],
    verifier: Verifier | None,
    found: list[Finding],
) -> Checked:
    checked = Checked(session)
    try:
        wrong = [
            Finding(text, session) for text in contradictions(journal, session, points, verifier)
        ]
        checked.events, checked.head = journal.head(session)
        checked.signed = 0 if wrong else max((point.seq for point in points), default=0)
        found += wrong
    except SessionNotFound:
        raise
    except JournalError as error:
        found.append(Finding(error.detail, error.session or session, error.event))
    return checked


def _beside(journal: Checkable) -> list[str]:
    try:
        return journal.findings()
    except JournalError as error:
        return [error.detail]


def _archived(journal: Journal, points: Sequence[Checkpoint], done: Verified) -> None:
    """Sessions that were signed or archived, and are not in the journal."""
    here = {one.session for one in done.sessions}
    try:
        gone = {one.session: one for one in archived_sessions(journal)}
    except JournalError:
        # What is wrong with them is among the findings already; without them nothing can be said
        # here.
        return
    for session, told in gone.items():
        if session not in here:
            done.sessions.append(Checked(session, told.events, told.head, archived=told.file))
    for told in {one.file: one for one in gone.values()}.values():
        _archive_file(told, done)
    for session in dict.fromkeys(point.session for point in points):
        if session in here:
            continue
        last = max(
            (point for point in points if point.session == session), key=lambda point: point.seq
        )
        told = gone.get(session)
        if told is None:
            text = (
                f"session `{session}` is gone: checkpoint {last.line} signed its event "
                f"{last.seq}, and nothing says that it was archived"
            )
            done.findings.append(Finding(text, session))
        elif (last.seq, last.hash) == (told.events, told.head):
            checked = next(one for one in done.sessions if one.session == session)
            checked.signed = last.seq
        elif last.seq >= told.events:
            text = (
                f"session `{session}` was archived with {told.events} events and another head "
                f"than checkpoint {last.line} signed"
            )
            done.findings.append(Finding(text, session))


def _archive_file(told: SessionArchived, done: Verified) -> None:
    """Whether an archive is the one that was written. One that is not here may lie elsewhere."""
    try:
        with Path(told.file).open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
    except OSError:
        done.notes.append(f"the archive `{told.file}` is not there: what is in it was not checked")
        return
    if found != told.sha256:
        done.findings.append(Finding(f"the archive `{told.file}` is not the file that was written"))


def archived_sessions(journal: Journal) -> Iterator[SessionArchived]:
    """What this journal says was moved out of it, oldest first within each owner."""
    for info in journal.sessions():
        if not info.session.startswith(ARCHIVED):
            continue
        for record in journal.records(info.session):
            if isinstance(record.event, SessionArchived):
                yield record.event


ARCHIVED = "archived-"
"""Sessions whose name begins so hold what was moved out of the journal, for one owner each."""


# ---- files


@contextmanager
def opened(path: Path) -> Generator[Iterator[str]]:
    """The lines of an export, compressed or not, each with its newline. Raises JournalError for
    what is no text.
    """
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if packed else path.open("rb") as file:
        yield _lines(file, str(path))


def _lines(file: Iterable[bytes], path: str) -> Iterator[str]:
    number = 0
    try:
        for line in file:
            number += 1
            yield line.decode()
    except UnicodeDecodeError as error:
        raise JournalError(
            f"line {number} is no text: it was changed ({error.reason})", code="journal_corrupt"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise JournalError(
            f"line {number + 1} cannot be unpacked: `{path}` is cut off or damaged ({error})",
            code="journal_corrupt",
        ) from error


def verify_file(
    path: Path, *, points: Sequence[Checkpoint] = (), verifier: Verifier | None = None
) -> Verified:
    """Check an export of a journal, an archive, or an export of the audit; which of them it is, its
    first line says.

    Never raises for what does not hold. JournalError (`journal_foreign`) for a file of another
    kind, OSError.
    """
    with opened(path) as lines:
        first = next(lines, "")
        every = _again(first, lines)
        if first.startswith('{"ferrule":"audit"'):
            return _verify_export(every, verifier)
        return _verify_records(every, first, points, verifier)


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def _verify_export(lines: Iterator[str], verifier: Verifier | None) -> Verified:
    done = Verified()
    before = ""
    try:
        for record in read_export(lines, verifier):
            if record.get("type") == "session":
                done.sessions.append(Checked(record["session"], record["events"], record["head"]))
            before = f" (after call `{record['call_id']}`)" if record.get("type") == "call" else ""
    except JournalError as error:
        if error.code in ("journal_foreign", "journal_newer"):
            raise
        session = done.sessions[-1].session if done.sessions else ""
        done.findings.append(Finding(f"{error.detail}{before}", session))
    if verifier is None and done.whole:
        done.notes.append("without `--key` this shows that the file is whole, not who wrote it")
    return done


def _verify_records(
    lines: Iterator[str], first: str, points: Sequence[Checkpoint], verifier: Verifier | None
) -> Verified:
    done = Verified()
    seen: dict[str, Checked] = {}
    watch = _Watch(points, verifier)
    session, event = "", 0
    try:
        for record in read_jsonl(lines):
            session, event = record.session, record.seq
            one = seen.setdefault(record.session, Checked(record.session))
            one.events, one.head = record.seq, record.hash
            watch.event(record)
    except JournalError as error:
        if error.code in ("journal_foreign", "journal_newer"):
            raise
        # Bytes that are no text are met before anybody knows which event they are.
        done.findings.append(
            Finding(error.detail, error.session or session, error.event or event + 1)
        )
    else:
        done.findings += [Finding(text) for text in _unlisted(first, seen)]
        done.findings += watch.findings(seen)
    done.sessions = list(seen.values())
    return done


def _unlisted(first: str, seen: dict[str, Checked]) -> Iterator[str]:
    """What an archive says it holds, against what it holds."""
    about = check_header(first).get("archive")
    if not isinstance(about, dict):
        return
    listed = cast("list[dict[str, Any]]", cast("dict[str, Any]", about).get("sessions") or [])
    heads = {str(row.get("session")): (row.get("events"), row.get("head")) for row in listed}
    for session in heads.keys() - seen.keys():
        yield f"session `{session}` is missing: the first line lists it"
    for session, one in seen.items():
        if heads.get(session) != (one.events, one.head):
            yield f"session `{session}` is not the one that the first line lists"


class _Watch:
    """Compares events, as they are read, with what was signed of them."""

    def __init__(self, points: Sequence[Checkpoint], verifier: Verifier | None) -> None:
        self._verifier = verifier
        self._signed: dict[str, dict[int, list[Checkpoint]]] = {}
        self._events: dict[str, dict[int, str]] = {}
        for point in points:
            if verifier is None or point.key == verifier.name:
                self._signed.setdefault(point.session, {}).setdefault(point.seq, []).append(point)

    def event(self, record: Record) -> None:
        if record.seq in self._signed.get(record.session, ()):
            self._events.setdefault(record.session, {})[record.seq] = record.hash

    def findings(self, seen: dict[str, Checked]) -> Iterator[Finding]:
        for session, one in seen.items():
            signed = self._signed.get(session, {})
            for point in (point for points in signed.values() for point in points):
                if self._verifier is not None and not signature_holds(point, self._verifier):
                    yield Finding(
                        f"checkpoint {point.line}: the signature is not of this key",
                        session,
                        point.seq,
                    )
            events = {**self._events.get(session, {}), one.events: one.head}
            wrong = list(compared(session, signed, sorted(events.items())))
            yield from (Finding(text, session) for text in wrong)
            one.signed = 0 if wrong else max(signed, default=0)
