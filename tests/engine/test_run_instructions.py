"""Instructions that functions say: asked once a run, sent to the model, journaled, and replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, ConfigError, Context, Scripted, Storage
from ferrule.core.errors import LimitReached
from ferrule.core.events import RunStarted
from ferrule.core.limits import Limits
from ferrule.core.messages import Message, UserMessage
from ferrule.engine.replay.recording import Recording
from ferrule.engine.replay.replay import replay
from ferrule.engine.replay.rerun import rerun
from ferrule.models.scripted import Step, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal


def list_systems(model: Scripted) -> list[str]:
    return [opened.system for opened in model.opened]


def echo_last(history: Sequence[Message]) -> Step:
    last = history[-1]
    assert isinstance(last, UserMessage)
    return says(last.text)


async def test_functions_and_texts_make_the_system_text_of_the_first_run() -> None:
    async def who(context: Context[str]) -> str:
        return f"You serve {context.deps} in run {context.identity.run}."

    def nothing() -> None:
        return None

    model = Scripted([echo_last])
    agent = Agent(model, instructions=["Be kind.", who, nothing, "Be brief."], deps_type=str)
    session = agent.session(deps="Ada")
    run = await session.run("Hello", run="r1")
    assert list_systems(model) == ["Be kind.\n\nBe brief.\n\nYou serve Ada in run r1."]
    assert run.text == "Hello"


async def test_later_runs_are_told_only_what_changed_and_behind_the_prefix() -> None:
    said = iter(["It is Monday.", "It is Monday.", "It is Tuesday.", ""])
    model = Scripted([echo_last] * 4)
    agent = Agent(model, instructions=lambda: next(said))
    session = agent.session()
    heard = [(await session.run(f"message {index}")).text for index in range(4)]
    assert heard[0] == "message 0"
    assert heard[1] == "message 1"
    assert "It is Tuesday." in heard[2]
    assert heard[2].endswith("\n\nmessage 2")
    assert "(none)" in heard[3]
    assert len(list_systems(model)) == 1
    assert list_systems(model)[0].endswith("It is Monday.")


async def test_a_resumed_session_has_the_same_prefix_and_asks_no_function(tmp_path: Path) -> None:
    storage = Storage(journal=tmp_path / "journal.db")
    asked: list[str] = []

    def day() -> str:
        asked.append("day")
        return "It is Monday."

    limits = Limits(max_turns=1)
    broken = Agent(
        Scripted([calls(("none", {}))]), instructions=day, storage=storage, limits=limits
    )
    with pytest.raises(LimitReached) as reached:
        await broken.run("Hello")
    assert asked == ["day"]
    model = Scripted([echo_last])
    agent = Agent(model, instructions=day, storage=storage)
    session = agent.resume(reached.value.session)
    assert await session.resume() is None
    assert asked == ["day"]
    run = await session.run("And now?")
    assert asked == ["day", "day"]
    assert list_systems(model)[0].endswith("It is Monday.")
    assert run.text == "And now?"
    await session.close()


async def test_a_replay_and_a_rerun_ask_no_function() -> None:
    asked: list[str] = []

    def day() -> str:
        asked.append("day")
        return f"It is day {len(asked)}."

    journal = SqliteJournal(":memory:")
    storage = Storage(journal=journal)
    model = Scripted([echo_last, echo_last])
    session = Agent(model, instructions=day, storage=storage).session()
    await session.run("one")
    await session.run("two")
    records = list(journal.records(session.id))
    told = [one.event.instructions for one in records if isinstance(one.event, RunStarted)]
    assert told == ["It is day 1.", "It is day 2."]
    assert replay(records).same
    listening = Scripted([echo_last, echo_last])
    report = await rerun(
        Recording.of(records), Agent("scripted:x", instructions=day), model=listening
    )
    assert report.same
    assert list_systems(listening)[0].endswith("It is day 1.")
    assert asked == ["day", "day"]


@pytest.mark.parametrize(
    ("instructions", "said"),
    [
        (7, "found 7"),
        (["Be kind.", 7], "found 7"),
        (lambda one, two: "", "takes 2 values"),
    ],
)
def test_what_is_no_instruction_is_refused(instructions: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Agent("scripted:x", instructions=instructions)


async def test_a_function_that_fails_or_says_no_text_ends_the_run_before_it_begins() -> None:
    def broken() -> str:
        raise LookupError("no calendar")

    def number() -> Any:
        return 7

    def wants_a_day(day: str) -> str:
        return day

    def wants_bytes(context: Context[bytes]) -> str:
        return context.deps.decode()

    journal = SqliteJournal(":memory:")
    agent = Agent(Scripted([]), instructions=broken, storage=Storage(journal=journal))
    with pytest.raises(LookupError, match="no calendar"):
        await agent.run("Hello")
    assert list(journal.sessions()) == []
    with pytest.raises(ConfigError, match="`number` returned int"):
        await Agent(Scripted([]), instructions=number).run("Hello")
    with pytest.raises(ConfigError, match="`day` of `wants_a_day` is no `Context`"):
        Agent(Scripted([]), instructions=wants_a_day)
    with pytest.raises(ConfigError, match="`wants_bytes` needs dependencies of type `bytes`"):
        Agent(Scripted([]), instructions=wants_bytes, deps_type=str)


async def test_two_runs_at_once_are_refused_also_while_a_function_is_asked() -> None:
    async def slow() -> str:
        await asyncio.sleep(0.01)
        return "Be kind."

    async def wait(history: Sequence[Message]) -> Step:
        await asyncio.sleep(0.1)
        return says("Hello")

    session = Agent(Scripted([wait]), instructions=slow).session()
    ends = await asyncio.gather(session.run("one"), session.run("two"), return_exceptions=True)
    assert [type(end).__name__ for end in ends] == ["RunResult", "ConfigError"]
    assert "is busy" in str(ends[1])
