"""A conversation with the model on this machine, in which only its template writes control tokens.

llama.cpp's chat route makes one text of template and messages and reads control tokens out of all
of it. So a message that spells one gets a mark in its place before it is sent; the server fills its
template (`/apply-template`), and what is completed then (`/v1/completions`) is a prompt of pieces:
text of the template, whose control tokens are read, and in the places of the marks the tokens of
what stood there, read as text. The model sees every character, and no turn begins but the
template's.

The chat route is used as long as no message of a conversation spells a control token: what the
model reads is then the same.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import Message
from ferrule.models.client import ModelOptions, Sink, ToolSpec
from ferrule.models.http.server_sent_events import Events
from ferrule.models.http.transport import Transport
from ferrule.models.openai.chat_exchange import ChatExchange
from ferrule.models.request_encoding import dumps, json_object
from ferrule.models.untrusted_text import is_control_token, map_message, map_tool

from . import gguf

Piece = str | int
"""A piece of a prompt: text whose control tokens are read, or one token."""


class ControlTokens:
    """The control tokens of a model's vocabulary, found in texts and marked there.

    A mark holds random digits, so that no text can hold one that is not ours.
    """

    def __init__(self, path: Path) -> None:
        try:
            known = gguf.vocabulary(path)
        except (OSError, ValueError) as problem:
            raise ProviderError(
                f"the vocabulary of {path} cannot be read: {problem}", code="model_damaged"
            ) from problem
        read_out = (gguf.CONTROL, gguf.UNKNOWN, gguf.USER_DEFINED)
        self.tokens = sorted(
            {
                token
                for token, kind in known
                # A vocabulary may define plain words and blanks as tokens of their own: they say
                # nothing but themselves.
                if token
                and (kind == gguf.CONTROL or (kind in read_out and is_control_token(token)))
            },
            key=lambda token: (-len(token), token),
        )
        self._places = {token: place for place, token in enumerate(self.tokens)}
        self._found = re.compile("|".join(map(re.escape, self.tokens)) or r"(?!)")
        nonce = secrets.token_hex(8)
        self._mark = f"@{nonce}:%d@"
        self._marks = re.compile(rf"@{nonce}:(\d+)@")

    def mark(self, text: str) -> str:
        """A text with a mark in the place of each control token; the same text where there is
        none.
        """
        return self._found.sub(lambda match: self._mark % self._places[match[0]], text)

    def split(self, text: str) -> list[str]:
        """A text cut at its marks: at odd places stand the tokens that were marked."""
        parts = self._marks.split(text)
        parts[1::2] = [self.tokens[int(place)] for place in parts[1::2]]
        return parts


class LlamaServer(Protocol):
    """A running llama.cpp with one model (`local.Local`)."""

    @property
    def model(self) -> str: ...
    @property
    def control_tokens(self) -> ControlTokens: ...
    async def chat(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ChatExchange: ...
    async def as_text(self, text: str) -> list[Piece]: ...
    async def server(self) -> tuple[str, Transport]: ...


class LocalExchange:
    """Starts the server when it is first asked: `open` may do no I/O."""

    def __init__(
        self, wire: LlamaServer, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._wire = wire
        self._system = system
        self._given_tools = tools
        self._options = options
        self._chat: ChatExchange | None = None
        self._messages: list[Message] = []
        self._marked = False

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
            self._chat = await self._open()
        self._take(history)
        if not self._marked:
            return await self._chat.ask(self._messages, tools=tools, schema=schema, sink=sink)
        prompt = await self._prompt(self._chat.request(self._messages, tools=tools))
        return await self._complete(prompt, schema, sink)

    async def _open(self) -> ChatExchange:
        await self._wire.server()
        system = self._mark(self._system)
        tools = tuple(map_tool(tool, self._mark) for tool in self._given_tools)
        chat = await self._wire.chat(system, tools, self._options)
        chat.notices = self.notices
        return chat

    def _take(self, history: Sequence[Message]) -> None:
        if len(history) < len(self._messages):
            self._messages = []
        for message in history[len(self._messages) :]:
            self._messages.append(map_message(message, self._mark))

    def _mark(self, text: str) -> str:
        marked = self._wire.control_tokens.mark(text)
        self._marked = self._marked or marked != text
        return marked

    async def _prompt(self, request: bytes) -> list[Piece]:
        """The conversation as the model's template writes it, in pieces."""
        base, transport = await self._wire.server()
        answer = await transport.post(f"{base}/apply-template", request, JSON, timeout=60.0)
        filled = json_object(answer.body).get("prompt")
        if answer.status != 200 or not isinstance(filled, str):
            raise self._refusal(answer.body)
        return await pieces(self._wire.control_tokens.split(filled), self._wire.as_text)

    async def _complete(
        self, prompt: list[Piece], schema: Mapping[str, Any] | None, sink: Sink | None
    ) -> ModelAnswered:
        base, transport = await self._wire.server()
        body = dumps({"prompt": prompt, **_settings(self._options, schema)})
        folded = _Folded()
        async with transport.stream(
            f"{base}/v1/completions", body, JSON, timeout=self._options.timeout
        ) as stream:
            if stream.status != 200:
                raise self._refusal(await stream.read())
            events = Events()
            while data := await stream.chunk():
                for event in events.feed(data):
                    folded.add(event, sink)
        if not folded.stop:
            detail = f"{self._wire.model}: the stream ended in the middle of the answer"
            raise ProviderError(detail, code="interrupted", retryable=False)
        stop = "length" if folded.stop == "length" else "end"
        return ModelAnswered("".join(folded.text), usage=folded.usage, stop=stop)

    def _refusal(self, body: bytes) -> ProviderError:
        said: Any = json_object(body).get("error")
        message: Any = (
            cast("dict[str, Any]", said).get("message") if isinstance(said, dict) else None
        )
        shown = str(message or body[:200].decode("utf-8", "replace"))
        return ProviderError(
            f"{self._wire.model} refused: {shown}", code="provider", retryable=False
        )


async def pieces(
    parts: Sequence[str], as_text: Callable[[str], Awaitable[list[Piece]]]
) -> list[Piece]:
    """A prompt from a text that was cut at its marks."""
    prompt: list[Piece] = []
    for place, part in enumerate(parts):
        if place % 2:
            prompt += await as_text(part)
        elif part:
            prompt.append(part)
    return prompt


class _Folded:
    """What a stream of `/v1/completions` has brought."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.stop = ""
        self.usage = Usage()

    def add(self, event: bytes, sink: Sink | None) -> None:
        if event == b"[DONE]":
            return
        chunk = json.loads(event)
        for choice in chunk.get("choices") or ():
            if piece := choice.get("text"):
                self.text.append(piece)
                if sink is not None:
                    sink.text(piece)
            self.stop = choice.get("finish_reason") or self.stop
        if spent := chunk.get("usage"):
            self.usage = Usage(spent.get("prompt_tokens") or 0, spent.get("completion_tokens") or 0)


JSON = {"Content-Type": "application/json"}
"""Headers of a request to the server."""


def _settings(options: ModelOptions, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a person set, as `/v1/completions` takes it."""
    fields: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    named = {
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        "seed": options.seed,
    }
    fields |= {name: value for name, value in named.items() if value is not None}
    if schema is not None:
        fields["json_schema"] = schema
    return fields | dict(options.extra)
