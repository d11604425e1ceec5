"""Answers of chat completions servers as people met them, and what goes back to such servers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from chat_server import ask, call_chunk, chunk, stream, stream_call, stream_text, whole
from pydantic import BaseModel

from ferrule import Permissions, ProviderError, SubAgent, tool
from ferrule.connectors.bounded_schemas import make_arguments
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.plugins import Parts
from ferrule.testing.http_double import Reply
from ferrule.tools.definition import Tool
from provider_double import encode_event, make_response, responses_stream

ADDED: list[tuple[int, int]] = []
WHOLE = '{"a":1,"b":2}'
ENDS = chunk({}, "tool_calls")


@pytest.fixture(autouse=True)
def nothing_added() -> None:
    ADDED.clear()


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    ADDED.append((a, b))
    return a + b


@tool(side_effect="none")
def look() -> str:
    """Look at the clock."""
    return "noon"


STREAMS: dict[str, list[Any]] = {
    "delta null at the end": [
        call_chunk("add", WHOLE),
        {"choices": [{"index": 0, "delta": None, "finish_reason": "tool_calls"}]},
    ],
    "data null": [call_chunk("add", ""), "null", call_chunk(None, WHOLE, None), ENDS],
    "id, name, role and content null": [
        call_chunk("add", ""),
        chunk(
            {
                "role": None,
                "content": None,
                "reasoning_content": None,
                "tool_calls": [
                    {"index": 0, "id": None, "function": {"name": None, "arguments": WHOLE}}
                ],
            }
        ),
        ENDS,
    ],
    "choices empty": [{"choices": []}, call_chunk("add", WHOLE), ENDS, {"choices": []}],
    "arguments begin empty": [
        call_chunk("add", ""),
        call_chunk(None, "", None),
        call_chunk(None, WHOLE, None),
        ENDS,
    ],
    "content null beside the call": [
        chunk(
            {
                "content": None,
                "tool_calls": [
                    {"index": 0, "id": "c", "function": {"name": "add", "arguments": WHOLE}}
                ],
            }
        ),
        ENDS,
    ],
    "call not in the first chunk": [
        chunk({"role": "assistant", "content": ""}),
        call_chunk("add", WHOLE),
        ENDS,
    ],
    "finish reason stop": [call_chunk("add", WHOLE), chunk({}, "stop")],
    "finish reason unknown": [call_chunk("add", WHOLE), chunk({}, "end_turn")],
    "text before the call": [chunk({"content": "I look."}), call_chunk("add", WHOLE), ENDS],
    "arguments in pieces": [
        call_chunk("add", ""),
        *(call_chunk(None, letter, None) for letter in WHOLE),
        ENDS,
    ],
    "a second call without a name": [
        call_chunk("add", WHOLE),
        call_chunk("", "", "", 1),
        ENDS,
    ],
    "a first call without a name": [call_chunk(None, "", ""), call_chunk("add", WHOLE), ENDS],
}


@pytest.mark.parametrize("chunks", STREAMS.values(), ids=STREAMS)
async def test_a_call_is_made_once_whatever_stands_around_it_in_the_stream(
    chunks: list[Any],
) -> None:
    run, requests = await ask([stream(chunks), stream_text("three")], [add])
    assert (ADDED, run.text) == ([(1, 2)], "three")
    sent = requests[1]["messages"]
    made = [call["id"] for one in sent for call in one.get("tool_calls") or ()]
    assert [one["tool_call_id"] for one in sent if one["role"] == "tool"] == made


async def test_a_stream_without_its_end_mark_is_whole_if_its_answer_is() -> None:
    replies = [stream([call_chunk("add", WHOLE), ENDS], ends=False), stream_text("three")]
    run, _ = await ask(replies, [add])
    assert (ADDED, run.text) == ([(1, 2)], "three")


async def test_usage_of_a_streamed_call_is_counted() -> None:
    used = {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34}
    chunks: list[Any] = [call_chunk("add", WHOLE), ENDS, {"choices": [], "usage": used}]
    run, requests = await ask([stream(chunks), stream_text("three")], [add])
    assert (run.usage.input, run.usage.output) == (30, 4)
    assert requests[0]["stream_options"] == {"include_usage": True}


async def test_a_chunk_that_is_broken_is_an_error_and_no_empty_answer() -> None:
    broken = stream([chunk({"content": "hal"}), "{broken"])
    with pytest.raises(ProviderError, match="not JSON"):
        await ask([broken] * 9, [add])


async def test_a_server_that_streams_unasked_is_read() -> None:
    replies = [stream([call_chunk("add", WHOLE), ENDS]), stream_text("three")]
    run, requests = await ask(replies, [add], streamed=False)
    assert "stream" not in requests[0] or requests[0]["stream"] is False
    assert (ADDED, run.text) == ([(1, 2)], "three")


async def test_members_that_are_null_are_members_that_are_missing() -> None:
    message = {"role": "assistant", "content": "hi", "tool_calls": None, "function_call": None}
    run, _ = await ask([whole(message)], [add], streamed=False)
    assert run.text == "hi"


async def test_arguments_that_are_cut_are_answered_with_what_is_wrong() -> None:
    run, requests = await ask([stream_call("add", WHOLE[:-1]), stream_text("again")], [add])
    assert not ADDED and run.text == "again"
    assert "cut off at character 12" in requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize("arguments", ["", "{}", "null"])
async def test_a_tool_without_parameters_is_called_with_any_form_of_nothing(
    arguments: str,
) -> None:
    run, _ = await ask([stream_call("look", arguments), stream_text("ok")], [look])
    assert run.results[0].data == "noon"


async def test_an_unknown_tool_is_answered_so_that_the_next_request_is_valid() -> None:
    run, requests = await ask([stream_call("nope", "{}"), stream_text("sorry")], [add])
    made, answered = requests[1]["messages"][-2:]
    assert answered["tool_call_id"] == made["tool_calls"][0]["id"]
    assert "there is no tool `nope`" in answered["content"] and run.text == "sorry"


async def test_a_tool_in_a_request_has_no_members_of_ours() -> None:
    _, requests = await ask([stream_text("hi")], [add])
    (sent,) = requests[0]["tools"]
    assert set(sent) == {"type", "function"}
    assert set(sent["function"]) == {"name", "description", "parameters"}


async def test_results_that_are_lists_or_nothing_go_back_as_text() -> None:
    @tool(side_effect="none")
    def list_drivers() -> list[dict[str, int]]:
        """List the drivers."""
        return [{"number": 1}]

    @tool(side_effect="none")
    def find_reply() -> dict[str, str]:
        """Find the reply."""
        return None  # pyright: ignore[reportReturnType]  what the report's tool does

    for one, sent in ((list_drivers, '[{"number":1}]'), (find_reply, "null")):
        run, requests = await ask([stream_call(one.name, "{}"), stream_text("ok")], [one])
        content = requests[1]["messages"][-1]["content"]
        assert isinstance(content, str) and content.startswith(sent) and run.text == "ok"


async def test_sub_agents_of_an_agent_without_tools_are_offered() -> None:
    clerk = Parts(agents=[SubAgent("orders", "Knows the orders.")])
    _, requests = await ask([stream_text("hi")], plugins=[clerk])
    sent = requests[0]["tools"][0]
    assert sent["function"]["name"] == "delegate"
    assert "orders" in json.dumps(sent)


async def test_an_output_type_changes_no_tool() -> None:
    class Report(BaseModel):
        total: int

    _, plain = await ask([stream_text("hi")], [add])
    _, typed = await ask([stream_text('{"total":1}')], [add], output_type=Report)
    assert plain[0]["tools"][0] == typed[0]["tools"][0]


async def test_a_schema_without_properties_is_sent_with_none() -> None:
    ready = Tool(
        name="ready",
        description="Say that all is ready.",
        arguments=make_arguments("ready", {"type": "object"}),
        handler=lambda: "yes",
    )
    run, requests = await ask(
        [stream_call("ready", "{}"), stream_text("ok")],
        [ready],
        permissions=Permissions(allow=["ready"]),
    )
    parameters = requests[0]["tools"][0]["function"]["parameters"]
    assert parameters == {"type": "object", "properties": {}}
    assert run.results[0].data == "yes"


async def test_an_error_page_of_a_proxy_is_an_error() -> None:
    page = Reply(pieces=[b"<html>Bad gateway</html>"], headers={"content-type": "text/html"})
    with pytest.raises(ProviderError):
        await ask([page] * 9, [add])


async def test_arguments_of_a_response_may_begin_with_an_empty_piece() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed"}
    call |= {"name": "add", "arguments": WHOLE}
    message: dict[str, Any] = {
        "type": "message",
        "id": "m_1",
        "role": "assistant",
        "status": "completed",
    }
    message |= {"content": [{"type": "output_text", "text": "three", "annotations": []}]}
    kind = b"response.function_call_arguments.delta"
    left: list[Reply] = []
    for item in (call, message):
        reply = responses_stream(make_response([item]))
        pieces = list(reply.pieces)
        first = next((at for at, piece in enumerate(pieces) if kind in piece), None)
        if first is not None:
            event = json.loads(pieces[first].partition(b"data: ")[2])
            pieces.insert(first, encode_event({**event, "delta": ""}))
        left.append(replace(reply, pieces=pieces))

    run, _ = await ask(left, [add], connect=OpenAIResponses)
    assert (ADDED, run.text) == ([(1, 2)], "three")


THOUGHTS = {
    "closed": ("<think>\nHm.\n</think>\n\nBlue.", "Blue.", "Hm."),
    "opened by the prompt": ("Hm.</think>Blue.", "Blue.", "Hm."),
    "cut": ("<think>I should", "", "I should"),
    "another family": (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Blue.",
        "Blue.",
        "Hm.",
    ),
    "only mentioned": (
        "Write <think> before a thought < 3.\n",
        "Write <think> before a thought < 3.\n",
        "",
    ),
    "code of the model's own": ('```json\n{"name": "add", "arguments": {}}\n```', None, ""),
    "marks of a call that nobody offered": ('<tool_call>{"name": "add"}</tool_call>', None, ""),
}


@pytest.mark.proves("reasoning.without-tools")
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("said", THOUGHTS)
async def test_thoughts_in_the_text_of_a_model_without_tools_are_no_answer(
    said: str, streamed: bool
) -> None:
    """Servers without a parser of reasoning hand it on as text; an agent without tools got it."""
    text, answer, thought = THOUGHTS[said]
    pieces = [text[at : at + 5] for at in range(0, len(text), 5)]
    chunks = [*(chunk({"content": one}) for one in pieces), chunk({}, "stop")]
    reply = stream(chunks) if streamed else whole({"role": "assistant", "content": text})
    run, _ = await ask([reply], [], streamed=streamed)
    assert run.text == (text if answer is None else answer)
    assert run.messages[-1].reasoning == thought
