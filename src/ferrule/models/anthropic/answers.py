"""Messages answers, whole or streamed, into blocks as they were sent and an answer made of them.

Source: Anthropic's Messages API (blocks, `content_block_*` and `message_*` events) and the types of
its SDK, which the golden files are made from. A block that no delta changed is kept as the text it
arrived as; one that was streamed is put together in the order of its own fields, the arguments of a
call as the text that the model wrote. Kinds of blocks, deltas and events that are not known here
are kept or passed over: the API adds some every month.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from jiter import from_json

from ferrule.core.calls import Call, compact
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, ProviderToolCall, Usage
from ferrule.models.answer_folding import Answer, counted, dicts, mend
from ferrule.models.exact_json import elements, members, seal
from ferrule.models.hosted_tools import provider_call
from ferrule.models.provider_errors import error_inside
from ferrule.models.request_encoding import arguments_object

STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filter",
    "pause_turn": "pause",
    "compaction": "pause",
}
"""`stop_reason` as `ModelAnswered.stop`. `pause` is not one: the answer goes on when it is sent
back.
"""

_STREAMED = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
    "compaction_delta": "content",
}
"""Kinds of deltas and the field that carries their piece; it has the same name in the block, but
for arguments.
"""

_HOSTED_CALLS = ("server_tool_use", "mcp_tool_use")


@dataclass(slots=True)
class Block:
    """One block. `text` is its JSON; `pieces` are what deltas added, by field, `citations` what
    they listed.
    """

    text: str
    fields: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    citations: list[Any] = field(default_factory=list[Any])

    @property
    def type(self) -> str:
        return str(self.fields.get("type", ""))

    @property
    def arguments(self) -> str:
        """The input of a call as JSON text: as streamed, else as it stood in the block."""
        if streamed := "".join(self.pieces.get("partial_json", ())):
            return mend(streamed)
        given: Any = self.fields.get("input")
        return given if isinstance(given, str) else compact({} if given is None else given)

    def value(self, name: str) -> str:
        """A text field with all that was added to it."""
        start: Any = self.fields.get(name)
        return mend((start if isinstance(start, str) else "") + "".join(self.pieces.get(name, ())))

    def json(self) -> str:
        """The block as it is to be sent back. What arrived whole keeps its text; a call's broken
        arguments are wrapped as everywhere (`outbound.arguments_object`), since a block must be
        valid JSON.
        """
        if not self.pieces and not self.citations:
            return self.text
        parts = {name: compact(value) for name, value in self.fields.items()}
        for name in self.pieces:
            if name == "partial_json":
                parts["input"] = arguments_object(self.arguments)
            else:
                parts[name] = compact(self.value(name))
        if self.citations:
            given: Any = self.fields.get("citations")
            before: list[Any] = cast(list[Any], given) if isinstance(given, list) else []
            parts["citations"] = compact([*before, *self.citations])
        return "{" + ",".join(f"{compact(name)}:{value}" for name, value in parts.items()) + "}"


@dataclass(slots=True)
class Message:
    """An answer being folded, over several messages if the provider pauses in between."""

    answer: Answer
    blocks: list[Block] = field(default_factory=list[Block])
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    spent: Usage = Usage()
    stop: str = ""
    container: str = ""

    def content(self) -> str:
        """The blocks as a JSON array."""
        return "[" + ",".join(block.json() for block in self.blocks) + "]"

    def closed(self) -> None:
        """A message has ended: its tokens are added to those before it."""
        self.spent += _usage(self.usage)
        self.usage = {}

    def answered(self, names: Mapping[str, str]) -> ModelAnswered:
        """The whole answer, without `raw`."""
        stop = STOPS.get(self.stop, "end")
        calls = tuple(
            _call(b, names, cut=stop == "length") for b in self.blocks if b.type == "tool_use"
        )
        if stop in ("end", "calls", "pause"):
            stop = "calls" if calls else "length" if stop == "pause" else "end"
        text, thoughts = "".join(self.answer.text), "".join(self.answer.thoughts)
        return ModelAnswered(
            text,
            calls,
            thoughts,
            self.spent,
            stop,
            provider_calls=tuple(_provider_calls(self.blocks, names)),
        )

    def sealed(self, wire: str, answered: ModelAnswered, spelled: str) -> ModelAnswered:
        """The answer with its blocks in `raw`, unless they are `spelled` from the message itself in
        the same bytes.

        Nothing is kept of a refused answer (the API wants it left out), nor where there is nothing
        but thinking.
        """
        shown = any(block.type not in ("thinking", "redacted_thinking") for block in self.blocks)
        content = self.content()
        if answered.stop == "filter" or not shown or (content == spelled and not self.container):
            return answered
        more = {"container": compact(self.container)} if self.container else {}
        return replace(
            answered, raw=seal(wire, [call.id for call in answered.calls], content, **more)
        )


class StreamFold:
    """Folds the events of one stream into a message. `done` once `message_stop` has come."""

    def __init__(self, message: Message, who: str, *, tools: bool) -> None:
        self.done = False
        self._message = message
        self._answer = message.answer
        self._who = who
        self._tools = tools
        self._before = len(message.blocks)
        self._open: dict[int, Block] = {}

    @property
    def whole(self) -> bool:
        """Whether nothing of the answer is missing."""
        return self.done

    def add(self, events: list[bytes]) -> None:
        """Take events in. Raises ProviderError for an error event or for what is no JSON."""
        texts, on_text, blocks = self._answer.text, self._answer.on_text, self._open
        for event in events:
            try:
                value: Any = from_json(event)
                delta: Any = value["delta"]
                piece: Any = delta["text"] if delta["type"] == "text_delta" else None
                block = blocks[value["index"]] if piece else None
            except (ValueError, LookupError, TypeError):
                self._other(event)
                if self.done:
                    return
                continue
            if block is not None and type(piece) is str:
                block.pieces.setdefault("text", []).append(piece)
                texts.append(piece)
                if on_text:
                    on_text(piece)
            else:
                self._event(cast(dict[str, Any], value), event)
                if self.done:
                    return

    def finished(self) -> None:
        """The stream has ended. Raises `interrupted` if the server never said so: a call that is
        missing its end must not look like a whole one.
        """
        if not self.done:
            detail = f"{self._who}: the stream ended in the middle of the answer"
            raise ProviderError(detail, code="interrupted", retryable=False)
        self._message.closed()

    def _other(self, event: bytes) -> None:
        """Every event that is no piece of text; also one with half an emoji, which jiter
        refuses.
        """
        if not event.strip():
            return
        try:
            value: Any = json.loads(event)
        except (ValueError, RecursionError) as problem:
            shown = event[:200].decode("utf-8", "replace")
            detail = f"{self._who} sent an event that is not JSON: {shown}"
            raise ProviderError(detail, code="not_understood", retryable=False) from problem
        if isinstance(value, dict):
            self._event(cast(dict[str, Any], value), event)

    def _event(self, value: dict[str, Any], event: bytes) -> None:
        match value.get("type"):
            case "content_block_delta":
                self._delta(value)
            case "content_block_start":
                self._start(value, event)
            case "message_start":
                self._said_of_message(value.get("message"))
            case "message_delta":
                self._said_of_message(value.get("delta"))
                self._said_of_message(value)
            case "message_stop":
                self.done = True
            case "error":
                raise self._error(value.get("error"))
            case _:
                if error := value.get("error"):
                    raise self._error(error)

    def _error(self, said: object) -> ProviderError:
        """An overloaded server says so in a stream that has begun: before the first block it may be
        asked again.
        """
        error = error_inside(self._who, said, tools=self._tools)
        nothing_seen = len(self._message.blocks) == self._before
        error.retryable = nothing_seen and error.code in ("overloaded", "rate_limited")
        return error

    def _start(self, value: dict[str, Any], event: bytes) -> None:
        fields = value.get("content_block")
        index = value.get("index")
        if not isinstance(fields, dict) or not isinstance(index, int):
            return
        text = members(event.decode("utf-8", "replace"))["content_block"]
        block = Block(text, cast(dict[str, Any], fields))
        self._open[index] = block
        self._message.blocks.append(block)
        _heard(self._answer, block)

    def _delta(self, value: dict[str, Any]) -> None:
        delta: Any = value.get("delta")
        block = self._open.get(cast(int, value.get("index")))
        if block is None or not isinstance(delta, dict):
            return
        fields = cast(dict[str, Any], delta)
        kind = fields.get("type")
        name = _STREAMED.get(kind) if isinstance(kind, str) else None
        piece = fields.get(name) if name else None
        if kind == "citations_delta":
            block.citations.append(fields.get("citation"))
        elif name and isinstance(piece, str):
            block.pieces.setdefault(name, []).append(piece)
            if name == "text" and piece:
                self._answer.say(mend(piece))
            elif name == "thinking" and piece:
                self._answer.think(mend(piece))

    def _said_of_message(self, said: object) -> None:
        if isinstance(said, dict):
            _message_fields(self._message, cast(dict[str, Any], said))


def fold_whole(message: Message, body: bytes, who: str, *, tools: bool) -> None:
    """An answer that came in one piece, added to `message`. Raises ProviderError."""
    text = body.decode("utf-8", "replace")
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    fields: dict[str, Any] = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    if error := fields.get("error"):
        raise error_inside(who, error, tools=tools)
    content = fields.get("content")
    if not isinstance(content, list):
        detail = f"{who} sent no answer that can be understood: {text[:200]}"
        raise ProviderError(detail, code="not_understood", retryable=False)
    for spelled, block in zip(
        elements(members(text)["content"]), cast(list[Any], content), strict=True
    ):
        if isinstance(block, dict):
            message.blocks.append(Block(spelled, cast(dict[str, Any], block)))
            _heard(message.answer, message.blocks[-1])
    _message_fields(message, fields)
    message.closed()


def _call(block: Block, names: Mapping[str, str], *, cut: bool) -> Call:
    """A call; one that was cut before its first argument has none."""
    id, name = str(block.fields.get("id") or ""), str(block.fields.get("name") or "")
    streamed = block.pieces.get("partial_json")
    missing = cut and streamed is not None and not any(streamed)
    return Call(id, names.get(name, name), "" if missing else block.arguments)


def _heard(answer: Answer, block: Block) -> None:
    """Words that a block brings with it."""
    if block.type == "text" and (piece := block.value("text")):
        answer.say(piece)
    elif block.type == "thinking" and (thought := block.value("thinking")):
        answer.think(thought)


def _message_fields(message: Message, said: dict[str, Any]) -> None:
    """What a message, or a delta of one, says besides its blocks."""
    if isinstance(stop := said.get("stop_reason"), str) and stop:
        message.stop = stop
    if isinstance(usage := said.get("usage"), dict):
        given = cast(dict[str, Any], usage)
        message.usage |= {name: value for name, value in given.items() if value is not None}
    if isinstance(container := said.get("container"), dict):
        message.container = str(cast(dict[str, Any], container).get("id") or "")


def _usage(said: Mapping[str, Any]) -> Usage:
    """`usage` of the Messages API: its input tokens leave out those of the cache, ours do not."""
    cached = counted(said.get("cache_read_input_tokens"))
    written = counted(said.get("cache_creation_input_tokens"))
    details: Any = said.get("output_tokens_details")
    thought: Any = (
        cast(dict[str, Any], details).get("thinking_tokens") if isinstance(details, dict) else 0
    )
    return Usage(
        counted(said.get("input_tokens")) + cached + written,
        counted(said.get("output_tokens")),
        cached,
        written,
        counted(thought),
    )


def _provider_calls(blocks: list[Block], names: Mapping[str, str]) -> list[ProviderToolCall]:
    """What the provider carried out itself, each with what it says came of it. `names` are wire
    names to full names.
    """
    results = {
        str(block.fields.get("tool_use_id")): block.fields
        for block in blocks
        if block.type.endswith("_tool_result")
    }
    made: list[ProviderToolCall] = []
    for block in blocks:
        if block.type not in _HOSTED_CALLS:
            continue
        server = block.fields.get("server_name")
        name = ".".join(str(part) for part in (server, block.fields.get("name")) if part)
        given = {**block.fields, "input": _as_value(block.arguments)}
        result = results.get(str(block.fields.get("id")))
        if result is not None:
            given["result"] = result.get("content")
        one = provider_call(given, name, _status(result))
        if one.tool_kind == "tool_search":
            found = () if result is None else _references(result.get("content"), names)
            one = replace(one, arguments=block.arguments, references=found)
        made.append(one)
    return made


def _references(content: object, names: Mapping[str, str]) -> tuple[str, ...]:
    """The tools that a search found."""
    said: Any = (
        cast(dict[str, Any], content).get("tool_references") if isinstance(content, dict) else None
    )
    found = [str(one.get("tool_name") or "") for one in dicts(said)]
    return tuple(names.get(name, name) for name in found if name)


def _status(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "in_progress"
    content: Any = result.get("content")
    said = cast(dict[str, Any], content).get("type", "") if isinstance(content, dict) else ""
    return "failed" if result.get("is_error") or str(said).endswith("_error") else "completed"


def _as_value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
