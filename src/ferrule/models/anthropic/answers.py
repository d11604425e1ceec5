"""Parsing Messages answers, complete or streamed, into blocks and an answer.

Source: Anthropic's Messages API (blocks, `content_block_*` and `message_*` events) and the types of
its SDK, which the golden files are made from. A block that no delta changed is kept as the text it
arrived as. One that was streamed is put together in the order of its own fields, the arguments of a
call as the text that the model wrote. Unknown blocks, deltas and events are kept or ignored: the
API adds some every month.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from jiter import from_json

from ferrule.core.calls import ToolCall, encode_json, parse_json
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, ProviderToolCall, Usage
from ferrule.core.vocabulary import AnswerStop
from ferrule.models.answer_building import AnswerBuilder, join_surrogates, objects_in, token_count
from ferrule.models.answer_fields import (
    build_field_error,
    read_object,
    read_objects,
    read_place,
    read_text,
)
from ferrule.models.hosted_tools import record_provider_call
from ferrule.models.provider_errors import build_unreadable_error, error_from_object, find_error
from ferrule.models.request_encoding import arguments_as_object
from ferrule.models.verbatim_json import seal, split_elements, split_members

STOP_REASONS: dict[str, AnswerStop | Literal["pause"]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filter",
    "pause_turn": "pause",
    "compaction": "pause",
}
"""`stop_reason` as `ModelAnswered.stop`.

`pause` is not a stop: the answer continues when it is sent back.
"""

_PIECE_FIELDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
    "compaction_delta": "content",
}
"""Kinds of deltas, and the field that carries their piece.

