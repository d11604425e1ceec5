"""A chat-completions conversation: what is sent, what comes back, what a server says of itself.

A message is encoded when it is first sent and its bytes are kept. A request joins those bytes with
a start and an end that do not change, so a turn costs what is new, plus one copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from json.encoder import encode_basestring as quote
from typing import TYPE_CHECKING, Any, Protocol

from ferrule.core.calls import ToolCall, encode_json, parse_json
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.media import MediaReference
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.answer_building import AnswerBuilder, drop_calls, objects_in
from ferrule.models.capabilities import find_known_provider, read_llama_props, read_models_entry
from ferrule.models.client import (
    Capabilities,
    ModelOptions,
    Sink,
    ToolSpec,
    choose_notice,
)
from ferrule.models.http.streaming import ModelRequest, send_request
from ferrule.models.http.transport import Transport
from ferrule.models.provider_errors import error_from_response
from ferrule.models.request_encoding import (
    CHAT_OPTION_NAMES,
    EncodedHistory,
    ToolNames,
    arguments_as_object,
    encode_cache_mark,
    encode_json_bytes,
    encode_tools,
    encode_utf8,
    name_options,
    parse_object,
    warn_of_truncation,
    weigh_text,
)
from ferrule.models.server_client import FileOwner, open_uploads

from .chat_answers import ChatStreamParser, parse_answer
from .differences import ChatDifferences, ThinkingSwitch

if TYPE_CHECKING:
    from ferrule.models.media_uploads import MediaUploads

if TYPE_CHECKING:
    pass

_SHORT_ID = 9
"""Letters and digits of a short call id."""


class ChatServer(FileOwner, Protocol):
    """The server that a conversation is with (`chat.OpenAIChat`)."""

    base_url: str
    is_openai: bool
    model_id: str
    headers: dict[str, str]
    transport: Transport
    replay_reasoning: bool
    differences: ChatDifferences

    @property
    def model(self) -> str: ...

    async def list_models(self) -> list[dict[str, Any]]: ...


async def list_models(server: ChatServer) -> list[dict[str, Any]]:
    """Return the entries of `GET /models`; empty if the server has no such list.

    Raises:
        ProviderError: The server cannot be reached, or refuses the key.
    """
    answer = await server.transport.get(f"{server.base_url}/models", server.headers, timeout=10.0)
    if answer.status == 401:
        raise error_from_response(
            server.model, answer.status, answer.headers, answer.body, tools=False
        )
    if answer.status != 200:
        return []
    return objects_in(parse_object(answer.body).get("data"))


async def read_capabilities(server: ChatServer) -> Capabilities:
    """Return what the model can do, else unknown.

    A table of providers is consulted first, then llama.cpp's `/props`, then the server's list of
    models.
    """
    return find_known_provider(server.base_url, server.model_id) or await _ask_server(server)


async def _ask_server(server: ChatServer) -> Capabilities:
    found = await _read_props(server) if server.differences.asks_props else None
    return found or read_models_entry(server.model_id, await server.list_models())


async def _read_props(server: ChatServer) -> Capabilities | None:
    """Return what llama.cpp says of its model, or None from any other server.

    A gateway may refuse an address that it does not know as it refuses a wrong key: what it says of
    the key is read elsewhere.
    """
    root = server.base_url.removesuffix("/v1")
    answer = await server.transport.retry(
        lambda: server.transport.get(f"{root}/props", server.headers, timeout=10.0)
    )
    return read_llama_props(parse_object(answer.body)) if answer.status == 200 else None


class EncodedTools:
    """Tools as they are sent, encoded once for all conversations with the same tools."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self.tools = tools
        self.names = ToolNames(tools)
        self.json_member = b',"tools":' + encode_tools(tools) if tools else b""
        self.weight = weigh_text(self.json_member.decode())


