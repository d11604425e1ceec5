"""The SQLite file of a journal: opening it, its tables, and SQLite's errors as ours.

The file is in WAL mode. With `process` durability (`synchronous=NORMAL`), appends survive `kill -9`
of this process: each is in the operating system's hands when it returns. A power cut may then take
the last appends, never the order or an earlier one. `power` durability (`synchronous=FULL`) syncs
each append to the disk.

A row's key is `session number << 32 | seq`, so a session's events are stored together and the key
forbids two events with one number. What many rows would repeat is written once: the owner in the
table of sessions, the run (`run`) in the first of its rows, and `names` (session, tenant and user,
a line each) in the first row of a session alone, so that `salvage` can do without the table of
sessions. That table also has the time of a session's last event and its `seal` (`hash_chain`):
each append writes them anew. `session_set` is one row about it (`sqlite_integrity`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from ferrule.core.errors import ConfigError, FerruleError, JournalError
from ferrule.storage.paths import make_private_folder

from .sqlite_lease import FileLeases

SCHEMA_VERSION = 4
"""Version of the tables and of the events in them (`PRAGMA user_version`)."""
APPLICATION_ID = 0x46455252
"""`PRAGMA application_id` of a Ferrule journal: the letters FERR."""
SEQ_BITS = 32
"""Bits of a row's key that hold `seq`."""
_SYNCHRONOUS = {"process": "NORMAL", "power": "FULL"}

# Never change: `sqlite_integrity` compares this text, to the letter, with what a file contains.
TABLES = f"""
CREATE TABLE sessions (
    no INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, user TEXT NOT NULL,
    time INTEGER NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE records (
    id INTEGER PRIMARY KEY, time INTEGER NOT NULL, run TEXT, kind TEXT NOT NULL, \
body TEXT NOT NULL, hash BLOB NOT NULL, names TEXT
);
CREATE INDEX runs ON records (kind, id) WHERE kind IN ('run.started', 'run.finished');
CREATE INDEX ends ON sessions (time);
CREATE INDEX owners ON sessions (tenant, user);
CREATE TABLE session_set (numbers INTEGER NOT NULL, mark BLOB NOT NULL);
INSERT INTO session_set VALUES (0, zeroblob(32));
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


def open_database(path: Path | None, durability: str, leases: FileLeases) -> sqlite3.Connection:
    """Connect to a journal (in memory without a path), creating it if it is missing.

    Raises:
        JournalError: The file is newer or older than this version reads, is no journal, is damaged
            or cannot be used.
    """
    if durability not in _SYNCHRONOUS:
        raise ConfigError(f"durability = `{durability}`: use `process` or `power`")
    where = str(path or "memory")
    leases.lock_creation()
    try:
        if path is not None:
            _create_private(path)
        db = sqlite3.connect(
            str(path or ":memory:"), isolation_level=None, timeout=10.0, check_same_thread=False
        )
        try:
            if path is not None:
                _check_length(db, path)
            _prepare(db, durability, where)
        except BaseException:
            db.close()
            raise
        return db
    except OSError as error:
        raise unusable_error(where, error.strerror or str(error)) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translate_error(error, where, "opening it") from error
    finally:
        leases.unlock_creation()


def _create_private(path: Path) -> None:
    """Create the file, for its owner alone, if it is missing.

    An existing file is not opened: this process may have a connection to it, and closing any other
    descriptor of the file gives up the locks of that connection (POSIX). The next process that
    closes the journal would then take itself for the last one and remove the WAL, and with it what
    we append. A program that opens and closes the file itself, beside our journal, is not protected
    from that.
    """
    # SQLite would create the target of a dangling link readable by all.
    real = os.path.realpath(path)
    try:
        descriptor = os.open(real, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    os.close(descriptor)


def _check_length(db: sqlite3.Connection, path: Path) -> None:
    """Raise JournalError if the end of the file is missing.

    SQLite counts a page that begins as a whole one, and would write on. Pages that are in the WAL
    need not be in the file yet.
    """
    real = os.path.realpath(path)
    with contextlib.suppress(FileNotFoundError):
        if Path(f"{real}-wal").stat().st_size:
            return
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (page_size,) = db.execute("PRAGMA page_size").fetchone()
    missing = pages * page_size - Path(real).stat().st_size
    if missing > 0:
        raise damage_error(str(path), "opening it", f"the last {missing} bytes are missing")


def _prepare(db: sqlite3.Connection, durability: str, where: str) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise JournalError(f"`{where}` is an SQLite file but not a journal", code="journal_foreign")
    if version > SCHEMA_VERSION:
        raise JournalError(
            (
                f"`{where}` was written by a newer version (format {version}, this one reads up "
                f"to {SCHEMA_VERSION})"
            ),
            code="journal_newer",
            hint="use that version, or another journal",
        )
    check_not_older(db, where)
    if not tables and durability == "process":
        # Six syncs of the disk would not outlast what follows: no append is synced before the first
        # checkpoint, which syncs all of the file.
        db.execute("PRAGMA synchronous = OFF")
    # A WAL of 4,000 pages: a checkpoint syncs the disk, and it happens inside somebody's append.
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA wal_autocheckpoint = 4000")
    if not tables:
        db.executescript(f"BEGIN IMMEDIATE; {TABLES} COMMIT;")
    db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")


def check_not_older(db: sqlite3.Connection, where: str) -> None:
    """Refuse a journal whose tables this version can no longer read.

    Raises:
        JournalError: It was written by an older version (`journal_older`).
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application == APPLICATION_ID and version < SCHEMA_VERSION:
        raise JournalError(
            (
                f"`{where}` was written by an older version (format {version}, this one reads "
                f"only {SCHEMA_VERSION})"
            ),
            code="journal_older",
            hint=(
                "move it away and a new one is created; its sessions can still be read with the "
                "version that wrote it"
            ),
        )


