"""The Messages client: Anthropic, and every server that speaks its format.

llama.cpp, Ollama and gateways speak it too. Source: Anthropic's API reference (`POST /v1/messages`,
streaming as server-sent events) and the types of its SDK.

* The tool results of a turn go into one user message, before any text: the API wants them directly
  after their calls.
* Blocks that the message itself cannot reproduce in the same bytes (signed or redacted thinking,
  hosted tools and their results, citations, tool references) are kept in `raw` and replayed as they
  came. A history from another client or model is sent as plain text and calls: signatures are valid
  only for the model that wrote them.
* The provider pauses long work of its hosted tools (`pause_turn`): the answer is sent back and
  continues, a limited number of times.
* Marks for the prompt cache: after the tools, which conversations with other system text share;
  after the system text; and one that the API sets at the end. The API looks for what it has cached
  among the last 20 blocks before a mark only. After a turn of many calls, which is longer, a fourth
  mark (as many as the API takes) stands where the question before this one ended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from json.encoder import encode_basestring as quote
from typing import TYPE_CHECKING, Any

from ferrule.core import messages as core
from ferrule.core.calls import encode_json, parse_json
from ferrule.core.events import ModelAnswered
from ferrule.core.media import MediaReference
from ferrule.models.answer_building import AnswerBuilder, drop_calls
from ferrule.models.capabilities import find_known_provider, read_anthropic_model, read_llama_props
from ferrule.models.client import (
    Capabilities,
    ModelOptions,
    Sink,
    ToolSpec,
    choose_notice,
)
from ferrule.models.hosted_tools import encode_hosted_tools
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
    encode_cache_mark,
    encode_json_bytes,
    encode_utf8,
    find_thinking_budget,
    name_options,
    parse_object,
    warn_of_truncation,
    weigh_text,
)
from ferrule.models.server_client import ServerClient, find_key, open_uploads
from ferrule.models.verbatim_json import unseal

from .answers import STOP_REASONS, MessageBuilder, MessageStreamParser, parse_answer

if TYPE_CHECKING:
    from ferrule.models.media_uploads import MediaUploads

ANTHROPIC_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
_FILES_BETA = "files-api-2025-04-14"
"""Uploads, and requests that name what was uploaded, must say it: the Files API is a beta."""
MAX_PAUSES = 16
"""Most times that one answer is continued after the provider paused it."""

_MAX_TOKENS_OF_OLDER_MODELS = (
    (re.compile(r"claude-3-(opus|sonnet|haiku)"), 4_096),
    (re.compile(r"claude-3-"), 8_192),
)
DEFAULT_MAX_TOKENS = 32_000
"""`max_tokens` if none is set: the API requires a number. Older models take less, see above."""

_HAS_THINKING_BUDGET = re.compile(
    r"claude-3-7|claude-(opus|sonnet|haiku)-4(-[0-5])?(-20\d{6})?(-latest)?$"
)
"""Models that think within a number of tokens; later ones decide by themselves (`adaptive`)."""
_THINKING_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384, "max": 24_576}
_THINKS_BETWEEN_TOOLS = re.compile(r"(.*[./])?claude-sonnet-5-5")
"""Models that are kept from thinking by a word of their own: `disabled` is refused."""

_OPTION_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop": "stop_sequences",
    "service_tier": "service_tier",
}
_INVALID_IN_ID = re.compile(r"[^A-Za-z0-9_-]")
LOOKBACK = 18
"""Blocks among which the API certainly looks for what it has cached; it says 20."""
_TURN_END = b"}]}"
"""How the last block of a turn, the turn's blocks and the turn end."""
_EMPTY_TEXT = "(nothing)"
"""Replaces text that is only blanks: the API refuses empty text."""


