"""A double of Bedrock's Converse API, checked against the service model of `botocore`.

async with ProviderDouble(steps, bedrock_routes("amazon.nova-pro-v1:0")) as server:
    Bedrock("amazon.nova-pro-v1:0", region="us-east-1", base_url=server.url, api_key="k")
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any
from urllib.parse import quote
from zlib import crc32

import botocore.session
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from ferrule.models.answer_building import objects_in
from ferrule.models.scripted import Step
from ferrule.testing.http_double import Reply
from provider_double import RequestRefused, Route, split_text

FINISH = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "filter": "content_filtered",
}
STREAM_TYPE = "application/vnd.amazon.eventstream"
STREAM_HEADERS = {"content-type": STREAM_TYPE}


@cache
def service() -> ServiceModel:
    """Amazon's own description of the API."""
    loader = botocore.session.get_session().get_component("data_loader")
    return ServiceModel(loader.load_service_model("bedrock-runtime", "service-2"))


def check_shape(value: Any, shape: Any) -> Any:
    """Return `value` if it fits a shape of the service model, which must know all of it."""
    report = ParamValidator().validate(value, shape)
    if report.has_errors():
        raise RequestRefused(report.generate_report())
    return value


def check_request(asked: Mapping[str, Any], *, model: str = "m") -> None:
    """Raise RequestRefused for a request that `converse-stream` would refuse."""
    shape = service().operation_model("ConverseStream").input_shape
    check_shape({**asked, "modelId": model}, shape)
    messages = objects_in(asked["messages"])
    listed = objects_in(asked.get("toolConfig", {}).get("tools"))
    owed: list[str] = []
    role = ""
    for message in messages:
        blocks = objects_in(message["content"])
        if message["role"] == role or not blocks:
            raise RequestRefused(f"a {message['role']} turn that is empty or follows its like")
        role = message["role"]
        if any("text" in block and not block["text"].strip() for block in blocks):
            raise RequestRefused("the text field in the ContentBlock object is blank")
        given = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
        if sorted(given) != sorted(owed):
            raise RequestRefused(f"toolResult blocks {given} do not match toolUse blocks {owed}")
        owed = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        if (owed or given) and not listed:
            raise RequestRefused("The toolConfig field must be defined when using toolUse")
    if role != "user":
        raise RequestRefused("the conversation must end with a user message")
    points = json.dumps(asked).count('"cachePoint"')
    if points > 4 or (points and "claude" not in model and "nova" not in model):
        raise RequestRefused("too many cache points, or a model without them")


def check_event(kind: str, payload: Any) -> Any:
    """Return the payload of an event if it fits its shape."""
    stream = service().shape_for("ConverseStreamOutput")
    return check_shape(payload, stream.members[kind])


def make_frame(kind: str, payload: bytes, *, message_type: str = "event") -> bytes:
    """Encode a message of an event stream, with its checksums."""
    names = {":exception-type" if message_type == "exception" else ":event-type": kind}
    names |= {":content-type": "application/json", ":message-type": message_type}
    headers = b"".join(_header(name, value) for name, value in names.items())
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    start = prelude + struct.pack("!I", crc32(prelude)) + headers + payload
    return start + struct.pack("!I", crc32(start))


def _header(name: str, value: str) -> bytes:
    data = value.encode()
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(data)) + data


def encode_events(events: Iterator[tuple[str, dict[str, Any]]]) -> list[bytes]:
    """The frames of events, each checked."""
    return [
        make_frame(kind, json.dumps(check_event(kind, payload), ensure_ascii=False).encode())
        for kind, payload in events
    ]


def make_answer(
    blocks: list[dict[str, Any]], finish: str, read: int, wrote: int, **counted: int
) -> dict[str, Any]:
    """Make an answer of `converse`, by its shape."""
    usage = {"inputTokens": read, "outputTokens": wrote, "totalTokens": read + wrote, **counted}
    message = {"role": "assistant", "content": blocks}
    value = {"output": {"message": message}, "stopReason": finish, "usage": usage}
    value["metrics"] = {"latencyMs": 7}
    return check_shape(value, service().operation_model("Converse").output_shape)


def events_of(answer: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events that an answer is streamed as."""
    yield "messageStart", {"role": "assistant"}
    for index, block in enumerate(answer["output"]["message"]["content"]):
        at = {"contentBlockIndex": index}
        start, deltas = deltas_of(block)
        if start:
            yield "contentBlockStart", {"start": start, **at}
        for delta in deltas:
            yield "contentBlockDelta", {"delta": delta, **at}
        yield "contentBlockStop", at
    yield "messageStop", {"stopReason": answer["stopReason"]}
    yield "metadata", {"usage": answer["usage"], "metrics": answer["metrics"]}


def deltas_of(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """How a block begins, and its deltas."""
    if "toolUse" in block:
        call = dict(block["toolUse"])
        spelled = json.dumps(call.pop("input"), separators=(",", ":"), ensure_ascii=False)
        return {"toolUse": call}, [{"toolUse": {"input": one}} for one in split_text(spelled)]
    if "reasoningContent" in block:
        thought = block["reasoningContent"]
        if "redactedContent" in thought:
            return {}, [{"reasoningContent": thought}]
        text = thought["reasoningText"]
        deltas = [{"reasoningContent": {"text": one}} for one in split_text(text["text"])]
        if "signature" in text:
            deltas.append({"reasoningContent": {"signature": text["signature"]}})
        return {}, deltas
    return {}, [{"text": one} for one in split_text(block["text"])]


def stream_answer(answer: Mapping[str, Any]) -> Reply:
    """Stream an answer as the API does."""
    return Reply(200, encode_events(events_of(answer)), headers=STREAM_HEADERS)


def encode_error(code: str, message: str) -> dict[str, Any]:
    """Encode an error as Amazon does, but for its header."""
    return {"message": message}


def encode_step(step: Step, number: int, _: bool, *, streamed: bool = False) -> Reply:
    """Encode a step of a script as an answer."""
    blocks: list[dict[str, Any]] = []
    if step.reasoning:
        said = {"text": step.reasoning, "signature": "c2lnbmVk"}
        blocks.append({"reasoningContent": {"reasoningText": said}})
    if step.text:
        blocks.append({"text": step.text})
    for place, call in enumerate(step.calls):
        id = call.id or f"tooluse_{number}_{place}"
        made = {"toolUseId": id, "name": call.tool, "input": json.loads(call.arguments)}
        blocks.append({"toolUse": made})
    finish = FINISH[step.stop or ("calls" if step.calls else "end")]
    answer = make_answer(blocks, finish, step.usage.input, step.usage.output)
    return stream_answer(answer) if streamed else Reply(json=answer)


def bedrock_routes(model: str) -> dict[str, Route]:
    """The routes of a model."""
    check = partial(check_request, model=model)
    place = f"/model/{quote(model, safe='')}"
    return {
        f"{place}/converse": Route(check, encode_step, encode_error),
        f"{place}/converse-stream": Route(check, partial(encode_step, streamed=True), encode_error),
    }
