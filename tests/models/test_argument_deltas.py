"""Arguments of calls reach the sink while they arrive, from every protocol that streams them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ferrule import Agent, ArgumentsDelta
from ferrule.core.calls import ToolCall
from ferrule.models.answer_building import AnswerBuilder
from ferrule.models.anthropic.answers import MessageBuilder, MessageStreamParser
from ferrule.models.openai.chat_answers import ChatStreamParser
from ferrule.models.openai.responses_answers import OutputBuilder, ResponseStreamParser
from ferrule.models.scripted import Scripted, calls, says
from ferrule.testing.model_client_conformance import RecordingSink

PIECES = ((0, '{"path":'), (0, '"a"}'), (1, '{"path":"b"}'))


def chat(sink: RecordingSink) -> None:
    parser = ChatStreamParser(AnswerBuilder.for_sink(sink), "test", tools=True)
    for index, piece in PIECES:
        call: dict[str, Any] = {"index": index, "function": {"name": "write", "arguments": piece}}
        parser.add([json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}).encode()])


def messages(sink: RecordingSink) -> None:
    message = MessageBuilder(AnswerBuilder.for_sink(sink))
    parser = MessageStreamParser(message, "test", tools=True)
    for index in (0, 1):
        block: dict[str, Any] = {
            "type": "tool_use",
            "id": f"c{index}",
            "name": "write",
            "input": {},
        }
        start: dict[str, Any] = {
            "type": "content_block_start",
            "index": index,
            "content_block": block,
        }
        parser.add([json.dumps(start).encode()])
    for index, piece in PIECES:
        delta = {"type": "input_json_delta", "partial_json": piece}
        event = {"type": "content_block_delta", "index": index, "delta": delta}
        parser.add([json.dumps(event).encode()])


def responses(sink: RecordingSink) -> None:
    output = OutputBuilder(AnswerBuilder.for_sink(sink))
    parser = ResponseStreamParser(output, "test", tools=True)
    for index in (0, 1):
        item = {"type": "function_call", "call_id": f"c{index}", "name": "write", "arguments": ""}
        added = {"type": "response.output_item.added", "output_index": index, "item": item}
        parser.add([json.dumps(added).encode()])
    for index, piece in PIECES:
        kind = "response.function_call_arguments.delta"
        parser.add([json.dumps({"type": kind, "output_index": index, "delta": piece}).encode()])


@pytest.mark.parametrize("stream", [chat, messages, responses])
def test_pieces_reach_the_sink_as_they_arrive(stream: Callable[[RecordingSink], None]) -> None:
    sink = RecordingSink()
    stream(sink)
    assert sink.arguments == {0: ['{"path":', '"a"}'], 1: ['{"path":"b"}']}


async def test_a_session_streams_the_arguments_of_a_call_before_the_call(agent_of: Any) -> None:
    session = agent_of(Scripted([calls(("nothing", {"text": "one two"})), says("done")])).session()
    pieces = [item async for item in session.stream("go") if isinstance(item, ArgumentsDelta)]
    await session.close()
    call = ToolCall("", "nothing", "".join(piece.text for piece in pieces))
    assert call.arguments == '{"text":"one two"}' and len(pieces) > 1
    assert {(piece.call, piece.tool) for piece in pieces} == {(0, "nothing")}


@pytest.fixture
def agent_of() -> Any:
    return Agent
