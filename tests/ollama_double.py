"""Run a double of Ollama in the test's process with the faults of the real one.

It keeps the last tokens of a prompt and drops what comes before them, tools included, but still
answers 200 and reports the small count. If the user's message was dropped, it answers 500 "no user
query found". It ignores `tool_choice`, sends arguments as objects, and sends calls in any chunk. On
`/v1` it also ignores `num_ctx`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, cast

from ferrule.core.calls import encode_json
from ferrule.models.answer_building import objects_in
from ferrule.models.scripted import Step
from ferrule.testing.http_double import HttpDouble, Reply, Request

MODEL_DETAILS: dict[str, Any] = {
    "capabilities": ["completion", "tools"],
    "template": "{{ .Prompt }}",
    "parameters": 'stop "<|im_end|>"',
    "model_info": {"general.architecture": "llama", "llama.context_length": 131_072},
}
"""The answer of `/api/show` for a model that can call tools."""


def count_tokens(value: object) -> int:
    """Count tokens as this double does: four characters of JSON each."""
    return len(encode_json(value)) // 4


class OllamaDouble:
    """Answers with the given steps in order.

    `memory` is the largest window the machine can hold, whatever `num_ctx` says; `default_window`
    is used if a request sets none. `prompts` are the messages the model saw, `requests` the bodies
    of all requests.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        show: Mapping[str, Any] = MODEL_DETAILS,
        installed: Sequence[str] = ("llama3.2",),
        memory: int = 262_144,
        default_window: int = 4_096,
    ) -> None:
        self._steps = list(steps)
        self._show = show
        self._installed = installed
        self._memory = memory
        self._default_window = default_window
        self._http = HttpDouble(self._handle)
        self.prompts: list[list[dict[str, Any]]] = []
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return self._http.url

    async def __aenter__(self) -> OllamaDouble:
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
        if request.target == "/api/tags":
            return Reply(json={"models": [{"name": name} for name in self._installed]})
        asked = request.json()
        if asked.get("model") not in self._installed:
            return Reply(404, json={"error": f"model '{asked.get('model')}' not found"})
        if request.target == "/api/show":
            return Reply(json=self._show)
        if request.target not in ("/api/chat", "/v1/chat/completions"):
            return Reply(404, pieces=[b"404 page not found"])
        self.requests.append(asked)
        if asked.get("tools") and "tools" not in self._show.get("capabilities", ["tools"]):
            return Reply(
                400,
                json={
                    "error": f"registry.ollama.ai/library/{asked['model']} does not support tools"
                },
            )
        return self._chat(asked, native=request.target == "/api/chat")

    def _chat(self, asked: dict[str, Any], *, native: bool) -> Reply:
        options: Any = asked.get("options", {}) if native else {}
        wanted = cast(dict[str, Any], options).get("num_ctx") or self._default_window
        seen, read = self._cut(asked, min(wanted, self._memory))
        self.prompts.append(seen)
        if not any(message.get("role") == "user" for message in seen):
            return Reply(500, json={"error": "no user query found in the prompt"})
        if not self._steps:
            return Reply(500, json={"error": "the double has no more steps"})
        step = self._steps.pop(0)
        if step.error:
            return Reply(step.error.status or 500, json={"error": step.error.detail})
        return _native(step, read, asked) if native else _compatible(step, read)

    @staticmethod
    def _cut(asked: dict[str, Any], window: int) -> tuple[list[dict[str, Any]], int]:
        """Return the messages of the prompt that are kept, and the number of tokens read."""
        kept: list[dict[str, Any]] = []
        room = window
        for message in reversed(objects_in(asked.get("messages"))):
            size = count_tokens(message)
            if size > room:
                return kept[::-1], window
            room -= size
            kept.append(message)
        return kept[::-1], min(window, window - room + count_tokens(asked.get("tools", [])))


def _native(step: Step, read: int, asked: Mapping[str, Any]) -> Reply:
    made = [
        {"function": {"index": 0, "name": call.tool, "arguments": json.loads(call.arguments)}}
        for call in step.calls
    ]
    end = {"done": True, "done_reason": step.stop if step.stop == "length" else "stop"}
    end |= {"prompt_eval_count": read, "eval_count": 5}
    if asked.get("stream") is False:
        message = {
            "role": "assistant",
            "content": step.text,
            "thinking": step.reasoning,
            "tool_calls": made,
        }
        return Reply(json={"message": message, **end})
    words: list[dict[str, Any]] = (
        [{"thinking": step.reasoning, "content": ""}] if step.reasoning else []
    )
    words += [{"content": piece} for piece in step.text]
    # A call between the words, and the others in the last chunk: both are seen.
    middle = [{"content": "", "tool_calls": made[:1]}] if made else []
    said = [*words[:2], *middle, *words[2:]]
    chunks: list[dict[str, Any]] = [
        {"message": {"role": "assistant", **part}, "done": False} for part in said
    ]
    last = {"role": "assistant", "content": "", "tool_calls": made[1:]}
    chunks.append({"message": last, **end})
    lines = [encode_json(chunk).encode() + b"\n" for chunk in chunks]
    return Reply(200, lines, headers={"content-type": "application/x-ndjson"})


def _compatible(step: Step, read: int) -> Reply:
    made = [
        {"id": "", "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
        for call in step.calls
    ]
    message = {"role": "assistant", "content": step.text, "tool_calls": made}
    choice = {"message": message, "finish_reason": "tool_calls" if made else "stop"}
    return Reply(
        json={"choices": [choice], "usage": {"prompt_tokens": read, "completion_tokens": 5}}
    )
