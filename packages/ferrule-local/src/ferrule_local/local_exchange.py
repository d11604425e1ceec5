"""A conversation with the local model in which only the chat template writes control tokens.

llama.cpp's chat route makes one text of template and messages, and reads control tokens anywhere in
it. So a control token in a message is replaced by a mark before the message is sent. The server
fills its template (`/apply-template`), and the prompt that is then completed (`/v1/completions`)
consists of pieces: text of the template, whose control tokens are read, and in place of the marks
the tokens of what was there, read as plain text. The model sees every character, and only the
template can begin a turn.

Where the model's template has tools, they are sent natively, and calls are read by llama.cpp's own
parser, which only the chat route has: control tokens in messages are then spelled out.

Otherwise the chat route is used as long as no message of a conversation contains a control token:
what the model reads is then the same.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

from ferrule.core.calls import parse_json
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import Capabilities, ModelOptions, Sink, ToolSpec
from ferrule.models.http.server_sent_events import EventSplitter
from ferrule.models.http.transport import Transport
from ferrule.models.openai.chat_exchange import ChatExchange
from ferrule.models.request_encoding import (
    CHAT_OPTION_NAMES,
    encode_json_bytes,
    name_options,
    parse_object,
)
from ferrule.models.untrusted_text import is_control_token, map_message, map_tool

from . import gguf
from .repetition import ask_until_loop

PromptPiece = str | int
"""A piece of a prompt: text whose control tokens are read, or one token."""


class ControlTokens:
    """The control tokens of a model's vocabulary, found in texts and replaced by marks.

    A mark contains random digits, so that no text can contain a forged one.
    """

    def __init__(self, path: Path) -> None:
        try:
            known = gguf.read_vocabulary(path)
        except (OSError, ValueError) as problem:
            raise ProviderError(
                f"the vocabulary of {path} cannot be read: {problem}", code="model_damaged"
            ) from problem
        read_out = (gguf.CONTROL, gguf.UNKNOWN, gguf.USER_DEFINED)
        tokens: set[str] = set()
        for token, kind in known:
            # A vocabulary may also define plain words and blanks as tokens: those are harmless.
            is_control = kind == gguf.CONTROL or (kind in read_out and is_control_token(token))
            if token and is_control:
                tokens.add(token)
        self.tokens = sorted(tokens, key=lambda token: (-len(token), token))
        self._places = {token: place for place, token in enumerate(self.tokens)}
        self._token_pattern = re.compile("|".join(map(re.escape, self.tokens)) or r"(?!)")
        nonce = secrets.token_hex(8)
        self._mark_format = f"@{nonce}:%d@"
        self._mark_pattern = re.compile(rf"@{nonce}:(\d+)@")

    def mark(self, text: str) -> str:
        """Return a text with a mark in place of each control token; unchanged if there is none."""
        return self._token_pattern.sub(
            lambda match: self._mark_format % self._places[match[0]], text
        )

    def spell_out(self, text: str) -> str:
        """Return a text in which a blank stands behind the first character of control tokens."""
        return self._token_pattern.sub(lambda match: f"{match[0][:1]} {match[0][1:]}", text)

    def split(self, text: str) -> list[str]:
        """Split a text at its marks. The tokens that were marked are at the odd places."""
        parts = self._mark_pattern.split(text)
        parts[1::2] = [self.tokens[int(place)] for place in parts[1::2]]
        return parts


class LlamaServer(Protocol):
    """A running llama.cpp with one model (`client.Local`)."""

    @property
    def model(self) -> str: ...
    @property
    def control_tokens(self) -> ControlTokens: ...
    async def capabilities(self) -> Capabilities: ...
    async def open_chat(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ChatExchange: ...
    async def tokenize_as_text(self, text: str) -> list[PromptPiece]: ...
    async def connect_server(self) -> tuple[str, Transport]: ...


class LocalExchange:
    """One conversation. It starts the server when it is first asked: `open` must not do I/O."""

    def __init__(
        self, client: LlamaServer, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._client = client
        self._system = system
        self._tools = tools
        self._options = options
        self._chat: ChatExchange | None = None
        self._messages: list[Message] = []
        self._marked = False
        self._is_native = False

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """See `Exchange.ask`."""
        if self._chat is None:
            self._chat = await self._open_chat()
        self._mark_new_messages(history)
        chat = self._chat

        async def ask(guarded: Sink) -> ModelAnswered:
            if not self._marked or self._is_native:
                return await chat.ask(self._messages, tools=tools, schema=schema, sink=guarded)
            prompt = await self._build_prompt(chat.encode_request(self._messages, tools=tools))
            return await self._complete(prompt, schema, guarded)

        return await ask_until_loop(ask, sink, self.notices)

    async def _open_chat(self) -> ChatExchange:
        await self._client.connect_server()
        self._is_native = bool(self._tools) and (await self._client.capabilities()).tools is True
        system = self._replace_control_tokens(self._system)
        tools = tuple(map_tool(tool, self._replace_control_tokens) for tool in self._tools)
        options = self._options
        if self._is_native:
            # Without this llama.cpp lets the model make one call in an answer.
            options = replace(options, extra={"parallel_tool_calls": True, **options.extra})
        chat = await self._client.open_chat(system, tools, options)
        chat.notices = self.notices
        return chat

    def _mark_new_messages(self, history: Sequence[Message]) -> None:
        if len(history) < len(self._messages):
            self._messages = []
        for message in history[len(self._messages) :]:
            if not isinstance(message, AssistantMessage) and message.media:
                message = _leave_media_out(message)
            self._messages.append(map_message(message, self._replace_control_tokens))

    def _replace_control_tokens(self, text: str) -> str:
        if self._is_native:
            # llama.cpp's own parser reads the calls, and it has no route that takes tokens.
            return self._client.control_tokens.spell_out(text)
        marked = self._client.control_tokens.mark(text)
        self._marked = self._marked or marked != text
        return marked

    async def _build_prompt(self, request: bytes) -> list[PromptPiece]:
        """Return the conversation as the model's template writes it, in pieces."""
        base, transport = await self._client.connect_server()
        answer = await transport.post(f"{base}/apply-template", request, JSON_HEADERS, timeout=60.0)
        filled = parse_object(answer.body).get("prompt")
        if answer.status != 200 or not isinstance(filled, str):
            raise self._build_refusal(answer.body)
        return await build_prompt(
            self._client.control_tokens.split(filled), self._client.tokenize_as_text
        )

    async def _complete(
        self, prompt: list[PromptPiece], schema: Mapping[str, Any] | None, sink: Sink | None
    ) -> ModelAnswered:
        base, transport = await self._client.connect_server()
        body = encode_json_bytes({"prompt": prompt, **_settings(self._options, schema)})
        answer = _CompletionAnswer()
        async with transport.stream(
            f"{base}/v1/completions", body, JSON_HEADERS, timeout=self._options.timeout
        ) as stream:
            if stream.status != 200:
                raise self._build_refusal(await stream.read())
            events = EventSplitter()
            while data := await stream.read_chunk():
                for event in events.feed(data):
                    answer.add(event, sink)
        if not answer.stop:
            detail = f"{self._client.model}: the stream ended in the middle of the answer"
            raise ProviderError(detail, code="interrupted", retryable=False)
        stop = "length" if answer.stop == "length" else "end"
        return ModelAnswered("".join(answer.text), usage=answer.usage, stop=stop)

    def _build_refusal(self, body: bytes) -> ProviderError:
        error: Any = parse_object(body).get("error")
        message: Any = None
        if isinstance(error, dict):
            message = cast("dict[str, Any]", error).get("message")
        shown = str(message or body[:200].decode("utf-8", "replace"))
        return ProviderError(
            f"{self._client.model} refused: {shown}", code="provider", retryable=False
        )


