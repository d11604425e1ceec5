"""The Ollama client, on the native route `/api/chat`: the only one that honours `num_ctx`.

Source: Ollama's API documentation (`/api/chat`, `/api/show`). The answer streams as lines of JSON;
calls come complete, in any chunk, with their arguments as an object; results go back under
`tool_name`. There is no `tool_choice`: a model that may not call gets no tools.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.answer_building import (
    AnswerBuilder,
    drop_calls,
    objects_in,
    token_count,
)
from ferrule.models.answer_fields import build_field_error, read_object, read_objects, read_text
from ferrule.models.capabilities import read_ollama_show
from ferrule.models.client import Capabilities, ModelOptions, Sink, ToolSpec, choose_notice
from ferrule.models.hosted_tools import refuse_hosted_tools
from ferrule.models.http.server_sent_events import LineSplitter
from ferrule.models.http.streaming import parse_stream
from ferrule.models.http.transport import Transport
from ferrule.models.provider_errors import (
    build_unreadable_error,
    error_from_object,
    error_from_response,
    find_error,
)
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
from ferrule.models.server_client import ServerClient

DEFAULT_URL = "http://127.0.0.1:11434"
DEFAULT_WINDOW = 32_768
"""Most tokens of `num_ctx` unless more are configured: memory grows with the context window."""

MAX_SHOWN = 32
"""Most installed models that are asked whether they call tools."""

_OPTION_NAMES = {**CHAT_OPTION_NAMES, "max_tokens": "num_predict"}
_HEADERS = {"Content-Type": "application/json"}
_NUM_CTX_IN_MODELFILE = re.compile(r"^num_ctx\s+(\d+)\s*$", re.M)


class Ollama(ServerClient):
    """A model of an Ollama server.

    Args:
        model: The model's name, such as `llama3.2`.
        base_url: Defaults to OLLAMA_HOST (read here), then to the local server.
        transport: Its owner closes it. Without one, the client makes and closes its own.
        keep_alive: How long the model stays loaded after an answer, as Ollama writes it
            ("5m", -1).
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        transport: Transport | None = None,
        keep_alive: str | int | None = None,
    ) -> None:
        self.model_id = model
        self.base_url = _parse_host(base_url or os.environ.get("OLLAMA_HOST", "") or DEFAULT_URL)
        super().__init__(transport)
        self.keep_alive = keep_alive
        self._show: dict[str, Any] | None = None

    @property
    def model(self) -> str:
        return f"ollama:{self.model_id}"

    async def capabilities(self) -> Capabilities:
        """Return what `/api/show` says.

        Its list is authoritative; without one, markers in the template count, else it is unknown.
        """
        return read_ollama_show(await self.show())

    async def requested_window(self, options: ModelOptions) -> int | None:
        """Return the context window in tokens that an exchange with these options requests.

        Raises:
            ProviderError: The server cannot be reached, or refuses.
        """
        show = await self.show()
        return options.num_ctx or _default_window(show, read_ollama_show(show))

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> OllamaExchange:
        check_options(self.model, options)
        if options.provider_tools:
            refuse_hosted_tools(options.provider_tools, self.model)
        return OllamaExchange(self, system, tools, options)

    async def show(self) -> dict[str, Any]:
        """Return `/api/show` of this model. The server is asked once."""
        if self._show is None:
            self._show = await self.transport.retry(self._ask_show)
        return self._show

    async def _ask_show(self) -> dict[str, Any]:
        body = encode_json_bytes({"model": self.model_id})
        try:
            answer = await self.transport.post(
                f"{self.base_url}/api/show", body, _HEADERS, timeout=30.0
            )
        except ProviderError as error:
            raise self.add_hint(error) from error
        if answer.status != 200:
            error = error_from_response(
                self.model, answer.status, answer.headers, answer.body, tools=False
            )
            raise await self.add_model_hint(error)
        return parse_object(answer.body)

    def add_hint(self, error: ProviderError) -> ProviderError:
        """Add Ollama's own next step to an error."""
        if error.code == "unreachable":
            error.hint = f"is the server running at {self.base_url}? start it with `ollama serve`"
        return error

    async def add_model_hint(self, error: ProviderError) -> ProviderError:
        """Add to the error for an unknown model how to fetch it, and which models are installed."""
        if error.code == "model_not_found":
            error.hint = f"`ollama pull {self.model_id}`"
            installed = await self.list_installed()
            if installed:
                error.hint += f"; installed: {', '.join(installed[:20])}"
        return error

    async def list_installed(self) -> list[str]:
        """Return the names of the installed models; none if the server cannot be reached."""
        try:
            answer = await self.transport.get(f"{self.base_url}/api/tags", timeout=10.0)
        except ProviderError:
            return []  # The list is a courtesy: the error that is being raised matters more.
        listed: Any = parse_object(answer.body).get("models")
        return [str(model.get("name", "")) for model in objects_in(listed)]


