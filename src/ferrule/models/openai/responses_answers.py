"""Answers of the Responses API, whole or streamed, into items as they were sent and an answer made
of them.

Source: OpenAI's API reference (`POST /responses`, its items and its streaming events) and the types
of its SDK, which the golden files are made from. Words are heard from deltas; what is kept of an
item is the text of its last event (`response.output_item.done`), never put together from deltas, so
encrypted reasoning and the items of hosted tools go back as they came. Items and events that are
not known here are kept or passed over.
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
from ferrule.models.hosted_tools import approval_call, provider_call
from ferrule.models.provider_errors import error_inside

_PARAGRAPH = "\n\n"
_OWN_CALLS = ("function_call", "custom_tool_call")
_APPROVAL = "mcp_approval_request"


@dataclass(slots=True)
class Item:
    """One item of an output. `text` is its JSON, empty while it is open; `heard` says that words of
    it were said.
    """

    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    text: str = ""
    pieces: list[str] = field(default_factory=list[str])
    heard: bool = False

    @property
    def type(self) -> str:
        return str(self.fields.get("type", ""))

    @property
    def arguments(self) -> str:
        """The arguments of a call as JSON text; a custom tool's are its text under `input`."""
        if self.type == "custom_tool_call":
            given: Any = self.fields.get("input")
            return compact({"input": given if given and self.text else "".join(self.pieces)})
        given = self.fields.get("arguments")
        if isinstance(given, str) and (given or not self.pieces):
            return mend(given)
        return compact(given) if isinstance(given, dict) else mend("".join(self.pieces))

    def json(self) -> str:
        """The item as it is to be sent back. One that never ended is left with what it began
        with.
        """
        return self.text or compact(
            self.fields | ({"arguments": self.arguments} if self.pieces else {})
        )


@dataclass(slots=True)
class Output:
    """An answer being folded."""

    answer: Answer
    items: dict[int, Item] = field(default_factory=dict[int, Item])
    status: str = ""
    reason: str = ""
    refused: bool = False
    places: dict[str, int] = field(default_factory=dict[str, int])

    def item(self, event: Mapping[str, Any]) -> Item:
        """The item that an event is about: by its place in the output, or by its id where a server
        (llama.cpp) leaves the place out; a new one where there is none.
        """
        place: Any = event.get("output_index")
        if type(place) is not int:
            began: Any = event.get("item")
            named: Any = cast(dict[str, Any], began).get("id") if isinstance(began, dict) else None
            name = str(event.get("item_id") or named or "")
            place = self.places.setdefault(name, len(self.items))
        return self.items.setdefault(place, Item())

    def ordered(self) -> list[Item]:
        """The items in the order of the output."""
        return [self.items[place] for place in sorted(self.items)]

    def content(self) -> str:
        """The items as a JSON array."""
        return "[" + ",".join(item.json() for item in self.ordered()) + "]"

    def answered(self, names: Mapping[str, str]) -> ModelAnswered:
        """The whole answer, without `raw`."""
        items = self.ordered()
        cut = self.status == "incomplete" and self.reason != "content_filter"
        calls = tuple(
            _call(item, names, cut) for item in items if item.type in (*_OWN_CALLS, _APPROVAL)
        )
        stop = "calls" if calls else "end"
        if cut:
            stop = "length"
        elif self.reason == "content_filter" or (self.refused and not calls):
            stop = "filter"
        text, thoughts = "".join(self.answer.text), "".join(self.answer.thoughts)
        made = tuple(_provider_calls(items, names))
        return ModelAnswered(text, calls, thoughts, self.answer.usage, stop, provider_calls=made)

    def sealed(self, wire: str, answered: ModelAnswered, spelled: str) -> ModelAnswered:
        """The answer with its items in `raw`, unless they are `spelled` from the message itself in
        the same bytes.

        A cut answer may end in reasoning without what it was for, which the API refuses: then
        nothing is kept.
        """
        items, content = self.ordered(), self.content()
        whole = bool(items) and items[-1].type != "reasoning" and all(item.text for item in items)
        if answered.stop == "filter" or not whole or content == spelled:
            return answered
        return replace(answered, raw=seal(wire, [call.id for call in answered.calls], content))


