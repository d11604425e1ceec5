"""What people met in programs that build on agent libraries, tried with scripted models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pytest

from ferrule import (
    Agent,
    ConfigError,
    Context,
    MessageHistory,
    OutputInvalid,
    RetryCall,
    Scripted,
    Storage,
    SubAgent,
    ToolDefinitionError,
    ToolFailed,
    tool,
)
from ferrule.core.calls import ErrorType
from ferrule.plugins import Parts
from ferrule.testing import calls, says

ADDED: list[tuple[int, int]] = []


@pytest.fixture(autouse=True)
def nothing_added() -> None:
    ADDED.clear()


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    ADDED.append((a, b))
    return a + b


@tool(side_effect="none")
def find_user(number: int) -> str:
    """Find a user."""
    raise ValueError(f"there is no user {number}")


ADD_ONCE = [calls(("add", {"a": 1, "b": 2})), says("three")]


async def test_an_exception_of_a_tool_is_read_by_the_model_and_the_run_goes_on() -> None:
    read: list[str] = []

    def apologize(history: Any) -> Any:
        read.append(str(history[-1]))
        return says("sorry")

    run = await Agent(
        Scripted([calls(("find_user", {"number": 7}), ("add", {"a": 1, "b": 2})), apologize]),
        [find_user, add],
    ).run("go")
    assert run.text == "sorry" and ADDED == [(1, 2)]
    assert "there is no user 7" in (run.results[0].error_message or "")
    assert "3" in read[0]


async def test_a_failure_keeps_its_data_for_programs() -> None:
    @tool(side_effect="none")
    def write() -> str:
        """Write."""
        raise ToolFailed(ErrorType.IO_ERROR, "the disk is full", data={"free": 0})

    run = await Agent(Scripted([calls(("write", {})), says("ok")]), [write]).run("go")
    (result,) = run.results
    assert (result.success, result.data) == (False, {"free": 0})
    assert "the disk is full" in (result.error_message or "")


async def test_the_result_of_a_run_has_the_results_of_its_calls_in_order() -> None:
    steps = [calls(("add", {"a": 1, "b": 2}), ("add", {"a": 2, "b": 2})), says("ok")]
    run = await Agent(Scripted(steps), [add]).run("go")
    assert [(one.tool, one.data) for one in run.results] == [("add", 3), ("add", 4)]
    assert ADDED == [(1, 2), (2, 2)]


async def test_a_result_that_does_not_fit_its_annotation_is_passed_on_with_a_note() -> None:
    @tool(side_effect="none")
    def measure() -> int:
        """Measure."""
        return "tall"  # pyright: ignore[reportReturnType]  what the report's tool does

    run = await Agent(Scripted([calls(("measure", {})), says("ok")]), [measure]).run("go")
    assert run.results[0].data == "tall"
    assert 'must be an integer, found string "tall"' in run.results[0].notes[0]


async def test_an_output_function_that_fails_gives_no_output() -> None:
    def check(total: int) -> int:
        if total < 5:
            raise RetryCall("it must be 5 or more")
        return total

    def fail(total: int) -> int:
        raise RuntimeError("no database")

    script = [says('{"value":1}'), says('{"value":9}')]
    assert (await Agent(Scripted(script), output_type=check).run("go")).output == 9
    with pytest.raises(OutputInvalid, match="RuntimeError: no database"):
        await Agent(Scripted(script), output_type=fail).run("go")


async def test_an_output_that_never_fits_ends_after_its_retries_with_all_attempts() -> None:
    model = Scripted([says("{}")] * 500)
    with pytest.raises(OutputInvalid) as raised:
        await Agent(model, output_type=int, output_retries=2).run("go")
    assert len(model.asks) == 3
    assert [one.text for one in raised.value.attempts] == ["{}"] * 3
    assert raised.value.session


async def test_a_value_that_does_not_fit_goes_back_with_the_reason() -> None:
    model = Scripted([says('{"value":"x"}'), says('{"value":4}')])
    assert (await Agent(model, output_type=int).run("go")).output == 4
    assert "integer" in str(model.asks[1].history[-1])


async def test_a_value_beside_other_calls_is_not_the_end() -> None:
    model = Scripted(
        [
            calls(("final_answer", {"value": "x"}), ("add", {"a": 1, "b": 2})),
            calls(("final_answer", {"value": 3})),
        ]
    )
    run = await Agent(model, [add], output_type=int, output_mode="tool").run("go")
    assert (run.output, ADDED) == (3, [(1, 2)])


async def test_an_option_that_runs_do_not_have_is_refused_by_name() -> None:
    run: Any = Agent(Scripted([says("ok")])).run
    with pytest.raises(TypeError, match=r"unexpected `tools`.*deps, history"):
        await run("go", tools=[add])


def test_a_hook_that_is_none_is_refused_where_the_agent_is_made() -> None:
    hook: Any = "log everything"
    with pytest.raises(ConfigError, match="'log everything' is not a hook"):
        Agent(Scripted([]), plugins=[Parts(hooks=[hook])])


async def test_a_tool_and_an_output_function_may_run_another_agent_to_its_end() -> None:
    def make_inner(text: str) -> Agent[None, str]:
        return Agent(Scripted([says(text)]))

    @tool(side_effect="none")
    def ask() -> str:
        """Ask another agent."""
        return make_inner("one").run_sync("go").text

    async def finish(total: int) -> str:
        return (await make_inner("two").run(str(total))).text

    def finish_plainly(total: int) -> str:
        return make_inner("three").run_sync(str(total)).text

    run = await Agent(Scripted([calls(("ask", {})), says("ok")]), [ask]).run("go")
    texts = [run.results[0].data]
    for function in (finish, finish_plainly):
        agent: Agent[Any, str] = Agent(Scripted([says('{"value":1}')]), output_type=function)
        texts.append((await agent.run("go")).output)
    assert texts == ["one", "two", "three"]


async def test_a_stream_makes_the_calls_that_a_run_makes_and_says_its_text() -> None:
    many = calls(*[("add", {"a": number, "b": 0}) for number in range(10)], text="I add.")
    run = await Agent(Scripted([many, says("done")]), [add]).run("go")
    made = ADDED.copy()
    ADDED.clear()
    items = [item async for item in Agent(Scripted([many, says("done")]), [add]).stream("go")]
    # Calls that conflict with nothing run in threads, in any order.
    assert sorted(made) == sorted(ADDED) and len(made) == 10 and items
    assert run.text == "done"


async def test_a_conversation_with_calls_survives_its_json() -> None:
    first = await Agent(Scripted([*ADD_ONCE]), [add]).run("go")
    model = Scripted([says("four")])
    await Agent(model, [add]).run("more", history=first.messages.to_json())
    kinds = [type(one).__name__ for one in model.asks[0].history]
    assert kinds == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
        "UserMessage",
    ]


def test_a_conversation_with_an_open_call_is_refused_before_anything_is_sent() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    told: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "b"},
    ]
    with pytest.raises(ConfigError, match="the call `c1` of `add` has no result"):
        MessageHistory.from_openai(told)


async def test_a_sub_agent_reads_its_task_and_nothing_of_the_conversation() -> None:
    read: list[Any] = []

    def work(history: Any) -> Any:
        read.extend(history)
        return says("done")

    delegate = calls(("delegate", {"task": "count", "agent": "clerk"}), text="I pass it on.")
    agent = Agent(
        Scripted([delegate, work, says("over")]),
        plugins=[Parts(agents=[SubAgent("clerk", "Counts.")])],
    )
    await agent.run("a secret")
    assert [one.text for one in read] == ["count"]


async def test_a_sub_agents_tools_find_what_its_parents_tools_find() -> None:
    @dataclass
    class Memory:
        text: str

    @tool(side_effect="none")
    def recall(context: Context) -> str:
        """Recall."""
        return context.resource(Memory).text

    script = [
        calls(("delegate", {"task": "recall it", "agent": "clerk"})),
        calls(("recall", {})),
        says("it was blue"),
        says("over"),
    ]
    model = Scripted(script)
    clerk = SubAgent("clerk", "Recalls.", tools=["recall"])
    parts = Parts(agents=[clerk], resources=[Memory("blue")])
    await Agent(model, [recall], plugins=[parts]).run("go")
    assert "blue" in str(model.asks[2].history[-1])


def test_a_parameter_without_a_type_is_refused_and_not_guessed() -> None:
    def limit(required: int, most=120) -> bool:  # type: ignore[no-untyped-def]
        """Limit."""
        return True

    with pytest.raises(ToolDefinitionError, match="`most` has no type"):
        tool(limit)


def test_an_annotation_that_leads_nowhere_is_an_error_and_no_missing_tool() -> None:
    def look(agent: "BaseDatabase") -> str:  # type: ignore[name-defined]  # noqa: F821, UP037
        """Look."""
        return ""

    with pytest.raises(ToolDefinitionError, match="name 'BaseDatabase' is not defined"):
        Agent(Scripted([]), [look])  # pyright: ignore[reportUnknownArgumentType]  on purpose


def test_unions_bare_containers_choices_and_defaults_are_parameters() -> None:
    @tool
    def search(
        people: int,
        words: Union[str, list[str]],  # noqa: UP007  as people write it
        maybe: Optional[int],  # noqa: UP045  as people write it
        places: list[Any] = [],  # noqa: B006  as people write it
        options: dict[str, Any] = {},  # noqa: B006  as people write it
        level: Literal[1, 2] = 1,
        nothing: None = None,
    ) -> str:
        return f"{people} {words} {maybe} {places} {options} {level} {nothing}"

    schema = search.arguments.schema
    assert set(schema["properties"]) == {
        "people",
        "words",
        "maybe",
        "places",
        "options",
        "level",
        "nothing",
    }
    assert schema["required"] == ["people", "words", "maybe"]
    assert search.description


async def test_a_function_without_a_docstring_is_a_tool() -> None:
    def shout(word: str) -> str:
        return word.upper()

    run = await Agent(Scripted([calls(("shout", {"word": "a"})), says("ok")]), [shout]).run("go")
    assert run.results[0].data == "A"


async def test_another_agent_goes_on_after_the_history_of_the_first(tmp_path: Path) -> None:
    storage = Storage(journal=str(tmp_path / "journal.db"))
    team = Agent(Scripted([says("one"), says("two")]), [add], storage=storage).session(id="talk")
    await team.run("first")
    await team.run("second")
    await team.close()
    analyst = Agent(Scripted([says("seen")], model="scripted:other"), storage=storage)
    with pytest.raises(ConfigError, match="there is a session `talk` already"):
        analyst.session(id="talk")
    session = analyst.session(id="talk", resume=True)
    await session.run("analyse")
    texts = [message.text for message in session.history if hasattr(message, "text")]
    assert texts == ["first", "one", "second", "two", "analyse", "seen"]
    await session.close()
