"""Folding an answer together from its pieces: text, reasoning, calls, usage, why it ended.

Used by every wire of the chat-completions family. What servers really send, and what is made of it:

* calls come by `index`, by `id`, by neither, in pieces or whole, in any chunk;
* the name comes once, in every delta, or in pieces: it is never doubled;
* arguments are pieces of a string (joined once, at the end) or an object (compact JSON);
* two calls under the same index but different ids are two calls.

Nothing is repaired here, and nothing that was cut off is completed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ferrule.core.calls import Call, compact
from ferrule.core.events import ModelAnswered, Usage

STOPS = {
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
"""A provider's reason to stop as `ModelAnswered.stop`; what is not listed counts as `end`."""


@dataclass(slots=True)
class OpenCall:
    """A call on its way. `pieces` is the arguments' JSON text so far."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])

    def looks_whole(self) -> bool:
        """Whether the arguments so far are an object and nothing is missing."""
        if not self.pieces or not self.pieces[-1].endswith("}"):
            return False
        try:
            return isinstance(json.loads("".join(self.pieces)), dict)
        except (ValueError, RecursionError):
            return False


class CallFold:
    """Streamed call deltas in, calls out, in order of first appearance."""

    def __init__(self) -> None:
        self._calls: list[OpenCall] = []
        self._by_index: dict[int, OpenCall] = {}
        self._by_id: dict[str, OpenCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, delta: Mapping[str, Any]) -> None:
        """One element of `tool_calls`, whole or in part. Fields of the wrong kind count as
        absent.
        """
        index = delta.get("index")
        function = delta.get("function")
        if type(function) is not dict:
            function = delta
        function = cast(dict[str, Any], function)
        arguments = function.get("arguments")
        call = self._by_index.get(index) if type(index) is int else None
        id, name = delta.get("id"), function.get("name")
        if not (call is not None and not id and not name):
            call = self._find(call, index, _text(id), _text(name), arguments)
        if type(arguments) is str:
            if arguments:
                call.pieces.append(arguments)
        elif arguments is not None:
            call.pieces.append(compact(arguments))

    def add_whole(self, delta: Mapping[str, Any]) -> None:
        """A call that is all there: always a new one, whatever its id and index."""
        function: Any = delta.get("function")
        fields: Mapping[str, Any] = (
            cast(dict[str, Any], function) if isinstance(function, dict) else delta
        )
        call = OpenCall(_text(delta.get("id")), _text(fields.get("name")))
        arguments = fields.get("arguments")
        if arguments is not None:
            call.pieces.append(arguments if isinstance(arguments, str) else compact(arguments))
        self._calls.append(call)

    def _find(
        self, call: OpenCall | None, index: object, id: str, name: str, arguments: object
    ) -> OpenCall:
        """The call that a delta belongs to, begun if it is a new one."""
        indexed = isinstance(index, int)
        if call is None and not indexed:
            call = self._by_id.get(id) if id else (self._calls[-1] if self._calls else None)
        if call is not None and self._begins(call, indexed, id, name, arguments):
            call = None
        if call is None:
            call = OpenCall()
            self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        if id and not call.id:
            call.id = id
            self._by_id[id] = call
        _name(call, name)
        return call

    @staticmethod
    def _begins(call: OpenCall, indexed: bool, id: str, name: str, arguments: object) -> bool:
        """Whether a delta that points at `call` really opens another one."""
        if not name:
            return False
        if id and call.id and id != call.id:
            return True
        if id and id == call.id:
            return False
        if not call.pieces:
            # Nothing but a name so far: without an index a second, different name is a second call.
            return not indexed and bool(call.name) and name != call.name
        opens = isinstance(arguments, Mapping) or (
            isinstance(arguments, str) and arguments[:1] == "{"
        )
        return (opens and call.looks_whole()) or (
            name != call.name and not name.startswith(call.name)
        )

    def calls(self, names: Mapping[str, str], *, cut: bool) -> tuple[Call, ...]:
        """What was folded. `names` maps wire names back; `cut` keeps missing arguments missing."""
        empty = "" if cut else "{}"
        return tuple(
            Call(call.id, names.get(call.name, call.name), mend("".join(call.pieces)) or empty)
            for call in self._calls
        )


def _name(call: OpenCall, name: str) -> None:
    if name.startswith(call.name):
        call.name = name
    elif name and not call.pieces:
        call.name += name


def mend(text: str) -> str:
    """Surrogate halves put together; a half that stays alone becomes U+FFFD. Other text as it
    is.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


@dataclass(slots=True)
class Answer:
    """An answer being folded. `on_text` and `on_reasoning` hear every piece as it is added."""

    on_text: Callable[[str], None] | None = None
    on_reasoning: Callable[[str], None] | None = None
    text: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    calls: CallFold = field(default_factory=CallFold)
    usage: Usage = Usage()
    finish: str = ""

    def say(self, piece: str) -> None:
        self.text.append(piece)
        if self.on_text:
            self.on_text(piece)

    def think(self, piece: str) -> None:
        self.thoughts.append(piece)
        if self.on_reasoning:
            self.on_reasoning(piece)

    def answered(self, names: Mapping[str, str]) -> ModelAnswered:
        """The whole answer. A provider that says `stop` but made calls is believed about the
        calls.
        """
        stop = STOPS.get(self.finish, "end")
        calls = self.calls.calls(names, cut=stop == "length")
        if stop in ("end", "calls"):
            stop = "calls" if calls else "end"
        return ModelAnswered("".join(self.text), calls, "".join(self.thoughts), self.usage, stop)


def without_calls(answer: ModelAnswered, notice: Callable[[str, str], None]) -> ModelAnswered:
    """The answer of a model that was not to call anything and may have done so all the same."""
    if not answer.calls:
        return answer
    notice(
        "fallback", f"{len(answer.calls)} calls were left out: the model was asked for words only"
    )
    return replace(answer, calls=(), stop="end" if answer.stop == "calls" else answer.stop)


def parse_usage(value: Mapping[str, Any]) -> Usage:
    """`usage` of the chat-completions format; the cached part as OpenAI and as DeepSeek name it."""
    details: Any = value.get("prompt_tokens_details")
    cached: Any = (
        cast(dict[str, Any], details).get("cached_tokens") if isinstance(details, dict) else None
    )
    return Usage(
        counted(value.get("prompt_tokens")),
        counted(value.get("completion_tokens")),
        counted(cached if cached is not None else value.get("prompt_cache_hit_tokens")),
    )


def counted(value: object) -> int:
    """A number of tokens; 0 for anything else."""
    return int(value) if isinstance(value, (int, float)) and value > 0 else 0


def dicts(value: object) -> list[dict[str, Any]]:
    """The objects of a JSON array; none if it is no array. Servers put surprising things there."""
    items = cast(list[Any], value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]
