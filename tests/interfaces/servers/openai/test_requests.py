"""What a client may ask for: read strictly, refused by the field's name, never ignored in
silence.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ToolCall
from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage
from ferrule.models.client import ModelOptions
from ferrule.servers.openai.answer_parts import Piece, StopFilter, TextPiece, cut_at_stop
from ferrule.servers.openai.conversations import conversation_point
from ferrule.servers.openai.errors import RequestRefused
from ferrule.servers.openai.messages import ParsedMessages, parse_messages
from ferrule.servers.openai.parameters import parse_sampling
from ferrule.servers.openai.requests import parse_request
from media_samples import PDF, SVG, make_gif

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


PLACE = "messages[0].content[0]"


def data_url(data: bytes, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{b64encode(data).decode()}"


def given_part(part: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [part]}]}


def request(**more: Any) -> bytes:
    return json.dumps({"model": "ferrule", "messages": [USER], **more}).encode()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"50256": -100}}, "logit_bias"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "alloy"}}, "audio"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"verbosity": "low"}, "verbosity"),
        ({"invented": 1}, "invented"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens"),
        ({"seed": 1.5}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"reasoning_effort": ["low"]}, "reasoning_effort"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_everything": True}}, "stream_options"),
        ({"tools": {}}, "tools"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [TOOL] * 129}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}
                ]
            },
            "tools[0].function.parameters",
        ),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "parameters": {"type": "nonsense"}},
                    }
                ]
            },
            "tools[0].function.parameters",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
        ),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"$ref": "http://a/b"}},
                }
            },
            "response_format.json_schema.schema",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"type": "weird"}},
                }
            },
            "response_format.json_schema.schema",
        ),
        ({"model": 1}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
                ]
            },
            "messages[0].content[0]",
        ),
        (given_part({"type": "image_url", "image_url": {"url": data_url(SVG)}}), PLACE),
        (given_part({"type": "image_url", "image_url": {"url": data_url(PDF)}}), PLACE),
        (given_part({"type": "image_url", "image_url": {"url": data_url(make_gif(2))}}), PLACE),
        (given_part({"type": "input_audio", "input_audio": {"data": "%%"}}), PLACE),
        (given_part({"type": "file", "file": {"file_id": "file-1"}}), PLACE),
        (given_part({"type": "video", "video": {}}), PLACE),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0]"),
        (
            {"messages": [{"role": "assistant", "content": "a", "audio": {"id": "x"}}]},
            "messages[0].audio",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
                ]
            },
            "messages[0].function_call",
        ),
        (
            {"messages": [{"role": "tool", "tool_call_id": "c9", "content": ""}]},
            "messages[0].tool_call_id",
        ),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}]}, "messages"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, USER]}, "messages"),
        (
            {"messages": [USER, {"role": "assistant", "tool_calls": [CALL, CALL]}]},
            "messages[1].tool_calls",
        ),
    ],
)
def test_what_is_not_understood_is_refused_by_its_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRefused) as raised:
        parse_request(request(**fields))
    assert (raised.value.status, raised.value.param) == (400, param)


def test_what_changes_no_answer_is_taken_and_left_alone() -> None:
    ignored = {
        "store": True,
        "metadata": {"a": "b"},
        "user": "ada",
        "service_tier": "auto",
        "safety_identifier": "x",
        "prompt_cache_key": "k",
        "prediction": {"type": "content", "content": "x"},
        "n": 1,
        "logprobs": False,
        "logit_bias": None,
        "modalities": ["text"],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
    }
    asked = parse_request(request(**ignored, stream_options={"include_obfuscation": False}))
    assert asked.sampling.given == {} and asked.sampling.stop == ()


def test_what_a_provider_cannot_be_told_is_refused_for_its_models() -> None:
    sampling = parse_sampling({"seed": 1, "top_p": 0.5, "max_tokens": 9})
    options = sampling.apply_to(ModelOptions(max_tokens=5, temperature=0.1), "openai:gpt")
    assert (options.seed, options.max_tokens, options.temperature) == (1, 5, 0.1)
    assert (options.top_p, options.extra) == (0.5, {})
    with pytest.raises(RequestRefused) as raised:
        sampling.apply_to(ModelOptions(), "anthropic:claude")
    assert raised.value.param == "seed"


@pytest.mark.parametrize(("field", "value"), [("temperature", 0.0), ("reasoning_effort", "none")])
def test_what_a_model_is_known_to_refuse_is_refused_by_its_name_here(
    field: str, value: object
) -> None:
    sampling = parse_sampling({field: value})
    sampling.apply_to(ModelOptions(), "anthropic:claude-opus-4-6")
    with pytest.raises(RequestRefused) as raised:
        sampling.apply_to(ModelOptions(), "anthropic:claude-opus-5-5")
    assert (raised.value.param, raised.value.code) == (field, "unsupported_parameter")


def test_messages_become_instructions_and_a_history_in_the_order_of_the_calls() -> None:
    second = {**CALL, "id": "c2"}
    told = parse_messages([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL, second]},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "developer", "content": "And kind."},
        {"role": "assistant", "content": "done"},
    ])  # fmt: skip
    calls = (ToolCall("c1", "f", "{}"), ToolCall("c2", "f", "{}"))
    assert told == ParsedMessages(
        "Be brief.\n\nAnd kind.",
        (
            UserMessage("a\nb"),
            AssistantMessage("", calls),
            ToolMessage("c1", "f", "one"),
            ToolMessage("c2", "f", "two"),
            AssistantMessage("done"),
        ),
    )


def test_half_a_character_is_no_reason_to_fail() -> None:
    told = parse_messages(
        [{"role": "user", "content": "a\ud83d"}, {"role": "user", "content": "\ud83d\ude00"}]
    )
    assert told.history == (UserMessage("a\ufffd"), UserMessage("\U0001f600"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "role",
                        "content",
                        "tool_calls",
                        "id",
                        "type",
                        "function",
                        "name",
                        "text",
                        "tool_call_id",
                    ]
                ),
                inner | st.sampled_from(["user", "assistant", "tool", "text", "function"]),
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_a_client_sends_as_messages_is_read_or_refused(value: Any) -> None:
    try:
        parse_messages([value])
    except RequestRefused as refused:
        assert refused.status == 400 and refused.message


@given(
    st.lists(st.text("abE", max_size=4), max_size=8),
    st.lists(st.text("abE", min_size=1, max_size=3), max_size=3),
)
def test_a_stop_text_is_found_wherever_the_pieces_of_an_answer_are_cut(
    pieces: list[str], stops: list[str]
) -> None:
    passed: list[Piece] = []
    stopper = StopFilter(stops, passed.append)
    for piece in pieces:
        stopper(TextPiece(piece))
    stopper.close()
    shown = "".join(one.text for one in passed if isinstance(one, TextPiece))
    whole = "".join(pieces)
    assert shown == cut_at_stop(whole, stops) and not any(stop in shown for stop in stops)
    assert whole.startswith(shown) and (shown == whole) == (
        not any(stop in whole for stop in stops)
    )


def test_points_differ_by_who_asks_what_and_how_but_not_by_white_space_around_a_text() -> None:
    history, ada = [UserMessage("a"), AssistantMessage("b")], ("local", "ada")
    point = conversation_point(ada, "m", "s", history)
    assert point == conversation_point(ada, "m", "s", [UserMessage("a ")], "b\n")
    others = [
        conversation_point(("local", "bob"), "m", "s", history),
        conversation_point(("other", "ada"), "m", "s", history),
        conversation_point(ada, "n", "s", history),
        conversation_point(ada, "m", "t", history),
        conversation_point(ada, "m", "s", history[:1]),
        conversation_point(ada, "m", "s", [AssistantMessage("a"), UserMessage("b")]),
    ]
    assert len({point, *others}) == 7


# ---- the HTTP guard


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "kind"),
    [
        ("GET", "/v1/models", {"authorization": None}, 401, "authentication_error"),
        (
            "GET",
            "/v1/models",
            {"authorization": "Bearer wrong-wrong-wrong-wrong"},
            401,
            "authentication_error",
        ),
        ("GET", "/v1/models", {"host": "evil.example"}, 421, "invalid_request_error"),
        ("GET", "/v1/models", {"origin": "https://evil.example"}, 403, "permission_error"),
        ("GET", "/v1/files", {}, 404, "invalid_request_error"),
        ("GET", "/v1/chat/completions", {}, 405, "invalid_request_error"),
        ("POST", "/v1/models", {}, 405, "invalid_request_error"),
    ],
)
async def test_every_refusal_has_the_shape_of_the_api(
    place: Any, method: str, path: str, headers: dict[str, Any], status: int, kind: str
) -> None:
    server = await place.serve()
    answer = await knock(server, method, path, headers=headers)
    assert answer.status_code == status and answer.json()["error"]["type"] == kind


async def test_a_request_is_read_up_to_a_bound(place: Any) -> None:
    server = await place.serve()
    body = (
        b'{"model":"ferrule","messages":[{"role":"user","content":"' + b"x" * (49 << 20) + b'"}]}'
    )
    answer = await knock(server, "POST", "/v1/chat/completions", content=body)
    assert answer.status_code == 413 and answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
async def test_a_body_that_is_no_request_is_refused(place: Any, body: bytes) -> None:
    server = await place.serve()
    answer = await knock(server, "POST", "/v1/chat/completions", content=body)
    assert answer.status_code == 400 and answer.json()["error"]["type"] == "invalid_request_error"


async def knock(server: Any, method: str, path: str, **more: Any) -> httpx.Response:
    headers = {"authorization": "Bearer a-token-that-is-long-enough", **more.pop("headers", {})}
    sent = {name: value for name, value in headers.items() if value is not None}
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.request(method, server.url + path, headers=sent, **more)
