"""Any legal answer, cut anywhere and followed by anything, is the same answer; without its end it
is an error.

Answers are drawn from what a protocol allows and checked against its SDK's own types (Ollama's
lines have none); what an answer says is known before it is spelled, so nothing of the clients is
their own oracle. Bytes reach the real client in exactly the pieces that were drawn
(`byte_stream`).

FERRULE_TEST_STREAMS is the number of answers per client and property (`make lab NAME=streams` takes many
more than the default).
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
from collections.abc import AsyncIterator, Generator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from byte_stream import (
    Arrival,
    Ending,
    cut_at,
    encode_chunks,
    response_head,
    serve_in_pieces,
)
from ferrule.core.calls import encode_json
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.any_llm.client import AnyLLM
from ferrule.models.bedrock.client import Bedrock
from ferrule.models.client import ModelClient, ModelOptions
from ferrule.models.cohere.client import Cohere
from ferrule.models.google.client import Google
from ferrule.models.http import streaming
from ferrule.models.http.transport import Transport
from ferrule.models.ollama.client import Ollama
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.testing.model_client_conformance import ADD, HELLO, RecordingSink

pytest.importorskip("openai", reason="`openai` is not installed: its types say what is legal")
pytest.importorskip("anthropic", reason="`anthropic` is not installed: its types say what is legal")

from provider_double import check_type

CASES = int(os.environ.get("FERRULE_TEST_STREAMS", "25"))
EVERY = 1 if CASES > 1000 else 13
"""Of the places where one answer is cut, how many are passed over: none where time is no matter."""
MANY = settings(
    max_examples=CASES,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)


@dataclass(frozen=True)
class PlannedCall:
    """A call as the model makes it. `pieces` is its arguments' JSON text as it is streamed."""

    id: str
    name: str
    pieces: tuple[str, ...]

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Plan:
    """What an answer says, before any protocol spells it."""

    thoughts: tuple[str, ...]
    words: tuple[str, ...]
    calls: tuple[PlannedCall, ...]
    stop: str
    usage: Usage
    refused: bool = False


# ---- drawing answers

HIGH, LOW = "\uf8fe", "\uf8ff"
"""The halves of 😀, until they are spelled: no type checks half a surrogate pair."""

PLAIN = st.characters(codec="utf-8", exclude_characters=HIGH + LOW)
TEXT = st.text(PLAIN, max_size=12) | st.sampled_from(
    [
        f"a{HIGH}{LOW}b",
        f"{HIGH}{LOW}" * 2,
        "☃",
        "🙂👩‍👩‍👧",
        "\r\n\r\n",
        "data: [DONE]\n\n",
        '{"',
        "\u2028",
        "[DONE]",
        "event: error",
        "\x00\x1b",
    ]
)
WORDS = st.lists(TEXT.filter(bool), max_size=4).map(tuple)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)


def spell_halves(data: bytes) -> bytes:
    """Write both halves of a pair as escapes of JSON."""
    for half, unit in ((HIGH, b"\\ud83d"), (LOW, b"\\ude00")):
        data = data.replace(half.encode(), unit).replace(ascii(half)[1:-1].encode(), unit)
    return data


def real(text: str) -> str:
    """Return what a text says once its halves are joined. A cut may have left one alone."""
    return text.replace(HIGH + LOW, "😀").replace(HIGH, "\ufffd")


def cut_pairs(pieces: tuple[str, ...], rng: random.Random) -> tuple[str, ...]:
    """Cut some pairs between their halves, as servers do that cut after so many UTF-16 units."""
    cut: list[str] = []
    for piece in pieces:
        mark = HIGH + "|" if rng.random() < 0.7 else HIGH
        cut += [part for part in piece.replace(HIGH, mark).split("|") if part]
    return tuple(cut)


def in_pieces(text: str, rng: random.Random) -> tuple[str, ...]:
    places = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(4)))
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    return tuple(pieces)


@st.composite
def plans(draw: st.DrawFn, *, objects: bool = False) -> Plan:
    """`objects`: a protocol whose calls are never cut inside their arguments."""
    rng = draw(st.randoms())
    calls: list[PlannedCall] = []
    for number in range(draw(st.integers(0, 3))):
        arguments = json.dumps(
            draw(st.dictionaries(TEXT, VALUES, max_size=3)), ensure_ascii=draw(st.booleans())
        )
        arguments = arguments.replace(ascii(HIGH)[1:-1], r"\ud83d")
        arguments = arguments.replace(ascii(LOW)[1:-1], r"\ude00")
        calls.append(PlannedCall(f"call_{number}", draw(NAMES), in_pieces(arguments, rng)))
    stop = draw(st.sampled_from(["calls" if calls else "end"] * 3 + ["length"]))
    if stop == "length" and calls and not objects:
        last = calls[-1]
        kept = last.arguments[: draw(st.integers(0, len(last.arguments)))]
        calls[-1] = PlannedCall(last.id, last.name, in_pieces(kept, rng))
    words = cut_pairs(draw(WORDS), rng)
    refused = not calls and bool(words) and stop == "end" and draw(st.booleans())
    counts = st.integers(1, 10**6)
    thoughts = cut_pairs(draw(WORDS), rng)
    return Plan(thoughts, words, tuple(calls), stop, Usage(draw(counts), draw(counts)), refused)


def compact(arguments: str) -> str:
    return encode_json(json.loads(arguments))


def merged(queues: Sequence[Sequence[Any]], rng: random.Random) -> list[Any]:
    """All elements, those of one queue in their order."""
    left: list[list[Any]] = [list(queue) for queue in queues if queue]
    out: list[Any] = []
    while left:
        queue = rng.choice(left)
        out.append(queue.pop(0))
        left = [one for one in left if one]
    return out


# ---- protocols


@cache
def message_events() -> TypeAdapter[Any]:
    from anthropic.types import RawMessageStreamEvent

    return TypeAdapter(RawMessageStreamEvent)


@dataclass
class Spelled:
    """An answer as its bytes. `needed` is how many of them must arrive for nothing of the answer to
    be missing; `usage_needed` the same for its usage.
    """

    body: bytes = b""
    needed: int = 0
    usage_needed: int = 0


