"""The Responses wire: OpenAI, and every server that speaks its format (llama.cpp, Ollama, vLLM).

Source: OpenAI's API reference (`POST /responses`, `POST /responses/compact`) and the types of its
    SDK.

* Nothing is kept at the provider (`store: false`): the history goes along each time, reasoning
  encrypted (`reasoning.encrypted_content`), and the items of an answer are replayed as they came
  (`raw`).
* Tools are sent strict where their schema can be (`strict_schema`); nulls that only strictness
  asked for are dropped again.
* Deferred tools are searched by the provider (`tool_search`, a tool of its own that stands first);
  those of one namespace go together, as it shows the model the namespace alone.
* Hosted tools are recorded and not dispatched; the question of a remote MCP server becomes a call
  (`models.hosted_tools`).
* A provider that compacts a history by itself (`context_management` in `ModelOptions.extra`)
  answers with an item that only it can read. On this wire it stands for everything before it, which
  is not sent again; the journal keeps all of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from json.encoder import encode_basestring as quote
from typing import Any

from ferrule.core.calls import Call, compact
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.answer_folding import Answer, without_calls
from ferrule.models.capabilities import searches
from ferrule.models.client import Capabilities, ModelOptions, Sink, ToolSpec
from ferrule.models.exact_json import elements, members, unseal, utf8
from ferrule.models.hosted_tools import APPROVAL, tools_json
from ferrule.models.http.server_sent_events import Events
from ferrule.models.http.streaming import fold_stream
from ferrule.models.http.transport import Transport
from ferrule.models.provider_errors import refusal
from ferrule.models.request_encoding import (
    Names,
    arguments_object,
    described,
    dumps,
    fitting,
    message_weight,
    truncation,
    weight,
)

from .chat import OpenAIChat
from .responses_answers import Output, StreamFold, fold_whole
from .strict_schema import Strict, compile_strict

_GROUP = 200
"""Characters of a namespace's description that names its tools."""


