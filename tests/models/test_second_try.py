"""Native answers that are of no use as they are, and the one more question that follows them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ferrule import Agent, Storage, tool
from ferrule.core.calls import ToolCall
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import Capabilities, ToolSpec
from ferrule.models.scripted import Script, Scripted, calls, fails, says
from ferrule.models.tool_modes.selection import open_exchange

SPECS = (
    ToolSpec(
        "read_file",
        "read_file",
        "Reads.",
        '{"type":"object","properties":{"path":{"type":"string"}}}',
    ),
    ToolSpec(
        "notes::add",
        "notes__add",
        "Adds.",
        '{"type":"object","properties":{"text":{"type":"string"}}}',
    ),
)
ASK: tuple[Message, ...] = (UserMessage("Read a.txt"),)
FENCED = '```json\n{"name": "read_file", "arguments": {"path": "a"}}\n```'
IN_WORDS = (
    FENCED,
    "I will do it.\n\n" + FENCED.replace("arguments", "parameters"),
    '{"name": "read_file", "arguments": {"path": "a"}}',
    '[read_file(path="a")]',
    '```python\nprint(read_file(path="a"))\n```',
    FENCED.replace("read_file", "notes__add"),
)
MEANT = calls(("read_file", {"path": "a"}, "id1"))


class Heard:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.notices: list[tuple[str, str]] = []

    def add_text(self, piece: str) -> None:
        self.words.append(piece)

    def add_reasoning(self, piece: str) -> None: ...

    def add_arguments(self, call: int, tool: str, piece: str) -> None: ...

    def notice(self, topic: str, text: str) -> None:
        self.notices.append((topic, text))


def ask(steps: Sequence[Script], **options: Any) -> tuple[ModelAnswered, Heard, Scripted]:
    """One question to a model with native tools, streamed."""
    model_client, heard = Scripted(steps, capabilities=Capabilities(True)), Heard()
    fallback = options.pop("native_fallback", "allow")

    async def main() -> ModelAnswered:
        exchange, _ = await open_exchange(
            model_client, "auto", "S", SPECS, native_fallback=fallback
        )
        return await exchange.ask(ASK, sink=heard, **options)

    return asyncio.run(main()), heard, model_client


@pytest.mark.parametrize("words", IN_WORDS)
def test_a_call_in_words_is_not_run_and_the_model_is_told_so_once(words: str) -> None:
    answer, heard, model_client = ask([says(words), MEANT])
    assert answer.calls == (ToolCall("id1", "read_file", '{"path":"a"}'),)
    assert (answer.text, answer.stop, "".join(heard.words)) == (words, "calls", words)
    first, second = model_client.histories
    told = second[-1]
    assert first == ASK and second[:-1] == (*ASK, AssistantMessage(words))
    assert isinstance(told, UserMessage) and "nothing was run" in told.text
    [(topic, said)] = heard.notices
    assert topic == "native_tool_fallback" and "asked once more" in said


def test_what_was_said_stands_where_the_second_answer_makes_no_call() -> None:
    used = [says(FENCED, usage=Usage(10, 3)), says("You asked for an example.", usage=Usage(20, 4))]
    answer, heard, _ = ask(used)
    assert (answer.text, answer.calls, answer.usage) == (FENCED, (), Usage(30, 7))
    assert "".join(heard.words) == FENCED


def test_words_of_the_second_answer_follow_those_of_the_first() -> None:
    answer, heard, _ = ask([says(FENCED), calls(("read_file", {"path": "a"}, "id1"), text="Now.")])
    assert answer.text == "".join(heard.words) == f"{FENCED}\n\nNow."


@pytest.mark.parametrize(
    "words",
    [
        "I used `read_file` (twice) for {this}.",
        'It says {"name": "x", "arguments": {}}.',
        FENCED.replace("read_file", "delete_all"),
        FENCED.replace("read_file", "notes::add"),
        f'Settings:\n```json\n{{"a": 1}}\n```\nand a call:\n{FENCED}',
    ],
)
def test_nothing_is_asked_where_no_offered_tool_is_called_and_nothing_else_shown(
    words: str,
) -> None:
    answer, heard, model_client = ask([says(words)])
    assert (answer.text, answer.calls, heard.notices, len(model_client.asks)) == (words, (), [], 1)


def test_nothing_is_asked_with_fallback_off_without_tools_or_for_a_schema() -> None:
    for options in (
        {"native_fallback": "reject"},
        {"tools": False},
        {"schema": {"type": "object"}},
    ):
        answer, _, model_client = ask([says(FENCED)], **options)
        assert (answer.text, answer.calls, len(model_client.asks)) == (FENCED, (), 1)


def test_an_answer_stands_where_the_second_question_fails() -> None:
    for said in (FENCED, ""):
        broken = fails(ProviderError("gone", code="unreachable", retryable=False))
        answer, heard, _ = ask([says(said), broken])
        assert (answer.text, answer.calls) == (said, ())
        assert "that failed, so the answer stands" in heard.notices[-1][1]


def test_an_empty_answer_is_asked_for_again_as_it_was() -> None:
    answer, heard, model_client = ask(
        [says("", usage=Usage(10, 0)), says("Hello.", usage=Usage(10, 2))]
    )
    assert (answer.text, "".join(heard.words), answer.usage) == ("Hello.", "Hello.", Usage(20, 2))
    assert model_client.histories == [ASK, ASK]
    assert heard.notices == [("retry", "the answer was empty: asked again")]
    assert ask([says(""), MEANT])[0].calls == (ToolCall("id1", "read_file", '{"path":"a"}'),)
    tagged = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a"}}\n</tool_call>'
    assert [call.tool for call in ask([says(""), says(tagged)])[0].calls] == ["read_file"]


def test_a_second_empty_answer_and_one_that_was_cut_or_withheld_are_taken_as_they_are() -> None:
    for steps in ([says(""), says("")], [says("", stop="length")], [says("", stop="filter")]):
        answer, _, model_client = ask(steps)
        assert (answer.text, answer.calls, len(model_client.asks)) == ("", (), len(steps))


async def test_a_session_keeps_the_words_and_the_call_and_not_the_question_between() -> None:
    @tool(side_effect="none")
    def read_file(path: str) -> str:
        """Read a file."""
        return f"contents of {path}"

    model = Scripted([says(FENCED), MEANT, says("It says so.")], capabilities=Capabilities(True))
    session = Agent(model, [read_file], storage=Storage(journal=":memory:")).session()
    done = await session.run("Read a.txt")
    assert (done.text, [result.data for result in done.results]) == (
        "It says so.",
        ["contents of a"],
    )
    said, got, last = session.driver.machine.history[1:]
    assert isinstance(said, AssistantMessage) and (said.text, len(said.calls)) == (FENCED, 1)
    assert isinstance(got, ToolMessage) and got.call_id == "id1"
    assert isinstance(last, AssistantMessage) and last.text == "It says so."
    assert model.histories[2] == tuple(session.driver.machine.history[:3])
