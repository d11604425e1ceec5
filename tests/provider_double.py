"""Run doubles of providers in the test's process, checked against the types of their official SDKs.

    async with ProviderDouble([calls(("add", {"a": 1, "b": 2})), says("3")]) as server:
        Anthropic("m", base_url=server.url, api_key="k")
        # or OpenAIResponses(..., base_url=f"{server.url}/v1")

The server has `/v1/messages`, `/v1/responses` and `/v1/chat/completions`, or the routes that it is
given. Requests must fit the SDKs' types and answers are made of them. A request is refused as the
provider would refuse it: an unknown field, a message out of order, a call without its result, a
result without its call. The SDKs (`anthropic`, `openai`) must be installed. What only the provider
knows (models, signatures, sizes) is not checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from ferrule.core.calls import encode_json
from ferrule.models.answer_building import objects_in
from ferrule.models.scripted import Step
from ferrule.testing.http_double import HttpDouble, Reply, Request

PIECE_LENGTH = 3
"""Characters per streamed piece."""

EVENT_STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8"}
_CHAT_FINISH = {"length": "length", "calls": "tool_calls", "filter": "content_filter"}


class RequestRefused(Exception):
    """Raised for a request that the provider would refuse."""


def encode_error(code: str, message: str) -> dict[str, Any]:
    """Encode an error as Anthropic and OpenAI do."""
    return {"error": {"type": code, "message": message}}


@dataclass(frozen=True)
class Route:
    """What a double does with the requests of one route.

    Attributes:
        check: Raises RequestRefused or ValidationError for a request the provider would refuse.
        answer: Encodes a step as the answer to a request of that number, streamed or not.
        encode_error: Encodes an error, from its code and its message.
    """

    check: Callable[[dict[str, Any]], None]
    answer: Callable[[Step, int, bool], Reply]
    encode_error: Callable[[str, str], dict[str, Any]] = encode_error


class ProviderDouble:
    """Answers with the given steps in order, streamed if the request asks for it.

    `requests` are the bodies of all requests, `refusals` the reasons of refused ones.

    Args:
        steps: The answers.
        routes: The routes of another provider, by their paths.
    """

    def __init__(self, steps: Sequence[Step], routes: Mapping[str, Route] | None = None) -> None:
        self._steps = list(steps)
        self._routes = ROUTES if routes is None else routes
        self._http = HttpDouble(self._handle)
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []

    @property
    def url(self) -> str:
        return self._http.url

    async def __aenter__(self) -> ProviderDouble:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    def _handle(self, request: Request) -> Reply:
        route = self._routes.get(request.target)
        if route is None:
            return Reply(404, json=encode_error("not_found_error", "no such route"))
        asked = request.json()
        self.requests.append(asked)
        try:
            route.check(asked)
        except (RequestRefused, ValidationError) as problem:
            self.refusals.append(str(problem))
            refusal = route.encode_error("invalid_request_error", str(problem)[:400])
            return Reply(400, json=refusal)
        if not self._steps:
            return Reply(400, json=route.encode_error("invalid_request_error", "no more steps"))
        step = self._steps.pop(0)
        if step.error:
            error = route.encode_error(step.error.code or "api_error", step.error.detail)
            return Reply(step.error.status or 400, json=error)
        return route.answer(step, len(self.requests), bool(asked.get("stream")))


def encode_event(value: Mapping[str, Any], *, named: bool = True) -> bytes:
    """Encode a server-sent event, by default with its name as both providers send it."""
    name = f"event: {value['type']}\n".encode() if named else b""
    return name + b"data: " + encode_json(value).encode() + b"\n\n"


def split_text(text: str) -> list[str]:
    """Split a text as it is streamed."""
    return [text[at : at + PIECE_LENGTH] for at in range(0, len(text), PIECE_LENGTH)]


@lru_cache(maxsize=64)
def _adapter(module: str, name: str) -> TypeAdapter[Any]:
    from importlib import import_module

    return TypeAdapter(getattr(import_module(module), name))


def check_type(value: Any, module: str, name: str) -> Any:
    """Return `value` if it fits an SDK's type completely.

    Raises:
        ValidationError: A field has a wrong value.
        Refused: A field is unknown to the type.
    """
    adapter = _adapter(module, name)
    try:
        spelled = adapter.dump_json(
            adapter.validate_python(value), exclude_unset=True, by_alias=True
        )
    except PydanticSerializationError as problem:
        # Lists in the SDKs' types are checked when they are read.
        raise RequestRefused(str(problem)) from problem
    known: Any = json.loads(spelled)
    if known != value:
        raise RequestRefused(
            f"{name} does not know all of {encode_json(value)}, only {encode_json(known)}"
        )
    return value


def _only(asked: Mapping[str, Any], module: str, name: str) -> None:
    from importlib import import_module

    kind: Any = getattr(import_module(module), name)
    known: set[str] = set(kind.__required_keys__) | set(kind.__optional_keys__)
    if unknown := asked.keys() - known:
        raise RequestRefused(f"{name} has no {', '.join(sorted(unknown))}")
    if missing := set(kind.__required_keys__) - asked.keys():
        raise RequestRefused(f"{name} needs {', '.join(sorted(missing))}")


# ---- Messages


def check_messages(asked: dict[str, Any]) -> None:
    """Raise Refused or ValidationError for a request `POST /v1/messages` would refuse."""
    settings = {name: value for name, value in asked.items() if name != "stream"}
    _only(settings, "anthropic.types.message_create_params", "MessageCreateParamsNonStreaming")
    for tool in objects_in(asked.get("tools")):
        check_type(tool, "anthropic.types", "ToolUnionParam")
    if asked.get("tools") and all(tool.get("defer_loading") for tool in objects_in(asked["tools"])):
        raise RequestRefused("at least one tool must not be deferred")
    for block in objects_in(asked.get("system")):
        check_type(block, "anthropic.types", "TextBlockParam")
    role, owed = "", list[str]()
    for turn in objects_in(asked["messages"]):
        blocks = objects_in(turn["content"])
        if turn["role"] == role or not blocks:
            raise RequestRefused(f"a {turn['role']} turn that is empty, or follows its like")
        role = turn["role"]
        for block in blocks:
            _block_fits(block)
        given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(given) != sorted(owed) or any(
            block["type"] != "tool_result" for block in blocks[: len(given)]
        ):
            raise RequestRefused(
                f"the turn after calls {owed} must begin with their results, not {given}"
            )
        owed = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if role != "user":
        raise RequestRefused("the last turn must be the user's")


def _block_fits(block: dict[str, Any]) -> None:
    hosted = block["type"].endswith("_tool_result")
    # Results of hosted tools are sent back unchanged; the types of requests lack some of their
    # fields.
    kind = (
        ("anthropic.types.beta", "BetaContentBlock")
        if hosted
        else ("anthropic.types.beta", "BetaContentBlockParam")
    )
    check_type(block, *kind)


def _message(step: Step, number: int, streamed: bool) -> Reply:
    content: list[dict[str, Any]] = []
    if step.reasoning:
        content.append({"type": "thinking", "thinking": step.reasoning, "signature": "c2lnbmVk"})
    if step.text:
        content.append({"type": "text", "text": step.text, "citations": None})
    for at, call in enumerate(step.calls):
        id = call.id or f"toolu_{number}_{at}"
        content.append(
            {"type": "tool_use", "id": id, "name": call.tool, "input": json.loads(call.arguments)}
        )
    stop = {"length": "max_tokens", "filter": "refusal"}.get(
        step.stop, "tool_use" if step.calls else "end_turn"
    )
    message = make_message(
        content, stop, {"input_tokens": step.usage.input, "output_tokens": step.usage.output}
    )
    return messages_stream(message) if streamed else Reply(json=message)


def make_message(
    content: Sequence[Mapping[str, Any]], stop: str, usage: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """Make a message as the API returns it, by the SDK's beta type, which knows more blocks."""
    value = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": list(content),
    }
    value |= {"stop_reason": stop, "stop_sequence": None, "usage": dict(usage), **more}
    return check_type(value, "anthropic.types.beta", "BetaMessage")


