"""Closed sessions in a file of their own: exported, compressed, read back and checked, and only
then removed from the journal.

An archive is an export (`jsonl`), packed by gzip, whose first line also holds

    "archive":{"previous":…,"sessions":[{"session":…,"events":…,"head":…}, …]}

`previous` is the SHA-256 of the archive before it (64 zeros for the first), so that archives are a
chain of their own. What a journal had and has no more stands in it as an event (`session.archived`)
with the head's hash and the file's, in a session named `archived-…` of the same owner: the removal
is recorded where everything is, and can be signed like everything.

Nothing is lost, wherever this process is killed: the file has its name only when it is whole, on
the disk and checked; a session is removed, and its removal recorded, in one transaction after that.
At worst a session is in both, or an unfinished file (`….part`) is left, which the next archive of
that name replaces.

Memory is bounded by the largest event: sessions are streamed.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import file_digest, sha256
from pathlib import Path

from ferrule.core.errors import ConfigError, JournalError, SessionNotFound
from ferrule.core.events import Record, SessionArchived
from ferrule.core.identity import Identity
from ferrule.storage.audit.verification import ARCHIVED, opened
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.journal.sqlite import Journal, SqliteJournal
from ferrule.storage.paths import private_folder

from .jsonl import jsonl, read_jsonl

FIRST = "0" * 64
_BATCH = 128


@dataclass(slots=True)
class Archive:
    """What was moved into `file` (`sha256` is its bytes'). `kept` says per session why it stayed in
    the journal.
    """

    file: Path
    sha256: str = ""
    sessions: list[str] = field(default_factory=list[str])
    events: int = 0
    kept: dict[str, str] = field(default_factory=dict[str, str])


def closed_before(journal: Journal, time: int) -> list[SessionInfo]:
    """Sessions last used before `time` (ms since 1970) whose last run has ended, the oldest
    first.
    """
    found = [
        info
        for info in journal.sessions()
        if info.last < time
        and not info.session.startswith(ARCHIVED)
        and (info.state != "open" or not info.runs)
    ]
    return sorted(found, key=lambda info: (info.last, info.session))


def archive(journal: SqliteJournal, sessions: Sequence[str], file: Path) -> Archive:
    """Move these sessions into a new file. One that is in use, or does not verify, stays where it
    is and is named in `kept`.

    Raises ConfigError if the file is there already, JournalError if what was written does not read
    back as it should: then nothing was removed.
    """
    file = file.absolute()
    if file.exists():
        raise ConfigError(f"there is a file `{file}` already", hint="name another one")
    private_folder(file.parent)
    done = Archive(file)
    heads = _held(journal, sessions, done)
    try:
        if heads:
            _write(journal, heads, file)
            done.sha256 = _digest(file)
            for told in heads:
                _retire(journal, told, done)
    finally:
        for told in heads:
            journal.release(told.session)
    return done


def _held(journal: SqliteJournal, sessions: Sequence[str], done: Archive) -> list[SessionArchived]:
    """The sessions that are ours alone now and verify, as they will be recorded."""
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
    """Write beside, check, make durable, give it its name."""
    part = file.with_name(file.name + ".part")
    part.unlink(missing_ok=True)
    listed = [{"session": told.session, "events": told.events, "head": told.head} for told in heads]
    about = {"previous": _previous(journal), "sessions": listed}
    descriptor = os.open(
        part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    with os.fdopen(descriptor, "wb") as raw:
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            for line in jsonl(_records(journal, heads), archive=about):
                packed.write(line.encode())
        raw.flush()
        os.fsync(raw.fileno())
    _check(part, heads)
    os.link(part, file)  # fails if the name was taken meanwhile: an archive replaces nothing
    part.unlink()
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _records(journal: SqliteJournal, heads: list[SessionArchived]) -> Iterator[Record]:
    for told in heads:
        yield from journal.records(told.session)


def _check(part: Path, heads: list[SessionArchived]) -> None:
    """Read what was written, from the first byte to the last. Raises JournalError."""
    found: dict[str, tuple[int, str]] = {}
    with opened(part) as lines:
        for record in read_jsonl(lines):
            found[record.session] = (record.seq, record.hash)
    if found != {told.session: (told.events, told.head) for told in heads}:
        raise JournalError(
            f"the archive `{part}` does not hold what was to be archived; nothing was removed"
        )


def _retire(journal: SqliteJournal, told: SessionArchived, done: Archive) -> None:
    told = SessionArchived(
        told.session, told.events, told.head, told.file, done.sha256, 0, told.tenant, told.user
    )
    name = (
        ARCHIVED
        + sha256(f"{told.tenant}\n{told.user}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    )
    try:
        journal.retire(told, name, identity=Identity(told.tenant, told.user, name, name))
    except (JournalError, SessionNotFound) as error:
        done.kept[told.session] = f"it is in the archive, and was not removed: {error.detail}"
        return
    finally:
        journal.release(name)
    done.sessions.append(told.session)
    done.events += told.events


def _previous(journal: Journal) -> str:
    """The hash of the archive that was made last."""
    last = FIRST
    latest = -1
    for info in journal.sessions():
        if not info.session.startswith(ARCHIVED) or info.last <= latest:
            continue
        latest = info.last
        for record in journal.records(info.session):
            if isinstance(record.event, SessionArchived):
                last = record.event.sha256
    return last


def _digest(file: Path) -> str:
    with file.open("rb") as written:
        return file_digest(written, "sha256").hexdigest()


def import_file(journal: Journal, file: Path) -> list[str]:
    """Bring the sessions of an archive or an export back, with their owners, times and hashes;
    their names.

    All of it is checked before anything is written. An import that was interrupted is taken up
    where it ended. Raises JournalError if the file does not hold, or a session is there that is not
    the beginning of the file's.
    """
    heads = _heads(file)
    for session in heads:
        _check_beginning(journal, file, session)
    with opened(file) as lines:
        batch: list[Record] = []
        for record in read_jsonl(lines):
            if batch and (
                len(batch) >= _BATCH
                or (record.session, record.run) != (batch[0].session, batch[0].run)
            ):
                _append(journal, batch)
                batch = []
            batch.append(record)
        _append(journal, batch)
    for session, head in heads.items():
        journal.release(session)
        if journal.head(session) != head:
            raise JournalError(
                f"session `{session}` did not come back as it was", code="journal_corrupt"
            )
    return list(heads)


def _heads(file: Path) -> dict[str, tuple[int, str]]:
    heads: dict[str, tuple[int, str]] = {}
    with opened(file) as lines:
        for record in read_jsonl(lines):
            heads[record.session] = (record.seq, record.hash)
    return heads


def _check_beginning(journal: Journal, file: Path, session: str) -> None:
    """That what the journal has of a session, if anything, is how the file's begins."""
    try:
        seq, digest = journal.head(session)
    except SessionNotFound:
        return
    with opened(file) as lines:
        for record in read_jsonl(lines):
            if (record.session, record.seq, record.hash) == (session, seq, digest):
                return
    raise JournalError(
        f"session `{session}` is already in this journal, and is another one",
        code="journal_exists",
        hint="import into another journal (`--journal`)",
    )


def _append(journal: Journal, batch: list[Record]) -> None:
    if not batch:
        return
    first = batch[0]
    try:
        there, _ = journal.head(first.session)
    except SessionNotFound:
        there = 0
    batch = [record for record in batch if record.seq > there]
    owner = Identity(first.tenant, first.user, first.session, first.run)
    times = [record.time for record in batch]
    journal.append(
        first.session, first.run, [record.event for record in batch], identity=owner, at=times
    )
