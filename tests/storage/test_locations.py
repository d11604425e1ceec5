"""Where journals and artifacts are kept: files by default, addresses where people write them, and
never a password in settings.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import Agent, Scripted, Storage
from ferrule.core.errors import ConfigError
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.locations import create_artifact_store, create_journal
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.store_urls import expand_variables, is_url, redact_url, refuse_password

DATABASE = "postgresql://ferrule:${DB_PASSWORD}@db.example.com/ferrule"


def test_without_an_address_everything_is_a_file(own_folders: Path, tmp_path: Path) -> None:
    mine, named = create_journal(None), create_journal(tmp_path / "j.db", durability="power")
    assert isinstance(mine, SqliteJournal) and mine.path == own_folders / "state" / "journal.db"
    assert isinstance(named, SqliteJournal) and named.path == tmp_path / "j.db"
    artifacts = create_artifact_store(None)
    assert (
        isinstance(artifacts, FileArtifactStore)
        and artifacts.root == own_folders / "state" / "artifacts"
    )
    assert isinstance(create_artifact_store(str(tmp_path)), FileArtifactStore)
    assert list(tmp_path.iterdir()) == []


def test_an_address_is_another_store_that_is_opened_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("psycopg")
    pytest.importorskip("obstore")
    from ferrule.storage.artifacts.objects import ObjectArtifactStore
    from ferrule.storage.artifacts.postgres import PostgresArtifactStore
    from ferrule.storage.journal.postgres import PostgresJournal

    monkeypatch.setenv("DB_PASSWORD", "s3/cr@t")
    journal = create_journal(DATABASE)
    assert isinstance(journal, PostgresJournal)
    assert journal.where == "postgresql://db.example.com/ferrule"
    assert isinstance(create_artifact_store(DATABASE), PostgresArtifactStore)
    assert isinstance(create_artifact_store("s3://bucket/prefix"), ObjectArtifactStore)
    assert isinstance(
        Agent(Scripted([]), storage=Storage(journal=DATABASE)).journal, PostgresJournal
    )


def test_an_address_of_nothing_we_know_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be kept in `mysql://h/d`"):
        create_journal("mysql://me:s3cret@h/d?password=s3cret")
    with pytest.raises(ConfigError, match="`DB_PASSWORD`, which is not set"):
        create_journal(DATABASE)


@given(st.text(min_size=1))
def test_a_variable_is_put_into_an_address_so_that_it_cannot_change_its_shape(value: str) -> None:
    from urllib.parse import unquote, urlsplit

    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        return
    parts = urlsplit(expand_variables(DATABASE, {"DB_PASSWORD": value}))
    assert (parts.hostname, parts.path, parts.username) == ("db.example.com", "/ferrule", "ferrule")
    assert unquote(parts.password or "") == value


WRITTEN_OUT = (
    "postgresql://me:s3cret@db/ferrule",
    "postgres://:s3cret@db/ferrule",
    "postgresql://me:s3@cret@db/ferrule",
    "postgresql://db/ferrule?sslmode=require&password=s3cret",
    "POSTGRESQL://me:s3cret@db/ferrule",
    "postgresql://me:x${PART}@db/ferrule",
)
NAMED = (
    DATABASE,
    "postgresql://db.example.com:5432/ferrule",
    "postgresql://me@one:5432,two:5432/ferrule",
    "postgresql:///ferrule?service=x&password=${DB_PASSWORD}",
    "s3://bucket/prefix:with-colon@and-at",
)


@pytest.mark.parametrize("address", WRITTEN_OUT)
@pytest.mark.parametrize("key", ["journal.path", "artifacts.store"])
def test_settings_refuse_a_password_that_is_written_out_wherever_it_stands(
    address: str, key: str, tmp_path: Path
) -> None:
    section, name = key.split(".")
    own = tmp_path / "ferrule.yaml"
    own.write_text(f'{section}:\n  {name}: "{address}"\n')
    variable = f"FERRULE_{section}_{name}".upper()
    for source in (
        lambda: load_settings(user_file=own, environment={}),
        lambda: load_settings(user_file=tmp_path / "none", environment={variable: address}),
        lambda: load_settings(user_file=tmp_path / "none", environment={}, flags={key: address}),
    ):
        with pytest.raises(ConfigError, match="settings must not contain a password") as refused:
            source()
        assert "s3cret" not in str(refused.value) and "s3@cret" not in str(refused.value)


@pytest.mark.parametrize("address", NAMED)
def test_settings_take_an_address_that_names_its_secret(address: str, tmp_path: Path) -> None:
    own = tmp_path / "ferrule.yaml"
    own.write_text(f'journal: "{address}"\nartifacts: {{store: "{address}"}}\n')
    found = load_settings(user_file=own, environment={})
    assert found.journal == address and found["artifacts.store"] == address
    refuse_password(address, "here")


def test_a_file_stays_a_path_in_settings(tmp_path: Path) -> None:
    own = tmp_path / "ferrule.yaml"
    own.write_text("journal: some/journal.db\n")
    assert (
        load_settings(user_file=own, environment={}).journal == Path("some/journal.db").absolute()
    )
    assert not is_url("some/journal.db") and not is_url(None) and not is_url(Path("a:/b"))


def test_an_address_is_shown_without_what_nobody_should_see() -> None:
    assert redact_url("postgresql://me:s3@cret@db:1/x?password=s3cret") == "postgresql://db:1/x"


USED = """
import sys
from pathlib import Path
from ferrule import Agent, Scripted, Storage
from ferrule.models.scripted import says
agent = Agent(Scripted([says("ok")]), storage=Storage(journal=Path(sys.argv[1]) / "j.db", artifacts=Path(sys.argv[1]) / "a"))
agent.run_sync("hello")
print(sorted({name.partition(".")[0] for name in sys.modules} & {"psycopg", "obstore"}),
      sorted(name for name in sys.modules if "postgres" in name or "artifact_objects" in name))
"""


def test_a_run_with_files_loads_nothing_of_the_stores_for_many_machines(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", USED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ran.stdout.strip() == "[] []"
