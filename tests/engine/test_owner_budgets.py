"""Budgets of users and tenants: all their runs together, in whatever process, however they end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ferrule import (
    Agent,
    ConfigError,
    LimitReached,
    Limits,
    ProviderError,
    Scripted,
    Storage,
    SubAgent,
    tool,
)
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.identity import Identity
from ferrule.engine.rewind.rewind import fork
from ferrule.models.scripted import calls, fails, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.statistics.owner_spending import OwnerSpending

pytestmark = pytest.mark.proves("limits.of-owners")


@tool(side_effect="none")
def look() -> str:
    """Look."""
    return "nothing"


def look_again(tokens: int) -> Any:
    return calls(("look", {}), usage=Usage(tokens, 0))


def make_agent(*steps: Any, limits: Limits, journal: Any = None, **more: Any) -> Agent[Any, Any]:
    return Agent(Scripted(steps), [look], limits=limits, storage=Storage(journal=journal), **more)


def asked(agent: Agent[Any, Any]) -> int:
    model = agent.model_client
    assert isinstance(model, Scripted)
    return len(model.histories)


async def test_runs_that_end_at_another_limit_are_charged() -> None:
    limits = Limits(max_turns=2, user_tokens=20_000)
    agent = make_agent(*[look_again(6_000)] * 10, limits=limits)
    ends: list[str] = []
    for _ in range(3):
        with pytest.raises(LimitReached) as ended:
            await agent.run("Look around.")
        ends.append(ended.value.limit)
    assert ends == ["max_turns", "max_turns", "user_tokens"]
    assert asked(agent) == 4, "24,000 of 20,000: the last answer may exceed it, and no more"
    with pytest.raises(LimitReached) as raised:
        await agent.run("Look again.")
    assert raised.value.code == "limit_user_tokens" and raised.value.value == 20_000
    assert raised.value.exit_code == 5 and "last 30 days" in raised.value.hint


@pytest.mark.parametrize("end", ["failure", "cancelled", "output"])
def test_a_run_is_charged_however_it_ends(end: str) -> None:
    limits = Limits(user_tokens=100)

    async def hang(_: Any) -> Any:
        await asyncio.Event().wait()

    last: dict[str, Any] = {
        "failure": fails(ProviderError("down", code="unreachable")),
        "cancelled": hang,
        "output": says("no number", usage=Usage(1, 0)),
    }
    agent = make_agent(
        look_again(100), last[end], limits=limits, output_type=int if end == "output" else str
    )

    async def work() -> None:
        task = asyncio.create_task(agent.run("go"))
        while asked(agent) < 1:
            await asyncio.sleep(0)
        if end == "cancelled":
            task.cancel()
        with pytest.raises((Exception, asyncio.CancelledError)):
            await task
        with pytest.raises(LimitReached, match="user_tokens"):
            await agent.run("again")

    asyncio.run(work())


async def test_users_and_tenants_are_counted_apart_and_together() -> None:
    limits = Limits(user_tokens=100, tenant_tokens=150)
    agent = make_agent(*[says("hi", usage=Usage(60, 40))] * 9, limits=limits)

    async def ask(user: str, tenant: str) -> str:
        try:
            return (await agent.copy_for_user(user, tenant=tenant).run("hi")).text
        except LimitReached as error:
            return error.limit

    assert await ask("ada", "acme") == "hi"
    assert await ask("ada", "acme") == "user_tokens"
    assert await ask("ada", "other") == "hi", "another tenant has another Ada"
    assert await ask("bo", "acme") == "hi"
    assert await ask("cy", "acme") == "tenant_tokens"
    assert await ask("cy", "other") == "hi"
    plan = Limits(user_tokens=1_000)
    rich = agent.copy_for_user("ada", tenant="acme", limits=plan)
    assert (await rich.run("hi")).text == "hi"


async def test_two_journals_on_one_file_count_together(tmp_path: Path) -> None:
    program = f"""
