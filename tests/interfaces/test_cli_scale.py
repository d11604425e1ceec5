"""`ferrule worker` and `ferrule submit`: what is wrong with how they are called is said before
anything is reached.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from ferrule.cli.distributed import assemble_for_job, worker
from ferrule.console.command import console
from ferrule.core.errors import ConfigError
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.job_run import run_job
from ferrule.engine.distributed.jobs import Jobs, libpq_url
from ferrule.engine.distributed.worker import Worker
from ferrule.permissions.approvals import DenyingApprover
from ferrule.storage.journal import postgres_connection
from ferrule.storage.journal.sqlite import SqliteJournal

NOWHERE = "postgresql://nobody@localhost:1/none"
SUBMIT = ("submit", "--database", NOWHERE)
WORKER = ("worker", "--database", NOWHERE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("submit", "hello"), "Missing option '--database'"),
        (("worker",), "Missing option '--database'"),
        (SUBMIT, "no prompt given"),
        ((*SUBMIT, "--priority", "-1", "hello"), "--priority"),
        ((*SUBMIT, "--delay", "-1", "hello"), "--delay"),
        (
            (*SUBMIT, "--cron", "nightly=0 3 * * *", "--wait", "hello"),
            "--cron submits jobs at its own times",
        ),
        ((*SUBMIT, "--journal", "mine.db", "hello"), "in the database of the jobs"),
        ((*WORKER, "--concurrency", "0"), "--concurrency"),
        ((*WORKER, "--per-tenant", "0"), "--per-tenant"),
        ((*WORKER, "--agent", "agents"), "use MODULE:FUNCTION"),
        ((*WORKER, "--agent", "no_such_agents:make"), "No module named 'no_such_agents'"),
        ((*WORKER, "--agent", "json:no_such_name"), "no_such_name"),
        ((*WORKER, "--agent", "json:__name__"), "is str, not a function"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(
    words: tuple[str, ...],
    said: str,
    folder: Path,
    ferrule: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FERRULE_DATABASE", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    ran = ferrule(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize("words", [(*SUBMIT, "hello"), (*SUBMIT, "--list"), WORKER])
def test_a_database_that_is_away_is_said_in_a_line(
    words: tuple[str, ...], folder: Path, ferrule: Callable[..., Any]
) -> None:
    pytest.importorskip("psycopg", reason="needs the extra `scale`")
    ran = ferrule(*words)
    assert ran.code == 1
    assert "cannot be reached" in ran.err
    assert "Traceback" not in ran.err


def test_without_the_extra_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    # It is looked for once.
    monkeypatch.setattr(postgres_connection, "_psycopg", postgres_connection._psycopg.__wrapped__)
    for start in (lambda: Jobs(NOWHERE), Worker(NOWHERE, assemble_for_job).run):
        with pytest.raises(ConfigError) as error:
            start()
        assert "ferrule[scale]" in error.value.hint


def test_a_worker_without_a_factory_makes_the_agent_that_run_would_make_for_the_jobs_owner(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    (tmp_path / "talk.yaml").write_text("- say: done\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    job = Job(
        "hello",
        tenant="acme",
        user="ines",
        workspace=str(elsewhere),
        model=f"scripted:{tmp_path}/talk.yaml",
        options={"limits.max_turns": 3, "permissions.deny": ["Edit(**)"]},
    ).with_name()
    with SqliteJournal(tmp_path / "shared.db") as journal:
        agent = assemble_for_job(job, journal)
        assert agent.journal is journal
        assert agent.limits.max_turns == 3
        assert agent.workspace is not None and agent.workspace.root == elsewhere
        assert isinstance(agent.approver, DenyingApprover)
        assert agent.run_sync("hello").text == "done"
        assert [(one.tenant, one.user) for one in journal.sessions()] == [("acme", "ines")]


def test_a_session_of_a_worker_with_workspaces_finds_its_files_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("state", "config"):
        monkeypatch.setenv(f"FERRULE_{name.upper()}", str(tmp_path / name))
    call = {"tool": "write_file", "arguments": {"path": "a.txt", "content": "made"}}
    talk = tmp_path / "talk.yaml"
    talk.write_text(yaml.safe_dump([{"call": [call]}, {"say": "done"}]))
    (tmp_path / "again.yaml").write_text("- say: done\n")
    options = {"permissions.allow": ["Edit(**)"]}
    gone = str(tmp_path / "a-folder-of-another-machine")
    job = Job("hello", workspace=gone, model=f"scripted:{talk}", options=options).with_name()
    with SqliteJournal(tmp_path / "shared.db") as journal:
        asyncio.run(run_job(job, journal, partial(assemble_for_job, workspaces=tmp_path / "one")))
        following = replace(job, run="second", model=f"scripted:{tmp_path}/again.yaml")
        outcome = asyncio.run(
            run_job(following, journal, partial(assemble_for_job, workspaces=tmp_path / "two"))
        )
    assert outcome["stop"] == "done"
    found = [path.read_text() for path in (tmp_path / "two").glob("*/a.txt")]
    assert found == ["made"]


def test_workspaces_are_not_for_agents_of_a_function() -> None:
    arguments = ["--database", NOWHERE, "--agent", "json:loads", "--workspaces", "/tmp"]
    done = CliRunner().invoke(worker, arguments)
    assert done.exit_code == 2
    assert "TravellingFiles" in done.output


EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_compose_file_starts_workers_as_they_can_be_started() -> None:
    compose = yaml.safe_load((EXAMPLES / "compose.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    described = services["worker"]
    assert described["command"][0] == "worker"
    url = re.sub(
        r"\$\{FERRULE_DATABASE:-(.*)\}", r"\1", described["environment"]["FERRULE_DATABASE"]
    )
    assert libpq_url(url).partition("@")[2].startswith("db/") and "db" in services
    given = worker.make_context("worker", ["--database", url, *described["command"][1:]]).params
    assert (given["database"], given["concurrency"], given["per_tenant"]) == (url, 16, 4)
    profiles = {name: one.get("profiles") for name, one in services.items()}
    assert profiles == {
        "worker": None,
        "db": ["postgres"],
        "temporal": ["temporal"],
        "objects": ["objects"],
        "console": ["console"],
        "proxy": ["console"],
    }
    needed = described["depends_on"]
    assert needed.keys() == services.keys() - {"worker", "console", "proxy"}
    assert not any(one["required"] for one in needed.values()), "each may be somewhere else"
    named = {volume.partition(":")[0] for one in services.values() for volume in one["volumes"]}
    assert named == compose["volumes"].keys()


def test_workers_start_from_an_image_that_is_built_once() -> None:
    compose = yaml.safe_load((EXAMPLES / "compose.yaml").read_text(encoding="utf-8"))
    described = compose["services"]["worker"]
    text = (EXAMPLES / described["build"]["dockerfile"]).read_text(encoding="utf-8")
    assert "pip" not in str(described) and 'ENTRYPOINT ["ferrule"]' in text
    assert text.index("pip install") < text.index("USER agent") < text.index("CMD")
    (extras,) = re.findall(r'ARG FERRULE="ferrule\[(.*)\]"', text)
    project = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(extras.split(",")) <= project["project"]["optional-dependencies"].keys()


def test_the_compose_file_starts_a_console_behind_a_proxy_on_the_journal_of_the_workers() -> None:
    services = yaml.safe_load((EXAMPLES / "compose.yaml").read_text(encoding="utf-8"))["services"]
    described = services["console"]
    database = services["worker"]["environment"]["FERRULE_DATABASE"]
    assert described["environment"]["FERRULE_JOURNAL_PATH"] == database
    words = described["command"]
    assert words[:2] == ["serve", "console"]
    given = console.make_context("console", words[2:]).params
    assert given["host"] == "0.0.0.0", "only the proxy reaches it, in the network of compose"
    assert given["url"].startswith("https://") and given["url"] in services["proxy"]["command"]
    assert f"console:{given['port']}" in services["proxy"]["command"]
    assert "ports" not in described
