"""The Messages wire: Anthropic, and every server that speaks its format (llama.cpp, Ollama,
gateways).

Source: Anthropic's API reference (`POST /v1/messages`, streaming as server-sent events) and the
    types of its SDK.

* Results of a round go into one user turn, before any words: the API wants them right behind their
  calls.
* Blocks that the message itself does not spell in the same bytes (signed or redacted thinking,
  hosted tools and their results, citations, tool references) are kept in `raw` and replayed as they
  came. A history that another wire or another model made is sent as plain text and calls:
  signatures hold for the model that wrote them.
* The provider pauses long work of its hosted tools (`pause_turn`): the answer is sent back and goes
  on, a few times.
* Two marks for the prompt cache: one behind tools and system text, which never change in a session,
  and one that the API moves along with the conversation.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from json.encoder import encode_basestring as quote
from typing import Any

from ferrule.core import messages as core
from ferrule.core.calls import compact
from ferrule.core.errors import ConfigError
from ferrule.core.events import ModelAnswered
from ferrule.models.answer_folding import Answer, without_calls
from ferrule.models.capabilities import from_anthropic, from_props, known_provider
from ferrule.models.client import Capabilities, ModelOptions, Sink, ToolSpec
from ferrule.models.exact_json import unseal, utf8
from ferrule.models.hosted_tools import tools_json
from ferrule.models.http.server_sent_events import Events
from ferrule.models.http.streaming import fold_stream
from ferrule.models.http.transport import Transport
from ferrule.models.provider_errors import refusal
from ferrule.models.request_encoding import (
    Names,
    arguments_object,
    described,
    dumps,
    json_object,
    message_weight,
    truncation,
    weight,
)

from .answers import STOPS, Message, StreamFold, fold_whole

ANTHROPIC_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
PAUSES = 16
"""Times that one answer may be taken up again after the provider paused it."""

_MOST = ((re.compile(r"claude-3-(opus|sonnet|haiku)"), 4_096), (re.compile(r"claude-3-"), 8_192))
MOST = 32_000
"""`max_tokens` where a person sets none: the API wants a number. Older models take less, see above.
"""

_BUDGETED = re.compile(r"claude-3-7|claude-(opus|sonnet|haiku)-4(-[0-5])?(-20\d{6})?(-latest)?$")
"""Models that think within a number of tokens; those after them decide by themselves (`adaptive`).
"""
_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384, "max": 24_576}

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_-]")
_NOTHING = "(nothing)"
"""What stands for words that are only blanks: the API refuses an empty text."""


class Anthropic:
    """A model behind a Messages server. `base_url` is everything before `/v1/messages`.

    `api_key` and `base_url` default to ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL, read here; the key
    is sent only to `base_url`. `betas` are names for the `anthropic-beta` header. `cache` is how
    long a cached prefix lives ("5m", "1h"), "" for no marks. `force_native_tool_search` says that a
    gateway passes the provider's tool search on, whatever the model is called there. A `transport`
    that is given stays its owner's to close.
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
        if cache not in ("", "5m", "1h"):
            raise ConfigError(f"cache = {cache!r}", code="cache", hint='"5m", "1h" or ""')
        base = base_url or os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL
        self.base_url = base.rstrip("/").removesuffix("/v1")
        self.native = self.base_url.startswith(ANTHROPIC_URL)
        key = api_key if api_key is not None else os.environ.get("ANTHROPIC_API_KEY", "")
        if self.native and not key:
            raise ConfigError(
                f"`anthropic:{model}` needs an API key",
                code="api_key",
                hint="set ANTHROPIC_API_KEY, or `base_url`",
            )
        self.id = model
        self.cache = cache
        self.searches = force_native_tool_search
        self.headers = {
            "Content-Type": "application/json",
            "anthropic-version": VERSION,
            **({"x-api-key": key.strip()} if key else {}),
            **({"anthropic-beta": ",".join(betas)} if betas else {}),
            **(headers or {}),
        }
        self.transport = transport or Transport()
        self._owns_transport = transport is None
        self._capabilities: Capabilities | None = None
        self._offer: _Offer | None = None

    @property
    def model(self) -> str:
        return f"anthropic:{self.id}"

    async def capabilities(self) -> Capabilities:
        """A table for Anthropic's own models; else the server's description of the model; else
        llama.cpp's `/props`; else tools, which are part of the format.
        """
        if self._capabilities is None:
            found = known_provider(self.base_url + "/", self.id) or await self._ask_server()
            self._capabilities = replace(found, tool_search=True) if self.searches else found
        return self._capabilities

    def open(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> AnthropicExchange:
        offer = self._offer
        if offer is None or offer.given != (
            system,
            tools,
            options.provider_tools,
            options.tool_search,
        ):
            offer = _Offer(system, tools, options, self.cache)
            # A list could change under us.
            self._offer = offer if isinstance(tools, tuple) else None
        return AnthropicExchange(self, offer, options)

    async def close(self) -> None:
        if self._owns_transport:
            await self.transport.close()

    async def _ask_server(self) -> Capabilities:
        answer = await self.transport.retrying(
            lambda: self.transport.get(
                f"{self.base_url}/v1/models/{self.id}", self.headers, timeout=10.0
            )
        )
        if answer.status in (401, 403):
            raise refusal(self.model, answer.status, answer.headers, answer.body, tools=False)
        if answer.status == 200 and (found := from_anthropic(json_object(answer.body))):
            return found
        props = await self.transport.get(f"{self.base_url}/props", self.headers, timeout=10.0)
        found = from_props(json_object(props.body)) if props.status == 200 else None
        # llama.cpp holds no reply to a schema on this route. For others: a refusal falls to the
        # next way.
        return (
            replace(found, structured=False)
            if found
            else Capabilities(True, source="part of the format")
        )


class _Offer:
    """System text and tools as they are sent, encoded once for all conversations that have the
    same.
    """

    def __init__(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions, cache: str
    ) -> None:
        self.given = (system, tools, options.provider_tools, options.tool_search)
        self.names = Names(tools)
        mark = _mark(cache)
        hosted = [item.decode() for item in tools_json(options.provider_tools)]
        marked = (
            next((tool for tool in reversed(tools) if not tool.deferred), None)
            if not system
            else None
        )
        search = [_SEARCH % {"variant": options.tool_search}] if options.tool_search else []
        sent = [*search, *hosted, *(_tool(tool, mark if tool is marked else "") for tool in tools)]
        self.tools = utf8(f',"tools":[{",".join(sent)}]') if sent else b""
        block = f'{{"type":"text","text":{quote(system)}{mark}}}'
        self.system = utf8(f',"system":[{block}]') if system.strip() else b""
        eager = sum(weight(_tool(tool, "")) for tool in tools if not tool.deferred)
        self.weight = weight(system) + eager


class AnthropicExchange:
    """One conversation. `notices` collects (topic, text) pairs of asks without a sink; whoever
    drives the exchange reads and clears it. With a sink, notices go there and nowhere else.

    After a failed or cancelled `ask` the exchange is as it was before, and may be asked again.
    """

    def __init__(self, wire: Anthropic, offer: _Offer, options: ModelOptions) -> None:
        self.notices: list[tuple[str, str]] = []
        self._wire = wire
        self._offer = offer
        self._options = options
        self._url = f"{wire.base_url}/v1/messages"
        settings = _settings(wire.id, options)
        self._forms: Any = settings.pop("output_config", {})
        self._head = b"{" + dumps({"model": wire.id, **settings})[1:-1] + offer.system
        if wire.cache:
            self._head += utf8(_mark(wire.cache))
        self._turns = Turns(self._blocks)
        self._container = ""
        self._exact: set[str] = set()

    async def ask(
        self,
        history: Sequence[core.Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        self._turns.extend(history)
        notice = self._notice(sink)
        message = Message(Answer(sink.text, sink.reasoning) if sink else Answer())
        head = self._request(tools, schema, streamed=sink is not None)
        for _ in range(PAUSES):
            message.stop = ""
            body = self._body(head, message)
            await self._wire.transport.retrying(
                lambda body=body: self._send(body, message, sink), notice
            )
            self._container = message.container or self._container
            if STOPS.get(message.stop) != "pause" or not message.blocks:
                break
        else:
            notice(
                "paused", f"the provider paused {PAUSES} times: the answer is taken as it stands"
            )
        if warning := truncation(self._turns.weight + self._offer.weight, message.spent.input):
            notice("truncated", warning)
        return self._answered(message, tools, notice)

    def _answered(
        self, message: Message, tools: bool, notice: Callable[[str, str], None]
    ) -> ModelAnswered:
        answered = message.answered(self._offer.names.inbound)
        if answered.calls and not tools:
            return without_calls(answered, notice)
        plain = core.AssistantMessage(answered.text, answered.calls)
        return message.sealed(self._wire.model, answered, f"[{self._assistant(plain)}]")

    def _request(self, tools: bool, schema: Mapping[str, Any] | None, *, streamed: bool) -> bytes:
        parts = [self._head, self._offer.tools]
        if self._offer.tools and not tools:
            parts.append(b',"tool_choice":{"type":"none"}')
        forms = dict(self._forms)
        if schema is not None:
            forms["format"] = {"type": "json_schema", "schema": schema}
        if forms:
            parts += (b',"output_config":', dumps(forms))
        if streamed:
            parts.append(b',"stream":true')
        parts.append(b',"messages":[')
        return b"".join(parts)

    def _body(self, head: bytes, message: Message) -> bytes:
        parts: list[bytes | bytearray] = [head, self._turns.json]
        if message.blocks:
            parts.append(utf8(f',{{"role":"assistant","content":{message.content()}}}'))
        container = self._container
        parts.append(utf8(f'],"container":{compact(container)}}}') if container else b"]}")
        return b"".join(parts)

    async def _send(self, body: bytes, message: Message, sink: Sink | None) -> None:
        wire, offered = self._wire, bool(self._offer.tools)
        message.usage = {}
        if sink is None:
            answer = await wire.transport.post(
                self._url, body, wire.headers, timeout=self._options.timeout
            )
            if answer.status != 200:
                raise refusal(wire.model, answer.status, answer.headers, answer.body, tools=offered)
            return fold_whole(message, answer.body, wire.model, tools=offered)
        async with wire.transport.stream(
            self._url, body, wire.headers, timeout=self._options.timeout
        ) as stream:
            if stream.status != 200:
                refused = await stream.read()
                raise refusal(wire.model, stream.status, stream.headers, refused, tools=offered)
            if "json" in stream.headers.get("content-type", ""):
                # A server that cannot stream answers in one piece.
                return fold_whole(message, await stream.read(), wire.model, tools=offered)
            fold = StreamFold(message, wire.model, tools=offered)
            await fold_stream(stream, Events(), fold)
            return fold.finished()

    def _notice(self, sink: Sink | None) -> Callable[[str, str], None]:
        return sink.notice if sink else lambda topic, text: self.notices.append((topic, text))

    # ---- messages out

    def _blocks(self, message: core.Message) -> tuple[str, str]:
        if isinstance(message, core.UserMessage):
            return "user", _text(message.text)
        if isinstance(message, core.ToolMessage):
            failed = "" if message.success else ',"is_error":true'
            content = quote(message.text)
            id = quote(message.call_id if message.call_id in self._exact else _id(message.call_id))
            return (
                "user",
                f'{{"type":"tool_result","tool_use_id":{id},"content":{content}{failed}}}',
            )
        kept = unseal(message.raw, self._wire.model, [call.id for call in message.calls])
        if kept is None:
            return "assistant", self._assistant(message)
        self._exact.update(call.id for call in message.calls)
        if "container" in kept:
            self._container = str(json.loads(kept["container"]))
        return "assistant", kept["content"].strip()[1:-1]

    def _assistant(self, message: core.AssistantMessage) -> str:
        blocks = [_text(message.text)] if message.text.strip() or not message.calls else []
        for call in message.calls:
            name = self._offer.names.outbound(call.tool)
            blocks.append(
                f'{{"type":"tool_use","id":{quote(_id(call.id))},"name":{quote(name)},'
                f'"input":{arguments_object(call.arguments)}}}'
            )
        return ",".join(blocks)


class Turns:
    """A history as JSON, each message encoded once: turns that alternate, neighbours of one role
    joined.

    `encode` gives a message's role and blocks. `weight` is the sum of `message_weight`. The history
    may only grow; one that got shorter is another conversation and is encoded anew.
    """

    def __init__(self, encode: Callable[[core.Message], tuple[str, str]]) -> None:
        self._encode = encode
        self._reset()

    def _reset(self) -> None:
        self.json = bytearray()
        self.weight = 0
        self._role = ""
        self._count = 0

    def extend(self, history: Sequence[core.Message]) -> None:
        """Take in what is new."""
        if len(history) < self._count:
            self._reset()
        for message in history[self._count :]:
            role, blocks = self._encode(message)
            if role == self._role:
                del self.json[-2:]
                self.json += b"," + utf8(blocks) + b"]}"
            else:
                self.json += b"," if self.json else b""
                self.json += b'{"role":"%b","content":[%b]}' % (role.encode(), utf8(blocks))
            self._role = role
            self.weight += message_weight(message)
        self._count = len(history)


def _text(text: str) -> str:
    return f'{{"type":"text","text":{quote(text if text.strip() else _NOTHING)}}}'


def _id(id: str) -> str:
    """A call's id as the API allows it; those of other providers hold dots and colons."""
    return _NOT_IN_AN_ID.sub("_", id) or "unnamed"


def _mark(cache: str) -> str:
    """A mark for the prompt cache, as a further member."""
    if not cache:
        return ""
    return ',"cache_control":{"type":"ephemeral"' + (',"ttl":"1h"}' if cache == "1h" else "}")


def _tool(tool: ToolSpec, mark: str) -> str:
    deferred = ',"defer_loading":true' if tool.deferred else ""
    return (
        f'{{"name":{quote(tool.wire_name)},"description":{quote(described(tool))},'
        f'"input_schema":{tool.schema or _ANY}{deferred}{mark}}}'
    )


_ANY = '{"type":"object"}'
_SEARCH = '{"type":"tool_search_tool_%(variant)s_20251119","name":"tool_search_tool_%(variant)s"}'
"""The provider's own tool search, by variant. It stands first and is never deferred itself."""


def _settings(model: str, options: ModelOptions) -> dict[str, Any]:
    """Everything a person set, as members of the request."""
    most = options.max_tokens or next((n for known, n in _MOST if known.match(model)), MOST)
    fields: dict[str, Any] = {"max_tokens": most}
    if options.temperature is not None:
        fields["temperature"] = options.temperature
    fields.update(_thinking(model, options.thinking, most))
    return fields | dict(options.extra)


def _thinking(model: str, wanted: bool | str | None, most: int) -> dict[str, Any]:
    if wanted is None:
        return {}
    if wanted is False:
        return {"thinking": {"type": "disabled"}}
    level = wanted if isinstance(wanted, str) else "medium"
    if _BUDGETED.match(model):
        budget = max(1024, min(_BUDGETS.get(level, 8_192), most - 1024))
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}
    adaptive: dict[str, Any] = {"thinking": {"type": "adaptive"}}
    return adaptive | ({"output_config": {"effort": wanted}} if isinstance(wanted, str) else {})
