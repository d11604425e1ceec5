"""PostgreSQL by its address: from settings, from the command line, from a program that closes
nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import Cluster

from ferrule.storage.journal.postgres import PostgresJournal
from ferrule.testing.journal_conformance import ME, STORY


@pytest.fixture
def url(cluster: Cluster, schema: str) -> str:
    """A database of this test alone: an address names no schema."""
    cluster.sql(f"CREATE DATABASE {schema}")
    return f"postgresql:///{schema}?host={cluster.folder}&user=ferrule"


@pytest.fixture(autouse=True)
def _dropped(cluster: Cluster, schema: str) -> object:
    yield
    cluster.sql(f"DROP DATABASE IF EXISTS {schema} WITH (FORCE)")


PROGRAM = """
import sys
from ferrule import Agent, Scripted, Storage, tool
from ferrule.models.scripted import calls, says
@tool(side_effect="none")
def much() -> str:
    "Much."
    return "x" * 100_000
agent = Agent(Scripted([calls(("much", {})), says("That was much.")]), [much], storage=Storage(journal=sys.argv[1], artifacts=sys.argv[1]))
result = agent.run_sync("How much?")
print(result.session, result.results[0].data["artifact"])
"""


def test_a_program_that_names_an_address_leaves_a_session_and_an_artifact_and_no_warning(
    url: str, cluster: Cluster, schema: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    session, reference = ran.stdout.split()
    with PostgresJournal(url) as journal:
        journal.verify(session)
        assert journal.find(session).question == "How much?"
        # The run was closed, and with it its lease.
        journal.lease(session)
    import psycopg

    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT sha256, size FROM ferrule.artifacts").fetchall()
    assert rows == [(reference.removeprefix("art-"), 100_000)]


def test_the_command_line_lists_and_exports_what_a_database_holds_and_salvages_files_only(
    url: str, tmp_path: Path
) -> None:
    with PostgresJournal(url) as journal:
        journal.append("s1", "r1", STORY, identity=ME)

    def ferrule(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("ferrule")), *words],
            env={**os.environ, "FERRULE_JOURNAL_PATH": url},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    checks: dict[tuple[str, ...], Callable[[str], bool]] = {
        ("sessions", "list"): lambda said: "s1" in said,
        ("sessions", "export", "s1", "--format", "jsonl"): lambda said: (
            '"kind":"run.started"' in said
        ),
    }
    for words, holds in checks.items():
        ran = ferrule(*words)
        assert ran.returncode == 0 and holds(ran.stdout), (words, ran.stdout, ran.stderr)
    salvaged = ferrule("sessions", "salvage", "--yes")
    assert salvaged.returncode == 2 and "is not a file" in salvaged.stderr