class ChatExchange:
    """One conversation.

    `notices` collects (topic, text) pairs of questions asked without a sink; whoever drives the
    exchange reads and clears it. With a sink, notices go there and nowhere else. After a failed or
    cancelled `ask` the exchange is as it was before, and may be asked again.
    """

    def __init__(
        self, client: ChatServer, system: str, encoded: EncodedTools, options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._client = client
        self._names = encoded.names
        self._timeout = options.timeout
        self._url = f"{client.base_url}/chat/completions"
        self._request_start = b'{"model":' + encode_json_bytes(client.model_id) + b',"messages":['
        self._request_end = _encode_options(options, client.is_openai, client.differences)
        self._tools = encoded.json_member
        self._tools_weight = encoded.weight
        self._supports_tool_choice = True
        self._cache_mark = encode_cache_mark(options.cache_control)
        system_message = None
        if self._cache_mark:
            block = f'{{"type":"text","text":{quote(system)}{self._cache_mark}}}'
            system_message = encode_utf8(f'{{"role":"system","content":[{block}]}}')
        self._encoded_history = EncodedHistory(
            system,
            self._encode_message,
            system_message,
            answers_results=client.differences.answers_results,
        )
        self._uploads: MediaUploads | None = open_uploads(client, "chat completions", options)

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
            self._encoded_history.extend(())
        self._encoded_history.extend(history)
        try:
            answer = await self._send_in_order(history, tools, schema, sink)
        except ProviderError as error:
            if error.code != "choice_unsupported" or tools:
                raise
            answer = await self._without_tools(schema, sink, "the server refuses `tool_choice`")
        if answer.calls and not tools and self._tools:
            answer = await self._without_tools(schema, sink, "the server ignores `tool_choice`")
        return answer if tools else drop_calls(answer, choose_notice(sink, self.notices))

    def encode_request(self, history: Sequence[Message], *, tools: bool) -> bytes:
        """Return the body of a request with this history, not streamed and without a schema."""
        self._encoded_history.extend(history)
        offered = self._tools if tools or self._supports_tool_choice else b""
        return self._request_body(offered, tools, None, streamed=False)

    async def _send_in_order(
        self,
        history: Sequence[Message],
        tools: bool,
        schema: Mapping[str, Any] | None,
        sink: Sink | None,
    ) -> ModelAnswered:
        try:
            return await self._send(tools, schema, sink)
        except ProviderError as error:
            if error.code != "order_refused" or self._encoded_history.answers_results:
                raise
        reason = "the server refuses a message right after results: an answer is put between them"
        choose_notice(sink, self.notices)("fallback", reason)
        self._encoded_history.answer_results()
        self._encoded_history.extend(history)
        return await self._send(tools, schema, sink)

    async def _without_tools(
        self, schema: Mapping[str, Any] | None, sink: Sink | None, reason: str
    ) -> ModelAnswered:
        self._supports_tool_choice = False
        choose_notice(sink, self.notices)("fallback", f"{reason}: asked again without tools")
        return await self._send(False, schema, sink)

    async def _send(
        self, tools: bool, schema: Mapping[str, Any] | None, sink: Sink | None
    ) -> ModelAnswered:
        notice = choose_notice(sink, self.notices)
        offered = self._tools if tools or self._supports_tool_choice else b""
        body = self._request_body(offered, tools, schema, streamed=sink is not None)

        client = self._client
        send_once = partial(
            send_request,
            client.transport,
            ModelRequest(self._url, body, client.headers, self._timeout, sink is not None),
            make_error=partial(error_from_response, client.model, tools=bool(offered)),
            parse_whole=partial(parse_answer, who=client.model, tools=bool(offered), sink=sink),
            open_parser=partial(_open_parser, client.model, bool(offered), sink),
        )
        try:
            answer = await client.transport.retry(send_once, notice)
        except ProviderError as error:
            # The connection was returned: the server can be asked for its models.
            if error.code == "model_not_found":
                error.hint = await self._suggest_models()
            raise
        weighed = self._encoded_history.weight + (self._tools_weight if offered else 0)
        warn_of_truncation(notice, weighed, answer.usage.input)
        return answer.build(self._names.inbound)

    def _request_body(
        self, offered: bytes, tools: bool, schema: Mapping[str, Any] | None, *, streamed: bool
    ) -> bytes:
        parts: list[bytes | bytearray] = [
            self._request_start,
            self._mark_last_message() if self._cache_mark else self._encoded_history.json,
            b"]",
            offered,
        ]
        if offered and not tools:
            parts.append(b',"tool_choice":"none"')
        if schema is not None:
            named: dict[str, Any] = {"name": "reply", "schema": schema}
            if self._client.is_openai:
                # Others may not know the field. Imported here: most runs end with text.
                from .strict_schema import build_reply_format

                named = build_reply_format(schema)
            shape = {"type": "json_schema", "json_schema": named}
            parts += (b',"response_format":', encode_json_bytes(shape))
        parts.append(self._request_end)
        if streamed:
            parts.append(b',"stream":true')
            if self._client.differences.stream_usage:
                parts.append(b',"stream_options":{"include_usage":true}')
        parts.append(b"}")
        return b"".join(parts)

    def _mark_last_message(self) -> bytes:
        """Return the history with a mark for the prompt cache at its end.

        The mark moves with the conversation, and the text of a message is the same for the cache
        whether it is marked or not.
        """
        start = self._encoded_history.last_start
        history = self._encoded_history.json
        last: dict[str, Any] = parse_json(history[start:])
        content = last["content"]
        if isinstance(content, str):
            last["content"] = [{"type": "text", "text": content}]
        if last["content"]:
            mark: dict[str, Any] = parse_json("{" + self._cache_mark[1:] + "}")
            last["content"][-1] |= mark
        return bytes(history[:start]) + encode_json_bytes(last)

    async def _suggest_models(self) -> str:
        try:
            known = [str(entry.get("id", "")) for entry in await self._client.list_models()]
        except ProviderError:
            return ""  # The list is a courtesy: the error that is being raised matters more.
        if not known:
            return ""
        more = f" and {len(known) - 20} more" if len(known) > 20 else ""
        return f"the server has: {', '.join(known[:20])}{more}"

    def _encode_message(self, message: Message) -> bytes:
        # Written by hand: these lines run for every message, and an encoder costs more than all
        # of them.
        if isinstance(message, UserMessage):
            if message.media:
                find_file = None if self._uploads is None else self._uploads.find_file
                return encode_utf8(encode_chat_content(message, find_file))
            return encode_utf8(f'{{"role":"user","content":{quote(message.text)}}}')
        if isinstance(message, ToolMessage):
            id = quote(self._call_id(message.call_id))
            content = quote(message.text)
            return encode_utf8(f'{{"role":"tool","tool_call_id":{id},"content":{content}}}')
        return self._encode_assistant(message)

    def _encode_assistant(self, message: AssistantMessage) -> bytes:
        if not message.calls:
            return encode_utf8(f'{{"role":"assistant","content":{quote(message.text)}}}')
        calls = ",".join([self._encode_call(call) for call in message.calls])
        reasoning = ""
        if message.reasoning and self._client.replay_reasoning:
            reasoning = f',"reasoning_content":{quote(message.reasoning)}'
        content = quote(message.text) if message.text else "null"
        return encode_utf8(
            f'{{"role":"assistant","content":{content},"tool_calls":[{calls}]{reasoning}}}'
        )

    def _encode_call(self, call: ToolCall) -> str:
        name = quote(self._names.outbound(call.tool))
        arguments = quote(arguments_as_object(call.arguments))
        function = f'{{"name":{name},"arguments":{arguments}}}'
        return f'{{"id":{quote(self._call_id(call.id))},"type":"function","function":{function}}}'

    def _call_id(self, id: str) -> str:
        """Return a call's id as the server takes it: the same one for a call and its result."""
        if not self._client.differences.short_call_ids or (len(id) == _SHORT_ID and id.isalnum()):
            return id
        return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:_SHORT_ID]


