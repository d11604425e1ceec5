"""Create or upgrade all tables, and give the role of workers what it needs."""

import os

import psycopg

from ferrule.jobs import Jobs
from ferrule.storage.artifacts.postgres import PostgresArtifactStore
from ferrule.storage.artifacts.store import Scope
from ferrule.storage.journal.postgres import PostgresJournal
from ferrule.storage.journal.postgres_schema import grant_script

database, role = os.environ["FERRULE_DATABASE"], os.environ["WORKER_ROLE"]
ENGINES = """
SELECT format('GRANT SELECT, INSERT, UPDATE, DELETE ON %%s TO %%I', oid::regclass, %(role)s::text)
FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ '^(procrastinate|pgqueuer)_'
    OR relkind IN ('r', 'p') AND relname = 'pgqueuer'
UNION ALL
SELECT format('GRANT USAGE ON SEQUENCE %%s TO %%I', oid::regclass, %(role)s::text)
FROM pg_class WHERE relkind = 'S' AND relname ~ '^(procrastinate|pgqueuer)_'
"""

Jobs(database, engine=os.environ["FERRULE_ENGINE"]).close()
PostgresJournal(database).find_known([])
PostgresArtifactStore(database).list(Scope("ferrule", "migration", "none"))
with psycopg.connect(database) as db:
    db.execute(grant_script(role).encode())
    for (grant,) in db.execute(ENGINES, {"role": role}).fetchall():
        db.execute(grant)