class OpenAIResponses(OpenAIChat):
    """A model behind a Responses server. `base_url` is everything before `/responses`; key and
    address as `OpenAIChat`'s.

    `strict` sends schemas strict where they can be; by default to OpenAI itself only.
    `force_native_tool_search` says that a gateway passes OpenAI's tool search on, whatever the
    model is called there; `flat_tool_search` is for one that wants the namespaces of deferred tools
    as a list in the search tool (requirement 001, "Namespace grouping") and not as OpenAI takes
    them.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        transport: Transport | None = None,
        headers: Mapping[str, str] | None = None,
        strict: bool | None = None,
        force_native_tool_search: bool = False,
        flat_tool_search: bool = False,
    ) -> None:
        super().__init__(
            model,
            base_url=base_url,
            api_key=api_key,
            transport=transport,
            name="openai-responses",
            headers=headers,
        )
        self.strict = self.native if strict is None else strict
        self.searches, self.flat = force_native_tool_search, flat_tool_search
        self._responses_offer: _Offer | None = None

    async def capabilities(self) -> Capabilities:
        """As `OpenAIChat`'s; tools, where nobody says, as they are part of the format. OpenAI's
        newer models search deferred tools themselves.
        """
        found = await super().capabilities()
        if found.tools is None:
            found = replace(found, tools=True, source="part of the format")
        return replace(found, tool_search=self.searches or searches(self.id))

    def open(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ResponsesExchange:  # pyright: ignore[reportIncompatibleMethodOverride]  another exchange, the same protocol
        offer = self._responses_offer
        if offer is None or offer.given != (tools, options.provider_tools, options.tool_search):
            offer = _Offer(tools, options, self.strict, flat=self.flat)
            # A list could change under us.
            self._responses_offer = offer if isinstance(tools, tuple) else None
        return ResponsesExchange(self, system, offer, options)


class _Offer:
    """Tools as they are sent, encoded once for all conversations that offer the same ones."""

    def __init__(
        self, tools: Sequence[ToolSpec], options: ModelOptions, strict: bool, *, flat: bool = False
    ) -> None:
        self.given = (tools, options.provider_tools, options.tool_search)
        self.names = Names(tools)
        self.strict: dict[str, Strict] = {}
        self.groups: dict[str, str] = {}
        """The namespace that a tool is sent in, by its name."""
        sent = [item.decode() for item in tools_json(options.provider_tools)]
        grouped: dict[str, list[tuple[ToolSpec, str]]] = {}
        for tool in tools:
            # Only the provider asks for approvals; the model may not give them to itself.
            if tool.name == APPROVAL:
                continue
            compiled = compile_strict(tool.schema) if strict else None
            if compiled is not None and compiled.strict:
                self.strict[tool.name] = compiled
            group = fitting(tool.namespace) if options.tool_search and tool.deferred else ""
            if group:
                grouped.setdefault(group, []).append((tool, _tool(tool, compiled)))
            if not group or flat:
                sent.append(_tool(tool, compiled))
        if options.tool_search:
            sent.insert(0, _search(grouped if flat else None))
        if not flat:
            self.groups = {
                tool.name: group for group, members in grouped.items() for tool, _ in members
            }
            sent += (_namespace(group, grouped[group]) for group in sorted(grouped))
        self.field = utf8(f',"tools":[{",".join(sent)}]') if sent else b""
        self.weight = sum(
            weight(tool.schema) + weight(tool.description) for tool in tools if not tool.deferred
        )

    def restored(self, call: Call) -> Call:
        """The call without the nulls that only strictness asked for."""
        compiled = self.strict.get(call.tool)
        if compiled is None or "null" not in call.arguments:
            return call
        return Call(call.id, call.tool, compiled.restored(call.arguments))


class ResponsesExchange:
    """One conversation. `notices` collects (topic, text) pairs of asks without a sink; whoever
    drives the exchange reads and clears it. With a sink, notices go there and nowhere else.

    After a failed or cancelled `ask` the exchange is as it was before, and may be asked again.
    """

    def __init__(
        self, wire: OpenAIResponses, system: str, offer: _Offer, options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._wire = wire
        self._offer = offer
        self._timeout = options.timeout
        self._url = f"{wire.base_url}/responses"
        self._begin = {"model": wire.id, **({"instructions": system} if system else {})}
        self._settings = _settings(options)
        self._forms: dict[str, Any] = dict(self._settings.pop("text", {}))
        self._head = dumps({**self._begin, **self._settings})[:-1]
        self._weight = weight(system) + offer.weight
        self._inputs = Inputs(self._message)
        self._approvals: set[str] = set()
        self._callers: dict[str, tuple[str, str]] = {}

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        self._inputs.extend(history)
        notice = self._notice(sink)
        wire = self._wire
        output = Output(Answer(sink.text, sink.reasoning) if sink else Answer())
        body = self._body(tools, schema, streamed=sink is not None)
        await wire.transport.retrying(lambda: self._send(body, output, sink), notice)
        answered = output.answered(self._offer.names.inbound)
        if warning := truncation(self._inputs.weight + self._weight, answered.usage.input):
            notice("truncated", warning)
        if answered.calls and not tools:
            return without_calls(answered, notice)
        answered = replace(
            answered, calls=tuple(self._offer.restored(call) for call in answered.calls)
        )
        return output.sealed(wire.model, answered, "")

    def _body(self, tools: bool, schema: Mapping[str, Any] | None, *, streamed: bool) -> bytes:
        parts: list[bytes | bytearray] = [self._head, self._offer.field]
        if self._offer.field and not tools:
            parts.append(b',"tool_choice":"none"')
        forms = dict(self._forms)
        if schema is not None:
            forms["format"] = {"type": "json_schema", "name": "reply", "schema": schema}
            if not self._wire.native:
                # llama.cpp passes over `text.format` on this route and takes the one of chat
                # completions; others ignore it.
                form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
                parts += (b',"response_format":', dumps(form))
        if forms:
            parts += (b',"text":', dumps(forms))
        if streamed:
            parts.append(b',"stream":true')
        parts += (b',"input":[', self._inputs.json, b"]}")
        return b"".join(parts)

    async def _send(self, body: bytes, output: Output, sink: Sink | None) -> None:
        wire, offered = self._wire, bool(self._offer.field)
        if sink is None:
            answer = await wire.transport.post(self._url, body, wire.headers, timeout=self._timeout)
            if answer.status != 200:
                raise refusal(wire.model, answer.status, answer.headers, answer.body, tools=offered)
            return fold_whole(output, answer.body, wire.model, tools=offered)
        async with wire.transport.stream(
            self._url, body, wire.headers, timeout=self._timeout
        ) as stream:
            if stream.status != 200:
                refused = await stream.read()
                raise refusal(wire.model, stream.status, stream.headers, refused, tools=offered)
            if "json" in stream.headers.get("content-type", ""):
                # A server that cannot stream answers in one piece.
                return fold_whole(output, await stream.read(), wire.model, tools=offered)
            fold = StreamFold(output, wire.model, tools=offered)
            await fold_stream(stream, Events(), fold)
            return fold.finished()

    def _notice(self, sink: Sink | None) -> Callable[[str, str], None]:
        return sink.notice if sink else lambda topic, text: self.notices.append((topic, text))

    # ---- messages out

    def _message(self, message: Message) -> tuple[str, bool]:
        if isinstance(message, UserMessage):
            return f'{{"role":"user","content":{quote(message.text)}}}', False
        if isinstance(message, ToolMessage):
            return self._result(message), False
        return self._assistant(message)

    def _result(self, message: ToolMessage) -> str:
        id = quote(message.call_id)
        if message.call_id not in self._approvals:
            kind, caller = self._callers.get(message.call_id, ("function_call", ""))
            return (
                f'{{"type":"{kind}_output","call_id":{id},"output":{quote(message.text)}{caller}}}'
            )
        yes = "true" if message.success else f'false,"reason":{quote(message.text)}'
        return f'{{"type":"mcp_approval_response","approval_request_id":{id},"approve":{yes}}}'

    def _assistant(self, message: AssistantMessage) -> tuple[str, bool]:
        kept = unseal(message.raw, self._wire.model, [call.id for call in message.calls])
        if kept is not None:
            self._approvals.update(call.id for call in message.calls if call.tool == APPROVAL)
            self._callers.update(_callers(kept["content"]))
            compacted = _since_compaction(kept["content"])
            return compacted or kept["content"].strip()[1:-1], bool(compacted)
        items: list[str] = []
        if message.text or not message.calls:
            # llama.cpp does not know an assistant's message without its type.
            items.append(f'{{"type":"message","role":"assistant","content":{quote(message.text)}}}')
        for call in message.calls:
            name, group = self._offer.names.outbound(call.tool), self._offer.groups.get(call.tool)
            within = f',"namespace":{quote(group)}' if group else ""
            items.append(
                f'{{"type":"function_call","call_id":{quote(call.id)},"name":{quote(name)},'
                f'"arguments":{quote(arguments_object(call.arguments))}{within}}}'
            )
        return ",".join(items), False


class Inputs:
    """A history as input items, each message encoded once. `encode` gives a message's items and
    whether they stand for everything before them. `weight` is the sum of `message_weight`. The
    history may only grow; one that got shorter is another conversation and is encoded anew.
    """

    def __init__(self, encode: Callable[[Message], tuple[str, bool]]) -> None:
        self._encode = encode
        self._reset()

    def _reset(self) -> None:
        self.json = bytearray()
        self.weight = 0
        self._count = 0

    def extend(self, history: Sequence[Message]) -> None:
        """Take in what is new."""
        if len(history) < self._count:
            self._reset()
        for message in history[self._count :]:
            items, all_before = self._encode(message)
            if all_before:
                self._reset()
            if items:
                self.json += b"," if self.json else b""
                self.json += utf8(items)
            self.weight += message_weight(message)
        self._count = len(history)


def _since_compaction(content: str) -> str:
    """The items from the last compaction on, which stands for everything before it; "" if there is
    none.
    """
    if '"compaction"' not in content:
        return ""
    items = elements(content)
    places = [
        index
        for index, item in enumerate(items)
        if _string(members(item).get("type")) == "compaction"
    ]
    return ",".join(items[places[-1] :]) if places else ""


def _callers(content: str) -> dict[str, tuple[str, str]]:
    """Calls whose output is of another kind, or must name who made the call (a hosted program), by
    id.
    """
    found: dict[str, tuple[str, str]] = {}
    if '"custom_tool_call"' not in content and '"caller"' not in content:
        return found
    for item in map(members, elements(content)):
        kind = _string(item.get("type"))
        if kind in ("function_call", "custom_tool_call") and "call_id" in item:
            caller = f',"caller":{item["caller"]}' if "caller" in item else ""
            found[_string(item["call_id"])] = (kind, caller)
    return found


def _string(spelled: str | None) -> str:
    """A JSON string's value; empty for anything else."""
    value: Any = json.loads(spelled) if spelled else ""
    return value if isinstance(value, str) else ""


