"""Chat-completions answers, whole or streamed, into an `Answer`. The hot path of every stream is
here.

jiter parses a delta in about a microsecond; what it refuses (half of a surrogate pair, which some
servers cut an emoji into) goes to the standard library, and the halves are put together again here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from jiter import from_json

from ferrule.core.errors import ProviderError
from ferrule.models.answer_folding import Answer, dicts, mend, parse_usage
from ferrule.models.client import Sink
from ferrule.models.provider_errors import error_inside
from ferrule.models.request_encoding import json_object


class StreamFold:
    """Folds the events of one stream. `done` once the server has said `[DONE]`."""

    def __init__(self, answer: Answer, who: str, *, tools: bool) -> None:
        self.done = False
        self._answer = answer
        self._who = who
        self._tools = tools
        self._half = ""

    @property
    def whole(self) -> bool:
        """Whether the server said why the answer ended. Only its usage may follow, and some never
        send `[DONE]`.
        """
        return self.done or bool(self._answer.finish)

    def add(self, events: list[bytes]) -> None:
        """Take events in. Raises ProviderError for an error object or for what is no JSON."""
        answer = self._answer
        texts, on_text, add_call = answer.text, answer.on_text, answer.calls.add
        for event in events:
            if event == b"[DONE]":
                self.done = True
                return
            try:
                chunk: Any = from_json(event)
                choice: Any = chunk["choices"][0]
                delta: Any = choice["delta"]
                plain = len(delta) == 1 and not choice.get("finish_reason") and not self._half
                piece: Any = delta.get("content") if plain else None
                calls: Any = delta.get("tool_calls") if plain else None
            except (ValueError, LookupError, TypeError, AttributeError):
                self._unusual(event)
                continue
            if piece and type(piece) is str:
                texts.append(piece)
                if on_text:
                    on_text(piece)
            elif calls:
                for call in dicts(calls):
                    add_call(call)
            else:
                self._chunk(chunk)

    def finished(self) -> Answer:
        """The answer, once the stream has ended. Raises `interrupted` if the server never said that
        it was over: a call that is missing its end must not look like a whole one.
        """
        self._flush_half()
        if not self.whole:
            raise ProviderError(
                f"{self._who}: the stream ended in the middle of the answer",
                code="interrupted",
                retryable=False,
            )
        return self._answer

    def _unusual(self, event: bytes) -> None:
        """No choices (usage, a keep-alive), an error, a broken character, or no JSON at all."""
        if not event.strip():
            return
        try:
            chunk: Any = json.loads(event)
        except (ValueError, RecursionError) as problem:
            shown = event[:200].decode("utf-8", "replace")
            detail = f"{self._who} sent an event that is not JSON: {shown}"
            raise ProviderError(detail, code="not_understood", retryable=False) from problem
        if isinstance(chunk, dict):
            self._chunk(cast(dict[str, Any], chunk))

    def _chunk(self, chunk: dict[str, Any]) -> None:
        if error := chunk.get("error"):
            raise error_inside(self._who, error, tools=self._tools)
        if isinstance(usage := chunk.get("usage"), dict):
            self._answer.usage = parse_usage(cast(dict[str, Any], usage))
        choice = _first_choice(chunk)
        if isinstance(finish := choice.get("finish_reason"), str) and finish:
            self._answer.finish = finish
        delta = choice.get("delta")
        if isinstance(delta, dict):
            fields = cast(dict[str, Any], delta)
            _words(self._answer, fields, self._say)
            for call in dicts(fields.get("tool_calls")):
                self._answer.calls.add(call)

    def _say(self, piece: str) -> None:
        piece, self._half = self._half + piece, ""
        if "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        if piece:
            self._answer.say(mend(piece))

    def _flush_half(self) -> None:
        if self._half:
            half, self._half = self._half, ""
            self._answer.say(mend(half))


def fold_whole(body: bytes, who: str, *, tools: bool, sink: Sink | None = None) -> Answer:
    """An answer that came in one piece; a sink hears it in one piece. Raises ProviderError."""
    answer = Answer(sink.text, sink.reasoning) if sink else Answer()
    value = _parsed(body)
    if error := value.get("error"):
        raise error_inside(who, error, tools=tools)
    choice = _first_choice(value)
    message = choice.get("message")
    if not isinstance(message, dict):
        shown = body[:200].decode("utf-8", "replace")
        raise ProviderError(
            f"{who} sent no answer that can be understood: {shown}",
            code="not_understood",
            retryable=False,
        )
    fields = cast(dict[str, Any], message)
    _words(answer, fields, answer.say)
    for call in dicts(fields.get("tool_calls")):
        answer.calls.add_whole(call)
    finish = choice.get("finish_reason")
    answer.finish = finish if isinstance(finish, str) else "stop"
    if isinstance(usage := value.get("usage"), dict):
        answer.usage = parse_usage(cast(dict[str, Any], usage))
    return answer


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        value: Any = from_json(body)
    except ValueError:
        return json_object(body)
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _words(answer: Answer, fields: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Reasoning under any of its names, then text; `content` may be a list of parts."""
    for name in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(piece := fields.get(name), str) and piece:
            answer.think(mend(piece))
            break
    content = fields.get("content")
    if isinstance(content, str) and content:
        say(content)
    for part in dicts(content):
        _part(answer, part, say)
    if isinstance(refused := fields.get("refusal"), str) and refused:
        say(refused)


def _part(answer: Answer, part: dict[str, Any], say: Callable[[str], None]) -> None:
    if isinstance(text := part.get("text"), str) and text:
        say(text)
    for thought in dicts(part.get("thinking")):
        if isinstance(piece := thought.get("text"), str) and piece:
            answer.think(mend(piece))


def _first_choice(value: Mapping[str, Any]) -> dict[str, Any]:
    found = dicts(value.get("choices"))
    return found[0] if found else {}