class Anthropic(ServerClient):
    """A model behind a Messages server.

    Args:
        model: The model's name at the server.
        base_url: Everything before `/v1/messages`; defaults to ANTHROPIC_BASE_URL, read here.
        api_key: Defaults to ANTHROPIC_API_KEY, read here. It is sent only to `base_url`.
        transport: Its owner closes it. Without one, the client makes and closes its own.
        headers: Further headers of every request.
        betas: Names for the `anthropic-beta` header.
        cache: How long a cached prefix lives ("5m", "1h"); "" for no cache marks.
        force_native_tool_search: A gateway passes the provider's tool search on, whatever the
            model is called there.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        transport: Transport | None = None,
        headers: Mapping[str, str] | None = None,
        betas: Sequence[str] = (),
        cache: str = "5m",
        force_native_tool_search: bool = False,
    ) -> None:
        encode_cache_mark(cache)
        base = base_url or os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL
        self.base_url = base.rstrip("/").removesuffix("/v1")
        self.is_anthropic = self.base_url.startswith(ANTHROPIC_URL)
        self.model_id = model
        key = find_key(api_key, ("ANTHROPIC_API_KEY",), self.model, required=self.is_anthropic)
        self.cache = cache
        self.force_tool_search = force_native_tool_search
        self.headers = {"Content-Type": "application/json", "anthropic-version": VERSION}
        if key:
            self.headers["x-api-key"] = key
        if betas:
            self.headers["anthropic-beta"] = ",".join(betas)
        self.headers |= headers or {}
        super().__init__(transport)
        self._capabilities: Capabilities | None = None
        self._prefix: _EncodedPrefix | None = None

    @property
    def model(self) -> str:
        return f"anthropic:{self.model_id}"

    async def capabilities(self) -> Capabilities:
        """Return what the model can do.

        Sources, in this order: a table of Anthropic's own models, the server's description of the
        model, llama.cpp's `/props`. Without any of them, tools are assumed: they are part of the
        format.
        """
        if self._capabilities is None:
            found = (
                find_known_provider(self.base_url + "/", self.model_id) or await self._ask_server()
            )
            if self.force_tool_search:
                found = replace(found, tool_search=True)
            self._capabilities = found
        return self._capabilities

    def open(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> AnthropicExchange:
        check_options(self.model, options)
        prefix = self._prefix
        cache = options.cache_control or self.cache
        given = (system, tools, options.provider_tools, options.tool_search, cache)
        if prefix is None or prefix.given != given:
            prefix = _EncodedPrefix(system, tools, options, cache, typed=self.is_anthropic)
            # Only a tuple is remembered: a list could be changed later.
            self._prefix = prefix if isinstance(tools, tuple) else None
        return AnthropicExchange(self, prefix, options)

    async def upload_file(self, one: MediaReference, data: bytes) -> str:
        """Upload a medium to the Files API and return its id. Raises ProviderError.

        Source: `POST /v1/files` of Anthropic's API reference.
        """
        from ferrule.models.media_uploads import FILE_SECONDS, upload_form

        fields = {"expires_in_seconds": str(FILE_SECONDS)}
        headers = _add_files_beta(self.headers)
        return await upload_form(self, f"{self.base_url}/v1/files", one, data, fields, headers)

    async def _ask_server(self) -> Capabilities:
        answer = await self.transport.retry(
            lambda: self.transport.get(
                f"{self.base_url}/v1/models/{self.model_id}", self.headers, timeout=10.0
            )
        )
        if answer.status in (401, 403):
            raise error_from_response(
                self.model, answer.status, answer.headers, answer.body, tools=False
            )
        found = read_anthropic_model(parse_object(answer.body)) if answer.status == 200 else None
        if found is not None:
            return found
        props = await self.transport.get(f"{self.base_url}/props", self.headers, timeout=10.0)
        found = read_llama_props(parse_object(props.body)) if props.status == 200 else None
        if found is not None:
            # llama.cpp does not constrain replies to a schema on this route.
            return replace(found, structured=False)
        # If the server refuses tools after all, the next tool mode is tried.
        return Capabilities(True, source="part of the format")


class _EncodedPrefix:
    """System text and tools as they are sent, encoded once for the conversations sharing them."""

    def __init__(
        self,
        system: str,
        tools: Sequence[ToolSpec],
        options: ModelOptions,
        cache: str,
        *,
        typed: bool,
    ) -> None:
        self.given = (system, tools, options.provider_tools, options.tool_search, cache)
        self.cache = cache
        self.names = ToolNames(tools)
        mark = encode_cache_mark(cache)
        eager = [tool for tool in tools if not tool.deferred]
        marked = eager[-1] if eager else None
        sent: list[str] = []
        if options.tool_search:
            sent.append(_TOOL_SEARCH % {"variant": options.tool_search})
        sent += [item.decode() for item in encode_hosted_tools(options.provider_tools)]
        sent += [_encode_tool(tool, mark if tool is marked else "", typed) for tool in tools]
        self.tools = encode_utf8(f',"tools":[{",".join(sent)}]') if sent else b""
        block = f'{{"type":"text","text":{quote(system)}{mark}}}'
        self.system = encode_utf8(f',"system":[{block}]') if system.strip() else b""
        self.weight = weigh_text(system) + sum(
            weigh_text(_encode_tool(tool, "", typed)) for tool in eager
        )


class AnthropicExchange:
    """One conversation.

    `notices` collects (topic, text) pairs of questions asked without a sink; whoever drives the
    exchange reads and clears it. With a sink, notices go there and nowhere else. After a failed or
    cancelled `ask` the exchange is as it was before, and may be asked again.
    """

    def __init__(self, client: Anthropic, prefix: _EncodedPrefix, options: ModelOptions) -> None:
        self.notices: list[tuple[str, str]] = []
        self._client = client
        self._prefix = prefix
        self._options = options
        self._url = f"{client.base_url}/v1/messages"
        settings = _request_settings(client.model_id, options)
        self._output_config: Any = settings.pop("output_config", {})
        self._request_head = (
            b"{" + encode_json_bytes({"model": client.model_id, **settings})[1:-1] + prefix.system
        )
        if prefix.cache:
            self._request_head += encode_utf8(encode_cache_mark(prefix.cache))
        self._encoded_messages = EncodedTurns(self._encode_message, "content")
        self._headers: Mapping[str, str] = client.headers
        self._uploads: MediaUploads | None = open_uploads(client, "Messages", options)
        if self._uploads is not None:
            self._headers = _add_files_beta(client.headers)
        self._container = ""
        self._replayed_calls: set[str] = set()
        self._cached_until = 0
        self._cached_messages = 0
        self._is_far = False

    async def ask(
        self,
        history: Sequence[core.Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        notice = choose_notice(sink, self.notices)
        if self._uploads is not None and await self._uploads.prepare(history, notice):
            self._encoded_messages.extend(())
        known = len(self._encoded_messages.json)
        self._encoded_messages.extend(history)
        if len(self._encoded_messages.json) < known:
            # Another conversation: it has another end.
            self._cached_until = 0
        self._is_far = _count_blocks(history[self._cached_messages :]) > LOOKBACK
        message = MessageBuilder(AnswerBuilder.for_sink(sink))
        head = self._request_start(tools, schema, streamed=sink is not None)
        for _ in range(MAX_PAUSES):
            message.stop = ""
            body = self._request_body(head, message)
            await self._client.transport.retry(
                lambda body=body: self._send(body, message, sink), notice
            )
            self._container = message.container or self._container
            if STOP_REASONS.get(message.stop) != "pause" or not message.blocks:
                break
        else:
            notice(
                "paused",
                f"the provider paused {MAX_PAUSES} times: the answer is taken as it stands",
            )
        self._cached_until = len(self._encoded_messages.json)
        self._cached_messages = len(history)
        weighed = self._encoded_messages.weight + self._prefix.weight
        warn_of_truncation(notice, weighed, message.spent.input)
        return self._build_answer(message, tools, notice)

    def _build_answer(
        self, message: MessageBuilder, tools: bool, notice: Callable[[str, str], None]
    ) -> ModelAnswered:
        answer = message.build(self._prefix.names.inbound)
        if answer.calls and not tools:
            return drop_calls(answer, notice)
        plain = core.AssistantMessage(answer.text, answer.calls)
        return message.with_raw(self._client.model, answer, f"[{self._encode_assistant(plain)}]")

    def _request_start(
        self, tools: bool, schema: Mapping[str, Any] | None, *, streamed: bool
    ) -> bytes:
        parts = [self._request_head, self._prefix.tools]
        if self._prefix.tools and not tools:
            parts.append(b',"tool_choice":{"type":"none"}')
        output_config = dict(self._output_config)
        if schema is not None:
            output_config["format"] = {"type": "json_schema", "schema": schema}
        if output_config:
            parts += (b',"output_config":', encode_json_bytes(output_config))
        if streamed:
            parts.append(b',"stream":true')
        parts.append(b',"messages":[')
        return b"".join(parts)

    def _request_body(self, head: bytes, message: MessageBuilder) -> bytes:
        parts: list[bytes | bytearray] = [head, *self._messages_with_mark()]
        if message.blocks:
            parts.append(encode_utf8(f',{{"role":"assistant","content":{message.content()}}}'))
        parts.append(b"]")
        if self._container:
            parts.append(encode_utf8(f',"container":{encode_json(self._container)}'))
        parts.append(b"}")
        return b"".join(parts)

    def _messages_with_mark(self) -> list[bytes | bytearray]:
        """Return the encoded messages, if need be with a mark where the last question ended.

        Without need there is none, so that what was sent before is sent again byte for byte.
        """
        encoded = self._encoded_messages.json
        end = self._cached_until - len(_TURN_END)
        if not self._prefix.cache or not self._is_far or end <= 0:
            return [encoded]
        return [encoded[:end], encode_utf8(encode_cache_mark(self._prefix.cache)), encoded[end:]]

    async def _send(self, body: bytes, message: MessageBuilder, sink: Sink | None) -> None:
        client = self._client
        offered = bool(self._prefix.tools)
        message.usage = {}
        timeout = self._options.timeout
        await send_request(
            client.transport,
            ModelRequest(self._url, body, self._headers, timeout, streamed=sink is not None),
            make_error=partial(error_from_response, client.model, tools=offered),
            parse_whole=lambda body: parse_answer(message, body, client.model, tools=offered),
            open_parser=lambda: MessageStreamParser(message, client.model, tools=offered),
        )

    # ---- messages out

    def _encode_message(self, message: core.Message) -> tuple[str, str]:
        if isinstance(message, core.UserMessage):
            if message.media:
                return "user", self._encode_content(message)
            return "user", _encode_text(message.text)
        if isinstance(message, core.ToolMessage):
            id = (
                message.call_id
                if message.call_id in self._replayed_calls
                else _encode_id(message.call_id)
            )
            content = f"[{self._encode_content(message)}]" if message.media else quote(message.text)
            failed = "" if message.success else ',"is_error":true'
            fields = f'"tool_use_id":{quote(id)},"content":{content}{failed}'
            return "user", f'{{"type":"tool_result",{fields}}}'
        kept = unseal(message.raw, self._client.model, [call.id for call in message.calls])
        content = "" if kept is None else repair_content(kept["content"], _repair_block)
        if kept is None or not content:
            return "assistant", self._encode_assistant(message)
        self._replayed_calls.update(call.id for call in message.calls)
        if "container" in kept:
            self._container = str(parse_json(kept["container"]))
        return "assistant", content

    def _encode_content(self, message: core.UserMessage | core.ToolMessage) -> str:
        from ferrule.models.media_encoding import encode_content

        find_file = None if self._uploads is None else self._uploads.find_file
        return ",".join(
            encode_content("Messages", message.text, message.media, _encode_text, find_file)
        )

    def _encode_assistant(self, message: core.AssistantMessage) -> str:
        blocks = [_encode_text(message.text)] if message.text.strip() or not message.calls else []
        for call in message.calls:
            name = self._prefix.names.outbound(call.tool)
            blocks.append(
                f'{{"type":"tool_use","id":{quote(_encode_id(call.id))},"name":{quote(name)},'
                f'"input":{arguments_as_object(call.arguments)}}}'
            )
        return ",".join(blocks)


def _count_blocks(messages: Sequence[core.Message]) -> int:
    """Return the number of blocks that messages have, or a few more."""
    return sum(
        1 + len(message.calls)
        if isinstance(message, core.AssistantMessage)
        else 1 + 2 * len(message.media)
        for message in messages
    )


def _encode_text(text: str) -> str:
    shown = text if text.strip() else _EMPTY_TEXT
    return f'{{"type":"text","text":{quote(shown)}}}'


def _repair_block(block: Piece) -> Piece | None:
    """Return a block of an answer as the API takes it back (`replayed_content`)."""
    kind = block.get("type")
    if kind == "text":
        return None if is_blank(block.get("text")) else block
    if kind not in ("tool_use", "server_tool_use", "mcp_tool_use"):
        return block
    if kind == "tool_use":
        return repair_call(block, "input")
    if isinstance(block.get("input"), dict):
        return block
    return {**block, "input": {}}


def _encode_id(id: str) -> str:
    """Return a call's id as the API allows it. Those of other providers have dots and colons."""
    return _INVALID_IN_ID.sub("_", id) or "unnamed"


