"""Closed sessions moved to files: exported, read back and checked, and only then removed.

An archive is an export (`jsonl`), compressed with gzip, whose first line also contains

    "archive":{"previous":…,"sessions":[{"session":…,"events":…,"head":…}, …]}

`previous` is the SHA-256 of the archive before it (64 zeros for the first), so that archives are a
chain of their own. For each removed session the journal has an event (`session.archived`) with the
head's hash and the file's, in a session named `archived-…` of the same owner: the removal is
recorded with everything else, and can be signed like everything else.

Nothing is lost, wherever this process is killed: the file gets its name only when it is complete,
on disk and checked; after that, a session is removed and its removal recorded in one transaction.
At worst a session is in both places, or an unfinished file (`….part`) is left, which the next
archive with that name replaces.

Memory is bounded by the largest event: sessions are streamed.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import file_digest, sha256
from pathlib import Path

from ferrule.core.errors import ConfigError, JournalError, SessionNotFound
from ferrule.core.events import JournalRecord, SessionArchived
from ferrule.core.identity import Identity
from ferrule.storage.audit.verification import ARCHIVE_SESSION_PREFIX, open_lines
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.paths import make_private_folder

from .jsonl import export_jsonl, read_jsonl

NO_PREVIOUS = "0" * 64
_BATCH = 128


@dataclass(slots=True)
class ArchiveReport:
    """What was moved into `file`.

    `sha256` is the hash of its bytes. `kept` says why a session stayed in the journal.
    """

    file: Path
    sha256: str = ""
    sessions: list[str] = field(default_factory=list[str])
    events: int = 0
    kept: dict[str, str] = field(default_factory=dict[str, str])


def find_closed_sessions(journal: Journal, time: int) -> list[SessionInfo]:
    """Return sessions last used before `time` (ms since 1970) with no open run, oldest first."""
    closed: list[SessionInfo] = []
    for info in journal.sessions():
        is_archive = info.session.startswith(ARCHIVE_SESSION_PREFIX)
        is_running = info.state == "open" and info.runs
        if info.last < time and not is_archive and not is_running:
            closed.append(info)
    return sorted(closed, key=lambda info: (info.last, info.session))


def archive_sessions(journal: SqliteJournal, sessions: Sequence[str], file: Path) -> ArchiveReport:
    """Move these sessions into a new file.

    A session that is in use, or does not verify, stays in the journal and is named in `kept`.

    Raises:
        ConfigError: The file exists.
        JournalError: The file does not read back as it should. Nothing was removed.
    """
    file = file.absolute()
    if file.exists():
        raise ConfigError(f"the file `{file}` already exists", hint="choose another name")
    make_private_folder(file.parent)
    done = ArchiveReport(file)
    heads = _lock_sessions(journal, sessions, done)
    try:
        if heads:
            _write(journal, heads, file)
            done.sha256 = _digest(file)
            for head in heads:
                _remove(journal, head, done)
    finally:
        for head in heads:
            journal.release(head.session)
    return done


def _lock_sessions(
    journal: SqliteJournal, sessions: Sequence[str], done: ArchiveReport
) -> list[SessionArchived]:
    """Lease the sessions that are free and verify; return them as they will be recorded."""
    heads: list[SessionArchived] = []
    for session in dict.fromkeys(sessions):
        info = journal.find(session)
        try:
            journal.lease(session)
            journal.verify(session)
            events, head = journal.head(session)
        except JournalError as error:
            journal.release(session)
            done.kept[session] = error.detail
            continue
        heads.append(
            SessionArchived(
                session, events, head, str(done.file), tenant=info.tenant, user=info.user
            )
        )
    return heads


def _write(journal: SqliteJournal, heads: list[SessionArchived], file: Path) -> None:
    """Write a draft, check it, sync it, and give it its name."""
    part = file.with_name(file.name + ".part")
    part.unlink(missing_ok=True)
    sessions = [{"session": one.session, "events": one.events, "head": one.head} for one in heads]
    about = {"previous": _previous(journal), "sessions": sessions}
    descriptor = os.open(
        part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    with os.fdopen(descriptor, "wb") as raw:
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            for line in export_jsonl(_records(journal, heads), archive=about):
                packed.write(line.encode())
        raw.flush()
        os.fsync(raw.fileno())
    _check(part, heads)
    # Fails if the name was taken meanwhile: an archive replaces no file.
    os.link(part, file)
    part.unlink()
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _records(journal: SqliteJournal, heads: list[SessionArchived]) -> Iterator[JournalRecord]:
    for head in heads:
        yield from journal.records(head.session)


def _check(part: Path, heads: list[SessionArchived]) -> None:
    """Read what was written, from the first byte to the last. Raises JournalError."""
    if _read_heads(part) != {one.session: (one.events, one.head) for one in heads}:
        raise JournalError(
            f"the archive `{part}` does not contain what was to be archived; nothing was removed"
        )


def _remove(journal: SqliteJournal, archived: SessionArchived, done: ArchiveReport) -> None:
    archived = replace(archived, sha256=done.sha256)
    owner = f"{archived.tenant}\n{archived.user}".encode("utf-8", "surrogatepass")
    name = ARCHIVE_SESSION_PREFIX + sha256(owner).hexdigest()[:8]
    identity = Identity(archived.tenant, archived.user, name, name)
    try:
        journal.remove_archived(archived, name, identity=identity)
    except (JournalError, SessionNotFound) as error:
        done.kept[archived.session] = f"it is in the archive but was not removed: {error.detail}"
        return
    finally:
        journal.release(name)
    done.sessions.append(archived.session)
    done.events += archived.events


def _previous(journal: Journal) -> str:
    """Return the hash of the latest archive."""
    archives = [
        info for info in journal.sessions() if info.session.startswith(ARCHIVE_SESSION_PREFIX)
    ]
    previous = NO_PREVIOUS
    for info in sorted(archives, key=lambda one: one.last)[-1:]:
        for record in journal.records(info.session):
            if isinstance(record.event, SessionArchived):
                previous = record.event.sha256
    return previous


def _digest(file: Path) -> str:
    with file.open("rb") as written:
        return file_digest(written, "sha256").hexdigest()


def import_sessions(journal: Journal, file: Path) -> list[str]:
    """Import the sessions of an archive or an export; return their names.

    They keep their owners, times and hashes. All of the file is checked before anything is written.
    An import that was interrupted is continued.

    Raises:
        JournalError: The file does not verify, or the journal has a session of this name that is
            not the beginning of the file's.
    """
    heads = _read_heads(file)
    for session in heads:
        _check_beginning(journal, file, session)
    with open_lines(file) as lines:
        batch: list[JournalRecord] = []
        for record in read_jsonl(lines):
            if batch:
                same_run = (record.session, record.run) == (batch[0].session, batch[0].run)
                if len(batch) >= _BATCH or not same_run:
                    _append(journal, batch)
                    batch = []
            batch.append(record)
        _append(journal, batch)
    for session, head in heads.items():
        journal.release(session)
        if journal.head(session) != head:
            raise JournalError(
                f"session `{session}` differs after the import", code="journal_corrupt"
            )
    return list(heads)


def _read_heads(file: Path) -> dict[str, tuple[int, str]]:
    """Return number and hash of the last event of each session in a file."""
    heads: dict[str, tuple[int, str]] = {}
    with open_lines(file) as lines:
        for record in read_jsonl(lines):
            heads[record.session] = (record.seq, record.hash)
    return heads


def _check_beginning(journal: Journal, file: Path, session: str) -> None:
    """Check that what the journal has of a session, if anything, is the beginning of the file's."""
    try:
        seq, digest = journal.head(session)
    except SessionNotFound:
        return
    with open_lines(file) as lines:
        for record in read_jsonl(lines):
            if (record.session, record.seq, record.hash) == (session, seq, digest):
                return
    raise JournalError(
        f"this journal already has another session `{session}`",
        code="journal_exists",
        hint="import into another journal (`--journal`)",
    )


def _append(journal: Journal, batch: list[JournalRecord]) -> None:
    if not batch:
        return
    first = batch[0]
    try:
        present, _ = journal.head(first.session)
    except SessionNotFound:
        present = 0
    batch = [record for record in batch if record.seq > present]
    owner = Identity(first.tenant, first.user, first.session, first.run)
    events = [record.event for record in batch]
    times = [record.time for record in batch]
    journal.append(first.session, first.run, events, identity=owner, times=times)
