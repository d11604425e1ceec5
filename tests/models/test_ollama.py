"""The Ollama model client: its format, detection, window, and what happens when the server cuts the
prompt.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import Capabilities, ModelClient, ModelOptions, ToolSpec
from ferrule.models.http.transport import Transport
from ferrule.models.ollama.client import Ollama
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.scripted import Step, calls, fails, says
from ferrule.testing.http_double import Reply, Request
from ferrule.testing.model_client_conformance import (
    ADD,
    HELLO,
    ModelClientConformance,
    RecordingSink,
    ServerAnswer,
)
from ollama_double import MODEL_DETAILS, OllamaDouble


@pytest.mark.proves("model-client.encoded-once")
class TestOllamaConforms(ModelClientConformance):
    object_arguments = True
    string_arguments = True

    def make_client(self, url: str, transport: Transport) -> ModelClient:
        return Ollama("llama3.2", base_url=url, transport=transport)

    def answer_other_request(self, request: Request) -> Reply | None:
        return Reply(json=MODEL_DETAILS) if request.target == "/api/show" else None

    def encode(self, said: ServerAnswer, streamed: bool) -> Reply:
        made: list[dict[str, Any]] = []
        for call in said.calls:
            shape = {"function": {"name": call.name, "arguments": call.arguments}}
            made.append({"id": call.id, **shape} if call.id else shape)
        end = {
            "done": True,
            "done_reason": "length" if said.stop == "length" else "stop",
            "prompt_eval_count": said.usage.input,
            "eval_count": said.usage.output,
        }
        if not streamed:
            message = {
                "content": "".join(said.text),
                "thinking": "".join(said.reasoning),
                "tool_calls": made,
            }
            return Reply(json={"message": {"role": "assistant", **message}, **end})
        parts: list[dict[str, Any]] = [
            {"content": "", "thinking": piece} for piece in said.reasoning
        ]
        parts += [{"content": piece} for piece in said.text]
        parts += [{"content": "", "tool_calls": [call]} for call in made]
        chunks = [{"message": {"role": "assistant", **part}, "done": False} for part in parts]
        lines = [*chunks, {"message": {"role": "assistant", "content": ""}, **end}]
        return Reply(200, [encode_json(line).encode() + b"\n" for line in lines])


Told = tuple[ModelAnswered, list[dict[str, Any]], list[tuple[str, str]]]


def ask(
    *steps: Step,
    sink: RecordingSink | None = None,
    tools: Sequence[ToolSpec] = (ADD,),
    history: Sequence[Message] = HELLO,
    options: ModelOptions | None = None,
    allow: bool = True,
    schema: Mapping[str, Any] | None = None,
    model: str = "llama3.2",
    keep_alive: str | None = None,
    **double: Any,
) -> Told:
    """The answer, the requests as JSON, and the notices of the exchange."""

    async def story() -> Told:
        async with asyncio.timeout(20), OllamaDouble(steps, **double) as server:
            model_client = Ollama(
                model,
                base_url=server.url,
                keep_alive=keep_alive,
                transport=Transport(sleep=no_wait),
            )
            exchange = model_client.open("Be brief.", tools, options or ModelOptions())
            try:
                answer = await exchange.ask(history, tools=allow, sink=sink, schema=schema)
                return answer, server.requests, exchange.notices
            finally:
                await model_client.close()
                await model_client.transport.close()

    return asyncio.run(story())


async def no_wait(seconds: float) -> None:
    """Time does not pass in these tests."""


def failed(*steps: Step, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        ask(*steps, **more)
    return raised.value


# ---- format


def test_a_conversation_is_sent_as_ollama_wants_it() -> None:
    history = [
        UserMessage("1+2?"),
        AssistantMessage("", (ToolCall("c1", "math::add", '{"a":1,"b":2}'),), "adding"),
        ToolMessage("c1", "math::add", "3"),
        AssistantMessage("so", (ToolCall("c2", "nope", "{broken"),)),
        ToolMessage("c2", "nope", "no such tool", False),
    ]
    options = ModelOptions(temperature=0.5, max_tokens=9, seed=4, extra={"options": {"top_k": 3}})
    _, asks, _ = ask(says("3"), history=history, options=options, keep_alive="5m")
    broken = {"name": "nope", "arguments": {"invalid_arguments": "{broken"}}
    assert asks[0] == {
        "model": "llama3.2",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "1+2?"},
            {
                "role": "assistant",
                "content": "",
                "thinking": "adding",
                "tool_calls": [{"function": {"name": "math_add", "arguments": {"a": 1, "b": 2}}}],
            },
            {"role": "tool", "tool_name": "math_add", "content": "3"},
            {"role": "assistant", "content": "so", "tool_calls": [{"function": broken}]},
            {"role": "tool", "tool_name": "nope", "content": "no such tool"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "math_add",
                    "description": "Add two numbers.",
                    "parameters": json.loads(ADD.schema),
                },
            }
        ],
        "options": {"num_ctx": 32768, "temperature": 0.5, "num_predict": 9, "seed": 4, "top_k": 3},
        "keep_alive": "5m",
        "stream": False,
    }


def test_calls_in_any_chunk_and_objects_as_arguments_are_understood() -> None:
    listener = RecordingSink()
    step = calls(("math_add", {"a": 1, "n": None}), ("math_add", {"b": "ä"}), text="adding now")
    answer, _, _ = ask(step, sink=listener)
    assert answer.text == "".join(listener.pieces) == "adding now"
    assert answer.calls == (
        ToolCall("", "math::add", '{"a":1,"n":null}'),
        ToolCall("", "math::add", '{"b":"ä"}'),
    )
    assert (answer.stop, answer.usage.output) == ("calls", 5)


def test_a_schema_goes_into_format() -> None:
    _, asks, _ = ask(says("{}"), schema={"type": "object"})
    assert asks[0]["format"] == {"type": "object"}


def test_without_a_right_to_call_no_tools_are_sent() -> None:
    _, asks, _ = ask(says("3"), allow=False)
    assert "tools" not in asks[0]


def test_done_reason_length_is_a_cut_answer() -> None:
    assert ask(says("so f", stop="length"))[0].stop == "length"


# ---- thinking


def think(
    wanted: bool | str | None, architecture: str, capability: list[str]
) -> tuple[Any, list[str]]:
    info = {"general.architecture": architecture, f"{architecture}.context_length": 8192}
    show = {"capabilities": ["completion", "tools", *capability], "model_info": info}
    _, asks, notices = ask(says("3"), show=show, options=ModelOptions(thinking=wanted))
    return asks[0].get("think"), [topic for topic, _ in notices]


@pytest.mark.parametrize(
    ("wanted", "architecture", "capability", "sent", "notices"),
    [
        (None, "qwen3", ["thinking"], None, []),
        (True, "qwen3", ["thinking"], True, []),
        (False, "qwen3", ["thinking"], False, []),
        ("high", "gptoss", ["thinking"], "high", []),
        (True, "gptoss", ["thinking"], "medium", []),
        (False, "gptoss", ["thinking"], "low", ["fallback"]),
        (True, "llama", [], None, ["fallback"]),
        (False, "llama", [], None, []),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(
    wanted: Any, architecture: str, capability: list[str], sent: Any, notices: list[str]
) -> None:
    assert think(wanted, architecture, capability) == (sent, notices)


# ---- window and truncation


@pytest.mark.parametrize(
    ("show", "options", "window"),
    [
        (MODEL_DETAILS, ModelOptions(), 32768),
        (MODEL_DETAILS, ModelOptions(num_ctx=65536), 65536),
        ({**MODEL_DETAILS, "parameters": 'num_ctx 12000\nstop "x"'}, ModelOptions(), 12000),
        (
            {
                "model_info": {"general.architecture": "a", "a.context_length": 2048},
                "capabilities": ["tools"],
            },
            ModelOptions(),
            2048,
        ),
        ({"capabilities": ["tools"]}, ModelOptions(), 32768),
    ],
    ids=["capped", "set", "modelfile", "small model", "unknown"],
)
def test_the_window_is_always_set(show: Any, options: ModelOptions, window: int) -> None:
    _, asks, _ = ask(says("3"), show=show, options=options)
    assert asks[0]["options"]["num_ctx"] == window


LONG: Sequence[Message] = (
    UserMessage("The secret is 7. " + "lorem ipsum " * 3000),
    UserMessage("The secret?"),
)


def test_a_prompt_cut_from_the_front_rings_the_alarm() -> None:
    answer, _, notices = ask(says("what secret?"), history=LONG, memory=2048)
    assert answer.usage == Usage(2048, 5)
    assert [topic for topic, _ in notices] == ["truncated"]
    assert "num_ctx" in notices[0][1]


def test_with_room_for_all_of_it_nothing_is_said() -> None:
    assert ask(says("7"), history=LONG)[2] == []


def test_the_compatible_route_cannot_set_the_window_and_rings_the_alarm() -> None:
    async def story() -> tuple[list[tuple[str, str]], list[list[dict[str, Any]]]]:
        async with (
            asyncio.timeout(20),
            OllamaDouble([says("what secret?")], default_window=1024) as server,
        ):
            model_client = OpenAIChat("llama3.2", base_url=f"{server.url}/v1", api_key="")
            exchange = model_client.open(
                "Be brief.", [ADD], ModelOptions(extra={"options": {"num_ctx": 65536}})
            )
            await exchange.ask(LONG)
            await model_client.close()
            return exchange.notices, server.prompts

    notices, prompts = asyncio.run(story())
    assert [topic for topic, _ in notices] == ["truncated"]
    assert "The secret is 7" not in encode_json(prompts), "the double really cut it"


def test_when_the_question_itself_was_cut_off_it_is_an_overflow_and_not_repeated() -> None:
    asked = [
        UserMessage("q"),
        AssistantMessage("", (ToolCall("c", "math::add"),)),
        ToolMessage("c", "math::add", "x" * 9000),
    ]
    error = failed(says("never"), history=asked, options=ModelOptions(num_ctx=512))
    assert error.code == "context_overflow"
    assert "num_ctx" in error.hint


# ---- detection


def detect(show: Mapping[str, Any]) -> Capabilities:
    async def story() -> Capabilities:
        async with asyncio.timeout(20), OllamaDouble([], show=show) as server:
            model_client = Ollama("llama3.2", base_url=server.url)
            try:
                return await model_client.capabilities()
            finally:
                await model_client.close()

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("show", "tools", "source"),
    [
        ({"capabilities": ["completion", "tools"]}, True, "/api/show capabilities"),
        (
            {"capabilities": ["completion"], "template": "{{ if .Tools }}"},
            False,
            "/api/show capabilities",
        ),
        ({"capabilities": []}, False, "/api/show capabilities"),
        ({"template": "{{- if .Tools }}x{{ end }}"}, True, "template markers"),
        ({"template": "{{- range $.Tools }}x{{ end }}"}, True, "template markers"),
        ({"template": "[AVAILABLE_TOOLS] {{ .Prompt }}"}, True, "template markers"),
        ({"template": "say <tool_call> first"}, True, "template markers"),
        ({"template": "<function_calls>"}, True, "template markers"),
        ({"template": "✿FUNCTION✿"}, True, "template markers"),
        ({"template": "{% if tools %}x{% endif %}"}, True, "template markers"),
        ({"template": "{{ .Prompt }} no tools here"}, None, "unknown"),
        ({}, None, "unknown"),
    ],
)
def test_whether_a_model_calls_tools_is_yes_no_or_unknown(
    show: Any, tools: bool | None, source: str
) -> None:
    found = detect(show)
    assert (found.tools, found.source) == (tools, source)


def test_window_and_thinking_are_read_too() -> None:
    show = {**MODEL_DETAILS, "capabilities": ["completion", "thinking"]}
    assert detect(show) == Capabilities(
        False,
        True,
        131_072,
        True,
        "/api/show capabilities",
        structured_with_tools=False,
        vision=False,
    )


# ---- errors


def test_an_unknown_model_is_told_with_the_command_that_fetches_it() -> None:
    error = failed(says("never"), model="qwen3")
    assert error.code == "model_not_found"
    assert error.hint == "`ollama pull qwen3`; installed: llama3.2"


def test_a_model_without_tools_says_so_in_a_code() -> None:
    error = failed(says("never"), show={"capabilities": ["completion"]})
    assert error.code == "tools_unsupported"


def test_a_server_error_is_tried_four_times() -> None:
    broken = fails(ProviderError("runner has stopped", status=500))
    assert ask(broken, broken, broken, says("3"))[0].text == "3"
    assert failed(*[broken] * 4, says("3")).code == "http_500"


def test_a_server_that_is_not_running_gets_the_command_that_starts_it() -> None:
    async def story() -> ProviderError:
        model_client = Ollama(
            "llama3.2", base_url="http://127.0.0.1:1", transport=Transport(sleep=no_wait)
        )
        with pytest.raises(ProviderError) as raised:
            await model_client.capabilities()
        return raised.value

    error = asyncio.run(story())
    assert error.code == "unreachable"
    assert "`ollama serve`" in error.hint


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:9", "http://127.0.0.1:9"),
        ("box:1234", "http://box:1234"),
        ("box", "http://box:11434"),
        ("http://box", "http://box:80"),
        ("https://box.example/ollama/", "https://box.example:443/ollama"),
        ("[::1]:99", "http://[::1]:99"),
        ("[::1]", "http://[::1]:11434"),
        (":8000", "http://127.0.0.1:8000"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(
    monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert Ollama("m").base_url == url


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError):
        Ollama("m", base_url="ftp://box")
