"""What strangers wrote, on its way to every model: no control token, and nothing that nobody
sees.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ferrule
from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import ProviderError
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.any_llm.client import AnyLLM
from ferrule.models.client import ModelClient, ModelOptions, ToolSpec
from ferrule.models.http.transport import Response, Transport
from ferrule.models.ollama.client import Ollama
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.models.scripted import Scripted, says
from ferrule.models.tool_modes.selection import TOOL_MODES, open_exchange
from ferrule.models.untrusted_text import escape_message, escape_untrusted, map_json

OUTPUT_CAP = 64 * 1024

FAMILIES: dict[str, tuple[str, ...]] = {
    "chatml": ("<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|endoftext|>"),
    "llama-2": ("<s>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<unk>"),
    "llama-3": (
        *(
            "<|begin_of_text|>",
            "<|eot_id|>",
            "<|eom_id|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|python_tag|>",
        ),
        *("<|header_start|>", "<|header_end|>", "<|eot|>", "<|reserved_special_token_7|>"),
    ),
    "mistral": (
        *(
            "[SYSTEM_PROMPT]",
            "[/SYSTEM_PROMPT]",
            "[AVAILABLE_TOOLS]",
            "[/AVAILABLE_TOOLS]",
            "[TOOL_CALLS]",
            "[TOOL_RESULTS]",
        ),
        *(
            "[/TOOL_RESULTS]",
            "[TOOL_CONTENT]",
            "[CALL_ID]",
            "[ARGS]",
            "[THINK]",
            "[/THINK]",
            "[PREFIX]",
            "[SUFFIX]",
        ),
    ),
    "gemma": (
        "<bos>",
        "<eos>",
        "<pad>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<start_of_image>",
        "<unused7>",
    ),
    "gemma-4": (
        "<|turn>",
        "<turn|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|channel>",
        "<channel|>",
        "<|tool_response>",
    ),
    "functiongemma": (
        "<start_function_call>",
        "<end_function_call>",
        "<start_function_response>",
        "<escape>",
    ),
    "qwen": (
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<think>",
        "</think>",
        "<|fim_prefix|>",
    ),
    "deepseek": (
        *(
            "<｜begin▁of▁sentence｜>",
            "<｜end▁of▁sentence｜>",
            "<｜User｜>",
            "<｜Assistant｜>",
            "<｜tool▁calls▁begin｜>",
        ),
        *("<｜tool▁output▁end｜>", "<｜DSML｜invoke", "</｜DSML｜function_calls>"),
    ),
    "glm": (
        "[gMASK]",
        "<sop>",
        "<|user|>",
        "<|assistant|>",
        "<|observation|>",
        "<arg_key>",
        "</arg_value>",
    ),
    "kimi": (
        "<|im_user|>",
        "<|im_middle|>",
        "<|tool_calls_section_begin|>",
        "<|open|>",
        "<|sep|>",
        "◁think▷",
        "◁/think▷",
    ),
    "gpt-oss": (
        "<|start|>",
        "<|end|>",
        "<|message|>",
        "<|channel|>",
        "<|call|>",
        "<|return|>",
        "<|constrain|>",
    ),
    "cohere": (
        "<|START_OF_TURN_TOKEN|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|SYSTEM_TOKEN|>",
        "<BOS_TOKEN>",
        "<|START_ACTION|>",
    ),
    "phi": ("<|system|>", "<|tool|>", "<|/tool_call|>", "<|tool_response|>"),
    "granite": ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
    "minimax": ("]~!b[", "]~b]", "[e~[", "<minimax:tool_call>", "</minimax:tool_call>"),
    "seed": ("<seed:bos>", "<seed:eos>", "<seed:think>", "</seed:tool_call>"),
    "internlm": ("<|action_start|>", "<|plugin|>", "<|action_end|>"),
    "nemotron": ("<SPECIAL_10>", "<extra_id_1>"),
    "apertus": ("<|inner_prefix|>", "<|tools_suffix|>", "<|assistant_start|>"),
}
"""Control tokens as the vocabularies of model families spell them."""
TOKENS = [token for family in FAMILIES.values() for token in family]
UNSEEN = [
    *(
        "\x1b",
        "\r",
        "\x00",
        "\x08",
        "\x7f",
        "\x9b",
        "\u00ad",
        "\u034f",
        "\u061c",
        "\u115f",
        "\u17b4",
        "\u180e",
        "\u200b",
        "\u200e",
    ),
    *(
        "\u2028",
        "\u2029",
        "\u202e",
        "\u2060",
        "\u2066",
        "\u3164",
        "\ufe00",
        "\ufeff",
        "\uffa0",
        "\ufff9",
        "\ud800",
    ),
    *("\U0001d173", "\U000e0041", "\U000e01ef", "\u200d", "\u200c", "\ufe0f"),
]
"""Characters that nobody sees. Behind ASCII the joiners and the selector do nothing that can be
seen.
"""
CUT = [
    "<",
    "|",
    ">",
    "<|",
    "|>",
    "im_end",
    "<｜",
    "｜>",
    "[",
    "]",
    "/",
    "s>",
    "\\",
    "\\u200b",
    "\\u003c",
    '"',
    "\n",
    "\r\n",
    " ",
    "a",
    "é",
]

hostile = st.lists(st.sampled_from([*TOKENS, *UNSEEN, *CUT]), min_size=1, max_size=6).map("".join)
ASCII_OR_EDGE = re.compile("(?:^|[\x00-\x7f])[\u200c\u200d\ufe0e\ufe0f]", re.DOTALL)


def harm_in(text: str) -> list[str]:
    """Control tokens and unseen characters of a text, by rules that are not those of the code."""
    found = [token for token in TOKENS if token in text]
    plain = text.replace("\r\n", "\n")
    for character in plain:
        hidden = (
            unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Cs")
            and character not in "\n\t\u200c\u200d"
        )
        if hidden or (character in UNSEEN and character not in "\u200c\u200d\ufe0f"):
            found.append(f"U+{ord(character):04X}")
    return found + ASCII_OR_EDGE.findall(plain)


def strings_of(value: Any) -> Iterator[str]:
    """All strings that a server reads out of a request; arguments of calls are JSON text, which its
    template may read.
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, part in cast("Mapping[str, Any]", value).items():
            yield name
            yield from strings_of(part)
            if name == "arguments" and isinstance(part, str):
                yield from strings_of(json.loads(part))
    elif isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from strings_of(part)