def open_leases(path: Path) -> FileLeases:
    """Open the leases of a journal, creating its folder. Raises JournalError if that fails."""
    try:
        make_private_folder(path.parent)
        return FileLeases(path.with_name(path.name + ".lock"))
    except (OSError, FerruleError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise unusable_error(str(path), reason or str(error)) from error


def unusable_error(where: str, reason: str) -> JournalError:
    """Return the error for a journal whose place cannot be used."""
    return JournalError(
        f"cannot use the journal `{where}`: {reason}",
        code="journal_unusable",
        hint=(
            "nothing runs without a journal: choose a file that you can write (`--journal`, "
            "FERRULE_STATE)"
        ),
    )


_REASONS = {
    "SQLITE_FULL": (
        "journal_full",
        "the disk is full",
        "free some space; nothing after the last event was recorded",
    ),
    "SQLITE_IOERR": (
        "journal_full",
        "the disk refused it",
        "check free space, quota and the disk itself",
    ),
    "SQLITE_READONLY": (
        "journal_unusable",
        "it is read-only",
        "choose a journal that you can write (`--journal`)",
    ),
    "SQLITE_CANTOPEN": (
        "journal_unusable",
        "it cannot be opened",
        "check the folder and its permissions",
    ),
    "SQLITE_BUSY": (
        "journal_busy",
        "another process kept it locked for 10 s",
        "look for a process that hangs",
    ),
    "SQLITE_CONSTRAINT": (
        "journal_conflict",
        "another program wrote to it",
        "two programs must not write one session",
    ),
}


def translate_error(
    error: sqlite3.Error | UnicodeDecodeError, where: str, doing: str
) -> JournalError:
    """Return SQLite's error as ours.

    Codes without a text of their own count as damage. So do messages that are not text, because
    they quote the file.
    """
    name: str = getattr(error, "sqlite_errorname", "")
    for prefix, (code, reason, hint) in _REASONS.items():
        if name.startswith(prefix):
            return JournalError(
                f"journal `{where}`, {doing}: {reason} ({error})", code=code, hint=hint
            )
    if isinstance(error, sqlite3.ProgrammingError):
        return JournalError(f"journal `{where}`, {doing}: {error}")
    return damage_error(where, doing, str(error))


def damage_error(where: str, doing: str, reason: str) -> JournalError:
    """Return the error for a file that is damaged."""
    return JournalError(
        f"journal `{where}`, {doing}: the file is damaged ({reason})",
        code="journal_corrupt",
        hint=(
            "`ferrule sessions salvage` keeps what is intact in a new journal and the old one aside"
        ),
    )