@dataclass
class Spelling:
    """How one server writes its events: line ends, what it sends between them, escaped or plain
    characters.
    """

    rng: random.Random
    end: bytes = b"\n"
    ascii: bool = False
    parts: list[bytes] = field(default_factory=list[bytes])

    def size(self) -> int:
        return sum(map(len, self.parts))

    def json(self, value: Any) -> bytes:
        spelled = json.dumps(value, ensure_ascii=self.ascii, separators=(",", ":"))
        return spell_halves(spelled.encode())

    def event(self, data: bytes, name: str = "") -> int:
        """Write an event. Returns where its data ended."""
        self.noise()
        if name:
            self.parts.append(b"event: " + name.encode() + self.end)
        self.parts.append(b"data:" + (b" " if self.rng.random() < 0.8 else b"") + data)
        ended = self.size()
        self.parts.append(self.end * 2)
        return ended

    def noise(self) -> None:
        kinds = [
            b"",
            b"",
            b"",
            b": ping\n\n",
            b"\r\n",
            b":\n",
            b"id: 7\nretry: 3000\n\n",
            b"data: \n\n",
        ]
        self.parts.append(self.rng.choice(kinds))


@dataclass
class WrongSpelling(Spelling):
    """The same, with one field changed in the event at `place`, counted from 1 and downwards."""

    place: int = 0
    how: str = "wrong"

    def json(self, value: Any) -> bytes:
        self.place -= 1
        return super().json(change_field(value, self.rng, self.how) if self.place == 0 else value)


class Protocol:
    """A model client and the answers that are legal for it."""

    name = ""
    content_type = "text/event-stream; charset=utf-8"
    objects = False
    late: Sequence[bytes] = ()
    """What servers of this protocol are known to send after the end."""
    goes_on: bool = False
    """Whether more of the answer may follow its reason to stop."""
    named = ("", "")
    """The answer's id and model, as far as the protocol says them."""

    def client(self, transport: Transport) -> ModelClient:
        raise NotImplementedError

    def streamed(self, plan: Plan, spelling: Spelling) -> Spelled:
        raise NotImplementedError

    def whole(self, plan: Plan) -> dict[str, Any]:
        raise NotImplementedError

    def expected(self, plan: Plan) -> tuple[Any, ...]:
        """Text, reasoning, calls, stop."""
        nothing = "" if plan.stop == "length" else "{}"
        calls = [(call.id, call.name, real(call.arguments) or nothing) for call in plan.calls]
        return real("".join(plan.words)), real("".join(plan.thoughts)), calls, self.stop(plan)

    def stop(self, plan: Plan) -> str:
        return plan.stop


class Chat(Protocol):
    name = "openai chat"
    named = ("c", "m")
    late = (
        b"data: [DONE]\n\n",
        b'data: {"id":"x","object":"chat.completion.chunk","choices":[],"usage":',
    )

    def client(self, transport: Transport) -> ModelClient:
        return OpenAIChat("m", base_url="http://double/v1", api_key="k", transport=transport)

    def _chunk(
        self, delta: dict[str, Any] | None, finish: str | None = None, **more: Any
    ) -> dict[str, Any]:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        value = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": choices,
        }
        thoughts = bool(delta) and "reasoning_content" in delta
        # The SDK's types have no reasoning: DeepSeek, llama.cpp and vLLM added it.
        return (
            value | more
            if thoughts
            else check_type(value | more, "openai.types.chat", "ChatCompletionChunk")
        )

    def streamed(self, plan: Plan, spelling: Spelling) -> Spelled:
        queues: list[list[dict[str, Any]]] = []
        for index, call in enumerate(plan.calls):
            start = {"index": index, "id": call.id, "type": "function"}
            deltas = [{**start, "function": {"name": call.name, "arguments": ""}}]
            deltas += [{"index": index, "function": {"arguments": piece}} for piece in call.pieces]
            queues.append([{"tool_calls": [delta]} for delta in deltas])
        # A call begins where its place is: heads in order, the rest in any.
        heads = [queue.pop(0) for queue in queues]
        word = "refusal" if plan.refused else "content"
        deltas = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in plan.thoughts]
        deltas += merged([[{word: piece} for piece in plan.words], heads], spelling.rng)
        deltas += merged(queues, spelling.rng)
        others = spelling.rng.random() < 0.3
        for delta in deltas:
            spelling.event(spelling.json(self._chunk(delta)))
            if others and spelling.rng.random() < 0.5:
                spelling.event(spelling.json(self._other_choice(delta)))
        if others:
            spelling.event(spelling.json(self._other_choice({}, "stop")))
        finish = {"end": "stop", "calls": "tool_calls", "length": "length"}[plan.stop]
        needed = spelling.event(spelling.json(self._chunk({}, finish)))
        usage = self.usage(plan)
        used = spelling.event(spelling.json(self._chunk(None, usage=usage)))
        spelling.event(b"[DONE]")
        return Spelled(b"".join(spelling.parts), needed, used)

    def _other_choice(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        """What nobody asked for: a second answer beside the first."""
        chunk = self._chunk(delta, finish)
        return chunk | {"choices": [chunk["choices"][0] | {"index": 1}]}

    @staticmethod
    def usage(plan: Plan) -> dict[str, int]:
        read, wrote = plan.usage.input, plan.usage.output
        return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}

    def whole(self, plan: Plan) -> dict[str, Any]:
        text = "".join(plan.words)
        message: dict[str, Any] = {"role": "assistant", "content": None if plan.refused else text}
        message["refusal"] = text if plan.refused else None
        if plan.calls:
            message["tool_calls"] = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": c.name, "arguments": c.arguments},
                }
                for c in plan.calls
            ]
        finish = {"end": "stop", "calls": "tool_calls", "length": "length"}[plan.stop]
        choice = {"index": 0, "finish_reason": finish, "message": message, "logprobs": None}
        value = {
            "id": "c",
            "created": 1,
            "model": "m",
            "object": "chat.completion",
            "choices": [choice],
        }
        check_type(value | {"usage": self.usage(plan)}, "openai.types.chat", "ChatCompletion")
        if plan.thoughts:
            message["reasoning_content"] = "".join(plan.thoughts)
        return value | {"usage": self.usage(plan)}


