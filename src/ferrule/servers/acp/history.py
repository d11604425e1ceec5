"""Sessions of the journal as editors list them, and how they are deleted.

Deleting moves a session from the journal into an archive file beside it (`storage.export.archive`),
and the journal keeps a record of that: a journal that could be made to forget would prove nothing.
So the session disappears from every list, and its file is the person's to remove. What sub-agents
did in its runs, and artifacts, stay until they are archived or expire.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError, SessionNotFound
from ferrule.core.events import SessionOpened
from ferrule.storage.audit.verification import ARCHIVE_SESSION_PREFIX
from ferrule.storage.export.archive import archive_sessions
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.journal.sqlite import SqliteJournal

from .session_sources import SessionSource

PAGE = 50
MAX_SESSIONS = 1000
"""Sessions searched for a list, newest first."""


def list_sessions(source: SessionSource, cwd: str | None, cursor: str | None) -> dict[str, Any]:
    """Return a page of `session/list`. Raises ConfigError for an invalid cursor."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 6):
        raise ConfigError("`cursor` must be one that a list returned")
    start = int(cursor or 0)
    where = None if cwd is None else os.path.realpath(cwd)
    with source.journal() as store:
        found = [
            info
            for info in store.sessions(tenant=source.tenant, user=source.user, limit=MAX_SESSIONS)
            if not info.session.startswith(ARCHIVE_SESSION_PREFIX)
            and (where is None or info.workspace in ("", where))
        ]
        own = (info for info in found[start:] if _is_persons_session(store, info.session))
        page = list(islice(own, PAGE))
    shape: dict[str, Any] = {"sessions": [_describe(info, where) for info in page]}
    if len(page) == PAGE:
        shape["nextCursor"] = str(found.index(page[-1]) + 1)
    return shape


def _is_persons_session(store: Journal, session: str) -> bool:
    """Return whether a person talks in this session, rather than an agent to its sub-agent."""
    first = next(iter(store.records(session)), None)
    return first is not None and isinstance(first.event, SessionOpened) and not first.event.parent


def _describe(info: SessionInfo, where: str | None) -> dict[str, Any]:
    # Without a workspace a session belongs to no folder: to the one that is asked for, or any.
    folder = info.workspace or where or "/"
    last = datetime.fromtimestamp(info.last / 1000, UTC).isoformat(timespec="seconds")
    shown = {"sessionId": info.session, "cwd": folder, "updatedAt": last}
    return {**shown, "title": info.question} if info.question else shown


def find_session(source: SessionSource, store: Journal, session: str) -> SessionInfo:
    """Find the session with exactly this id.

    The beginning of an id, which people may type elsewhere, is not enough here.

    Raises:
        SessionNotFound: there is none.
    """
    info = store.find(session, tenant=source.tenant, user=source.user)
    if info.session != session:
        raise SessionNotFound(f"no session `{session[:80]}`")
    return info


def archive_session(source: SessionSource, session: str) -> Path:
    """Move a closed session into an archive file and return its path.

    Raises:
        SessionNotFound: there is no such session.
        ConfigError: the session cannot be archived.
        JournalError: the journal cannot be used.
    """
    with source.journal() as store:
        find_session(source, store, session)
        if not isinstance(store, SqliteJournal):
            raise ConfigError("sessions of this journal, which is not a file, cannot be deleted")
        folder = (store.path or Path.cwd() / "journal.db").parent / "archives"
        done = archive_sessions(store, [session], folder / f"{session}-{time.time_ns()}.jsonl.gz")
        if done.kept:
            raise ConfigError(f"the session cannot be archived: {done.kept[session]}")
        return done.file
