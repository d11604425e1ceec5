"""Salvaging a damaged journal: what verifies goes into a new file, the old one stays untouched."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ferrule.core.errors import JournalError
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity

from . import hash_chain, sqlite_integrity, sqlite_rows
from .sqlite import INSERT_RECORD, MOVE_END, SqliteJournal
from .sqlite_database import SEQ_BITS, check_not_older, open_database, open_leases


@dataclass(slots=True)
class SalvageReport:
    """What was salvaged.

    `aside` is the old journal, `kept` the number of events per session, `lost` a sentence for each
    cut.
    """

    aside: Path
    kept: dict[str, int] = field(default_factory=dict[str, int])
    lost: list[str] = field(default_factory=list[str])


def salvage(path: Path) -> SalvageReport:
    """Replace the journal by one with the intact events of each session, from the first one on.

    A session that was cut gets a `notice` at its end that says so. The old file is only read, then
    renamed to `<name>.damaged-<n>` (with its `-wal`).

    Raises:
        JournalError: The journal is missing, in use, or was written by an older version.
    """
    path = path.absolute()
    if not path.exists():
        raise JournalError(f"no journal `{path}`", code="journal_unusable")
    leases = open_leases(path)
    try:
        if not leases.lock_exclusively():
            raise JournalError(
                f"`{path}` is in use by another process",
                code="journal_busy",
                hint="end it, then try again",
            )
        _refuse_older(path)
        draft = path.with_name(path.name + ".salvage")
        for suffix in _SUFFIXES:
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)
        salvaged = SalvageReport(_free_name(path))
        _copy(path, draft, salvaged)
        for suffix in ("-wal", "-shm", ""):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(salvaged.aside.with_name(salvaged.aside.name + suffix))
        draft.rename(path)
        draft.with_name(draft.name + ".lock").unlink(missing_ok=True)
        return salvaged
    finally:
        leases.close()


def _refuse_older(path: Path) -> None:
    """Refuse a journal of an older version: nothing in its tables would be found intact.

    If its header cannot be read, that may be damage too, and it is not refused.
    """
    old = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        check_not_older(old, str(path))
    except sqlite3.DatabaseError:
        return
    finally:
        old.close()


_SUFFIXES = ("", "-wal", "-shm", ".lock")


def _free_name(path: Path) -> Path:
    for number in count(1):
        free = path.with_name(f"{path.name}.damaged-{number}")
        if not free.exists():
            return free
    raise AssertionError("unreachable")


def _copy(path: Path, draft: Path, salvaged: SalvageReport) -> None:
    leases = open_leases(draft)
    try:
        new = open_database(draft, "power", leases)
    finally:
        leases.close()
    cut: list[tuple[Identity, str]] = []
    try:
        old = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        try:
            for no, names in _sessions(old, salvaged):
                last, reason = _copy_session(old, new, no, names)
                session, tenant, user = names
                if last is not None:
                    salvaged.kept[session] = last[0]
                if reason:
                    salvaged.lost.append(reason)
                    if last is not None:
                        cut.append((Identity(tenant, user, session, last[1]), reason))
        finally:
            old.close()
    finally:
        new.close()
    with SqliteJournal(draft, durability="power") as journal:
        for identity, reason in cut:
            notice = Noticed("journal.salvaged", reason)
            journal.append(identity.session, identity.run, [notice], identity=identity)


def _sessions(
    old: sqlite3.Connection, salvaged: SalvageReport
) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """Yield numbers and names (session, tenant, user) of sessions."""
    names: dict[int, tuple[str, str, str]] = {}
    try:
        sql = "SELECT no, session, tenant, user FROM sessions"
        names.update({row[0]: row[1:] for row in old.execute(sql).fetchall()})
    except sqlite3.DatabaseError as error:
        salvaged.lost.append(
            f"the table of sessions cannot be read ({error}); names are taken from first events"
        )
    sql = "SELECT id, names FROM records WHERE id >= ? ORDER BY id LIMIT 1"
    first = 0
    try:
        while row := old.execute(sql, (first,)).fetchone():
            key, text = row
            no = key >> SEQ_BITS
            if no not in names and str(text).count("\n") != 2:
                salvaged.lost.append(f"a session (number {no}) without its first event")
            elif no not in names:
                session, tenant, user = text.split("\n")
                names[no] = (session, tenant, user)
            first = no + 1 << SEQ_BITS
    except sqlite3.DatabaseError as error:
        salvaged.lost.append(f"looking for sessions ended early ({error})")
    yield from sorted(names.items())


def _copy_session(
    old: sqlite3.Connection, new: sqlite3.Connection, no: int, names: tuple[str, str, str]
) -> tuple[tuple[Any, ...] | None, str]:
    """Copy what verifies of a session.

    Returns `(number of the last row, its run)`, and why the copy ended early, or "".
    """
    current: tuple[Any, ...] = ()

    def remember_rows() -> Iterator[tuple[int, bytes | None, bytes]]:
        nonlocal current
        for row in sqlite_rows.read_raw_rows(lambda: old, no, names, nullcontext()):
            current = row
            yield row

    session = names[0]
    last: tuple[int, str] | None = None
    time = 0
    digest = b""
    new.execute("BEGIN")
    try:
        for seq, digest in hash_chain.check_rows(session, remember_rows()):
            _, run, _, _, kind, _, time, body = current[1].decode().split("\n", 7)
            if last is None:
                sqlite_integrity.add_session(new, *names, no=no)
            new_run = None if last and last[1] == run else run
            row = (no << SEQ_BITS | seq, int(time), new_run, kind, body, digest)
            new.execute(INSERT_RECORD, (*row, None if last else "\n".join(names)))
            last = (seq, run)
        return last, ""
    except JournalError as error:
        return last, error.detail
    finally:
        if last is not None:
            new.execute(MOVE_END, (int(time), hash_chain.seal(digest), no))
        new.execute("COMMIT")