class Responses(Protocol):
    name = "openai responses"
    named = ("r", "m")
    habits = ("no places", "no ids", "last event")
    """What servers leave out: the places of items, their ids too, items before the last event."""
    late = (b"data: [DONE]\n\n", b'event: response.completed\ndata: {"type":"response.com')

    def client(self, transport: Transport) -> ModelClient:
        return OpenAIResponses("m", base_url="http://double/v1", api_key="k", transport=transport)

    def stop(self, plan: Plan) -> str:
        return "filter" if plan.refused else plan.stop

    def _items(
        self, plan: Plan
    ) -> list[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]]:
        """Each item as it begins, as it ends, and the deltas in between."""
        items: list[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = []
        if plan.thoughts:
            part = {"type": "summary_text", "text": "".join(plan.thoughts)}
            whole: dict[str, Any] = {
                "id": "rs",
                "type": "reasoning",
                "summary": [part],
                "encrypted_content": "g==",
            }
            at = {"item_id": "rs", "summary_index": 0}
            empty = {"type": "summary_text", "text": ""}
            deltas: list[dict[str, Any]] = [
                {"type": "response.reasoning_summary_part.added", **at, "part": empty}
            ]
            said = {"type": "response.reasoning_summary_text.delta", **at}
            deltas += [{**said, "delta": piece} for piece in plan.thoughts]
            deltas.append(
                {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
            )
            items.append(({**whole, "summary": []}, whole, deltas))
        if plan.words:
            items.append(self._words(plan))
        for number, call in enumerate(plan.calls):
            at = {"item_id": f"fc{number}"}
            cut_off = plan.stop == "length" and number == len(plan.calls) - 1
            whole = {
                "id": f"fc{number}",
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
            }
            whole |= {
                "arguments": call.arguments,
                "status": "incomplete" if cut_off else "completed",
            }
            said = {"type": "response.function_call_arguments.delta", **at}
            deltas = [{**said, "delta": piece} for piece in call.pieces]
            if not cut_off:
                done = {"type": "response.function_call_arguments.done", **at, "name": call.name}
                deltas.append({**done, "arguments": call.arguments})
            items.append(({**whole, "arguments": "", "status": "in_progress"}, whole, deltas))
        return items

    @staticmethod
    def _words(plan: Plan) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        text = "".join(plan.words)
        here = {"item_id": "msg", "content_index": 0}
        if plan.refused:
            part: dict[str, Any] = {"type": "refusal", "refusal": text}
            deltas = [
                {"type": "response.refusal.delta", **here, "delta": piece} for piece in plan.words
            ]
            deltas.append({"type": "response.refusal.done", **here, "refusal": text})
        else:
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            said: dict[str, Any] = {"type": "response.output_text.delta", **here, "logprobs": []}
            deltas = [{**said, "delta": piece} for piece in plan.words]
            deltas.append(
                {"type": "response.output_text.done", **here, "text": text, "logprobs": []}
            )
        whole = {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        return {**whole, "content": [], "status": "in_progress"}, whole, deltas

    def streamed(self, plan: Plan, spelling: Spelling) -> Spelled:
        response = self.whole(plan)
        begun: dict[str, Any] = {
            **response,
            "output": [],
            "status": "in_progress",
            "usage": None,
            "incomplete_details": None,
        }
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        queues: list[list[dict[str, Any]]] = []
        for place, (start, whole, deltas) in enumerate(self._items(plan)):
            queue = [{"type": "response.output_item.added", "output_index": place, "item": start}]
            queue += [{**delta, "output_index": place} for delta in deltas]
            queue.append(
                {"type": "response.output_item.done", "output_index": place, "item": whole}
            )
            queues.append(queue)
        habit = spelling.rng.choice(["", "", "", *self.habits])
        if habit == "no places":
            # Without places the order of the items is that of their starts.
            events += [queue.pop(0) for queue in queues]
        if habit == "no ids":
            events += [event for queue in queues for event in queue]
        elif habit == "last event":
            left_out = spelling.rng.randrange(len(queues) + 1)
            events += merged(queues[:left_out], spelling.rng)
        else:
            events += merged(queues, spelling.rng)
        events.append({"type": f"response.{response['status']}", "response": response})
        needed = 0
        for number, one in enumerate(events):
            numbered = one | {"sequence_number": number}
            check_type(numbered, "openai.types.responses", "ResponseStreamEvent")
            needed = spelling.event(spelling.json(self._leave_out(numbered, habit)), one["type"])
        return Spelled(b"".join(spelling.parts), needed, needed)

    @staticmethod
    def _leave_out(event: dict[str, Any], habit: str) -> dict[str, Any]:
        if habit not in ("no places", "no ids"):
            return event
        kept = {name: value for name, value in event.items() if name != "output_index"}
        if habit == "no ids":
            kept.pop("item_id", None)
            if "item" in kept:
                kept["item"] = kept["item"] | {"id": ""}
        return kept

    def whole(self, plan: Plan) -> dict[str, Any]:
        read, wrote = plan.usage.input, plan.usage.output
        usage: dict[str, Any] = {
            "input_tokens": read,
            "output_tokens": wrote,
            "total_tokens": read + wrote,
        }
        usage["input_tokens_details"] = {"cached_tokens": 0, "cache_write_tokens": 0}
        usage["output_tokens_details"] = {"reasoning_tokens": 0}
        cut_off = plan.stop == "length"
        value = {"id": "r", "object": "response", "created_at": 1.0, "model": "m", "error": None}
        value |= {"status": "incomplete" if cut_off else "completed", "usage": usage}
        value |= {"incomplete_details": {"reason": "max_output_tokens"} if cut_off else None}
        value |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        value["output"] = [whole for _, whole, _ in self._items(plan)]
        return check_type(value, "openai.types.responses", "Response")


class Messages(Protocol):
    name = "anthropic"
    named = ("m1", "m")
    late = (b'event: ping\ndata: {"type": "ping"}\n\n', b'event: message_stop\ndata: {"type":"mess')

    def client(self, transport: Transport) -> ModelClient:
        return Anthropic("m", base_url="http://double", api_key="k", transport=transport)

    def stop(self, plan: Plan) -> str:
        return "filter" if plan.refused else plan.stop

    @staticmethod
    def _stop_reason(plan: Plan) -> str:
        reasons = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens"}
        return "refusal" if plan.refused else reasons[plan.stop]

    @staticmethod
    def _blocks(plan: Plan) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Each block as it begins, with its deltas."""
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        if plan.thoughts:
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in plan.thoughts]
            deltas.append({"type": "signature_delta", "signature": "s=="})
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
        if plan.words:
            deltas = [{"type": "text_delta", "text": piece} for piece in plan.words]
            blocks.append(({"type": "text", "text": "", "citations": None}, deltas))
        for call in plan.calls:
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in ["", *call.pieces]
            ]
            caller = {"type": "direct"}
            start = {
                "type": "tool_use",
                "id": call.id,
                "name": call.name,
                "input": {},
                "caller": caller,
            }
            blocks.append((start, deltas))
        return blocks

    def streamed(self, plan: Plan, spelling: Spelling) -> Spelled:
        message: dict[str, Any] = {"id": "m1", "type": "message", "role": "assistant"}
        message |= {"model": "m", "content": []}
        message |= {"stop_reason": None, "stop_sequence": None}
        begun = message | {"usage": {"input_tokens": plan.usage.input, "output_tokens": 1}}
        events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
        queues: list[list[dict[str, Any]]] = []
        for index, (block, deltas) in enumerate(self._blocks(plan)):
            events.append({"type": "content_block_start", "index": index, "content_block": block})
            queue = [
                {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
            ]
            queues.append([*queue, {"type": "content_block_stop", "index": index}])
        # Blocks of one answer follow each other; the protocol's index lets them run side by side.
        events += merged(queues, spelling.rng)
        last = {"stop_reason": self._stop_reason(plan), "stop_sequence": None}
        events.append(
            {"type": "message_delta", "delta": last, "usage": {"output_tokens": plan.usage.output}}
        )
        events.append({"type": "message_stop"})
        needed = 0
        for one in events:
            message_events().validate_python(one)
            if spelling.rng.random() < 0.2:
                spelling.event(b'{"type": "ping"}', "ping")
            needed = spelling.event(spelling.json(one), one["type"])
        return Spelled(b"".join(spelling.parts), needed, needed)

    def whole(self, plan: Plan) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        for start, _ in self._blocks(plan):
            block = dict(start)
            if block["type"] == "thinking":
                block |= {"thinking": "".join(plan.thoughts), "signature": "s=="}
            elif block["type"] == "text":
                block["text"] = "".join(plan.words)
            blocks.append(block)
        made = [block for block in blocks if block["type"] == "tool_use"]
        for block, call in zip(made, plan.calls, strict=True):
            block["input"] = json.loads(call.arguments)
        value = {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": blocks,
        }
        value |= {"stop_reason": self._stop_reason(plan), "stop_sequence": None}
        usage = {"input_tokens": plan.usage.input, "output_tokens": plan.usage.output}
        return check_type(value | {"usage": usage}, "anthropic.types", "Message")


class OllamaLines(Protocol):
    name = "ollama"
    named = ("", "m")
    content_type = "application/x-ndjson"
    objects = True
    late = (
        b'{"model":"m","message":{"role":"assistant","content":"more"},"done":false}\n',
        b'{"model":',
    )

    def client(self, transport: Transport) -> ModelClient:
        return Ollama("m", base_url="http://double:11434", transport=transport)

    def expected(self, plan: Plan) -> tuple[Any, ...]:
        text, thoughts, calls, stop = super().expected(plan)
        return text, thoughts, [("", name, compact(made)) for _, name, made in calls], stop

    @staticmethod
    def _made(call: PlannedCall) -> dict[str, Any]:
        return {"function": {"name": call.name, "arguments": json.loads(call.arguments)}}

    @staticmethod
    def _end(plan: Plan) -> dict[str, Any]:
        end: dict[str, Any] = {
            "done": True,
            "done_reason": "length" if plan.stop == "length" else "stop",
        }
        return end | {"prompt_eval_count": plan.usage.input, "eval_count": plan.usage.output}

    def streamed(self, plan: Plan, spelling: Spelling) -> Spelled:
        parts: list[dict[str, Any]] = [
            {"content": "", "thinking": piece} for piece in plan.thoughts
        ]
        words = [{"content": piece} for piece in plan.words]
        calls = [{"content": "", "tool_calls": [self._made(call)]} for call in plan.calls]
        parts += merged([words, calls], spelling.rng)
        lines = [
            {"model": "m", "message": {"role": "assistant", **p}, "done": False} for p in parts
        ]
        lines.append(
            {"model": "m", "message": {"role": "assistant", "content": ""}, **self._end(plan)}
        )
        needed = 0
        for line in lines:
            spelling.parts.append(spelling.rng.choice([b"", b"", b"\n", b" \r\n"]))
            spelling.parts.append(spelling.json(line))
            needed = spelling.size()
            spelling.parts.append(spelling.end)
        return Spelled(b"".join(spelling.parts), needed, needed)

    def whole(self, plan: Plan) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": "".join(plan.words),
            "thinking": "".join(plan.thoughts),
        }
        message |= {"tool_calls": [self._made(call) for call in plan.calls]} if plan.calls else {}
        return {"model": "m", "message": message, **self._end(plan)}


class CohereEvents(Protocol):
    name = "cohere"
    named = ("c1", "")
    late = (b"data: [DONE]\n\n", b'event: message-end\ndata: {"type":"message-e')

    def client(self, transport: Transport) -> ModelClient:
        return Cohere("m", base_url="http://double", api_key="k", transport=transport)

    @staticmethod
    def _event(kind: str, index: int, message: dict[str, Any]) -> dict[str, Any]:
        return {"type": kind, "index": index, "delta": {"message": message}}

    @staticmethod
    def _end(plan: Plan) -> dict[str, Any]:
        reasons = {"end": "COMPLETE", "calls": "TOOL_CALL", "length": "MAX_TOKENS"}
        counted = {"input_tokens": plan.usage.input, "output_tokens": plan.usage.output}
        return {"finish_reason": reasons[plan.stop], "usage": {"tokens": counted}}

    @staticmethod
    def _head(call: PlannedCall, arguments: str) -> dict[str, Any]:
        function = {"name": call.name, "arguments": arguments}
        return {"id": call.id, "type": "function", "function": function}

    def _words(self, plan: Plan) -> list[dict[str, Any]]:
        """What stands before calls is their plan."""
        if plan.calls:
            plans = [{"message": {"tool_plan": piece}} for piece in plan.words]
            return [{"type": "tool-plan-delta", "delta": delta} for delta in plans]
        start = self._event("content-start", 1, {"content": {"type": "text", "text": ""}})
        said = [self._event("content-delta", 1, {"content": {"text": p}}) for p in plan.words]
        return [start, *said, {"type": "content-end", "index": 1}]

    def streamed(self, plan: Plan, spelling: Spelling) -> Spelled:
        events: list[dict[str, Any]] = [{"type": "message-start", "id": "c1"}]
        events += [
            self._event("content-delta", 0, {"content": {"thinking": piece}})
            for piece in plan.thoughts
        ]
        queues: list[list[dict[str, Any]]] = []
        for index, call in enumerate(plan.calls):
            queue = [self._event("tool-call-start", index, {"tool_calls": self._head(call, "")})]
            for piece in call.pieces:
                delta = {"tool_calls": {"function": {"arguments": piece}}}
                queue.append(self._event("tool-call-delta", index, delta))
            queues.append([*queue, {"type": "tool-call-end", "index": index}])
        # A call begins where its place is: heads in order, the rest in any.
        heads = [queue.pop(0) for queue in queues]
        events += merged([self._words(plan), heads], spelling.rng)
        events += merged(queues, spelling.rng)
        events.append({"type": "message-end", "id": "c1", "delta": self._end(plan)})
        needed = 0
        for one in events:
            cohere_double().check_fits(one, cohere_double().V2ChatStreamResponse)
            needed = spelling.event(spelling.json(one), one["type"])
        return Spelled(b"".join(spelling.parts), needed, needed)

    def whole(self, plan: Plan) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": []}
        if plan.thoughts:
            thought = {"type": "thinking", "thinking": "".join(plan.thoughts)}
            message["content"].append(thought)
        if plan.calls:
            message["tool_plan"] = "".join(plan.words)
            message["tool_calls"] = [self._head(call, call.arguments) for call in plan.calls]
        else:
            message["content"].append({"type": "text", "text": "".join(plan.words)})
        value = {"id": "c1", "message": message, **self._end(plan)}
        return cohere_double().check_fits(value, cohere_double().V2ChatResponse)


class GoogleResponses(Protocol):
    name = "google"
    named = ("", "m")
    objects = True
    late = (b"data: [DONE]\n\n", b'data: {"candidates":[{"finishReason":"ST')
    goes_on = True

    def client(self, transport: Transport) -> ModelClient:
        return Google("gemini-4", base_url="http://double", api_key="k", transport=transport)

    def expected(self, plan: Plan) -> tuple[Any, ...]:
        text, thoughts, calls, stop = super().expected(plan)
        return text, thoughts, [(id, name, compact(made)) for id, name, made in calls], stop

    def stop(self, plan: Plan) -> str:
        return "filter" if plan.refused else plan.stop

    @staticmethod
    def _made(call: PlannedCall, place: int) -> dict[str, Any]:
        """The first call is signed; whatever else is a part is, too, in places."""
        signed = {} if place else {"thoughtSignature": "c2lnbmVk"}
        made = {"id": call.id, "name": call.name, "args": json.loads(call.arguments)}
        return {"functionCall": made, **signed}

    @staticmethod
    def _response(parts: list[dict[str, Any]], usage: dict[str, int], **more: Any) -> Any:
        candidate = {"content": {"parts": parts, "role": "model"}, "index": 0, **more}
        value = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}
        return google_double().check_response(value)

    def _end(self, plan: Plan) -> tuple[str, dict[str, int]]:
        reason = "MAX_TOKENS" if plan.stop == "length" else "STOP"
        usage = {"promptTokenCount": plan.usage.input, "candidatesTokenCount": plan.usage.output}
        return "SAFETY" if plan.refused else reason, usage

    def streamed(self, plan: Plan, spelling: Spelling) -> Spelled:
        reason, usage = self._end(plan)
        before = {"promptTokenCount": plan.usage.input, "totalTokenCount": plan.usage.input}
        calls = [self._made(call, place) for place, call in enumerate(plan.calls)]
        parts = [{"text": piece, "thought": True} for piece in plan.thoughts]
        parts += merged([[{"text": piece} for piece in plan.words], calls], spelling.rng)
        events: list[Any] = []
        while parts:
            some = spelling.rng.randint(1, 3)
            events.append(self._response(parts[:some], before))
            del parts[:some]
        signed = spelling.rng.choice([{}, {"thoughtSignature": "bGFzdA=="}])
        events.append(self._response([{"text": "", **signed}], usage, finishReason=reason))
        needed = 0
        for one in events:
            needed = spelling.event(spelling.json(one))
        return Spelled(b"".join(spelling.parts), needed, needed)

    def whole(self, plan: Plan) -> dict[str, Any]:
        reason, usage = self._end(plan)
        parts: list[dict[str, Any]] = []
        if plan.thoughts:
            parts.append({"text": "".join(plan.thoughts), "thought": True})
        if plan.words:
            parts.append({"text": "".join(plan.words)})
        parts += [self._made(call, place) for place, call in enumerate(plan.calls)]
        return self._response(parts, usage, finishReason=reason)


class BedrockFrames(Protocol):
    name = "bedrock"
    content_type = "application/vnd.amazon.eventstream"
    late = (b"\x00\x00\x00\x10", b"data: [DONE]\n\n")

    def client(self, transport: Transport) -> ModelClient:
        return Bedrock(
            "m", region="eu-west-1", base_url="http://double", api_key="k", transport=transport
        )

    def stop(self, plan: Plan) -> str:
        return "filter" if plan.refused else plan.stop

    @staticmethod
    def _reason(plan: Plan) -> str:
        reasons = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens"}
        return "guardrail_intervened" if plan.refused else reasons[plan.stop]

    @staticmethod
    def _usage(plan: Plan) -> dict[str, int]:
        read, wrote = plan.usage.input, plan.usage.output
        return {"inputTokens": read, "outputTokens": wrote, "totalTokens": read + wrote}

    def streamed(self, plan: Plan, spelling: Spelling) -> Spelled:
        queues: list[list[tuple[str, dict[str, Any]]]] = []
        thoughts = [{"reasoningContent": {"text": piece}} for piece in plan.thoughts]
        signed = [{"reasoningContent": {"signature": "c2lnbmVk"}}] if thoughts else []
        for deltas in (thoughts + signed, [{"text": piece} for piece in plan.words]):
            at = {"contentBlockIndex": len(queues)}
            queues.append([("contentBlockDelta", {"delta": delta, **at}) for delta in deltas])
        events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
        for call in plan.calls:
            at = {"contentBlockIndex": len(queues)}
            head = {"toolUse": {"toolUseId": call.id, "name": call.name}}
            events.append(("contentBlockStart", {"start": head, **at}))
            deltas = [{"toolUse": {"input": piece}} for piece in call.pieces]
            queue = [("contentBlockDelta", {"delta": delta, **at}) for delta in deltas]
            queues.append([*queue, ("contentBlockStop", at)])
        # Blocks follow each other; the protocol's index lets them run side by side.
        events += merged(queues, spelling.rng)
        events.append(("messageStop", {"stopReason": self._reason(plan)}))
        counted = {"usage": self._usage(plan), "metrics": {"latencyMs": 7}}
        events.append(("metadata", counted))
        needed = 0
        for kind, payload in events:
            double = bedrock_double()
            fits = double.check_event(kind, payload)
            spelling.parts.append(double.make_frame(kind, spelling.json(fits)))
            needed = spelling.size() if kind == "messageStop" else needed
        return Spelled(b"".join(spelling.parts), needed, spelling.size())

    def whole(self, plan: Plan) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        if plan.thoughts:
            thought = {"text": "".join(plan.thoughts), "signature": "c2lnbmVk"}
            blocks.append({"reasoningContent": {"reasoningText": thought}})
        if plan.words:
            blocks.append({"text": "".join(plan.words)})
        for call in plan.calls:
            made = {"toolUseId": call.id, "name": call.name}
            blocks.append({"toolUse": {**made, "input": json.loads(call.arguments)}})
        read, wrote = plan.usage.input, plan.usage.output
        return bedrock_double().make_answer(blocks, self._reason(plan), read, wrote)


@cache
def bedrock_double() -> Any:
    """Amazon's own description of its API, which only its answers load."""
    return importlib.import_module("bedrock_double")


@cache
def google_double() -> Any:
    """The types of Google's SDK, which only its answers load."""
    return importlib.import_module("google_double")


@cache
def cohere_double() -> Any:
    """The types of Cohere's SDK, which only its answers load."""
    return importlib.import_module("cohere_double")


class AnyLibrary(Chat):
    """any-llm hands on what OpenAI's client read: here that client is under the model client, over the same
    bytes.
    """

    name = "any-llm"

    def __init__(self) -> None:
        self.arrival = Arrival(())

    def client(self, transport: Transport) -> ModelClient:
        return AnyLLM("openai/m", client=SdkClient(self))


class SdkClient:
    """What the client uses of any-llm, by OpenAI's own client over bytes as they were cut."""

    def __init__(self, protocol: AnyLibrary) -> None:
        import httpx2
        import openai

        class Pieces(httpx2.AsyncByteStream):
            async def __aiter__(self) -> AsyncIterator[bytes]:
                for piece in protocol.arrival.pieces:
                    yield piece
                if protocol.arrival.ending != "stay":
                    raise httpx2.RemoteProtocolError("peer closed connection")

        class Bytes(httpx2.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
                return httpx2.Response(
                    200,
                    headers={"content-type": protocol.content_type},
                    stream=Pieces(),
                    request=request,
                )

        self._client = openai.AsyncOpenAI(
            base_url="http://double/v1",
            api_key="k",
            max_retries=0,
            http_client=httpx2.AsyncClient(transport=Bytes()),
        )

    async def acompletion(self, **request: Any) -> Any:
        create: Any = self._client.chat.completions.create
        return await create(**request)


PROTOCOLS: list[Protocol] = [Chat(), Responses(), Messages(), OllamaLines()]
if importlib.util.find_spec("cohere") is not None:
    PROTOCOLS.append(CohereEvents())
if importlib.util.find_spec("google") and importlib.util.find_spec("google.genai"):
    PROTOCOLS.append(GoogleResponses())
if importlib.util.find_spec("botocore") is not None:
    PROTOCOLS.append(BedrockFrames())
BY_NAME = [pytest.param(protocol, id=protocol.name.replace(" ", "-")) for protocol in PROTOCOLS]


# ---- asking

SHOW = encode_json({"capabilities": ["completion", "tools"], "model_info": {}}).encode()


async def _ask(
    protocol: Protocol, arrival: Arrival, *, streamed: bool
) -> tuple[ModelAnswered, RecordingSink]:
    def answer(request: bytes) -> Arrival:
        if b" /api/show " in request[:40]:
            described = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(SHOW)
            return Arrival([described + SHOW])
        return arrival

    transport, listener = Transport(), RecordingSink()
    with serve_in_pieces(answer):
        try:
            exchange = protocol.client(transport).open("", [ADD], ModelOptions())
            answered = await exchange.ask(HELLO, sink=listener if streamed else None)
        finally:
            await transport.close()
    return answered, listener


def ask(
    protocol: Protocol, arrival: Arrival, *, streamed: bool = True
) -> tuple[ModelAnswered, RecordingSink]:
    """The answer that the client makes of these bytes."""

    async def story() -> tuple[ModelAnswered, RecordingSink]:
        async with asyncio.timeout(20):
            return await _ask(protocol, arrival, streamed=streamed)

    if isinstance(protocol, AnyLibrary):
        protocol.arrival = arrival
    return loop().run(story())


@cache
def loop() -> asyncio.Runner:
    """One event loop for all answers: making one costs more than an answer."""
    return asyncio.Runner()


@pytest.fixture(autouse=True, scope="module")
def end_of_loop() -> Generator[None]:
    yield
    loop().close()
    loop.cache_clear()


def says(answered: ModelAnswered) -> tuple[Any, ...]:
    calls = [(call.id, call.tool, call.arguments) for call in answered.calls]
    return answered.text, answered.reasoning, calls, answered.stop


ENDINGS = st.sampled_from(["end", "stay", "close", "reset", "malformed"])


def on_the_line(
    protocol: Protocol, body: bytes, rng: random.Random, ending: str, framing: str
) -> Arrival:
    """The body under a head, in HTTP chunks of any size, in pieces of any size."""
    raw = response_head(protocol.content_type, "close" if framing == "close" else "chunked")
    if framing == "close":
        raw += body
    else:
        places = [rng.randrange(len(body) + 1) for _ in range(rng.randrange(6))]
        raw += encode_chunks(cut_at(body, places))
        raw += {"end": b"0\r\n\r\n", "malformed": b"not a chunk\r\n"}.get(ending, b"")
    ends: Ending = "reset" if ending == "reset" else "close" if ending == "close" else "stay"
    if framing == "close" and ends == "stay":
        ends = "close"
    places = [rng.randrange(len(raw) + 1) for _ in range(rng.randrange(12))]
    if rng.random() < 0.2:
        places = list(range(len(raw)))
    return Arrival(cut_at(raw, places), ends)


def spelled(protocol: Protocol, plan: Plan, rng: random.Random) -> Spelled:
    return protocol.streamed(plan, Spelling(rng, rng.choice([b"\n", b"\r\n"]), rng.random() < 0.5))


def after(protocol: Protocol, body: bytes, rng: random.Random, garbage: bytes) -> bytes:
    """What comes behind an answer: nothing, known habits, a part of the answer again, or anything
    at all.
    """
    kinds = [
        b"",
        b": ping\n\n",
        b"\n\n\r\n",
        b"data: \n\n",
        *protocol.late,
        (
            b"event: error\ndata: "
            b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'
        ),
        b'{"error":"late"}\n',
        garbage if protocol.goes_on else body[: rng.randrange(len(body) + 1)],
        garbage,
    ]
    return b"".join(rng.choice(kinds) for _ in range(rng.randrange(1, 4)))


@pytest.fixture(autouse=True, scope="module")
def short_rest() -> Generator[None]:
    """Servers that say nothing more and stay connected are not waited for as long as elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "REST_SECONDS", 0.2)
        yield


# ---- the properties


@pytest.mark.parametrize("protocol", BY_NAME)
@MANY
@given(data=st.data())
def test_an_answer_is_the_same_however_it_is_cut_and_whatever_follows(
    protocol: Protocol, data: st.DataObject
) -> None:
    plan = data.draw(plans(objects=protocol.objects))
    rng = data.draw(st.randoms())
    ending, framing = data.draw(ENDINGS), data.draw(st.sampled_from(["chunked", "close"]))
    one = spelled(protocol, plan, rng)
    tail = after(protocol, one.body, rng, data.draw(st.binary(max_size=20)))
    plain = Arrival(
        [response_head(protocol.content_type) + encode_chunks([one.body]) + b"0\r\n\r\n"]
    )
    known, _ = ask(protocol, plain)
    answered, listener = ask(protocol, on_the_line(protocol, one.body + tail, rng, ending, framing))
    assert says(known) == protocol.expected(plan)
    assert (known.response_id, known.response_model) == protocol.named
    assert (known.usage.input, known.usage.output) == (plan.usage.input, plan.usage.output)
    assert answered == known
    assert "".join(listener.pieces) == answered.text
    assert "".join(listener.thoughts) == answered.reasoning
    streamed = [listener.pieces, listener.thoughts, *listener.arguments.values()]
    for pieces in streamed:
        "|".join(pieces).encode()  # Every piece is of whole characters.


@pytest.mark.parametrize("protocol", BY_NAME)
@MANY
@given(data=st.data())
def test_an_answer_without_its_end_is_interrupted(protocol: Protocol, data: st.DataObject) -> None:
    plan = data.draw(plans(objects=protocol.objects))
    rng = data.draw(st.randoms())
    one = spelled(protocol, plan, rng)
    ending = data.draw(st.sampled_from(["end", "close", "reset"]))
    framing = data.draw(st.sampled_from(["chunked", "close"]))
    short = one.body[: data.draw(st.integers(0, one.needed - 1))]
    with pytest.raises(ProviderError) as raised:
        ask(protocol, on_the_line(protocol, short, rng, ending, framing))
    assert (raised.value.code, raised.value.retryable) == ("interrupted", False)


WRONG: list[Any] = [7, 1.5, True, "zzz", ["zzz"], {"x": 7}]


ARGUMENTS = ("arguments", "input", "args")
"""Members with arguments, which may be any object."""


def change_field(value: Any, rng: random.Random, how: str) -> Any:
    """A copy in which one member, at any depth, is `missing`, `null`, or `wrong`: it has a value of
    another type, which is no way to leave it out.
    """
    value = json.loads(json.dumps(value))
    places: list[tuple[Any, Any]] = []
    inner: list[Any] = [value]
    while inner:
        holder = inner.pop()
        names: list[Any] = [*holder] if isinstance(holder, dict) else [*range(len(holder))]
        places += [(holder, name) for name in names if holder[name] is not None]
        inner += [
            holder[name]
            for name in names
            if name not in ARGUMENTS and isinstance(holder[name], dict | list)
        ]
    if places:
        holder, name = rng.choice(places)
        if how == "missing":
            del holder[name]
            return value
        if how == "null":
            holder[name] = None
            return value
        kinds: list[Any] = [type(holder[name]), *([dict] if name in ARGUMENTS else [])]
        holder[name] = rng.choice([one for one in WRONG if type(one) not in kinds])
    return value


def loads_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


@pytest.mark.parametrize("protocol", BY_NAME)
@MANY
@given(
    data=st.data(),
    seed=st.integers(0, 2**32),
    streamed=st.booleans(),
    how=st.sampled_from(["wrong", "wrong", "null", "missing"]),
)
def test_a_field_of_a_wrong_type_is_an_error_or_changes_nothing(
    protocol: Protocol, data: st.DataObject, seed: int, streamed: bool, how: str
) -> None:
    """Nothing is left out in silence: no word of the answer, and no piece of a call's arguments.

    What is missing or null may change the answer; nothing but a `ProviderError` may come of it.
    """
    plan = data.draw(plans(objects=not streamed or protocol.objects))
    if streamed:
        counted = WrongSpelling(random.Random(seed))
        protocol.streamed(plan, counted)
        wrong = WrongSpelling(random.Random(seed), place=1 + seed % -counted.place, how=how)
        body = protocol.streamed(plan, wrong).body
    else:
        body = Spelling(random.Random(seed)).json(
            change_field(protocol.whole(plan), random.Random(seed), how)
        )
    kind = protocol.content_type if streamed else "application/json"
    arrival = Arrival([response_head(kind) + encode_chunks([body]) + b"0\r\n\r\n"])
    try:
        answered, _ = ask(protocol, arrival, streamed=streamed)
    except ProviderError as error:
        error.detail.encode()
        return
    if how != "wrong":
        return
    text, _, calls, _ = protocol.expected(plan)
    made = [(name, loads_or_none(arguments)) for _, name, arguments in calls]
    found = [(call.tool, loads_or_none(call.arguments)) for call in answered.calls]
    assert (answered.text, len(found)) == (text, len(made))
    # Arguments that are no object are refused, and the model is told.
    assert all(one in made for one in found if isinstance(one[1], dict))


PAGE = b"\n<!doctype html><title>Sign in to the proxy</title>"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("protocol", BY_NAME)
def test_a_page_in_place_of_an_answer_is_shown(protocol: Protocol, streamed: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(PAGE)
    with pytest.raises(ProviderError, match="Sign in to the proxy") as raised:
        ask(protocol, Arrival([head + PAGE]), streamed=streamed)
    assert raised.value.code == "not_understood"


@pytest.mark.parametrize("ending", ["end", "close", "reset", "malformed"])
@MANY
@given(data=st.data())
def test_a_chat_answer_is_whole_once_it_says_why_it_stopped(
    ending: str, data: st.DataObject
) -> None:
    """Servers leave the terminator out, and connections break before it: only the usage may be
    missing.
    """
    protocol, plan, rng = Chat(), data.draw(plans()), data.draw(st.randoms())
    one = spelled(protocol, plan, rng)
    arrived = data.draw(st.integers(one.needed, len(one.body)))
    answered, _ = ask(protocol, on_the_line(protocol, one.body[:arrived], rng, ending, "chunked"))
    assert says(answered) == protocol.expected(plan)
    known = arrived >= one.usage_needed
    assert answered.usage == (plan.usage if known else Usage())


@pytest.mark.parametrize("protocol", BY_NAME)
@MANY
@given(data=st.data())
def test_an_answer_in_one_piece_is_all_of_it_or_an_error(
    protocol: Protocol, data: st.DataObject
) -> None:
    plan = data.draw(plans(objects=True))
    rng = data.draw(st.randoms())
    spelling = Spelling(rng, ascii=data.draw(st.booleans()))
    body = spelling.json(protocol.whole(plan))
    sized = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )
    unsized = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    places = [rng.randrange(len(sized + body)) for _ in range(rng.randrange(8))]
    answered, _ = ask(
        protocol, Arrival(cut_at(sized + body + b"\r\ntrailing", places)), streamed=False
    )
    expected = protocol.expected(plan)
    if protocol.name in ("anthropic", "bedrock"):
        spelled_calls = [(id, name, compact(arguments)) for id, name, arguments in expected[2]]
        expected = (*expected[:2], spelled_calls, expected[3])
    assert says(answered) == expected
    short = body[: rng.randrange(len(body))]
    broken: list[tuple[bytes, Ending]] = [
        (sized + short, "close"),
        (sized + short, "reset"),
        (unsized + short, "close"),
    ]
    for pieces, ending in broken:
        with pytest.raises(ProviderError) as raised:
            ask(protocol, Arrival(cut_at(pieces, places), ending), streamed=False)
        framed = pieces.startswith(sized)
        assert raised.value.code == "interrupted" if framed else raised.value.code in _UNREADABLE


_UNREADABLE = ("interrupted", "not_understood")


@MANY
@given(data=st.data())
def test_what_a_library_reads_is_whole_or_interrupted(data: st.DataObject) -> None:
    protocol, plan, rng = AnyLibrary(), data.draw(plans()), data.draw(st.randoms())
    one = spelled_plainly(protocol, plan, rng)
    ending: Ending = data.draw(st.sampled_from(["stay", "reset"]))
    places = [rng.randrange(len(one.body) + 1) for _ in range(rng.randrange(12))]
    answered, _ = ask(protocol, Arrival(cut_at(one.body, places), ending))
    assert says(answered) == protocol.expected(plan)
    short = one.body[: data.draw(st.integers(0, one.needed - 1))]
    with pytest.raises(ProviderError) as raised:
        ask(protocol, Arrival(cut_at(short, places), ending))
    assert raised.value.code in ("interrupted", "not_understood", "provider")
    assert not raised.value.retryable


def spelled_plainly(protocol: Protocol, plan: Plan, rng: random.Random) -> Spelled:
    """Without empty events, which OpenAI's client does not read."""
    spelling = Spelling(rng, rng.choice([b"\n", b"\r\n"]), rng.random() < 0.5)
    spelling.noise = lambda: None
    return protocol.streamed(plan, spelling)


@pytest.mark.parametrize("protocol", BY_NAME)
def test_one_answer_is_cut_at_any_byte_and_before_every_byte_of_a_tail(protocol: Protocol) -> None:
    plan = Plan(
        ("Hm ☃",),
        (f"Drei {HIGH}", LOW),
        (PlannedCall("c1", "f", ('{"ü":', "1}")),),
        "calls",
        Usage(9, 7),
    )
    rng = random.Random(7)
    one = spelled(protocol, plan, rng)
    start = response_head(protocol.content_type)
    raw = start + encode_chunks([one.body])
    tails = [tail for late in protocol.late for tail in (late, late[:-3])]
    answers = {says(ask(protocol, Arrival([raw, b"0\r\n\r\n"]))[0])[0]}
    for at in range(CASES % EVERY, len(raw), EVERY):
        answers.add(says(ask(protocol, Arrival([raw[:at], raw[at:] + b"0\r\n\r\n"]))[0])[0])
    for tail in tails:
        for at in range(CASES % EVERY, len(tail) + 1, EVERY):
            behind = encode_chunks([tail[:at]]) + b"0\r\n\r\n"
            answers.add(says(ask(protocol, Arrival([raw + behind]))[0])[0])
    assert answers == {"Drei 😀"}