async def find_models(base_url: str = "") -> list[str]:
    """Return the names of the models that are installed on a server.

    Raises:
        ProviderError: There are none, or the server cannot be reached.
    """
    client = Ollama("any", base_url=base_url)
    try:
        names = await client.list_installed()
    finally:
        await client.close()
    if not names:
        raise ProviderError(
            f"no models at {client.base_url}",
            code="model_not_found",
            hint="`ollama serve`, `ollama pull llama3.2`",
        )
    return names


async def find_tool_models(base_url: str = "") -> list[str]:
    """Return the installed models that call tools, the best first.

    The best is the largest whose file takes at most two thirds of this machine's memory; larger
    ones come last, the smallest of them first.

    Raises:
        ProviderError: The server cannot be reached.
    """
    client = Ollama("any", base_url=base_url)
    try:
        answer = await client.transport.get(f"{client.base_url}/api/tags", timeout=10.0)
        installed = objects_in(parse_object(answer.body).get("models"))[:MAX_SHOWN]
        sizes = {str(one.get("name", "")): token_count(one.get("size")) for one in installed}
        can_call = await asyncio.gather(*(_calls_tools(client, name) for name in sizes))
    finally:
        await client.close()
    room = _memory_size() * 2 // 3
    able = [name for name, can in zip(sizes, can_call, strict=True) if can]
    fitting = sorted((name for name in able if sizes[name] <= room), key=lambda name: -sizes[name])
    too_large = sorted((name for name in able if sizes[name] > room), key=lambda name: sizes[name])
    return [*fitting, *too_large]


async def _calls_tools(client: Ollama, model: str) -> bool:
    shown = await client.transport.post(
        f"{client.base_url}/api/show", encode_json_bytes({"model": model}), _HEADERS, timeout=10.0
    )
    return shown.status == 200 and read_ollama_show(parse_object(shown.body)).tools is True


