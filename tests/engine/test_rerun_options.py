"""A recorded session run again has the options it had: how calls are joined, and which tools must have
succeeded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrule import Agent, Permissions, Storage
from ferrule.engine.hooks.call_hooks import Hook
from ferrule.engine.live_events import Live, TextDelta
from ferrule.engine.replay.recording import Recording
from ferrule.engine.replay.rerun import rerun
from ferrule.engine.session import Session
from ferrule.models.client import ModelClient
from ferrule.models.scripted import Scripted, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal


def north() -> str:
    """Look north."""
    return "snow"


def south() -> str:
    """Look south."""
    return "sun"


class Rehearsed(Agent):
    """Remembers the sessions that it was run again in, and the text that was shown in them."""

    rehearsed: list[Session]
    shown: str = ""

    def open_rehearsal(
        self, model: str | ModelClient, answers: Hook | None, **recorded: Any
    ) -> tuple[Agent, Session]:
        made, session = super().open_rehearsal(model, answers, **recorded)
        self.rehearsed.append(session)
        session.observe(self._show)
        return made, session

    def _show(self, item: Live) -> None:
        if isinstance(item, TextDelta):
            self.shown += item.text


def agent_of(*tools: Callable[[], str]) -> Rehearsed:
    journal = SqliteJournal(":memory:")
    agent = Rehearsed(
        "scripted:none",
        tools or [north, south],
        permissions=Permissions(allow=["north", "south"]),
        storage=Storage(journal=journal, user="me"),
    )
    agent.rehearsed = []
    return agent


async def recorded() -> Recording:
    """A run that asks for one success of two, and for a look in some direction."""
    agent = agent_of()
    agent.change_model(Scripted([calls(("north", {}), ("south", {})), says("looked")]))
    session = agent.session()
    result = await session.run(
        "look", join="first_success", require_successful_tools=[["north", "south"], "north"]
    )
    assert result.stop == "done"
    await session.close()
    return Recording.of(agent.journal.records(session.id))


async def test_whoever_watches_sees_the_recorded_answers_come() -> None:
    agent = agent_of()
    again = await rerun(await recorded(), agent, tools="live")
    assert again.runs[0].text == "looked"
    assert agent.shown == "looked"


async def test_a_model_that_does_not_do_what_was_required_fails_again_as_it_would_have() -> None:
    recording = await recorded()
    again = await rerun(recording, agent_of(), model=Scripted([says("nothing was looked at")]))
    assert (again.runs[0].stop, again.runs[0].recorded_stop) == ("failed", "done")
    assert not again.same


async def test_the_join_is_the_recorded_one_and_tools_that_are_gone_are_not_required() -> None:
    recording = await recorded()
    started = recording.messages[0]
    assert (started.join, started.require) == (1, ("north|south", "north"))
    agent = agent_of(south)
    again = await rerun(
        recording, agent, model=Scripted([calls(("south", {})), says("looked")]), tools="live"
    )
    assert [(session.defaults.join, session.defaults.require) for session in agent.rehearsed] == [
        (1, ("south",))
    ]
    assert again.missing == ("north",)
    assert again.runs[0].stop == "done"


class Closing(Scripted):
    """A model client that counts how often it was closed."""

    closes = 0

    async def close(self) -> None:
        self.closes += 1
        await super().close()


async def test_a_model_that_a_recording_was_run_again_with_is_disconnected_afterwards() -> None:
    recording = await recorded()
    model = Closing([says("looked")])
    await rerun(recording, agent_of(), model=model)
    assert model.closes == 1
