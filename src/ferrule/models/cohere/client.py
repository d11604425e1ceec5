"""The client of Cohere's chat API, version 2.

vLLM speaks it too (`base_url="http://host:8000/cohere"`). Source: Cohere's API reference
(`POST /v2/chat`, streaming as server-sent events) and the types of its SDK.

* What a model said before its calls goes back as `tool_plan`, and its thinking with its calls, if
  the same model wrote it.
* The API refuses tools beside a schema for the reply: with a schema, no tools are sent.
* It refuses empty messages: `EMPTY_TEXT` stands for them.
* Older models refuse `tool_choice`: they are asked again without tools.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from json.encoder import encode_basestring as quote
from typing import Any
from urllib.parse import quote as quote_path

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.answer_building import AnswerBuilder, drop_calls
from ferrule.models.client import Capabilities, ModelOptions, Sink, ToolSpec, choose_notice
from ferrule.models.hosted_tools import refuse_hosted_tools
from ferrule.models.http.streaming import ModelRequest, send_request
from ferrule.models.http.transport import Transport
from ferrule.models.provider_errors import error_from_response
from ferrule.models.registry import check_options
from ferrule.models.request_encoding import (
    CHAT_OPTION_NAMES,
    EncodedHistory,
    ToolNames,
    arguments_as_object,
    encode_json_bytes,
    encode_tools,
    encode_utf8,
    name_options,
    parse_object,
    warn_of_truncation,
    weigh_text,
)
from ferrule.models.server_client import ServerClient, find_key
from ferrule.models.verbatim_json import seal, unseal

from .answers import ChatStreamParser, parse_answer

COHERE_URL = "https://api.cohere.com"
EMPTY_TEXT = "(nothing)"
"""Replaces text that is only blanks."""

_OPTION_NAMES = {**CHAT_OPTION_NAMES, "top_p": "p", "top_k": "k", "stop": "stop_sequences"}
_THINKING_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384, "max": 24_576}
"""Tokens that a model may think for, by level."""

_INVALID_TOKEN = 498
"""Cohere's status for a key that is no key."""