def _memory_size() -> int:
    """Return this machine's memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class OllamaExchange:
    """One conversation.

    `notices` collects (topic, text) pairs of questions asked without a sink; whoever drives the
    exchange reads and clears it. With a sink, notices go there and nowhere else.
    """

    def __init__(
        self, client: Ollama, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._client = client
        self._names = ToolNames(tools)
        self._options = options
        self._url = f"{client.base_url}/api/chat"
        self._request_start = b'{"model":' + encode_json_bytes(client.model_id) + b',"messages":['
        self._request_end: bytes | None = None
        self._sees_images: bool | None = None
        self._tools = b',"tools":' + encode_tools(tools) if tools else b""
        self._tools_weight = weigh_text(self._tools.decode())
        self._encoded_history = EncodedHistory(system, self._encode_message)

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        notice = choose_notice(sink, self.notices)
        if self._request_end is None:
            self._request_end = await self._encode_settings(notice)
        self._encoded_history.extend(history)
        offered = self._tools if tools else b""
        body = self._request_body(offered, schema, self._request_end, streamed=sink is not None)
        try:
            answer: AnswerBuilder = await self._client.transport.retry(
                lambda: self._send(body, bool(offered), sink), notice
            )
        except ProviderError as error:
            raise await self._client.add_model_hint(self._client.add_hint(error)) from error
        weighed = self._encoded_history.weight + (self._tools_weight if offered else 0)
        warn_of_truncation(notice, weighed, answer.usage.input, "raise `num_ctx`")
        answered = answer.build(self._names.inbound)
        return answered if tools else drop_calls(answered, notice)

    def _request_body(
        self, offered: bytes, schema: Mapping[str, Any] | None, tail: bytes, *, streamed: bool
    ) -> bytes:
        reply_format = b',"format":' + encode_json_bytes(schema) if schema is not None else b""
        stream = b',"stream":true}' if streamed else b',"stream":false}'
        return b"".join(
            (
                self._request_start,
                self._encoded_history.json,
                b"]",
                offered,
                reply_format,
                tail,
                stream,
            )
        )

    async def _send(self, body: bytes, tools: bool, sink: Sink | None) -> AnswerBuilder:
        client = self._client
        answer = AnswerBuilder.for_sink(sink)
        parser = ChatLineParser(answer, client.model, tools=tools)
        async with client.transport.stream(
            self._url, body, _HEADERS, timeout=self._options.timeout
        ) as stream:
            if stream.status != 200:
                refused = await stream.read()
                raise error_from_response(
                    client.model, stream.status, stream.headers, refused, tools=tools
                )
            await parse_stream(stream, LineSplitter(), parser)
        return parser.finish()

    async def _encode_settings(self, notice: Callable[[str, str], None]) -> bytes:
        options = self._options
        show = await self._client.show()
        capabilities = read_ollama_show(show)
        listed = show.get("capabilities")
        if isinstance(listed, list):
            self._sees_images = "vision" in listed
        chosen: dict[str, Any] = {"num_ctx": options.num_ctx or _default_window(show, capabilities)}
        chosen |= name_options(options, _OPTION_NAMES)
        fields: dict[str, Any] = dict(options.extra)
        fields["options"] = {**chosen, **cast(dict[str, Any], fields.get("options", {}))}
        think = _choose_thinking(options.thinking, show, capabilities, notice)
        if think is not None:
            fields["think"] = think
        if self._client.keep_alive is not None:
            fields["keep_alive"] = self._client.keep_alive
        return b"," + encode_json_bytes(fields)[1:-1]

    def _encode_message(self, message: Message) -> bytes:
        if isinstance(message, UserMessage) and message.media:
            return self._encode_media_message(message)
        if isinstance(message, UserMessage):
            return encode_json_bytes({"role": "user", "content": message.text})
        if isinstance(message, ToolMessage):
            name = self._names.outbound(message.tool)
            return encode_json_bytes({"role": "tool", "tool_name": name, "content": message.text})
        return self._encode_assistant(message)

    def _encode_media_message(self, message: UserMessage) -> bytes:
        from ferrule.models.media_encoding import encode_images, write_as_text

        if self._sees_images is False:
            blind = ProviderError(
                f"{self._client.model} sees no pictures: its capabilities have no `vision`",
                code="media_unsupported",
                hint="choose a model with vision, such as `ollama:gemma3` or `ollama:qwen3-vl`",
            )
            text = write_as_text(message.text, message.media, blind)
            return encode_json_bytes({"role": "user", "content": text})
        text, images = encode_images(message.text, message.media)
        return encode_json_bytes({"role": "user", "content": text, "images": images})

    def _encode_assistant(self, message: AssistantMessage) -> bytes:
        fields: dict[str, Any] = {"role": "assistant", "content": message.text}
        if message.calls and message.reasoning:
            # gpt-oss and others continue thinking across their calls.
            fields["thinking"] = message.reasoning
        encoded = encode_json_bytes(fields)
        if not message.calls:
            return encoded
        calls = b",".join(self._encode_call(call) for call in message.calls)
        return encoded[:-1] + b',"tool_calls":[' + calls + b"]}"

    def _encode_call(self, call: ToolCall) -> bytes:
        name = encode_json_bytes(self._names.outbound(call.tool))
        arguments = encode_utf8(arguments_as_object(call.arguments))
        return b'{"function":{"name":%b,"arguments":%b}}' % (name, arguments)


class ChatLineParser:
    """Parses the lines of one answer; an answer in one piece is one line."""

    def __init__(self, answer: AnswerBuilder, who: str, *, tools: bool) -> None:
        self._answer = answer
        self._who = who
        self._tools = tools
        self.done = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the answer is missing."""
        return self.done

    def add(self, lines: list[bytes]) -> None:
        """Add lines.

        Raises:
            ProviderError: A line is an error, or not a JSON object.
        """
        for line in lines:
            try:
                chunk: Any = self._answer.read_json(line)
            except ValueError:
                chunk = None
            if not isinstance(chunk, dict) or not chunk:
                raise build_unreadable_error(self._who, line, "a line that is not a JSON object")
            self._add_chunk(cast(dict[str, Any], chunk))
            if self.done:
                return

    def finish(self) -> AnswerBuilder:
        """Return the answer.

        Raises:
            ProviderError: `interrupted`, no line said that the answer was over.
        """
        if not self.done:
            detail = f"{self._who}: the stream ended in the middle of the answer"
            raise ProviderError(detail, code="interrupted", retryable=False)
        return self._answer

    def _add_chunk(self, chunk: dict[str, Any]) -> None:
        error = find_error(chunk, expected="message")
        if error:
            begun = self._answer.has_begun
            raise error_from_object(self._who, error, tools=self._tools, begun=begun)
        self._add_message(read_object(chunk, "message"))
        done = chunk.get("done")
        if done is not None and not isinstance(done, bool):
            raise build_field_error("done", "true or false", done)
        if done:
            self._answer.note_response(chunk)
            self.done = True
            self._answer.finish_reason = read_text(chunk, "done_reason") or "stop"
            self._answer.usage = Usage(
                token_count(chunk.get("prompt_eval_count")), token_count(chunk.get("eval_count"))
            )

    def _add_message(self, fields: dict[str, Any]) -> None:
        thought = fields.get("thinking")
        if isinstance(thought, str) and thought:
            self._answer.add_reasoning(thought)
        piece = read_text(fields, "content")
        if piece:
            self._answer.add_text(piece)
        for call in read_objects(fields, "tool_calls"):
            self._answer.calls.add_complete(call)


