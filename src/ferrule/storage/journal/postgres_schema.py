"""The tables in PostgreSQL: their versions, the one way from each to the next, and roles' rights.

`<schema>.versions` says which version each part (`journal`, `artifacts`, `queue`) has. The first
process that finds an older part brings it up to date, in one transaction and under a lock that the
others wait for; a part never goes back. A newer one is left alone. Where the role of the workers
may not create tables, an administrator runs `script` once.

Events are only ever added: `grants` gives workers no right to change or remove a row of `records`.
The end of each session (its number of events, the last hash and its seal, see `hash_chain`) is in
its row of `sessions` and moves with every append, so a tail that is cut off is noticed. No index
covers the columns that an append changes in that row, so the row stays on its page. `token` counts
the writers a session has had; see `postgres_lease`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError, FerruleError

if TYPE_CHECKING:
    from psycopg import Connection
else:
    Connection = Any

_UPGRADE_LOCK = 0x46455252
"""The advisory lock for bringing tables up to date: the letters FERR."""

_JOURNAL_1 = """
CREATE TABLE "{schema}".sessions (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session text COLLATE "C" NOT NULL UNIQUE,
    tenant text NOT NULL DEFAULT '', "user" text NOT NULL DEFAULT '',
    seq integer NOT NULL DEFAULT 0, hash bytea NOT NULL, time bigint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 1, holder uuid, until timestamptz
) WITH (fillfactor = 70);
CREATE INDEX owners ON "{schema}".sessions (tenant, "user");
CREATE TABLE "{schema}".records (
    no bigint NOT NULL REFERENCES "{schema}".sessions, seq integer NOT NULL CHECK (seq > 0),
    time bigint NOT NULL, run text NOT NULL, kind text NOT NULL,
    tenant text NOT NULL, "user" text NOT NULL, body text NOT NULL,
    hash bytea NOT NULL, PRIMARY KEY (no, seq)
);
CREATE INDEX runs ON "{schema}".records (no, kind, seq)
    WHERE kind IN ('run.started', 'run.finished');
"""

_JOURNAL_2 = """
ALTER TABLE "{schema}".sessions ADD COLUMN seal bytea NOT NULL DEFAULT '';
DO $$ BEGIN
    IF EXISTS (SELECT FROM "{schema}".sessions WHERE seq > 0) THEN
        RAISE EXCEPTION 'the journal in schema {schema} was written by an older version: '
            'export its sessions with that version, '
            'then import them into another schema with this one';
    END IF;