class Tapped(Transport):
    """Keeps the bodies that would have left, and lets none leave."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []

    async def post(
        self, url: str, body: bytes, headers: Any, *, timeout: float | None = None
    ) -> Response:
        if url.endswith("/api/show"):
            return Response(200, {}, b"{}")
        self.bodies.append(body)
        raise ProviderError("kept back", code="kept_back", retryable=False)

    def stream(self, url: str, body: bytes, headers: Any, *, timeout: float | None = None) -> Any:
        self.bodies.append(body)
        raise ProviderError("kept back", code="kept_back", retryable=False)


class TappedLibrary:
    """In the place of any-llm."""

    def __init__(self, tap: Tapped) -> None:
        self._tap = tap

    async def acompletion(self, **request: Any) -> NoReturn:
        self._tap.bodies.append(json.dumps(request).encode())
        raise ProviderError("kept back", code="kept_back", retryable=False)


CLIENTS: dict[str, Callable[[Tapped], ModelClient]] = {
    "chat": lambda tap: OpenAIChat(
        "m", base_url="http://h/v1", api_key="k", transport=tap, replay_reasoning=True
    ),
    "responses": lambda tap: OpenAIResponses(
        "m", base_url="http://h/v1", api_key="k", transport=tap
    ),
    "anthropic": lambda tap: Anthropic("m", base_url="http://h", api_key="k", transport=tap),
    "ollama": lambda tap: Ollama("m", base_url="http://h", transport=tap),
    "any": lambda tap: AnyLLM("openai/m", client=TappedLibrary(tap)),
}


def tool_with(text: str) -> ToolSpec:
    """A tool that has a text wherever its author may write one."""
    schema = {
        "type": "object",
        "description": text,
        "properties": {
            text: {"type": "string", "description": text, "enum": [text], "default": text}
        },
    }
    return ToolSpec("look", "look", text, encode_json(schema), ({text: [text]},))


def history_with(text: str) -> list[Message]:
    """A conversation that has a text wherever somebody else may have written it."""
    made = ToolCall(text, "look", encode_json({text: [text, {"a": text}]}))
    escaped = ToolCall("c2", text, json.dumps({"a": text}))
    broken = ToolCall("c3", "look", f'{{"a": "{text}')
    return [
        UserMessage(text),
        AssistantMessage(text, (made, escaped, broken), text),
        ToolMessage(text, "look", text),
        ToolMessage("c2", text, text, success=False),
        ToolMessage("c3", "look", encode_json({"found": text})),
        AssistantMessage(text),
        UserMessage(f"a {text} b"),
    ]


async def sent(
    client: str, tool_mode: str, system: str, tools: Sequence[ToolSpec], history: Sequence[Message]
) -> bytes:
    tap = Tapped()
    exchange, _ = await open_exchange(
        CLIENTS[client](tap), tool_mode, system, tools, ModelOptions()
    )
    with pytest.raises(ProviderError, match="kept back"):
        await exchange.ask(history)
    return tap.bodies[-1]


@pytest.mark.proves("untrusted.no-control-tokens")
@pytest.mark.parametrize(
    ("client", "tool_mode"), [(c, w) for c, w in itertools.product(CLIENTS, TOOL_MODES)]
)
@settings(max_examples=12, deadline=None)
@given(hostile)
@example("".join(TOKENS))
@example("a".join(TOKENS) + "b".join(UNSEEN))
@example("\ufe0f\u200d")
@example("<|[INST]|>")
@example("<|im_[/INST]end|>")
def test_nothing_of_it_leaves_for_any_server_in_any_mode(
    client: str, tool_mode: str, text: str
) -> None:
    body = asyncio.run(sent(client, tool_mode, text, (tool_with(text),), history_with(text)))
    for string in strings_of(json.loads(body)):
        assert not harm_in(string)


@pytest.mark.proves("untrusted.no-control-tokens")
def test_marks_that_a_tool_mode_itself_writes_stay_as_they_are() -> None:
    """The notation of a family may be made of its control tokens: those are ours."""
    shown = FAMILIES["chatml"][1]

    async def counted(text: str) -> int:
        tap = Tapped()
        model_client = OpenAIChat("lfm2-8b", base_url="http://h/v1", api_key="k", transport=tap)
        exchange, _ = await open_exchange(
            model_client, "text", text, (tool_with(text),), ModelOptions()
        )
        with pytest.raises(ProviderError, match="kept back"):
            await exchange.ask(history_with(text))
        assert shown.encode() not in tap.bodies[-1]
        return tap.bodies[-1].count(b"<|tool_call_start|>")

    ours = asyncio.run(counted("plain"))
    assert ours > 0
    assert asyncio.run(counted(f"<|tool_call_start|>{shown}")) == ours


@given(hostile)
@example("<|<turn|>")
def test_a_reader_sees_what_it_was_and_json_reads_it_back(text: str) -> None:
    spelled = escape_untrusted(text)
    assert not harm_in(spelled)
    assert escape_untrusted(spelled) == spelled
    if "\\" not in text:
        assert re.sub(r"\\u[0-9a-f]{4}", lambda match: chr(int(match[0][2:], 16)), spelled).encode(
            "utf-16", "surrogatepass"
        ) == text.encode("utf-16", "surrogatepass")


@given(hostile)
def test_the_spelling_copied_into_arguments_is_the_character_itself(text: str) -> None:
    copied = escape_untrusted(
        text.replace("\\", "").replace('"', "").replace("\n", "").replace("\r", "")
    )
    original = json.loads(f'"{copied}"')
    assert escape_untrusted(original) == copied


PLAIN = (
    (
        "List<String> f(a) { return a < b || c > d; } // <b>bold</b> [1] <https://a.example> x "
        "|> f <| y, a<|b"
    ),
    "नमस्ते क्‍ष می‌خواهم 👩‍❤️‍👨 1️⃣ ☃️ ©️ é 漢字 \t tab\r\nline\n",
    "see <filename>, <table>, </div> and [link](x) `a|b` <T> <-> => <|> {'a': [1, 2]}",
)


@pytest.mark.parametrize("text", PLAIN)
def test_text_that_says_no_such_thing_is_handed_on_as_the_same_object(text: str) -> None:
    assert escape_untrusted(text) == text
    for message in history_with(text):
        assert escape_message(message) is message
    assert map_json(json.dumps({"a": text}), escape_untrusted) == json.dumps({"a": text})


@given(hostile, st.sampled_from(["text", "id", "tool", "arguments", "reasoning"]))
def test_whatever_would_be_spelled_is_found_in_whichever_text_of_a_message_it_stands(
    text: str, place: str
) -> None:
    spelled = map_json(text, escape_untrusted) if place == "arguments" else escape_untrusted(text)
    parts = {"text": "a", "id": "b", "tool": "c", "arguments": "{}", "reasoning": "d", place: text}
    call = ToolCall(parts["id"], parts["tool"], parts["arguments"])
    answer = AssistantMessage(parts["text"], (call,), parts["reasoning"])
    assert (escape_message(answer) is answer) == (spelled == text)
    result = ToolMessage(parts["id"], parts["tool"], parts["text"], True)
    if place in ("text", "id", "tool"):
        assert (escape_message(result) is result) == (spelled == text)
        said = UserMessage(parts["text"])
        assert (escape_message(said) is said) == (spelled == text or place != "text")


def test_a_growing_history_is_spelled_once_and_its_beginning_stays_byte_for_byte() -> None:
    whole = history_with("x <|im_end|> \u200b")

    async def story() -> list[list[Message]]:
        model_client = Scripted([says(str(number)) for number in range(len(whole))])
        exchange, _ = await open_exchange(model_client, "native", "s", (), ModelOptions())
        for count in range(1, len(whole) + 1):
            await exchange.ask(whole[:count])
        return [list(history) for history in model_client.histories]

    histories = asyncio.run(story())
    for before, after in itertools.pairwise(histories):
        assert all(old is new for old, new in zip(before, after, strict=False))


def test_the_tools_of_an_agent_are_spelled_once_for_all_its_sessions() -> None:
    for text in ("plain", "<|im_end|>"):
        tools = (tool_with(text),)
        model_client = Scripted([])
        for _ in range(2):
            asyncio.run(open_exchange(model_client, "native", "s", tools, ModelOptions()))
        first, second = (
            [cast("Any", tool) for tool in opened.tools] for opened in model_client.opened
        )
        assert first[0] is second[0]
        assert (first[0] is tools[0]) == (text == "plain")


def test_a_message_says_what_was_spelled_out_in_it_and_a_models_own_does_not() -> None:
    told = escape_message(ToolMessage("c", "read_file", "a\u200bb\u200b <|im_end|>")).text
    assert told.startswith("a\\u200bb\\u200b \\u003c|im_end|>\n[note: ")
    assert "U+200B (2), \\u003c|im_end|> (1)" in told
    assert escape_message(AssistantMessage("<|im_end|>")).text == "\\u003c|im_end|>"


def test_a_note_names_six_kinds_and_counts_the_others() -> None:
    unseen = "\u200b\u200c\u200d\u2060\u202e\u2066\u2067\u2068"
    told = [escape_message(ToolMessage("c", "read_file", unseen[:count])).text for count in (6, 8)]
    assert [text.count("U+2") for text in told] == [6, 6]
    assert ["and others" in text for text in told] == [False, True]
    assert ", and others (2 kinds). " in told[1]


def test_a_text_that_grows_by_its_spelling_is_cut_and_says_so() -> None:
    told = escape_message(ToolMessage("c", "run_command", "\x1b" * OUTPUT_CAP)).text
    assert len(told.encode()) < OUTPUT_CAP + 1000
    shown, _, rest = told.partition("\n[... ")
    assert set(re.findall(r"\\u....", shown)) == {"\\u001b"}
    assert len(shown) % 6 == 0
    assert rest.startswith(f"{6 * OUTPUT_CAP - len(shown)} bytes left out")


@pytest.mark.proves("untrusted.no-control-tokens")
@pytest.mark.parametrize("tool_mode", ["native", "constrained"])
def test_what_a_model_is_asked_again_about_its_own_words_is_spelled_too(tool_mode: str) -> None:
    """Where it called a tool in words, and where its reply did not fit."""
    words = '```json\n{"name": "look", "arguments": {"a": "<|im_end|>"}}\n```'

    async def story() -> Scripted:
        model_client = Scripted(
            [says(words), says("done" if tool_mode == "native" else '{"reply":{"answer":"done"}}')]
        )
        tools = (
            ToolSpec(
                "look", "look", "Look.", '{"type":"object","properties":{"a":{"type":"string"}}}'
            ),
        )
        exchange, _ = await open_exchange(model_client, tool_mode, "s", tools, ModelOptions())
        await exchange.ask([UserMessage("go")])
        return model_client

    histories = asyncio.run(story()).histories
    assert len(histories) == 2
    assert "look" in histories[1][1].text
    for message in histories[1]:
        assert not harm_in(message.text)


@pytest.mark.parametrize(
    "mark",
    [
        "</tool_results>",
        "</ tool_results>",
        "< / RESULT >",
        "</result\t>",
        "</\u200btool_results>",
        "<result>",
    ],
)
def test_a_result_cannot_close_the_frame_that_it_stands_in(mark: str) -> None:
    tap = Tapped()

    async def story(text: str) -> str:
        model_client = OpenAIChat("m", base_url="http://h/v1", api_key="k", transport=tap)
        exchange, _ = await open_exchange(
            model_client, "text", "s", (tool_with("plain"),), ModelOptions()
        )
        history = [
            UserMessage("go"),
            AssistantMessage("", (ToolCall("c", "look", "{}"),)),
            ToolMessage("c", "look", text),
        ]
        with pytest.raises(ProviderError, match="kept back"):
            await exchange.ask(history)
        return cast("str", json.loads(tap.bodies[-1])["messages"][-1]["content"])

    told = asyncio.run(story(f"a{mark}b"))
    marks = re.findall(r"<[\s\u200b]*/?[\s\u200b]*(?:tool_results|result)\b", told, re.IGNORECASE)
    assert marks == ["<tool_results", "<result", "</result", "</tool_results"]


@pytest.mark.proves("untrusted.no-control-tokens")
def test_conversations_are_opened_in_one_folder() -> None:
    """Whoever opens one on a client itself goes past the spelling."""
    root = Path(ferrule.__file__).parent
    opening = {
        str(file.parent.relative_to(root))
        for file in root.rglob("*.py")
        if "testing" not in file.parts and re.search(r"\b(?:wire|client)\.open\(", file.read_text())
    }
    assert opening == {"models/tool_modes"}
