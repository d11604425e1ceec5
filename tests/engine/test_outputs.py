"""Typed answers: a run ends with a value of the agent's `output_type`, or with an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field

from ferrule import (
    Agent,
    ConfigError,
    Context,
    Limits,
    ModelOptions,
    OpenAIChat,
    OutputInvalid,
    ProviderError,
    RetryCall,
    Scripted,
    Storage,
    SubAgent,
    ask_agent,
    tool,
)
from ferrule.core.events import OutputChecked, RunFinished, RunStarted
from ferrule.core.messages import AssistantMessage, UserMessage
from ferrule.core.output import NOT_TAKEN, OutputRequest
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.job_run import run_job
from ferrule.engine.output.output_type import parse_output_type
from ferrule.engine.replay.recording import Recording
from ferrule.engine.replay.replay import replay
from ferrule.engine.replay.rerun import rerun
from ferrule.engine.session import RunResult, Session
from ferrule.hooks import Action, OutputPost, block, hook, modify
from ferrule.models.client import Capabilities
from ferrule.models.openai.strict_schema import build_reply_format
from ferrule.models.output_modes import OUTPUT_MODES, OUTPUT_TOOL, list_output_modes
from ferrule.models.scripted import Script, Step, calls, fails, says
from ferrule.plugins import Parts
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal

PLAIN = Capabilities(True, True, structured_with_tools=True)


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)


@dataclass
class Point:
    x: float
    y: float


class Row(TypedDict):
    key: str
    count: int


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Tree(BaseModel):
    label: str
    children: list[Tree] = []


@tool(side_effect="none")
def look_up(name: str) -> int:
    """Look up an age."""
    return len(name)


def agent_of(
    model: Scripted, output: Any, tools: Sequence[Any] = (), **options: Any
) -> Agent[Any, Any]:
    storage = Storage(journal=":memory:")
    return Agent(model, tools, output_type=output, storage=storage, **options)


def answer(
    output: Any, *steps: Script, tools: Sequence[Any] = (), **options: Any
) -> RunResult[Any]:
    """Return the result of a run of a model that answers with these steps."""
    model = Scripted(steps, capabilities=PLAIN)
    result = agent_of(model, output, tools, **options).run_sync("go")
    model.assert_finished()
    return result


def refused(output: Any, *steps: Script, **options: Any) -> OutputInvalid:
    with pytest.raises(OutputInvalid) as error:
        answer(output, *steps, **options)
    return error.value


# ---- types


def book(person: Person) -> str:
    """Book a seat."""
    if person.age < 18:
        raise RetryCall("only adults can book; name an adult")
    return f"seat for {person.name}"


async def add(a: int, b: int = 2) -> int:
    """Add numbers."""
    return a + b


def reserve(seats: Annotated[int, Field(ge=1)]) -> str:
    """Reserve seats."""
    return f"{seats} seats"


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Person, '{"name":"Ada","age":36}', Person(name="Ada", age=36)),
        (Point, '{"x":1,"y":2.5}', Point(1.0, 2.5)),
        (Row, '{"key":"k","count":3}', {"key": "k", "count": 3}),
        (list[Person], '[{"name":"Ada","age":36}]', [Person(name="Ada", age=36)]),
        (list[int], '{"value":[1,2]}', [1, 2]),
        (dict[str, int], '{"a":1}', {"a": 1}),
        (Colour, '{"value":"blue"}', Colour.BLUE),
        (Literal["yes", "no"], "no", "no"),
        (int, "42", 42),
        (bool, '{"value":true}', True),
        (int, str(10**40), 10**40),
        (Decimal, "0.1234567890123456789012345", Decimal("0.1234567890123456789012345")),
        (date, '{"value":"2026-02-28"}', date(2026, 2, 28)),
        ([Person, Point], '{"value":{"x":1,"y":2}}', Point(1.0, 2.0)),
        (Person | None, '{"value":null}', None),
        ([Person, str], "I know no person.", "I know no person."),
        (
            Tree,
            '{"label":"a","children":[{"label":"b"}]}',
            Tree(label="a", children=[Tree(label="b")]),
        ),
        (SCHEMA, '{"a":1}', {"a": 1}),
        ({"type": "array", "items": {"type": "integer"}}, '{"value":[3]}', [3]),
        (book, '{"name":"Ada","age":36}', "seat for Ada"),
        (add, '{"a":1}', 3),
        ([book, add, Point], '{"value":{"choice":"add","value":{"a":5,"b":6}}}', 11),
    ],
)
def test_a_run_ends_with_a_value_of_the_type(output: Any, text: str, value: Any) -> None:
    result = answer(output, says(text))
    assert result.output == value
    assert type(result.output) is type(value)
    if isinstance(value, str):
        assert result.text == value
    assert json.loads(result.output_json) is not ...


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (object(), "cannot be expressed as JSON Schema"),
        ([], "is empty"),
        ({"type": "banana"}, "the JSON Schema is not valid"),
        (lambda x: x, "`x` has no type"),
    ],
)
def test_what_is_no_type_is_an_error_where_the_agent_is_made(output: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        agent_of(Scripted([]), output)


def test_the_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="is not an output mode"):
        agent_of(Scripted([]), Person, output_mode="magic")
    with pytest.raises(ConfigError, match="at least 0"):
        agent_of(Scripted([]), Person, output_retries=-1)


def test_without_an_output_type_the_output_is_the_text() -> None:
    assert answer(str, says("hello")).output == "hello"


# ---- an answer that does not fit


def test_an_answer_that_does_not_fit_goes_back_with_place_finding_and_wish() -> None:
    model = Scripted([says('{"name":"Ada","age":"old"}'), says('{"name":"Ada","age":36}')])
    result = agent_of(model, Person).run_sync("go")
    assert result.output == Person(name="Ada", age=36)
    sent_back = model.histories[1][-1]
    assert isinstance(sent_back, UserMessage)
    assert "`age`: input should be a valid integer" in sent_back.text
    assert 'found "old"' in sent_back.text


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_after_the_retries_the_error_has_every_attempt(retries: int) -> None:
    texts = [f'{{"name":"n{number}","age":-1}}' for number in range(retries + 1)]
    error = refused(Person, *(says(text) for text in texts), output_retries=retries)
    assert [attempt.text for attempt in error.attempts] == texts
    assert all("`age`" in attempt.problems[0] for attempt in error.attempts)
    assert (error.code, error.exit_code) == ("output_invalid", 4)


def test_a_function_can_send_the_value_back() -> None:
    model = Scripted([says('{"name":"Tim","age":7}'), says('{"name":"Ada","age":36}')])
    assert agent_of(model, book).run_sync("go").output == "seat for Ada"
    assert "only adults can book" in model.histories[1][-1].text


def test_what_annotations_say_of_a_functions_parameters_holds() -> None:
    model = Scripted([says('{"value":0}'), says('{"value":2}')])
    assert agent_of(model, reserve).run_sync("go").output == "2 seats"
    assert "greater than or equal to 1" in model.histories[1][-1].text


def test_a_function_that_fails_ends_the_run_at_once() -> None:
    def fail(person: Person) -> str:
        raise ValueError("no seats")

    error = refused(fail, says('{"name":"Ada","age":36}'))
    assert "no seats" in error.detail
    assert isinstance(error.__cause__, ValueError)


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"Ada","age":36} or {"name":"Bob","age":37}',
        'Example: {"name":"X","age":1}. Answer: {"name":"Ada","age":"unknown"}',
        '{"name":"Ada","age":36',
        '{"person":{"name":"Ada","age":36}, oops',
        '{"name":"Ada","name":"Bob","age":36}',
        '{"name":"Ada","age":1} or {"name":"Ada","age":true}',
        '{"name":"Ada","age":NaN}',
        "Ada is 36.",
        "",
        "[]",
        '["Ada", 36]',
    ],
)
def test_nothing_is_guessed(text: str) -> None:
    error = refused(Person, says(text), output_retries=0)
    assert error.attempts[0].problems


@pytest.mark.parametrize(
    "text",
    [
        'Sure! Here it is:\n```json\n{"name":"Ada","age":36}\n```\nAnything else?',
        '<think>maybe {"name":"Bob"}</think>{"name":"Ada","age":36}',
        '{"name":"Ada","age":36} To repeat: {"name":"Ada","age":36}',
        'As [1] says: {"name":"Ada","age":36}',
        '  {"name":"Ada","age":"36"}  ',
    ],
)
def test_text_around_the_value_is_ignored(text: str) -> None:
    assert answer(Person, says(text)).output == Person(name="Ada", age=36)


def test_a_converted_value_is_reported() -> None:
    model = Scripted([says('{"name":"Ada","age":"36"}')])
    agent = agent_of(model, Person)
    result = agent.run_sync("go")
    notices = [
        record.event.text
        for record in agent.journal.records(result.session)
        if record.event.kind == "notice"
    ]
    assert notices == ['`age`: input should be a valid integer, found "36": was converted']


class Optional(BaseModel):
    name: str
    age: int = 7
    tags: list[str] = []


def test_a_null_that_is_not_allowed_counts_as_left_out() -> None:
    found = answer(list[Optional], says('{"value":[{"name":"a","age":null,"tags":null}]}'))
    assert found.output == [Optional(name="a")]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert answer(schema, says('{"a":null}')).output == {}
    error = refused(Optional, says('{"name":null,"age":1}'), output_retries=0)
    assert "`name`: field required" in error.detail
    error = refused(list[int], says("[1,null]"), output_retries=0)
    assert "found null" in error.detail


# ---- defined ends


def test_a_refusal_of_the_provider_ends_the_run() -> None:
    with pytest.raises(ProviderError) as error:
        answer(Person, says("I cannot", stop="filter"))
    assert error.value.code == "content_filter"


def test_an_answer_that_was_cut_is_asked_for_again_even_if_it_could_be_whole() -> None:
    whole = '{"name":"Ada","age":36}'
    model = Scripted([says(whole, stop="length"), says('{"name":"Ada","age":37}')])
    assert agent_of(model, Person).run_sync("go").output.age == 37
    assert "was cut at the model's output limit" in model.histories[1][-1].text
    error = refused(Person, says(whole, stop="length"), output_retries=0)
    assert "was cut" in error.detail


@pytest.mark.parametrize("mode", OUTPUT_MODES)
def test_the_last_answer_at_a_limit_is_checked_and_final(mode: str) -> None:
    def talk(last: str) -> Scripted:
        return Scripted([calls(("look_up", {"name": "Ada"})), says(last)], capabilities=PLAIN)

    limits = Limits(max_turns=1, on_limit="answer")
    model = talk('{"name":"Ada","age":36}')
    result = agent_of(model, Person, [look_up], limits=limits, output_mode=mode).run_sync("go")
    assert (result.output, result.stop) == (Person(name="Ada", age=36), "limit")
    assert not model.asks[-1].tools
    assert "JSON Schema" in model.histories[-1][-1].text
    with pytest.raises(OutputInvalid):
        agent_of(talk("no"), Person, [look_up], limits=limits, output_mode=mode).run_sync("go")


def test_retries_count_as_turns() -> None:
    error = refused(Person, says("no"), limits=Limits(max_turns=1))
    assert len(error.attempts) == 1


def test_a_session_goes_on_after_an_answer_that_did_not_fit() -> None:
    model = Scripted([says("no"), says('{"name":"Ada","age":36}')])

    async def story() -> RunResult[Any]:
        session = agent_of(model, Person, output_retries=0).session()
        with pytest.raises(OutputInvalid):
            await session.run("go")
        return await session.run("again")

    assert asyncio.run(story()).output == Person(name="Ada", age=36)


# ---- modes


@pytest.mark.parametrize(
    ("capabilities", "has_tools", "modes"),
    [
        (Capabilities(True, True, structured_with_tools=True), True, ["schema", "tool", "prompt"]),
        (Capabilities(True, True, structured_with_tools=False), True, ["tool", "prompt"]),
        (
            Capabilities(True, True, structured_with_tools=False),
            False,
            ["grammar", "tool", "prompt"],
        ),
        (Capabilities(False, True), True, ["grammar", "prompt"]),
        (Capabilities(False, False), True, ["prompt"]),
        (Capabilities(), True, ["tool", "prompt"]),
        (Capabilities(), False, ["tool", "prompt"]),
    ],
)
def test_the_mode_is_chosen_by_what_the_model_can_do(
    capabilities: Capabilities, has_tools: bool, modes: list[str]
) -> None:
    assert list_output_modes(capabilities, has_tools=has_tools) == modes


@pytest.mark.parametrize("tools", [[], [look_up]], ids=["no-tools", "tools"])
@pytest.mark.parametrize("mode", OUTPUT_MODES)
def test_every_mode_gives_the_value(mode: str, tools: list[Any]) -> None:
    value: Mapping[str, Any] = {"name": "Ada", "age": 36}
    steps: list[Step] = [calls(("look_up", {"name": "Ada"}))] if tools else []
    if mode == "tool":
        steps.append(calls((OUTPUT_TOOL, value)))
    elif mode == "grammar" and tools:
        steps += [says("She is 36."), says(json.dumps(value))]
    else:
        steps.append(says(json.dumps(value)))
    model = Scripted(steps, capabilities=PLAIN)
    result = agent_of(model, Person, tools, output_mode=mode).run_sync("go")
    model.assert_finished()
    assert result.output == Person(**value)
    assert [one.tool for one in result.results] == ["look_up"] * len(tools)
    assert [ask.schema is not None for ask in model.asks][-1] == (mode in ("schema", "grammar"))
    assert ('"age"' in model.opened[0].system) == (mode in ("grammar", "prompt"))
    named = [spec.name for spec in model.opened[0].tools]
    assert (OUTPUT_TOOL in named) == (mode == "tool")


def test_a_mode_that_the_provider_refuses_falls_to_the_next_and_says_so() -> None:
    no = fails(ProviderError("response_format is not supported", code="http_400"))
    model = Scripted([no, says('{"name":"Ada","age":36}')], capabilities=PLAIN)
    agent = agent_of(model, Person)
    result = agent.run_sync("go")
    assert result.output == Person(name="Ada", age=36)
    events = [record.event for record in agent.journal.records(result.session)]
    [notice] = [event.text for event in events if event.kind == "notice"]
    assert "output by schema is refused" in notice and "continuing with tool" in notice


def test_the_last_mode_is_fallen_to_as_well_and_its_refusal_is_the_error() -> None:
    no = fails(ProviderError("no tools", code="http_400"))
    two = Capabilities(True, True, structured_with_tools=False)
    assert list_output_modes(two, has_tools=True) == ["tool", "prompt"]
    model = Scripted([no, says('{"name":"Ada","age":36}')], capabilities=two)
    assert agent_of(model, Person, [look_up]).run_sync("go").output == Person(name="Ada", age=36)
    model = Scripted([no, fails(ProviderError("nothing", code="http_400"))], capabilities=two)
    with pytest.raises(ProviderError, match="nothing"):
        agent_of(model, Person, [look_up]).run_sync("go")


def test_a_mode_that_is_set_does_not_fall_and_one_that_worked_neither() -> None:
    no = fails(ProviderError("bad", code="http_400"))
    with pytest.raises(ProviderError):
        answer(Person, no, output_mode="schema")
    with pytest.raises(ProviderError):
        answer(Person, says("no"), no)


def test_a_value_beside_calls_is_not_taken_since_their_results_were_not_known() -> None:
    both = calls(("look_up", {"name": "Ada"}), (OUTPUT_TOOL, {"name": "Ada", "age": 1}))
    after = calls((OUTPUT_TOOL, {"name": "Ada", "age": 3}))
    model = Scripted([both, after])
    result = agent_of(model, Person, [look_up], output_mode="tool").run_sync("go")
    assert result.output.age == 3
    assert NOT_TAKEN in model.histories[1][-1].text


def test_two_different_values_by_the_output_tool_are_not_taken() -> None:
    ask = calls((OUTPUT_TOOL, {"name": "A", "age": 1}), (OUTPUT_TOOL, {"name": "B", "age": 2}))
    error = refused(Person, ask, output_mode="tool", output_retries=0)
    assert "different values" in error.detail


def test_the_output_tool_takes_no_name_that_another_tool_has() -> None:
    @tool(side_effect="none")
    def final_answer() -> int:
        """Another tool."""
        return 1

    model = Scripted([calls(("final_answer", {})), calls((f"{OUTPUT_TOOL}_2", {"value": 5}))])
    result = agent_of(model, int, [final_answer], output_mode="tool").run_sync("go")
    assert (result.output, len(result.results)) == (5, 1)


def test_what_a_model_says_beside_the_value_stays_in_the_history() -> None:
    model = Scripted([calls((OUTPUT_TOOL, {"value": 5}), text="That makes five.")])

    async def story() -> Session[Any]:
        session = agent_of(model, int, output_mode="tool").session()
        await session.run("go")
        return session

    last = asyncio.run(story()).history[-1]
    assert isinstance(last, AssistantMessage)
    assert last.text == 'That makes five.\n\n{"value":5}'


# ---- the journal


@pytest.mark.parametrize("mode", OUTPUT_MODES)
def test_a_session_with_outputs_is_replayed_and_run_again_offline(mode: str) -> None:
    steps = [says('{"name":"Ada"}'), says('{"name":"Ada","age":36}')]
    model = Scripted(steps, capabilities=PLAIN)
    agent = agent_of(model, Person, output_mode=mode)
    session = agent.run_sync("go").session
    records = list(agent.journal.records(session))
    assert replay(records).same
    kinds = [record.event.kind for record in records]
    assert kinds.count("output.checked") == 2
    report = asyncio.run(rerun(Recording.of(records), agent, tools="live"))
    assert report.same
    broken = [
        record
        if not isinstance(record.event, RunFinished)
        else record._replace(event=RunFinished("done", '{"name":"Bob","age":1}'))
        for record in records
    ]
    assert not replay(broken).same


def test_a_run_that_a_dead_process_left_unchecked_is_resumed_without_the_model(
    tmp_path: Path,
) -> None:
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(
        Scripted([says('{"name":"Ada","age":36}')]),
        output_type=Person,
        storage=Storage(journal=journal),
    )
    session = agent.run_sync("go").session
    records = [record.event for record in journal.records(session)]
    checked = next(i for i, event in enumerate(records) if isinstance(event, OutputChecked))
    left = SqliteJournal(tmp_path / "left.db")
    left.append(session, "run", records[:checked], identity=agent.session().identity)

    def resumed(output: Any) -> RunResult[Any] | None:
        again = Agent(Scripted([]), output_type=output, storage=Storage(journal=left))

        async def story() -> RunResult[Any] | None:
            opened = again.resume(session)
            try:
                return await opened.resume()
            finally:
                await opened.close()

        return asyncio.run(story())

    result = resumed(Person)
    assert result is not None
    assert result.output == Person(name="Ada", age=36)


def test_an_agent_without_the_type_resumes_by_the_schema_that_was_recorded() -> None:
    model = Scripted([says('{"a":"x"}'), says('{"a":1}')])
    agent = agent_of(model, str)

    async def story() -> RunResult[Any] | None:
        session = agent.session()
        wanted = OutputRequest(json.dumps(SCHEMA))
        session.driver.feed(RunStarted("go", output_request=wanted))
        return await session.resume()

    result = asyncio.run(story())
    assert result is not None
    assert (result.output, result.text) == ({"a": 1}, '{"a":1}')


def test_schemas_are_the_same_bytes_each_time() -> None:
    first, second = parse_output_type(Person), parse_output_type(Person)
    assert first is not None and second is not None
    assert first.schema_json == second.schema_json


# ---- sub-agents and workers


def test_a_sub_agent_gives_a_value_and_its_parent_text() -> None:
    reader = SubAgent("reader", "Reads.", output_type=Person)
    model = Scripted(
        [
            calls(("delegate", {"task": "who?", "agent": "reader"})),
            says('{"name":"Ada","age":"x"}'),
            says('{"name":"Ada","age":36}'),
            says("It is Ada."),
        ]
    )
    result = agent_of(model, str, plugins=[Parts(agents=[reader])]).run_sync("go")
    assert result.output == "It is Ada."
    assert result.results[0].data["answer"] == {"name": "Ada", "age": 36}


def test_a_tool_gets_the_value_of_a_sub_agent_as_its_type() -> None:
    found: list[Any] = []

    @tool(side_effect="none")
    async def ask(context: Context) -> str:
        """Ask the reader."""
        answer = await ask_agent(context, "who?", "reader", output_type=Person)
        found.append(answer["answer"])
        return "done"

    reader = SubAgent("reader", "Reads.", output_type=Person, tools=[])
    model = Scripted([calls(("ask", {})), says('{"name":"Ada","age":36}'), says('{"value":1}')])
    assert agent_of(model, int, [ask], plugins=[Parts(agents=[reader])]).run_sync("go").output == 1
    assert found == [Person(name="Ada", age=36)]


def test_a_sub_agent_without_a_value_is_an_error_of_the_call() -> None:
    reader = SubAgent("reader", "Reads.", output_type=Person)
    no = says("I know nobody")
    model = Scripted(
        [calls(("delegate", {"task": "who?", "agent": "reader"})), no, no, no, says("well")]
    )
    [result] = agent_of(model, str, plugins=[Parts(agents=[reader])]).run_sync("go").results
    assert "the agent `reader` gave no value that fits after 3 answers" in (
        result.error_message or ""
    )
    with pytest.raises(ConfigError, match="the agent `bad`: output_type"):
        SubAgent("bad", "Bad.", output_type=object())


def test_the_outcome_of_a_job_has_the_value(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db")
    job = Job("go", run="run-1", session="session-1")

    def make(job: Job, journal: Journal) -> Agent[Any, Any]:
        model = Scripted([says('{"name":"Ada","age":36}')])
        storage = Storage(journal=journal, tenant=job.tenant, user=job.user)
        return Agent(model, output_type=Person, storage=storage)

    outcome = asyncio.run(run_job(job, journal, make))
    assert outcome["output"] == {"name": "Ada", "age": 36}
    assert asyncio.run(run_job(job, journal, make)) == outcome


# ---- what is sent


def test_the_schema_mode_sends_the_subset_that_providers_promise_to_keep_to() -> None:
    model = Scripted([says('{"name":"Ada","age":null,"tags":null}')], capabilities=PLAIN)
    assert agent_of(model, Optional).run_sync("go").output == Optional(name="Ada")
    schema = model.asks[0].schema
    assert schema is not None
    assert schema["required"] == ["name", "age", "tags"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["age"]["type"] == ["integer", "null"]


def test_openai_itself_is_told_that_a_schema_is_strict() -> None:
    closed = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert build_reply_format(closed)["strict"] is True
    assert "strict" not in build_reply_format(SCHEMA)
    for url, strict in (("https://api.openai.com/v1", True), ("http://localhost/v1", False)):
        chat = OpenAIChat("m", base_url=url, api_key="k").open("", (), ModelOptions())
        body = chat._request_body(b"", True, closed, streamed=False)  # pyright: ignore[reportPrivateUsage]
        named = json.loads(body)["response_format"]["json_schema"]
        assert named.get("strict", False) is strict


class Price(BaseModel):
    amount: float


def test_a_hook_may_change_an_output_or_send_it_back() -> None:
    seen: list[Any] = []

    @hook("output")
    def check_price(event: OutputPost) -> Action:
        seen.append(event.value)
        if event.value["amount"] < 0:
            return block("a price is not negative")
        return modify({"value": {"amount": round(event.value["amount"], 1)}})

    model = Scripted([says('{"amount": -1}'), says('{"amount": 9.94}')])
    agent = Agent(
        model, output_type=Price, output_mode="prompt", plugins=[Parts(hooks=[check_price])]
    )
    run = agent.run_sync("price?")
    assert run.output == Price(amount=9.9)
    assert run.text == '{"amount":9.9}'
    assert seen == [{"amount": -1.0}, {"amount": 9.94}]
    assert "a price is not negative" in model.asks[1].history[-1].text


def test_what_a_hook_puts_in_place_of_an_output_is_checked_again() -> None:
    @hook("output")
    def spoil(event: OutputPost) -> Action:
        return modify({"value": {"amount": "much"}})

    model = Scripted([says('{"amount": 1}')] * 3)
    agent = Agent(model, output_type=Price, output_mode="prompt", plugins=[Parts(hooks=[spoil])])
    with pytest.raises(OutputInvalid, match="amount"):
        agent.run_sync("price?")


def test_what_an_output_function_did_cannot_be_taken_back() -> None:
    done: list[float] = []

    def pay(price: Price) -> str:
        done.append(price.amount)
        return "paid"

    @hook("output")
    def refuse(event: OutputPost) -> Action:
        return block("not today")

    model = Scripted([says('{"amount": 1}')])
    agent = Agent(model, output_type=pay, output_mode="prompt", plugins=[Parts(hooks=[refuse])])
    with pytest.raises(OutputInvalid, match="not today"):
        agent.run_sync("pay")
    assert done == [1.0]