def messages_stream(message: Mapping[str, Any]) -> Reply:
    """Stream a message as the API does."""
    head: dict[str, Any] = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**message["usage"], "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}, {"type": "ping"}]
    for index, block in enumerate(objects_in(message["content"])):
        start, deltas = _block_deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += (
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        )
        events.append({"type": "content_block_stop", "index": index})
    ended: dict[str, Any] = {
        "stop_reason": message["stop_reason"],
        "stop_sequence": message["stop_sequence"],
    }
    if "container" in message:
        ended["container"] = message["container"]
    events.append({"type": "message_delta", "delta": ended, "usage": message["usage"]})
    events.append({"type": "message_stop"})
    for one in events:
        if one["type"] != "ping":
            check_type(one, "anthropic.types.beta", "BetaRawMessageStreamEvent")
    return Reply(200, [encode_event(one) for one in events], headers=EVENT_STREAM_HEADERS)


def _block_deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in split_text(block["text"])]
            deltas += [
                {"type": "citations_delta", "citation": one} for one in block.get("citations") or ()
            ]
            start: dict[str, Any] = {**block, "text": ""} | (
                {"citations": []} if block.get("citations") else {}
            )
            return start, deltas
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": piece}
                for piece in split_text(block["thinking"])
            ]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            spelled = encode_json(block["input"]) if block["input"] else ""
            deltas = [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in ["", *split_text(spelled)]
            ]
            return {**block, "input": {}}, deltas
        case _:
            return block, []


