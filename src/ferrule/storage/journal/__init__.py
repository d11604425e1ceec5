"""The journal: the one record of everything that happened, as hash-chained events.

| module | what it contains |
|---|---|
| `protocols` | what a journal can do |
| `records` | events to rows and back, for both databases |
| `hash_chain` | the hash chain of a session, and how it is checked |
| `sessions` | a session at a glance; the list of sessions in SQLite |
| `session_search` | sessions by the words in their messages |
| `sqlite`, `sqlite_database`, `sqlite_rows`, `sqlite_integrity` | the journal in a file |
| `sqlite_lease` | one writer per session, by file locks |
| `salvage` | recovering a damaged file |
| `change_detection` | noticing that a file was written |
| `postgres`, `postgres_append_statement`, `postgres_sessions` | the journal in PostgreSQL |
| `postgres_connection`, `postgres_schema` | its connection and its tables |
| `postgres_lease` | one writer per session, by rows with an expiry |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .postgres import PostgresJournal

__all__ = ["PostgresJournal"]

__getattr__, __dir__ = lazy_names(__name__, {".postgres": ("PostgresJournal",)})