def _open_parser(who: str, tools: bool, sink: Sink | None) -> ChatStreamParser:
    return ChatStreamParser(AnswerBuilder.for_sink(sink), who, tools=tools)


def encode_chat_content(
    message: UserMessage, find_file: Callable[[MediaReference], str] | None = None
) -> str:
    """Return a user message with media as chat completions take it. Raises ProviderError."""
    from ferrule.models.media_encoding import encode_content

    blocks = encode_content(
        "chat completions", message.text, message.media, _encode_text_part, find_file
    )
    return f'{{"role":"user","content":[{",".join(blocks)}]}}'


def _encode_text_part(text: str) -> str:
    return f'{{"type":"text","text":{quote(text)}}}'


def _encode_options(options: ModelOptions, is_openai: bool, differences: ChatDifferences) -> bytes:
    """Encode the model options as the end of the request object.

    OpenAI itself renamed `max_tokens`.
    """
    names: dict[str, str] = {**CHAT_OPTION_NAMES, **differences.option_names}
    if is_openai:
        names["max_tokens"] = "max_completion_tokens"
    fields = name_options(options, names)
    if options.thinking is not None:
        switch = "effort" if is_openai else differences.thinking_switch
        fields |= _thinking_settings(options.thinking, switch)
    fields.update(options.extra)
    return ("," + encode_json(fields)[1:-1]).encode() if fields else b""


def _thinking_settings(wanted: bool | str, switch: ThinkingSwitch) -> dict[str, Any]:
    """Return how much the model reasons: a level is called the same everywhere."""
    if isinstance(wanted, str) or switch == "effort":
        return {"reasoning_effort": reasoning_effort(wanted)}
    if switch == "type":
        return {"thinking": {"type": "enabled" if wanted else "disabled"}}
    if switch == "field":
        return {"enable_thinking": wanted}
    return {"chat_template_kwargs": {"enable_thinking": wanted}}


def reasoning_effort(wanted: bool | str) -> str:
    """Return the level of reasoning that OpenAI's APIs know for a wish."""
    if isinstance(wanted, str):
        return wanted
    return "medium" if wanted else "none"