from ferrule import Agent, Limits, Scripted, Storage
from ferrule.core.events import Usage
from ferrule.testing import says
agent = Agent(Scripted([says("hi", usage=Usage(70, 0))]), storage=Storage(journal={str(tmp_path / "a.db")!r}))
agent.copy_for_user("ada").run_sync("hi")
"""
    limits = Limits(user_tokens=100)
    agent = make_agent(
        *[says("hi", usage=Usage(10, 0))] * 9, limits=limits, journal=tmp_path / "a.db"
    )
    ada = agent.copy_for_user("ada")
    assert (await ada.run("hi")).text == "hi"
    subprocess.run([sys.executable, "-c", program], check=True)
    await ada.run("hi")
    await ada.run("hi")
    with pytest.raises(LimitReached, match="user_tokens"):
        await ada.run("hi")


async def test_runs_at_once_exceed_it_by_one_answer_each() -> None:
    limits = Limits(user_tokens=100)
    agent = make_agent(*[look_again(50)] * 40, limits=limits)
    runs = await asyncio.gather(*[agent.run("go") for _ in range(4)], return_exceptions=True)
    assert all(isinstance(one, LimitReached) and one.limit == "user_tokens" for one in runs)
    assert asked(agent) <= 4 + 1


async def test_sub_agents_are_counted_and_stopped() -> None:
    limits = Limits(user_tokens=100)
    asked_for = calls(("delegate", {"task": "t", "agent": "helper"}), usage=Usage(10, 0))
    helper = SubAgent("helper", "Helps.", tools=["look"], limits=Limits(max_turns=9))
    steps = [asked_for, look_again(60), look_again(60), look_again(60), says("never")]
    agent = make_agent(*steps, limits=limits, plugins=[Parts(agents=[helper])])
    with pytest.raises(LimitReached, match="user_tokens"):
        await agent.run("go")
    assert asked(agent) == 3, "10, 70, 130 of 100"
    assert len(agent.journal.sessions()) == 2, "the sub-agent has a session of its own"


async def test_money_is_counted_and_needs_a_price(own_folders: Path) -> None:
    agent = make_agent(says("hi"), limits=Limits(user_cost=1.0))
    with pytest.raises(ConfigError, match="price of `scripted:test` is not known"):
        await agent.run("hi")
    folder = own_folders / "config"
    folder.mkdir()
    (folder / "prices.yaml").write_text("scripted:test: {input: 1, output: 10}\n")
    agent = make_agent(*[says("hi", usage=Usage(600_000, 0))] * 9, limits=Limits(tenant_cost=1.0))
    await agent.run("hi")
    await agent.run("hi")
    with pytest.raises(LimitReached, match="tenant_cost"):
        await agent.run("hi")


@pytest.mark.parametrize(
    "options", [{"user_tokens": -1}, {"user_cost": float("inf")}, {"period_days": 0}]
)
def test_amounts_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Limits(**options)


# ---- what is counted, and how often it is read

ADA = Identity("acme", "ada", "none", "r")
NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)


class Reads(SqliteJournal):
    """Counts the records that are read."""

    read = 0

    def records(self, session: str, *, after: int = 0) -> Any:
        for record in super().records(session, after=after):
            self.read += 1
            yield record


_ticks = count()


def add_answer(journal: Any, session: str, tokens: int, days_ago: int) -> None:
    event = ModelAnswered("hi", usage=Usage(tokens, 0))
    when = int((NOW - timedelta(days=days_ago)).timestamp() * 1000) + next(_ticks)
    journal.append(session, "r", [event], identity=replace(ADA, session=session), times=[when])


def test_days_before_the_period_do_not_count() -> None:
    journal = Reads(":memory:")
    for days_ago in (40, 30, 29, 0):
        add_answer(journal, f"s{days_ago}", 10 ** days_ago.bit_length(), days_ago)
    spending = OwnerSpending(journal, now=lambda: NOW)
    assert spending.total("acme", "ada", 30).usage.input == 10**5 + 1
    assert spending.total("acme", "ada", 1).usage.input == 1
    assert spending.total("acme", None, 60).usage.input == 10**6 + 2 * 10**5 + 1
    assert spending.total("acme", "bo", 60).usage.input == 0


def test_only_what_is_new_is_read() -> None:
    journal = Reads(":memory:")
    for number in range(100):
        add_answer(journal, f"s{number}", 1, 0)
    spending = OwnerSpending(journal, now=lambda: NOW)
    assert spending.total("acme", "ada", 30).usage.input == 100 and journal.read == 100
    add_answer(journal, "s7", 1, 0)
    assert spending.total("acme", "ada", 30).usage.input == 101 and journal.read == 101
    assert spending.total("acme", None, 30).usage.input == 101 and journal.read == 101
    for number in range(50):
        add_answer(journal, f"t{number}", 1, 0)
    assert spending.total("acme", None, 30).usage.input == 151 and journal.read == 151


async def test_a_copied_session_counts_from_where_it_goes_on() -> None:
    agent = make_agent(*[says("hi", usage=Usage(10, 0))] * 9, limits=Limits())
    first = await agent.run("hi")
    name = fork(agent.journal, first.session, 1)
    session = agent.resume(name)
    await session.run("and")
    spending = OwnerSpending(agent.journal)
    assert spending.total("local", agent.user, 1).usage.input == 20


async def test_a_summary_on_demand_is_held_to_budgets() -> None:
    limits = Limits(user_tokens=100)
    agent = make_agent(says("one", usage=Usage(100, 0)), says("a summary"), limits=limits)
    session = agent.session()
    await session.run("first")
    with pytest.raises(LimitReached, match="user_tokens"):
        await session.compact()
    assert asked(agent) == 1
    await session.compact(summary=False)
