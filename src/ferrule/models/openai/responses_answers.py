"""Parsing answers of the Responses API, complete or streamed, into items and an answer.

Source: OpenAI's API reference (`POST /responses`, its items and its streaming events) and the types
of its SDK, which the golden files are made from. Text is streamed from deltas. What is kept of an
item is the text of its last event (`response.output_item.done`), never put together from deltas, so
encrypted reasoning and the items of hosted tools go back as they came. Unknown items and events are
kept or ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from jiter import from_json

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, ProviderToolCall, Usage
from ferrule.models.answer_building import AnswerBuilder, join_surrogates, objects_in, token_count
from ferrule.models.answer_fields import (
    build_field_error,
    read_object,
    read_objects,
    read_place,
    read_text,
)
from ferrule.models.hosted_tools import make_approval_call, record_provider_call
from ferrule.models.provider_errors import build_unreadable_error, error_from_object, find_error
from ferrule.models.verbatim_json import seal, split_elements, split_members

from .tool_types import TYPED_CALLS, is_typed_call, read_typed_arguments

_PARAGRAPH = "\n\n"
_CLIENT_CALLS = ("function_call", "custom_tool_call")
_APPROVAL_REQUEST = "mcp_approval_request"


@dataclass(slots=True)
class Item:
    """One item of an output.

    `text` is its JSON, empty while the item is open; `was_streamed` says that some of its content
    was streamed.
    """

    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    text: str = ""
    pieces: list[str] = field(default_factory=list[str])
    was_streamed: bool = False
    place: int = 0

    @property
    def id(self) -> str:
        return read_text(self.fields, "id")

    @property
    def type(self) -> str:
        return read_text(self.fields, "type")

    @property
    def is_client_call(self) -> bool:
        """Whether the call is ours to carry out."""
        return self.type in _CLIENT_CALLS or is_typed_call(self.fields)

    @property
    def arguments(self) -> str:
        """The arguments of a call as JSON text; a custom tool's are its text under `input`."""
        if self.type == "custom_tool_call":
            given = read_text(self.fields, "input") if self.text else ""
            return encode_json({"input": given or "".join(self.pieces)})
        if self.type in TYPED_CALLS:
            return read_typed_arguments(self.fields)
        if isinstance(self.fields.get("arguments"), dict):
            return encode_json(self.fields["arguments"])
        return join_surrogates(read_text(self.fields, "arguments") or "".join(self.pieces))

    def json(self) -> str:
        """Return the item as it is sent back. One that never ended has only what it began with."""
        if self.text:
            return self.text
        arguments = {"arguments": self.arguments} if self.pieces else {}
        return encode_json(self.fields | arguments)


