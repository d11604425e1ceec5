"""A double of `generateContent`, checked against the types of `google-genai`.

async with ProviderDouble(steps, google_routes("gemini-3.8-flash")) as server:
    Google("gemini-3.8-flash", base_url=server.url, api_key="k")
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from google.genai import types
from pydantic import TypeAdapter

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

FINISH = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"}
SIGNATURE = "c2lnbmVk"
"""A signature, as the API spells bytes."""

REQUEST_TYPES: dict[str, Any] = {
    "contents": list[types.Content],
    "systemInstruction": types.Content,
    "tools": list[types.Tool],
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
    "safetySettings": list[types.SafetySetting],
    "cachedContent": str,
    "serviceTier": str,
    "labels": dict[str, str],
    "store": bool,
}
"""The members of a request, by the types that the SDK makes them of."""

_FITS_A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type_)


def check_fits(value: Any, type_: Any) -> Any:
    """Return `value` if it fits a type of the SDK, which must say all of it again."""
    # As JSON: only there bytes are base64, as they are on the line. The SDK writes the alphabet
    # for URLs; the API writes and reads both.
    given = re.sub(r'(?<="thoughtSignature": ")[^"]*', _for_urls, json.dumps(value))
    made = _adapter(type_).validate_json(given)
    again = json.loads(_adapter(type_).dump_json(made, exclude_unset=True, by_alias=True))
    if again != json.loads(given):
        raise RequestRefused(f"not all of it is known: {json.dumps(value)[:300]}, only {again}")
    return value


def _for_urls(signature: re.Match[str]) -> str:
    return signature[0].replace("+", "-").replace("/", "_")


def respell(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as the types spell it: the API reads both `a_b` and `aB`."""
    # The SDK names what it has nothing to say of.
    said = {name: value for name, value in asked.items() if value != {}}
    made = {n: _adapter(REQUEST_TYPES[n]).validate_json(json.dumps(v)) for n, v in said.items()}
    again = {
        n: _adapter(REQUEST_TYPES[n]).dump_json(v, exclude_unset=True, by_alias=True)
        for n, v in made.items()
    }
    return {name: json.loads(value) for name, value in again.items()}


def check_response(value: Any) -> Any:
    """Return a response if the SDK knows all of it."""
    return check_fits(value, types.GenerateContentResponse)


def check_request(asked: Mapping[str, Any], *, model: str = "gemini-3.8-flash") -> None:
    """Raise RequestRefused or ValidationError for a request that the API would refuse."""
    if unknown := asked.keys() - REQUEST_TYPES.keys():
        raise RequestRefused(f"unknown members: {sorted(unknown)}")
    for name, value in asked.items():
        check_fits(value, REQUEST_TYPES[name])
    is_newer = re.match(r"gemini-([3-9]|\d\d)", model) is not None
    generation = asked.get("generationConfig", {})
    if asked.get("cachedContent") and asked.keys() & {"systemInstruction", "tools", "toolConfig"}:
        raise RequestRefused("CachedContent can not be used with system_instruction or tools")
    if "responseJsonSchema" in generation:
        if generation.get("responseMimeType") != "application/json":
            raise RequestRefused("a schema needs the type application/json")
        if asked.get("tools") and not is_newer:
            raise RequestRefused("function calling with a response mime type is unsupported")
    thinking = generation.get("thinkingConfig", {})
    if "thinkingLevel" in thinking and (not is_newer or "thinkingBudget" in thinking):
        raise RequestRefused("thinking_level is not supported by this model")
    for tool in objects_in(asked.get("tools")):
        for declared in objects_in(tool.get("functionDeclarations")):
            _check_name(declared["name"])
    _check_order(objects_in(asked["contents"]), is_newer=is_newer)


def _check_name(name: str) -> None:
    if not _FITS_A_NAME.fullmatch(name):
        raise RequestRefused(f"invalid function name {name!r}")


def _check_order(contents: list[dict[str, Any]], *, is_newer: bool) -> None:
    owed: list[dict[str, Any]] = []
    role = ""
    for content in contents:
        if content["role"] == role or not content["parts"]:
            raise RequestRefused(
                f"a content of {content['role']} that is empty or follows its like"
            )
        role = content["role"]
        parts = objects_in(content["parts"])
        for part in parts:
            if "text" in part and not part["text"].strip() and "thoughtSignature" not in part:
                raise RequestRefused("a part without text")
        given = [part["functionResponse"] for part in parts if "functionResponse" in part]
        _check_results(owed, given)
        owed = [part["functionCall"] for part in parts if "functionCall" in part]
        for call in owed:
            _check_name(call["name"])
    if role != "user":
        raise RequestRefused("the last content must be the user's")
    if is_newer:
        _check_signatures(contents)


