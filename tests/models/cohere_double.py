"""A double of Cohere's chat API, checked against the types of Cohere's own SDK.

async with ProviderDouble(steps, COHERE_ROUTES) as server:
    Cohere("m", base_url=server.url, api_key="k")
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_type_hints

from cohere.types.get_model_response import GetModelResponse
from cohere.v2.raw_client import RawV2Client
from cohere.v2.types.v2chat_response import V2ChatResponse
from cohere.v2.types.v2chat_stream_response import V2ChatStreamResponse
from pydantic import BaseModel, TypeAdapter

from ferrule.models.answer_building import objects_in
from ferrule.models.scripted import Step
from ferrule.testing.http_double import Reply
from provider_double import (
    EVENT_STREAM_HEADERS,
    RequestRefused,
    Route,
    encode_event,
    split_text,
)

FINISH = {"end": "COMPLETE", "calls": "TOOL_CALL", "length": "MAX_TOKENS"}


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type_)


def check_fits(value: Any, type_: Any) -> Any:
    """Return `value` if it fits a type of the SDK, and the type knows all of its fields."""
    made = _adapter(type_).validate_python(value)
    unknown = list(_unknown_fields(made))
    if unknown:
        raise RequestRefused(f"unknown fields: {', '.join(unknown)}")
    return value


def _unknown_fields(made: object) -> Iterator[str]:
    if isinstance(made, BaseModel):
        yield from (f"{type(made).__name__}.{name}" for name in made.model_extra or {})
        for name in type(made).model_fields:
            yield from _unknown_fields(getattr(made, name))
    elif isinstance(made, list):
        for item in made:
            yield from _unknown_fields(item)


@cache
def request_types() -> dict[str, Any]:
    """The members of a request, by the parameters of the SDK's method."""
    hints = get_type_hints(RawV2Client.chat)
    names = list(inspect.signature(RawV2Client.chat).parameters)
    known = {name: hints[name] for name in names if name not in ("self", "request_options")}
    return {**known, "stream": bool}


def check_request(asked: Mapping[str, Any]) -> None:
    """Raise RequestRefused or ValidationError for a request that `POST /v2/chat` would refuse."""
    types = request_types()
    if unknown := asked.keys() - types.keys():
        raise RequestRefused(f"unknown members: {sorted(unknown)}")
    if missing := {"model", "messages", "stream"} - asked.keys():
        raise RequestRefused(f"missing members: {sorted(missing)}")
    for name, value in asked.items():
        check_fits(value, types[name])
    if "tool_choice" in asked and (
        not asked.get("tools") or asked["tool_choice"] not in ("REQUIRED", "NONE")
    ):
        raise RequestRefused("tool_choice is REQUIRED or NONE, and needs tools")
    if asked.get("tools") and asked.get("response_format"):
        raise RequestRefused("response_format is not supported with tools")
    _check_order(objects_in(asked["messages"]))


def _check_order(messages: list[dict[str, Any]]) -> None:
    owed: list[str] = []
    for place, message in enumerate(messages):
        role = message["role"]
        if role == "system" and place:
            raise RequestRefused("system turn must be the first in the list")
        if role == "tool":
            if message["tool_call_id"] not in owed:
                raise RequestRefused(f"no call found for {message['tool_call_id']}")
            owed.remove(message["tool_call_id"])
        elif owed:
            raise RequestRefused(f"results are missing for {owed}")
        calls = message.get("tool_calls") or []
        text = message.get("content") or message.get("tool_plan") or ""
        if not calls and (not text or (isinstance(text, str) and not text.strip())):
            raise RequestRefused("message must not be empty in a turn")
        owed += [call["id"] for call in calls]
    if messages[-1]["role"] not in ("user", "tool"):
        raise RequestRefused("the last message must be the user's or a result")


def encode_error(code: str, message: str) -> dict[str, Any]:
    """Encode an error as Cohere does: a message, and the id of the answer."""
    return {"id": "00000000-0000-0000-0000-000000000000", "message": message}


def encode_step(step: Step, number: int, streamed: bool) -> Reply:
    """Encode a step of a script as an answer."""
    content: list[dict[str, Any]] = []
    message: dict[str, Any] = {"role": "assistant"}
    if step.reasoning:
        content.append({"type": "thinking", "thinking": step.reasoning})
    if step.calls:
        message["tool_plan"] = step.text
        message["tool_calls"] = [
            {
                "id": call.id or f"{call.tool}_{number}_{place}",
                "type": "function",
                "function": {"name": call.tool, "arguments": call.arguments},
            }
            for place, call in enumerate(step.calls)
        ]
    elif step.text:
        content.append({"type": "text", "text": step.text})
    if content:
        message["content"] = content
    finish = FINISH[step.stop or ("calls" if step.calls else "end")]
    answer = make_answer(message, finish, step.usage.input, step.usage.output)
    return stream_answer(answer) if streamed else Reply(json=answer)


def make_answer(message: dict[str, Any], finish: str, read: int, wrote: int) -> dict[str, Any]:
    """Make an answer as the API returns it, by the SDK's type."""
    counted = {"input_tokens": read, "output_tokens": wrote}
    usage = {"billed_units": {"input_tokens": 1, "output_tokens": wrote}, "tokens": counted}
    value = {"id": "c1", "finish_reason": finish, "message": message, "usage": usage}
    return check_fits(value, V2ChatResponse)


def stream_answer(answer: Mapping[str, Any]) -> Reply:
    """Stream an answer as the API does."""
    events = [encode_event(check_fits(one, V2ChatStreamResponse)) for one in events_of(answer)]
    return Reply(200, events, headers=EVENT_STREAM_HEADERS)


def events_of(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The events that an answer is streamed as."""
    message: dict[str, Any] = answer["message"]
    begun = {"message": {"role": "assistant"}}
    yield {"type": "message-start", "id": answer["id"], "delta": begun}
    for index, part in enumerate(message.get("content", [])):
        kind = part["type"]
        yield _event("content-start", index, {"content": {"type": kind, kind: ""}})
        for piece in split_text(part[kind]):
            yield _event("content-delta", index, {"content": {kind: piece}})
        yield {"type": "content-end", "index": index}
    for piece in split_text(message.get("tool_plan", "")):
        yield {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": piece}}}
    for index, call in enumerate(message.get("tool_calls", [])):
        head = {**call, "function": {**call["function"], "arguments": ""}}
        yield _event("tool-call-start", index, {"tool_calls": head})
        for piece in split_text(call["function"]["arguments"]):
            delta = {"tool_calls": {"function": {"arguments": piece}}}
            yield _event("tool-call-delta", index, delta)
        yield {"type": "tool-call-end", "index": index}
    end = {"finish_reason": answer["finish_reason"], "usage": answer["usage"]}
    yield {"type": "message-end", "id": answer["id"], "delta": end}


def _event(kind: str, index: int, message: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "index": index, "delta": {"message": message}}


DESCRIPTION = {
    "name": "command-a-03-2025",
    "is_deprecated": False,
    "endpoints": ["chat"],
    "finetuned": False,
    "context_length": 288_000,
    "features": ["json_mode", "json_schema", "strict_tools", "tools"],
}
"""What `GET /v1/models/{model}` says of a model."""
check_fits(DESCRIPTION, GetModelResponse)

COHERE_ROUTES = {"/v2/chat": Route(check_request, encode_step, encode_error)}
