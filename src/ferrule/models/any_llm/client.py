"""Other providers through the library any-llm: `any:mistral/mistral-small-latest`.

Needs the extra `ferrule[any]`. This client is lossy: any-llm turns every provider's API into chat
completions, so blocks are not kept byte for byte, hosted tools and compaction are not available,
and nobody can be asked for capabilities. What any-llm passes on beside the text of a call
(`extra_content`, such as a thought signature of Gemini) is kept and sent back. Prefer a client of
Ferrule's own where there is one.

Connections are the library's: neither `ca_bundle` nor the transport's limits apply; the time is
limited all the same. The library takes seconds to import, in a thread, at the first question.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol, cast

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.answer_building import AnswerBuilder, drop_calls, objects_in
from ferrule.models.client import Capabilities, ModelOptions, Sink, ToolSpec, choose_notice
from ferrule.models.hosted_tools import refuse_hosted_tools
from ferrule.models.http.retry import retry
from ferrule.models.openai.chat_answers import ChatStreamParser, parse_answer
from ferrule.models.openai.chat_exchange import encode_chat_content, reasoning_effort
from ferrule.models.provider_errors import error_from_object
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
)
from ferrule.models.verbatim_json import seal, unseal

_CODES_OF_EXCEPTIONS = {
    "RateLimitError": ("rate_limited", True),
    "AuthenticationError": ("unauthorized", False),
    "MissingApiKeyError": ("unauthorized", False),
    "ModelNotFoundError": ("model_not_found", False),
    "ContextLengthExceededError": ("context_overflow", False),
    "InsufficientFundsError": ("quota", False),
    "GatewayTimeoutError": ("provider", True),
    "UpstreamProviderError": ("provider", True),
}
"""any-llm's exceptions as our codes, and whether a retry may help.

All others are classified by their text.
"""


class LibraryClient(Protocol):
    """What is used of any-llm: an `AnyLLM` of one provider."""

    async def acompletion(self, **request: Any) -> Any:
        """Return a `ChatCompletion`, or an async iterator of `ChatCompletionChunk`s."""
        ...


class AnyLLM:
    """A model of a provider that any-llm knows.

    Args:
        name: `provider/model`.
        base_url: Passed to the provider.
        api_key: Passed to the provider. Without it, any-llm reads the provider's own variables.
        client: Replaces the library.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: LibraryClient | None = None,
    ) -> None:
        provider, slash, model = name.partition("/")
        if not slash or not provider or not model:
            raise ConfigError(
                f"`any:{name}` names no provider",
                code="model",
                hint="write `any:provider/model`, for example `any:mistral/mistral-small-latest`",
            )
        self.provider = provider
        self.model_id = model
        self._given = {"api_key": api_key, "api_base": base_url}
        self._client = client

    @property
    def model(self) -> str:
        return f"any:{self.provider}/{self.model_id}"

    async def capabilities(self) -> Capabilities:
        """Return that only tools are known, since chat completions have them.

        A model without tools refuses, and the next tool mode is tried.
        """
        return Capabilities(tools=True, source="any-llm")

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> AnyExchange:
        check_options(self.model, options)
        if options.provider_tools:
            refuse_hosted_tools(options.provider_tools, self.model)
        return AnyExchange(self, system, tools, options)

    async def load_client(self) -> LibraryClient:
        """Return the library's client.

        Raises:
            ProviderError: `extra_missing`, or what the provider lacks (such as a key).
        """
        if self._client is None:
            self._client = await asyncio.to_thread(self._create_client)
        return self._client

    def _create_client(self) -> LibraryClient:
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
                LibraryClient,
                library.AnyLLM.create(
                    self.provider, unified_exceptions=True, max_retries=0, **self._given
                ),
            )
        except Exception as error:  # noqa: BLE001  boundary: any-llm and a provider's SDK raise what they like
            problem = translate_error(self.model, error, tools=False)
        raise problem

    async def close(self) -> None:
        """Forget the client, and close its connections if any-llm's provider can."""
        client: Any = self._client
        self._client = None
        for holder in (client, getattr(client, "client", None)):
            close = getattr(holder, "aclose", None) or getattr(holder, "close", None)
            if inspect.iscoroutinefunction(close):
                await close()
                return


