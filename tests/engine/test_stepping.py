"""A run a step at a time: paused before each request and each call, changed, and gone on with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import pytest

from ferrule import (
    WRITES,
    Agent,
    CallStep,
    LimitReached,
    Limits,
    ModelStep,
    Permissions,
    RunResult,
    Scripted,
    Storage,
    tool,
)
from ferrule.core.events import CallHooked
from ferrule.core.messages import Message
from ferrule.engine.replay.replay import replay
from ferrule.models.scripted import Step, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal

ran: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    ran.clear()


@tool(side_effect="write", risk="safe")
async def write(name: Annotated[str, WRITES]) -> str:
    """Write a file."""
    ran.append(name)
    return f"wrote {name}"


def two_turns(asked: list[int]) -> Scripted:
    def call(history: Sequence[Message]) -> Step:
        asked.append(len(history))
        return calls(("write", {"name": "a"}), ("write", {"name": "b"}))

    def say(history: Sequence[Message]) -> Step:
        asked.append(len(history))
        return says("Done.")

    return Scripted([call, say])


async def test_a_run_after_one_that_was_stepped_through_is_not_paused() -> None:
    turns = Scripted([says("one"), calls(("write", {"name": "a"})), says("two")])
    session = Agent(turns, tools=[write], permissions=Permissions(allow=["write"])).session()
    assert len([step async for step in session.step("stop and go")]) == 2
    async with asyncio.timeout(10):
        assert (await session.run("go")).text == "two"
    assert ran == ["a"]


async def test_nothing_happens_until_the_next_step_is_asked_for() -> None:
    asked: list[int] = []
    session = Agent(
        two_turns(asked), tools=[write], permissions=Permissions(allow=["write"])
    ).session()
    seen: list[str] = []
    async for step in session.step("Write both"):
        await asyncio.sleep(0.02)
        match step:
            case ModelStep():
                assert len(asked) == step.turn - 1
                seen.append(f"model {step.turn} {len(step.history)}")
            case CallStep():
                assert step.arguments["name"] not in ran
                seen.append(f"call {step.call.tool} {step.call.arguments}")
            case RunResult():
                seen.append(step.text)
    assert seen == [
        "model 1 1",
        'call write {"name":"a"}',
        'call write {"name":"b"}',
        "model 2 4",
        "Done.",
    ]
    assert ran == ["a", "b"]


async def test_a_step_changes_answers_or_refuses_a_call_and_the_journal_says_so() -> None:
    model = Scripted(
        [
            calls(("write", {"name": "a"}), ("write", {"name": "b"}), ("write", {"name": "c"})),
            says("never asked for"),
        ]
    )
    journal = SqliteJournal(":memory:")
    session = Agent(
        model,
        tools=[write],
        permissions=Permissions(allow=["write"]),
        storage=Storage(journal=journal),
    ).session()
    async for step in session.step("Write all"):
        match step:
            case CallStep(arguments={"name": "a"}):
                step.change(name="z")
            case CallStep(arguments={"name": "b"}):
                step.answer("was there")
            case CallStep(arguments={"name": "c"}):
                step.refuse("not today")
            case ModelStep(turn=2):
                step.answer("Enough.")
            case RunResult():
                found = {(one.success, one.data, one.error_message) for one in step.results}
                assert step.text == "Enough."
            case _:
                pass
    assert ran == ["z"]
    assert (True, "wrote z", None) in found
    assert (True, "was there", None) in found
    assert any("not today" in str(message) for _, _, message in found)
    records = list(journal.records(session.id))
    verdicts = [one.event.verdict for one in records if isinstance(one.event, CallHooked)]
    assert sorted(verdicts) == ["answer", "block", "change"]
    assert replay(records).same


async def test_changed_arguments_are_checked_and_decided_again() -> None:
    agent = Agent(
        Scripted([calls(("write", {"name": "a"})), calls(("write", {"name": "a"})), says("Done.")]),
        tools=[write],
        permissions=Permissions(allow=["write"], deny=["write(secret)"]),
    )
    changes: list[dict[str, object]] = [{"name": "secret"}, {"name": 7}]
    async for step in agent.session().step("Write"):
        if isinstance(step, CallStep):
            step.change(**changes.pop(0))
        if isinstance(step, RunResult):
            assert [one.error_type for one in step.results] == [
                "permission_denied",
                "validation_failed",
            ]
    assert ran == []


async def test_leaving_the_loop_cancels_the_run_and_the_next_one_is_not_paused() -> None:
    session = Agent(
        Scripted([calls(("write", {"name": "a"})), says("Done.")]), tools=[write]
    ).session()
    steps = session.step("Write")
    async for step in steps:
        assert session.is_running
        if isinstance(step, CallStep):
            break
    await steps.aclose()
    assert ran == []
    assert not session.is_running
    assert (await session.run("And now?")).text == "Done."


async def test_what_the_run_raises_comes_after_the_last_step() -> None:
    agent = Agent(
        Scripted([calls(("write", {"name": "a"}))]),
        tools=[write],
        permissions=Permissions(allow=["write"]),
        limits=Limits(max_turns=1),
    )
    seen: list[type] = []
    with pytest.raises(LimitReached):
        async for step in agent.session().step("Write"):
            seen.append(type(step))
    assert seen == [ModelStep, CallStep]
