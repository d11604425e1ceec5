"""Nothing of a mark or of reasoning reaches a person, and words about calls are words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_forms import FORMS

from ferrule.core.events import ModelAnswered
from ferrule.models.dialects import Reading, ReplyReader, starts_in_reasoning
from ferrule.models.tool_modes.reading_sinks import LazyReadingSink

OPENING = (
    *(
        "<tool_call>",
        "<seed:tool_call>",
        "<minimax:tool_call>",
        "<function_calls>",
        "<tool_calls>",
        "<TOOLCALL>",
    ),
    *(
        "<｜DSML｜function_calls>",
        "<|tool_call|>",
        "<|tool_call_start|>",
        "<|python_tag|>",
        "<|START_ACTION|>",
    ),
    *(
        "<|tool_calls_section_begin|>",
        "<｜tool▁calls▁begin｜>",
        "<|open|>tools<|sep|>",
        "<start_function_call>",
    ),
    *(
        "<|tool_call>",
        "<|tools_prefix|>",
        "<longcat_tool_call>",
        "<function=run>",
        '<invoke name="run">',
    ),
)
REASONING = (
    *(
        "</think>",
        "</thinking>",
        "</thought>",
        "</reasoning>",
        "</scratchpad>",
        "</seed:think>",
        "</mm:think>",
    ),
    *(
        "◁/think▷",
        "[/THINK]",
        "<|END_THINKING|>",
        "<|close|>think<|sep|>",
        "</longcat_think>",
        "<channel|>",
    ),
)
TOOLS: dict[str, Any] = {"run": {"type": "object", "properties": {"command": {"type": "string"}}}}
CALL = '{"name": "run", "arguments": {"command": "rm"}}'


def read(reply: str, *, thinking: bool = False) -> Reading:
    """The reading of a reply, which is the same letter by letter, as is what was shown of it."""
    whole = ReplyReader(tools=TOOLS, thinking=thinking)
    whole.feed(reply)
    reading = whole.finish()
    letters = ReplyReader(tools=TOOLS, thinking=thinking)
    shown = "".join(letters.feed(letter) for letter in reply)
    assert letters.finish() == reading
    assert reading.text.startswith(shown) or not thinking
    return reading


@pytest.mark.parametrize("mark", OPENING)
def test_a_mark_that_opens_and_nothing_else_is_not_shown(mark: str) -> None:
    reading = read(f"I'll look.\n{mark}")
    assert (reading.text, reading.calls) == ("I'll look.", ())
    assert "begun and not finished" in reading.problems[0]


@pytest.mark.parametrize("closing", REASONING)
def test_a_mark_that_closes_reasoning_ends_it_though_nothing_opened_it(closing: str) -> None:
    for thinking in (False, True):
        reading = read(f"I weigh it.\n{closing}\n\nIt is 4.", thinking=thinking)
        assert (reading.text, reading.reasoning) == ("It is 4.", "I weigh it.")


@pytest.mark.parametrize("closing", REASONING)
def test_nothing_is_shown_while_a_reply_may_be_inside_reasoning(closing: str) -> None:
    reader = ReplyReader(tools=TOOLS, thinking=True)
    assert (
        "".join(reader.feed(letter) for letter in f"I weigh it, at length. <b>Now</b>\n{closing}")
        == ""
    )
    assert "".join(reader.feed(letter) for letter in "\n\nIt is 4.") == "It is 4."


def test_a_tag_that_opens_and_closes_within_a_line_is_text() -> None:
    words = "The document is <doc><reasoning>short</reasoning></doc>, see <think>x</think>."
    assert read(words) == Reading(words)


@pytest.mark.parametrize("mark", OPENING)
@pytest.mark.parametrize(
    "words", ["Models write {} before a call.", "Write `{}` there.", "It begins with {}"]
)
def test_a_word_about_a_mark_is_text_and_no_call(mark: str, words: str) -> None:
    if words.endswith("{}") and ("|" in mark or "｜" in mark):
        pytest.skip("reason: at the end of a reply a control token is the beginning of a call")
    prose = words.format(mark)
    reading = read(prose)
    assert (reading.text, reading.calls, reading.reasoning) == (prose, (), "")


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_a_whole_call_in_back_ticks_is_text(form: Any) -> None:
    written = form.write([("run", {"command": "rm"})]).replace("\n", " ").replace("`", "")
    prose = f"For example `{written}` does it."
    assert (read(prose).text, read(prose).calls) == (prose, ())


@pytest.mark.parametrize(
    "reply",
    [
        f"<|channel|>final<|message|>{CALL}<|return|>",
        f"<|channel|>final<|message|>```json\n{CALL}\n```<|return|>",
        f"<|channel|>commentary<|message|>{CALL}<|end|>",
        f"<|channel|>final<|message|><tool_call>{CALL}</tool_call>",
        f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>{CALL}",
    ],
)
def test_in_harmony_only_a_recipient_makes_a_call(reply: str) -> None:
    reading = read(reply)
    assert reading.calls == ()
    assert CALL in reading.text


@pytest.mark.parametrize(
    "reply",
    [
        '<invoke name="run"/>',
        "<function=run/>",
        '<function_calls>\n<invoke name="run"/>\n</function_calls>',
        "<tool_call>\n<function=run/>\n</tool_call>",
        '<minimax:tool_call><invoke name="run" /></minimax:tool_call>',
    ],
)
def test_a_tag_that_closes_itself_is_a_call_without_arguments(reply: str) -> None:
    reading = read(f"I'll look.\n{reply}")
    assert [(call.tool, json.loads(call.arguments)) for call in reading.calls] == [("run", {})]
    assert reading.text == "I'll look."


@pytest.mark.parametrize(
    ("model", "thinks"),
    [
        ("x:zai-org/GLM-4.7", True),
        ("x:zai-org/GLM-4.6", False),
        ("x:deepseek-ai/DeepSeek-V3.2", True),
        ("x:deepseek-ai/DeepSeek-V3.1", False),
        ("x:moonshotai/Kimi-K2.6", True),
        ("x:moonshotai/Kimi-K3", True),
        ("x:moonshotai/Kimi-K2-Instruct", False),
        ("x:Qwen/Qwen3.5-35B-A3B", True),
        ("ollama:qwen3:8b", False),
        ("x:MiniMaxAI/MiniMax-M2.5", True),
        ("x:stepfun-ai/Step-3.7-Flash", True),
        ("ollama:deepseek-r1:8b", True),
        ("openai:gpt-5.2", False),
    ],
)
def test_a_family_whose_prompt_opens_reasoning_is_known(model: str, thinks: bool) -> None:
    assert starts_in_reasoning(model) == thinks


class Heard:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.thoughts: list[str] = []

    def add_text(self, piece: str) -> None:
        self.words.append(piece)

    def add_reasoning(self, piece: str) -> None:
        self.thoughts.append(piece)

    def add_arguments(self, call: int, tool: str, piece: str) -> None: ...

    def notice(self, topic: str, text: str) -> None: ...


def test_a_native_stream_of_such_a_model_shows_its_answer_alone() -> None:
    heard = Heard()
    sink = LazyReadingSink(
        lambda: ReplyReader(tools=TOOLS, marked=True, thinking=True), heard, thinking=True
    )
    for piece in ("I weigh it, ", "at length.", "\n</think>\n\n", "It is 4."):
        sink.add_text(piece)
    sink.finish(ModelAnswered("I weigh it, at length.\n</think>\n\nIt is 4."))
    assert ("".join(heard.words), heard.thoughts) == ("It is 4.", ["I weigh it, at length."])


def test_where_a_server_sets_reasoning_apart_the_text_is_shown_as_it_comes() -> None:
    heard = Heard()
    sink = LazyReadingSink(
        lambda: ReplyReader(tools=TOOLS, marked=True, thinking=True), heard, thinking=True
    )
    sink.add_reasoning("I weigh it.")
    sink.add_text("It is 4 ")
    assert heard.words == ["It is 4"]
    sink.add_text("<b>indeed</b>.")
    sink.finish(ModelAnswered("It is 4 <b>indeed</b>.", reasoning="I weigh it."))
    assert "".join(heard.words) == "It is 4 <b>indeed</b>."
