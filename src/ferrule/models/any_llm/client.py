"""Other providers through any-llm (`pip install 'ferrule[any]'`):
`any:mistral/mistral-small-latest`.

Lossy, and labelled so: any-llm turns every provider's API into chat completions, so blocks are not
kept byte for byte, hosted tools and compaction are not reached, and what a capability is nobody can
be asked. What it hands on beside the words of a call (`extra_content`, a thought signature of
Gemini, say) is kept and sent back. Use a wire of Ferrule's own where there is one.

Connections are the library's: neither `ca_bundle` nor the transport's bounds hold here; time is
bounded all the same. The library takes seconds to import, in a thread, with the first question.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol, cast

from ferrule.core.calls import compact
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.answer_folding import Answer, dicts, without_calls
from ferrule.models.client import Capabilities, ModelOptions, Sink, ToolSpec
from ferrule.models.exact_json import seal, unseal
from ferrule.models.hosted_tools import no_hosted_tools
from ferrule.models.http.retry import retrying
from ferrule.models.openai.chat_answers import StreamFold, fold_whole
from ferrule.models.provider_errors import error_inside
from ferrule.models.request_encoding import (
    Names,
    Transcript,
    arguments_object,
    dumps,
    json_object,
    tools_field,
)

_CODES = {
    "RateLimitError": ("rate_limited", True),
    "AuthenticationError": ("unauthorized", False),
    "MissingApiKeyError": ("unauthorized", False),
    "ModelNotFoundError": ("model_not_found", False),
    "ContextLengthExceededError": ("context_overflow", False),
    "InsufficientFundsError": ("quota", False),
    "GatewayTimeoutError": ("provider", True),
    "UpstreamProviderError": ("provider", True),
}
"""any-llm's exceptions as our codes, and whether trying again may help. All others are read by
their words.
"""


class Client(Protocol):
    """What is used of any-llm: an `AnyLLM` of one provider."""

    async def acompletion(self, **request: Any) -> Any:
        """A `ChatCompletion`, or an async iterator of `ChatCompletionChunk`s."""
        ...


class AnyLLM:
    """A model of a provider that any-llm knows. `name` is `provider/model`; `base_url` and
    `api_key` go to the provider, whose own variables are read by any-llm where they are not given.
    `client` stands in for the library.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Client | None = None,
    ) -> None:
        provider, slash, model = name.partition("/")
        if not slash or not provider or not model:
            raise ConfigError(
                f"`any:{name}` names no provider",
                code="model",
                hint="write `any:provider/model`, for example `any:mistral/mistral-small-latest`",
            )
        self.provider, self.id = provider, model
        self._given = {"api_key": api_key, "api_base": base_url}
        self._client = client

    @property
    def model(self) -> str:
        return f"any:{self.provider}/{self.id}"

    async def capabilities(self) -> Capabilities:
        """Unknown but for tools: chat completions have them, and a model that has none is refused
        and falls.
        """
        return Capabilities(tools=True, source="any-llm")

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> AnyExchange:
        if options.provider_tools:
            no_hosted_tools(options.provider_tools, self.model)
        return AnyExchange(self, system, tools, options)

    async def client(self) -> Client:
        """The library's client. Raises ProviderError: `extra_missing`, or what the provider lacks
        (a key).
        """
        if self._client is None:
            self._client = await asyncio.to_thread(self._made)
        return self._client

    def _made(self) -> Client:
        try:
            library: Any = import_module("any_llm")
        except ImportError as error:
            raise ProviderError(
                f"`{self.model}` needs any-llm, which is not installed",
                code="extra_missing",
                hint="pip install 'ferrule[any]'",
            ) from error
        try:
            return cast(
                Client,
                library.AnyLLM.create(
                    self.provider, unified_exceptions=True, max_retries=0, **self._given
                ),
            )
        except Exception as error:  # noqa: BLE001  boundary: any-llm and a provider's SDK raise what they like
            problem = problem_of(self.model, error, tools=False)
        raise problem

    async def close(self) -> None:
        """Forget the client, and close its connections where any-llm's provider has a way to."""
        client: Any = self._client
        self._client = None
        for holder in (client, getattr(client, "client", None)):
            close = getattr(holder, "aclose", None) or getattr(holder, "close", None)
            if inspect.iscoroutinefunction(close):
                await close()
                return