class StreamFold:
    """Folds the events of one stream into an output. `done` once the response has ended in one of
    its ways.
    """

    def __init__(self, output: Output, who: str, *, tools: bool) -> None:
        self.done = False
        self._output = output
        self._answer = output.answer
        self._who = who
        self._tools = tools

    @property
    def whole(self) -> bool:
        """Whether nothing of the answer is missing."""
        return self.done

    def add(self, events: list[bytes]) -> None:
        """Take events in. Raises ProviderError for an error event or for what is no JSON."""
        texts, on_text, items = self._answer.text, self._answer.on_text, self._output.items
        for event in events:
            if event == b"[DONE]":
                continue
            try:
                value: Any = from_json(event)
                piece: Any = (
                    value["delta"] if value["type"] == "response.output_text.delta" else None
                )
                item = items.get(value.get("output_index")) if piece else None
            except (ValueError, LookupError, TypeError, AttributeError):
                self._other(event)
                if self.done:
                    return
                continue
            if item is not None and item.heard and type(piece) is str:
                texts.append(piece)
                if on_text:
                    on_text(piece)
            else:
                self._event(cast(dict[str, Any], value), event)
                if self.done:
                    return

    def finished(self) -> None:
        """The stream has ended. Raises `interrupted` if the server never said so."""
        if not self.done:
            detail = f"{self._who}: the stream ended in the middle of the answer"
            raise ProviderError(detail, code="interrupted", retryable=False)

    def _other(self, event: bytes) -> None:
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
        output = self._output
        match value.get("type"):
            case "response.output_item.added":
                self._added(value)
            case "response.output_item.done":
                self._ended(value, event)
            case "response.output_text.delta" | "response.refusal.delta":
                self._words(value)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._thought(value)
            case "response.reasoning_summary_part.added":
                if value.get("summary_index"):
                    self._answer.think(_PARAGRAPH)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                if isinstance(piece := value.get("delta"), str):
                    output.item(value).pieces.append(piece)
            case "response.completed" | "response.incomplete" | "response.failed":
                self.done = True
                _response(output, value.get("response"), self._who, tools=self._tools)
            case "error":
                raise self._error(value.get("error") or value)
            case _:
                if error := value.get("error"):
                    raise self._error(error)

    def _error(self, said: object) -> ProviderError:
        """Before the first item a busy server may be asked again."""
        error = error_inside(self._who, said, tools=self._tools)
        error.retryable = not self._output.items and error.code in ("overloaded", "rate_limited")
        return error

    def _words(self, value: dict[str, Any]) -> None:
        piece, item = value.get("delta"), self._output.item(value)
        if isinstance(piece, str) and piece:
            if not item.heard and self._answer.text:
                self._answer.say(_PARAGRAPH)
            item.heard = True
            self._output.refused |= value.get("type") == "response.refusal.delta"
            self._answer.say(mend(piece))

    def _thought(self, value: dict[str, Any]) -> None:
        piece, item = value.get("delta"), self._output.item(value)
        if isinstance(piece, str) and piece:
            if not item.heard and self._answer.thoughts:
                self._answer.think(_PARAGRAPH)
            item.heard = True
            self._answer.think(mend(piece))

    def _added(self, value: dict[str, Any]) -> None:
        item = self._output.item(value)
        if isinstance(fields := value.get("item"), dict) and not item.text:
            item.fields = cast(dict[str, Any], fields)

    def _ended(self, value: dict[str, Any], event: bytes) -> None:
        item = self._output.item(value)
        if isinstance(fields := value.get("item"), dict):
            item.fields = cast(dict[str, Any], fields)
            item.text = members(event.decode("utf-8", "replace"))["item"]
            if not item.heard:
                _heard(self._output, item)


def fold_whole(output: Output, body: bytes, who: str, *, tools: bool) -> None:
    """A response that came in one piece. Raises ProviderError."""
    text = body.decode("utf-8", "replace")
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    fields: dict[str, Any] = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    if not isinstance(fields.get("output"), list) and not fields.get("error"):
        detail = f"{who} sent no answer that can be understood: {text[:200]}"
        raise ProviderError(detail, code="not_understood", retryable=False)
    _response(output, fields, who, tools=tools)
    for place, spelled in enumerate(elements(members(text).get("output", "[]"))):
        item = output.items[place] = Item(json.loads(spelled), spelled)
        _heard(output, item)


