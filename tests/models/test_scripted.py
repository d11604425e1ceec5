"""The scripted model client: it says what the script says, remembers what it was asked, and minds what is
left.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, UserMessage
from ferrule.models.client import ModelOptions
from ferrule.models.scripted import Script, Scripted, ScriptError, Step, calls, fails, says
from ferrule.testing.model_client_conformance import ADD, RecordingSink

HELLO = [UserMessage("hello")]


def played(
    model_client: Scripted, times: int = 1, sink: RecordingSink | None = None
) -> list[ModelAnswered]:
    async def run() -> list[ModelAnswered]:
        exchange = model_client.open("system", [ADD], ModelOptions())
        return [await exchange.ask(HELLO, sink=sink) for _ in range(times)]

    return asyncio.run(run())


def test_a_function_in_place_of_steps_answers_every_ask_and_leaves_nothing_over() -> None:
    def count(history: Sequence[Message]) -> Step:
        return says(f"{len(history)} so far")

    model_client = Scripted(count)
    assert [answer.text for answer in played(model_client, 3)] == ["1 so far"] * 3
    model_client.assert_finished()


def test_it_says_and_calls_what_the_script_says() -> None:
    script = [
        calls(("add", {"a": 1}), ("add", '{"broken', "id7"), text="adding"),
        says("done", usage=Usage(3, 2), reasoning="easy"),
    ]
    assert played(Scripted(script), 2) == [
        ModelAnswered(
            "adding",
            (ToolCall("", "add", '{"a":1}'), ToolCall("id7", "add", '{"broken')),
            stop="calls",
        ),
        ModelAnswered("done", (), "easy", Usage(3, 2), "end"),
    ]


def test_a_step_can_be_a_plain_text() -> None:
    assert played(Scripted(["done"])) == played(Scripted([says("done")]))


@pytest.mark.parametrize("step", [None, 7, {"say": "hello"}])
def test_a_step_that_is_none_is_refused_where_the_script_is_made(step: object) -> None:
    script: list[Any] = ["hello", step]
    with pytest.raises(ConfigError, match="step 2 of the script is a") as refused:
        Scripted(script)
    assert "`says(...)`" in refused.value.hint


def test_words_reach_the_sink_in_pieces() -> None:
    listener = RecordingSink()
    played(Scripted([says("two  words\n more", reasoning="a b")]), sink=listener)
    assert "".join(listener.pieces) == "two  words\n more"
    assert len(listener.pieces) > 1
    assert listener.thoughts == ["a ", "b"]


def test_it_can_fail_as_a_provider_does() -> None:
    with pytest.raises(ProviderError, match="no server") as raised:
        played(Scripted([fails(ProviderError("no server", code="unreachable"))]))
    assert raised.value.code == "unreachable"


def test_a_step_can_look_at_the_history_and_wait() -> None:
    async def story() -> list[str]:
        gate = asyncio.Event()

        async def waits(history: Sequence[Message]) -> Step:
            await gate.wait()
            return says(f"{len(history)} messages")

        steps: list[Script] = [waits, lambda history: says(history[0].text)]
        async with Scripted(steps) as model_client:
            exchange = model_client.open("", [], ModelOptions())
            asked = asyncio.create_task(exchange.ask(HELLO))
            gate.set()
            return [(await asked).text, (await exchange.ask(HELLO)).text]

    assert asyncio.run(story()) == ["1 messages", "hello"]


def test_it_remembers_what_it_was_given() -> None:
    model_client = Scripted([says("a"), says("b")])

    async def story() -> None:
        exchange = model_client.open("be brief", [ADD], ModelOptions(seed=1))
        history: list[Message] = list(HELLO)
        await exchange.ask(history)
        history.append(AssistantMessage("a"))
        await exchange.ask(history, tools=False, schema={"type": "object"})

    asyncio.run(story())
    assert model_client.histories == [tuple(HELLO), (*HELLO, AssistantMessage("a"))]
    assert [(ask.tools, ask.schema) for ask in model_client.asks] == [
        (True, None),
        (False, {"type": "object"}),
    ]
    assert (
        model_client.opened[0].system,
        model_client.opened[0].tools,
        model_client.opened[0].options.seed,
    ) == (
        "be brief",
        (ADD,),
        1,
    )


def test_asked_once_too_often_it_says_so() -> None:
    model_client = Scripted([says("a")])
    with pytest.raises(ScriptError) as raised:
        played(model_client, 2)
    assert raised.value.code == "script_over"
    assert isinstance(raised.value, AssertionError)
    asyncio.run(model_client.close())


def test_steps_left_over_are_an_error_at_the_end() -> None:
    model_client = Scripted([says("a"), says("b")])
    played(model_client)
    with pytest.raises(ScriptError, match="1 of 2 steps") as raised:
        asyncio.run(model_client.close())
    assert raised.value.code == "script_left"
    asyncio.run(model_client.close())


def test_an_error_in_the_test_is_not_hidden_by_what_is_left() -> None:
    async def story() -> None:
        async with Scripted([says("a")]):
            raise KeyError("the real problem")

    with pytest.raises(KeyError):
        asyncio.run(story())


def test_a_script_that_was_used_up_closes_quietly() -> None:
    model_client = Scripted([says("a")])
    played(model_client)
    model_client.assert_finished()
    asyncio.run(model_client.close())


YAML = """
- call: {tool: add, arguments: {a: 1}}
- call:
    - {tool: add, arguments: "{broken", id: x}
    - tool: now
  say: two at once
