"""Budgets: money, calls and time of a run, with its agents and across processes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Agent, ConfigError, LimitReached, Limits, Scripted, tool
from ferrule.core.calls import ToolCall
from ferrule.core.events import (
    ContextCompacted,
    Event,
    ModelAnswered,
    Noticed,
    Recovered,
    RunStarted,
    SessionOpened,
    Usage,
)
from ferrule.core.identity import Identity
from ferrule.core.machine import Machine
from ferrule.engine.budgets import Budgets
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.models.prices import find_price
from ferrule.models.scripted import calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from grouped_options import grouped

RAN: list[int] = []
ONE_DOLLAR = Usage(1_000_000, 0)


def cost_of(model: str, usage: Usage) -> Decimal | None:
    """What one answer costs, in dollars; None if that is unknown."""
    price = find_price(model)
    return None if price is None else price(usage)


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    RAN.append(a + b)
    return a + b


@pytest.fixture(autouse=True)
def prices(own_folders: Path) -> Path:
    """A dollar for a million tokens of the scripted model, a tenth of it for cached ones."""
    RAN.clear()
    folder = own_folders / "config"
    folder.mkdir()
    file = folder / "prices.yaml"
    file.write_text("scripted:test: {input: 1, output: 10, cached: 0.1, written: 1.25}\n")
    return file


def adds(*sums: int, usage: Usage = ONE_DOLLAR) -> Any:
    return calls(*[("add", {"a": one, "b": 0}) for one in sums], usage=usage)


def agent(steps: list[Any], limits: Limits, **options: Any) -> Agent:
    options.setdefault("journal", SqliteJournal(":memory:"))
    return Agent(Scripted(steps), [add], **grouped(limits=limits, **options))


def journaled(ours: Agent, session: str) -> list[Event]:
    return [record.event for record in ours.journal.records(session)]


def notices(ours: Agent, session: str) -> list[str]:
    return [
        e.text for e in journaled(ours, session) if isinstance(e, Noticed) and e.topic == "budget"
    ]


@pytest.mark.proves("budgets.money")
async def test_a_run_over_its_money_is_stopped_before_its_calls_and_the_session_goes_on() -> None:
    ours = agent([adds(1), adds(2), says("ok", usage=ONE_DOLLAR)], Limits(max_cost=1.5))
    session = ours.session()
    with pytest.raises(LimitReached) as caught:
        await session.run("go")
    assert (caught.value.code, caught.value.limit, caught.value.value) == (
        "limit_max_cost",
        "max_cost",
        1.5,
    )
    assert caught.value.exit_code == 5 and caught.value.session == session.id
    assert RAN == [1]
    again = await session.run("go on")
    assert (again.text, again.cost) == ("ok", 1.0)


async def test_a_run_says_what_it_cost_wherever_the_price_is_known(prices: Path) -> None:
    steps = [adds(1, usage=Usage(500_000, 1000)), says("ok", usage=Usage(500_000, 0))]
    for limits in (Limits(max_cost=5), Limits()):
        assert (await agent(list(steps), limits).run("go")).cost == pytest.approx(1.01)
    prices.unlink()
    assert (await agent(list(steps), Limits()).run("go")).cost is None


async def test_a_broken_price_file_is_told_to_whoever_asks_for_the_cost(prices: Path) -> None:
    prices.write_text("scripted:test: {input: many}\n")
    result = await agent([adds(1), says("ok", usage=ONE_DOLLAR)], Limits()).run("go")
    assert result.text == "ok"
    with pytest.raises(ConfigError, match=r"prices\.yaml"):
        _ = result.cost


async def test_prices_are_looked_up_when_they_matter(
    prices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def note(model: str) -> Any:
        asked.append(model)
        return find_price(model)

    monkeypatch.setattr("ferrule.models.find_price", note)
    result = await agent([adds(1), says("ok", usage=ONE_DOLLAR)], Limits()).run("go")
    assert asked == []
    assert (result.cost, asked) == (2.0, ["scripted:test"])


async def test_what_sub_agents_cost_is_part_of_the_run_without_a_limit(prices: Path) -> None:
    asked = calls(("delegate", {"agent": "adder", "task": "add"}), usage=ONE_DOLLAR)
    steps = [asked, says("done", usage=ONE_DOLLAR), says("ok", usage=ONE_DOLLAR)]
    ours = agent(steps, Limits(), agents=[SubAgent("adder", "Adds.")])
    result = await ours.run("go")
    assert (result.text, result.cost) == ("ok", 3.0)
    ours = agent([*steps], Limits(), agents=[SubAgent("adder", "Adds.")])
    result = await ours.run("go")
    prices.unlink()
    assert result.cost is None


async def test_a_part_without_a_price_leaves_the_whole_without_one() -> None:
    known, unknown = Usage(10, 1, cost=5), Usage(10, 1)
    assert (known + known).cost == (Usage() + known + known).cost == 10
    assert (known + unknown).cost is (unknown + known).cost is None


def test_cached_and_written_tokens_have_their_own_price() -> None:
    usage = Usage(1_000_000, 100_000, cached=500_000, written=200_000)
    assert cost_of("scripted:test", usage) == Decimal("0.3") + 1 + Decimal("0.05") + Decimal("0.25")
    # As published: 3 for input, 0.3 for cached, 3.75 for written and 15 for output.
    published = cost_of("anthropic:claude-sonnet-4-5", Usage(1000, 10, cached=400, written=100))
    assert published == Decimal("0.002145")
    assert cost_of("local:smollm2", usage) == 0


@settings(deadline=None, max_examples=50)  # the published prices are loaded with the first one
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_of_the_same_tokens_cached_ones_never_cost_more(
    fresh: int, cached: int, written: int, output: int
) -> None:
    for model in ("scripted:test", "anthropic:claude-sonnet-4-5", "openai:gpt-5"):
        usage = Usage(fresh + cached + written, output, cached, written)
        some = cost_of(model, usage)
        none = cost_of(model, Usage(usage.input, output, 0, written))
        assert some is not None and none is not None and 0 <= some <= none


def test_a_persons_own_prices_go_before_the_published_ones(prices: Path) -> None:
    million = Usage(1_000_000, 0, cached=1_000_000)
    prices.write_text(
        "anthropic:claude-sonnet-4-5: {input: 2, output: 4}\nollama:*: {input: 0, output: 0}\n"
    )
    assert cost_of("anthropic:claude-sonnet-4-5", million) == 2
    assert cost_of("ollama:llama3.2", million) == 0
    assert cost_of("scripted:test", million) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scripted:test: {input: -1, output: 1}", r"prices.yaml:1:.*`input` must be US dollars"),
        ("scripted:test: {input: .inf, output: 1}", "`input` must be US dollars"),
        ("scripted:test: {input: 1}", "needs `input` and `output`"),
        ("scripted:test: {input: 1, output: 1, chached: 1}", "needs `input` and `output`"),
        ("other: {input: 1, output: 1}", "is not a model's name"),
        ("- 1", "must be a map"),
    ],
)
def test_a_mistake_in_the_prices_is_named_with_its_place(
    prices: Path, text: str, said: str
) -> None:
    prices.write_text(text)
    with pytest.raises(ConfigError, match=said):
        cost_of("scripted:test", Usage(1, 1))


@pytest.mark.proves("budgets.unknown-price")
async def test_a_model_without_a_price_is_refused_before_it_is_asked(prices: Path) -> None:
    prices.unlink()
    ours = agent([says("never")], Limits(max_cost=1))
    with pytest.raises(ConfigError, match="the price of `scripted:test` is not known") as caught:
        await ours.run("go")
    assert caught.value.code == "price_unknown" and "prices.yaml" in caught.value.hint
    assert ours.model_client.asks == []  # type: ignore[attr-defined]


async def test_calls_are_counted_over_all_rounds_and_none_of_those_over_the_bound_runs() -> None:
    ours = agent([adds(1, 2), adds(3), adds(4, 5), says("never")], Limits(max_calls=4))
    session = ours.session()
    with pytest.raises(LimitReached, match="max_calls = 4"):
        await session.run("go")
    assert sorted(RAN) == [1, 2, 3]
    assert [r.success for r in session.driver.machine.results()] == [True, True, True, False, False]
    exactly = await agent([adds(1, 2), adds(3), says("ok")], Limits(max_calls=3)).run("go")
    assert exactly.text == "ok"


@pytest.mark.proves("budgets.warning")
async def test_a_person_is_told_once_for_each_bound_when_its_share_is_passed() -> None:
    limits = Limits(max_cost=5, max_calls=4, max_tokens=10**9, warn_at=0.5)
    ours = agent([adds(1), adds(2), adds(3), adds(4), says("ok")], limits)
    result = await ours.run("go")
    assert notices(ours, result.session) == [
        "2 of 4 calls are used (max_calls)",
        "3 of 5 dollars are used (max_cost)",
    ]


async def test_agents_draw_from_the_money_and_calls_of_the_run() -> None:
    asked = calls(("delegate", {"task": "t", "agent": "adder"}), usage=ONE_DOLLAR)
    adder = SubAgent("adder", "Adds.", tools=["add"])
    ours = agent(
        [asked, adds(1), says("two", usage=ONE_DOLLAR), says("ok")],
        Limits(max_cost=4),
        agents=[adder],
    )
    result = await ours.run("go")
    assert (result.text, result.cost) == ("ok", 3.0)
    ours = agent([asked, adds(1), adds(2), says("never")], Limits(max_cost=2.5), agents=[adder])
    with pytest.raises(LimitReached, match=r"max_cost = 2\.5"):
        await ours.run("go")
    assert RAN == [1, 1]
    ours = agent([asked, adds(1), adds(2), says("never")], Limits(max_calls=2), agents=[adder])
    with pytest.raises(LimitReached, match="max_calls = 2"):
        await ours.run("go")
    assert RAN == [1, 1, 1]


@pytest.mark.proves("budgets.warning")
async def test_what_an_agent_used_is_told_as_what_the_run_used() -> None:
    asked = calls(("delegate", {"task": "t", "agent": "adder"}))
    steps = [asked, says("two", usage=ONE_DOLLAR), says("ok")]
    ours = agent(steps, Limits(max_cost=1.1), agents=[SubAgent("adder", "Adds.", tools=["add"])])
    result = await ours.run("go")
    assert notices(ours, result.session) == ["1 of 1.1 dollars are used (max_cost)"]


async def test_an_agent_whose_model_has_no_price_is_not_asked() -> None:
    asked = calls(("delegate", {"task": "t", "agent": "other"}))
    other = Scripted([says("never")], model="scripted:other")
    agents = [SubAgent("other", "O.", tools=["add"], model="scripted:other")]
    ours = agent([asked, says("ok")], Limits(max_cost=4), agents=agents, connect=lambda name: other)
    result = await ours.run("go")
    assert "the price of `scripted:other` is not known" in (result.results[0].error_message or "")
    assert other.asks == []


def left_open(journal: SqliteJournal, limits: Limits, spent: Usage, seconds: int = 1) -> str:
    """A session whose process died while a call of its only round ran."""
    who = Identity("local", "me", "s1", "r1")
    events: list[Event] = [
        SessionOpened("scripted:test", tools=("add",)),
        RunStarted("go", "scripted:test", limits),
        ModelAnswered("", (ToolCall("c1", "add", '{"a":1,"b":1}'),), usage=spent),
    ]
    journal.append("s1", "r1", events, identity=who, times=[0, 0, seconds * 1000])
    return "s1"


@pytest.mark.proves("budgets.resumed")
async def test_what_was_spent_before_a_crash_counts_after_it() -> None:
    spent = Usage(1_000_000, 0, cost=1_000_000_000)
    for limits, code in (
        (Limits(max_cost=1.5), "limit_max_cost"),
        (Limits(max_tokens=1_500_000), "limit_max_tokens"),
        (Limits(max_calls=1), "limit_max_calls"),
    ):
        for family in (None, [SubAgent("adder", "Adds.", tools=["add"])]):
            journal = SqliteJournal(":memory:")
            ours = agent(
                [adds(3), says("never")], limits, journal=journal, user="me", agents=family
            )
            session = ours.resume(left_open(journal, limits, spent))
            with pytest.raises(LimitReached) as caught:
                await session.resume()
            assert caught.value.code == code
            # The call that was running runs again, as it only reads; that of the next answer does
            # not.
            assert RAN == [2]
            RAN.clear()


@pytest.mark.proves("budgets.resumed")
async def test_the_time_of_a_run_that_is_gone_on_with_does_not_begin_anew() -> None:
    journal, limits = SqliteJournal(":memory:"), Limits(max_seconds=60)
    ours = agent([adds(2), says("ok")], limits, journal=journal, user="me")
    session = ours.resume(left_open(journal, limits, Usage(), seconds=61))
    with pytest.raises(LimitReached) as caught:
        await session.resume()
    assert caught.value.limit == "max_seconds"
    # A new message has all of its time.
    assert (await session.run("again")).text == "ok"


@pytest.mark.proves("budgets.resumed")
def test_time_in_which_no_process_drove_the_run_does_not_count() -> None:
    from ferrule.engine.budgets import count_seconds

    journal = SqliteJournal(":memory:")
    left_open(journal, Limits(), Usage(), seconds=5)
    who = Identity("local", "me", "s1", "r1")
    later: list[Event] = [Recovered("gone", asks=True), Noticed("x", "y")]
    journal.append("s1", "r1", later, identity=who, times=[900_000, 902_000])
    assert count_seconds(journal.records("s1")) == 7.0


@pytest.mark.proves("budgets.money")
@pytest.mark.parametrize(
    ("writer", "dollars"), [("scripted:dear", 100), ("scripted:unlisted", 1), ("", 1)]
)
def test_a_summary_is_counted_by_the_price_of_its_own_model(
    prices: Path, writer: str, dollars: int
) -> None:
    with prices.open("a") as file:
        file.write("scripted:dear: {input: 100, output: 100}\n")
    fed: list[Event] = []
    budgets = Budgets(Machine(), Limits(max_cost=500), "scripted:test", lambda topic, text: None)
    summary = ContextCompacted(usage=ONE_DOLLAR, model=writer)
    budgets.count_answer(summary, lambda event: fed.append(event) or [])
    assert [event.usage.cost for event in fed] == [dollars * 1_000_000_000]  # type: ignore[union-attr]


@pytest.mark.proves("budgets.money")
@pytest.mark.parametrize(
    "wrong", [{"max_cost": 0}, {"max_cost": float("nan")}, {"max_calls": 0}, {"warn_at": 0}]
)
def test_a_bound_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Limits(**wrong)
