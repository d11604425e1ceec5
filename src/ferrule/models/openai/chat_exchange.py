"""A conversation over the chat-completions wire: what is sent, what comes back, what a server says
of itself.

A message is encoded when it is first sent and its bytes are kept; a request is the join of those
bytes with a head and a tail that do not change. So a round costs what is new, plus one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring as quote
from typing import Any, Protocol

from ferrule.core.calls import compact
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.answer_folding import Answer, dicts, without_calls
from ferrule.models.capabilities import from_models, from_props, known_provider
from ferrule.models.client import Capabilities, ModelOptions, Sink, ToolSpec
from ferrule.models.hosted_tools import no_hosted_tools
from ferrule.models.http.server_sent_events import Events
from ferrule.models.http.streaming import fold_stream
from ferrule.models.http.transport import Transport
from ferrule.models.provider_errors import refusal
from ferrule.models.request_encoding import (
    Names,
    Transcript,
    arguments_object,
    dumps,
    json_object,
    tools_field,
    truncation,
    weight,
)

from .chat_answers import StreamFold, fold_whole

__all__ = ["ChatExchange", "ChatServer", "Offer", "capabilities", "models", "no_hosted_tools"]


class ChatServer(Protocol):
    """Whom a conversation is with (`chat.OpenAIChat`)."""

    base_url: str
    native: bool
    id: str
    headers: dict[str, str]
    transport: Transport
    replay_reasoning: bool

    @property
    def model(self) -> str: ...

    async def models(self) -> list[dict[str, Any]]: ...


async def models(server: ChatServer) -> list[dict[str, Any]]:
    """The entries of `GET /models`; empty if the server has no such list."""
    answer = await server.transport.get(f"{server.base_url}/models", server.headers, timeout=10.0)
    listed: Any = json_object(answer.body).get("data") if answer.status == 200 else None
    return dicts(listed)


async def capabilities(server: ChatServer) -> Capabilities:
    """llama.cpp's `/props`, then a table of providers, then the server's list of models; else
    unknown.
    """
    return known_provider(server.base_url, server.id) or await _ask(server)


async def _ask(server: ChatServer) -> Capabilities:
    root = server.base_url.removesuffix("/v1")
    answer = await server.transport.retrying(
        lambda: server.transport.get(f"{root}/props", server.headers, timeout=10.0)
    )
    if answer.status == 200 and (found := from_props(json_object(answer.body))):
        return found
    if answer.status in (401, 403):
        raise refusal(server.model, answer.status, answer.headers, answer.body, tools=False)
    return from_models(server.id, await server.models())


class Offer:
    """Tools as they are sent, encoded once for all conversations that offer the same ones."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self.tools = tools
        self.names = Names(tools)
        self.field = b',"tools":' + tools_field(tools) if tools else b""
        self.weight = weight(self.field.decode())