- say: done
  reasoning: hm
"""


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_script_can_be_a_file(tmp_path: Path, form: str) -> None:
    import yaml

    path = tmp_path / f"talk.{form}"
    path.write_text(YAML if form == "yaml" else json.dumps(yaml.safe_load(YAML)))
    model_client = Scripted.load(path)
    assert model_client.model == f"scripted:{path}"
    assert played(model_client, 3) == [
        ModelAnswered("", (ToolCall("", "add", '{"a":1}'),), stop="calls"),
        ModelAnswered(
            "two at once",
            (ToolCall("x", "add", "{broken"), ToolCall("", "now", "{}")),
            stop="calls",
        ),
        ModelAnswered("done", reasoning="hm"),
    ]


def test_a_file_can_hold_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "talk.yaml"
    path.write_text("- fail: {code: unreachable, detail: no server, hint: start it}\n")
    with pytest.raises(ProviderError) as raised:
        played(Scripted.load(path))
    assert (raised.value.code, raised.value.detail, raised.value.hint) == (
        "unreachable",
        "no server",
        "start it",
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("say: hello", "must be a list"),
        ("- hello", "step 1"),
        ("- say: a\n- {}", "step 2"),
        ("- say: a\n  tell: b", "`tell`"),
        ("- call: {name: x}", "step 1"),
        ("- call: 7", "step 1"),
        ("- fail: boom", "step 1"),
        ("- [", "cannot be parsed"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(
    tmp_path: Path, text: str, named: str
) -> None:
    path = tmp_path / "talk.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named):
        Scripted.load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        Scripted.load(tmp_path / "nowhere.yaml")


def test_a_file_of_several_scripts_has_one_for_each_name(tmp_path: Path) -> None:
    file = tmp_path / "talks.yaml"
    file.write_text("reads: [{say: one}]\nwrites: [{say: two}, {say: three}]\n")
    assert Scripted.load(f"{file}#writes").model == f"scripted:{file}#writes"
    with pytest.raises(ScriptError, match="2 of 2 steps"):
        Scripted.load(f"{file}#writes").assert_finished()
    with pytest.raises(ConfigError, match="no script `write`") as error:
        Scripted.load(f"{file}#write")
    assert error.value.hint == f"there is `scripted:{file}#writes`"
    alone = tmp_path / "talk.yaml"
    alone.write_text("[{say: one}]")
    with pytest.raises(ScriptError, match="1 of 1 steps"):
        Scripted.load(f"{alone}#any name").assert_finished()