# ---- Responses


def check_responses(asked: dict[str, Any]) -> None:
    """Raise Refused or ValidationError for a request `POST /v1/responses` would refuse."""
    settings = {name: value for name, value in asked.items() if name != "stream"}
    module = "openai.types.responses.response_create_params"
    _only(settings, module, "ResponseCreateParamsNonStreaming")
    check_type(settings, module, "ResponseCreateParamsNonStreaming")
    owed: set[str] = set()
    for item in objects_in(asked["input"]):
        match item.get("type"):
            case "function_call":
                owed.add(item["call_id"])
            case "mcp_approval_request":
                owed.add(item["id"])
            case "function_call_output" | "mcp_approval_response":
                id = item.get("call_id") or item["approval_request_id"]
                if id not in owed:
                    raise RequestRefused(f"no call found for output {id}")
                owed.discard(id)
            case "reasoning" if not asked.get("store") and not item.get("encrypted_content"):
                raise RequestRefused(f"{item['id']} was not stored, and its content is not here")
            case _:
                continue
    if owed:
        raise RequestRefused(f"no output found for {', '.join(sorted(owed))}")


def _response(step: Step, number: int, streamed: bool) -> Reply:
    output: list[dict[str, Any]] = []
    if step.reasoning:
        thought = {"type": "summary_text", "text": step.reasoning}
        output.append(
            {
                "id": f"rs_{number}",
                "type": "reasoning",
                "summary": [thought],
                "encrypted_content": "gAAA==",
            }
        )
    if step.text:
        kind, name = ("refusal", "refusal") if step.stop == "filter" else ("output_text", "text")
        part: dict[str, Any] = {"type": kind, name: step.text}
        part |= {} if step.stop == "filter" else {"annotations": [], "logprobs": []}
        ended = "incomplete" if step.stop == "length" else "completed"
        output.append(
            {
                "id": f"msg_{number}",
                "type": "message",
                "role": "assistant",
                "status": ended,
                "content": [part],
            }
        )
    for at, call in enumerate(step.calls):
        fields = {
            "id": f"fc_{number}_{at}",
            "type": "function_call",
            "status": "completed",
            "name": call.tool,
        }
        output.append(
            {**fields, "call_id": call.id or f"call_{number}_{at}", "arguments": call.arguments}
        )
    response = make_response(output, step.stop, step.usage.input, step.usage.output)
    return responses_stream(response) if streamed else Reply(json=response)


def make_response(
    output: Sequence[Mapping[str, Any]], stop: str = "", read: int = 0, wrote: int = 0
) -> dict[str, Any]:
    """Make a response as the API returns it, by the SDK's type."""
    cut = stop == "length"
    usage: dict[str, Any] = {
        "input_tokens": read,
        "output_tokens": wrote,
        "total_tokens": read + wrote,
    }
    usage["input_tokens_details"] = {"cached_tokens": 0, "cache_write_tokens": 0}
    usage["output_tokens_details"] = {"reasoning_tokens": 0}
    value: dict[str, Any] = {
        "id": "resp_01",
        "object": "response",
        "created_at": 1_780_000_000.0,
        "model": "gpt-5.5",
    }
    value |= {
        "status": "incomplete" if cut else "completed",
        "error": None,
        "output": list(output),
        "usage": usage,
    }
    value |= {"incomplete_details": {"reason": "max_output_tokens"} if cut else None}
    value |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return check_type(value, "openai.types.responses", "Response")


def responses_stream(response: Mapping[str, Any]) -> Reply:
    """Stream a response as the API does."""
    begun: dict[str, Any] = {
        **response,
        "output": [],
        "status": "in_progress",
        "usage": None,
        "incomplete_details": None,
    }
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(objects_in(response["output"])):
        start, deltas = _item_deltas(item)
        events.append({"type": "response.output_item.added", "output_index": index, "item": start})
        events += ({**delta, "output_index": index} for delta in deltas)
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{response['status']}", "response": dict(response)})
    numbered = [{**one, "sequence_number": number} for number, one in enumerate(events)]
    for one in numbered:
        check_type(one, "openai.types.responses", "ResponseStreamEvent")
    return Reply(200, [encode_event(one) for one in numbered], headers=EVENT_STREAM_HEADERS)


