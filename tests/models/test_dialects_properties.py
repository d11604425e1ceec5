"""Rules of the reader that hold for all texts: prose stays, what is rendered is read back, work is
linear.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ferrule.core.calls import ToolCall, encode_json
from ferrule.models.dialects import (
    ALL_DIALECTS,
    Dialect,
    Reading,
    ReplyReader,
    dialects_for_model,
    starts_in_reasoning,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NASTY = st.sampled_from(
    [
        "</tool_call>",
        "<tool_call>{",
        "</parameter>\n</function>",
        "</arg_value>",
        "```\n",
        "[TOOL_CALLS]",
        "<|call|><|end|>",
        '<|"|>',
        "<escape>",
        "<｜tool▁call▁end｜>",
        "<|tool_call_end|>",
        "<|END_ACTION|>",
        "]}'\"\\",
        "<think>",
        "</think>",
        "\n>>>f\n",
        "5",
        "true",
        '"quoted"',
        " padded ",
        "\r\nline\n",
        "<|close|>argument<|sep|>",
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | NASTY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True) | st.sampled_from(
    ["srv__read-file", "git"]
)
KEYS = (
    st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
    | TEXT.filter(bool)
    | st.sampled_from(["class"])
)
CALLS = st.lists(
    st.tuples(NAMES, st.dictionaries(KEYS, VALUES, max_size=4)), min_size=1, max_size=3
)


def read(reply: str, **options: Any) -> Reading:
    reader = ReplyReader(**options)
    reader.feed(reply)
    return reader.finish()


@pytest.mark.parametrize("dialect", ALL_DIALECTS, ids=[dialect.name for dialect in ALL_DIALECTS])
@given(wanted=CALLS)
def test_rendered_calls_are_read_back(
    dialect: Dialect, wanted: list[tuple[str, dict[str, Any]]]
) -> None:
    calls = [ToolCall("", tool, encode_json(arguments)) for tool, arguments in wanted]
    reading = read(dialect.render(calls))
    assert [(call.tool, json.loads(call.arguments)) for call in reading.calls] == wanted
    assert reading.text == ""
    assert reading.problems == ()


@pytest.mark.parametrize("dialect", ALL_DIALECTS, ids=[dialect.name for dialect in ALL_DIALECTS])
def test_rendered_calls_among_text_are_read_back(dialect: Dialect) -> None:
    if dialect.name in ("llama", "pythonic"):
        pytest.skip("reason: these dialects call only with the whole reply")
    reply = "Before.\n\n" + dialect.render([ToolCall("", "f", '{"a":1}')])
    reading = read(reply)
    assert (reading.text, [call.tool for call in reading.calls]) == ("Before.", ["f"])


# ---- prose

QUIET = st.text(
    st.characters(exclude_characters="<[{`~◁>｜", exclude_categories=["Cs"]), max_size=300
).filter(lambda text: "functools" not in text)


@given(QUIET, st.lists(st.integers(0, 300), max_size=8))
@example("  \n lead and trail \n\n", [3])
def test_prose_without_marks_is_returned_unchanged(prose: str, cuts: list[int]) -> None:
    reader = ReplyReader()
    bounds = [0, *sorted(min(cut, len(prose)) for cut in cuts), len(prose)]
    shown = "".join(reader.feed(prose[a:b]) for a, b in itertools.pairwise(bounds))
    reading = reader.finish()
    assert reading == Reading(text=prose)
    assert prose.startswith(shown)
    assert shown.rstrip() == shown


@given(st.text(st.sampled_from("<>[]{}|`\n\"'/ab tool_call:think=▷◁"), max_size=60))
def test_every_letter_of_noise_is_somewhere(noise: str) -> None:
    """Whatever is made of a text, its letters are in the text, the reasoning or a call."""
    reading = read(noise)
    kept = reading.text + reading.reasoning + "".join(c.tool + c.arguments for c in reading.calls)
    assert noise.count("b") <= kept.count("b")


@given(
    st.lists(
        st.sampled_from(
            [
                *(
                    "<tool_call>",
                    "</tool_call>",
                    "<think>",
                    "</think>",
                    "```json\n",
                    "```\n",
                    "`",
                    "\n",
                    " ",
                ),
                *(
                    '{"name": "f", "arguments": {"a": 1}}',
                    '{"name": "f", "arg',
                    "word",
                    "[TOOL_CALLS]",
                    "f[ARGS]",
                ),
                *(
                    "<function=f>",
                    "<parameter=a>",
                    "</parameter>",
                    "</function>",
                    "<|channel|>final<|message|>",
                ),
                *(
                    "<|channel|>commentary to=functions.f<|message|>",
                    "<|end|>",
                    "<|call|>",
                    "<|im_end|>",
                    "~~~\n",
                ),
                *(
                    "<｜tool▁calls▁begin｜>",
                    "<｜tool▁call▁begin｜>",
                    "f<｜tool▁sep｜>",
                    "<｜tool▁calls▁end｜>",
                ),
                *(
                    "<|tool_call>",
                    "call:f{a:1}",
                    "<tool_call|>",
                    "[f(a=1)]",
                    ">>>f\n",
                    ">>>all\n",
                    "functools[{",
                ),
                *(
                    "<|python_tag|>",
                    "<|tool_call|>",
                    "print(f(a=1))",
                    "]<]minimax[>[",
                    "<|START_RESPONSE|>",
                ),
            ]
        ),
        max_size=14,
    ),
    st.lists(st.integers(0, 300), max_size=10),
    st.booleans(),
)
def test_any_sequence_of_marks_reads_the_same_however_cut(
    parts: list[str], cuts: list[int], offered: bool
) -> None:
    reply = "".join(parts)
    tools = ("f",) if offered else ()
    expected = read(reply, tools=tools)
    for bounds in (
        [0, *sorted(min(cut, len(reply)) for cut in cuts), len(reply)],
        range(len(reply) + 1),
    ):
        reader = ReplyReader(tools=tools)
        for a, b in zip(bounds, [*bounds][1:], strict=False):
            reader.feed(reply[a:b])
        assert reader.finish() == expected


# ---- families


@pytest.mark.parametrize(
    ("model", "dialect"),
    [
        ("ollama:qwen2.5-coder:7b", "hermes"),
        ("ollama:qwen3-coder:30b", "qwen-xml"),
        ("openai:Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen-xml"),
        ("ollama:llama3.2:latest", "llama"),
        ("any:meta-llama/Llama-4-Scout", "pythonic"),
        ("ollama:mistral:latest", "mistral"),
        ("ollama:devstral", "mistral-args"),
        ("deepseek:deepseek-chat", "deepseek"),
        ("x:deepseek-ai/DeepSeek-V3.1", "deepseek-3.1"),
        ("x:deepseek-ai/DeepSeek-V3.2-Exp", "dsml"),
        ("x:zai-org/GLM-4.6", "glm"),
        ("x:moonshotai/Kimi-K2-Instruct", "kimi"),
        ("ollama:gpt-oss:20b", "harmony"),
        ("ollama:gemma3:4b", "gemma"),
        ("x:google/functiongemma-270m-it", "functiongemma"),
        ("x:ibm-granite/granite-3.3-8b-instruct", "granite"),
        ("ollama:granite4:3b", "hermes"),
        ("x:microsoft/Phi-4-mini-instruct", "phi"),
        ("x:CohereLabs/c4ai-command-r7b-12-2024", "cohere"),
        ("local:smollm2", "hermes"),
        ("x:something-new", "fenced"),
    ],
)
def test_a_model_is_answered_in_its_own_dialect(model: str, dialect: str) -> None:
    assert dialects_for_model(model)[0].name == dialect


def test_nothing_is_shown_of_a_reply_that_starts_inside_reasoning() -> None:
    assert starts_in_reasoning("ollama:deepseek-r1:8b")
    reader = ReplyReader(thinking=starts_in_reasoning("ollama:deepseek-r1:8b"))
    assert reader.feed("First I look at it. ") == ""
    assert reader.feed("Then I answer.</think>\n\nIt is 4.") == "It is 4."
    assert reader.finish() == Reading("It is 4.", (), "First I look at it. Then I answer.")


def test_a_word_about_the_closing_tag_does_not_end_reasoning_wherever_the_stream_is_cut() -> None:
    reply = "It says </think> there. " + "x" * 200 + "</think>\nYes."
    for size in (1, 7, 64, len(reply)):
        reader = ReplyReader(thinking=True)
        for at in range(0, len(reply), size):
            reader.feed(reply[at : at + size])
        assert reader.finish().text == "Yes."


def test_a_reply_without_the_reasoning_it_was_said_to_have_is_text() -> None:
    reader = ReplyReader(thinking=True)
    reader.feed("Just this.\n")
    assert reader.finish() == Reading("Just this.\n")


# ---- ambiguous forms


@pytest.mark.proves("dialects.fenced-rule")
def test_fenced_call_beside_another_block_is_no_call() -> None:
    call = '```json\n{"name": "read_file", "arguments": {"path": "a"}}\n```\n'
    assert [c.tool for c in read(call).calls] == ["read_file"]
    both = read(call + "\n```\nhello\n```\n")
    assert both == Reading(call + "\n```\nhello\n```\n")


@pytest.mark.proves("dialects.fenced-rule")
def test_fences_are_text_if_they_are_not_to_be_read() -> None:
    call = '```json\n{"name": "read_file", "arguments": {"path": "a"}}\n```'
    assert read(call, fenced=False) == Reading(call)


def test_prose_is_given_out_before_the_call_is_complete() -> None:
    reader = ReplyReader()
    assert reader.feed("I will look at <b>it</b> now.\n<tool_") == "I will look at <b>it</b> now."
    assert reader.feed('call>{"name": "f", ') == ""
    assert reader.feed('"arguments": {}}</tool_call>\nDone') == "\nDone"
    assert reader.finish().text == "I will look at <b>it</b> now.\nDone"


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        ("<|channel|>final<|message|>It is 4.", "It is 4."),
        ("<|start|>assistant<|channel|>final<|message|>It is 4.", "It is 4."),
        ("I weigh it.</think>It is 4.", "It is 4."),
        ("<think>I weigh it.</think>It is 4.", "It is 4."),
        ("<|START_RESPONSE|>It is 4.", "It is 4."),
        ("<|open|>response<|sep|>It is 4.", "It is 4."),
        ("It `is` 4.", "It `is` 4."),
        ("~~~\nIt is\n~~~\n4.", "~~~\nIt is\n~~~\n4."),
    ],
)
def test_what_follows_a_mark_is_given_out_with_the_piece_that_holds_both(
    piece: str, shown: str
) -> None:
    assert ReplyReader(tools=("read_file",)).feed(piece) == shown


def test_code_that_is_no_call_is_given_out_while_it_arrives() -> None:
    reader = ReplyReader(tools=("read_file",))
    assert reader.feed("```python\nimport os\n") == "```python\nimport os"
    assert reader.feed("print(1)\n") == "\nprint(1)"


# ---- work


@pytest.mark.proves("dialects.linear")
@pytest.mark.parametrize(
    "opening",
    [
        '<tool_call>{"name": "f", "arguments": {"a": "',
        "<tool_call>\n<function=f>\n<parameter=a>\n",
        '[TOOL_CALLS]f[ARGS]{"a": "',
        '{"name": "f", "arguments": {"a": "',
        '```json\n{"name": "f", "arguments": {"a": "',
        "<think>",
        "",
    ],
    ids=["tagged", "xml", "mistral", "bare", "fenced", "thinking", "prose"],
)
def test_what_is_searched_again_does_not_grow_with_the_reply(opening: str) -> None:
    """The text a reader looks at again on the next piece is bounded, whatever it has swallowed."""
    reader = ReplyReader()
    reader.feed(opening)
    for _ in range(3000):
        reader.feed("some words } ] > ")
        assert len(reader.held_back) <= 512
