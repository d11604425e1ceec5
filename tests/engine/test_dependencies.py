"""Dependencies with types: a program gives them to a run, and tools, instructions and outputs find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict

import pytest
from pydantic import BaseModel, ValidationInfo, field_validator

from ferrule import (
    Agent,
    ConfigError,
    Context,
    Limits,
    Permissions,
    RetryCall,
    Scripted,
    Storage,
    SubAgent,
    ToolCalling,
    ask_agent,
    tool,
)
from ferrule.core.events import DelegationStarted
from ferrule.engine.replay.recording import Recording
from ferrule.engine.replay.rerun import rerun
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal


@dataclass
class Shop:
    stock: dict[str, int]


class BookShop(Shop):
    pass


class HasStock(Protocol):
    stock: dict[str, int]


@tool
def count(item: str, context: Context[Shop]) -> int:
    """Count what is left."""
    return context.deps.stock[item]


@tool
async def sell(context: Context[Shop], item: str) -> int:
    """Sell one."""
    context.deps.stock[item] -= 1
    return context.deps.stock[item]


def asks_once() -> Scripted:
    return Scripted([calls(("count", {"item": "bolt"})), says("done")])


async def test_a_tool_finds_the_dependencies_of_its_run_and_no_model_sees_them() -> None:
    agent = Agent(asks_once(), tools=[count, sell], deps_type=Shop)
    run = await agent.run("How many?", deps=Shop({"bolt": 7}))
    assert [result.data for result in run.results] == [7]
    assert count.arguments.schema["properties"].keys() == {"item"}
    assert sell.arguments.schema["properties"].keys() == {"item"}


async def test_two_sessions_and_two_runs_have_their_own() -> None:
    script = [calls(("count", {"item": "bolt"})), says("done")]
    agent = Agent(Scripted([*script, *script, *script]), tools=[count], deps_type=Shop)
    one = agent.session(deps=Shop({"bolt": 1}))
    two = agent.session(deps=Shop({"bolt": 2}))
    assert (await one.run("go")).results[0].data == 1
    assert (await two.run("go")).results[0].data == 2
    assert (await one.run("go", deps=Shop({"bolt": 3}))).results[0].data == 3
    assert (await one.call("count", item="bolt")).data == 3
    assert (await two.call("count", item="bolt")).data == 2


async def test_a_resumed_session_is_given_them_again(tmp_path: Path) -> None:
    storage = Storage(journal=tmp_path / "journal.db")
    script = [calls(("count", {"item": "bolt"})), says("done")]
    agent = Agent(
        Scripted([*script, *script]),
        tools=[count],
        plugins=[Parts(agents=[SubAgent("clerk", "Counts.", "Count.", tools=["count"])])],
        deps_type=Shop,
        storage=storage,
    )
    first = await agent.run("go", deps=Shop({"bolt": 1}))
    session = agent.resume(first.session, deps=Shop({"bolt": 5}))
    assert (await session.run("again")).results[0].data == 5
    await session.close()
    bare = agent.resume(first.session)
    with pytest.raises(ConfigError, match=r"needs dependencies of type `Shop`.*given none"):
        await bare.run("again")
    for call in (
        bare.call("count", item="bolt"),
        bare.call_tool("count", {"item": "bolt"}),
        bare.delegate("Count.", "clerk"),
    ):
        with pytest.raises(ConfigError, match="given none"):
            await call
    await bare.close()


async def test_a_sub_agent_has_those_of_the_run_that_delegates() -> None:
    @tool
    async def ask(context: Context[Shop]) -> Any:
        """Ask the clerk."""
        return (await ask_agent(context, "How many?", "clerk"))["answer"]

    model = Scripted([calls(("count", {"item": "bolt"})), says("seven")])
    clerk = SubAgent("clerk", "Counts.", "Count.", tools=["count"])
    journal = SqliteJournal(":memory:")
    agent = Agent(
        model,
        tools=[ask, count],
        plugins=[Parts(agents=[clerk])],
        deps_type=Shop,
        storage=Storage(journal=journal),
    )
    session = agent.session(deps=Shop({"bolt": 7}))
    assert (await session.call("ask")).data == "seven"
    events = [record.event for record in journal.records(session.id)]
    (child,) = [event.session for event in events if isinstance(event, DelegationStarted)]
    results = Recording.of(journal.records(child)).results
    assert [result.data for _, result in results] == [7]


@pytest.mark.parametrize(
    ("deps_type", "fits"),
    [
        (None, False),
        (Shop, True),
        (BookShop, True),
        (BookShop | Shop, True),
        (Shop | int, False),
        (dict, False),
        (object, False),
        (Any, True),
    ],
)
def test_a_tool_that_asks_for_another_type_is_refused_where_the_agent_is_made(
    deps_type: Any, fits: bool
) -> None:
    if fits:
        Agent("scripted:x", tools=[count], deps_type=deps_type)
        return
    with pytest.raises(ConfigError, match="tool `count` needs dependencies of type `Shop`"):
        Agent("scripted:x", tools=[count], deps_type=deps_type)


def test_a_tool_without_a_wish_and_one_with_a_protocol_take_any() -> None:
    @tool
    def bare(context: Context) -> str:
        """Ask for nothing."""
        return str(context.deps)

    @tool
    def anything(context: Context[Any]) -> str:
        """Ask for anything."""
        return str(context.deps)

    @tool
    def protocol(context: Context[HasStock]) -> str:
        """Ask for what only a type checker can check."""
        return str(context.deps)

    Agent("scripted:x", tools=[bare, anything])
    Agent("scripted:x", tools=[bare, anything, protocol], deps_type=Shop)


async def test_a_run_with_none_or_others_is_refused_before_anything_is_asked() -> None:
    agent = Agent(Scripted([]), tools=[count], deps_type=Shop)
    with pytest.raises(ConfigError, match="`Shop`, and the run was given none") as none:
        await agent.run("go")
    assert "deps=" in (none.value.hint or "")
    wrong: Any = {"bolt": 1}
    with pytest.raises(ConfigError, match="`Shop`, and the run was given `dict`"):
        await agent.run("go", deps=wrong)
    with pytest.raises(ConfigError, match="`dict`, and the agent has none"):
        await Agent(Scripted([])).run("go", deps=wrong)


class Order(BaseModel):
    item: str

    @field_validator("item")
    @classmethod
    def is_known(cls, item: str, info: ValidationInfo) -> str:
        assert info.context is not None
        if item not in info.context.deps.stock:
            raise ValueError(f"there is no {item}")
        return item


async def test_validators_of_an_output_see_them() -> None:
    model = Scripted([says('{"item": "nut"}'), says('{"item": "bolt"}')])
    agent = Agent(model, output_type=Order, deps_type=Shop)
    run = await agent.run("Order something", deps=Shop({"bolt": 7}))
    assert run.output == Order.model_construct(item="bolt")
    assert run.turns == 2


@pytest.mark.parametrize("first", [True, False])
async def test_an_output_function_gets_the_context(first: bool) -> None:
    def book(context: Context[Shop], item: str, number: int) -> int:
        if context.deps.stock[item] < number:
            raise RetryCall("not so many")
        return context.deps.stock[item] - number

    def book_one(item: str, context: Context[Shop]) -> int:
        return context.deps.stock[item] - 1

    chosen: Callable[..., int] = book if first else book_one
    answers = ['{"item": "bolt", "number": 9}', '{"item": "bolt", "number": 2}']
    model = Scripted([says(answer) for answer in answers] if first else [says("bolt")])
    agent = Agent(model, output_type=chosen, deps_type=Shop)
    run = await agent.run("Order something", deps=Shop({"bolt": 7}))
    assert run.output == (5 if first else 6)
    with pytest.raises(ConfigError, match=r"the output function `book.*needs dependencies"):
        Agent("scripted:x", output_type=chosen)


async def test_a_recorded_run_needs_none_unless_its_calls_run_again() -> None:
    journal = SqliteJournal(":memory:")
    agent = Agent(asks_once(), tools=[count], deps_type=Shop, storage=Storage(journal=journal))
    first = await agent.run("How many?", deps=Shop({"bolt": 7}))
    recording = Recording.of(journal.records(first.session))
    again = Agent(asks_once(), tools=[count], deps_type=Shop)
    assert (await rerun(recording, again, model=asks_once())).same
    with pytest.raises(ConfigError, match="given none"):
        await rerun(recording, again, tools="live")
    report = await rerun(recording, again, tools="live", deps=Shop({"bolt": 7}))
    assert report.same
    other = await rerun(recording, again, tools="live", deps=Shop({"bolt": 8}))
    assert not other.same


async def test_a_test_replaces_model_tools_deps_and_instructions_for_a_while() -> None:
    @tool
    def count_none(item: str) -> int:
        """Count nothing."""
        return 0

    agent = Agent("openai:none", tools=[count], deps_type=Shop, instructions="Be exact.")
    script = Scripted([calls(("count_none", {"item": "bolt"})), says("none")])
    with agent.override(model=script, tools=[count_none], instructions="Be quick."):
        run = await agent.run("How many?", deps=Shop({"bolt": 7}))
        assert run.results[0].data == 0
        assert agent.session(deps=Shop({})).system.startswith("Be quick.")
    with agent.override(model=asks_once(), deps=Shop({"bolt": 99})):
        run = await agent.run("How many?", deps=Shop({"bolt": 7}))
        assert run.results[0].data == 99
    assert agent.model == "openai:none"
    assert [one.name for one in agent.catalog] == ["count"]
    assert agent.session(deps=Shop({})).system.startswith("Be exact.")


def test_what_was_replaced_is_there_again_after_an_error() -> None:
    agent = Agent("openai:none", tools=[count], deps_type=Shop)
    with pytest.raises(KeyError), agent.override(model=Scripted([]), deps=Shop({})):
        raise KeyError
    assert agent.model == "openai:none"
    wrong: Any = 7
    with pytest.raises(ConfigError, match="given `int`"), agent.override(deps=wrong):
        pass
    with pytest.raises(ConfigError, match="`count`"), Agent("scripted:x").override(tools=[count]):
        pass


def test_dependencies_of_a_protocol_or_a_typed_dict_are_replaced_unchecked() -> None:
    class Stock(TypedDict):
        bolt: int

    seen: list[object] = []

    def note(context: Context[Any]) -> str:
        seen.append(context.deps)
        return "Be exact."

    kinds: list[tuple[Any, Any]] = [(HasStock, Shop({})), (Stock, {"bolt": 1})]
    for kind, deps in kinds:
        agent = Agent(Scripted([says("ok")]), deps_type=kind, instructions=note)
        with agent.override(deps=deps):
            agent.run_sync("How many?")
    assert seen == [Shop({}), {"bolt": 1}]


async def test_an_override_takes_permissions_limits_and_hooks_and_gives_them_back() -> None:
    agent = Agent(asks_once(), [count], deps_type=Shop)
    before = (agent.gate, agent.approver, agent.limits, agent.hooks)
    shop = Shop({"bolt": 3})
    with agent.override(
        model=asks_once(), permissions=Permissions(deny=["count"]), limits=Limits(max_turns=7)
    ):
        denied = await agent.run("go", deps=shop)
        assert denied.results[0].error_type == "permission_denied" or not denied.results[0].success
        assert agent.limits.max_turns == 7
    assert (agent.gate, agent.approver, agent.limits, agent.hooks) == before
    assert (await agent.run("go", deps=shop)).results[0].data == 3


async def test_an_override_takes_output_storage_and_the_ways_of_calling(tmp_path: Path) -> None:
    agent = Agent(asks_once(), [count], deps_type=Shop)
    before = dict(vars(agent))
    shop = Shop({"bolt": 3})
    with agent.override(
        model=Scripted([calls(("count", {"item": "bolt"})), says("7")]),
        output_type=int,
        storage=Storage(journal=tmp_path / "j.db", artifacts=True, tenant="t", user="eve"),
        tool_calling=ToolCalling(results="envelope", parallel=False, search=False),
        context="off",
        run_options={"require_successful_tools": ["count"]},
    ):
        run = await agent.run("go", deps=shop)
        assert run.output == 7
        assert (agent.user, agent.tenant, agent.results, agent.parallel) == (
            "eve",
            "t",
            "envelope",
            False,
        )
        assert agent.journal.find(run.session, tenant="t", user="eve").session == run.session
        assert len(agent.catalog) > 1
    after = vars(agent)
    assert [name for name in before if before[name] is not after[name]] == []
    assert [one.name for one in agent.catalog] == ["count"]


def test_an_override_that_is_refused_changes_nothing() -> None:
    agent = Agent(asks_once(), [count], deps_type=Shop)
    before = dict(vars(agent))

    def finish(context: Context[int], value: int) -> int:
        return value

    wrong: Any = "never heard of"
    for options in (
        {"output_type": finish},
        {"context": wrong},
        {"tool_calling": ToolCalling(search="none such")},
    ):
        with (
            pytest.raises(ConfigError),
            agent.override(limits=Limits(max_turns=7), instructions="x", **options),  # pyright: ignore[reportArgumentType]  wrong on purpose
        ):
            pass
        assert [name for name in before if before[name] is not vars(agent)[name]] == []


async def test_an_unknown_option_of_a_run_is_answered_with_all_that_there_are() -> None:
    run: Any = Agent(asks_once(), [count], deps_type=Shop).run
    with pytest.raises(TypeError) as raised:
        await run("go", deps=Shop({}), tiemout=3)
    for known in ("deps", "history", "key", "join", "require_successful_tools"):
        assert known in str(raised.value)
