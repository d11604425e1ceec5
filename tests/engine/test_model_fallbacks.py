"""Several models for one run: who is asked after an error or near the end of a budget, and what the
journal says of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError, FerruleError, ProviderError
from ferrule.core.events import ModelAnswered, Noticed, Usage
from ferrule.core.limits import Limits
from ferrule.core.messages import AssistantMessage
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Storage
from ferrule.engine.live_events import TextDelta
from ferrule.engine.model_fallbacks import ERROR_CLASSES, ModelFallbacks, classify_error
from ferrule.engine.replay.replay import replay
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.client import Capabilities, ModelOptions
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.scripted import Scripted, Step, calls, fails, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.statistics.spending import Spending
from ferrule.testing.http_double import HttpDouble, Reply
from ferrule.tools.decorator import tool

BUSY = fails(ProviderError("529 overloaded", code="overloaded", retryable=False))
LOST = fails(ProviderError("nobody there", code="unreachable", retryable=False))
WRONG = fails(ProviderError("that is no request", code="http_400", retryable=False))


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def agent_of(
    *models: Sequence[Any], journal: Any = None, limits: Limits | None = None, **given: Any
) -> AsyncGenerator[tuple[Agent[None, str], list[Scripted]]]:
    """An agent with scripted models named `scripted:a`, `scripted:b` and so on."""
    clients = [
        Scripted(steps, model=f"scripted:{name}")
        for name, steps in zip("abc", models, strict=False)
    ]
    agent = Agent(
        ModelFallbacks(tuple(clients), **given),
        [add],
        storage=Storage(journal=journal or SqliteJournal(":memory:")),
        limits=limits,
    )
    try:
        yield agent, clients
    finally:
        await agent.disconnect()


def run(story: Any) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(20):
            return await story

    return asyncio.run(within())


def records_of(agent: Agent[Any, Any], session: str) -> list[Any]:
    return list(agent.journal.records(session))


def answerers(records: list[Any]) -> list[str]:
    return [one.event.model for one in records if isinstance(one.event, ModelAnswered)]


def notices(records: list[Any]) -> list[str]:
    events = [one.event for one in records]
    return [one.text for one in events if isinstance(one, Noticed) and one.topic == "fallback"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_the_next_model_answers_for_one_that_fails_and_the_journal_says_so(streamed: bool) -> None:
    async def story() -> None:
        first = [BUSY, says("Hello again.")]
        second = [calls(("add", {"a": 1, "b": 2}, "c1")), says("It is 3.")]
        async with agent_of(first, second) as (agent, clients):
            session = agent.session()
            if streamed:
                async for _ in session.stream("1+2?"):
                    pass
            else:
                assert (await session.run("1+2?")).text == "It is 3."
            records = records_of(agent, session.id)
            # The whole run stays with the model that answered.
            assert answerers(records) == ["scripted:b", "scripted:b"]
            [said] = notices(records)
            assert said == ("scripted:a: 529 overloaded (busy); continuing with scripted:b")
            # The next run begins with the first again.
            assert (await session.run("Hello?")).text == "Hello again."
            assert answerers(records_of(agent, session.id))[-1] == ""
            await session.close()
            for client in clients:
                client.assert_finished()

    run(story())


def test_every_model_may_fail_and_the_last_error_is_the_runs() -> None:
    async def story() -> None:
        async with agent_of([BUSY], [LOST], [BUSY]) as (agent, _):
            with pytest.raises(ProviderError, match="529") as raised:
                await agent.run("Hello")
            assert raised.value.code == "overloaded"

    run(story())


def test_an_error_that_another_model_would_not_help_with_ends_the_run() -> None:
    async def story() -> None:
        async with agent_of([WRONG], []) as (agent, clients):
            with pytest.raises(ProviderError, match="no request"):
                await agent.run("Hello")
            assert clients[1].asks == []
        async with agent_of([BUSY], [], on=("unreachable",)) as (agent, clients):
            with pytest.raises(ProviderError, match="529"):
                await agent.run("Hello")
            assert clients[1].asks == []

    run(story())


def test_codes_have_one_class_each_and_those_of_servers_are_busy() -> None:
    listed = [code for codes in ERROR_CLASSES.values() for code in codes]
    assert len(listed) == len(set(listed))
    for code, expected in (("http_503", "busy"), ("quota", "account"), ("http_400", "")):
        assert classify_error(ProviderError("x", code=code)) == expected
    # A client of one's own may give a status alone.
    by_status = {429: "busy", 503: "busy", 400: "broken", None: "broken"}
    for status, expected in by_status.items():
        assert classify_error(ProviderError("x", status=status)) == expected


def test_an_answer_that_was_partly_seen_is_not_begun_again_by_another_model() -> None:
    start = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
    headers = {"content-type": "text/event-stream"}

    async def story() -> None:
        broken = Reply(200, [start], headers=headers, then="drop")
        async with HttpDouble(lambda request: broken) as server:
            first = OpenAIChat("m", base_url=f"{server.url}/v1", api_key="k")
            agent = Agent([first, Scripted([says("never")], model="scripted:b")], [])
            seen: list[str] = []
            with pytest.raises(ProviderError) as raised:
                async for item in agent.stream("Hello"):
                    seen += [item.text] if isinstance(item, TextDelta) else []
            await first.close()
            assert ("".join(seen), raised.value.code) == ("Hel", "interrupted")

    run(story())


def test_a_model_that_cannot_even_be_asked_what_it_can_do_is_passed_over() -> None:
    async def story() -> None:
        async with HttpDouble(lambda request: Reply(401, json={"error": "who are you"})) as server:
            first = Anthropic("claude-x", base_url=server.url, api_key="wrong")
            agent = Agent([first, Scripted([says("Hello.")], model="scripted:b")], [add])
            session = agent.session()
            assert (await session.run("Hello")).text == "Hello."
            [said] = notices(records_of(agent, session.id))
            assert "anthropic:claude-x" in said and "(account)" in said
            await session.close()
            await first.close()

    run(story())


def test_each_model_is_asked_in_its_own_tool_mode() -> None:
    async def story() -> None:
        first = Scripted([BUSY], model="scripted:a")
        written = '```json\n{"tool": "add", "arguments": {"a": 1, "b": 2}}\n```'
        no_tools = Capabilities(False, False, source="test")
        second = Scripted([says(written), says("3")], model="scripted:b", capabilities=no_tools)
        agent = Agent([first, second], [add])
        session = agent.session()
        assert (await session.run("1+2?")).text == "3"
        modes = [
            one.event.tool_mode
            for one in records_of(agent, session.id)
            if isinstance(one.event, ModelAnswered)
        ]
        assert modes == ["text", "text"]
        assert (len(first.opened[0].tools), len(second.opened[0].tools)) == (1, 0)
        await session.close()

    run(story())


def test_near_the_end_of_a_budget_the_second_model_goes_on() -> None:
    async def story() -> None:
        first = [Step("", (ToolCall("c1", "add", '{"a":1,"b":2}'),), usage=Usage(700, 50))]
        limits = Limits(max_tokens=1000)
        async with agent_of(first, [says("3")], at_budget=0.7, limits=limits) as (agent, _):
            session = agent.session()
            assert (await session.run("1+2?")).text == "3"
            records = records_of(agent, session.id)
            assert answerers(records) == ["", "scripted:b"]
            assert notices(records) == [
                "scripted:a: the run's budget is nearly used up; continuing with scripted:b"
            ]
            await session.close()

    run(story())


def test_money_is_counted_by_the_price_of_the_model_that_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = tmp_path / "config" / "prices.yaml"
    monkeypatch.setattr("ferrule.storage.paths.config", lambda: prices.parent)
    prices.parent.mkdir()
    prices.write_text("scripted:a: {input: 100, output: 100}\nscripted:b: {input: 1, output: 1}\n")

    async def story() -> None:
        answer = Step("3", usage=Usage(1_000_000, 0))
        limits = Limits(max_cost=500)
        async with agent_of([BUSY], [answer], limits=limits) as (agent, _):
            session = agent.session()
            result = await session.run("1+2?")
            assert result.usage.cost == 1_000_000_000
            spending = Spending()
            for record in records_of(agent, session.id):
                spending.feed(record)
            await session.close()
        prices.write_text("scripted:a: {input: 100, output: 100}\n")
        async with agent_of([], [], limits=limits) as (agent, _):
            with pytest.raises(ConfigError, match="scripted:b"):
                await agent.run("1+2?")

    run(story())


def test_a_run_with_fallbacks_is_replayed_and_resumed(tmp_path: Path) -> None:
    place = tmp_path / "journal.db"
    call = calls(("add", {"a": 1, "b": 2}, "c1"))

    async def begin() -> str:
        async with agent_of([BUSY], [call, WRONG], journal=SqliteJournal(place)) as (agent, _):
            session = agent.session()
            with pytest.raises(FerruleError):
                await session.run("1+2?")
            await session.close()
            agent.journal.close()
            return session.id

    async def go_on(id: str) -> None:
        async with agent_of([LOST], [says("It is 3.")], journal=SqliteJournal(place)) as (
            agent,
            clients,
        ):
            session = agent.resume(id)
            assert (await session.run("Go on.")).text == "It is 3."
            # The second model reads what it said before.
            said = clients[1].histories[0][1]
            assert isinstance(said, AssistantMessage) and said.calls[0].tool == "add"
            records = records_of(agent, id)
            assert answerers(records) == ["scripted:b", "scripted:b"]
            assert len(notices(records)) == 2
            assert replay(records).same
            await session.close()
            agent.journal.close()

    run(go_on(run(begin())))


def test_a_list_of_models_is_checked_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="no"):
        Agent([], [])
    with pytest.raises(ConfigError, match="`slow`"):
        ModelFallbacks(("a:b",), on=("slow",))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="at_budget"):
        ModelFallbacks(("a:b",), at_budget=1.5)
    models = ["openai:gpt-5.5", "anthropic:claude-sonnet-5"]
    with pytest.raises(ConfigError, match=r"anthropic:claude-sonnet-5.*`seed`"):
        Agent(models, [], model_options=ModelOptions(seed=7))
    agent = Agent(models, [])
    assert agent.model == "openai:gpt-5.5"
    assert [other.name for other in agent.connection.others] == ["anthropic:claude-sonnet-5"]
    assert Agent(["openai:x"], []).connection.fallbacks is None