_TOOL_TYPES = frozenset({"bash_20250124", "text_editor_20250728", "memory_20250818"})
"""Types of tools that the API describes itself."""


def _encode_tool(tool: ToolSpec, mark: str, typed: bool) -> str:
    deferred = ',"defer_loading":true' if tool.deferred else ""
    if typed and tool.provider_type in _TOOL_TYPES:
        name = quote(tool.api_name)
        return f'{{"type":"{tool.provider_type}","name":{name}{deferred}{mark}}}'
    return (
        f'{{"name":{quote(tool.api_name)},"description":{quote(describe_tool(tool))},'
        f'"input_schema":{tool.schema or _ANY_OBJECT}{deferred}{mark}}}'
    )


_ANY_OBJECT = '{"type":"object"}'
_TOOL_SEARCH = (
    '{"type":"tool_search_tool_%(variant)s_20251119","name":"tool_search_tool_%(variant)s"}'
)
"""The provider's own tool search, by variant. It comes first and is never deferred itself."""


def _request_settings(model: str, options: ModelOptions) -> dict[str, Any]:
    """Return the model options as members of the request."""
    max_tokens = options.max_tokens or _default_max_tokens(model)
    fields: dict[str, Any] = {"max_tokens": max_tokens}
    fields |= name_options(options, _OPTION_NAMES)
    fields.update(thinking_settings(model, options.thinking, max_tokens))
    return fields | dict(options.extra)


