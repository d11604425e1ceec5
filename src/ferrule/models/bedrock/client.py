"""The client of models on Amazon Bedrock: Converse and ConverseStream.

Source: Amazon's API reference and the service model in `botocore`, which the tests check every
request with.

* Requests go over Ferrule's own transport, signed by botocore, or with a Bedrock API key.
* The API knows no way to keep a model from calling the tools that it is offered, and refuses a
  history of calls without tools. So tools stay, and calls that were not wanted are dropped; where
  a conversation has no tools, those of its history are named.
* Signed and hidden reasoning goes back as it came, to the model that wrote it.
* Models that cache prompts get cache points: after tools, after system text and at the end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from json.encoder import encode_basestring as quote
from typing import Any, cast
from urllib.parse import quote as quote_path

from ferrule.core import messages as core
from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.models.answer_building import AnswerBuilder, drop_calls
from ferrule.models.anthropic.client import thinking_settings
from ferrule.models.client import Capabilities, ModelOptions, Sink, ToolSpec, choose_notice
from ferrule.models.hosted_tools import refuse_hosted_tools
from ferrule.models.http.streaming import ModelRequest, send_request
from ferrule.models.http.transport import Transport
from ferrule.models.provider_errors import error_from_response
from ferrule.models.registry import check_options
from ferrule.models.replayed_content import Piece, is_blank, repair_call, repair_content
from ferrule.models.request_encoding import (
    EncodedTurns,
    ToolNames,
    arguments_as_object,
    describe_tool,
    encode_json_bytes,
    encode_utf8,
    name_options,
    parse_object,
    warn_of_truncation,
    weigh_text,
)
from ferrule.models.server_client import ServerClient
from ferrule.models.verbatim_json import unseal

from .answers import ConverseBuilder, ConverseStreamParser, parse_answer
from .aws import FrameSplitter, RequestSigner, find_region

EMPTY_TEXT = "(nothing)"
"""Replaces text that is only blanks: the API refuses empty text."""

_OPTION_NAMES = {
    "temperature": "temperature",
    "max_tokens": "maxTokens",
    "top_p": "topP",
    "stop": "stopSequences",
}
_CACHES = re.compile(r"(.*\.)?(anthropic\.claude|amazon\.nova)")
"""Models that take cache points; others refuse them."""
_CLAUDE = re.compile(r"(?:.*\.)?anthropic\.(claude-.*?)(?:-v\d+(?::\d+)?)?$")
_INVALID_IN_ID = re.compile(r"[^A-Za-z0-9_.:-]")
_CACHE_POINT = '{"cachePoint":{"type":"default"}}'
_LONGEST_ID = 64


class Bedrock(ServerClient):
    """A model on Amazon Bedrock.

    Args:
        model: The model's id, or the name of an inference profile.
        region: Defaults to AWS_REGION, AWS_DEFAULT_REGION or that of the profile, read here.
        base_url: Another server; defaults to AWS_ENDPOINT_URL_BEDROCK_RUNTIME.
        api_key: A Bedrock API key, sent in place of a signature; defaults to
            AWS_BEARER_TOKEN_BEDROCK.
        credentials: Credentials of botocore; by default those that it finds on this machine.
        transport: Its owner closes it. Without one, the client makes and closes its own.
        headers: Further headers of every request. They are not signed.
        cache: Whether models that cache prompts are told where.
    """

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        credentials: Any = None,
        transport: Transport | None = None,
        headers: Mapping[str, str] | None = None,
        cache: bool = True,
    ) -> None:
        where = region or find_region()
        base = base_url or os.environ.get("AWS_ENDPOINT_URL_BEDROCK_RUNTIME")
        if not where and not base:
            raise ConfigError(
                f"`bedrock:{model}` needs a region",
                code="region",
                hint="set AWS_REGION, such as `us-east-1`",
            )
        self.base_url = (base or f"https://bedrock-runtime.{where}.amazonaws.com").rstrip("/")
        key = api_key if api_key is not None else os.environ.get("AWS_BEARER_TOKEN_BEDROCK", "")
        self.model_id = model
        self.url = f"{self.base_url}/model/{quote_path(model, safe='')}"
        self.caches = cache and _CACHES.match(model) is not None
        self.headers = {"Content-Type": "application/json"}
        self._further_headers = dict(headers or {})
        self._signer: RequestSigner | None = None
        if key:
            self.headers["Authorization"] = f"Bearer {key.strip()}"
        else:
            self._signer = RequestSigner(where or "us-east-1", credentials)
        super().__init__(transport)
        self._prefix: _EncodedPrefix | None = None

    @property
    def model(self) -> str:
        return f"bedrock:{self.model_id}"

    async def capabilities(self) -> Capabilities:
        """Return what is known by the model's name: nobody can be asked without further rights."""
        if _CACHES.match(self.model_id):
            return Capabilities(True, source="provider table")
        return Capabilities()

    def open(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> BedrockExchange:
        check_options(self.model, options)
        refuse_hosted_tools(options.provider_tools, self.model)
        prefix = self._prefix
        if prefix is None or prefix.given != (system, tools):
            prefix = _EncodedPrefix(system, tools, caches=self.caches)
            # Only a tuple is remembered: a list could be changed later.
            self._prefix = prefix if isinstance(tools, tuple) else None
        return BedrockExchange(self, prefix, options)

    async def sign(self, url: str, body: bytes) -> dict[str, str]:
        """Return the headers of a request. Raises ProviderError if it cannot be signed."""
        headers = self.headers
        if self._signer is not None:
            headers = await self._signer.sign(url, body, headers)
        return {**headers, **self._further_headers}

    def read_refusal(
        self, status: int, headers: Mapping[str, str], body: bytes, *, tools: bool
    ) -> ProviderError:
        """Return the error that an answer which is no success stands for.

        Amazon says in a header what kind of error it is.
        """
        kind = headers.get("x-amzn-errortype", "").partition(":")[0]
        if kind:
            body = encode_json_bytes({"code": kind, **parse_object(body)})
        return error_from_response(self.model, status, headers, body, tools=tools)


class _EncodedPrefix:
    """System text and tools as they are sent, encoded once for the conversations sharing them."""

    def __init__(self, system: str, tools: Sequence[ToolSpec], *, caches: bool) -> None:
        self.given = (system, tools)
        self.names = ToolNames(tools)
        point = f",{_CACHE_POINT}" if caches else ""
        listed = ",".join(_encode_tool(tool) for tool in tools)
        self.tools = encode_utf8(f'{{"tools":[{listed}{point}]}}' if tools else "")
        text = f'{{"text":{quote(system)}}}{point}'
        self.system = encode_utf8(f'"system":[{text}],' if system.strip() else "")
        self.weight = weigh_text(system) + weigh_text(listed)


class BedrockExchange:
    """One conversation.

    `notices` collects (topic, text) pairs of questions asked without a sink; whoever drives the
    exchange reads and clears it. With a sink, notices go there and nowhere else. After a failed or
    cancelled `ask` the exchange is as it was before, and may be asked again.
    """

    def __init__(self, client: Bedrock, prefix: _EncodedPrefix, options: ModelOptions) -> None:
        self.notices: list[tuple[str, str]] = []
        self._client = client
        self._prefix = prefix
        self._timeout = options.timeout
        self._settings = _request_settings(client.model_id, options)
        self._encoded_turns = EncodedTurns(self._encode_message, "content")
        self._called: dict[str, None] = {}

    async def ask(
        self,
        history: Sequence[core.Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        self._encoded_turns.extend(history)
        notice = choose_notice(sink, self.notices)
        body = self._request_body(schema)

        async def attempt() -> ConverseBuilder:
            content = ConverseBuilder(AnswerBuilder.for_sink(sink))
            await self._send(body, content, streamed=sink is not None)
            return content

        content = await self._client.transport.retry(attempt, notice)
        answer = content.build(self._client.model, self._prefix.names.inbound)
        weighed = self._encoded_turns.weight + self._prefix.weight
        warn_of_truncation(notice, weighed, answer.usage.input)
        if answer.calls and not tools:
            return replace(drop_calls(answer, notice), raw=None)
        return answer

    def _request_body(self, schema: Mapping[str, Any] | None) -> bytes:
        """Return the request. What changes between turns stands behind the conversation."""
        encoded = self._encoded_turns.json
        parts: list[bytes | bytearray] = [b"{", self._prefix.system, b'"messages":[', encoded]
        if self._client.caches and encoded:
            parts[-1] = encoded[:-2]
            parts.append(encode_utf8(f",{_CACHE_POINT}]}}"))
        parts.append(b"]")
        offered = self._prefix.tools or self._name_called_tools()
        if offered:
            parts += (b',"toolConfig":', offered)
        settings = dict(self._settings)
        if schema is not None:
            wanted = {"schema": encode_json(schema), "name": "reply"}
            shape = {"type": "json_schema", "structure": {"jsonSchema": wanted}}
            settings["outputConfig"] = {**settings.get("outputConfig", {}), "textFormat": shape}
        if settings:
            parts += (b",", encode_json_bytes(settings)[1:-1])
        parts.append(b"}")
        return b"".join(parts)

    def _name_called_tools(self) -> bytes:
        """Return tools for a history of calls: the API refuses one without any."""
        specs = [
            {
                "name": name,
                "description": "This tool is no longer there.",
                "inputSchema": {"json": {"type": "object"}},
            }
            for name in self._called
        ]
        return (
            encode_json_bytes({"tools": [{"toolSpec": spec} for spec in specs]}) if specs else b""
        )

    async def _send(self, body: bytes, content: ConverseBuilder, *, streamed: bool) -> None:
        client = self._client
        url = f"{client.url}/{'converse-stream' if streamed else 'converse'}"
        headers = await client.sign(url, body)
        tools = bool(self._prefix.tools)
        await send_request(
            client.transport,
            ModelRequest(url, body, headers, self._timeout, streamed),
            make_error=partial(client.read_refusal, tools=tools),
            parse_whole=lambda body: parse_answer(content, body, client.model, tools=tools),
            open_parser=lambda: ConverseStreamParser(content, client.model, tools=tools),
            open_splitter=lambda: FrameSplitter(client.model),
        )

    # ---- messages out

    def _encode_message(self, message: core.Message) -> tuple[str, str]:
        if isinstance(message, core.UserMessage):
            if message.media:
                return "user", _encode_content(message)
            return "user", _encode_text(message.text)
        if isinstance(message, core.ToolMessage):
            content = f'[{{"text":{quote(message.text if message.text.strip() else EMPTY_TEXT)}}}]'
            if message.media:
                content = f"[{_encode_content(message)}]"
            status = "success" if message.success else "error"
            fields = f'"toolUseId":{quote(_fit_id(message.call_id))},"content":{content}'
            return "user", f'{{"toolResult":{{{fields},"status":"{status}"}}}}'
        for call in message.calls:
            self._called[self._prefix.names.outbound(call.tool)] = None
        kept = unseal(message.raw, self._client.model, [call.id for call in message.calls])
        content = "" if kept is None else repair_content(kept["content"], _repair_block)
        return "assistant", content or self._encode_assistant(message)

    def _encode_assistant(self, message: core.AssistantMessage) -> str:
        blocks = [_encode_text(message.text)] if message.text.strip() or not message.calls else []
        for call in message.calls:
            name = quote(self._prefix.names.outbound(call.tool))
            arguments = arguments_as_object(call.arguments)
            fields = f'"toolUseId":{quote(_fit_id(call.id))},"name":{name},"input":{arguments}'
            blocks.append(f'{{"toolUse":{{{fields}}}}}')
        return ",".join(blocks)


def _encode_text(text: str) -> str:
    return f'{{"text":{quote(text if text.strip() else EMPTY_TEXT)}}}'


def _encode_content(message: core.UserMessage | core.ToolMessage) -> str:
    from ferrule.models.media_encoding import encode_content

    return ",".join(encode_content("Converse", message.text, message.media, _encode_text))


def _repair_block(block: Piece) -> Piece | None:
    """Return a block of an answer as the API takes it back (`replayed_content`)."""
    if "text" in block:
        return None if is_blank(block["text"]) else block
    call = block.get("toolUse")
    if not isinstance(call, dict):
        return block
    repaired = repair_call(cast("Piece", call), "input")
    id = repaired.get("toolUseId")
    # Its result names it by the id that the API allows.
    if isinstance(id, str) and id != _fit_id(id):
        repaired = {**repaired, "toolUseId": _fit_id(id)}
    return block if repaired is call else {**block, "toolUse": repaired}


def _fit_id(id: str) -> str:
    """Return a call's id as the API allows it."""
    return _INVALID_IN_ID.sub("_", id)[:_LONGEST_ID] or "unnamed"


def _encode_tool(tool: ToolSpec) -> str:
    schema = tool.schema or '{"type":"object"}'
    described = describe_tool(tool)
    description = f'"description":{quote(described)},' if described.strip() else ""
    fields = f'"name":{quote(tool.api_name)},{description}"inputSchema":{{"json":{schema}}}'
    return f'{{"toolSpec":{{{fields}}}}}'


def _request_settings(model: str, options: ModelOptions) -> dict[str, Any]:
    """Return the model options as members of the request."""
    fields: dict[str, Any] = {}
    inference = name_options(options, _OPTION_NAMES)
    if options.thinking is not None:
        further, most = _thinking_fields(model, options.thinking, options.max_tokens)
        fields["additionalModelRequestFields"] = further
        if most:
            inference["maxTokens"] = most
    if inference:
        fields["inferenceConfig"] = inference
    if options.service_tier:
        fields["serviceTier"] = {"type": options.service_tier}
    return fields | dict(options.extra)


def _thinking_fields(
    model: str, wanted: bool | str, max_tokens: int | None
) -> tuple[dict[str, Any], int]:
    """Return how much the model thinks, in its maker's words, and the limit that needs.

    Raises:
        ConfigError: It is not known what the model's maker calls it.
    """
    claude = _CLAUDE.match(model)
    if claude is not None:
        # A budget of thoughts must be below the limit of the answer.
        most = max_tokens or 32_000
        return thinking_settings(claude[1], wanted, most), most
    level = wanted if isinstance(wanted, str) else "medium"
    if "amazon.nova-2" in model:
        if wanted is False:
            return {"reasoningConfig": {"type": "disabled"}}, 0
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}, 0
    if "openai." in model:
        return {"reasoning_effort": "low" if wanted is False else level}, 0
    raise ConfigError(
        f"`bedrock:{model}` cannot be told how much to think: nobody knows its words for it",
        code="model_options",
        hint="say it in `extra`, as `additionalModelRequestFields`",
    )
