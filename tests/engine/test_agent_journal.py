"""Who closes an agent's journal: the agent, if it made it, and whoever made it, if not."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule import Agent, Scripted, Storage
from ferrule.core.errors import JournalError
from ferrule.models.scripted import says
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal
from left_open import list_descriptors

DESCRIPTORS_OF_A_FILE = 4
"""The database, its WAL, the WAL's index and the leases."""


class Interrupted(Scripted):
    """Its connection may be closed before everything was said."""

    async def close(self) -> None:
        return None


def agent_on(journal: Journal | Path | None) -> Agent:
    return Agent(Interrupted([says("one"), says("two")]), storage=Storage(journal=journal))


def opened_below(folder: Path) -> list[str]:
    return [one for one in list_descriptors().values() if one.startswith(str(folder))]


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The garbage collector comes late, as it does in a program with a large heap."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.usefixtures("uncollected")
async def test_an_agent_that_is_closed_leaves_nothing_open(tmp_path: Path) -> None:
    agent = agent_on(tmp_path / "j.db")
    await agent.run("go")
    assert opened_below(tmp_path)
    await agent.close()
    assert not opened_below(tmp_path)
    await agent.close()


async def test_a_closed_agent_opens_its_journal_again(tmp_path: Path) -> None:
    agent = agent_on(tmp_path / "j.db")
    first = await agent.run("go")
    await agent.close()
    session = agent.resume(first.session)
    assert (await session.run("go on")).text == "two"
    await session.close()
    await agent.close()
    assert not opened_below(tmp_path)


async def test_a_journal_that_an_agent_was_given_stays_open(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        agent = agent_on(journal)
        result = await agent.run("go")
        await agent.close()
        assert [info.session for info in journal.sessions()] == [result.session]


async def test_a_journal_in_memory_is_kept_for_as_long_as_its_agent() -> None:
    agent = agent_on(None)
    result = await agent.run("go")
    await agent.close()
    assert [info.session for info in agent.journal.sessions()] == [result.session]


async def test_a_copy_leaves_the_journal_of_its_agent_open(tmp_path: Path) -> None:
    agent = agent_on(tmp_path / "j.db")
    session = agent.session()
    await session.run("go")
    for copy in (agent.copy(), agent.copy_for_user("ada"), agent.copy_for_output(str)):
        await copy.close()
    assert (await session.run("go on")).text == "two"
    await session.close()
    await agent.close()


async def test_a_session_that_outlives_its_agent_says_that_the_journal_is_closed(
    tmp_path: Path,
) -> None:
    agent = agent_on(tmp_path / "j.db")
    sessions = [agent.session(), agent.session()]
    await sessions[0].run("go")
    await agent.close()
    with pytest.raises(JournalError, match="the journal is closed"):
        await sessions[1].run("go")
    await sessions[0].close()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("files", ["one file", "a file each"])
def test_agents_that_nobody_closes_use_few_descriptors(tmp_path: Path, files: str) -> None:
    for number in range(5 * 8):
        name = "j.db" if files == "one file" else f"j{number}.db"
        assert agent_on(tmp_path / name).run_sync("go").text == "one"
    assert len(opened_below(tmp_path)) <= 8 * DESCRIPTORS_OF_A_FILE


@pytest.mark.usefixtures("uncollected")
async def test_a_journal_whose_sessions_are_in_use_is_never_closed(tmp_path: Path) -> None:
    kept = agent_on(tmp_path / "kept.db")
    session = kept.session()
    await session.run("go")
    for number in range(2 * 8):
        await agent_on(tmp_path / f"j{number}.db").run("go")
    with pytest.raises(JournalError, match="in use"):
        agent_on(tmp_path / "kept.db").resume(session.id)
    assert (await session.run("go on")).text == "two"
    await session.close()
    await kept.close()


def test_a_journal_that_was_closed_while_idle_is_read_page_by_page(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        result = Agent(Scripted([says("one")]), storage=Storage(journal=journal)).run_sync("go")
        records = journal.records(result.session)
        first = next(records)
        assert journal.close_idle()
        assert first.seq == 1 and len(list(records)) > 1
        journal.verify(result.session)


UNCLOSED = """
import asyncio, sys
from ferrule import Agent, Scripted, Storage
from ferrule.testing import says

async def ask(journal):
    agent = Agent(Scripted([says("one"), says("two")]), storage=Storage(journal=journal))
    session = agent.session()
    await session.run("go")
    return session

sessions = [asyncio.run(ask(journal)) for journal in (None, "a.db", "b.db")]
"""


def test_a_program_that_closes_nothing_ends_without_a_word(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", UNCLOSED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = [line for line in ran.stderr.splitlines() if " took " not in line]  # a busy machine
    assert not said, ran.stderr
    # SQLite removes the WAL when the last connection is closed.
    assert not list(tmp_path.glob("*-wal"))