def _parse_host(host: str) -> str:
    """Parse OLLAMA_HOST as Ollama's own tools do.

    Scheme and port may be missing, and 0.0.0.0 means this machine.
    """
    scheme, mark, rest = host.strip().rpartition("://")
    if mark and scheme not in ("http", "https"):
        raise ConfigError(f"`{host}` is not an http or https address", code="base_url")
    address, slash, path = rest.partition("/")
    name, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        name = address
        port = {"http": "80", "https": "443"}.get(scheme, "11434")
    if name in ("", "0.0.0.0", "[::]"):
        name = "127.0.0.1"
    return f"{scheme or 'http'}://{name}:{port}{slash}{path}".rstrip("/")


def _default_window(show: Mapping[str, Any], capabilities: Capabilities) -> int:
    """Return the tokens to request: what the model's file sets, else what the model can take.

    The latter is limited to DEFAULT_WINDOW.
    """
    parameters = show.get("parameters")
    match = _NUM_CTX_IN_MODELFILE.search(parameters) if isinstance(parameters, str) else None
    if match:
        return int(match[1])
    return min(capabilities.context or DEFAULT_WINDOW, DEFAULT_WINDOW)


def _choose_thinking(
    wanted: bool | str | None,
    show: Mapping[str, Any],
    capabilities: Capabilities,
    notice: Callable[[str, str], None],
) -> bool | str | None:
    """Return `think` as this model takes it.

    gpt-oss knows levels only; a model that cannot think is not asked to.
    """
    if wanted is None:
        return None
    if capabilities.thinking is False:
        if wanted:
            notice("fallback", "the model cannot think: `thinking` was left out")
        return None
    if not isinstance(wanted, bool) or not _is_gpt_oss(show):
        return wanted
    if wanted:
        return "medium"
    notice("fallback", "this model always thinks: `thinking` was set to `low`")
    return "low"


def _is_gpt_oss(show: Mapping[str, Any]) -> bool:
    info: Any = show.get("model_info")
    if not isinstance(info, dict):
        return False
    architecture = str(cast(dict[str, Any], info).get("general.architecture"))
    return architecture.replace("-", "").startswith("gptoss")
