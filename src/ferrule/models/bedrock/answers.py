"""Parsing answers of Bedrock's Converse API, complete or streamed, into blocks and an answer.

Source: Amazon's API reference and the service model in `botocore`, which the tests check every
answer with. The stream says why the model stopped before it says what was counted: the answer is
complete with the first, and over with the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.vocabulary import AnswerStop
from ferrule.models.answer_building import AnswerBuilder, join_surrogates, token_count
from ferrule.models.answer_fields import read_object, read_objects, read_place, read_text
from ferrule.models.provider_errors import build_unreadable_error, error_from_object, find_error
from ferrule.models.request_encoding import arguments_as_object
from ferrule.models.verbatim_json import seal

STOP_REASONS: dict[str, AnswerStop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "filter",
    "content_filtered": "filter",
}
"""`stopReason` as `ModelAnswered.stop`."""

_MALFORMED = frozenset({"malformed_model_output", "malformed_tool_use"})

_EXCEPTIONS = {
    "throttlingException": ("rate_limited", True),
    "serviceUnavailableException": ("overloaded", True),
    "internalServerException": ("provider", True),
    "modelStreamErrorException": ("provider", False),
}
"""Exceptions in the middle of a stream, as our codes, and whether another attempt may help."""


@dataclass(slots=True)
class Block:
    """One block. `fields` are those that are not streamed in pieces.

    `pieces` are what deltas added: `text`, `input`, `thought`, `signature` and `redacted`.
    """

    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def value(self, name: str) -> str:
        """Return what was added under a name."""
        return join_surrogates("".join(self.pieces.get(name, ())))

    @property
    def is_kept(self) -> bool:
        """Whether only the provider can read it: signed or hidden reasoning, and what is new."""
        plain = self.fields.keys() <= {"toolUse"}
        return not plain or bool(self.pieces.keys() & {"signature", "redacted"})

    def json(self) -> str:
        """Return the block as it is sent back; "" for one that says nothing."""
        if "toolUse" in self.fields:
            call: dict[str, Any] = {**self.fields["toolUse"]}
            fields = [f"{encode_json(name)}:{encode_json(value)}" for name, value in call.items()]
            fields.append(f'"input":{arguments_as_object(self.arguments)}')
            return f'{{"toolUse":{{{",".join(fields)}}}}}'
        if self.fields:
            return encode_json(self.fields)
        if "redacted" in self.pieces:
            return encode_json({"reasoningContent": {"redactedContent": self.value("redacted")}})
        if "thought" in self.pieces or "signature" in self.pieces:
            said = {"text": self.value("thought")}
            if "signature" in self.pieces:
                said["signature"] = self.value("signature")
            return encode_json({"reasoningContent": {"reasoningText": said}})
        text = self.value("text")
        return encode_json({"text": text}) if text else ""

    @property
    def arguments(self) -> str:
        """The arguments of a call as JSON text."""
        return self.value("input")


@dataclass(slots=True)
class ConverseBuilder:
    """An answer being built, block by block."""

    answer: AnswerBuilder
    blocks: list[Block] = field(default_factory=list[Block])
    usage: Usage = Usage()
    stop: str = ""

    def add_piece(self, block: Block, name: str, piece: str) -> None:
        """Add a piece of text to a block, and to what is shown."""
        if not piece:
            return
        block.pieces.setdefault(name, []).append(piece)
        if name == "text":
            self.answer.add_text(piece)
        elif name == "thought":
            self.answer.add_reasoning(piece)

    def check_end(self, who: str) -> None:
        """Raise ProviderError for an answer that Bedrock could not read itself."""
        if self.stop in _MALFORMED:
            nothing_seen = not self.answer.text and not self.answer.reasoning
            detail = f"{who}: the model wrote an answer that Bedrock could not read ({self.stop})"
            raise ProviderError(detail, code="malformed_call", retryable=nothing_seen)

    def build(self, model: str, names: Mapping[str, str]) -> ModelAnswered:
        """Return the complete answer, with its blocks in `raw` if one must go back as it is."""
        stop = STOP_REASONS.get(self.stop, "end")
        calls = tuple(
            _to_call(block, names, cut=stop == "length")
            for block in self.blocks
            if "toolUse" in block.fields
        )
        if stop in ("end", "calls"):
            stop = "calls" if calls else "end"
        raw = None
        if stop != "filter" and any(block.is_kept for block in self.blocks):
            spelled = ",".join(filter(None, [block.json() for block in self.blocks]))
            raw = seal(model, [call.id for call in calls], f"[{spelled}]")
        return self.answer.end(calls, self.usage, stop, raw=raw)


def _to_call(block: Block, names: Mapping[str, str], *, cut: bool) -> ToolCall:
    """Return a block's call. One that was cut before its first argument has none."""
    fields = read_object(block.fields, "toolUse")
    name = read_text(fields, "name")
    nothing = "" if cut else "{}"
    id = str(fields.get("toolUseId") or "")
    return ToolCall(id, names.get(name, name), block.arguments or nothing)


