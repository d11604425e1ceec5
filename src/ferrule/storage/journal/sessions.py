"""The list of sessions, read from their events: nothing here is stored a second time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from ferrule.core.calls import parse_json
from ferrule.core.errors import SessionNotFound
from ferrule.core.value_class import frozen

from .sqlite_database import SEQ_BITS
from .sqlite_rows import SESSION_NUMBER_LIMIT, key_range

_RUN_EVENTS = (
    "FROM records WHERE kind IN ('run.started', 'run.finished') AND kind = ? AND id BETWEEN ? AND ?"
)
"""The first condition is that of the index of runs."""

_UNDAMAGED = (
    f"+s.no > 0 AND +s.no < {SESSION_NUMBER_LIMIT}"
    " AND typeof(s.session) = 'text' AND typeof(s.tenant) = 'text' AND typeof(s.user) = 'text'"
)
"""A row of the table of sessions that can be used; `findings` reports the damaged ones."""


FEW_SESSIONS = 2_000
"""An owner with fewer sessions has them sorted; of others, the journal's last ones are filtered."""


@frozen
class SessionInfo:
    """A session at a glance.

    `opened` and `last` are ms since 1970; `question` is the start of the first message. `state` is
    how the last run ended (`done`, `failed`, `cancelled`, `limit`); `open` if it has not ended:
    running, waiting for a person, or left behind by a process that died; `unused` if none began.
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


def list_sessions(
    db: sqlite3.Connection, tenant: str | None, user: str | None, limit: int | None
) -> list[SessionInfo]:
    """Return sessions, the one used last first, of one tenant and user or of everybody.

    A page takes as long in a journal of many sessions as in one of few: their ends are in an index.
    """
    # The plus keeps the index of owners out of it: that of ends gives the last ones first.
    plus = "" if limit is None or _has_few(db, tenant, user) else "+"
    rows = db.execute(
        "SELECT s.no, s.session, s.tenant, s.user, r.id, s.time FROM sessions s JOIN records r ON"
        f" r.id = (SELECT max(id) FROM records WHERE id BETWEEN s.no << {SEQ_BITS} AND"
        f" (s.no + 1 << {SEQ_BITS}) - 1) WHERE {_UNDAMAGED} AND {_match_owner(tenant, user, plus)}"
        " ORDER BY s.time DESC, s.no DESC LIMIT :limit",
        {"tenant": tenant, "user": user, "limit": -1 if limit is None else limit},
    ).fetchall()
    return [_read_info(db, row) for row in rows]


def _match_owner(tenant: str | None, user: str | None, plus: str = "") -> str:
    """Return the condition for an owner's sessions: one that an index serves, without a plus."""
    conditions = [f"{plus}s.tenant = :tenant"] if tenant is not None else []
    conditions += [f"{plus}s.user = :user"] if user is not None else []
    return " AND ".join(conditions) or "TRUE"


def _has_few(db: sqlite3.Connection, tenant: str | None, user: str | None) -> bool:
    """Whether an owner has so few sessions that all of them are read to find the last ones."""
    if tenant is None:
        return False
    owned = f"SELECT 1 FROM sessions s WHERE {_match_owner(tenant, user)} LIMIT :limit"
    sql = f"SELECT count(*) FROM ({owned})"
    values = {"tenant": tenant, "user": user, "limit": FEW_SESSIONS}
    (count,) = db.execute(sql, values).fetchone()
    return count < FEW_SESSIONS


def find_session(
    db: sqlite3.Connection, prefix: str, tenant: str | None, user: str | None
) -> SessionInfo:
    """Return the session with this id, or the only one whose id starts with it.

    Raises:
        SessionNotFound: There is none, or there are several.
    """
    if not prefix.isprintable():
        # Half of a surrogate pair, as a name that is not UTF-8 has, cannot be looked for at all.
        raise unknown_session_error(prefix)
    rows = db.execute(
        "SELECT no, session, tenant, user FROM sessions WHERE session >= :prefix"
        " AND session < :prefix || char(1114111) AND (:tenant IS NULL OR tenant = :tenant)"
        " AND (:user IS NULL OR user = :user) ORDER BY session LIMIT 5",
        {"prefix": prefix, "tenant": tenant, "user": user},
    ).fetchall()
    exact = [row for row in rows if row[1] == prefix]
    if len(exact or rows) != 1 or not prefix:
        raise unknown_session_error(prefix, [row[1] for row in rows])
    no, *names = (exact or rows)[0]
    last = db.execute(
        "SELECT id, time FROM records WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1",
        key_range(no),
    ).fetchone()
    return _read_info(db, (no, *names, *(last or (no << SEQ_BITS, 0))))


def unknown_session_error(prefix: str, similar: list[str] | None = None) -> SessionNotFound:
    """Return the error for an id that matches no session, or several."""
    if similar and prefix:
        names = ", ".join(f"`{name}`" for name in similar)
        return SessionNotFound(
            f"`{prefix}` is the start of several sessions: {names}", hint="give more of the id"
        )
    return SessionNotFound(f"no session `{prefix}`", hint="`ferrule sessions list` shows them")


def _read_info(db: sqlite3.Connection, row: tuple[Any, ...]) -> SessionInfo:
    no, session, tenant, user, last_id, last = row
    low, high = key_range(no)
    runs, first_run, last_run = db.execute(
        f"SELECT count(*), min(id), max(id) {_RUN_EVENTS}", ("run.started", low, high)
    ).fetchone()
    ended = db.execute(
        f"SELECT body {_RUN_EVENTS} ORDER BY id DESC LIMIT 1",
        ("run.finished", last_run or low, high),
    ).fetchone()
    sql = "SELECT id, time, kind, body FROM records WHERE id IN (?, ?)"
    begun = {key: found for key, *found in db.execute(sql, (low + 1, first_run))}
    question = begun.get(first_run)
    return summarize(
        (session, tenant, user),
        last_id - low,
        last,
        begun.get(low + 1),
        runs,
        question[2] if question else "",
        ended[0] if ended else "",
    )


def summarize(
    names: tuple[str, str, str],
    events: int,
    last: int,
    first: Sequence[Any] | None,
    runs: int,
    question: str,
    ended: str,
) -> SessionInfo:
    """Describe a session by its names (session, tenant, user) and a few of its events.

    Args:
        names: Ids of the session, its tenant and its user.
        events: How many events it has.
        last: Time of its last event.
        first: Time, kind and body of the first event.
        runs: How many runs it has.
        question: Body of the first run's start, or "".
        ended: Body of the end of the last run, or "".
    """
    session, tenant, user = names
    opened = last
    opening: dict[str, Any] = {}
    if first is not None:
        opened, kind, body = first
        if kind == "session.opened":
            opening = _parse_body(body)
    text = str(_parse_body(question).get("text", ""))
    return SessionInfo(
        session=session,
        tenant=tenant,
        user=user,
        opened=opened,
        last=last,
        model=str(opening.get("model", "")),
        workspace=str(opening.get("workspace", "")),
        question=" ".join(text[:400].split())[:100],
        runs=runs,
        events=events,
        state=str(_parse_body(ended).get("stop", "open" if runs else "unused")),
    )


def _parse_body(text: str) -> dict[str, Any]:
    # A damaged row must not hide the others from the list; `verify` is what reports it.
    try:
        body = parse_json(text)
    except (ValueError, TypeError):
        return {}
    return body if isinstance(body, dict) else {}  # pyright: ignore[reportUnknownVariableType]
