"""The Responses client: OpenAI, and every server that speaks its format.

llama.cpp, Ollama and vLLM speak it too. Source: OpenAI's API reference (`POST /responses`,
`POST /responses/compact`) and the types of its SDK.

* Nothing is stored at the provider (`store: false`): the history is sent each time, reasoning
  encrypted (`reasoning.encrypted_content`), and the items of an answer are replayed as they came
  (`raw`).
* Tools are sent strict where their schema allows it (`strict_schema`); nulls that only strictness
  requires are removed again.
* The provider searches deferred tools (`tool_search`, a tool of its own that comes first). Those of
  one namespace are sent together, since it shows the model only the namespace.
* Tools that the API knows by a type (`shell`, `apply_patch`, `local_shell`) are sent to OpenAI
  itself as that type; their calls and results are items of their own (`tool_types`).
* Hosted tools are recorded and not dispatched; the approval question of a remote MCP server becomes
  a call (`models.hosted_tools`).
* A provider that compacts a history by itself (`context_management` in `ModelOptions.extra`)
  answers with an item that only it can read. For this client it replaces everything before it,
  which is not sent again; the journal keeps all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from json.encoder import encode_basestring as quote
from typing import TYPE_CHECKING, Any

from ferrule.core.calls import ToolCall, encode_json, parse_json
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.answer_building import AnswerBuilder, drop_calls
from ferrule.models.capabilities import has_tool_search
from ferrule.models.client import (
    Capabilities,
    ModelOptions,
    Sink,
    ToolSpec,
    choose_notice,
)
from ferrule.models.hosted_tools import APPROVAL_TOOL, encode_hosted_tools
from ferrule.models.http.streaming import ModelRequest, send_request
from ferrule.models.http.transport import Transport
from ferrule.models.provider_errors import error_from_response
from ferrule.models.registry import check_options
from ferrule.models.replayed_content import Piece, as_object, repair_content
from ferrule.models.request_encoding import (
    ToolNames,
    arguments_as_object,
    complete_schema,
    describe_tool,
    encode_json_bytes,
    encode_utf8,
    fit_name,
    name_options,
    warn_of_truncation,
    weigh_message,
    weigh_text,
)
from ferrule.models.server_client import open_uploads
from ferrule.models.verbatim_json import split_elements, split_members, unseal

from .chat import OpenAIChat
from .chat_exchange import reasoning_effort
from .responses_answers import OutputBuilder, ResponseStreamParser, parse_answer
from .strict_schema import CompiledSchema, build_reply_format, compile_strict
from .tool_types import TOOL_TYPES, TYPED_CALLS, encode_typed_output

if TYPE_CHECKING:
    from ferrule.models.media_uploads import MediaUploads

_OPTION_NAMES = {
    "temperature": "temperature",
    "max_tokens": "max_output_tokens",
    "top_p": "top_p",
    "service_tier": "service_tier",
    "cache_key": "prompt_cache_key",
}
_LISTED_CHARACTERS = 200
"""Most characters of a namespace's description that list its tools."""


