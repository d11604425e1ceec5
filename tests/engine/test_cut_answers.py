"""An answer that is cut, by a person or a connection: kept, marked, and read by the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ferrule import Agent, Scripted, Storage
from ferrule.cli.live_output import LiveOutput
from ferrule.cli.terminal import Terminal
from ferrule.core.errors import ProviderError, RunCancelled
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import Message
from ferrule.models.client import ModelOptions, Sink, ToolSpec
from ferrule.models.scripted import ScriptedExchange, says
from ferrule.storage import SqliteJournal
from ferrule.storage.export.steps import AnswerStep, StepReader

CUT = "the run was stopped: "


class Cutting(Scripted):
    """Streams a text in pieces for its first answer, and then does something else than to end it."""

    def __init__(self, pieces: Sequence[str], then: Callable[[], Any]) -> None:
        super().__init__([says("done")])
        self.pieces: Sequence[str] = pieces
        self.then = then

    def open(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ScriptedExchange:
        super().open(system, tools, options)
        return _CuttingExchange(self)


class _CuttingExchange(ScriptedExchange):
    def __init__(self, client: Cutting) -> None:
        super().__init__(client)
        self._cutting = client

    async def ask(
        self, history: Sequence[Message], *, sink: Sink | None = None, **more: Any
    ) -> ModelAnswered:
        client = self._cutting
        pieces = client.pieces
        client.pieces = ()
        if not pieces:
            return await super().ask(history, sink=sink, **more)
        assert sink is not None
        for piece in pieces:
            sink.add_text(piece)
        await client.then()
        raise AssertionError("it goes on for ever, or fails")


def make_agent(model: Scripted) -> Agent[None, str]:
    return Agent(model, storage=Storage(journal=SqliteJournal(":memory:")))


async def test_what_was_streamed_until_a_stop_is_on_the_screen_in_history_and_journal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arrived = asyncio.Event()

    async def hang() -> None:
        arrived.set()
        await asyncio.Event().wait()

    agent = make_agent(Cutting(["The answer ", "is 4"], hang))
    session = agent.session()
    session.observe(LiveOutput(Terminal(), session.history.find_call, live=True))
    running = asyncio.create_task(session.run("two and two?"))
    await arrived.wait()
    session.cancel()
    with pytest.raises(RunCancelled):
        await running
    assert session.history[0].text == "two and two?"
    assert session.history[-1].text.startswith("The answer is 4\n\n[cut here: " + CUT)
    assert (await session.run("and?")).text == "done"
    # Nothing of it is before the next answer.
    assert [message.text for message in session.history][-2:] == ["and?", "done"]
    records = list(agent.journal.records(session.id))
    story = StepReader()
    steps = [step for record in records for step in story.feed(record)]
    answers = [step.text for step in steps if isinstance(step, AnswerStep)]
    assert answers == ["The answer is 4\n[cut here]", "done"]
    await session.close()
    await agent.close()
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("The answer is 4\ndone\n", "[cut here]\n")


async def test_a_connection_that_breaks_costs_the_end_of_the_answer_alone() -> None:
    async def fail() -> None:
        raise ProviderError("the connection broke", code="connection", retryable=False)

    agent = make_agent(Cutting(["Half of ", "it"], fail))
    session = agent.session()
    session.observe(lambda item: None)
    with pytest.raises(ProviderError):
        await session.run("go")
    assert session.history[-1].text == f"Half of it\n\n[cut here: {CUT}the connection broke]"
    resumed = agent.resume(session.fork(1))
    assert resumed.history[-1].text == session.history[-1].text
    await resumed.close()
    assert (await session.run("and?")).text == "done"
    await session.close()
    await agent.close()
