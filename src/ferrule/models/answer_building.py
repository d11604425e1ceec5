"""Building an answer from its pieces: text, reasoning, calls, usage, and why it ended.

Shared by every client of the chat-completions family. What servers really send, and how it is read:

* calls come by `index`, by `id`, by neither, in pieces or complete, in any chunk;
* the name comes once, in every delta, or in pieces: it is never doubled;
* arguments are pieces of a string (joined once, at the end) or an object (compact JSON);
* two calls with the same index but different ids are two calls.

Nothing is repaired here, and nothing that was cut off is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, cast

from jiter import from_json

from ferrule.core.calls import ToolCall, encode_json, parse_json
from ferrule.core.events import ModelAnswered, ProviderToolCall, Usage
from ferrule.core.value_class import mutable
from ferrule.core.vocabulary import AnswerStop

from .answer_fields import build_field_error, read_object, read_place, read_text
from .client import Sink

STOP_REASONS: dict[str, AnswerStop] = {
    "stop": "end",
    "end_turn": "end",
    "eos": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "filter",
    "refusal": "filter",
}
"""A provider's finish reason as `ModelAnswered.stop`; anything else counts as `end`."""


@mutable
class PartialCall:
    """A call that is still arriving.

    Attributes:
        id: What the provider calls it.
        name: The tool, as it was sent.
        number: Its place among the calls of the answer, from 0.
        pieces: The parts of its arguments' JSON text.
    """

    id: str = ""
    name: str = ""
    number: int = 0
    pieces: list[str] = field(default_factory=list[str])

    def is_complete(self) -> bool:
        """Return whether the arguments so far are a complete JSON object."""
        if not self.pieces or not self.pieces[-1].endswith("}"):
            return False
        try:
            return isinstance(parse_json("".join(self.pieces)), dict)
        except ValueError:
            return False

    def repeats(self, arguments: object) -> bool:
        """Return whether the arguments are a complete object and come once more."""
        return arguments == "".join(self.pieces) and self.is_complete()


class PairJoiner:
    """Passes pieces of texts on as whole characters: half of a surrogate pair waits for the other.

    It is called as its receiver is, with the piece last. What stands before the piece tells texts
    apart.
    """

    def __init__(self, receive: Callable[..., None]) -> None:
        self._receive = receive
        self._halves: dict[tuple[Any, ...], str] = {}

    def __call__(self, *given: Any) -> None:
        text = given[:-1]
        piece = self._halves.pop(text, "") + given[-1]
        if "\ud800" <= piece[-1:] <= "\udbff":
            self._halves[text] = piece[-1]
            piece = piece[:-1]
        if piece:
            self._receive(*text, join_surrogates(piece))

    def flush(self) -> None:
        """Pass on what waits, since nothing follows."""
        while self._halves:
            text, half = self._halves.popitem()
            self._receive(*text, join_surrogates(half))