class OpenAIResponses(OpenAIChat):
    """A model behind a Responses server.

    Args:
        model: The model's name at the server.
        base_url: Everything before `/responses`; default and key as for `OpenAIChat`.
        api_key: See `OpenAIChat`.
        transport: See `OpenAIChat`.
        headers: Further headers of every request.
        strict: Send schemas strict where they allow it; by default to OpenAI itself only.
        force_native_tool_search: A gateway passes OpenAI's tool search on, whatever the model is
            called there.
        flat_tool_search: A gateway wants the namespaces of deferred tools as a list in the search
            tool (requirement 001, "Namespace grouping"), not as OpenAI takes them.
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
        self.strict = self.is_openai if strict is None else strict
        self.force_tool_search = force_native_tool_search
        self.flat_tool_search = flat_tool_search
        self._encoded_tools: _EncodedTools | None = None

    async def capabilities(self) -> Capabilities:
        """Return what the model can do.

        As for `OpenAIChat`, but where nobody says, tools are assumed, as they are part of the
        format. OpenAI's newer models search deferred tools themselves.
        """
        found = await super().capabilities()
        if found.tools is None:
            found = replace(found, tools=True, source="part of the format")
        return replace(found, tool_search=self.force_tool_search or has_tool_search(self.model_id))

    def open(  # pyright: ignore[reportIncompatibleMethodOverride]  another exchange, the same protocol
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ResponsesExchange:
        check_options(self.model, options)
        encoded = self._encoded_tools
        given = (tools, options.provider_tools, options.tool_search)
        if encoded is None or encoded.given != given:
            encoded = _EncodedTools(
                tools, options, self.strict, flat=self.flat_tool_search, typed=self.is_openai
            )
            # Only a tuple is remembered: a list could be changed later.
            self._encoded_tools = encoded if isinstance(tools, tuple) else None
        return ResponsesExchange(self, system, encoded, options)


class _EncodedTools:
    """Tools as they are sent, encoded once for all conversations with the same tools."""

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        options: ModelOptions,
        strict: bool,
        *,
        flat: bool = False,
        typed: bool = False,
    ) -> None:
        self.given = (tools, options.provider_tools, options.tool_search)
        self.names = ToolNames(tools)
        self.strict: dict[str, CompiledSchema] = {}
        self.groups: dict[str, str] = {}
        """Tool name to the namespace that it is sent in."""
        sent = [item.decode() for item in encode_hosted_tools(options.provider_tools)]
        grouped: dict[str, list[tuple[ToolSpec, str]]] = {}
        for tool in tools:
            # Only the provider asks for approvals; the model may not give them to itself.
            if tool.name == APPROVAL_TOOL:
                continue
            if typed and tool.provider_type in TOOL_TYPES and not tool.deferred:
                sent.append(TOOL_TYPES[tool.provider_type])
                continue
            compiled = compile_strict(tool.schema) if strict else None
            if compiled is not None and compiled.is_strict:
                self.strict[tool.name] = compiled
            encoded = _encode_tool(tool, compiled)
            group = fit_name(tool.namespace) if options.tool_search and tool.deferred else ""
            if group:
                grouped.setdefault(group, []).append((tool, encoded))
                if not flat:
                    self.groups[tool.name] = group
            if not group or flat:
                sent.append(encoded)
        if options.tool_search:
            sent.insert(0, _encode_search(grouped if flat else None))
        if not flat:
            sent += (_encode_namespace(group, grouped[group]) for group in sorted(grouped))
        self.json_member = encode_utf8(f',"tools":[{",".join(sent)}]') if sent else b""
        self.weight = sum(
            weigh_text(tool.schema) + weigh_text(tool.description)
            for tool in tools
            if not tool.deferred
        )

    def drop_nulls(self, call: ToolCall) -> ToolCall:
        """Return the call without the nulls that only strictness requires."""
        compiled = self.strict.get(call.tool)
        if compiled is None or "null" not in call.arguments:
            return call
        return ToolCall(call.id, call.tool, compiled.drop_nulls(call.arguments))


class ResponsesExchange:
    """One conversation.

    `notices` collects (topic, text) pairs of questions asked without a sink; whoever drives the
    exchange reads and clears it. With a sink, notices go there and nowhere else. After a failed or
    cancelled `ask` the exchange is as it was before, and may be asked again.
    """

    def __init__(
        self, client: OpenAIResponses, system: str, tools: _EncodedTools, options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._client = client
        self._tools = tools
        self._timeout = options.timeout
        self._url = f"{client.base_url}/responses"
        settings = _settings(options)
        self._text_options: dict[str, Any] = dict(settings.pop("text", {}))
        start: dict[str, Any] = {"model": client.model_id}
        if system:
            start["instructions"] = system
        self._request_head = encode_json_bytes({**start, **settings})[:-1]
        self._weight = weigh_text(system) + tools.weight
        self._inputs = EncodedInputs(self._encode_message)
        self._uploads: MediaUploads | None = open_uploads(client, "Responses", options)
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
        notice = choose_notice(sink, self.notices)
        if self._uploads is not None and await self._uploads.prepare(history, notice):
            self._inputs.extend(())
        self._inputs.extend(history)
        client = self._client
        output = OutputBuilder(AnswerBuilder.for_sink(sink))
        body = self._request_body(tools, schema, streamed=sink is not None)
        await client.transport.retry(lambda: self._send(body, output, sink), notice)
        answer = output.build(self._tools.names.inbound)
        warn_of_truncation(notice, self._inputs.weight + self._weight, answer.usage.input)
        if answer.calls and not tools:
            return drop_calls(answer, notice)
        answer = replace(answer, calls=tuple(self._tools.drop_nulls(call) for call in answer.calls))
        return output.with_raw(client.model, answer, "")

    def _request_body(
        self, tools: bool, schema: Mapping[str, Any] | None, *, streamed: bool
    ) -> bytes:
        parts: list[bytes | bytearray] = [self._request_head, self._tools.json_member]
        if self._tools.json_member and not tools:
            parts.append(b',"tool_choice":"none"')
        text_options = dict(self._text_options)
        if schema is not None:
            text_options["format"] = {"type": "json_schema", "name": "reply", "schema": schema}
            if self._client.is_openai:
                text_options["format"] = {"type": "json_schema", **build_reply_format(schema)}
            else:
                # llama.cpp ignores `text.format` on this route and takes the field of chat
                # completions; others ignore that one.
                shape = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
                parts += (b',"response_format":', encode_json_bytes(shape))
        if text_options:
            parts += (b',"text":', encode_json_bytes(text_options))
        if streamed:
            parts.append(b',"stream":true')
        parts += (b',"input":[', self._inputs.json, b"]}")
        return b"".join(parts)

    async def _send(self, body: bytes, output: OutputBuilder, sink: Sink | None) -> None:
        client = self._client
        offered = bool(self._tools.json_member)
        streamed = sink is not None
        await send_request(
            client.transport,
            ModelRequest(self._url, body, client.headers, self._timeout, streamed),
            make_error=partial(error_from_response, client.model, tools=offered),
            parse_whole=lambda body: parse_answer(output, body, client.model, tools=offered),
            open_parser=lambda: ResponseStreamParser(output, client.model, tools=offered),
        )

    # ---- messages out

    def _encode_message(self, message: Message) -> tuple[str, bool]:
        if isinstance(message, UserMessage):
            if message.media:
                content = self._encode_content(message)
                return f'{{"role":"user","content":{content}}}', False
            return f'{{"role":"user","content":{quote(message.text)}}}', False
        if isinstance(message, ToolMessage):
            return self._encode_result(message), False
        return self._encode_assistant(message)

    def _encode_result(self, message: ToolMessage) -> str:
        id = quote(message.call_id)
        if message.call_id not in self._approvals:
            kind, caller = self._callers.get(message.call_id, ("function_call", ""))
            if kind in TYPED_CALLS:
                return encode_typed_output(kind, message, caller)
            output = self._encode_content(message) if message.media else quote(message.text)
            return f'{{"type":"{kind}_output","call_id":{id},"output":{output}{caller}}}'
        approve = "true" if message.success else f'false,"reason":{quote(message.text)}'
        return f'{{"type":"mcp_approval_response","approval_request_id":{id},"approve":{approve}}}'

    def _encode_content(self, message: UserMessage | ToolMessage) -> str:
        from ferrule.models.media_encoding import encode_content

        blocks = encode_content(
            "Responses",
            message.text,
            message.media,
            lambda text: f'{{"type":"input_text","text":{quote(text)}}}',
            None if self._uploads is None else self._uploads.find_file,
        )
        return f"[{','.join(blocks)}]"

    def _encode_assistant(self, message: AssistantMessage) -> tuple[str, bool]:
        kept = unseal(message.raw, self._client.model, [call.id for call in message.calls])
        if kept is not None:
            self._approvals.update(call.id for call in message.calls if call.tool == APPROVAL_TOOL)
            self._callers.update(_find_callers(kept["content"]))
            compacted = _since_compaction(kept["content"])
            content = f"[{compacted}]" if compacted else kept["content"]
            return repair_content(content, _repair_item), bool(compacted)
        items: list[str] = []
        if message.text or not message.calls:
            # llama.cpp does not know an assistant's message without its type.
            items.append(f'{{"type":"message","role":"assistant","content":{quote(message.text)}}}')
        for call in message.calls:
            name = self._tools.names.outbound(call.tool)
            group = self._tools.groups.get(call.tool)
            namespace = f',"namespace":{quote(group)}' if group else ""
            items.append(
                f'{{"type":"function_call","call_id":{quote(call.id)},"name":{quote(name)},'
                f'"arguments":{quote(arguments_as_object(call.arguments))}{namespace}}}'
            )
        return ",".join(items), False


def _repair_item(item: Piece) -> Piece | None:
    """Return an item of an answer as the API takes it back (`replayed_content`)."""
    if item.get("type") != "function_call":
        return item
    name = item.get("name")
    fitting = fit_name(name if isinstance(name, str) else "") or "unnamed"
    arguments = as_object(item.get("arguments"))
    if (fitting, arguments) == (name, item.get("arguments")):
        return item
    return {**item, "name": fitting, "arguments": arguments}


class EncodedInputs:
    """A history as input items, each message encoded once.

    `encode` returns a message's items, and whether they replace everything before them. `weight` is
    the sum of `weigh_message`. The history may only grow; one that got shorter is another
    conversation and is encoded anew.
    """

    def __init__(self, encode: Callable[[Message], tuple[str, bool]]) -> None:
        self._encode = encode
        self._reset()

    def _reset(self) -> None:
        self.json = bytearray()
        self.weight = 0
        self._count = 0

    def extend(self, history: Sequence[Message]) -> None:
        """Encode the messages that are new."""
        if len(history) < self._count:
            self._reset()
        for message in history[self._count :]:
            items, all_before = self._encode(message)
            if all_before:
                self._reset()
            if items:
                self.json += b"," if self.json else b""
                self.json += encode_utf8(items)
            self.weight += weigh_message(message)
        self._count = len(history)


def _since_compaction(content: str) -> str:
    """Return the items from the last compaction on, which replaces everything before it, or ""."""
    if '"compaction"' not in content:
        return ""
    items = split_elements(content)
    for index in range(len(items) - 1, -1, -1):
        if _parse_string(split_members(items[index]).get("type")) == "compaction":
            return ",".join(items[index:])
    return ""


def _find_callers(content: str) -> dict[str, tuple[str, str]]:
    """Return, by id, the calls whose output has another type or must name its caller.

    The caller is the hosted program that made the call.
    """
    found: dict[str, tuple[str, str]] = {}
    marks = ('"custom_tool_call"', '"caller"', *(f'"{kind}"' for kind in TYPED_CALLS))
    if not any(mark in content for mark in marks):
        return found
    for item in map(split_members, split_elements(content)):
        kind = _parse_string(item.get("type"))
        if kind in ("function_call", "custom_tool_call", *TYPED_CALLS) and "call_id" in item:
            caller = f',"caller":{item["caller"]}' if "caller" in item else ""
            limit = split_members(item.get("action", "{}")).get("max_output_length", "null")
            if kind == "shell_call" and limit != "null":
                caller += f',"max_output_length":{limit}'
            found[_parse_string(item["call_id"])] = (kind, caller)
    return found


def _parse_string(text: str | None) -> str:
    """Return a JSON string's value; empty for anything else."""
    value: Any = parse_json(text) if text else ""
    return value if isinstance(value, str) else ""


