"""`Host(make_deps=...)` makes the dependencies of runs that are given none, on every way in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, ConfigError, Context, Host, Scripted, Storage, SubAgent, tool
from ferrule.core.identity import Identity
from ferrule.plugins import Parts
from ferrule.testing import calls, says


@dataclass
class Desk:
    user: str
    number: int


@tool(side_effect="none")
def who(context: Context[Desk]) -> str:
    """Say whose desk this is."""
    return f"{context.deps.user} {context.deps.number}"


class Desks:
    def __init__(self) -> None:
        self.made: list[Desk] = []

    def make(self, identity: Identity) -> Desk:
        self.made.append(Desk(identity.user, len(self.made) + 1))
        return self.made[-1]


def make_agent(
    desks: Desks, script: list[Any], journal: Path | str = ":memory:", **more: Any
) -> Any:
    return Agent(
        Scripted(script),
        [who],
        deps_type=Desk,
        host=Host(make_deps=desks.make),
        storage=Storage(journal=journal, user="ada"),
        **more,
    )


ASK = [calls(("who", {})), says("done")]


async def test_each_run_has_its_own_and_knows_whose_it_is() -> None:
    agent = make_agent(Desks(), ASK * 3)
    session = agent.session()
    assert [(await session.run("go")).results[0].data for _ in range(2)] == ["ada 1", "ada 2"]
    assert (await session.call("who")).data == "ada 3"
    assert (await agent.copy_for_user("eve").run("go")).results[0].data == "eve 4"


async def test_they_may_be_made_asynchronously() -> None:
    made: list[str] = []

    async def make(identity: Identity) -> Desk:
        await asyncio.sleep(0)
        made.append(identity.session)
        return Desk(identity.user, len(made))

    agent = Agent(
        Scripted(ASK * 3),
        [who],
        deps_type=Desk,
        host=Host(make_deps=make),
        storage=Storage(user="ada"),
    )
    session = agent.session()
    assert (await session.run("go")).results[0].data == "ada 1"
    assert (await session.call("who")).data == "ada 2"
    assert [item async for item in session.stream("go")]
    assert made == [session.id] * 3


async def test_two_runs_that_wait_for_theirs_do_not_begin_together() -> None:
    async def make(identity: Identity) -> Desk:
        await asyncio.sleep(0)
        return Desk(identity.user, 1)

    host = Host(make_deps=make)
    session = Agent(Scripted(ASK), [who], deps_type=Desk, host=host).session()
    ends = await asyncio.gather(session.run("a"), session.run("b"), return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["ConfigError", "RunResult"]


async def test_those_that_are_given_come_first() -> None:
    desks = Desks()
    agent = make_agent(desks, ASK * 3)
    session = agent.session()
    run = await session.run("go", deps=Desk("given", 0))
    again = await session.run("go")
    assert [one.results[0].data for one in (run, again)] == ["given 0", "given 0"]
    with agent.override(deps=Desk("test", 0)):
        assert (await agent.run("go")).results[0].data == "test 0"
    assert desks.made == []


async def test_a_resumed_run_and_a_keyed_run_get_theirs(tmp_path: Path) -> None:
    desks = Desks()
    agent = make_agent(desks, ASK, tmp_path / "j.db")
    run = await agent.run("go", key="a")
    assert run.results[0].data == "ada 1"
    session = agent.resume(run.session)
    assert (await session.call("who")).data == "ada 2"
    await session.close()
    await agent.close()


async def test_what_cannot_be_made_is_an_error_with_its_cause() -> None:
    def fail(identity: Identity) -> Desk:
        raise OSError("no database")

    async def fail_later(identity: Identity) -> Desk:
        raise OSError("no database")

    said_of_both = "could not be made: OSError: no database"
    for make, said in ((fail, said_of_both), (fail_later, said_of_both), (str, "`str`")):
        host = Host(make_deps=make)
        agent = Agent(Scripted(ASK), [who], deps_type=Desk, host=host)
        with pytest.raises(ConfigError, match=said):
            await agent.run("go")


async def test_a_sub_agent_works_with_those_of_its_parent() -> None:
    desks = Desks()
    script = [calls(("delegate", {"task": "ask", "agent": "clerk"})), *ASK, says("over")]
    agent = make_agent(
        desks, script, plugins=[Parts(agents=[SubAgent("clerk", "Asks who.", tools=["who"])])]
    )
    await agent.run("go")
    assert len(desks.made) == 1
