"""Parsing answers of `generateContent`, complete or streamed, into parts and an answer.

Source: the reference of the Gemini API and the types of `google-genai`, which the tests check every
answer with. A stream is a sequence of whole responses whose parts are added up; it ends with the
one that says why the model stopped.

* A part that only the provider can read (a thought's signature, executed code) is kept as the text
  it arrived as. Text that nothing is attached to is joined, since a stream cuts it anywhere.
* Arguments are objects and are never cut: a call arrives complete or not at all.
* An answer that was withheld ends with `filter` and says why in a notice. A call that the model
  wrote so badly that Google withheld it is an error, and worth another attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, cast

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.vocabulary import AnswerStop
from ferrule.models.answer_building import AnswerBuilder, join_surrogates, token_count
from ferrule.models.answer_fields import build_field_error, read_object, read_objects, read_text
from ferrule.models.provider_errors import build_unreadable_error, error_from_object, find_error
from ferrule.models.verbatim_json import seal, split_elements, split_members

STOP_REASONS: dict[str, AnswerStop] = {"STOP": "end", "MAX_TOKENS": "length"}
"""`finishReason` as `ModelAnswered.stop`."""

WITHHELD = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "OTHER",
        "TOO_MANY_TOOL_CALLS",
        "NO_IMAGE",
        "IMAGE_OTHER",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
        "ESCALATION",
    }
)
"""`finishReason` of answers that the provider withheld or cut, for what they say or do."""

_MALFORMED = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"})
"""`finishReason` of answers that the provider could not read itself."""

_PLAIN_TEXT = frozenset({"text", "thought"})
_PLAIN_CALL = frozenset({"functionCall"})
_CALL_FIELDS = frozenset({"id", "name", "args"})


@dataclass(slots=True)
class Part:
    """One part. `kind` is `text`, `thought`, `call` or `kept`; `pieces` are joined to its text.

    The text of a call is its JSON, and that of a kept part the JSON that arrived.
    """

    kind: str
    pieces: list[str]

    def json(self) -> str:
        """Return the part as it is sent back."""
        text = "".join(self.pieces)
        if self.kind in ("call", "kept"):
            return text
        thought = ',"thought":true' if self.kind == "thought" else ""
        return f'{{"text":{encode_json(join_surrogates(text))}{thought}}}'


@dataclass(slots=True)
class ContentBuilder:
    """An answer being built from the parts of its responses."""

    answer: AnswerBuilder
    parts: list[Part] = field(default_factory=list[Part])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    usage: Usage = Usage()
    usage_metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    stop: str = ""
    stop_detail: str = ""

    def content(self) -> str:
        """Return the parts as a JSON array."""
        return "[" + ",".join(part.json() for part in self.parts) + "]"

    def add_part(self, fields: dict[str, Any], text: str) -> None:
        """Add a part. `text` is its JSON as it arrived."""
        said = read_text(fields, "text")
        thought = fields.get("thought") or False
        if not isinstance(thought, bool):
            raise build_field_error("thought", "true or false", thought)
        if said:
            if thought:
                self.answer.add_reasoning(said)
            else:
                self.answer.add_text(said)
        if "functionCall" in fields:
            self._add_call(read_object(fields, "functionCall"))
        if fields.keys() <= _PLAIN_TEXT:
            self._join("thought" if thought else "text", said)
        elif fields.keys() <= _PLAIN_CALL and _is_plain(fields.get("functionCall")):
            self.parts.append(Part("call", [text]))
        else:
            self.parts.append(Part("kept", [text]))

    def _join(self, kind: str, piece: str) -> None:
        """Add a piece of text to the part before it, if that is of the same kind."""
        if self.parts and self.parts[-1].kind == kind:
            self.parts[-1].pieces.append(piece)
        elif piece:
            self.parts.append(Part(kind, [piece]))

    def _add_call(self, call: dict[str, Any]) -> None:
        arguments: Any = call.get("args")
        spelled = "{}" if arguments is None else encode_json(arguments)
        id = call.get("id")
        self.calls.append(
            ToolCall(
                id if isinstance(id, str) else "",
                read_text(call, "name"),
                join_surrogates(spelled),
            )
        )

    def build(self, model: str, names: Mapping[str, str]) -> ModelAnswered:
        """Return the complete answer, with its parts in `raw` if one of them must go back as it is.

        Args:
            model: The full name of the model that wrote it.
            names: Maps the names that were sent to tool names.
        """
        stop: AnswerStop = STOP_REASONS.get(self.stop, "end")
        if self.stop in WITHHELD:
            stop = "filter"
        if self.calls and stop == "end":
            stop = "calls"
        calls = [replace(call, tool=names.get(call.tool, call.tool)) for call in self.calls]
        is_kept = stop != "filter" and any(part.kind == "kept" for part in self.parts)
        raw = None
        if is_kept:
            content = self.content()
            unnamed = [place for place, call in enumerate(calls) if not call.id]
            # A call without an id gets one here: the engine would drop what it changes.
            digest = sha256(content.encode("utf-8", "replace")).hexdigest()[:12]
            for place in unnamed:
                calls[place] = replace(calls[place], id=f"call_{digest}_{place}")
            ids = [call.id for call in calls]
            raw = seal(model, ids, content, unnamed=encode_json([ids[n] for n in unnamed]))
        return self.answer.end(tuple(calls), self.usage, stop, raw=raw)


def _is_plain(call: object) -> bool:
    return isinstance(call, dict) and cast("dict[str, Any]", call).keys() <= _CALL_FIELDS


class ResponseStreamParser:
    """Parses the events of one stream.

    A reason to stop stands in each chunk of some models, in empty ones of gateways, and between the
    rounds of Google's own tools: what follows it may belong to the answer. Once the answer was
    counted too, `done` is set by the first event that cannot belong to it.
    """

    def __init__(self, content: ContentBuilder, who: str, *, tools: bool) -> None:
        self.done = False
        self._is_counted = False
        self._content = content
        self._who = who
        self._tools = tools

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the answer is missing, apart from its usage."""
        return bool(self._content.stop)

    def add(self, events: list[bytes]) -> None:
        """Add events.

        Raises:
            ProviderError: An event is an error, not JSON, or ends an answer that failed.
        """
        for event in events:
            if self.done:
                return
            if not event.strip():
                continue
            try:
                fields = _read_response(self._content.answer, event, self._who, tools=self._tools)
            except ProviderError:
                self.done = self.is_complete and self._is_counted
                if not self.done:
                    raise
                return
            _add_response(self._content, fields, event, self._who)
            self._is_counted |= "usageMetadata" in fields

    def finish(self) -> None:
        """End the stream.

        Raises:
            ProviderError: `interrupted`, the server never said that the answer was over.
        """
        if not self.is_complete:
            detail = f"{self._who}: the stream ended in the middle of the answer"
            raise ProviderError(detail, code="interrupted", retryable=False)


