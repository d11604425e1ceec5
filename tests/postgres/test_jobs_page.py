"""The console's page of jobs: queue, workers and outcomes of a database, without its engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster

pytest.importorskip("psycopg", reason="needs the extra `scale`")
pytest.importorskip("starlette", reason="needs the extra `console`")

from ferrule.console.jobs_page import show
from ferrule.console.navigation import list_areas
from ferrule.engine.distributed.job import Job, build_outcome
from ferrule.engine.distributed.outcomes import OutcomeTable
from ferrule.storage.journal.postgres import PostgresJournal
from ferrule.storage.settings.settings import load_settings
from ferrule.testing import render_page


@pytest.fixture
def table(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[OutcomeTable]:
    name = f"page_{cluster.free_name()}"
    cluster.sql(f"CREATE DATABASE {name}")
    url = f"postgresql:///{name}?host={cluster.folder}&user=ferrule"
    monkeypatch.setenv("FERRULE_DATABASE", url)
    with PostgresJournal(url) as journal:
        # A worker makes its tables, too.
        journal.find_known([])
    made = OutcomeTable(url)
    yield made
    made.close()


def test_the_page_shows_what_waits_who_works_and_how_jobs_ended(
    table: OutcomeTable, tmp_path: Path
) -> None:
    jobs = [
        Job(f"tidy <{number}>", run=f"job-{number}", tenant="acme", user="ines").with_name()
        for number in range(4)
    ]
    table.submit([job.as_dict() for job in jobs])
    for run, worker in (("job-1", "machine-a"), ("job-2", "machine-b"), ("job-3", "machine-b")):
        table.begin(run, worker, per_tenant=None)
    table.end("job-2", "machine-b", build_outcome(jobs[2], "done", text="tidy"))
    failed = build_outcome(jobs[3], "failed", code="model_unknown", detail="no <model>")
    table.end("job-3", "machine-b", failed)
    shown = render_page(show, state=tmp_path)
    assert [
        f"<dt>{name}</dt><dd>1</dd>" in shown for name in ("Waiting", "Working", "Workers")
    ] == [True] * 3
    rows = {f"job-{n}": shown.split(f"job-{n}<")[1].split("</tr>")[0] for n in range(4)}
    states = {run: row.split('data-label="State">')[1].split("<")[0] for run, row in rows.items()}
    assert states == {"job-0": "waiting", "job-1": "working", "job-2": "done", "job-3": "failed"}
    assert "machine-a" in rows["job-1"] and "machine" not in rows["job-0"]
    assert "model_unknown: no &lt;model&gt;" in rows["job-3"]
    assert "tidy &lt;0&gt;" in rows["job-0"]
    assert "/runs/job-2" in shown and "/runs/job-0" not in shown


def test_a_database_that_is_away_is_said_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_DATABASE", "postgresql://nobody@localhost:1/none")
    assert "cannot be reached" in render_page(show, state=tmp_path)
    monkeypatch.setenv("FERRULE_DATABASE", "sqlite:///x")
    assert "the database of jobs is PostgreSQL" in render_page(show, state=tmp_path)


@pytest.mark.parametrize("is_named", [True, False])
def test_the_page_is_in_the_menu_where_a_database_of_jobs_is_named(
    monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    monkeypatch.delenv("FERRULE_DATABASE", raising=False)
    if is_named:
        monkeypatch.setenv("FERRULE_DATABASE", "postgresql:///jobs")
    areas = {area.path: area.name for area in list_areas(load_settings())}
    assert areas.get("/x/jobs") == ("Jobs" if is_named else None)