class ChatExchange:
    """One conversation. `notices` collects (topic, text) pairs of asks without a sink; whoever
    drives the exchange reads and clears it. With a sink, notices go there and nowhere else.

    After a failed or cancelled `ask` the exchange is as it was before, and may be asked again.
    """

    def __init__(self, wire: ChatServer, system: str, offer: Offer, options: ModelOptions) -> None:
        self.notices: list[tuple[str, str]] = []
        self._wire = wire
        self._names = offer.names
        self._timeout = options.timeout
        self._url = f"{wire.base_url}/chat/completions"
        self._head = b'{"model":' + dumps(wire.id) + b',"messages":['
        self._tail = _options(options, wire.native)
        self._tools, self._tools_weight = offer.field, offer.weight
        self._choice = True
        self._transcript = Transcript(system, self._message)

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        self._transcript.extend(history)
        try:
            answer = await self._send(tools, schema, sink)
        except ProviderError as error:
            if error.code != "choice_unsupported" or tools:
                raise
            answer = await self._without_tools(schema, sink, "the server refuses `tool_choice`")
        if answer.calls and not tools and self._tools:
            answer = await self._without_tools(schema, sink, "the server ignores `tool_choice`")
        return answer if tools else without_calls(answer, self._notice(sink))

    def request(self, history: Sequence[Message], *, tools: bool) -> bytes:
        """The body of a request that asks with this history, in one piece and without the form of a
        reply.
        """
        self._transcript.extend(history)
        offered = self._tools if tools or self._choice else b""
        return self._body(offered, tools, None, streamed=False)

    async def _without_tools(
        self, schema: Mapping[str, Any] | None, sink: Sink | None, why: str
    ) -> ModelAnswered:
        self._choice = False
        self._notice(sink)("fallback", f"{why}: asked again without tools")
        return await self._send(False, schema, sink)

    async def _send(
        self, tools: bool, schema: Mapping[str, Any] | None, sink: Sink | None
    ) -> ModelAnswered:
        notice = self._notice(sink)
        offered = self._tools if tools or self._choice else b""
        body = self._body(offered, tools, schema, streamed=sink is not None)
        attempt: Callable[[], Any] = (
            (lambda: self._streamed(body, bool(offered), sink))
            if sink
            else (lambda: self._whole(body, bool(offered)))
        )
        answer: Answer = await self._wire.transport.retrying(attempt, notice)
        weighed = self._transcript.weight + (self._tools_weight if offered else 0)
        if warning := truncation(weighed, answer.usage.input):
            notice("truncated", warning)
        return answer.answered(self._names.inbound)

    def _body(
        self, offered: bytes, tools: bool, schema: Mapping[str, Any] | None, *, streamed: bool
    ) -> bytes:
        parts: list[bytes | bytearray] = [self._head, self._transcript.json, b"]", offered]
        if offered and not tools:
            parts.append(b',"tool_choice":"none"')
        if schema is not None:
            shape = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
            parts += (b',"response_format":', dumps(shape))
        parts.append(self._tail)
        if streamed:
            parts.append(b',"stream":true,"stream_options":{"include_usage":true}')
        parts.append(b"}")
        return b"".join(parts)

    async def _whole(self, body: bytes, tools: bool) -> Answer:
        wire = self._wire
        answer = await wire.transport.post(self._url, body, wire.headers, timeout=self._timeout)
        if answer.status != 200:
            raise await self._refusal(answer.status, answer.headers, answer.body, tools)
        return fold_whole(answer.body, wire.model, tools=tools)

    async def _streamed(self, body: bytes, tools: bool, sink: Sink) -> Answer:
        wire = self._wire
        async with wire.transport.stream(
            self._url, body, wire.headers, timeout=self._timeout
        ) as stream:
            if stream.status == 200:
                if "json" in stream.headers.get("content-type", ""):
                    # A server that cannot stream answers in one piece.
                    return fold_whole(await stream.read(), wire.model, tools=tools, sink=sink)
                fold = StreamFold(Answer(sink.text, sink.reasoning), wire.model, tools=tools)
                await fold_stream(stream, Events(), fold)
                return fold.finished()
            status, headers, refused = stream.status, stream.headers, await stream.read()
        raise await self._refusal(status, headers, refused, tools)

    async def _refusal(
        self, status: int, headers: Mapping[str, str], body: bytes, tools: bool
    ) -> ProviderError:
        error = refusal(self._wire.model, status, headers, body, tools=tools)
        if error.code == "model_not_found":
            error.hint = await self._suggestion()
        return error

    async def _suggestion(self) -> str:
        try:
            known = [str(entry.get("id", "")) for entry in await self._wire.models()]
        except ProviderError:
            return ""  # The list is a courtesy: the error that is being raised matters more.
        more = f" and {len(known) - 20} more" if len(known) > 20 else ""
        return f"the server has: {', '.join(known[:20])}{more}" if known else ""

    def _notice(self, sink: Sink | None) -> Callable[[str, str], None]:
        return sink.notice if sink else lambda topic, text: self.notices.append((topic, text))

    def _message(self, message: Message) -> bytes:
        # Written by hand: these few lines run for every message, and an encoder costs more than all
        # of them.
        if isinstance(message, UserMessage):
            return _bytes(f'{{"role":"user","content":{quote(message.text)}}}')
        if isinstance(message, ToolMessage):
            return _bytes(
                f'{{"role":"tool","tool_call_id":{quote(message.call_id)},"content":{quote(message.text)}}}'
            )
        return self._assistant(message)

    def _assistant(self, message: AssistantMessage) -> bytes:
        if not message.calls:
            return _bytes(f'{{"role":"assistant","content":{quote(message.text)}}}')
        calls = ",".join(
            [
                f'{{"id":{quote(call.id)},"type":"function","function":{{"name":{quote(self._names.outbound(call.tool))},'
                f'"arguments":{quote(arguments_object(call.arguments))}}}}}'
                for call in message.calls
            ]
        )
        more = ""
        if message.reasoning and self._wire.replay_reasoning:
            more = f',"reasoning_content":{quote(message.reasoning)}'
        content = quote(message.text) if message.text else "null"
        return _bytes(f'{{"role":"assistant","content":{content},"tool_calls":[{calls}]{more}}}')


def _bytes(text: str) -> bytes:
    """A lone surrogate (half an emoji out of a broken stream) becomes `?`."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _options(options: ModelOptions, native: bool) -> bytes:
    """Everything a person set, as the end of the request object. OpenAI itself renamed
    `max_tokens`.
    """
    fields: dict[str, Any] = {}
    if options.temperature is not None:
        fields["temperature"] = options.temperature
    if options.max_tokens is not None:
        fields["max_completion_tokens" if native else "max_tokens"] = options.max_tokens
    if options.seed is not None:
        fields["seed"] = options.seed
    if isinstance(options.thinking, str):
        fields["reasoning_effort"] = options.thinking
    elif options.thinking is not None and not native:
        fields["chat_template_kwargs"] = {"enable_thinking": options.thinking}
    fields.update(options.extra)
    return ("," + compact(fields)[1:-1]).encode() if fields else b""
