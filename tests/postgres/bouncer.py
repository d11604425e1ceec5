"""A PgBouncer before a test's server, in transaction mode, with one connection for all clients.

So whatever a client leaves on it, the next one finds.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest
from cluster import Cluster, unprivileged

SECONDS = 30
_SETTINGS = """
[databases]
* = host={server} user=ferrule
[pgbouncer]
unix_socket_dir = {folder}
listen_addr =
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 1
ignore_startup_parameters = {ignored}
"""


@contextlib.contextmanager
def run_bouncer(cluster: Cluster, *, ignored: str = "extra_float_digits") -> Generator[str]:
    """Start it and give the place of its socket, as a URL has it. Skips where there is none.

    `ignored` names parameters of connections that it drops; it refuses connections with others.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("there is no PgBouncer (Debian: `apt-get install pgbouncer`)")
    folder = Path(tempfile.mkdtemp(prefix="ferrule-bouncer-", dir="/tmp"))
    settings = folder / "pgbouncer.ini"
    settings.write_text(_SETTINGS.format(server=cluster.folder, folder=folder, ignored=ignored))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        owner = pwd.getpwuid(cluster.folder.stat().st_uid)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    running = subprocess.Popen(
        [*unprivileged(), program, "--quiet", str(settings)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        place = f"host={folder}&port=6432&user=ferrule"
        end = time.monotonic() + SECONDS
        while not (folder / ".s.PGSQL.6432").exists():
            assert running.poll() is None and time.monotonic() < end, running.stderr
            time.sleep(0.02)
        yield place
    finally:
        running.kill()
        running.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def look_at(url: str) -> dict[str, object]:
    """Return what is set, prepared and listened to on the server's connection, and its locks."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as db:
        return {
            what: db.execute(ask.encode()).fetchall()
            for what, ask in {
                "settings": "SELECT name, setting FROM pg_settings WHERE source = 'session'"
                " AND name <> 'application_name' ORDER BY name",
                "prepared": "SELECT name FROM pg_prepared_statements",
                "channels": "SELECT pg_listening_channels()",
                "cursors": "SELECT name FROM pg_cursors WHERE is_holdable",
                "locks": "SELECT objid FROM pg_locks WHERE locktype = 'advisory'",
                "temporary": "SELECT relname FROM pg_class WHERE relpersistence = 't'",
                "server": "SELECT pg_backend_pid()",
            }.items()
        }