The block has a field of the same name, except for arguments.
"""

_HOSTED_CALL_TYPES = ("server_tool_use", "mcp_tool_use")


@dataclass(slots=True)
class Block:
    """One block.

    `text` is its JSON, `fields` its members, `pieces` what deltas added, by field, and `citations`
    what they listed.
    """

    text: str
    fields: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    citations: list[Any] = field(default_factory=list[Any])

    @property
    def type(self) -> str:
        return read_text(self.fields, "type")

    @property
    def arguments(self) -> str:
        """The input of a call as JSON text: as streamed, else as it was in the block."""
        streamed = "".join(self.pieces.get("partial_json", ()))
        if streamed:
            return join_surrogates(streamed)
        given: Any = self.fields.get("input")
        if given is None:
            return "{}"
        return given if isinstance(given, str) else encode_json(given)

    def value(self, name: str) -> str:
        """Return a text field with all that was added to it."""
        start: Any = self.fields.get(name)
        added = "".join(self.pieces.get(name, ()))
        return join_surrogates(start + added if isinstance(start, str) else added)

    def json(self) -> str:
        """Return the block as it is sent back.

        A block that arrived complete keeps its text. A call's broken arguments are wrapped as
        everywhere (`request_encoding.arguments_as_object`), since a block must be valid JSON.
        """
        if not self.pieces and not self.citations:
            return self.text
        parts = {name: encode_json(value) for name, value in self.fields.items()}
        for name in self.pieces:
            if name == "partial_json":
                parts["input"] = arguments_as_object(self.arguments)
            else:
                parts[name] = encode_json(self.value(name))
        if self.citations:
            given: Any = self.fields.get("citations")
            before: list[Any] = cast(list[Any], given) if isinstance(given, list) else []
            parts["citations"] = encode_json([*before, *self.citations])
        return "{" + ",".join(f"{encode_json(name)}:{value}" for name, value in parts.items()) + "}"


@dataclass(slots=True)
class MessageBuilder:
    """An answer being built, over several messages if the provider pauses in between."""

    answer: AnswerBuilder
    blocks: list[Block] = field(default_factory=list[Block])
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    spent: Usage = Usage()
    stop: str = ""
    container: str = ""

    def content(self) -> str:
        """Return the blocks as a JSON array."""
        return "[" + ",".join(block.json() for block in self.blocks) + "]"

    def end(self) -> None:
        """End a message: add its tokens to those before it."""
        self.spent += _parse_usage(self.usage)
        self.usage = {}

    def build(self, names: Mapping[str, str]) -> ModelAnswered:
        """Return the complete answer, without `raw`."""
        stop = STOP_REASONS.get(self.stop, "end")
        tool_uses = [block for block in self.blocks if block.type == "tool_use"]
        calls = tuple(_to_call(block, names, cut=stop == "length") for block in tool_uses)
        if calls and stop in ("end", "pause"):
            stop = "calls"
        elif stop == "pause":
            stop = "length"
        elif stop == "calls" and not calls:
            stop = "end"
        made = tuple(_find_provider_calls(self.blocks, names))
        return self.answer.end(calls, self.spent, stop, made)

    def with_raw(self, model: str, answer: ModelAnswered, plain_content: str) -> ModelAnswered:
        """Return the answer with its blocks in `raw`.

        `raw` stays empty if the blocks equal `plain_content`, which is what the message itself
        would be encoded as. Nothing is kept of a refused answer either (the API wants it left out),
        nor of one that is only thinking.
        """
        shown = any(block.type not in ("thinking", "redacted_thinking") for block in self.blocks)
        content = self.content()
        if (
            answer.stop == "filter"
            or not shown
            or (content == plain_content and not self.container)
        ):
            return answer
        more = {"container": encode_json(self.container)} if self.container else {}
        return replace(answer, raw=seal(model, [call.id for call in answer.calls], content, **more))


class MessageStreamParser:
    """Parses the events of one stream into a message. `done` once `message_stop` has come."""

    def __init__(self, message: MessageBuilder, who: str, *, tools: bool) -> None:
        self.done = False
        self._message = message
        self._answer = message.answer
        self._who = who
        self._tools = tools
        self._before = len(message.blocks)
        self._open: dict[int, Block] = {}

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the answer is missing."""
        return self.done

    def add(self, events: list[bytes]) -> None:
        """Add events.

        Raises:
            ProviderError: An event is an error, or not JSON.
        """
        texts = self._answer.text
        on_text = self._answer.on_text
        blocks = self._open
        for event in events:
            try:
                value: Any = from_json(event)
                delta: Any = value["delta"]
                piece: Any = delta["text"] if delta["type"] == "text_delta" else None
                block = blocks[value["index"]] if piece else None
            except (ValueError, LookupError, TypeError):
                self._add_unusual(event)
                on_text = self._answer.on_text
                if self.done:
                    return
                continue
            if block is not None and type(piece) is str:
                block.pieces.setdefault("text", []).append(piece)
                texts.append(piece)
                if on_text:
                    on_text(piece)
            else:
                self._add_event(cast(dict[str, Any], value), event)
                if self.done:
                    return

    def finish(self) -> None:
        """End the stream.

        Raises:
            ProviderError: `interrupted`, the server never said that the answer was over. A call
            whose
                end is missing must not look complete.
        """
        if not self.done:
            detail = f"{self._who}: the stream ended in the middle of the answer"
            raise ProviderError(detail, code="interrupted", retryable=False)
        self._message.end()

    def _add_unusual(self, event: bytes) -> None:
        """Add an event that is not a piece of text, or has half an emoji, which jiter refuses."""
        if not event.strip():
            return
        try:
            value: Any = self._answer.read_json(event)
        except ValueError as problem:
            raise build_unreadable_error(self._who, event, "an event that is not JSON") from problem
        if isinstance(value, dict):
            self._add_event(cast(dict[str, Any], value), event)

    def _add_event(self, value: dict[str, Any], event: bytes) -> None:
        match read_text(value, "type"):
            case "content_block_delta":
                self._add_delta(value)
            case "content_block_start":
                self._start_block(value, event)
            case "message_start":
                self._read_message(value.get("message"))
            case "message_delta":
                self._read_message(value.get("delta"))
                self._read_message(value)
            case "message_stop":
                self.done = True
            case "error":
                raise self._build_error(value.get("error"))
            case _:
                if value.get("error"):
                    raise self._build_error(value["error"])

    def _build_error(self, error_object: object) -> ProviderError:
        """Build an error. Before the first block a busy server may be asked again."""
        begun = len(self._message.blocks) != self._before
        return error_from_object(self._who, error_object, tools=self._tools, begun=begun)

    def _start_block(self, value: dict[str, Any], event: bytes) -> None:
        fields = read_object(value, "content_block")
        if not fields:
            raise build_field_error("content_block", "a block", value.get("content_block"))
        index = _read_index(value)
        text = split_members(event.decode())["content_block"]
        block = Block(text, fields)
        self._open[index] = block
        self._message.blocks.append(block)
        _emit_initial_text(self._answer, block)

    def _add_delta(self, value: dict[str, Any]) -> None:
        fields = read_object(value, "delta")
        index = _read_index(value)
        block = self._open.get(index)
        if block is None:
            raise build_field_error("index", "the place of a block that was started", index)
        kind = read_text(fields, "type")
        name = _PIECE_FIELDS.get(kind)
        if kind == "citations_delta":
            block.citations.append(fields.get("citation"))
        elif name is None:
            if block.type == "tool_use":
                raise build_field_error("type", "a kind of delta that a call is made of", kind)
        else:
            piece = read_text(fields, name)
            block.pieces.setdefault(name, []).append(piece)
            if name == "text" and piece:
                self._answer.add_text(piece)
            elif name == "thinking" and piece:
                self._answer.add_reasoning(piece)
            on_arguments = self._answer.calls.on_arguments
            if name == "partial_json" and on_arguments is not None and block.type == "tool_use":
                on_arguments(index, str(block.fields.get("name", "")), piece)

    def _read_message(self, value: object) -> None:
        if isinstance(value, dict):
            _read_message_fields(self._message, cast(dict[str, Any], value))