def parse_answer(content: ContentBuilder, body: bytes, who: str, *, tools: bool) -> None:
    """Add an answer that came in one piece to `content`.

    Raises:
        ProviderError: The answer is an error, or cannot be understood.
    """
    fields = _read_response(content.answer, body, who, tools=tools)
    _add_response(content, fields, body, who)
    if not content.stop:
        raise build_unreadable_error(who, body)


def _read_response(answer: AnswerBuilder, data: bytes, who: str, *, tools: bool) -> dict[str, Any]:
    """Parse one response.

    Raises:
        ProviderError: It is no JSON object, or an error.
    """
    try:
        value: Any = answer.read_json(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise build_unreadable_error(who, data)
    fields = cast("dict[str, Any]", value)
    error = find_error(fields, expected="candidates")
    if error:
        raise error_from_object(who, error, tools=tools, begun=answer.has_begun)
    return fields


def _add_response(content: ContentBuilder, fields: dict[str, Any], text: bytes, who: str) -> None:
    """Add one response: all of an answer, or what is new of it."""
    named = {"id": fields.get("responseId"), "model": fields.get("modelVersion")}
    content.answer.note_response(named)
    usage = _object(fields.get("usageMetadata"))
    if usage:
        # The last chunk may lack what an earlier one has counted.
        content.usage_metadata |= usage
        content.usage = _parse_usage(content.usage_metadata)
    candidates = read_objects(fields, "candidates")
    if candidates:
        _add_candidate(content, candidates[0], text)
    _read_feedback(content, _object(fields.get("promptFeedback")))
    if content.stop in _MALFORMED:
        # Nothing was done yet, and what the model wrote is not to be had: it may be asked again
        # as long as nobody has seen a part of this answer.
        nothing_seen = not content.answer.text and not content.answer.reasoning
        detail = f"{who}: the model wrote a call that Google could not read"
        said = f" ({content.stop_detail})" if content.stop_detail else ""
        raise ProviderError(detail + said, code="malformed_call", retryable=nothing_seen)


def _add_candidate(content: ContentBuilder, candidate: dict[str, Any], text: bytes) -> None:
    parts = read_objects(read_object(candidate, "content"), "parts")
    if parts:
        # Only text needs no exact spelling, and a stream is mostly text.
        plain = all(part.keys() <= _PLAIN_TEXT for part in parts)
        spelled = [""] * len(parts) if plain else _split_parts(text)
        for fields, part in zip(parts, spelled, strict=False):
            content.add_part(fields, part)
        content.stop = ""
    reason = read_text(candidate, "finishReason")
    if reason and reason != "FINISH_REASON_UNSPECIFIED":
        content.stop = reason
        content.stop_detail = str(candidate.get("finishMessage") or "")


def _split_parts(text: bytes) -> list[str]:
    """Return the parts of the first candidate, each as the JSON it arrived as."""
    spelled = text.decode()
    for name in ("candidates", "content"):
        spelled = split_members(spelled)[name]
        if name == "candidates":
            spelled = split_elements(spelled)[0]
    parts = split_elements(split_members(spelled)["parts"])
    return [part for part in parts if part.startswith("{")]


def _read_feedback(content: ContentBuilder, feedback: Mapping[str, Any]) -> None:
    """Read why a question was not answered at all."""
    reason = feedback.get("blockReason")
    if isinstance(reason, str) and reason:
        content.stop = "SAFETY"
        message = str(feedback.get("blockReasonMessage") or "")
        said = f": {message}" if message else ""
        content.stop_detail = f"the question was blocked ({reason}{said})"


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    """Read `usageMetadata`. Thoughts are counted beside the answer there, and within it here."""
    thought = token_count(usage.get("thoughtsTokenCount"))
    asked = token_count(usage.get("promptTokenCount"))
    return Usage(
        input=asked + token_count(usage.get("toolUsePromptTokenCount")),
        output=token_count(usage.get("candidatesTokenCount")) + thought,
        cached=token_count(usage.get("cachedContentTokenCount")),
        reasoning=thought,
    )


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
