"""A private PostgreSQL: loopback socket, trust, durable settings (fsync and synchronous_commit on), counted by pg_stat_statements."""

import os
import pathlib
import pwd
import shutil
import subprocess
import time

import psycopg
from processes import cpu


def programs():
    found = sorted(
        pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name)
    )
    return found[-1] if found else pathlib.Path(shutil.which("initdb")).resolve().parent


class Cluster:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.server = None
        self.user = []
        if os.geteuid() == 0:  # the server refuses to be root
            who = next(u for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody"))
            self.user = [
                "setpriv",
                f"--reuid={who.pw_uid}",
                f"--regid={who.pw_gid}",
                "--clear-groups",
            ]
            self.folder.mkdir(parents=True, exist_ok=True)
            os.chown(self.folder, who.pw_uid, who.pw_gid)

    def start(self, port):
        self.port, data = port, self.folder / "data"
        if not data.exists():
            subprocess.run(
                [
                    *self.user,
                    programs() / "initdb",
                    "-D",
                    data,
                    "-U",
                    "bench",
                    "--auth=trust",
                    "-E",
                    "UTF8",
                    "--locale=C",
                    "-N",
                ],
                check=True,
                cwd="/",
                stdout=subprocess.DEVNULL,
            )
        given = [
            "listen_addresses=127.0.0.1",
            f"port={port}",
            f"unix_socket_directories={self.folder}",
            "shared_preload_libraries=pg_stat_statements",
            "pg_stat_statements.track=top",
            "max_connections=400",
            "shared_buffers=256MB",
            "max_wal_size=8GB",
            "autovacuum=off",
            "checkpoint_timeout=1h",
        ]
        with open(self.folder / "log", "ab") as log:
            self.server = subprocess.Popen(
                [
                    *self.user,
                    "setpriv",
                    "--pdeathsig",
                    "QUIT",
                    programs() / "postgres",
                    "-D",
                    data,
                    *(w for g in given for w in ("-c", g)),
                ],
                cwd="/",
                stdout=log,
                stderr=log,
            )
        subprocess.run(
            [programs() / "pg_isready", "-h", self.folder, "-p", str(port), "-q", "-t", "30"],
            check=False,
        )
        for _ in range(100):
            try:
                self.sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
                self.sql("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
                return
            except psycopg.OperationalError:
                time.sleep(0.1)
        raise SystemExit((self.folder / "log").read_text()[-2000:])

    def stop(self):
        self.server.terminate()
        self.server.wait(30)

    def url(self, name, port=None):
        return f"postgresql://bench@127.0.0.1:{port or self.port}/{name}"

    def sql(self, statement, *values, db="postgres"):
        with psycopg.connect(self.url(db), autocommit=True) as c:
            cursor = c.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def fresh(self, name):
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self.sql(f'CREATE DATABASE "{name}"')

    def counts(self, name):
        """Counters of the database `name`, and of the server."""
        (calls,) = self.sql(
            "SELECT coalesce(sum(s.calls),0)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid=s.dbid"
            " WHERE d.datname=%s",
            name,
        )[0]
        wal, size = self.sql(
            "SELECT pg_current_wal_lsn()-'0/0'::pg_lsn, pg_database_size(%s)", name
        )[0]
        return {
            "statements": int(calls),
            "wal": int(wal),
            "size": size,
            "server_cpu": cpu(self.server.pid),
        }

    def commits(self, start, end):
        """Transactions that wrote something between two places of the log: exact, where pg_stat_database lags behind."""
        found = self.sql(
            "SELECT count(*) FROM pg_get_wal_records_info('0/0'::pg_lsn + %s::numeric, '0/0'::pg_lsn + %s::numeric) WHERE"
            " resource_manager = 'Transaction' AND record_type LIKE 'COMMIT%%'",
            start,
            end,
        )
        return int(found[0][0])

    def top(self, name, most=12):
        return self.sql(
            "SELECT s.calls, round(s.total_exec_time::numeric,1), left(regexp_replace(s.query,'\\s+',' ','g'),150) FROM"
            " pg_stat_statements s JOIN pg_database d ON d.oid=s.dbid WHERE d.datname=%s ORDER BY 1 DESC LIMIT %s",
            name,
            most,
        )