def parse_answer(message: MessageBuilder, body: bytes, who: str, *, tools: bool) -> None:
    """Add an answer that came in one piece to `message`.

    Raises:
        ProviderError: The answer is an error, or cannot be understood.
    """
    try:
        text = body.decode()
        value: Any = message.answer.read_json(text)
    except ValueError:
        text, value = "", None
    fields: dict[str, Any] = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    error = find_error(fields, expected="content")
    if error:
        raise error_from_object(who, error, tools=tools, begun=False)
    content = fields.get("content")
    if not isinstance(content, list):
        raise build_unreadable_error(who, body)
    block_texts = split_elements(split_members(text)["content"])
    for block_text, fields_of_block in zip(
        block_texts, read_objects(fields, "content"), strict=True
    ):
        block = Block(block_text, fields_of_block)
        message.blocks.append(block)
        _emit_initial_text(message.answer, block)
    _read_message_fields(message, fields)
    message.end()


def _to_call(block: Block, names: Mapping[str, str], *, cut: bool) -> ToolCall:
    """Return a block's call. One that was cut before its first argument has no arguments."""
    id = str(block.fields.get("id") or "")
    name = read_text(block.fields, "name")
    streamed = block.pieces.get("partial_json")
    missing = cut and streamed is not None and not any(streamed)
    return ToolCall(id, names.get(name, name), "" if missing else block.arguments)


def _read_index(value: Mapping[str, Any]) -> int:
    """Return the place of the block that an event is about.

    Raises:
        ProviderError: `not_understood`, there is none.
    """
    index = read_place(value, "index")
    if index is None:
        raise build_field_error("index", "the place of a block", None)
    return index


def _emit_initial_text(answer: AnswerBuilder, block: Block) -> None:
    """Emit the text that a block starts with."""
    if block.type == "text":
        text = read_text(block.fields, "text")
        if text:
            answer.add_text(text)
    elif block.type == "thinking":
        thought = read_text(block.fields, "thinking")
        if thought:
            answer.add_reasoning(thought)


def _read_message_fields(message: MessageBuilder, fields: dict[str, Any]) -> None:
    """Read what a message, or a delta of one, says besides its blocks."""
    message.answer.note_response(fields)
    stop = read_text(fields, "stop_reason")
    if stop:
        message.stop = stop
    usage = fields.get("usage")
    if isinstance(usage, dict):
        given = cast(dict[str, Any], usage)
        message.usage |= {name: value for name, value in given.items() if value is not None}
    container = fields.get("container")
    if isinstance(container, dict):
        message.container = str(cast(dict[str, Any], container).get("id") or "")


def _parse_usage(fields: Mapping[str, Any]) -> Usage:
    """Read `usage`. The API's input tokens exclude those of the cache; ours include them."""
    cached = token_count(fields.get("cache_read_input_tokens"))
    written = token_count(fields.get("cache_creation_input_tokens"))
    details: Any = fields.get("output_tokens_details")
    thought: Any = 0
    if isinstance(details, dict):
        thought = cast(dict[str, Any], details).get("thinking_tokens")
    return Usage(
        token_count(fields.get("input_tokens")) + cached + written,
        token_count(fields.get("output_tokens")),
        cached,
        written,
        token_count(thought),
    )


def _find_provider_calls(blocks: list[Block], names: Mapping[str, str]) -> list[ProviderToolCall]:
    """Return what the provider carried out itself, with the results.

    `names` maps sent names to tool names.
    """
    results = {
        str(block.fields.get("tool_use_id")): block.fields
        for block in blocks
        if block.type.endswith("_tool_result")
    }
    calls: list[ProviderToolCall] = []
    for block in blocks:
        if block.type in _HOSTED_CALL_TYPES:
            result = results.get(str(block.fields.get("id")))
            calls.append(_to_provider_call(block, result, names))
    return calls


def _to_provider_call(
    block: Block, result: Mapping[str, Any] | None, names: Mapping[str, str]
) -> ProviderToolCall:
    server = block.fields.get("server_name")
    name = ".".join(str(part) for part in (server, block.fields.get("name")) if part)
    fields = {**block.fields, "input": _parse_or_text(block.arguments)}
    if result is not None:
        fields["result"] = result.get("content")
    call = record_provider_call(fields, name, _hosted_status(result))
    if call.tool_kind != "tool_search":
        return call
    found = () if result is None else _find_references(result.get("content"), names)
    return replace(call, arguments=block.arguments, references=found)


def _find_references(content: object, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tools that a search found."""
    if not isinstance(content, dict):
        return ()
    listed = objects_in(cast(dict[str, Any], content).get("tool_references"))
    found = [str(reference.get("tool_name") or "") for reference in listed]
    return tuple(names.get(name, name) for name in found if name)


def _hosted_status(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "in_progress"
    content: Any = result.get("content")
    kind = cast(dict[str, Any], content).get("type", "") if isinstance(content, dict) else ""
    is_failed = result.get("is_error") or str(kind).endswith("_error")
    return "failed" if is_failed else "completed"


def _parse_or_text(arguments: str) -> Any:
    try:
        return parse_json(arguments)
    except ValueError:
        return arguments
