"""Sessions by an id of the program's own: new ones, taken ones, and the one that is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, ConfigError, Scripted, Storage
from ferrule.models.scripted import says

pytestmark = pytest.mark.proves("session.id-taken")


def make_agent(*texts: str, journal: Any = None) -> Agent[None, str]:
    return Agent(Scripted([says(text) for text in texts]), storage=Storage(journal=journal))


async def test_an_id_that_is_taken_is_an_error_and_nothing_is_written() -> None:
    agent = make_agent("one")
    await agent.session(id="thread").run("first")
    before = list(agent.journal.records("thread"))
    with pytest.raises(ConfigError, match="there is a session `thread` already") as raised:
        agent.session(id="thread")
    assert raised.value.code == "session_exists" and "resume=True" in raised.value.hint
    assert list(agent.journal.records("thread")) == before


async def test_a_thread_begins_and_goes_on_with_the_same_line(tmp_path: Path) -> None:
    for number, text in enumerate(("one", "two")):
        async with make_agent(text, journal=tmp_path / "threads.db") as agent:
            session = agent.session(id="thread", resume=True, history=[])
            assert len(session.history) == 2 * number
            assert (await session.run(f"message {number}")).text == text
            await session.close()


async def test_only_the_whole_id_of_the_same_user_is_found() -> None:
    agent = make_agent("one", "two", "three")
    await agent.session(id="thread-1").run("first")
    other = agent.session(id="thread", resume=True)
    assert other.id == "thread" and not other.history
    stranger = agent.copy_for_user("somebody else").session(id="thread-1", resume=True)
    with pytest.raises(Exception, match="no session"):
        await stranger.run("whose?")
    assert len(list(agent.journal.records("thread-1"))) == 4
    await other.run("second")
    await agent.run("third")