def _item_deltas(item: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the first form of an item and the events that complete it."""
    at = {"item_id": item.get("id", "")}
    deltas: list[dict[str, Any]] = []
    match item["type"]:
        case "message":
            for number, part in enumerate(item["content"]):
                here = {**at, "content_index": number}
                if part["type"] == "refusal":
                    deltas += (
                        {"type": "response.refusal.delta", **here, "delta": p}
                        for p in split_text(part["refusal"])
                    )
                else:
                    words: dict[str, Any] = {
                        "type": "response.output_text.delta",
                        **here,
                        "logprobs": [],
                    }
                    deltas += ({**words, "delta": piece} for piece in split_text(part["text"]))
            return {**item, "content": [], "status": "in_progress"}, deltas
        case "reasoning":
            for number, part in enumerate(item["summary"]):
                here = {**at, "summary_index": number}
                empty = {"type": "summary_text", "text": ""}
                deltas.append(
                    {"type": "response.reasoning_summary_part.added", **here, "part": empty}
                )
                said = {"type": "response.reasoning_summary_text.delta", **here}
                deltas += ({**said, "delta": piece} for piece in split_text(part["text"]))
            return {**item, "summary": []}, deltas
        case "function_call":
            said = {"type": "response.function_call_arguments.delta", **at}
            return {**item, "arguments": ""}, [
                {**said, "delta": piece} for piece in split_text(item["arguments"])
            ]
        case _:
            return item, []


# ---- chat completions


def check_chat(asked: dict[str, Any]) -> None:
    """Raise Refused or ValidationError for a request `POST /v1/chat/completions` would refuse."""
    settings = {name: value for name, value in asked.items() if name != "stream"}
    _only(
        settings, "openai.types.chat.completion_create_params", "CompletionCreateParamsNonStreaming"
    )
    owed: list[str] = []
    for message in objects_in(asked["messages"]):
        _check_chat_message(message)
        if message["role"] == "tool":
            if message["tool_call_id"] not in owed:
                raise RequestRefused(f"no call found for {message['tool_call_id']}")
            owed.remove(message["tool_call_id"])
        elif owed:
            raise RequestRefused(f"results are missing for {owed}")
        owed += [call["id"] for call in message.get("tool_calls", ())]
    if owed:
        raise RequestRefused(f"results are missing for {owed}")


def _check_chat_message(message: dict[str, Any]) -> None:
    # A union of a text and a list that is checked when it is read: the list's parts are lost.
    for part in objects_in(message.get("content")):
        check_type(part, "openai.types.chat", "ChatCompletionContentPartParam")
    if isinstance(message.get("content"), list):
        message = {**message, "content": ""}
    check_type(message, "openai.types.chat", "ChatCompletionMessageParam")


def _completion(step: Step, number: int, streamed: bool) -> Reply:
    finish = _CHAT_FINISH.get(step.stop, "tool_calls" if step.calls else "stop")
    made = [
        {
            "id": call.id or f"call_{number}_{at}",
            "type": "function",
            "function": {"name": call.tool, "arguments": call.arguments},
        }
        for at, call in enumerate(step.calls)
    ]
    read, wrote = step.usage.input, step.usage.output
    usage = {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}
    head: dict[str, Any] = {"id": "chatcmpl-1", "created": 1_780_000_000, "model": "gpt-5.5"}
    if not streamed:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": step.text or None,
            "refusal": None,
        }
        message |= {"tool_calls": made} if made else {}
        choice = {"index": 0, "finish_reason": finish, "message": message, "logprobs": None}
        value = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return Reply(json=check_type(value, "openai.types.chat", "ChatCompletion"))
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += ({"content": piece} for piece in split_text(step.text))
    for index, call in enumerate(made):
        function: Any = call["function"]
        deltas.append(
            {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
        )
        said: list[Any] = [
            {"index": index, "function": {"arguments": p}}
            for p in split_text(function["arguments"])
        ]
        deltas += ({"tool_calls": [one]} for one in said)
    head["object"] = "chat.completion.chunk"
    chunks = [
        {**head, "choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas
    ]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    chunks.append({**head, "choices": [], "usage": usage})
    sent = [
        encode_event(check_type(one, "openai.types.chat", "ChatCompletionChunk"), named=False)
        for one in chunks
    ]
    return Reply(200, [*sent, b"data: [DONE]\n\n"], headers=EVENT_STREAM_HEADERS)


ROUTES = {
    "/v1/messages": Route(check_messages, _message),
    "/v1/responses": Route(check_responses, _response),
    "/v1/chat/completions": Route(check_chat, _completion),
}
"""What a double serves unless it is given other routes."""

__all__ = [
    "EVENT_STREAM_HEADERS",
    "ROUTES",
    "ProviderDouble",
    "RequestRefused",
    "Route",
    "check_chat",
    "check_messages",
    "check_responses",
    "check_type",
    "make_message",
    "make_response",
    "messages_stream",
    "responses_stream",
]
