"""Servers of chat completions with the manners of six that people have, for tests.

Each refuses what the real one refuses and answers with what the real one adds. The first message of
a conversation gets a call of `read_file`, or of the only tool; the result gets an answer in words.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ferrule.testing.http_double import HttpDouble, Reply, Request

KEY = "k-house"
STREAM = {"content-type": "text/event-stream"}


@dataclass
class Gateway:
    """How one of the six behaves.

    Attributes:
        prefix: What stands before `/chat/completions`.
        models: The entries of its list of models.
        header: The header and the value that carry the key.
        decorate: Changes a chunk or an answer as this server would.
        first: What it sends before the first chunk.
        refuse: Returns why it refuses a request, or "".
        others: Answers at other paths.
        needs_key: Whether it refuses requests without the key.
    """

    prefix: str
    models: list[dict[str, Any]]
    header: tuple[str, str] = ("authorization", f"Bearer {KEY}")
    decorate: Callable[[dict[str, Any]], dict[str, Any]] = lambda chunk: chunk
    first: Sequence[bytes] = ()
    refuse: Callable[[Mapping[str, Any]], str] = lambda asked: ""
    others: Mapping[str, Reply] = field(default_factory=dict[str, Reply])
    needs_key: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    unknown: list[str] = field(default_factory=list[str])

    def answer(self, request: Request) -> Reply:
        name, value = self.header
        if self.needs_key and request.headers.get(name) != value:
            return Reply(401, json={"error": {"message": "Incorrect API key", "code": "401"}})
        if request.target in self.others:
            return self.others[request.target]
        if request.target == f"{self.prefix}/models":
            return Reply(json={"object": "list", "data": self.models})
        if request.target != f"{self.prefix}/chat/completions":
            self.unknown.append(request.target)
            return Reply(404, json={"detail": "Not Found"})
        asked = request.json()
        self.asked.append(asked)
        refusal = self.refuse(asked)
        if refusal:
            return Reply(400, json={"error": {"message": refusal, "code": "unsupported_value"}})
        return self._complete(asked)

    def _complete(self, asked: Mapping[str, Any]) -> Reply:
        calls = []
        text = "It says: one, two."
        if asked["messages"][-1]["role"] != "tool" and asked.get("tools"):
            calls = [_choose_call(asked["tools"])]
            text = ""
        finish = "tool_calls" if calls else "stop"
        read = len(json.dumps(asked)) // 3
        usage = {"prompt_tokens": read, "completion_tokens": 7, "total_tokens": read + 7}
        head = {"id": "x", "created": 1_780_000_000, "model": asked["model"]}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": text or None, "tool_calls": calls or None}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            return Reply(json=self.decorate(whole))
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += ({"content": piece} for piece in (text[:5], text[5:]))
        deltas += ({"tool_calls": [{**call, "index": 0}]} for call in calls)
        chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        chunks.append({"index": 0, "delta": {}, "finish_reason": finish})
        sent = [{**head, "object": "chat.completion.chunk", "choices": [one]} for one in chunks]
        if (asked.get("stream_options") or {}).get("include_usage"):
            sent.append({**head, "choices": [], "usage": usage})
        lines = [b"data: " + json.dumps(self.decorate(chunk)).encode() + b"\n\n" for chunk in sent]
        return Reply(200, [*self.first, *lines, b"data: [DONE]\n\n"], headers=STREAM)


def _choose_call(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [tool["function"]["name"] for tool in tools]
    name = "read_file" if "read_file" in names else names[0]
    arguments = {"path": "note.txt"} if name == "read_file" else {"ready": True}
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": "call_1", "type": "function", "function": function}


def _refuse_old_names(asked: Mapping[str, Any]) -> str:
    if "max_tokens" in asked:
        return "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    if "chat_template_kwargs" in asked:
        return "Unknown parameter: 'chat_template_kwargs'."
    return ""


def openai() -> Gateway:
    return Gateway("/v1", [{"id": "house-model", "object": "model", "owned_by": "openai"}])


def litellm() -> Gateway:
    """A proxy in front of other providers: it adds fields, and guards paths it does not know."""

    def decorate(chunk: dict[str, Any]) -> dict[str, Any]:
        for choice in chunk["choices"]:
            choice.get("delta", {})["provider_specific_fields"] = None
            choice.get("delta", {})["function_call"] = None
        return {**chunk, "system_fingerprint": None, "citations": None}

    forbidden = {"error": {"message": "Authentication Error, route not allowed", "code": "403"}}
    return Gateway(
        "/v1",
        [{"id": "house-model", "object": "model", "owned_by": "openai"}],
        decorate=decorate,
        others={"/props": Reply(403, json=forbidden)},
    )


def openrouter() -> Gateway:
    """It says which parameters a model takes, and keeps streams awake with comments."""

    def decorate(chunk: dict[str, Any]) -> dict[str, Any]:
        for choice in chunk["choices"]:
            choice["native_finish_reason"] = choice["finish_reason"]
        return {**chunk, "provider": "House"}

    supported = ["tools", "tool_choice", "max_tokens", "structured_outputs", "reasoning"]
    entry = {"id": "house/model", "context_length": 262_144, "supported_parameters": supported}
    return Gateway(
        "/api/v1",
        [entry],
        decorate=decorate,
        first=[b": OPENROUTER PROCESSING\n\n", b": OPENROUTER PROCESSING\n\n"],
        others={"/api/v1/key": Reply(json={"data": {"label": "k…e", "limit": None}})},
    )


def azure() -> Gateway:
    """Its key has a header of its own, and its first chunk has no choice."""

    def decorate(chunk: dict[str, Any]) -> dict[str, Any]:
        for choice in chunk["choices"]:
            choice["content_filter_results"] = {"hate": {"filtered": False, "severity": "safe"}}
        return chunk

    filtered = {"choices": [], "prompt_filter_results": [{"prompt_index": 0}], "model": ""}
    return Gateway(
        "/openai/v1",
        [{"id": "gpt-5.5-2026-04", "object": "model", "status": "succeeded"}],
        header=("api-key", KEY),
        decorate=decorate,
        first=[b"data: " + json.dumps(filtered).encode() + b"\n\n"],
        refuse=_refuse_old_names,
    )


def vllm(*, with_parser: bool = True) -> Gateway:
    """It says how large the window is, and refuses tools unless it was started for them."""

    def refuse(asked: Mapping[str, Any]) -> str:
        if asked.get("tools") and not with_parser:
            return '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'
        return ""

    entry = {"id": "house-model", "object": "model", "owned_by": "vllm", "max_model_len": 32_768}
    return Gateway("/v1", [entry], refuse=refuse, needs_key=False)


def llamacpp() -> Gateway:
    """It says what the model's template can do."""
    props = {
        "default_generation_settings": {"n_ctx": 16_384},
        "chat_template_caps": {"supports_tools": True, "supports_tool_calls": True},
    }
    return Gateway(
        "/v1",
        [{"id": "house-model", "object": "model", "owned_by": "llamacpp"}],
        decorate=lambda chunk: {**chunk, "timings": {"prompt_n": 90}},
        others={"/props": Reply(json=props)},
        needs_key=False,
    )


@contextmanager
def served(gateway: Gateway) -> Generator[str]:
    """Serve a gateway beside the test, which may block. Yield its URL up to the host."""
    ready = threading.Event()
    addresses: list[str] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with HttpDouble(gateway.answer) as double:
            addresses.append(double.url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