class AnyExchange:
    """One conversation. `notices` collects (topic, text) pairs of asks without a sink; whoever
    drives the exchange reads and clears it. With a sink, notices go there and nowhere else.
    """

    def __init__(
        self, wire: AnyLLM, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._wire = wire
        self._options = options
        self._names = Names(tools)
        self._tools: list[Any] = json.loads(tools_field(tools)) if tools else []
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
        notice = self._notice(sink)
        client = await self._wire.client()
        request = self._request(tools, schema)
        answer, extras = await retrying(lambda: self._send(client, request, sink), notice=notice)
        answered = answer.answered(self._names.inbound)
        if answered.calls and not tools:
            return without_calls(answered, notice)
        if extras:
            ids = [call.id for call in answered.calls]
            answered = replace(answered, raw=seal(self._wire.model, ids, compact([extras])))
        return answered

    def _request(self, tools: bool, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        options = self._options
        request: dict[str, Any] = {
            "model": self._wire.id,
            "messages": json.loads(b"[" + self._transcript.json + b"]"),
        }
        if self._tools and tools:
            request["tools"] = self._tools
        if schema is not None:
            shape = {"name": "reply", "schema": dict(schema)}
            request["response_format"] = {"type": "json_schema", "json_schema": shape}
        named = {
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
            "seed": options.seed,
        }
        request |= {name: value for name, value in named.items() if value is not None}
        if isinstance(options.thinking, str):
            request["reasoning_effort"] = options.thinking
        return request | dict(options.extra)

    async def _send(
        self, client: Client, request: dict[str, Any], sink: Sink | None
    ) -> tuple[Answer, dict[str, Any]]:
        heard = _Heard(self._wire.model, sink, tools="tools" in request)
        try:
            async with asyncio.timeout(self._options.timeout):
                if sink is None:
                    return heard.whole(await client.acompletion(**request)), heard.extras
                async for chunk in await client.acompletion(**request, stream=True):
                    heard.piece(chunk)
                return heard.fold.finished(), heard.extras
        except ProviderError:
            raise
        except Exception as error:  # noqa: BLE001  boundary: any-llm and a provider's SDK raise what they like
            problem = problem_of(self._wire.model, error, tools="tools" in request)
        if heard.fold.whole:
            # What a connection does behind an answer's end is none of the answer's.
            return heard.fold.finished(), heard.extras
        problem.retryable = problem.retryable and not heard.begun
        raise problem

    def _notice(self, sink: Sink | None) -> Callable[[str, str], None]:
        return sink.notice if sink else lambda topic, text: self.notices.append((topic, text))

    def _message(self, message: Message) -> bytes:
        if isinstance(message, UserMessage):
            return dumps({"role": "user", "content": message.text})
        if isinstance(message, ToolMessage):
            return dumps({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
        return dumps(self._assistant(message))

    def _assistant(self, message: AssistantMessage) -> dict[str, Any]:
        kept = unseal(message.raw, self._wire.model, [call.id for call in message.calls])
        extras: dict[str, Any] = json.loads(kept["content"])[0] if kept else {}
        fields: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        if "message" in extras:
            fields["extra_content"] = extras["message"]
            fields["reasoning"] = message.reasoning
        made: list[dict[str, Any]] = []
        for place, call in enumerate(message.calls):
            function = {
                "name": self._names.outbound(call.tool),
                "arguments": arguments_object(call.arguments),
            }
            more = {"extra_content": extras[str(place)]} if str(place) in extras else {}
            made.append({"id": call.id, "type": "function", "function": function, **more})
        return fields | ({"tool_calls": made} if made else {})


class _Heard:
    """What one answer has brought so far; `extras` as `_extras` collects them."""

    def __init__(self, who: str, sink: Sink | None, *, tools: bool) -> None:
        self.fold = StreamFold(
            Answer(sink.text, sink.reasoning) if sink else Answer(), who, tools=tools
        )
        self.extras: dict[str, Any] = {}
        self.begun = False
        self._who = who
        self._tools = tools

    def whole(self, completion: Any) -> Answer:
        text: str = completion.model_dump_json(exclude_none=True)
        _extras(self.extras, _first(json_object(text), "message"))
        return fold_whole(text.encode(), self._who, tools=self._tools)

    def piece(self, chunk: Any) -> None:
        self.begun = True
        text: str = chunk.model_dump_json(exclude_none=True)
        self.fold.add([text.encode()])
        if '"extra_content"' in text:
            _extras(self.extras, _first(json_object(text), "delta"))


def _first(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = dicts(value.get("choices"))
    inner: Any = found[0].get(name) if found else None
    return cast(dict[str, Any], inner) if isinstance(inner, dict) else {}


def _extras(extras: dict[str, Any], said: Mapping[str, Any]) -> None:
    """What came beside the words: of the message under `message`, of its calls under their
    places.
    """
    if said.get("extra_content"):
        extras["message"] = said["extra_content"]
    for place, call in enumerate(dicts(said.get("tool_calls"))):
        if call.get("extra_content"):
            extras[str(call.get("index", place))] = call["extra_content"]


def problem_of(who: str, error: Exception, *, tools: bool) -> ProviderError:
    """A library's exception as ours: by its class, else by its words."""
    words = str(getattr(error, "message", "") or error) or type(error).__name__
    if isinstance(error, TimeoutError):
        return _because(
            ProviderError(f"{who}: no answer in time", code="timeout", retryable=False), error
        )
    known = _CODES.get(type(error).__name__)
    if known is None:
        told = error_inside(
            who, {"message": words, "code": getattr(error, "code", "")}, tools=tools
        )
        told.status = getattr(error, "status_code", None)
        return _because(told, error)
    code, again = known
    waits = getattr(error, "retry_after", None)
    after = float(waits) if isinstance(waits, (int, float)) else None
    told = ProviderError(f"{who}: {words}", code=code, retryable=again, retry_after=after)
    return _because(told, error)


def _because(told: ProviderError, error: Exception) -> ProviderError:
    told.__cause__ = error
    return told