@dataclass(slots=True)
class OutputBuilder:
    """An answer being built."""

    answer: AnswerBuilder
    items: dict[int, Item] = field(default_factory=dict[int, Item])
    status: str = ""
    reason: str = ""
    refused: bool = False

    def item(self, event: Mapping[str, Any]) -> Item:
        """Return the item that an event is about, creating it if it is new.

        It is found by its place in the output. A server that omits the place (llama.cpp) is
        believed about ids, as far as they tell items apart; else its events follow each other.
        """
        place = read_place(event, "output_index")
        if place is not None:
            return self.items.setdefault(place, Item(place=place))
        return self._find_item(event) or self.add_item()

    def _find_item(self, event: Mapping[str, Any]) -> Item | None:
        """Return the item that an event without a place goes on with or ends."""
        if event.get("type") == "response.output_item.added":
            return None
        fields = read_object(event, "item")
        id = read_text(event, "item_id") or read_text(fields, "id")
        for item in reversed(self.items.values()):
            is_same = bool(id) and item.id == id
            if item.text:
                # It has ended: only a late delta, or the same event again, can be about it.
                found = is_same and (not fields or fields == item.fields)
            else:
                found = is_same or not (id and item.id)
                found = found and fields.get("type", item.type) == item.type
            if found:
                return item
        return None

    def add_item(self, place: int = -1) -> Item:
        """Add an item at a place, or behind all others."""
        if place < 0 or place in self.items:
            place = max(self.items, default=-1) + 1
        item = self.items[place] = Item(place=place)
        return item

    def end_item(self, item: Item, fields: dict[str, Any], text: str) -> None:
        """Take an item as it is at its end, and emit what was not streamed of it."""
        item.fields = fields
        item.text = text
        if not item.was_streamed:
            _emit_unstreamed(self, item)

    def ordered_items(self) -> list[Item]:
        """Return the items in the order of the output."""
        return [self.items[place] for place in sorted(self.items)]

    def content(self) -> str:
        """Return the items as a JSON array."""
        return "[" + ",".join(item.json() for item in self.ordered_items()) + "]"

    def build(self, names: Mapping[str, str]) -> ModelAnswered:
        """Return the complete answer, without `raw`.

        Raises:
            ProviderError: `not_understood`, a piece of arguments belongs to no item.
        """
        items = self.ordered_items()
        for item in items:
            if any(item.pieces) and not item.type:
                raise build_field_error("output_index", "the place of an item", item.place)
        cut = self.status == "incomplete" and self.reason != "content_filter"
        calls = tuple(
            _to_call(item, names, cut)
            for item in items
            if item.is_client_call or item.type == _APPROVAL_REQUEST
        )
        stop = "calls" if calls else "end"
        if cut:
            stop = "length"
        elif self.reason == "content_filter" or (self.refused and not calls):
            stop = "filter"
        made = tuple(_find_provider_calls(items, names))
        return self.answer.end(calls, self.answer.usage, stop, made)

    def with_raw(self, model: str, answer: ModelAnswered, plain_content: str) -> ModelAnswered:
        """Return the answer with its items in `raw`.

        `raw` stays empty if the items equal `plain_content`, which is what the message itself would
        be encoded as. A cut answer may end in reasoning without its result, which the API refuses:
        then nothing is kept either.
        """
        items = self.ordered_items()
        content = self.content()
        complete = bool(items) and items[-1].type != "reasoning"
        complete = complete and all(item.text for item in items)
        if answer.stop == "filter" or not complete or content == plain_content:
            return answer
        return replace(answer, raw=seal(model, [call.id for call in answer.calls], content))