def _encode_tool(tool: ToolSpec, compiled: CompiledSchema | None) -> str:
    schema = complete_schema(tool.schema)
    # Without this field the API would try the schema strict, and rewrite it as it likes.
    strict = ',"strict":false'
    if compiled is not None and compiled.is_strict:
        schema = compiled.schema
        strict = ',"strict":true'
    deferred = ',"defer_loading":true' if tool.deferred else ""
    return (
        f'{{"type":"function","name":{quote(tool.api_name)},"description":{quote(describe_tool(tool))},'
        f'"parameters":{schema}{strict}{deferred}}}'
    )


def _encode_search(namespaces: Collection[str] | None) -> str:
    """Encode the provider's tool search; with `namespaces`, in the form that lists them itself."""
    if namespaces is None:
        return '{"type":"tool_search","execution":"server"}'
    listed = f',"namespaces":{encode_json(sorted(namespaces))}' if namespaces else ""
    return f'{{"type":"tool_search","mode":"hosted"{listed}}}'


def _encode_namespace(name: str, members: Sequence[tuple[ToolSpec, str]]) -> str:
    """Encode tools that the model sees as one namespace until a search opens it."""
    listed = ", ".join(tool.api_name for tool, _ in members)
    if len(listed) > _LISTED_CHARACTERS:
        listed = listed[:_LISTED_CHARACTERS] + "…"
    description = quote(f"Tools of {name}: {listed}")
    tools = ",".join(encoded for _, encoded in members)
    return (
        f'{{"type":"namespace","name":{quote(name)},"description":{description},"tools":[{tools}]}}'
    )


def _settings(options: ModelOptions) -> dict[str, Any]:
    """Return the model options as members of the request."""
    fields: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
    fields |= name_options(options, _OPTION_NAMES)
    if options.thinking is not None:
        fields["reasoning"] = {"effort": reasoning_effort(options.thinking)}
    return fields | dict(options.extra)
