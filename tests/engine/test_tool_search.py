"""Deferred tools in a session that Ferrule searches for: what is found, when it may be called, and
what the journal says of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, ErrorType, Scripted, Storage, ToolCalling, define_tool, tool
from ferrule.core.errors import ConfigError, RunCancelled
from ferrule.core.events import (
    CallEvaluated,
    Event,
    ModelAnswered,
    ToolSearchQuery,
    ToolSearchResult,
    event_from_json,
    event_to_json,
)
from ferrule.core.identity import Identity
from ferrule.core.messages import Message, ToolMessage
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.engine.hooks.call_hooks import Answer
from ferrule.engine.registration.registration import Registering, Registration, RegistrationLimits
from ferrule.engine.replay.recording import Recording
from ferrule.engine.replay.rerun import rerun
from ferrule.engine.tool_search.discovery import estimate_tool_tokens
from ferrule.models.scripted import calls, says
from ferrule.storage.export.jsonl import export_jsonl, read_jsonl
from ferrule.storage.export.transcripts import write_markdown, write_screenplay, write_transcript
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.catalog import Catalog
from ferrule.tools.context import Context
from ferrule.tools.definition import Loading, Tool
from grouped_options import grouped


@tool(side_effect="none")
def look() -> str:
    """Look around."""
    return "a room"


def deferred(name: str, about: str, **more: Any) -> Tool:
    """A tool that answers with its own name and the one argument it got."""
    more.setdefault("side_effect", "none")
    return define_tool(
        name,
        about,
        parameters={"env": "Where."},
        handler=lambda env: f"{name} in {env}",
        defer_loading=True,
        **more,
    )


DEPLOY = deferred("deploy_service", "Deploy a service to an environment.")
PAINT = deferred("paint_wall", "Paint a wall in a colour.")
BREW = deferred("brew_coffee", "Brew a cup of coffee.")


def search(query: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return ("tool_search", {"query": query, **more})


def agent_of(
    steps: Sequence[Any], tools: Sequence[Tool] = (look, DEPLOY, PAINT), **options: Any
) -> Agent:
    options.setdefault("journal", SqliteJournal(":memory:"))
    return Agent(Scripted(steps), tools, **grouped(**options))


def offered(agent: Agent) -> list[list[str]]:
    """The names that each opening of the conversation sent."""
    model_client = agent.model_client
    assert isinstance(model_client, Scripted)
    return [[spec.name for spec in opening.tools] for opening in model_client.opened]


def events(agent: Agent, session: str) -> list[Event]:
    return [record.event for record in agent.journal.records(session)]


def searches(found: Sequence[Event]) -> list[Event]:
    return [event for event in found if isinstance(event, (ToolSearchQuery, ToolSearchResult))]


def answer(agent: Agent, place: int = -1) -> Any:
    """What the model read of its last call, as JSON."""
    model_client = agent.model_client
    assert isinstance(model_client, Scripted)
    read = [
        message for message in model_client.histories[place] if isinstance(message, ToolMessage)
    ]
    return json.loads(read[-1].text)


# ---- finding and calling


@pytest.mark.proves("tool-search.promotion")
async def test_what_a_search_finds_is_there_with_the_next_question_and_works() -> None:
    steps = [calls(search("deploy")), calls(("deploy_service", {"env": "prod"})), says("done")]
    agent = agent_of(steps)
    ran = await agent.run("Deploy it.")
    assert [result.data for result in ran.results][1] == "deploy_service in prod"
    assert offered(agent) == [
        ["look", "tool_get", "tool_search"],
        ["look", "tool_get", "tool_search", "deploy_service"],
    ]
    query, result = searches(events(agent, ran.session))
    assert query == ToolSearchQuery(
        "call_1_0", "tool_search_tool_default", {"query": "deploy"}, "default", "client"
    )
    assert result == ToolSearchResult(
        "call_1_0", ("deploy_service",), ("deploy_service",), "default", "client"
    )


async def test_a_search_answers_with_names_best_first_and_why() -> None:
    agent = agent_of([calls(search("deploy a service")), says("done")], tool_search="bm25")
    await agent.run("go")
    read = answer(agent)
    assert read["tool_names"][0] == "deploy_service"
    assert [one["tool_name"] for one in read["ranked"]] == read["tool_names"]
    assert read["ranked"][0]["score"] > 0
    assert read["ranked"][0]["snippet"] == "Deploy a service to an environment"
    assert "diagnostic" not in read


async def test_the_published_numbers_of_hybrid_come_out_of_a_run() -> None:
    tools = [
        look,
        deferred("run_command", "Execute a shell process"),
        deferred("read_command_output", "Read process output"),
    ]
    # The numbers are of tools without parameters.
    tools = [tools[0], *(replace(one, arguments=look.arguments) for one in tools[1:])]
    agent = agent_of([calls(search("command")), says("done")], tools, tool_search="hybrid")
    await agent.run("go")
    ranked = [(one["tool_name"], round(one["score"], 5)) for one in answer(agent)["ranked"]]
    assert ranked == [("run_command", 0.04892), ("read_command_output", 0.04865)]


@pytest.mark.proves("tool-search.next-turn")
async def test_a_guessed_name_is_refused_with_the_way_to_find_it() -> None:
    agent = agent_of([calls(("deploy_service", {"env": "prod"})), says("done")])
    ran = await agent.run("go")
    (refused,) = ran.results
    assert (refused.error_type, refused.data) == (ErrorType.NOT_FOUND, None)
    assert "`tool_search`" in str(refused.error_message)


@pytest.mark.proves("tool-search.next-turn")
async def test_a_search_and_the_call_in_one_answer_refuse_the_call_which_works_a_round_later() -> (
    None
):
    together = calls(search("deploy"), ("deploy_service", {"env": "a"}))
    agent = agent_of([together, calls(("deploy_service", {"env": "b"})), says("done")])
    ran = await agent.run("go")
    assert [result.success for result in ran.results] == [True, False, True]
    assert ran.results[2].data == "deploy_service in b"


@pytest.mark.proves("tool-search.next-turn")
async def test_a_call_whose_gate_is_passed_after_the_search_still_waits_for_the_next_round() -> (
    None
):
    steps = [
        calls(search("paint")),
        says("found"),
        calls(("paint_wall", {"env": "red"})),
        says("done"),
    ]
    agent = agent_of(steps)
    session = agent.session()
    await session.run("find it")
    ran = await session.run("paint")
    assert [result.data for result in ran.results] == ["paint_wall in red"]


@pytest.mark.proves("tool-search.internal")
@pytest.mark.parametrize("option", [None, False, True])
async def test_a_tool_for_other_tools_is_unknown_to_a_model(option: bool | None) -> None:
    hidden = replace(DEPLOY, loading=Loading.INTERNAL)
    agent = agent_of(
        [calls(("deploy_service", {"env": "x"})), says("done")], [look, hidden], tool_search=option
    )
    ran = await agent.run("go")
    assert ran.results[0].error_type is ErrorType.NOT_FOUND
    assert "deploy_service" not in str(ran.results[0].error_message).partition(";")[2]
    direct = await agent.session().call("deploy_service", env="y")
    assert direct.data == "deploy_service in y"


async def test_people_and_tools_call_what_the_model_has_not_found() -> None:
    @tool(side_effect="none")
    async def through(context: Context) -> str:
        """Call the deferred tool."""
        return str((await context.call("deploy_service", {"env": "nested"})).data)

    agent = agent_of([calls(("through", {})), says("done")], [through, DEPLOY])
    session = agent.session()
    assert (await session.call("deploy_service", env="direct")).data == "deploy_service in direct"
    ran = await session.run("go")
    assert ran.results[0].data == "deploy_service in nested"


# ---- narrowing, empty results, reading one tool


async def test_tags_choose_before_the_limit_counts() -> None:
    many = [deferred(f"paint_{n:02d}", "Paint a wall.") for n in range(30)]
    tagged = replace(
        deferred("paint_zz", "Paint a wall."), annotations={"tags": ["decor", "walls"]}
    )
    agent = agent_of(
        [calls(search("paint", tags=["decor", "walls"], limit=1)), says("done")],
        [look, *many, tagged],
    )
    await agent.run("go")
    assert answer(agent)["tool_names"] == ["paint_zz"]


async def test_tags_are_namespaces_groups_and_servers_too_and_all_must_match() -> None:
    ops = replace(
        deferred("deploy", "Deploy."), namespace="ops", annotations={"groups": ("cloud",)}
    )
    git = replace(deferred("git__log", "Show the log."), source="mcp git")
    steps = [
        calls(search("", tags=["ops", "cloud"])),
        calls(search("", tags=["mcp:git"])),
        calls(search("deploy", tags=["ops", "git"])),
        says("done"),
    ]
    agent = agent_of(steps, [look, ops, git])
    await agent.run("go")
    assert answer(agent, 1)["tool_names"] == ["ops__deploy"]
    assert answer(agent, 2)["tool_names"] == ["git__log"]
    last = answer(agent, 3)
    assert last["tool_names"] == []
    assert "no tool has the tags ops, git" in last["diagnostic"]
    assert "cloud" in last["diagnostic"]


async def test_ten_tools_are_found_unless_the_search_says_how_many_and_never_more_than_fifty() -> (
    None
):
    many = [deferred(f"paint_{n:02d}", "Paint a wall.") for n in range(60)]
    steps = [
        calls(search("paint wall")),
        calls(search("paint wall", limit=3)),
        calls(search("paint wall", limit=500)),
        calls(search("paint wall", limit=0)),
        says("done"),
    ]
    agent = agent_of(steps, [look, *many], tool_search="bm25")
    ran = await agent.run("go")
    assert [len(result.data["tool_names"]) for result in ran.results[:3]] == [10, 3, 50]
    assert ran.results[3].error_type is ErrorType.VALIDATION_FAILED


@pytest.mark.parametrize(
    ("option", "query", "says_why"),
    [
        ("bm25", "zzz", "none of 2 tools fits"),
        ("bm25", "  ", "the query is empty"),
        ("regex", "deploy(", "the expression cannot be used"),
        ("regex", "x" * 300, "at most 200"),
        ("hybrid", "zzz", "none of 2 tools fits"),
    ],
)
async def test_a_search_that_finds_nothing_says_why(option: str, query: str, says_why: str) -> None:
    agent = agent_of([calls(search(query)), says("done")], tool_search=option)
    ran = await agent.run("go")
    read = answer(agent)
    assert (read["tool_names"], read["ranked"]) == ([], [])
    assert says_why in read["diagnostic"]
    assert len(offered(agent)) == 1
    asked, told = searches(events(agent, ran.session))
    assert isinstance(asked, ToolSearchQuery) and asked.query == {"query": query}
    assert isinstance(told, ToolSearchResult) and told.tool_references == told.promoted == ()


async def test_the_search_takes_a_query_perhaps_tags_and_a_limit_and_nothing_else() -> None:
    agent = agent_of(
        [calls(("tool_search", {"query": "x", "top": 3})), calls(("tool_search", {})), says("")]
    )
    ran = await agent.run("go")
    assert [result.error_type for result in ran.results] == [ErrorType.VALIDATION_FAILED] * 2
    schema = json.loads(
        next(spec.schema for spec in agent.visible_tools.specs() if spec.name == "tool_search")
    )
    assert schema["required"] == ["query"]
    assert set(schema["properties"]) == {"query", "tags", "limit"}
    assert schema["additionalProperties"] is False


async def test_one_tool_can_be_read_before_it_is_loaded_and_that_does_not_load_it() -> None:
    shown = replace(DEPLOY, examples=({"env": "prod"},), annotations={"tags": ["ops"]})
    steps = [
        calls(("tool_get", {"name": "deploy_service"})),
        calls(("tool_get", {"name": "deploy_servise"})),
        calls(("deploy_service", {"env": "prod"})),
        says("done"),
    ]
    agent = agent_of(steps, [look, shown])
    ran = await agent.run("go")
    assert ran.results[0].data == {
        "found": True,
        "name": "deploy_service",
        "description": DEPLOY.description,
        "schema": DEPLOY.arguments.schema,
        "examples": [{"env": "prod"}],
        "tags": ["ops"],
        "loaded": False,
    }
    assert ran.results[1].data == {
        "found": False,
        "name": "deploy_servise",
        "nearest": ["deploy_service"],
    }
    assert ran.results[2].error_type is ErrorType.NOT_FOUND


# ---- rights


@pytest.mark.proves("tool-search.rights")
async def test_no_search_lists_what_the_run_may_not_use_nor_does_any_refusal() -> None:
    secret = deferred("deploy_secret", "Deploy the secret service.", scopes=["root"])
    denied = deferred("deploy_denied", "Deploy the denied service.")
    inner = replace(deferred("deploy_inner", "Deploy the inner service."), loading=Loading.INTERNAL)
    steps = [
        calls(search("deploy service"), ("tool_get", {"name": "deploy_secret"})),
        calls(
            ("deploy_secret", {"env": "x"}),
            ("deploy_denied", {"env": "x"}),
            ("deploy_inner", {"env": "x"}),
        ),
        says("done"),
    ]
    agent = agent_of(
        steps, [look, DEPLOY, secret, denied, inner], deny=["deploy_denied"], tool_search="bm25"
    )
    ran = await agent.run("go")
    assert ran.results[0].data["tool_names"] == ["deploy_service"]
    assert ran.results[1].data == {
        "found": False,
        "name": "deploy_secret",
        "nearest": ["deploy_service"],
    }
    for result in ran.results[2:]:
        assert result.error_type is ErrorType.NOT_FOUND
        said = str(result.error_message).replace(f"`{result.tool}`", "", 1)
        assert not any(name in said for name in ("deploy_secret", "deploy_denied", "deploy_inner"))
    names = {spec.name for opening in agent.model_client.opened for spec in opening.tools}  # type: ignore[attr-defined]
    assert not names & {"deploy_secret", "deploy_denied", "deploy_inner"}


@pytest.mark.proves("tool-search.rights")
async def test_a_searcher_of_ones_own_gets_and_gives_only_what_the_run_may_use() -> None:
    got: list[list[str]] = []

    def everything(query: str, tools: Sequence[Tool], state: Mapping[str, Any]) -> list[str]:
        got.append([one.full_name for one in tools])
        return ["deploy_secret", "look", "deploy_service"]

    secret = deferred("deploy_secret", "Deploy the secret service.", scopes=["root"])
    agent = agent_of(
        [calls(search("x")), says("")], [look, DEPLOY, secret], tool_search={"strategy": everything}
    )
    await agent.run("go")
    assert got == [["deploy_service"]]
    assert answer(agent)["tool_names"] == ["deploy_service"]


# ---- searchers of one's own


@pytest.mark.parametrize(
    "shape",
    [
        ["paint_wall", "deploy_service"],
        [{"tool_name": "paint_wall"}, {"name": "deploy_service"}],
        {"tool_names": ["paint_wall", "deploy_service"]},
        {"ranked": [{"tool_name": "paint_wall"}, {"tool_name": "deploy_service"}]},
        '["paint_wall", "deploy_service"]',
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_searcher_may_answer_in_any_of_the_shapes_and_wait(
    shape: object, asynchronous: bool
) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    def sync(query: str, tools: Sequence[Tool], state: Mapping[str, Any]) -> object:
        seen.append((query, dict(state)))
        return shape

    async def waits(query: str, tools: Sequence[Tool], state: Mapping[str, Any]) -> object:
        await asyncio.sleep(0)
        return sync(query, tools, state)

    chosen = waits if asynchronous else sync
    agent = agent_of(
        [calls(search("q", limit=5)), says("")],
        tool_search={"strategy": {"handler": chosen, "name": "mine"}},
    )
    session = agent.session(id="s1")
    ran = await session.run("go")
    assert seen == [("q", {"limit": 5, "tags": [], "discovered": [], "session": "s1"})]
    assert answer(agent)["tool_names"] == ["paint_wall", "deploy_service"]
    asked, told = searches(events(agent, ran.session))
    assert isinstance(asked, ToolSearchQuery) and isinstance(told, ToolSearchResult)
    assert (asked.name, asked.strategy, told.strategy) == ("tool_search_tool_mine", "mine", "mine")


@pytest.mark.parametrize("broken", [42, {"nothing": 1}, RuntimeError("no index")])
async def test_a_searcher_that_fails_is_an_error_for_the_model_and_the_run_goes_on(
    broken: object,
) -> None:
    def fails(query: str, tools: Sequence[Tool], state: Mapping[str, Any]) -> object:
        if isinstance(broken, Exception):
            raise broken
        return broken

    agent = agent_of([calls(search("q")), says("went on")], tool_search={"strategy": fails})
    ran = await agent.run("go")
    assert ran.text == "went on"
    assert ran.results[0].error_type is ErrorType.INTERNAL_ERROR
    assert "the search `fails` failed" in str(ran.results[0].error_message)
    assert len(searches(events(agent, ran.session))) == 2


# ---- bounds on what is loaded


LONG = [
    deferred(name, f"{about} " + "It is described at great length for the sake of this test. " * 6)
    for name, about in (
        ("alpha", "Alpha rays."),
        ("beta", "Beta waves."),
        ("gamma", "Gamma bursts."),
    )
]


@pytest.mark.proves("tool-search.budget")
async def test_the_oldest_discoveries_leave_the_list_for_new_ones_and_can_be_found_again() -> None:
    assert all(100 <= estimate_tool_tokens(one) <= 150 for one in LONG)
    steps = [calls(search(name)) for name in ("alpha", "beta", "gamma", "alpha")]
    steps += [calls(("alpha", {"env": "x"}), ("beta", {"env": "x"})), says("done")]
    agent = agent_of(steps, [look, *LONG], tool_search={"variant": "bm25", "budget_tokens": 150})
    ran = await agent.run("go")
    begun = ["look", "tool_get", "tool_search"]
    assert offered(agent) == [
        begun,
        *([*begun, name] for name in ("alpha", "beta", "gamma", "alpha")),
    ]
    assert [result.success for result in ran.results[-2:]] == [True, False]


@pytest.mark.proves("tool-search.budget")
async def test_one_search_that_finds_too_much_keeps_its_best_and_says_what_was_left() -> None:
    agent = agent_of(
        [calls(search("described length alpha")), says("")],
        [look, *LONG],
        tool_search={"variant": "bm25", "budget_tokens": 150},
    )
    ran = await agent.run("go")
    read = answer(agent)
    assert read["tool_names"][0] == "alpha"
    assert read["not_loaded"] == read["tool_names"][1:]
    told = searches(events(agent, ran.session))[1]
    assert isinstance(told, ToolSearchResult) and told.promoted == ("alpha",)


@pytest.mark.proves("tool-search.budget")
async def test_a_tool_larger_than_the_whole_budget_is_never_loaded() -> None:
    agent = agent_of(
        [calls(search("alpha")), says("")], [look, *LONG], tool_search={"budget_tokens": 20}
    )
    await agent.run("go")
    assert answer(agent)["not_loaded"][0] == "alpha"
    assert len(offered(agent)) == 1


# ---- hooks, registration, sub-agents, concurrency


async def test_what_a_hook_answers_in_place_of_the_search_is_found() -> None:
    class Knows:
        async def before(
            self, called: Tool, values: dict[str, Any], context: Context
        ) -> Answer | None:
            async def said() -> Any:
                return {"tool_names": ["paint_wall", "nothing_here", "deploy_secret"]}

            return Answer(said) if called.name == "tool_search" else None

        async def after(self, called: Tool, result: Any, context: Context) -> None:
            return None

    secret = deferred("deploy_secret", "Deploy the secret service.", scopes=["root"])
    steps = [calls(search("x")), calls(("paint_wall", {"env": "red"})), says("")]
    agent = agent_of(steps, [look, PAINT, secret], hooks=[Knows()])
    ran = await agent.run("go")
    assert ran.results[1].data == "paint_wall in red"
    told = searches(events(agent, ran.session))[1]
    assert isinstance(told, ToolSearchResult) and told.promoted == ("paint_wall",)


async def test_a_recorded_session_that_searched_comes_out_the_same_with_recorded_results() -> None:
    together = calls(search("deploy"), ("deploy_service", {"env": "a"}))
    steps = [together, calls(("deploy_service", {"env": "b"})), says("done")]
    agent = agent_of(steps)
    ran = await agent.run("go")
    recording = Recording.of(agent.journal.records(ran.session))
    assert (await rerun(recording, agent, model=Scripted(steps))).same


@pytest.mark.proves("tool-search.promotion")
async def test_what_is_discovered_and_what_is_registered_come_in_the_order_in_which_they_came() -> (
    None
):
    late = define_tool(
        "late", "Comes late.", parameters={}, handler=lambda: "late", side_effect="none"
    )

    @tool(side_effect="none")
    def register(context: Context) -> str:
        """Register a tool."""
        context.resource(Registration).add_tool(late)
        return "registered"

    steps = [calls(search("deploy")), calls(("register", {})), calls(search("paint")), says("done")]
    limits = RegistrationLimits(tools=1)
    agent = agent_of(
        steps, [look, register, DEPLOY, PAINT], plugins=[Registering(limits)], tool_search="bm25"
    )
    await agent.run("go")
    behind = offered(agent)[-1][len(offered(agent)[0]) :]
    assert behind == ["deploy_service", "late", "paint_wall"]
    assert [names[: len(before)] for before, names in pairwise(offered(agent))] == offered(agent)[
        :-1
    ]


async def test_an_agent_that_was_given_a_tool_by_name_need_not_search_for_it() -> None:
    painter = SubAgent("painter", "paints", tools=("paint_wall",))
    steps = [
        calls(("delegate", {"agent": "painter", "task": "Paint."})),
        calls(("paint_wall", {"env": "blue"})),
        says("painted"),
        says("done"),
    ]
    agent = agent_of(steps, agents=[painter])
    await agent.run("go")
    assert offered(agent)[1] == ["paint_wall"]


async def test_twenty_sessions_of_one_agent_discover_different_tools_and_nothing_of_each_other() -> (
    None
):
    many = [deferred(f"tool_{word}", f"Handle {word}.") for word in WORDS]

    def step(history: Sequence[Message]) -> Any:
        word = history[0].text
        rounds = sum(isinstance(message, ToolMessage) for message in history)
        if rounds == 0:
            return calls(search(word))
        if rounds == 1:
            others = [(f"tool_{other}", {"env": word}) for other in WORDS if other != word][:3]
            return calls((f"tool_{word}", {"env": word}), *others)
        return says(word)

    agent = agent_of([step] * (3 * len(WORDS)), [look, *many], tool_search="bm25")
    ran = await asyncio.gather(*(agent.run(word) for word in WORDS))
    for word, one in zip(WORDS, ran, strict=True):
        assert one.results[0].data["tool_names"] == [f"tool_{word}"]
        assert [result.success for result in one.results[1:]] == [True, False, False, False]
        assert one.results[1].data == f"tool_{word} in {word}"


WORDS = [
    f"{a}{b}"
    for a in ("red", "blue", "green", "black")
    for b in ("fox", "owl", "cat", "dog", "bat")
]


# ---- the journal


def journal_of(kept: list[Event], folder: Path) -> SqliteJournal:
    """A journal in which these are all that is known of the session `s2`."""
    made = SqliteJournal(folder / "copy.db")
    me = Agent(Scripted([])).user
    made.append("s2", "r1", kept, identity=Identity("local", me, "s2", "r1"))
    return made


async def test_a_session_that_another_process_left_keeps_its_discoveries(tmp_path: Path) -> None:
    where = tmp_path / "j.db"

    async def dies(history: Sequence[Message]) -> Any:
        raise asyncio.CancelledError

    first = agent_of([calls(search("deploy")), dies], journal=where)
    session = first.session()
    with pytest.raises((RunCancelled, asyncio.CancelledError)):
        await session.run("go")
    await session.close()
    first.journal.close()
    steps = [calls(("deploy_service", {"env": "b"}), ("paint_wall", {"env": "b"})), says("done")]
    second = agent_of(steps, journal=where)
    again = second.resume(session.id)
    ran = await again.run("go on")
    assert offered(second)[0] == ["look", "tool_get", "tool_search", "deploy_service"]
    assert [result.success for result in ran.results] == [True, False]
    await again.close()
    second.journal.close()


async def test_an_open_call_is_judged_after_a_crash_by_what_its_model_had_been_sent(
    tmp_path: Path,
) -> None:
    """The journal ends with an answer that searches and calls: the call was a guess then, and is
    one now.
    """
    where = tmp_path / "j.db"
    together = calls((*search("deploy"), "a"), ("deploy_service", {"env": "x"}, "b"))
    first = agent_of([together, says("done")], journal=where)
    ran = await first.run("go")
    kept = [event for event in events(first, ran.session) if not isinstance(event, CallEvaluated)]
    first.journal.close()
    place = next(n for n, event in enumerate(kept) if isinstance(event, ToolSearchResult))
    copy = journal_of(kept[: place + 1], tmp_path)
    second = agent_of([calls(("deploy_service", {"env": "y"})), says("done")], journal=copy)
    session = second.resume("s2")
    finished = await session.resume()
    assert finished is not None
    by_id = {result.call_id: result for result in finished.results}
    assert by_id["b"].error_type is ErrorType.NOT_FOUND
    assert finished.results[-1].data == "deploy_service in y"
    await session.close()
    copy.close()


async def test_an_open_call_of_a_tool_that_had_been_found_before_is_run_after_a_crash(
    tmp_path: Path,
) -> None:
    steps = [calls(search("deploy")), calls(("deploy_service", {"env": "x"}, "b")), says("done")]
    first = agent_of(steps)
    ran = await first.run("go")
    kept = events(first, ran.session)
    place = max(
        n for n, event in enumerate(kept[:-2]) if isinstance(event, ModelAnswered) and event.calls
    )
    second = agent_of([says("done")], journal=journal_of(kept[: place + 1], tmp_path))
    session = second.resume("s2")
    finished = await session.resume()
    assert finished is not None
    assert finished.results[-1].data == "deploy_service in x"
    await session.close()
    second.journal.close()


async def test_what_a_bound_had_pushed_out_is_out_after_a_resume_too(tmp_path: Path) -> None:
    where = tmp_path / "j.db"
    option = {"variant": "bm25", "budget_tokens": 150}
    first = agent_of(
        [calls(search("alpha")), calls(search("beta")), says("")],
        [look, *LONG],
        tool_search=option,
        journal=where,
    )
    ran = await first.run("go")
    first.journal.close()
    second = agent_of([says("again")], [look, *LONG], tool_search=option, journal=where)
    session = second.resume(ran.session)
    await session.run("go on")
    assert offered(second) == [["look", "tool_get", "tool_search", "beta"]]
    await session.close()
    second.journal.close()


@pytest.mark.proves("tool-search.events")
async def test_the_two_events_reach_watchers_and_every_export() -> None:
    agent = agent_of([calls(search("deploy")), says("done")])
    session = agent.session()
    live = [item async for item in session.stream("go")]
    seen = [item.kind for item in live if isinstance(item, (ToolSearchQuery, ToolSearchResult))]
    assert seen == ["tool_search_query", "tool_search_result"]
    records = list(agent.journal.records(session.id))
    for export in (write_transcript, write_markdown, write_screenplay):
        text = "".join(export(records))
        assert "tool_search" in text
        assert "unknown" not in text
    for event in searches([record.event for record in records]):
        assert event_from_json(*event_to_json(event)) == event
    back = [record.event for record in read_jsonl(export_jsonl(records))]
    assert searches(back) == searches([record.event for record in records])


# ---- off, and where nothing is deferred


async def test_with_no_search_deferred_tools_are_like_all_others() -> None:
    agent = agent_of([calls(("deploy_service", {"env": "x"})), says("")], tool_search=False)
    ran = await agent.run("go")
    assert ran.results[0].data == "deploy_service in x"
    assert offered(agent) == [["deploy_service", "look", "paint_wall"]]


async def test_a_catalog_that_two_agents_share_shows_no_search_to_the_one_without() -> None:
    catalog = Catalog([look, DEPLOY])
    finding = Agent(
        Scripted([says("")]), catalog, storage=Storage(journal=SqliteJournal(":memory:"))
    )
    plain = Agent(
        Scripted([says("")]),
        catalog,
        storage=Storage(journal=SqliteJournal(":memory:")),
        tool_calling=ToolCalling(search=False),
    )
    await finding.run("go")
    await plain.run("go")
    assert offered(finding) == [["look", "tool_get", "tool_search"]]
    assert offered(plain) == [["deploy_service", "look"]]
    alone = await plain.session().call("tool_search", query="x")
    assert alone.error_type is ErrorType.NOT_FOUND


async def test_it_is_on_by_itself_exactly_where_something_that_may_be_used_is_deferred() -> None:
    scoped = replace(DEPLOY, scopes=frozenset({"root"}))
    for tools, options, expected in (
        ([look], {}, ["look"]),
        ([look, scoped], {}, ["look"]),
        ([look, scoped], {"scopes": ["root"]}, ["look", "tool_get", "tool_search"]),
        ([look, DEPLOY], {"deny": ["deploy_service"]}, ["look"]),
        ([look, DEPLOY], {"deny": ["tool_search"]}, ["deploy_service", "look"]),
    ):
        agent = agent_of([says("")], tools, **options)
        await agent.run("go")
        assert offered(agent) == [expected]


async def test_sessions_without_deferred_tools_load_nothing_of_it() -> None:
    import subprocess
    import sys

    program = (
        "import sys\nfrom ferrule import Agent, Scripted, Storage, tool\nfrom ferrule.models.scripted "
        "import calls, says\n"
        "@tool\ndef peek() -> str:\n    'Look.'\n    return 'x'\n"
        "Agent(Scripted([calls(('peek', {})), says('')]), [peek], "
        "storage=Storage(journal=':memory:')).run_sync('go')\n"
        "packages = {'ferrule.tools.search', 'ferrule.engine.tool_search'}\n"
        "loaded = {name for name in sys.modules if 'search' in name and 'ferrule' in name}\n"
        "print(sorted(loaded - packages))"
    )
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


async def test_a_tool_that_has_the_searchs_name_is_told_and_another_name_can_be_chosen() -> None:
    taken = define_tool("tool_search", "Mine.", parameters={}, handler=lambda: "mine")
    with pytest.raises(ConfigError, match="cannot be called `tool_search`"):
        agent_of([], [look, DEPLOY, taken]).session()
    agent = agent_of(
        [calls(("find_tool", {"query": "deploy"})), says("")],
        [look, DEPLOY, taken],
        tool_search={"name": "find_tool"},
    )
    await agent.run("go")
    assert answer(agent)["tool_names"] == ["deploy_service"]
    assert offered(agent)[0] == ["find_tool", "look", "tool_get", "tool_search"]