class CallBuilder:
    """Collects streamed call deltas into calls, in order of first appearance."""

    def __init__(self) -> None:
        self.on_arguments: Callable[[int, str, str], None] | None = None
        """Receives every piece of arguments: the call's number, its tool, the piece."""
        self._calls: list[PartialCall] = []
        self._by_index: dict[int, PartialCall] = {}
        self._by_id: dict[str, PartialCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, delta: Mapping[str, Any]) -> None:
        """Add one element of `tool_calls`, complete or partial.

        Raises:
            ProviderError: `not_understood`, a field is not what it should be.
        """
        index = delta.get("index")
        function: Mapping[str, Any] = read_object(delta, "function") or delta
        arguments: Any = function.get("arguments")
        id = delta.get("id")
        name = function.get("name")
        call = self._by_index.get(index) if type(index) is int else None
        if call is None or id or name:
            place = read_place(delta, "index")
            call = self._find_or_create(
                call, place, _string_or_empty(id), read_text(function, "name"), arguments
            )
            if id and name and call.repeats(arguments):
                return  # gateways send a call whole that they have streamed
        if type(arguments) is str:
            if arguments:
                call.pieces.append(arguments)
                if self.on_arguments is not None:
                    self.on_arguments(call.number, call.name, arguments)
        elif arguments is not None:
            call.pieces.append(_spell_arguments(function))

    def add_complete(self, delta: Mapping[str, Any]) -> None:
        """Add a complete call: always a new one, whatever its id and index.

        Raises:
            ProviderError: `not_understood`, a field is not what it should be.
        """
        fields = read_object(delta, "function") or delta
        id = _string_or_empty(delta.get("id"))
        call = PartialCall(id, read_text(fields, "name"), len(self._calls))
        if fields.get("arguments") is not None:
            call.pieces.append(_spell_arguments(fields))
        self._calls.append(call)

    def _find_or_create(
        self, call: PartialCall | None, index: int | None, id: str, name: str, arguments: object
    ) -> PartialCall:
        """Return the call that a delta belongs to, creating it if it is a new one."""
        indexed = index is not None
        if call is None and not indexed:
            if id:
                call = self._by_id.get(id)
            elif self._calls:
                call = self._calls[-1]
        if call is not None and self._starts_new_call(call, indexed, id, name, arguments):
            call = None
        if call is None:
            call = PartialCall(number=len(self._calls))
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        if id and not call.id:
            call.id = id
            self._by_id[id] = call
        _merge_name(call, name)
        return call

    @staticmethod
    def _starts_new_call(
        call: PartialCall, indexed: bool, id: str, name: str, arguments: object
    ) -> bool:
        """Return whether a delta that points at `call` really starts another one."""
        if not name:
            return False
        if id and call.id and id != call.id:
            return True
        if id and id == call.id:
            return False
        if not call.pieces:
            # Nothing but a name so far: without an index a second, different name is a second call.
            return not indexed and bool(call.name) and name != call.name
        starts_object = isinstance(arguments, Mapping) or (
            isinstance(arguments, str) and arguments[:1] == "{"
        )
        if starts_object and call.is_complete():
            return True
        return name != call.name and not name.startswith(call.name)

    def build(self, names: Mapping[str, str], *, cut: bool) -> tuple[ToolCall, ...]:
        """Return the collected calls.

        Args:
            names: Maps the names that were sent back to tool names.
            cut: Whether the answer was cut off; missing arguments then stay empty.

        Raises:
            ProviderError: `not_understood`, a piece belongs to no call.
        """
        for call in self._calls:
            if len(self._calls) > 1 and call.pieces and not call.id and not call.name:
                piece = "".join(call.pieces)
                raise build_field_error("arguments", "a piece of a call with a name", piece)
        empty = "" if cut else "{}"
        return tuple(
            ToolCall(
                call.id,
                names.get(call.name, call.name),
                join_surrogates("".join(call.pieces)) or empty,
            )
            for call in self._calls
        )


def _spell_arguments(fields: Mapping[str, Any]) -> str:
    arguments = fields.get("arguments")
    return encode_json(arguments) if isinstance(arguments, dict) else read_text(fields, "arguments")


def _merge_name(call: PartialCall, name: str) -> None:
    if name.startswith(call.name):
        call.name = name
    elif name and not call.pieces:
        call.name += name