async def build_prompt(
    parts: Sequence[str], tokenize_as_text: Callable[[str], Awaitable[list[PromptPiece]]]
) -> list[PromptPiece]:
    """Join a text that was split at its marks into a prompt."""
    prompt: list[PromptPiece] = []
    for place, part in enumerate(parts):
        if place % 2:
            prompt += await tokenize_as_text(part)
        elif part:
            prompt.append(part)
    return prompt


class _CompletionAnswer:
    """Collects the answer of a stream of `/v1/completions`."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.stop = ""
        self.usage = Usage()

    def add(self, event: bytes, sink: Sink | None) -> None:
        if event == b"[DONE]":
            return
        chunk = parse_json(event)
        for choice in chunk.get("choices") or ():
            piece = choice.get("text")
            if piece:
                self.text.append(piece)
                if sink is not None:
                    sink.add_text(piece)
            self.stop = choice.get("finish_reason") or self.stop
        usage = chunk.get("usage")
        if usage:
            self.usage = Usage(usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)


JSON_HEADERS = {"Content-Type": "application/json"}
"""Headers of a request to the server."""


def _settings(options: ModelOptions, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the model options as `/v1/completions` takes them."""
    fields: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    fields |= name_options(options, CHAT_OPTION_NAMES)
    if schema is not None:
        fields["json_schema"] = schema
    return fields | dict(options.extra)


def _leave_media_out(message: UserMessage | ToolMessage) -> Message:
    """Return a message as text. Raises ProviderError for a picture that a person gave."""
    from ferrule.models.media_encoding import write_as_text

    refusal = ProviderError(
        "a model on this machine takes only text: no projector for pictures is loaded",
        code="media_unsupported",
        hint="ask a model with vision, such as `ollama:gemma3`, or switch on `media.ocr`",
    )
    return replace(message, text=write_as_text(message.text, message.media, refusal), media=())