class AnyExchange:
    """One conversation.

    `notices` collects (topic, text) pairs of questions asked without a sink; whoever drives the
    exchange reads and clears it. With a sink, notices go there and nowhere else.
    """

    def __init__(
        self, client: AnyLLM, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._model_client = client
        self._options = options
        self._names = ToolNames(tools)
        self._tools: list[Any] = parse_json(encode_tools(tools)) if tools else []
        self._encoded_history = EncodedHistory(
            system, self._encode_message, answers_results=client.provider == "mistral"
        )

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
        client = await self._model_client.load_client()
        request = self._build_request(tools, schema)
        answer, extras = await retry(lambda: self._send(client, request, sink), notice=notice)
        answered = answer.build(self._names.inbound)
        if answered.calls and not tools:
            return drop_calls(answered, notice)
        if extras:
            ids = [call.id for call in answered.calls]
            answered = replace(
                answered, raw=seal(self._model_client.model, ids, encode_json([extras]))
            )
        return answered

    def _build_request(self, tools: bool, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        options = self._options
        request: dict[str, Any] = {
            "model": self._model_client.model_id,
            "messages": parse_json(b"[" + self._encoded_history.json + b"]"),
        }
        if self._tools and tools:
            request["tools"] = self._tools
        if schema is not None:
            shape = {"name": "reply", "schema": dict(schema)}
            request["response_format"] = {"type": "json_schema", "json_schema": shape}
        request |= name_options(options, CHAT_OPTION_NAMES)
        if options.thinking is not None:
            request["reasoning_effort"] = reasoning_effort(options.thinking)
        return request | dict(options.extra)

    async def _send(
        self, client: LibraryClient, request: dict[str, Any], sink: Sink | None
    ) -> tuple[AnswerBuilder, dict[str, Any]]:
        so_far = _AnswerSoFar(self._model_client.model, sink, tools="tools" in request)
        try:
            async with asyncio.timeout(self._options.timeout):
                if sink is None:
                    completion = await client.acompletion(**request)
                    return so_far.add_completion(completion), so_far.extras
                async for chunk in await client.acompletion(**request, stream=True):
                    so_far.add_chunk(chunk)
                return so_far.parser.finish(), so_far.extras
        except ProviderError:
            raise
        except Exception as error:  # noqa: BLE001  boundary: any-llm and a provider's SDK raise what they like
            problem = translate_error(self._model_client.model, error, tools="tools" in request)
        if so_far.parser.is_complete:
            # The answer is complete: what happens on the connection afterwards does not matter.
            return so_far.parser.finish(), so_far.extras
        problem.retryable = problem.retryable and not so_far.begun
        raise problem

    def _encode_message(self, message: Message) -> bytes:
        if isinstance(message, UserMessage) and message.media:
            return encode_utf8(encode_chat_content(message))
        if isinstance(message, UserMessage):
            return encode_json_bytes({"role": "user", "content": message.text})
        if isinstance(message, ToolMessage):
            return encode_json_bytes(
                {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
            )
        return encode_json_bytes(self._assistant_fields(message))

    def _assistant_fields(self, message: AssistantMessage) -> dict[str, Any]:
        kept = unseal(message.raw, self._model_client.model, [call.id for call in message.calls])
        extras: dict[str, Any] = parse_json(kept["content"])[0] if kept else {}
        fields: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        if "message" in extras:
            fields["extra_content"] = extras["message"]
            fields["reasoning"] = message.reasoning
        calls: list[dict[str, Any]] = []
        for place, call in enumerate(message.calls):
            function = {
                "name": self._names.outbound(call.tool),
                "arguments": arguments_as_object(call.arguments),
            }
            encoded = {"id": call.id, "type": "function", "function": function}
            if str(place) in extras:
                encoded["extra_content"] = extras[str(place)]
            calls.append(encoded)
        if calls:
            fields["tool_calls"] = calls
        return fields


class _AnswerSoFar:
    """What one answer has brought so far; `extras` as `_collect_extras` collects them."""

    def __init__(self, who: str, sink: Sink | None, *, tools: bool) -> None:
        answer = AnswerBuilder.for_sink(sink)
        self.parser = ChatStreamParser(answer, who, tools=tools)
        self.extras: dict[str, Any] = {}
        self.begun = False
        self._who = who
        self._tools = tools

    def add_completion(self, completion: Any) -> AnswerBuilder:
        text = _encode(completion)
        _collect_extras(self.extras, _first_choice(parse_object(text), "message"))
        return parse_answer(text.encode(), self._who, tools=self._tools)

    def add_chunk(self, chunk: Any) -> None:
        self.begun = True
        text = _encode(chunk)
        self.parser.add([text.encode()])
        if '"extra_content"' in text:
            _collect_extras(self.extras, _first_choice(parse_object(text), "delta"))


def _encode(answer: Any) -> str:
    """Return what a library read as JSON again."""
    try:
        return answer.model_dump_json(exclude_none=True)
    except ValueError:
        # Half of a surrogate pair, which only the standard library writes.
        return json.dumps(answer.model_dump(mode="python", exclude_none=True))


def _first_choice(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = objects_in(value.get("choices"))
    inner: Any = found[0].get(name) if found else None
    return cast(dict[str, Any], inner) if isinstance(inner, dict) else {}


def _collect_extras(extras: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Collect `extra_content`: of the message under `message`, of its calls under their places."""
    if fields.get("extra_content"):
        extras["message"] = fields["extra_content"]
    for place, call in enumerate(objects_in(fields.get("tool_calls"))):
        if call.get("extra_content"):
            extras[str(call.get("index", place))] = call["extra_content"]


def translate_error(who: str, error: Exception, *, tools: bool) -> ProviderError:
    """Turn a library's exception into ours, by its class, else by its text."""
    problem = _translate(who, error, tools=tools)
    problem.__cause__ = error
    return problem


def _translate(who: str, error: Exception, *, tools: bool) -> ProviderError:
    if isinstance(error, TimeoutError):
        return ProviderError(f"{who}: no answer in time", code="timeout", retryable=False)
    message = str(getattr(error, "message", "") or error) or type(error).__name__
    known = _CODES_OF_EXCEPTIONS.get(type(error).__name__)
    if known is None:
        fields = {"message": message, "code": getattr(error, "code", "")}
        problem = error_from_object(who, fields, tools=tools, begun=True)
        problem.status = getattr(error, "status_code", None)
        return problem
    code, retryable = known
    seconds = getattr(error, "retry_after", None)
    retry_after = float(seconds) if isinstance(seconds, (int, float)) else None
    return ProviderError(
        f"{who}: {message}", code=code, retryable=retryable, retry_after=retry_after
    )
