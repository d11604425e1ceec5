"""Conversations with a served agent: their bounds, their questions, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ferrule import tool
from ferrule.engine.agent import Agent
from ferrule.models.scripted import Scripted, calls, says
from ferrule.servers.a2a import conversations as conversations_module
from ferrule.servers.a2a.conversations import Conversations, Task, TaskRefused, TaskUpdate
from grouped_options import grouped


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Any]:
    opened: list[tuple[Conversations, Agent]] = []

    def make(*steps: Any, **more: Any) -> Conversations:
        agent = Agent(Scripted(list(steps)), **grouped(journal=tmp_path / "journal.db", **more))
        opened.append((Conversations(agent), agent))
        return opened[-1][0]

    yield make
    for conversations, agent in opened:
        await conversations.close()
        await agent.close()


async def end(task: Task) -> TaskUpdate:
    async with asyncio.timeout(20):
        while (item := await task.updates.get()).kind in ("words",):
            pass
        return item


@tool(risk="medium")
def act() -> str:
    """Act."""
    return "acted"


async def test_a_question_that_nobody_answers_is_a_no(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations_module, "ANSWER_SECONDS", 0.05)
    conversations = made(calls(("act", {})), says("not allowed"), tools=[act])
    task = await conversations.start_task("t", "c", "act")
    assert (await end(task)).kind == "question"
    assert await end(task) == TaskUpdate("done", "not allowed")


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("yes", 1),
        ("YES!", 1),
        ("yes, go on", 1),
        ("y", 1),
        ("yesterday", 0),
        ("no, yes", 0),
        ("", 0),
        ("okay", 0),
    ],
)
async def test_only_words_that_begin_with_yes_are_a_yes(made: Any, words: str, runs: int) -> None:
    ran: list[int] = []

    @tool(risk="medium")
    def act() -> str:
        """Act."""
        ran.append(1)
        return ""

    conversations = made(calls(("act", {})), says("over"), tools=[act])
    task = await conversations.start_task("t", "c", "act")
    assert (await end(task)).kind == "question"
    task.receive(words)
    assert await end(task) == TaskUpdate("done", "over") and len(ran) == runs


async def test_tasks_and_conversations_are_bounded(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations_module, "MAX_TASKS", 2)
    conversations = made(
        calls(("act", {})), calls(("act", {})), says("a"), says("b"), says("c"), tools=[act]
    )
    first, second = (
        await conversations.start_task("1", "one", "go"),
        await conversations.start_task("2", "two", "go"),
    )
    assert (await end(first)).kind == (await end(second)).kind == "question"
    with pytest.raises(TaskRefused, match="2 tasks"):
        await conversations.start_task("3", "one", "go")
    monkeypatch.setattr(conversations_module, "MAX_TASKS", 9)
    with pytest.raises(TaskRefused, match="2 sessions"):
        await conversations.start_task("3", "three", "go")
    first.receive("no")
    assert (await end(first)).kind == "done"
    assert first.work is not None
    await asyncio.wait([first.work])
    assert (await end(await conversations.start_task("3", "three", "go"))).kind == "done"
    second.receive("no")
    assert (await end(second)).kind == "done"


async def test_messages_of_one_conversation_are_worked_one_after_another(made: Any) -> None:
    conversations = made(calls(("act", {})), says("first"), says("second"), tools=[act])
    first, second = (
        await conversations.start_task("1", "c", "go"),
        await conversations.start_task("2", "c", "go on"),
    )
    assert (await end(first)).kind == "question" and second.updates.empty()
    first.receive("yes")
    assert await end(first) == TaskUpdate("done", "first")
    assert await end(second) == TaskUpdate("done", "second")


async def test_a_cancelled_task_withdraws_its_question(made: Any) -> None:
    conversations = made(calls(("act", {})), tools=[act])
    task = await conversations.start_task("t", "c", "act")
    assert (await end(task)).kind == "question"
    await conversations.cancel_task("t")
    assert (await end(task)).kind == "canceled" and conversations.find_task("t") is None


async def test_a_task_that_is_cancelled_before_its_turn_ends(made: Any) -> None:
    conversations = made(calls(("act", {})), says("over"), tools=[act])
    first = await conversations.start_task("1", "c", "act")
    assert (await end(first)).kind == "question"
    second = await conversations.start_task("2", "c", "act")
    await asyncio.sleep(0)
    await conversations.cancel_task("2")
    assert (await end(second)).kind == "canceled"
    first.receive("no")
    assert await end(first) == TaskUpdate("done", "over")


async def test_a_fault_of_the_program_ends_its_task_and_is_logged_with_its_place(
    made: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down(_: Any) -> Any:
        raise LookupError("a table is gone")

    task = await made(break_down).start_task("1", "c", "go")
    assert await end(task) == TaskUpdate("failed", "the agent cannot work now (defect)")
    assert "in break_down" in caplog.text and "a table is gone" in caplog.text
