"""The list of sessions, read from their events: nothing here is stored a second time."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from ferrule.core.errors import SessionNotFound
from ferrule.core.frozen import frozen

from .sqlite_database import BITS
from .sqlite_rows import LAST_NUMBER, span

_OF_A_KIND = (
    "FROM records WHERE kind IN ('run.started', 'run.finished') AND kind = ? AND id BETWEEN ? AND ?"
)
"""The first condition is the one of the index of runs."""

_USABLE = (
    f"s.no BETWEEN 1 AND {LAST_NUMBER - 1}"
    " AND typeof(s.session) = 'text' AND typeof(s.tenant) = 'text' AND typeof(s.user) = 'text'"
)
"""A row of the table of sessions that was not damaged beyond use: `whole` reports the others."""


@frozen
class SessionInfo:
    """A session at a glance. `opened` and `last` are ms since 1970; `question` is the first
    message's start.

    `state` is how the last run ended (`done`, `failed`, `cancelled`, `limit`), or `open` if it has
    not (or none began): running, waiting for a person, or left behind by a process that died.
    """

    session: str
    tenant: str
    user: str
    opened: int
    last: int
    model: str
    workspace: str
    question: str
    runs: int
    events: int
    state: str


def listed(
    db: sqlite3.Connection, tenant: str | None, user: str | None, limit: int | None
) -> list[SessionInfo]:
    """Sessions, the one used last first; only those of a tenant and user where these are given."""
    rows = db.execute(
        "SELECT s.no, s.session, s.tenant, s.user, r.id, r.time FROM sessions s JOIN "
        "records r ON r.id ="
        f" (SELECT max(id) FROM records WHERE id BETWEEN s.no << {BITS} AND (s.no + 1 << "
        f"{BITS}) - 1)"
        f" WHERE {_USABLE} AND (?1 IS NULL OR s.tenant = ?1) AND (?2 IS NULL OR s.user = ?2) "
        "ORDER BY r.time DESC, s.no DESC"
        " LIMIT ?3",
        (tenant, user, -1 if limit is None else limit),
    ).fetchall()
    return [_info(db, row) for row in rows]


def find(db: sqlite3.Connection, prefix: str, tenant: str | None, user: str | None) -> SessionInfo:
    """The session with this id, or the only one whose id starts so. Raises SessionNotFound."""
    rows = db.execute(
        "SELECT no, session, tenant, user FROM sessions WHERE session >= ?1 AND session < ?1 "
        "|| char(1114111)"
        " AND (?2 IS NULL OR tenant = ?2) AND (?3 IS NULL OR user = ?3) ORDER BY session LIMIT 5",
        (prefix, tenant, user),
    ).fetchall()
    exact = [row for row in rows if row[1] == prefix]
    if len(exact or rows) != 1 or not prefix:
        raise unknown(prefix, [row[1] for row in rows])
    no, *names = (exact or rows)[0]
    last = db.execute(
        "SELECT id, time FROM records WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1", span(no)
    ).fetchone()
    return _info(db, (no, *names, *(last or (no << BITS, 0))))


def unknown(prefix: str, similar: list[str] | None = None) -> SessionNotFound:
    """The error for an id that leads nowhere, or to several sessions."""
    if similar and prefix:
        names = ", ".join(f"`{name}`" for name in similar)
        return SessionNotFound(
            f"`{prefix}` is the start of several sessions: {names}", hint="give more of the id"
        )
    return SessionNotFound(f"no session `{prefix}`", hint="`ferrule sessions` lists them")


def _info(db: sqlite3.Connection, row: tuple[Any, ...]) -> SessionInfo:
    no, session, tenant, user, last_id, last = row
    low, high = span(no)
    runs, asked = db.execute(
        f"SELECT count(*), min(id) {_OF_A_KIND}", ("run.started", low, high)
    ).fetchone()
    begun = (
        db.execute(f"SELECT max(id) {_OF_A_KIND}", ("run.started", low, high)).fetchone()[0] or low
    )
    ended = db.execute(
        f"SELECT body {_OF_A_KIND} ORDER BY id DESC LIMIT 1", ("run.finished", begun, high)
    ).fetchone() or ("",)
    question = db.execute("SELECT body FROM records WHERE id = ?", (asked,)).fetchone() or ("",)
    first = db.execute("SELECT time, kind, body FROM records WHERE id = ?", (low + 1,)).fetchone()
    return summary((session, tenant, user), last_id - low, last, first, runs, question[0], ended[0])


def summary(
    names: tuple[str, str, str],
    events: int,
    last: int,
    first: tuple[int, str, str] | None,
    runs: int,
    question: str,
    ended: str,
) -> SessionInfo:
    """What is told of a session by its names (session, tenant, user), its first event (time, kind,
    body), and the bodies of the first question and of the end of its last run, "" where there is
    none.
    """
    session, tenant, user = names
    opened, opening = (
        (first[0], _body(first[2]) if first[1] == "session.opened" else {}) if first else (last, {})
    )
    return SessionInfo(
        session, tenant, user, opened, last,
        str(opening.get("model", "")), str(opening.get("workspace", "")),
        " ".join(str(_body(question).get("text", ""))[:400].split())[:100],
        runs, events, str(_body(ended).get("stop", "open")),
    )  # fmt: skip


def _body(text: str) -> dict[str, Any]:
    # A damaged row must not hide the others from the list; `verify` is what reports it.
    try:
        body = json.loads(text)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}  # pyright: ignore[reportUnknownVariableType]