class ResponseStreamParser:
    """Parses the events of one stream. `done` once the response has ended in any way."""

    def __init__(self, output: OutputBuilder, who: str, *, tools: bool) -> None:
        self.done = False
        self._output = output
        self._answer = output.answer
        self._who = who
        self._tools = tools

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
        items = self._output.items
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
                self._add_unusual(event)
                on_text = self._answer.on_text
                if self.done:
                    return
                continue
            if item is not None and item.was_streamed and type(piece) is str:
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
            ProviderError: `interrupted`, the server never said that the answer was over.
        """
        if not self.done:
            detail = f"{self._who}: the stream ended in the middle of the answer"
            raise ProviderError(detail, code="interrupted", retryable=False)

    def _add_unusual(self, event: bytes) -> None:
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
            case "response.output_item.added":
                self._start_item(value)
            case "response.output_item.done":
                self._end_item(value, event)
            case "response.output_text.delta" | "response.refusal.delta":
                self._add_text(value)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._add_reasoning(value)
            case "response.reasoning_summary_part.added":
                self._begin_summary(value)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                self._add_arguments(value)
            case "response.completed" | "response.incomplete" | "response.failed":
                self.done = True
                response = read_object(value, "response")
                begun = bool(self._output.items)
                _read_response(self._output, response, self._who, tools=self._tools, begun=begun)
                self._add_missing(response, event)
            case "error":
                raise self._build_error(value.get("error") or value)
            case _:
                if value.get("error"):
                    raise self._build_error(value["error"])

    def _build_error(self, error_object: object) -> ProviderError:
        """Build an error. Before the first item a busy server may be asked again."""
        begun = bool(self._output.items)
        return error_from_object(self._who, error_object, tools=self._tools, begun=begun)

    def _begin_summary(self, value: dict[str, Any]) -> None:
        if value.get("summary_index"):
            self._answer.add_reasoning(_PARAGRAPH)

    def _add_arguments(self, value: dict[str, Any]) -> None:
        piece = read_text(value, "delta")
        item = self._output.item(value)
        item.pieces.append(piece)
        on_arguments = self._answer.calls.on_arguments
        if on_arguments is not None and item.type == "function_call":
            on_arguments(item.place, str(item.fields.get("name", "")), piece)

    def _add_text(self, value: dict[str, Any]) -> None:
        piece = read_text(value, "delta")
        item = self._output.item(value)
        if piece:
            if not item.was_streamed and self._answer.text:
                self._answer.add_text(_PARAGRAPH)
            item.was_streamed = True
            self._output.refused |= value.get("type") == "response.refusal.delta"
            self._answer.add_text(piece)

    def _add_reasoning(self, value: dict[str, Any]) -> None:
        piece = read_text(value, "delta")
        item = self._output.item(value)
        if piece:
            if not item.was_streamed and self._answer.reasoning:
                self._answer.add_reasoning(_PARAGRAPH)
            item.was_streamed = True
            self._answer.add_reasoning(piece)

    def _start_item(self, value: dict[str, Any]) -> None:
        item = self._output.item(value)
        fields = read_object(value, "item")
        if fields and not item.text:
            item.fields = fields

    def _end_item(self, value: dict[str, Any], event: bytes) -> None:
        item = self._output.item(value)
        fields = read_object(value, "item")
        if fields:
            text = split_members(event.decode())["item"]
            self._output.end_item(item, fields, text)

    def _add_missing(self, response: Mapping[str, Any], event: bytes) -> None:
        """Add what only the last event has: some servers stream no items, or leave some open."""
        listed = read_objects(response, "output")
        found = _match_items(self._output.ordered_items(), listed)
        missing = [place for place, item in found.items() if item is None or not item.text]
        if not missing:
            return
        text = split_members(event.decode())["response"]
        elements = split_elements(split_members(text)["output"])
        for place in missing:
            item = found[place] or self._output.add_item(place)
            self._output.end_item(item, listed[place], elements[place])


def _match_items(items: list[Item], places: list[dict[str, Any]]) -> dict[int, Item | None]:
    """Return the item that was streamed for each place of a list of items, or None.

    Servers make new ids for the last event, or leave out items there. So ids come first, and an
    item whose id is not known is the next one of its type: no call may be made twice.
    """
    left = [item for item in items if item.type]
    found: dict[int, Item | None] = dict.fromkeys(range(len(places)))
    for name in ("id", "call_id", "type"):
        for place in [place for place, item in found.items() if item is None]:
            fields = places[place]
            for number, item in enumerate(left):
                is_same = fields.get(name) and fields.get(name) == item.fields.get(name)
                if is_same and item.type == fields.get("type"):
                    found[place] = left.pop(number)
                    break
    return found


def parse_answer(output: OutputBuilder, body: bytes, who: str, *, tools: bool) -> None:
    """Parse a response that came in one piece.

    Raises:
        ProviderError: The response is an error, failed, or cannot be understood.
    """
    try:
        text = body.decode()
        value: Any = output.answer.read_json(text)
    except ValueError:
        text, value = "", None
    fields: dict[str, Any] = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    is_error = find_error(fields, expected="output") is not None
    if not isinstance(fields.get("output"), list) and not is_error:
        raise build_unreadable_error(who, body)
    _read_response(output, fields, who, tools=tools, begun=False)
    item_texts = split_elements(split_members(text).get("output", "[]"))
    items = zip(read_objects(fields, "output"), item_texts, strict=True)
    for place, (item, item_text) in enumerate(items):
        output.end_item(output.add_item(place), item, item_text)


def _read_response(
    output: OutputBuilder, fields: Mapping[str, Any], who: str, *, tools: bool, begun: bool
) -> None:
    """Read how a response ended and what it cost.

    Raises:
        ProviderError: The response failed.
    """
    error = find_error(fields, expected="output")
    if error:
        raise error_from_object(who, error, tools=tools, begun=begun)
    output.answer.note_response(fields)
    output.status = read_text(fields, "status") or "completed"
    if output.status in ("failed", "cancelled"):
        raise ProviderError(
            f"{who}: the response {output.status}", code="provider", retryable=False
        )
    output.reason = read_text(read_object(fields, "incomplete_details"), "reason")
    usage: Any = fields.get("usage")
    if isinstance(usage, dict):
        output.answer.usage = parse_usage(cast(dict[str, Any], usage))


def parse_usage(value: Mapping[str, Any]) -> Usage:
    """Read `usage` of the Responses API."""
    input_details = _read_details(value, "input_tokens_details")
    output_details = _read_details(value, "output_tokens_details")
    return Usage(
        token_count(value.get("input_tokens")),
        token_count(value.get("output_tokens")),
        token_count(input_details.get("cached_tokens")),
        token_count(input_details.get("cache_write_tokens")),
        token_count(output_details.get("reasoning_tokens")),
    )


def _read_details(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = value.get(name)
    return cast(dict[str, Any], part) if isinstance(part, dict) else {}


def _emit_unstreamed(output: OutputBuilder, item: Item) -> None:
    """Emit the part of an item's content that was not streamed."""
    if item.type == "message":
        _emit_message(output, item)
    elif item.type == "reasoning":
        _emit_reasoning(output.answer, item)


