"""Parsing chat-completions answers, complete or streamed, into an `Answer`.

The hot path of every stream is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from jiter import from_json

from ferrule.core.errors import ProviderError
from ferrule.models.answer_building import AnswerBuilder, objects_in, parse_usage
from ferrule.models.client import Sink
from ferrule.models.provider_errors import build_unreadable_error, error_from_object


class ChatStreamParser:
    """Parses the events of one stream. `done` once the server has sent `[DONE]`."""

    def __init__(self, answer: AnswerBuilder, who: str, *, tools: bool) -> None:
        self.done = False
        self._answer = answer
        self._who = who
        self._tools = tools

    @property
    def is_complete(self) -> bool:
        """Whether the server said why the answer ended.

        Only its usage may follow, and some servers never send `[DONE]`.
        """
        return self.done or bool(self._answer.finish_reason)

    def add(self, events: list[bytes]) -> None:
        """Add events.

        Raises:
            ProviderError: An event is an error object, or not JSON.
        """
        answer = self._answer
        texts = answer.text
        on_text = answer.on_text
        add_call = answer.calls.add
        for event in events:
            if event == b"[DONE]":
                self.done = True
                return
            try:
                chunk: Any = from_json(event)
                choice: Any = chunk["choices"][0]
                delta: Any = choice["delta"]
                plain = len(delta) == 1 and not choice.get("finish_reason")
                piece: Any = delta.get("content") if plain else None
                calls: Any = delta.get("tool_calls") if plain else None
            except (ValueError, LookupError, TypeError, AttributeError):
                self._add_unusual(event)
                on_text = answer.on_text
                continue
            if piece and type(piece) is str:
                texts.append(piece)
                if on_text:
                    on_text(piece)
            elif calls:
                for call in objects_in(calls):
                    add_call(call)
            else:
                self._add_chunk(chunk)

    def finish(self) -> AnswerBuilder:
        """Return the answer, once the stream has ended.

        Raises:
            ProviderError: `interrupted`, the server never said that the answer was over. A call
            whose
                end is missing must not look complete.
        """
        if not self.is_complete:
            raise ProviderError(
                f"{self._who}: the stream ended in the middle of the answer",
                code="interrupted",
                retryable=False,
            )
        return self._answer

    def _add_unusual(self, event: bytes) -> None:
        """Add an event without choices (usage, a keep-alive), an error, or a broken character."""
        if not event.strip():
            return
        try:
            chunk: Any = self._answer.read_json(event)
        except ValueError as problem:
            raise build_unreadable_error(self._who, event, "an event that is not JSON") from problem
        if isinstance(chunk, dict):
            self._add_chunk(cast(dict[str, Any], chunk))

    def _add_chunk(self, chunk: dict[str, Any]) -> None:
        error = chunk.get("error")
        if error:
            raise error_from_object(self._who, error, tools=self._tools)
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._answer.usage = parse_usage(cast(dict[str, Any], usage))
        self._answer.note_response(chunk)
        choice = _first_choice(chunk)
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._answer.finish_reason = finish
        delta = choice.get("delta")
        if isinstance(delta, dict):
            fields = cast(dict[str, Any], delta)
            _add_content(self._answer, fields)
            for call in objects_in(fields.get("tool_calls")):
                self._answer.calls.add(call)


def parse_answer(body: bytes, who: str, *, tools: bool, sink: Sink | None = None) -> AnswerBuilder:
    """Parse an answer that came in one piece; a sink receives it in one piece.

    Raises:
        ProviderError: The answer is an error, or cannot be understood.
    """
    answer = AnswerBuilder.for_sink(sink)
    try:
        value: Any = answer.read_json(body)
    except ValueError:
        value = None
    value = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    error = value.get("error")
    if error:
        raise error_from_object(who, error, tools=tools)
    choice = _first_choice(value)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise build_unreadable_error(who, body)
    answer.note_response(value)
    fields = cast(dict[str, Any], message)
    _add_content(answer, fields)
    for call in objects_in(fields.get("tool_calls")):
        answer.calls.add_complete(call)
    finish = choice.get("finish_reason")
    answer.finish_reason = finish if isinstance(finish, str) else "stop"
    usage = value.get("usage")
    if isinstance(usage, dict):
        answer.usage = parse_usage(cast(dict[str, Any], usage))
    return answer


def _add_content(answer: AnswerBuilder, fields: Mapping[str, Any]) -> None:
    """Add reasoning under any of its names, then text; `content` may be a list of parts."""
    for name in ("reasoning_content", "reasoning", "thinking"):
        piece = fields.get(name)
        if isinstance(piece, str) and piece:
            answer.add_reasoning(piece)
            break
    content = fields.get("content")
    if isinstance(content, str) and content:
        answer.add_text(content)
    for part in objects_in(content):
        _add_part(answer, part)
    refused = fields.get("refusal")
    if isinstance(refused, str) and refused:
        answer.add_text(refused)


def _add_part(answer: AnswerBuilder, part: dict[str, Any]) -> None:
    text = part.get("text")
    if isinstance(text, str) and text:
        answer.add_text(text)
    for thought in objects_in(part.get("thinking")):
        piece = thought.get("text")
        if isinstance(piece, str) and piece:
            answer.add_reasoning(piece)


def _first_choice(value: Mapping[str, Any]) -> dict[str, Any]:
    found = objects_in(value.get("choices"))
    return found[0] if found else {}