END $$;
"""

_ARTIFACTS_1 = """
CREATE TABLE "{schema}".artifacts (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope text COLLATE "C" NOT NULL, sha256 text COLLATE "C", size bigint NOT NULL DEFAULT 0,
    mime text NOT NULL DEFAULT '', lines bigint NOT NULL DEFAULT 0, made bigint NOT NULL,
    tool text NOT NULL DEFAULT '',
    UNIQUE (scope, sha256)
);
CREATE INDEX ages ON "{schema}".artifacts (made);
CREATE TABLE "{schema}".chunks (
    artifact bigint NOT NULL REFERENCES "{schema}".artifacts ON DELETE CASCADE,
    part integer NOT NULL, data bytea NOT NULL, PRIMARY KEY (artifact, part)
);
ALTER TABLE "{schema}".chunks ALTER COLUMN data SET STORAGE EXTERNAL;
"""

_QUEUE_1 = """
CREATE TABLE "{schema}".jobs (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run text COLLATE "C" NOT NULL UNIQUE, tenant text COLLATE "C" NOT NULL,
    priority integer NOT NULL, version integer NOT NULL, job json NOT NULL,
    due timestamptz NOT NULL, state text NOT NULL DEFAULT 'waiting',
    worker text, attempts integer NOT NULL DEFAULT 0,
    stop text, outcome json, ended timestamptz
);
CREATE INDEX jobs_waiting ON "{schema}".jobs (priority, no) WHERE state = 'waiting';
CREATE INDEX jobs_of_tenants ON "{schema}".jobs (tenant, priority, no) WHERE state = 'waiting';
CREATE INDEX jobs_working ON "{schema}".jobs (worker, tenant) WHERE state = 'working';
CREATE TABLE "{schema}".workers (name text PRIMARY KEY, beat timestamptz NOT NULL);
CREATE TABLE "{schema}".schedules (
    name text PRIMARY KEY, cron text NOT NULL, job json NOT NULL, due timestamptz NOT NULL
);
CREATE FUNCTION "{schema}".choose_jobs(of_version integer, per_tenant integer, places bigint)
RETURNS TABLE (no bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- What is counted stays true until the statement that asked has taken the jobs: a function
    -- sees what was committed while it waited, which a statement does not.
    PERFORM pg_advisory_xact_lock(1178948177);
    -- Tenants that wait are found one after the other in the index, however many jobs each has.
    RETURN QUERY WITH RECURSIVE tenants AS (
        (SELECT tenant FROM "{schema}".jobs WHERE state = 'waiting' ORDER BY tenant LIMIT 1)
        UNION ALL
        SELECT (SELECT tenant FROM "{schema}".jobs
                WHERE state = 'waiting' AND tenant > before.tenant ORDER BY tenant LIMIT 1)
        FROM tenants AS before WHERE before.tenant IS NOT NULL
    )
    SELECT first.no FROM tenants CROSS JOIN LATERAL (
        SELECT no, priority FROM "{schema}".jobs
        WHERE state = 'waiting' AND version = of_version AND due <= clock_timestamp()
            AND tenant = tenants.tenant
        ORDER BY priority, no
        LIMIT greatest(0, per_tenant - (
            SELECT count(*) FROM "{schema}".jobs
            WHERE state = 'working' AND tenant = tenants.tenant))
    ) AS first ORDER BY first.priority, first.no LIMIT places;
END $$;
"""

_QUEUE_2 = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM "{schema}".jobs WHERE state IN ('waiting', 'working')) THEN
        RAISE EXCEPTION 'jobs of an older version wait in schema {schema}: '
            'let workers of that version finish them, then start this one';
    END IF;
END $$;
DROP FUNCTION "{schema}".choose_jobs;
DROP TABLE "{schema}".jobs, "{schema}".workers, "{schema}".schedules;
CREATE TABLE "{schema}".outcomes (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run text COLLATE "C" NOT NULL UNIQUE, session text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL, priority integer NOT NULL,
    version integer NOT NULL, job json NOT NULL, schedule text,
    submitted timestamptz NOT NULL DEFAULT clock_timestamp(), due timestamptz NOT NULL,
    handed boolean NOT NULL DEFAULT false, came timestamptz,
    worker text, begun timestamptz, attempts integer NOT NULL DEFAULT 0,
    cancelled boolean NOT NULL DEFAULT false, awaited boolean NOT NULL DEFAULT false,
    stop text, outcome json, ended timestamptz
) WITH (fillfactor = 70);
CREATE INDEX outcomes_open ON "{schema}".outcomes (session, no) WHERE ended IS NULL;
CREATE INDEX outcomes_of_tenants ON "{schema}".outcomes (tenant) WHERE ended IS NULL;
CREATE INDEX outcomes_ended ON "{schema}".outcomes (ended) WHERE ended IS NOT NULL;
CREATE INDEX outcomes_unhanded ON "{schema}".outcomes (no) WHERE NOT handed AND ended IS NULL;
CREATE TABLE "{schema}".schedules (
    name text PRIMARY KEY, cron text NOT NULL, job json NOT NULL, due timestamptz NOT NULL
);
CREATE FUNCTION "{schema}".begin_job(
    of_run text, by_worker text, of_version integer, per_tenant integer, is_again boolean
) RETURNS json LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    mine "{schema}".outcomes;
    answer text := 'begin';
    working bigint;
    ahead bigint;
    since timestamptz;
BEGIN
    SELECT * INTO mine FROM "{schema}".outcomes WHERE run = of_run AND ended IS NULL;
    IF NOT FOUND THEN
        RETURN json_build_object('answer', 'ended');
    END IF;
    SELECT count(*), min(begun) INTO ahead, since FROM "{schema}".outcomes
    WHERE session = mine.session AND no < mine.no AND ended IS NULL AND due <= clock_timestamp();
    IF mine.version > of_version THEN
        answer := 'newer';
    ELSIF ahead > 0 THEN
        answer := 'early';
    ELSIF per_tenant IS NOT NULL THEN
        -- What is counted stays true until this job is begun: each statement of a function sees
        -- what was committed while it waited.
        PERFORM pg_advisory_xact_lock(1178948177, hashtext(mine.tenant));
        -- A job is worked while its session has a lease, or has only just begun.
        SELECT count(*), max(begun) INTO working, since FROM "{schema}".outcomes AS other
        WHERE tenant = mine.tenant AND ended IS NULL AND worker IS NOT NULL AND run <> of_run
            AND (begun > clock_timestamp() - interval '15 seconds' OR EXISTS (
                SELECT FROM "{schema}".sessions AS held
                WHERE held.session = other.session AND until > clock_timestamp()));
        -- Of those that were set aside, the first by priority come first.
        SELECT count(*) INTO ahead FROM "{schema}".outcomes
        WHERE tenant = mine.tenant AND ended IS NULL AND worker IS NULL
            AND came > clock_timestamp() - interval '60 seconds'
            AND (priority, no) < (mine.priority, mine.no);
        IF working + ahead >= per_tenant THEN
            answer := 'full';
        END IF;
    END IF;
    IF answer = 'begin' THEN
        UPDATE "{schema}".outcomes SET worker = by_worker, begun = clock_timestamp(),
            handed = true, attempts = attempts + (NOT is_again)::integer
        WHERE run = of_run AND ended IS NULL RETURNING attempts INTO mine.attempts;
    ELSE
        -- The engine forgets it, and is told of it again later.
        UPDATE "{schema}".outcomes SET came = clock_timestamp(), handed = false
        WHERE run = of_run AND ended IS NULL RETURNING came INTO mine.came;
    END IF;
    IF NOT FOUND THEN
        RETURN json_build_object('answer', 'ended');
    END IF;
    RETURN json_build_object('answer', answer, 'session', mine.session, 'tenant', mine.tenant,
        'priority', mine.priority, 'ahead', ahead, 'as_of', mine.came::text, 'job', mine.job,
        'blocked', coalesce(extract(epoch FROM clock_timestamp() - since), 0),
        'attempt', mine.attempts, 'was_begun', mine.begun IS NOT NULL,
        'schedule', mine.schedule, 'is_known', EXISTS (
            SELECT FROM "{schema}".sessions WHERE session = mine.session AND seq > 0),
        'is_held', EXISTS (SELECT FROM "{schema}".sessions
            WHERE session = mine.session AND until > clock_timestamp()));
END $$;
"""

MIGRATIONS: dict[str, tuple[str, ...]] = {
    "journal": (_JOURNAL_1, _JOURNAL_2),
    "artifacts": (_ARTIFACTS_1,),
    "queue": (_QUEUE_1, _QUEUE_2),
}
"""For each part, the steps to version 1, 2, and so on. A released entry never changes."""

_READ_BY = {"queue": ("journal",)}
"""For each part, others whose tables its statements read: these are made with it."""

_RIGHTS = {
    "journal": (
        "SELECT, INSERT, UPDATE, DELETE ON {schema}.sessions",
        "SELECT, INSERT ON {schema}.records",
    ),
    "artifacts": (
        "SELECT, INSERT, UPDATE, DELETE ON {schema}.artifacts",
        "SELECT, INSERT ON {schema}.chunks",
    ),
    "queue": (
        "SELECT, INSERT, UPDATE, DELETE ON {schema}.outcomes",
        "SELECT, INSERT, UPDATE, DELETE ON {schema}.schedules",
    ),
}


def create_script(schema: str = "ferrule", *parts: str) -> str:
    """Return SQL that creates the tables of these parts (by default all) in an empty schema.

    It is meant for an administrator to read and run.
    """
    steps = [_CREATE_SCHEMA.format(schema=schema)]
    for part in parts or tuple(MIGRATIONS):
        for version, step in enumerate(MIGRATIONS[part], 1):
            steps += [
                step.format(schema=schema),
                _SET_VERSION.format(schema=schema, part=part, version=version),
            ]
    return "BEGIN;" + "".join(steps) + "COMMIT;\n"


def grant_script(role: str, schema: str = "ferrule", *parts: str) -> str:
    """Return SQL that gives a role the rights of a worker, which cannot change or remove events."""
    quoted = '"' + role.replace('"', '""') + '"'
    wanted = [f'USAGE ON SCHEMA "{schema}"', f'SELECT ON "{schema}".versions']
    for part in parts or tuple(MIGRATIONS):
        wanted += [right.format(schema=f'"{schema}"') for right in _RIGHTS[part]]
    return "".join(f"GRANT {right} TO {quoted};\n" for right in wanted)


_CREATE_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS "{schema}";
CREATE TABLE IF NOT EXISTS "{schema}".versions (
    part text NOT NULL, version integer NOT NULL, applied timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (part, version)
);
"""
_SET_VERSION = """INSERT INTO "{schema}".versions (part, version) VALUES ('{part}', {version});\n"""


def upgrade(
    connection: Connection[Any], schema: str, part: str, kind: type[FerruleError], prefix: str
) -> None:
    """Bring a part up to the version of this program.

    Raises:
        FerruleError: The part is newer (an error of class `kind`).
        psycopg.Error: A statement failed.
    """
    newest = len(MIGRATIONS[part])
    version = _read_version(connection, schema, part)
    if version < newest:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_UPGRADE_LOCK,))
            for each in (*_READ_BY.get(part, ()), part):
                _migrate(connection, schema, each)
    elif version > newest:
        raise kind(
            f"the tables of the {part} in schema `{schema}` were created by a newer version"
            f" (format {version}, this one knows up to {newest})",
            code=f"{prefix}_newer",
            hint="use that version, or another schema",
        )


def _migrate(connection: Connection[Any], schema: str, part: str) -> None:
    version = _read_version(connection, schema, part)
    if not version:
        connection.execute(_CREATE_SCHEMA.format(schema=schema).encode())
    for number, step in enumerate(MIGRATIONS[part][version:], version + 1):
        connection.execute(step.format(schema=schema).encode())
        mark = _SET_VERSION.format(schema=schema, part=part, version=number)
        connection.execute(mark.encode())


def _read_version(connection: Connection[Any], schema: str, part: str) -> int:
    # Ask the catalog's rows: the connection remembers a name that was missing a moment ago as
    # missing, even after waiting for an advisory lock.
    found = connection.execute(
        "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = "
        "c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'versions'",
        (schema,),
    ).fetchone()
    if found is None:
        return 0
    sql = f'SELECT coalesce(max(version), 0) FROM "{schema}".versions WHERE part = %s'
    found = connection.execute(sql.encode(), (part,)).fetchone()
    if found is None or not isinstance(found[0], int):
        raise ConfigError(f"`{schema}.versions` is not a table of Ferrule's")
    return found[0]