def _emit_message(output: OutputBuilder, item: Item) -> None:
    answer = output.answer
    separator = _PARAGRAPH if answer.text else ""
    for part in read_objects(item.fields, "content"):
        output.refused |= part.get("type") == "refusal"
        piece = read_text(part, "text") or read_text(part, "refusal")
        if piece:
            answer.add_text(separator + piece)
            separator = ""


def _emit_reasoning(answer: AnswerBuilder, item: Item) -> None:
    for thought in objects_in(item.fields.get("summary")) + objects_in(item.fields.get("content")):
        piece = thought.get("text")
        if isinstance(piece, str) and piece:
            separator = _PARAGRAPH if answer.reasoning else ""
            answer.add_reasoning(separator + piece)


def _to_call(item: Item, names: Mapping[str, str], cut: bool) -> ToolCall:
    if item.type == _APPROVAL_REQUEST:
        return make_approval_call(item.fields)
    name = read_text(item.fields, "name") or TYPED_CALLS.get(item.type, "")
    id = str(item.fields.get("call_id") or "")
    return ToolCall(id, names.get(name, name), item.arguments or ("" if cut else "{}"))


def _find_provider_calls(items: list[Item], names: Mapping[str, str]) -> list[ProviderToolCall]:
    """Return what the provider carried out itself. `names` maps sent names to tool names."""
    calls: list[ProviderToolCall] = []
    for item in items:
        is_hosted_call = item.type.endswith("_call") and not item.is_client_call
        if is_hosted_call or item.type in ("mcp_list_tools", "program"):
            calls.append(_to_provider_call(item))
        elif item.type == "tool_search_output":
            _attach_found_tools(calls, item, names)
    return calls


def _to_provider_call(item: Item) -> ProviderToolCall:
    fields = item.fields
    name = str(fields.get("name") or item.type.removesuffix("_call"))
    server = fields.get("server_label")
    if server:
        name = f"{server}.{name}"
    status = fields.get("status") or ("failed" if fields.get("error") else "completed")
    call = record_provider_call(fields, name, str(status))
    if item.type == "tool_search_call":
        call = replace(call, arguments=item.arguments)
    return call


def _attach_found_tools(
    calls: list[ProviderToolCall], output: Item, names: Mapping[str, str]
) -> None:
    """Add the tools that a search found to the call that it names, else to the last one."""
    id = output.fields.get("call_id")
    for place in range(len(calls) - 1, -1, -1):
        call = calls[place]
        if call.provider_tool_type == "tool_search_call" and id in (None, call.call_id):
            found: list[str] = []
            for tool in objects_in(output.fields.get("tools")):
                found += _list_tool_names(tool)
            references = tuple(names.get(name, name) for name in found)
            calls[place] = replace(call, references=references)
            return


def _list_tool_names(tool: Mapping[str, Any]) -> list[str]:
    """Return the name of a tool, or the names of all tools in a namespace."""
    if tool.get("type") != "namespace":
        return [str(tool["name"])] if tool.get("name") else []
    names: list[str] = []
    for member in objects_in(tool.get("tools")):
        names += _list_tool_names(member)
    return names
