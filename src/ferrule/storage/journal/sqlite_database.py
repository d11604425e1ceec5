"""The SQLite file of a journal: opening, schema, and SQLite's errors in words.

WAL mode. `process` durability (`synchronous=NORMAL`) survives `kill -9` of this process: each
append is in the operating system's hands when it returns. A power cut may then take the last
appends, never the order or an earlier one. `power` durability (`synchronous=FULL`) syncs each
append to the disk.

A row's key is `session number << 32 | seq`, so a session's events lie together and the key forbids
two events with one number. The `seal` (`hash_chain`) stands in the last row of a session; a trigger
takes it from the row before with each append. It costs no second page, a row keeps its size (else a
long one would be written anew), and a tail that is cut off takes it along. `session` stands in the
first row of a session only, so that `salvage` can do without the table of sessions. `session_set`
is one row about the table of sessions (`sqlite_integrity`).
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from ferrule.core.errors import ConfigError, FerruleError, JournalError
from ferrule.storage.paths import private_folder

from .lease import Leases

SCHEMA = 2
"""Version of the tables (`PRAGMA user_version`)."""
APPLICATION = 0x46455252
"""`PRAGMA application_id` of a Ferrule journal: the letters FERR."""
BITS = 32
"""Bits of a row's key that hold `seq`."""
DURABILITY = {"process": "NORMAL", "power": "FULL"}

TABLES = f"""
CREATE TABLE sessions (
    no INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, user TEXT NOT NULL
);
CREATE TABLE records (
    id INTEGER PRIMARY KEY, seal BLOB NOT NULL, time INTEGER NOT NULL, run TEXT NOT NULL, kind TEXT NOT NULL,
    tenant TEXT NOT NULL, user TEXT NOT NULL, body TEXT NOT NULL, hash BLOB NOT NULL, session TEXT
);
CREATE INDEX runs ON records (kind, id) WHERE kind IN ('run.started', 'run.finished');
CREATE TRIGGER move_seal AFTER INSERT ON records
    BEGIN UPDATE records SET seal = zeroblob(16) WHERE id = new.id - 1 AND seal <> zeroblob(16); END;
CREATE TABLE session_set (numbers INTEGER NOT NULL, mark BLOB NOT NULL);
INSERT INTO session_set VALUES (0, zeroblob(32));
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {SCHEMA};
"""


def open_database(path: Path | None, durability: str, leases: Leases) -> sqlite3.Connection:
    """A connection to a journal (in memory without a path), made if it is missing.

    Raises JournalError if the file is newer or older than this version reads, is no journal, is
    damaged or cannot be used.
    """
    if durability not in DURABILITY:
        raise ConfigError(f"durability = `{durability}`: use `process` or `power`")
    where = str(path or "memory")
    leases.wait_first()
    try:
        if path is not None:
            _create_private(path)
        db = sqlite3.connect(
            str(path or ":memory:"), isolation_level=None, timeout=10.0, check_same_thread=False
        )
        try:
            _prepare(db, durability, where)
        except BaseException:
            db.close()
            raise
        return db
    except OSError as error:
        raise unusable(where, error.strerror or str(error)) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise in_words(error, where, "opening it") from error
    finally:
        leases.release_first()


def _create_private(path: Path) -> None:
    """Make the file, for its owner alone, if it is missing.

    A file that is there is not opened: this process may have a connection to it, and closing any
    other descriptor of the file gives up the locks of that connection (POSIX). The next process
    that closes the journal would then take itself for the last one and remove the WAL, and what we
    append goes with it. A program that opens and closes the file by itself, beside a journal of
    ours, is not protected from that.
    """
    # SQLite would make what a dangling link points to, readable by all.
    real = os.path.realpath(path)
    try:
        made = os.open(real, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    os.close(made)


def _prepare(db: sqlite3.Connection, durability: str, where: str) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION:
        raise JournalError(f"`{where}` is an SQLite file but not a journal", code="journal_foreign")
    if version > SCHEMA:
        raise JournalError(
            (
                f"`{where}` was written by a newer version (format {version}, this one reads up "
                f"to {SCHEMA})"
            ),
            code="journal_newer",
            hint="use that version, or another journal",
        )
    check_not_older(db, where)
    # WAL of 4,000 pages: a checkpoint syncs the disk, and that happens inside somebody's append.
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {DURABILITY[durability]}")
    db.execute("PRAGMA wal_autocheckpoint = 4000")
    if not tables:
        db.executescript(f"BEGIN IMMEDIATE; {TABLES} COMMIT;")


def check_not_older(db: sqlite3.Connection, where: str) -> None:
    """Raises JournalError (`journal_older`) for a journal whose tables this version does not know
    any more.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application == APPLICATION and version < SCHEMA:
        raise JournalError(
            (
                f"`{where}` was written by an older version (format {version}, this one reads "
                f"{SCHEMA} alone)"
            ),
            code="journal_older",
            hint="move it away and a new one is made; to take its sessions along, `ferrule "
            "sessions export --format"
            " jsonl` with the version that wrote it, then `ferrule sessions import` with this one",
        )


def make_lock(path: Path) -> Leases:
    """The leases beside a journal; makes the folder. Raises JournalError if that cannot be."""
    try:
        private_folder(path.parent)
        return Leases(path.with_name(path.name + ".lock"))
    except (OSError, FerruleError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise unusable(str(path), reason or str(error)) from error


def unusable(where: str, reason: str) -> JournalError:
    """The journal's place cannot be used."""
    return JournalError(
        f"cannot use the journal `{where}`: {reason}",
        code="journal_unusable",
        hint=(
            "nothing runs without a journal: name a file that you can write (`--journal`, "
            "FERRULE_STATE)"
        ),
    )


_WORDS = {
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
        "name a journal that you can write (`--journal`)",
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
        "another writer was here",
        "two programs must not drive one session",
    ),
}


def in_words(error: sqlite3.Error | UnicodeDecodeError, where: str, doing: str) -> JournalError:
    """SQLite's error as ours. Codes it has no words for count as damage, as do its words if they
    are no text (they quote the file).
    """
    name: str = getattr(error, "sqlite_errorname", "")
    for prefix, (code, reason, hint) in _WORDS.items():
        if name.startswith(prefix):
            return JournalError(
                f"journal `{where}`, {doing}: {reason} ({error})", code=code, hint=hint
            )
    if isinstance(error, sqlite3.ProgrammingError):
        return JournalError(f"journal `{where}`, {doing}: {error}")
    return JournalError(
        f"journal `{where}`, {doing}: the file is damaged ({error})",
        code="journal_corrupt",
        hint=(
            "`ferrule sessions salvage` keeps what is intact in a new journal and the old one aside"
        ),
    )