def _default_max_tokens(model: str) -> int:
    for pattern, max_tokens in _MAX_TOKENS_OF_OLDER_MODELS:
        if pattern.match(model):
            return max_tokens
    return DEFAULT_MAX_TOKENS


def thinking_settings(model: str, wanted: bool | str | None, max_tokens: int) -> dict[str, Any]:
    """Return how much a model thinks, as members of a request.

    Args:
        model: Its name at Anthropic.
        wanted: A level, whether it thinks at all, or None for its default.
        max_tokens: Most tokens of the answer, thoughts included.

    Raises:
        ConfigError: The model thinks within a number of tokens, and no level of that name is known.
    """
    if wanted is None:
        return {}
    if wanted is False:
        off = "between_tools" if _THINKS_BETWEEN_TOOLS.match(model) else "disabled"
        return {"thinking": {"type": off}}
    level = wanted if isinstance(wanted, str) else "medium"
    if _HAS_THINKING_BUDGET.match(model):
        budget = find_thinking_budget(model, level, _THINKING_BUDGETS)
        budget = max(1024, min(budget, max_tokens - 1024))
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}
    adaptive: dict[str, Any] = {"thinking": {"type": "adaptive"}}
    if isinstance(wanted, str):
        adaptive["output_config"] = {"effort": wanted}
    return adaptive


def _add_files_beta(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request that uploads a file, or may name one."""
    betas = headers.get("anthropic-beta", "")
    return {**headers, "anthropic-beta": f"{betas},{_FILES_BETA}" if betas else _FILES_BETA}
