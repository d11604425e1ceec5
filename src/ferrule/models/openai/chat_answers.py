"""Parsing chat-completions answers, complete or streamed, into an `Answer`.

The hot path of every stream is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from jiter import from_json

from ferrule.core.calls import encode_json
from ferrule.core.errors import ProviderError
from ferrule.models.answer_building import AnswerBuilder, objects_in, parse_usage
from ferrule.models.answer_fields import read_object, read_objects, read_place, read_text
from ferrule.models.client import Sink
from ferrule.models.provider_errors import build_unreadable_error, error_from_object, find_error

_NONE_YET = object()
"""No choice has come yet. (A server may leave out the index of its only choice.)"""

FAILED_REASONS = frozenset({"error", "abort", "insufficient_system_resource"})
"""Finish reasons of an answer that its server broke off: what came is not all of it."""


class ChatStreamParser:
    """Parses the events of one stream. `done` once the server has sent `[DONE]`."""

    def __init__(self, answer: AnswerBuilder, who: str, *, tools: bool) -> None:
        self.done = False
        self._answer = answer
        self._who = who
        self._tools = tools
        self._choice: object = _NONE_YET

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
        ours = self._choice
        for event in events:
            if event == b"[DONE]":
                self.done = True
                return
            try:
                chunk: Any = from_json(event)
                choice: Any = chunk["choices"][0]
                delta: Any = choice["delta"]
                plain = (
                    len(delta) == 1
                    and not choice.get("finish_reason")
                    and choice.get("index") == ours
                    and not chunk.get("error")
                )
                piece: Any = delta.get("content") if plain else None
                calls: Any = delta.get("tool_calls") if plain else None
            except (ValueError, LookupError, TypeError, AttributeError):
                self._add_unusual(event)
                on_text = answer.on_text
                ours = self._choice
                continue
            if piece and type(piece) is str:
                texts.append(piece)
                if on_text:
                    on_text(piece)
            elif calls:
                for call in read_objects(delta, "tool_calls"):
                    add_call(call)
            else:
                self._add_chunk(chunk)
                ours = self._choice

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
        error = find_error(chunk, expected="choices")
        if error:
            begun = self._answer.has_begun
            raise error_from_object(self._who, error, tools=self._tools, begun=begun)
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._answer.usage = parse_usage(cast(dict[str, Any], usage))
        self._answer.note_response(chunk)
        choice = self._find_choice(chunk)
        finish = read_text(choice, "finish_reason")
        if finish:
            begun = self._answer.has_begun
            _check_finish(self._who, choice, finish, tools=self._tools, begun=begun)
            self._answer.finish_reason = finish
        delta = read_object(choice, "delta")
        _add_content(self._answer, delta)
        for call in read_objects(delta, "tool_calls") or _find_legacy_call(delta):
            self._answer.calls.add(call)
        message = read_object(choice, "message")
        if message and not isinstance(choice.get("delta"), dict):
            self._add_message(chunk, message)

    def _find_choice(self, chunk: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a chunk says of the choice that came first. The others are not asked for."""
        for choice in read_objects(chunk, "choices"):
            index = read_place(choice, "index")
            if self._choice is _NONE_YET or self._choice is None:
                self._choice = index
            if index == self._choice or index is None:
                return choice
        return {}

    def _add_message(self, chunk: Mapping[str, Any], fields: dict[str, Any]) -> None:
        """Add a message that a server put whole into its stream.

        Raises:
            ProviderError: `not_understood`, a part of the answer came before it: nobody knows
            whether the message repeats that or goes on from there.
        """
        answer = self._answer
        so_far = "".join(answer.text)
        if so_far and so_far == fields.get("content"):
            return
        if so_far or answer.reasoning or len(answer.calls):
            shown = encode_json(chunk).encode("utf-8", "replace")
            raise build_unreadable_error(self._who, shown, "a message behind pieces of one")
        _add_content(answer, fields)
        for call in read_objects(fields, "tool_calls") or _find_legacy_call(fields):
            answer.calls.add_complete(call)


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
    error = find_error(value, expected="choices")
    if error:
        raise error_from_object(who, error, tools=tools, begun=False)
    choices = read_objects(value, "choices")
    choice = choices[0] if choices else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        raise build_unreadable_error(who, body)
    answer.note_response(value)
    fields = cast(dict[str, Any], message)
    _add_content(answer, fields)
    for call in read_objects(fields, "tool_calls") or _find_legacy_call(fields):
        answer.calls.add_complete(call)
    answer.finish_reason = read_text(choice, "finish_reason") or "stop"
    _check_finish(who, choice, answer.finish_reason, tools=tools, begun=True)
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
    if isinstance(content, list):
        for part in read_objects(fields, "content"):
            _add_part(answer, part)
    elif content:
        answer.add_text(read_text(fields, "content"))
    refused = read_text(fields, "refusal")
    if refused:
        answer.add_text(refused)


def _add_part(answer: AnswerBuilder, part: dict[str, Any]) -> None:
    text = read_text(part, "text")
    if text:
        answer.add_text(text)
    for thought in objects_in(part.get("thinking")):
        piece = thought.get("text")
        if isinstance(piece, str) and piece:
            answer.add_reasoning(piece)


def _check_finish(
    who: str, choice: Mapping[str, Any], reason: str, *, tools: bool, begun: bool
) -> None:
    """Raise ProviderError for an answer that the server broke off."""
    if reason in FAILED_REASONS:
        error = {"message": f"the answer ended with `{reason}`"}
        raise error_from_object(who, error, tools=tools, begun=begun)


def _find_legacy_call(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the one call of `function_call`, which older servers have for `tool_calls`."""
    call = read_object(fields, "function_call")
    return [{"index": 0, "function": call}] if call else []
