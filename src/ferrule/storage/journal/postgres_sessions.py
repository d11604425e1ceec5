"""The list of sessions in PostgreSQL, read from their events in one statement."""

from __future__ import annotations

from typing import Any

from .postgres_connection import PostgresConnection, is_storable
from .sessions import SessionInfo, summarize, unknown_session_error

_LISTED = """
SELECT s.session, s.tenant, s."user", s.seq, s.time, opening.time, opening.kind, opening.body,
       runs.count, question.body, ended.body
FROM (
    SELECT * FROM {s}.sessions
    WHERE seq > 0 AND (%(session)s::text IS NULL OR session = %(session)s)
      AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
      AND (%(user)s::text IS NULL OR "user" = %(user)s)
    ORDER BY time DESC, no DESC LIMIT %(limit)s
) s
LEFT JOIN {s}.records opening ON opening.no = s.no AND opening.seq = 1
LEFT JOIN LATERAL (
    SELECT count(*), min(seq) AS first, max(seq) AS last FROM {s}.records
    WHERE no = s.no AND kind = 'run.started'
) runs ON true
LEFT JOIN {s}.records question ON question.no = s.no AND question.seq = runs.first
LEFT JOIN LATERAL (
    SELECT body FROM {s}.records
    WHERE no = s.no AND kind = 'run.finished' AND seq > coalesce(runs.last, 0)
    ORDER BY seq DESC LIMIT 1
) ended ON true
ORDER BY s.time DESC, s.no DESC
"""
_SIMILAR = """
SELECT session FROM {s}.sessions
WHERE seq > 0 AND session >= %(prefix)s AND session < %(prefix)s || chr(1114111)
  AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
  AND (%(user)s::text IS NULL OR "user" = %(user)s)
ORDER BY session LIMIT 5
"""


def list_sessions(
    db: PostgresConnection,
    tenant: str | None,
    user: str | None,
    limit: int | None,
    session: str | None = None,
) -> list[SessionInfo]:
    """Return sessions, the one used last first: all, those of a tenant or user, or a single one."""
    values = {"tenant": tenant, "user": user, "limit": limit, "session": session}
    rows = db.query(_LISTED.format(s=f'"{db.schema}"'), values, doing="listing sessions")
    return [_read_info(row) for row in rows]


def _read_info(row: tuple[Any, ...]) -> SessionInfo:
    session, tenant, owner, events, last, opened, kind, body, runs, question, ended = row
    first = (opened, kind, body) if kind else None
    names = (session, tenant, owner)
    return summarize(names, events, last, first, runs, question or "", ended or "")


def find_session(
    db: PostgresConnection, prefix: str, tenant: str | None, user: str | None
) -> SessionInfo:
    """Return the session with this id, or the only one whose id starts with it.

    Raises:
        SessionNotFound: There is none, or there are several.
    """
    if not prefix or not is_storable(prefix):
        raise unknown_session_error(prefix)
    values = {"prefix": prefix, "tenant": tenant, "user": user}
    sql = _SIMILAR.format(s=f'"{db.schema}"')
    names = [name for (name,) in db.query(sql, values, doing=f"looking for `{prefix}`")]
    if prefix in names:
        names = [prefix]
    if len(names) != 1:
        raise unknown_session_error(prefix, names)
    infos = list_sessions(db, tenant, user, 1, names[0])
    if not infos:
        raise unknown_session_error(prefix, names)
    return infos[0]