class Cohere(ServerClient):
    """A model behind a server of Cohere's chat API.

    Args:
        model: The model's name at the server.
        base_url: Everything before `/v2/chat`; defaults to CO_API_URL, read here.
        api_key: Defaults to CO_API_KEY, read here. It is sent only to `base_url`.
        transport: Its owner closes it. Without one, the client makes and closes its own.
        headers: Further headers of every request.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        transport: Transport | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        base = base_url or os.environ.get("CO_API_URL") or COHERE_URL
        self.base_url = base.rstrip("/").removesuffix("/v2")
        self.model_id = model
        is_required = self.base_url == COHERE_URL
        key = find_key(api_key, ("CO_API_KEY",), self.model, required=is_required)
        self.headers = {"Content-Type": "application/json", **(headers or {})}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        super().__init__(transport)
        self._capabilities: Capabilities | None = None

    @property
    def model(self) -> str:
        return f"cohere:{self.model_id}"

    async def capabilities(self) -> Capabilities:
        """Return what the server's description of the model says.

        Without one, tools are assumed: they are part of the format.
        """
        if self._capabilities is None:
            self._capabilities = await self._ask_server()
        return self._capabilities

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> CohereExchange:
        check_options(self.model, options)
        refuse_hosted_tools(options.provider_tools, self.model)
        return CohereExchange(self, system, tools, options)

    def read_refusal(
        self, status: int, headers: Mapping[str, str], body: bytes, *, tools: bool
    ) -> ProviderError:
        """Return the error that an answer which is no success stands for."""
        known = 401 if status == _INVALID_TOKEN else status
        error = error_from_response(self.model, known, headers, body, tools=tools)
        error.status = status
        return error

    async def _ask_server(self) -> Capabilities:
        url = f"{self.base_url}/v1/models/{quote_path(self.model_id, safe='')}"
        answer = await self.transport.retry(
            lambda: self.transport.get(url, self.headers, timeout=10.0)
        )
        if answer.status in (401, 403, _INVALID_TOKEN):
            raise self.read_refusal(answer.status, answer.headers, answer.body, tools=False)
        described = parse_object(answer.body) if answer.status == 200 else {}
        return _read_description(described)


class CohereExchange:
    """One conversation.

    `notices` collects (topic, text) pairs of questions asked without a sink; whoever drives the
    exchange reads and clears it. With a sink, notices go there and nowhere else. After a failed or
    cancelled `ask` the exchange is as it was before, and may be asked again.
    """

    def __init__(
        self, client: Cohere, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._client = client
        self._names = ToolNames(tools)
        self._timeout = options.timeout
        self._url = f"{client.base_url}/v2/chat"
        self._request_start = b'{"model":' + encode_json_bytes(client.model_id) + b',"messages":['
        self._options = encode_json_bytes(_request_settings(options))[1:-1]
        self._tools = b',"tools":' + encode_tools(tools) if tools else b""
        self._tools_weight = weigh_text(self._tools.decode())
        self._supports_tool_choice = True
        self._encoded_history = EncodedHistory(system, self._encode_message)

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        self._encoded_history.extend(history)
        notice = choose_notice(sink, self.notices)
        try:
            answer = await self._send(tools, schema, sink)
        except ProviderError as error:
            if error.code != "choice_unsupported" or tools:
                raise
            self._supports_tool_choice = False
            notice("fallback", "the model refuses `tool_choice`: asked again without tools")
            answer = await self._send(tools, schema, sink)
        return self._keep_thinking(answer) if tools else drop_calls(answer, notice)

    async def _send(
        self, tools: bool, schema: Mapping[str, Any] | None, sink: Sink | None
    ) -> ModelAnswered:
        notice = choose_notice(sink, self.notices)
        is_offered = schema is None and (tools or self._supports_tool_choice)
        offered = self._tools if is_offered else b""
        body = self._request_body(offered, tools, schema, streamed=sink is not None)

        answer = await self._client.transport.retry(
            lambda: self._send_once(body, bool(offered), sink), notice
        )
        weighed = self._encoded_history.weight + (self._tools_weight if offered else 0)
        warn_of_truncation(notice, weighed, answer.usage.input)
        return answer.build(self._names.inbound)

    def _keep_thinking(self, answer: ModelAnswered) -> ModelAnswered:
        """Return the answer with the thinking that goes back with its calls in `raw`."""
        if not answer.calls or not answer.reasoning:
            return answer
        content = encode_json([{"type": "thinking", "thinking": answer.reasoning}])
        ids = [call.id for call in answer.calls]
        return replace(answer, raw=seal(self._client.model, ids, content))

    def _request_body(
        self, offered: bytes, tools: bool, schema: Mapping[str, Any] | None, *, streamed: bool
    ) -> bytes:
        parts: list[bytes | bytearray] = [
            self._request_start,
            self._encoded_history.json,
            b"]",
            offered,
        ]
        if offered and not tools:
            parts.append(b',"tool_choice":"NONE"')
        if schema is not None:
            shape = {"type": "json_object", "json_schema": schema}
            parts += (b',"response_format":', encode_json_bytes(shape))
        if self._options:
            parts += (b",", self._options)
        parts.append(b',"stream":true}' if streamed else b',"stream":false}')
        return b"".join(parts)

    async def _send_once(self, body: bytes, tools: bool, sink: Sink | None) -> AnswerBuilder:
        client = self._client
        streamed = sink is not None
        return await send_request(
            client.transport,
            ModelRequest(self._url, body, client.headers, self._timeout, streamed),
            make_error=partial(client.read_refusal, tools=tools),
            parse_whole=lambda body: parse_answer(body, client.model, tools=tools, sink=sink),
            open_parser=lambda: ChatStreamParser(
                AnswerBuilder.for_sink(sink), client.model, tools=tools
            ),
        )

    # ---- messages out

    def _encode_message(self, message: Message) -> bytes:
        if isinstance(message, UserMessage) and message.media:
            return encode_utf8(_encode_media_message(message))
        if isinstance(message, UserMessage):
            return encode_utf8(f'{{"role":"user","content":{_quote_text(message.text)}}}')
        if isinstance(message, ToolMessage):
            id = quote(message.call_id)
            content = _quote_text(message.text)
            return encode_utf8(f'{{"role":"tool","tool_call_id":{id},"content":{content}}}')
        return encode_utf8(self._encode_assistant(message))

    def _encode_assistant(self, message: AssistantMessage) -> str:
        if not message.calls:
            return f'{{"role":"assistant","content":{_quote_text(message.text)}}}'
        fields = ['"role":"assistant"']
        kept = unseal(message.raw, self._client.model, [call.id for call in message.calls])
        if kept is not None:
            fields.append(f'"content":{kept["content"]}')
        if message.text.strip():
            fields.append(f'"tool_plan":{quote(message.text)}')
        calls = ",".join(self._encode_call(call) for call in message.calls)
        fields.append(f'"tool_calls":[{calls}]')
        return "{" + ",".join(fields) + "}"

    def _encode_call(self, call: ToolCall) -> str:
        name = quote(self._names.outbound(call.tool))
        arguments = quote(arguments_as_object(call.arguments))
        function = f'{{"name":{name},"arguments":{arguments}}}'
        return f'{{"id":{quote(call.id)},"type":"function","function":{function}}}'


def _encode_media_message(message: UserMessage) -> str:
    from ferrule.models.media_encoding import encode_content

    blocks = encode_content(
        "Cohere",
        message.text,
        message.media,
        lambda text: f'{{"type":"text","text":{quote(text)}}}',
    )
    return f'{{"role":"user","content":[{",".join(blocks)}]}}'


def _quote_text(text: str) -> str:
    return quote(text if text.strip() else EMPTY_TEXT)


def _request_settings(options: ModelOptions) -> dict[str, Any]:
    """Return the model options as members of the request."""
    fields = name_options(options, _OPTION_NAMES)
    if options.thinking is False:
        fields["thinking"] = {"type": "disabled"}
    elif options.thinking is not None:
        budget = _THINKING_BUDGETS.get(str(options.thinking))
        limit = {} if budget is None else {"token_budget": budget}
        fields["thinking"] = {"type": "enabled", **limit}
    return fields | dict(options.extra)


def _read_description(described: Mapping[str, Any]) -> Capabilities:
    """Read `GET /v1/models/{model}`."""
    features = described.get("features")
    length = described.get("context_length")
    context = int(length) if isinstance(length, (int, float)) and length > 0 else None
    if not isinstance(features, list):
        return Capabilities(True, context=context, source="part of the format")
    return Capabilities(
        "tools" in features,
        "json_schema" in features,
        context,
        source="/v1/models",
        structured_with_tools=False,
    )