def _tool(tool: ToolSpec, compiled: Strict | None) -> str:
    # Where nothing is said the API would try the schema strict, and rewrite it as it likes.
    schema, strict = tool.schema or '{"type":"object"}', ',"strict":false'
    if compiled is not None and compiled.strict:
        schema, strict = compiled.schema, ',"strict":true'
    deferred = ',"defer_loading":true' if tool.deferred else ""
    return (
        f'{{"type":"function","name":{quote(tool.wire_name)},"description":{quote(described(tool))},'
        f'"parameters":{schema}{strict}{deferred}}}'
    )


def _search(namespaces: Collection[str] | None) -> str:
    """The provider's tool search. With `namespaces`, in the form that names them itself."""
    if namespaces is None:
        return '{"type":"tool_search","execution":"server"}'
    listed = f',"namespaces":{compact(sorted(namespaces))}' if namespaces else ""
    return f'{{"type":"tool_search","mode":"hosted"{listed}}}'


def _namespace(name: str, members: Sequence[tuple[ToolSpec, str]]) -> str:
    """Tools that the model sees as one namespace until a search opens it."""
    named = ", ".join(tool.wire_name for tool, _ in members)
    about = f"Tools of {name}: {named if len(named) <= _GROUP else named[:_GROUP] + '…'}"
    tools = ",".join(spelled for _, spelled in members)
    return f'{{"type":"namespace","name":{quote(name)},"description":{quote(about)},"tools":[{tools}]}}'


def _settings(options: ModelOptions) -> dict[str, Any]:
    """Everything a person set, as members of the request."""
    fields: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
    if options.temperature is not None:
        fields["temperature"] = options.temperature
    if options.max_tokens is not None:
        fields["max_output_tokens"] = options.max_tokens
    if options.thinking is not None:
        fields["reasoning"] = {"effort": _effort(options.thinking)}
    return fields | dict(options.extra)


def _effort(wanted: bool | str) -> str:
    if isinstance(wanted, str):
        return wanted
    return "medium" if wanted else "none"
