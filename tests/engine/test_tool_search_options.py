"""What may be said as `tool_search`, row by row of requirement 001, and what is refused before
anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ferrule import Agent, Scripted, Storage, ToolCalling, define_tool, tool
from ferrule.core.errors import ConfigError, ToolDefinitionError
from ferrule.core.events import ToolSearchQuery
from ferrule.models.client import Capabilities
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.models.scripted import calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools import toolset
from ferrule.tools.definition import Loading, Tool
from ferrule.tools.search.options import NamedSearcher, ToolSearch
from grouped_options import grouped


@tool(side_effect="none")
def look() -> str:
    """Look around."""
    return "a room"


@tool(side_effect="none", defer_loading=True)
def deploy_service(env: str) -> str:
    """Deploy a service. To an environment."""
    return env


@tool(side_effect="none", defer_loading=True)
def paint_wall(colour: str) -> str:
    """Paint a wall."""
    return colour


TOOLS = (look, deploy_service, paint_wall)
SEARCHES_ITSELF = Capabilities(True, True, source="script", tool_search=True)


def mine(query: str, tools: Sequence[Tool], state: Mapping[str, Any]) -> list[str]:
    """A searcher of one's own."""
    return [one.full_name for one in tools]


def agent_of(
    option: Any, *, native: bool = False, tools: Sequence[Tool] = TOOLS, **more: Any
) -> Agent:
    able = SEARCHES_ITSELF if native else None
    model_client = Scripted(
        [calls(("tool_search", {"query": "deploy"})), says("done")], capabilities=able
    )
    return Agent(
        model_client,
        tools,
        **grouped(tool_search=option, journal=SqliteJournal(":memory:"), **more),
    )


async def first_request(agent: Agent) -> tuple[list[tuple[str, bool]], str, str]:
    """Names and marks of the tools that were sent first, the variant of a provider's search, the
    strategy of Ferrule's.
    """
    ran = await agent.run("go")
    opening = agent.model_client.opened[0]  # type: ignore[attr-defined]
    asked = [
        r.event for r in agent.journal.records(ran.session) if isinstance(r.event, ToolSearchQuery)
    ]
    sent = [(spec.name, spec.deferred) for spec in opening.tools]
    return sent, opening.options.tool_search, asked[0].strategy if asked else ""


CLIENT = [("look", False), ("tool_get", False), ("tool_search", False)]
NATIVE = [("deploy_service", True), ("look", False), ("paint_wall", True)]


@pytest.mark.parametrize(
    ("option", "variant", "strategy"),
    [
        (None, "bm25", "default"),
        (True, "bm25", "default"),
        ({}, "bm25", "default"),
        (ToolSearch(), "bm25", "default"),
        ("bm25", "bm25", "bm25"),
        ("regex", "regex", "regex"),
        ("hybrid", "", "hybrid"),
        ({"variant": "regex"}, "regex", "regex"),
        ({"variant": "bm25", "mode": "auto"}, "bm25", "bm25"),
        ({"strategy": "regex"}, "regex", "regex"),
        ({"strategy": "hybrid"}, "", "hybrid"),
        ({"variant": "hybrid"}, "", "hybrid"),
        ({"strategy": "default"}, "bm25", "default"),
        ({"strategy": mine}, "", "mine"),
        ({"strategy": {"handler": mine}}, "", "custom"),
        ({"strategy": {"handler": mine, "name": "ours"}}, "", "ours"),
        ({"strategy": NamedSearcher(mine, "ours"), "variant": None}, "", "ours"),
        ({"mode": "client"}, "", "default"),
        ({"mode": "client", "variant": "bm25"}, "", "bm25"),
        (
            {"name": "tool_search", "budget_tokens": 9000, "include_stub_listing": False},
            "bm25",
            "default",
        ),
    ],
)
async def test_each_shape_searches_as_it_says_with_and_without_a_provider_that_searches(
    option: Any, variant: str, strategy: str
) -> None:
    assert await first_request(agent_of(option)) == (CLIENT, "", strategy)
    sent, asked, searched = await first_request(agent_of(option, native=True))
    assert asked == variant
    assert (sent, searched) == (NATIVE, "") if variant else (CLIENT, strategy)


async def test_false_sends_deferred_tools_like_all_others() -> None:
    for native in (False, True):
        sent, asked, _ = await first_request(agent_of(False, native=native))
        assert (sent, asked) == ([(name, False) for name, _ in NATIVE], "")


