"""Parsing answers of Cohere's chat API, complete or streamed, into an `AnswerBuilder`.

What a model says before its calls is its `tool_plan`, which counts as text; its thinking is
reasoning. Citations are left out: they point into the text and the results, which are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.errors import ProviderError
from ferrule.core.events import Usage
from ferrule.models.answer_building import AnswerBuilder, token_count
from ferrule.models.answer_fields import read_object, read_objects, read_text
from ferrule.models.client import Sink
from ferrule.models.provider_errors import build_unreadable_error, error_from_object

FINISH_REASONS = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
}
"""Cohere's finish reasons in the words of `answer_building.STOP_REASONS`; the others are errors."""


class ChatStreamParser:
    """Parses the events of one stream."""

    def __init__(self, answer: AnswerBuilder, who: str, *, tools: bool) -> None:
        self.done = False
        self._answer = answer
        self._who = who
        self._tools = tools

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the answer is missing."""
        return self.done

    def add(self, events: list[bytes]) -> None:
        """Add events.

        Raises:
            ProviderError: An event is an error, or not a JSON object.
        """
        for event in events:
            if self.done:
                return
            if event.strip():
                self._add_event(_parse_object(self._answer, event, self._who))

    def finish(self) -> AnswerBuilder:
        """Return the answer, once the stream has ended.

        Raises:
            ProviderError: `interrupted`, the server never said that the answer was over.
        """
        if not self.done:
            raise ProviderError(
                f"{self._who}: the stream ended in the middle of the answer",
                code="interrupted",
                retryable=False,
            )
        return self._answer

    def _add_event(self, event: dict[str, Any]) -> None:
        delta = read_object(event, "delta")
        message = read_object(delta, "message")
        kind = read_text(event, "type")
        if kind == "message-start":
            self._answer.note_response(event)
        match kind:
            case "content-start" | "content-delta":
                _add_content(self._answer, read_object(message, "content"))
            case "tool-plan-delta":
                _add_text(self._answer, message, "tool_plan")
            case "tool-call-start" | "tool-call-delta":
                call = read_object(message, "tool_calls")
                self._answer.calls.add({**call, "index": event.get("index")})
            case "message-end":
                _end(self._answer, delta, self._who, tools=self._tools)
                self.done = True
            case "":
                # Errors in the middle of a stream have the form of error answers, without a type.
                raise error_from_object(self._who, event, tools=self._tools, begun=True)
            case _:
                # Starts, ends and citations say nothing that is kept.
                return


def parse_answer(body: bytes, who: str, *, tools: bool, sink: Sink | None = None) -> AnswerBuilder:
    """Parse an answer that came in one piece; a sink receives it in one piece.

    Raises:
        ProviderError: The answer is an error, or cannot be understood.
    """
    answer = AnswerBuilder.for_sink(sink)
    value = _parse_object(answer, body, who)
    message = value.get("message")
    if not isinstance(message, dict):
        raise error_from_object(who, value, tools=tools, begun=False)
    fields = cast("dict[str, Any]", message)
    parts = read_objects(fields, "content")
    for part in parts:
        if part.get("type") == "thinking":
            _add_content(answer, part)
    _add_text(answer, fields, "tool_plan")
    for part in parts:
        if part.get("type") != "thinking":
            _add_content(answer, part)
    for call in read_objects(fields, "tool_calls"):
        answer.calls.add_complete(call)
    answer.note_response(value)
    _end(answer, value, who, tools=tools)
    return answer


def _end(answer: AnswerBuilder, fields: Mapping[str, Any], who: str, *, tools: bool) -> None:
    """Add why an answer ended, and its usage.

    Raises:
        ProviderError: It ended because something failed.
    """
    reason = read_text(fields, "finish_reason") or "COMPLETE"
    if reason == "TIMEOUT":
        detail = f"{who}: the provider ran out of time"
        raise ProviderError(detail, code="timeout", retryable=False)
    if reason not in FINISH_REASONS:
        message = fields.get("error") or f"the answer ended with {reason}"
        raise error_from_object(who, {"message": message}, tools=tools, begun=True)
    answer.finish_reason = FINISH_REASONS[reason]
    answer.usage = _parse_usage(_object(fields.get("usage")))


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    """Read what was counted. The billed units leave out what Cohere adds to a prompt."""
    counted = _object(usage.get("tokens")) or _object(usage.get("billed_units"))
    return Usage(
        token_count(counted.get("input_tokens")),
        token_count(counted.get("output_tokens")),
        token_count(usage.get("cached_tokens")),
    )


def _add_content(answer: AnswerBuilder, part: Mapping[str, Any]) -> None:
    thought = part.get("thinking")
    if isinstance(thought, str) and thought:
        answer.add_reasoning(thought)
    _add_text(answer, part, "text")


def _add_text(answer: AnswerBuilder, fields: Mapping[str, Any], name: str) -> None:
    piece = read_text(fields, name)
    if piece:
        answer.add_text(piece)


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _parse_object(answer: AnswerBuilder, data: bytes, who: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        ProviderError: It is none.
    """
    try:
        value: Any = answer.read_json(data)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not value:
        raise build_unreadable_error(who, data)
    return cast("dict[str, Any]", value)