def join_surrogates(text: str) -> str:
    """Join the halves of surrogate pairs. A half that stays alone becomes U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _string_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


@mutable
class AnswerBuilder:
    """An answer being built. `on_text` and `on_reasoning` receive every piece as it is added.

    Some servers cut an emoji into the halves of a surrogate pair, in two pieces. The lists keep
    such pieces as they came, and `end` joins them. Only an event that jiter refuses can have half a
    pair, so `read_json` puts a `PairJoiner` before the receivers once one came; before, a piece
    costs nothing more.
    """

    on_text: Callable[[str], None] | None = None
    on_reasoning: Callable[[str], None] | None = None
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: CallBuilder = field(default_factory=CallBuilder)
    usage: Usage = Usage()
    finish_reason: str = ""
    response_id: str = ""
    response_model: str = ""
    joiners: list[PairJoiner] = field(default_factory=list[PairJoiner])

    @classmethod
    def for_sink(cls, sink: Sink | None) -> AnswerBuilder:
        """Return an answer whose pieces go to the sink, if there is one."""
        if sink is None:
            return cls()
        answer = cls(sink.add_text, sink.add_reasoning)
        answer.calls.on_arguments = sink.add_arguments
        return answer

    @property
    def has_begun(self) -> bool:
        """Whether any part of the answer has come: its receivers may have it."""
        return bool(self.text or self.reasoning or len(self.calls))

    def read_json(self, data: bytes | str) -> Any:
        """Parse a part of the answer.

        jiter parses a delta in about a microsecond. What it refuses (half of a surrogate pair) goes
        to the standard library.

        Raises:
            ValueError: It is not JSON.
        """
        try:
            return from_json(data.encode() if isinstance(data, str) else data)
        except ValueError:
            pass
        # As text: the library would take other codings than UTF-8 as well.
        value = parse_json(data if isinstance(data, str) else data.decode())
        self.on_text = self._before(self.on_text)
        self.on_reasoning = self._before(self.on_reasoning)
        self.calls.on_arguments = self._before(self.calls.on_arguments)
        return value

    def _before(self, receive: Callable[..., None] | None) -> Callable[..., None] | None:
        """Return what joins pairs before a receiver."""
        if receive is None or isinstance(receive, PairJoiner):
            return receive
        self.joiners.append(PairJoiner(receive))
        return self.joiners[-1]

    def add_text(self, piece: str) -> None:
        self.text.append(piece)
        if self.on_text:
            self.on_text(piece)

    def add_reasoning(self, piece: str) -> None:
        self.reasoning.append(piece)
        if self.on_reasoning:
            self.on_reasoning(piece)

    def note_response(self, fields: Mapping[str, Any]) -> None:
        """Remember the id and the model that a part of an answer has, if it has them."""
        id = fields.get("id")
        model = fields.get("model")
        if isinstance(id, str) and id:
            self.response_id = id[:200]
        if isinstance(model, str) and model:
            self.response_model = model[:200]

    def build(self, names: Mapping[str, str]) -> ModelAnswered:
        """Return the complete answer.

        A provider that says `stop` but made calls is believed about the calls.
        """
        stop = STOP_REASONS.get(self.finish_reason, "end")
        calls = self.calls.build(names, cut=stop == "length")
        if stop in ("end", "calls"):
            stop = "calls" if calls else "end"
        return self.end(calls, self.usage, stop)

    def end(
        self,
        calls: tuple[ToolCall, ...],
        usage: Usage,
        stop: AnswerStop,
        provider_calls: tuple[ProviderToolCall, ...] = (),
        raw: str | None = None,
    ) -> ModelAnswered:
        """Return the complete answer with what a client collected itself."""
        for joiner in self.joiners:
            joiner.flush()
        return ModelAnswered(
            join_surrogates("".join(self.text)),
            calls,
            join_surrogates("".join(self.reasoning)),
            usage,
            stop,
            raw=raw,
            provider_calls=provider_calls,
            response_id=self.response_id,
            response_model=self.response_model,
        )


def drop_calls(answer: ModelAnswered, notice: Callable[[str, str], None]) -> ModelAnswered:
    """Return the answer without its calls, of a model that was told not to make any."""
    if not answer.calls:
        return answer
    notice("fallback", f"{len(answer.calls)} calls were dropped: the model was asked for text only")
    return replace(answer, calls=(), stop="end" if answer.stop == "calls" else answer.stop)


_CACHED_TOKENS = ("cached_tokens", "prompt_cache_hit_tokens")
_WRITTEN_TOKENS = ("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens")
"""What OpenRouter, LiteLLM and DashScope call the tokens that were written to the cache."""


_MOST_TOKENS = 10**12
"""No answer has this many: a larger count is none, and could not be added up or stored."""


def parse_usage(value: Mapping[str, Any]) -> Usage:
    """Read `usage` of chat completions. Servers name the tokens of their caches differently."""
    details = value
    if value.get("prompt_tokens_details"):
        details = {**value, **_read_object(value["prompt_tokens_details"])}
    reasoning = _read_object(value.get("completion_tokens_details")).get("reasoning_tokens")
    return Usage(
        input=token_count(value.get("prompt_tokens")),
        output=token_count(value.get("completion_tokens")),
        cached=_find_count(details, _CACHED_TOKENS),
        written=_find_count(details, _WRITTEN_TOKENS),
        reasoning=token_count(reasoning),
    )


def _find_count(details: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """Return the first count under these names that is not 0."""
    for name in names:
        if name in details:
            count = token_count(details[name])
            if count:
                return count
    return 0


def _read_object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def token_count(value: object) -> int:
    """Return a token count; 0 for anything that is not one, such as an infinity."""
    if not isinstance(value, (int, float)) or not 0 < value < _MOST_TOKENS:
        return 0
    return int(value)


def objects_in(value: object) -> list[dict[str, Any]]:
    """Return the objects of a JSON array; none if it is not an array.

    Servers put surprising things there.
    """
    items = cast(list[Any], value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]