class ConverseStreamParser:
    """Parses the messages of one stream (`aws.FrameSplitter`). `done` once usage was said."""

    def __init__(self, content: ConverseBuilder, who: str, *, tools: bool) -> None:
        self.done = False
        self._content = content
        self._who = who
        self._tools = tools
        self._open: dict[int, Block] = {}

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the answer is missing, apart from its usage."""
        return bool(self._content.stop)

    def add(self, events: list[bytes]) -> None:
        """Add messages.

        Raises:
            ProviderError: A message is an exception, not JSON, or ends an answer that failed.
        """
        for event in events:
            if self.done:
                return
            kind, payload = _parse_message(self._content.answer, event, self._who)
            self._add_event(kind, payload)

    def finish(self) -> None:
        """End the stream.

        Raises:
            ProviderError: `interrupted`, the server never said that the answer was over.
        """
        if not self.is_complete:
            detail = f"{self._who}: the stream ended in the middle of the answer"
            raise ProviderError(detail, code="interrupted", retryable=False)

    def _add_event(self, kind: str, payload: dict[str, Any]) -> None:
        match kind:
            case "contentBlockStart":
                start = read_object(payload, "start")
                if "toolUse" in start:
                    start = {**start, "toolUse": read_object(start, "toolUse")}
                self._block(payload).fields.update(start)
            case "contentBlockDelta":
                self._add_delta(self._block(payload), read_object(payload, "delta"))
            case "messageStop":
                self._content.stop = read_text(payload, "stopReason") or "end_turn"
                self._content.check_end(self._who)
            case "metadata":
                self._content.usage = _parse_usage(_object(payload.get("usage")))
                self.done = self.is_complete
            case "messageStart" | "contentBlockStop":
                return
            case _ if kind == ":error" or kind.endswith("Exception"):
                raise self._build_error(kind, payload)
            case _:
                # The API adds events: what is not known says nothing that is kept.
                return

    def _block(self, event: Mapping[str, Any]) -> Block:
        """Return the block that an event is about. Text has no start of its own."""
        place = read_place(event, "contentBlockIndex") or 0
        block = self._open.get(place)
        if block is None:
            block = self._open[place] = Block()
            self._content.blocks.append(block)
        return block

    def _add_delta(self, block: Block, delta: dict[str, Any]) -> None:
        self._content.add_piece(block, "text", read_text(delta, "text"))
        call = read_object(delta, "toolUse")
        self._content.add_piece(block, "input", read_text(call, "input"))
        _add_reasoning(self._content, block, _object(delta.get("reasoningContent")))

    def _build_error(self, kind: str, payload: dict[str, Any]) -> ProviderError:
        """Build an error. Before the first block a busy server may be asked again."""
        error = error_from_object(self._who, payload, tools=self._tools, begun=True)
        if kind in _EXCEPTIONS:
            error.code, may_help = _EXCEPTIONS[kind]
            error.retryable = may_help and not self._content.blocks
        return error


def parse_answer(content: ConverseBuilder, body: bytes, who: str, *, tools: bool) -> None:
    """Add an answer that came in one piece to `content`.

    Raises:
        ProviderError: The answer is an error, or cannot be understood.
    """
    fields = _object(_parse_json(content.answer, body))
    error = find_error(fields, expected="output")
    if error:
        raise error_from_object(who, error, tools=tools, begun=False)
    message = _object(_object(fields.get("output")).get("message"))
    if not isinstance(message.get("content"), list) or not fields.get("stopReason"):
        raise build_unreadable_error(who, body)
    for given in read_objects(message, "content"):
        content.blocks.append(Block())
        _add_block(content, content.blocks[-1], given)
    content.stop = read_text(fields, "stopReason")
    content.usage = _parse_usage(_object(fields.get("usage")))
    content.check_end(who)


def _add_block(content: ConverseBuilder, block: Block, given: dict[str, Any]) -> None:
    """Add a block that came in one piece."""
    if "toolUse" in given:
        fields = dict(read_object(given, "toolUse"))
        arguments: Any = fields.pop("input", None)
        block.fields["toolUse"] = fields
        spelled = arguments if isinstance(arguments, str) else encode_json(arguments)
        content.add_piece(block, "input", "{}" if arguments is None else spelled)
    elif "reasoningContent" in given:
        thought = _object(given["reasoningContent"])
        _add_reasoning(content, block, {**thought, **_object(thought.get("reasoningText"))})
    elif given.keys() == {"text"}:
        content.add_piece(block, "text", read_text(given, "text"))
    else:
        block.fields.update(given)


def _add_reasoning(content: ConverseBuilder, block: Block, given: Mapping[str, Any]) -> None:
    content.add_piece(block, "thought", read_text(given, "text"))
    content.add_piece(block, "signature", read_text(given, "signature"))
    content.add_piece(block, "redacted", read_text(given, "redactedContent"))


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    """Read `usage`. Its input tokens exclude those of the cache; ours include them."""
    cached = token_count(usage.get("cacheReadInputTokens"))
    written = token_count(usage.get("cacheWriteInputTokens"))
    return Usage(
        token_count(usage.get("inputTokens")) + cached + written,
        token_count(usage.get("outputTokens")),
        cached,
        written,
    )


def _parse_message(answer: AnswerBuilder, event: bytes, who: str) -> tuple[str, dict[str, Any]]:
    """Parse what `aws.FrameSplitter` made of a message."""
    value = _parse_json(answer, event)
    if not isinstance(value, list):
        raise build_unreadable_error(who, event)
    kind, payload = cast("list[Any]", value)
    if not isinstance(payload, dict):
        raise build_unreadable_error(who, event)
    return str(kind), cast("dict[str, Any]", payload)


def _parse_json(answer: AnswerBuilder, data: bytes) -> Any:
    try:
        return answer.read_json(data)
    except ValueError:
        return None


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