def _response(output: Output, said: object, who: str, *, tools: bool) -> None:
    """How a response ended and what it cost. Raises ProviderError for one that failed."""
    fields: dict[str, Any] = cast(dict[str, Any], said) if isinstance(said, dict) else {}
    if error := fields.get("error"):
        raise error_inside(who, error, tools=tools)
    output.status = str(fields.get("status") or "completed")
    if output.status in ("failed", "cancelled"):
        raise ProviderError(
            f"{who}: the response {output.status}", code="provider", retryable=False
        )
    details: Any = fields.get("incomplete_details")
    if isinstance(details, dict):
        output.reason = str(cast(dict[str, Any], details).get("reason") or "")
    if isinstance(usage := fields.get("usage"), dict):
        output.answer.usage = parse_usage(cast(dict[str, Any], usage))


def parse_usage(value: Mapping[str, Any]) -> Usage:
    """`usage` of the Responses API."""
    read, wrote = _part(value, "input_tokens_details"), _part(value, "output_tokens_details")
    return Usage(
        counted(value.get("input_tokens")),
        counted(value.get("output_tokens")),
        counted(read.get("cached_tokens")),
        counted(read.get("cache_write_tokens")),
        counted(wrote.get("reasoning_tokens")),
    )


def _part(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = value.get(name)
    return cast(dict[str, Any], part) if isinstance(part, dict) else {}


def _heard(output: Output, item: Item) -> None:
    """Say the words of an item that were not heard while it came."""
    answer = output.answer
    if item.type == "message":
        before = bool(answer.text)
        for part in dicts(item.fields.get("content")):
            output.refused |= part.get("type") == "refusal"
            if isinstance(piece := part.get("text") or part.get("refusal"), str) and piece:
                answer.say((_PARAGRAPH if before else "") + mend(piece))
                before = False
    elif item.type == "reasoning":
        for thought in dicts(item.fields.get("summary")) + dicts(item.fields.get("content")):
            if isinstance(piece := thought.get("text"), str) and piece:
                answer.think((_PARAGRAPH if answer.thoughts else "") + mend(piece))


def _call(item: Item, names: Mapping[str, str], cut: bool) -> Call:
    if item.type == _APPROVAL:
        return approval_call(item.fields)
    name = str(item.fields.get("name") or "")
    id = str(item.fields.get("call_id") or "")
    return Call(id, names.get(name, name), item.arguments or ("" if cut else "{}"))


def _provider_calls(items: list[Item], names: Mapping[str, str]) -> list[ProviderToolCall]:
    """What the provider carried out itself. `names` are wire names to full names."""
    made: list[ProviderToolCall] = []
    for item in items:
        fields, hosted = item.fields, item.type.endswith("_call") and item.type not in _OWN_CALLS
        if hosted or item.type in ("mcp_list_tools", "program"):
            name = str(fields.get("name") or item.type.removesuffix("_call"))
            server = fields.get("server_label")
            full = f"{server}.{name}" if server else name
            failed = "failed" if fields.get("error") else "completed"
            made.append(provider_call(fields, full, str(fields.get("status") or failed)))
            if item.type == "tool_search_call":
                made[-1] = replace(made[-1], arguments=item.arguments)
        elif item.type == "tool_search_output":
            _take_found(made, item, names)
    return made


def _take_found(made: list[ProviderToolCall], output: Item, names: Mapping[str, str]) -> None:
    """Put what a search found to its call: the one that it names, else the last one before it."""
    called = output.fields.get("call_id")
    for place in range(len(made) - 1, -1, -1):
        one = made[place]
        if one.provider_tool_type == "tool_search_call" and called in (None, one.call_id):
            found = [name for tool in dicts(output.fields.get("tools")) for name in _names_in(tool)]
            made[place] = replace(one, references=tuple(names.get(name, name) for name in found))
            return


def _names_in(tool: Mapping[str, Any]) -> list[str]:
    """The names of a tool, or of all in a namespace."""
    if tool.get("type") == "namespace":
        return [name for one in dicts(tool.get("tools")) for name in _names_in(one)]
    return [str(tool.get("name"))] if tool.get("name") else []
