"""Plugins of an agent: what each part does, what conflicts, and what is opened and closed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ferrule import (
    Agent,
    Catalog,
    ConfigError,
    Context,
    Host,
    Permissions,
    Scripted,
    SideEffect,
    SubAgent,
    Tool,
    tool,
)
from ferrule.engine.event_bus.events import BusEvent
from ferrule.engine.plugins import lifetimes
from ferrule.hooks import Action, EventHook, Occasion, block, hook
from ferrule.plugins import CatalogChanges, Parts, Setup
from ferrule.testing import call_plugin, calls, check_plugin, make_plugin_agent, says


@dataclass(frozen=True)
class Plain:
    """A plugin that adds the parts it was given."""

    name: ClassVar[str] = "plain"
    parts: Parts = Parts()

    def setup(self, setup: Setup) -> Parts:
        return self.parts


class Other(Plain):
    name: ClassVar[str] = "other"


@dataclass
class Loose:
    """A plugin whose author forgot `frozen=True`."""

    name: ClassVar[str] = "loose"
    most: int = 3

    def setup(self, setup: Setup) -> Parts:
        return Parts()


@tool(side_effect="none")
def greet() -> str:
    """Say hello."""
    return "hello"


@dataclass
class Notes:
    """A resource."""

    texts: list[str] = field(default_factory=list[str])


@tool(side_effect="write")
def keep(context: Context) -> str:
    """Keep a note."""
    context.resource(Notes).texts.append("note")
    return "kept"


def refuse(text: str) -> EventHook:
    async def run(occasion: Occasion) -> object:
        return block(text)

    return EventHook(name="refuse", events=("tool.pre",), run=run)


async def test_each_part_does_what_it_says() -> None:
    seen: list[BusEvent] = []
    plugin = Plain(
        Parts(
            tools=[greet],
            instructions="Greet people first.",
            observers=[seen.append],
            agents=[SubAgent("writer", "Writes.")],
        )
    )
    model = Scripted([calls(("greet", {})), says("done")])
    agent = Agent(model, plugins=[plugin])
    session = agent.session()
    run = await session.run("hi")
    assert [result.data for result in run.results] == ["hello"]
    assert "Greet people first." in model.opened[0].system
    assert {"greet", "delegate"} <= {spec.name for spec in model.opened[0].tools}
    assert {"run.started", "call.answered"} <= {event.kind for event in seen}


async def test_hooks_of_a_plugin_refuse_calls() -> None:
    model = Scripted([calls(("greet", {})), says("done")])
    agent = Agent(model, plugins=[Plain(Parts(tools=[greet], hooks=[refuse("not today")]))])
    run = await agent.run("hi")
    assert "not today" in (run.results[0].error_message or "")


@pytest.mark.parametrize("event", ["tool.pre", "tool.post"])
async def test_a_hook_for_some_tools_is_asked_about_their_calls_alone(event: str) -> None:
    for tools in ([greet], ["greet"]):

        @hook(event, tools=tools, when='side_effect == "none"' if event == "tool.pre" else None)
        def refuse_it(call: object) -> Action:
            return block("not this one")

        parts = Parts(tools=[greet, keep], resources=[Notes()], hooks=[refuse_it])
        model = Scripted([calls(("greet", {}), ("keep", {})), says("done")])
        agent = Agent(model, plugins=[Plain(parts)], permissions=Permissions(allow=["keep"]))
        results = {one.tool: one for one in (await agent.run("hi")).results}
        assert "not this one" in (results["greet"].error_message or "")
        assert results["keep"].data == "kept"


def test_a_hook_for_tools_is_on_calls() -> None:
    with pytest.raises(ConfigError, match=r"has `tools`, and is on turn\.start"):
        hook("turn.start", tools=[greet])(print)
    with pytest.raises(ConfigError, match="`tools` is a text"):
        hook("tool.pre", tools="greet")(print)


def test_a_plugin_is_named_in_a_program() -> None:
    agent = Agent(Scripted([]), plugins=["clock"])
    assert "get_current_time" in agent.catalog and agent.plugins.names == ("clock",)
    with pytest.raises(ConfigError, match="no plugin `clokc`") as caught:
        Agent(Scripted([]), plugins=["clokc"])
    assert "`clock`" in caught.value.hint
    with pytest.raises(ConfigError, match="`plugins` is a text"):
        Agent(Scripted([]), plugins="clock")


async def test_tools_find_the_resources_of_a_plugin() -> None:
    notes = Notes()
    model = Scripted([calls(("keep", {})), says("done")])
    plugin = Plain(Parts(tools=[keep], resources=[notes]))
    await Agent(model, plugins=[plugin], permissions=Permissions(allow=["keep"])).run("hi")
    assert notes.texts == ["note"]


def test_tools_are_made_of_the_tools_of_all_plugins() -> None:
    def count(catalog: Catalog) -> Sequence[Tool]:
        names = ",".join(catalog.names())
        return [replace(greet, name="count", description=names)]

    agent = Agent(
        Scripted([]),
        [keep],
        plugins=[Plain(Parts(catalog=CatalogChanges(add=count))), Other(Parts([greet]))],
    )
    made = agent.catalog.get("count")
    assert made is not None and made.description == "greet,keep"


def test_instructions_without_their_tools_are_left_out() -> None:
    agent = Agent(Scripted([]), plugins=[Plain(Parts(tools=[greet], instructions="Use greet."))])
    assert "Use greet." in agent.session().system
    with agent.override(tools=[keep]):
        assert "Use greet." not in agent.session().system


def test_instructions_are_made_of_the_tools_of_a_session() -> None:
    parts = Parts(instructions=lambda catalog: f"Tools: {len(catalog)}.")
    assert "Tools: 1." in Agent(Scripted([]), [greet], plugins=[Plain(parts)]).session().system


def describe_again(tools: Sequence[Tool]) -> Sequence[Tool]:
    return [replace(one, description="Say hello, shortly.") for one in tools if one.name != "keep"]


def test_a_plugin_presents_tools_and_leaves_some_out() -> None:
    agent = Agent(
        Scripted([]),
        [greet, keep],
        plugins=[Plain(Parts(catalog=CatalogChanges(present=describe_again)))],
    )
    assert [one.description for one in agent.catalog] == ["Say hello, shortly."]


def present_as_harmless(tools: Sequence[Tool]) -> Sequence[Tool]:
    return [replace(one, side_effect=SideEffect.NONE) for one in tools]


def present_another(tools: Sequence[Tool]) -> Sequence[Tool]:
    return [replace(one, handler=print) for one in tools]


def present_more(tools: Sequence[Tool]) -> Sequence[Tool]:
    return [*tools, replace(keep, name="more")]


@pytest.mark.parametrize(
    ("present", "named"),
    [(present_as_harmless, "side_effect"), (present_another, "handler"), (present_more, "name")],
)
def test_a_plugin_cannot_present_a_tool_as_less_than_it_is(
    present: Callable[[Sequence[Tool]], Sequence[Tool]], named: str
) -> None:
    with pytest.raises(ConfigError, match=f"`plain` presents .* another `{named}`"):
        Agent(Scripted([]), [keep], plugins=[Plain(Parts(catalog=CatalogChanges(present=present)))])


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        ([Plain(), Plain()], "two plugins are named `plain`"),
        (
            [Plain(Parts([greet])), Other(Parts([greet]))],
            "named `greet`: from the plugin `plain` and from the plugin `other`",
        ),
        ([Plain(Parts([keep]))], "named `keep`: from the program and from the plugin `plain`"),
        (
            [Plain(Parts(resources=[[1]])), Other(Parts(resources=[[2]]))],
            "are a `list`: of the plugin `plain` and of the plugin `other`",
        ),
        ([Loose()], "`Loose` can be changed"),
        ([Plain], "`Plain` is not a plugin"),
        ([object()], "`object` is not a plugin"),
    ],
)
def test_conflicts_name_both_sides(plugins: Sequence[Plain], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Agent(Scripted([]), [keep], plugins=plugins)
    assert caught.value.hint


def test_the_order_of_plugins_does_not_change_the_tools_in_requests() -> None:
    one, two = Plain(Parts([greet])), Other(Parts([keep]))
    specs = [
        Agent(Scripted([]), plugins=order).visible_tools.specs()
        for order in ([one, two], [two, one])
    ]
    assert specs[0] == specs[1] and [spec.name for spec in specs[0]] == ["greet", "keep"]


def test_rules_may_name_the_tools_of_plugins() -> None:
    Agent(Scripted([]), plugins=[Plain(Parts([greet]))], permissions=Permissions(deny=["greet"]))
    with pytest.raises(ConfigError, match="greett"):
        Agent(
            Scripted([]), plugins=[Plain(Parts([greet]))], permissions=Permissions(deny=["greett"])
        )


def test_a_plugin_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "state"))

    class Keeping(Plain):
        def setup(self, setup: Setup) -> Parts:
            (setup.state() / "notes.txt").write_text("kept")
            return Parts()

    Agent(Scripted([]), plugins=[Keeping()])
    assert (tmp_path / "state/plugins/plain/notes.txt").read_text() == "kept"


# ---- lifetimes


def lasting(name: str, log: list[str], *, breaks: str = "") -> Parts:
    @asynccontextmanager
    async def live() -> AsyncGenerator[None]:
        if breaks == "enter":
            raise OSError("no port")
        log.append(f"{name} on")
        task = asyncio.current_task()
        # A cancel scope can only be left in the task that entered it.
        try:
            yield
        finally:
            same = task is asyncio.current_task()
            log.append(f"{name} off" if same else f"{name} left in another task")
            if breaks == "leave":
                raise OSError("gone")
            if breaks == "hang":
                await asyncio.sleep(60)

    return Parts(lifetime=live)


async def test_lifetimes_are_entered_before_the_first_session_and_left_in_reverse() -> None:
    assert lifetimes.MOST_SECONDS == 10
    log: list[str] = []
    plugins = [Plain(lasting("a", log)), Other(lasting("b", log))]
    agent = Agent(Scripted([says("one"), says("two")]), plugins=plugins)
    assert log == []
    await asyncio.create_task(agent.run("hi"))
    await agent.run("hi")
    assert log == ["a on", "b on"]
    await agent.close()
    assert log == ["a on", "b on", "b off", "a off"]


async def test_one_that_cannot_be_left_does_not_keep_the_others_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lifetimes.PluginLifetimes.__init__, "__kwdefaults__", {"seconds": 0.2})
    for breaks, said in (("leave", "OSError: gone"), ("hang", "more than 0.2 s")):
        log: list[str] = []
        plugins = [Plain(lasting("a", log)), Other(lasting("b", log, breaks=breaks))]
        agent = Agent(Scripted([says("one")]), plugins=plugins)
        await agent.run("hi")
        await agent.close()
        assert log == ["a on", "b on", "b off", "a off"]
        assert "the plugin `other` could not be closed: " in caplog.text and said in caplog.text


async def test_a_plugin_that_cannot_start_refuses_the_session_by_name() -> None:
    log: list[str] = []
    plugins = [Plain(lasting("a", log)), Other(lasting("b", log, breaks="enter"))]
    agent = Agent(Scripted([says("one")]), plugins=plugins)
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"OSError: no port \(at {__file__}:\d+\)"):
            await agent.run("hi")
    assert log == ["a on", "a off"] * 2


class Store:
    """Something to open that is not a function that returns it."""

    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lifetime": Store()}, "`Parts(lifetime=...)` must be a function that returns"),
        ({"tools": greet}, "`Parts(tools=...)` must be a list; found a `Tool`"),
        ({"hooks": refuse("no")}, "`Parts(hooks=...)` must be a list; found a `EventHook`"),
        ({"resources": Notes()}, "`Parts(resources=...)` must be a list"),
        ({"tools": "greet"}, "`Parts(tools=...)` must be a list; found a `str`"),
        ({"instructions": ["x"]}, "`Parts(instructions=...)` must be a text or a function"),
    ],
)
def test_a_part_of_another_shape_is_an_error_where_it_is_written(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        Parts(**given)


def test_lifetimes_end_with_the_event_loop_and_begin_again_in_the_next() -> None:
    log: list[str] = []
    agent = Agent(Scripted([says("one")]), plugins=[Plain(lasting("a", log))])
    agent.run_sync("hi")
    assert log == ["a on", "a off"]
    agent.change_model(Scripted([says("two")]))
    agent.run_sync("hi")
    assert log == ["a on", "a off"] * 2


async def test_a_copy_of_an_agent_shares_the_lifetime_and_does_not_end_it() -> None:
    log: list[str] = []
    agent = Agent(Scripted([says("two")]), plugins=[Plain(lasting("a", log))])
    copied = agent.copy_for_user("bob")
    copied.change_model(Scripted([says("one")]))
    await copied.run("hi")
    await copied.close()
    await agent.run("hi")
    assert log == ["a on"]
    await agent.close()
    assert log == ["a on", "a off"]


async def test_observers_are_detached_when_the_agent_is_closed() -> None:
    seen: list[BusEvent] = []
    agent = Agent(Scripted([says("one")]), plugins=[Plain(Parts(observers=[seen.append]))])
    assert agent.bus is not None
    await agent.run("hi")
    await agent.close()
    before = len(seen)
    host = Host(bus=agent.bus)
    await Agent(Scripted([says("two")]), host=host).run("hi")
    assert before > 0 and seen[before:] == []
    agent.change_model(Scripted([says("three")]))
    await agent.run("hi")
    assert seen[before:]


async def test_an_observer_of_two_agents_sees_each_event_once_until_both_are_closed() -> None:
    seen: list[BusEvent] = []
    plugins = [Plain(Parts(observers=[seen.append]))]
    one = Agent(Scripted([says("one")]), plugins=plugins)
    two = Agent(Scripted([says("two")]), plugins=plugins, host=Host(bus=one.bus))
    await one.run("hi")
    assert len(seen) == len({event.sequence for event in seen})
    await one.close()
    await one.close()
    before = len(seen)
    await two.run("hi")
    assert seen[before:]


# ---- what tests of plugins use


def test_a_plugin_that_keeps_the_rules_passes(tmp_path: Path) -> None:
    check_plugin(Plain(Parts(tools=[greet])))
    called = call_plugin(Plain(Parts(tools=[greet])), "greet", state=tmp_path)
    assert called.data == "hello"


class Recording(Plain):
    """A plugin that writes into its own folder."""

    def setup(self, setup: Setup) -> Parts:
        folder = setup.state()

        @tool(side_effect="external")
        def record() -> str:
            """Record a line."""
            (folder / "lines.txt").write_text("line")
            return "recorded"

        return Parts(tools=[record])


def test_tests_of_plugins_write_into_their_own_folder_and_can_have_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "real"))
    own = tmp_path / "own"
    own.mkdir()
    asked = call_plugin(Recording(), "record", state=own, permissions=Permissions())
    assert asked.error_type == "permission_denied" and not [*own.iterdir()]
    for mode in (None, Permissions(allow=["record"])):
        model = Scripted([calls(("record", {})), says("done")])
        agent = make_plugin_agent(Recording(), model, state=own, permissions=mode)
        assert agent.run_sync("hi").results[0].data == "recorded"
        (own / "lines.txt").unlink()
    assert not (tmp_path / "real").exists()


class Changing:
    """A plugin whose fields can be changed."""

    name: str = "changing"

    def setup(self, setup: Setup) -> Parts:
        return Parts()


@dataclass(frozen=True)
class Unsteady(Plain):
    """A plugin that brings another tool each time."""

    names: list[str] = field(default_factory=lambda: ["first", "second", "third"])

    def setup(self, setup: Setup) -> Parts:
        return Parts(tools=[replace(greet, name=self.names.pop(0))])


def test_one_that_breaks_a_rule_fails_with_the_rule() -> None:
    with pytest.raises(AssertionError, match="`Changing` can be changed"):
        check_plugin(Changing())  # pyright: ignore[reportArgumentType]  what is to be found
    with pytest.raises(AssertionError, match="other tools when it is set up again"):
        check_plugin(Unsteady())