def _check_results(owed: list[dict[str, Any]], given: list[dict[str, Any]]) -> None:
    if len(owed) != len(given):
        raise RequestRefused(f"{len(owed)} calls, but {len(given)} function response parts")
    for call, result in zip(owed, given, strict=True):
        _check_name(result["name"])
        if (call.get("id"), call["name"]) != (result.get("id"), result["name"]):
            raise RequestRefused(f"the result {result} does not belong to {call}")


def _check_signatures(contents: list[dict[str, Any]]) -> None:
    """The first call of each step of the current turn needs a signature."""
    start = 0
    for place, content in enumerate(contents):
        if content["role"] == "user" and any("text" in part for part in content["parts"]):
            start = place
    for content in contents[start:]:
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0]:
            raise RequestRefused("Function call is missing a thought_signature")


def encode_error(code: str, message: str) -> dict[str, Any]:
    """Encode an error as Google does."""
    return {"error": {"code": 400, "message": message, "status": code}}


def encode_step(step: Step, number: int, _: bool, *, streamed: bool = False) -> Reply:
    """Encode a step of a script as an answer."""
    parts: list[dict[str, Any]] = []
    if step.reasoning:
        parts.append({"text": step.reasoning, "thought": True})
    if step.text:
        parts.append({"text": step.text})
    for place, call in enumerate(step.calls):
        made: dict[str, Any] = {"name": call.tool, "args": json.loads(call.arguments)}
        made["id"] = call.id or f"call_{number}_{place}"
        signed = {"thoughtSignature": SIGNATURE} if place == 0 else {}
        parts.append({"functionCall": made, **signed})
    finish = FINISH[step.stop or "end"]
    answer = make_answer(parts, finish, step.usage.input, step.usage.output)
    return stream_answer(answer) if streamed else Reply(json=answer)


def make_answer(
    parts: list[dict[str, Any]], finish: str, read: int, wrote: int, **more: Any
) -> dict[str, Any]:
    """Make an answer as the API returns it, by the SDK's type."""
    content = {"parts": parts, "role": "model"}
    candidate = {"content": content, "finishReason": finish, "index": 0, **more}
    usage = {"promptTokenCount": read, "candidatesTokenCount": wrote}
    value = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}
    return check_response({**value, "responseId": "r1"})


def stream_answer(answer: Mapping[str, Any]) -> Reply:
    """Stream an answer as the API does."""
    events = [encode_event(check_response(one), named=False) for one in events_of(answer)]
    return Reply(200, events, headers=EVENT_STREAM_HEADERS)


def events_of(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The responses that an answer is streamed as: text in pieces, all else in one."""
    candidate: dict[str, Any] = answer["candidates"][0]
    usage = {**answer["usageMetadata"], "candidatesTokenCount": 1}
    rest = {**answer, "usageMetadata": usage}

    def response(parts: list[dict[str, Any]]) -> dict[str, Any]:
        content = {"parts": parts, "role": "model"}
        return {**rest, "candidates": [{"content": content, "index": 0}]}

    for part in candidate["content"]["parts"]:
        if part.keys() <= {"text", "thought"}:
            for piece in split_text(part["text"]):
                yield response([{**part, "text": piece}])
        else:
            yield response([part])
    end = {name: value for name, value in candidate.items() if name != "content"}
    last = {"content": {"parts": [{"text": ""}], "role": "model"}, **end}
    yield {**answer, "candidates": [last]}


def google_routes(model: str) -> dict[str, Route]:
    """The routes of a model."""
    check = partial(check_request, model=model)
    return {
        f"/v1beta/models/{model}:generateContent": Route(check, encode_step, encode_error),
        f"/v1beta/models/{model}:streamGenerateContent?alt=sse": Route(
            check, partial(encode_step, streamed=True), encode_error
        ),
    }


DESCRIPTION = {
    "name": "models/gemini-3.8-flash",
    "version": "001",
    "displayName": "Gemini 3.8 Flash",
    "inputTokenLimit": 1_048_576,
    "outputTokenLimit": 65_536,
    "supportedGenerationMethods": ["generateContent", "countTokens"],
    "thinking": True,
}
"""What `GET /v1beta/models/{model}` says of a model."""
