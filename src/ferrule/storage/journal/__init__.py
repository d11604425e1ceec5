"""The journal: the one memory of everything that happened, in SQLite or PostgreSQL, as hash-chained
events.

Modules: `change_detection`, `hash_chain`, `lease`, `past_calls`, `postgres`,
`postgres_connection`, `postgres_lease`, `postgres_schema`, `postgres_sessions`, `salvage`,
`sessions`, `sqlite`, `sqlite_database`, `sqlite_integrity`, `sqlite_rows`.
"""
