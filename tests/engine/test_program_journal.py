"""Where a program's runs are journaled, and how a session without a run is listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrule import Agent, Scripted, Storage, tool
from ferrule.core.errors import ConfigError
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing import calls, says


@tool(side_effect="read")
def large() -> str:
    """Return more than a result may hold."""
    return "x" * 200_000


async def test_runs_of_a_program_leave_nothing_in_the_persons_folders(own_folders: Path) -> None:
    agent = Agent(Scripted([calls(("large", {})), says("done")]), [large])
    session = agent.session()
    run = await session.run("go")
    assert run.text == "done" and [info.runs for info in agent.journal.sessions()] == [1]
    await session.close()
    await agent.close()
    assert [path for path in own_folders.rglob("*") if path.is_file()] == []


async def test_a_program_keeps_its_runs_where_it_says(tmp_path: Path, own_folders: Path) -> None:
    file = tmp_path / "shop.db"
    agent = Agent(Scripted([says("done")]), storage=Storage(journal=file))
    await agent.run("go")
    await agent.close()
    with SqliteJournal(file) as journal:
        assert [(info.runs, info.state) for info in journal.sessions()] == [(1, "done")]
    assert not (own_folders / "state/journal.db").exists()


async def test_a_session_that_never_asked_a_model_is_not_open() -> None:
    agent = Agent(Scripted([]), [large])
    session = agent.session()
    await session.call("large")
    [info] = agent.journal.sessions()
    assert (info.runs, info.state) == (0, "unused")
    await session.close()
    await agent.close()


@pytest.mark.parametrize("model", ["gpt-4o", "gemini:gemini-3", "openai:gpt-5.2"])
async def test_a_run_whose_model_cannot_be_used_has_failed_and_is_not_open(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    agent = Agent(model, [large])
    session = agent.session()
    with pytest.raises(ConfigError):
        await session.run("go")
    [info] = agent.journal.sessions()
    assert (info.runs, info.state) == (1, "failed")
    assert await session.resume() is None
    await session.close()
    await agent.close()