async def test_true_is_on_where_nothing_is_deferred_and_the_search_says_so() -> None:
    agent = agent_of(True, tools=[look])
    sent, _, _ = await first_request(agent)
    assert sent == CLIENT
    read = agent.model_client.histories[-1][-1].text  # type: ignore[attr-defined]
    assert "there are no tools to be found" in read


@pytest.mark.parametrize(
    ("option", "named", "hint"),
    [
        (3, "found int 3", '"hybrid"'),
        (["bm25"], "found list", "a mapping"),
        ("bm42", "'bm42'", '"bm25", "regex", "hybrid"'),
        ({"variant": "fuzzy"}, "variant = 'fuzzy'", '"bm25", "regex", "hybrid"'),
        ({"variant": 3}, "`variant` is int 3", '"bm25"'),
        ({"mode": "both"}, "mode = 'both'", '"auto", "native", "client"'),
        ({"mode": True}, "`mode` is bool True", '"auto"'),
        ({"strategy": "semantic"}, "strategy = 'semantic'", '"bm25"'),
        ({"strategy": 7}, "`strategy` is int 7", "a function"),
        ({"strategy": {"name": "x"}}, "`strategy.handler` is NoneType", "a function"),
        ({"strategy": {"handler": mine, "name": 3}}, "`strategy.name` is int 3", "short text"),
        ({"strategy": {"handler": mine, "nmae": "x"}}, "`nmae`", "`handler` and `name`"),
        ({"always_loaded": "look"}, "`always_loaded` is str 'look'", "a list of names"),
        ({"always_loaded": [1]}, "`always_loaded` is list [1]", "a list of names"),
        ({"budget_tokens": "many"}, "`budget_tokens` is str 'many'", "whole number"),
        ({"budget_tokens": True}, "`budget_tokens` is bool True", "whole number"),
        ({"budget_tokens": 0}, "`budget_tokens` is int 0", "1 or more"),
        ({"budget_tokens": 1.5}, "`budget_tokens` is float 1.5", "whole number"),
        ({"name": 4}, "`name` is int 4", "name of a tool"),
        ({"name": "find tool"}, "name:", "letters"),
        ({"include_stub_listing": "yes"}, "`include_stub_listing` is str 'yes'", "true or false"),
        ({"varient": "bm25"}, "unknown field `varient`", "`variant`"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_with_what_can(
    option: Any, named: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Agent(Scripted([]), TOOLS, tool_calling=ToolCalling(search=option))
    assert named in refused.value.detail
    assert hint in refused.value.hint


@pytest.mark.proves("tool-search.native-refused")
@pytest.mark.parametrize(
    "option", [{"mode": "native", "variant": "hybrid"}, {"mode": "native", "strategy": mine}]
)
def test_what_no_provider_does_cannot_be_asked_of_one(option: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Agent(Scripted([]), TOOLS, tool_calling=ToolCalling(search=option))
    assert '"client"' in refused.value.hint


@pytest.mark.proves("tool-search.native-refused")
@pytest.mark.parametrize("tools", [TOOLS, (look,)])
async def test_native_with_a_model_that_cannot_points_at_client_mode_and_sends_nothing(
    tools: Any,
) -> None:
    agent = agent_of({"mode": "native"}, tools=tools)
    with pytest.raises(ConfigError) as refused:
        await agent.run("go")
    assert "`scripted:test` has no tool search of its own" in refused.value.detail
    assert '"client"' in refused.value.hint
    assert agent.model_client.asks == agent.model_client.opened == []  # type: ignore[attr-defined]


@pytest.mark.proves("tool-search.native-refused")
async def test_gpt_4o_is_told_that_client_mode_does_it() -> None:
    model_client = OpenAIResponses("gpt-4o", api_key="k", base_url="https://api.openai.com/v1")
    agent = Agent(
        model_client,
        TOOLS,
        tool_calling=ToolCalling(search={"mode": "native"}),
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    with pytest.raises(ConfigError) as refused:
        await agent.run("go")
    assert "gpt-4o" in refused.value.detail and '"client"' in refused.value.hint
    await agent.close()


@pytest.mark.proves("tool-search.native-refused")
async def test_native_is_refused_where_calls_are_made_in_text() -> None:
    agent = agent_of({"mode": "native"}, native=True, tool_mode="text")
    with pytest.raises(ConfigError, match="no tool search of its own"):
        await agent.run("go")
    auto = agent_of(None, native=True, tool_mode="text")
    await auto.run("go")
    system = auto.model_client.opened[0].system  # type: ignore[attr-defined]
    assert "## tool_search" in system and "## deploy_service" not in system


@pytest.mark.proves("tool-search.preflight")
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("option", [None, True, {"mode": "client"}, {"always_loaded": ["nothing"]}])
async def test_a_model_with_nothing_but_deferred_tools_is_refused_before_any_request(
    option: Any, native: bool
) -> None:
    # Tools that Ferrule adds itself (those that read artifacts) are no user's tools.
    agent = agent_of(option, native=native, tools=[deploy_service, paint_wall], artifacts=True)
    with pytest.raises(ConfigError) as refused:
        await agent.run("go")
    assert "all 2 tools are deferred" in refused.value.detail
    assert agent.model_client.asks == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("native", [False, True])
async def test_pins_are_sent_from_the_start_and_count_as_loaded_for_the_check(native: bool) -> None:
    agent = agent_of(
        {"always_loaded": ["deploy_service"]}, native=native, tools=[deploy_service, paint_wall]
    )
    sent, _, _ = await first_request(agent)
    assert ("deploy_service", False) in sent
    assert ("paint_wall", True) in sent if native else "paint_wall" not in dict(sent)
    again = agent_of({"always_loaded": ["deploy_service"], "mode": "client"})
    await again.run("go")
    assert '"tool_names":[]' in again.model_client.histories[-1][-1].text  # type: ignore[attr-defined]


@pytest.mark.parametrize("native", [False, True])
async def test_a_listing_names_deferred_tools_with_their_first_sentence_and_never_changes(
    native: bool,
) -> None:
    agent = agent_of({"include_stub_listing": True, "always_loaded": ["paint_wall"]}, native=native)
    await agent.run("go")
    systems = {opening.system for opening in agent.model_client.opened}  # type: ignore[attr-defined]
    (system,) = systems
    assert "- deploy_service: Deploy a service\n" in f"{system}\n"
    assert "paint_wall" not in system and "- look" not in system
    plain = agent_of(None, native=native)
    await plain.run("go")
    assert "deploy_service" not in plain.model_client.opened[0].system  # type: ignore[attr-defined]


async def system_text_with(descriptions: Mapping[str, str]) -> str:
    """What the model is told where tools of these names and descriptions are listed as stubs."""
    many = [
        define_tool(name, text, parameters={}, handler=lambda: "", defer_loading=True)
        for name, text in descriptions.items()
    ]
    agent = agent_of({"include_stub_listing": True}, tools=[look, *many])
    await agent.run("go")
    return agent.model_client.opened[0].system  # type: ignore[attr-defined]


async def test_a_long_listing_is_cut_and_says_so() -> None:
    system = await system_text_with({f"tool_{n:04d}": "Does a thing. " * 9 for n in range(900)})
    assert len(system) < 20_000
    assert system.rstrip().endswith("more")


@pytest.mark.parametrize(("longer", "is_cut"), [(0, False), (1, True)])
async def test_a_listing_has_at_most_16384_characters(longer: int, is_cut: bool) -> None:
    # 128 lines of 127 characters and a newline.
    descriptions = {f"tool_{n:03}": "x" * (115 + (longer if n == 5 else 0)) for n in range(128)}
    system = await system_text_with(descriptions)
    assert system.rstrip().endswith("- and 1 more") is is_cut


@pytest.mark.proves("tool-search.definition")
def test_a_tool_is_deferred_by_a_truth_value_and_by_nothing_else() -> None:
    assert deploy_service.loading is Loading.DEFERRED
    made = define_tool("x", "Does x.", parameters={}, handler=lambda: "", defer_loading=True)
    assert made.loading is Loading.DEFERRED
    for wrong in ("yes", 1, None):
        with pytest.raises(ToolDefinitionError, match="defer_loading"):
            define_tool("x", "Does x.", parameters={}, handler=lambda: "", defer_loading=wrong)
        with pytest.raises(ToolDefinitionError, match="defer_loading"):
            tool(name="x", defer_loading=wrong)(lambda: "")  # type: ignore[arg-type]
    with pytest.raises(ToolDefinitionError, match="namespace"):
        define_tool("x", "Does x.", parameters={}, handler=lambda: "", namespace=42)
    with pytest.raises(ToolDefinitionError, match="no handler"):
        define_tool("x", "Does x.", parameters={}, defer_loading=True)


@pytest.mark.proves("tool-search.definition")
async def test_a_set_that_was_marked_as_deferred_is_searched_for() -> None:
    pack = toolset.mark_deferred([toolset.mark_deferred([deploy_service], defer=False)[0]])
    assert pack[0].loading is Loading.DEFERRED
    assert toolset.mark_deferred(pack, defer=False)[0].loading is Loading.ALWAYS
    sent, _, _ = await first_request(agent_of(None, tools=[look, *pack]))
    assert sent == CLIENT
