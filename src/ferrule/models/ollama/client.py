"""Ollama on its native route, `/api/chat`: the only one that honours the window (`num_ctx`).

Source: Ollama's API documentation (`/api/chat`, `/api/show`). The answer streams as lines of JSON;
calls come whole, in any chunk, with their arguments as an object; results go back under
`tool_name`. There is no `tool_choice`: a model that may not call gets no tools.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from jiter import from_json

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.answer_folding import Answer, counted, dicts, mend, without_calls
from ferrule.models.capabilities import from_show
from ferrule.models.client import Capabilities, ModelOptions, Sink, ToolSpec
from ferrule.models.hosted_tools import no_hosted_tools
from ferrule.models.http.server_sent_events import Lines
from ferrule.models.http.streaming import fold_stream
from ferrule.models.http.transport import Transport
from ferrule.models.provider_errors import error_inside, refusal
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

DEFAULT_URL = "http://127.0.0.1:11434"
WINDOW = 32_768
"""Tokens of `num_ctx` at the most unless a person asks for more: memory grows with the window."""

_HEADERS = {"Content-Type": "application/json"}
_MODELFILE_WINDOW = re.compile(r"^num_ctx\s+(\d+)\s*$", re.M)


class Ollama:
    """A model of an Ollama server. `base_url` defaults to OLLAMA_HOST (read here), then to the
    local server.

    `keep_alive` is how long the model stays loaded after an answer, as Ollama writes it ("5m", -1).
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        transport: Transport | None = None,
        keep_alive: str | int | None = None,
    ) -> None:
        self.id = model
        self.base_url = _address(base_url or os.environ.get("OLLAMA_HOST", "") or DEFAULT_URL)
        self.transport = transport or Transport()
        self.keep_alive = keep_alive
        self._owns_transport = transport is None
        self._show: dict[str, Any] | None = None

    @property
    def model(self) -> str:
        return f"ollama:{self.id}"

    async def capabilities(self) -> Capabilities:
        """From `/api/show`: its list is authoritative, else markers in the template, else
        unknown.
        """
        return from_show(await self.show())

    async def asked_window(self, options: ModelOptions) -> int | None:
        """Tokens of the window that an exchange with these options asks for. Raises
        ProviderError.
        """
        show = await self.show()
        return options.num_ctx or _window(show, from_show(show))

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> OllamaExchange:
        if options.provider_tools:
            no_hosted_tools(options.provider_tools, self.model)
        return OllamaExchange(self, system, tools, options)

    async def close(self) -> None:
        if self._owns_transport:
            await self.transport.close()

    async def show(self) -> dict[str, Any]:
        """`/api/show` of this model, asked once."""
        if self._show is None:
            self._show = await self.transport.retrying(self._ask_show)
        return self._show

    async def _ask_show(self) -> dict[str, Any]:
        body = dumps({"model": self.id})
        try:
            answer = await self.transport.post(
                f"{self.base_url}/api/show", body, _HEADERS, timeout=30.0
            )
        except ProviderError as error:
            raise self.explained(error) from error
        if answer.status != 200:
            error = refusal(self.model, answer.status, answer.headers, answer.body, tools=False)
            raise await self.refused(error)
        return json_object(answer.body)

    def explained(self, error: ProviderError) -> ProviderError:
        """The same error, with Ollama's own next step."""
        if error.code == "unreachable":
            error.hint = f"is the server running at {self.base_url}? start it with `ollama serve`"
        return error

    async def refused(self, error: ProviderError) -> ProviderError:
        """An unknown model gets the command that fetches it, and the list of those that are
        there.
        """
        if error.code == "model_not_found":
            error.hint = f"`ollama pull {self.id}`"
            if installed := await self.installed():
                error.hint += f"; installed: {', '.join(installed[:20])}"
        return error

    async def installed(self) -> list[str]:
        try:
            answer = await self.transport.get(f"{self.base_url}/api/tags", timeout=10.0)
        except ProviderError:
            return []  # The list is a courtesy: the error that is being raised matters more.
        listed: Any = json_object(answer.body).get("models")
        return [str(model.get("name", "")) for model in dicts(listed)]


class OllamaExchange:
    """One conversation. `notices` collects (topic, text) pairs of asks without a sink; whoever
    drives the exchange reads and clears it. With a sink, notices go there and nowhere else.
    """

    def __init__(
        self, wire: Ollama, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._wire = wire
        self._names = Names(tools)
        self._options = options
        self._url = f"{wire.base_url}/api/chat"
        self._head = b'{"model":' + dumps(wire.id) + b',"messages":['
        self._tail: bytes | None = None
        self._tools = b',"tools":' + tools_field(tools) if tools else b""
        self._tools_weight = weight(self._tools.decode())
        self._transcript = Transcript(system, self._message)

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        notice = self._notice(sink)
        if self._tail is None:
            self._tail = await self._settings(notice)
        self._transcript.extend(history)
        offered = self._tools if tools else b""
        body = self._body(offered, schema, self._tail, streamed=sink is not None)
        try:
            answer: Answer = await self._wire.transport.retrying(
                lambda: self._send(body, bool(offered), sink), notice
            )
        except ProviderError as error:
            raise await self._wire.refused(self._wire.explained(error)) from error
        if warning := truncation(
            self._transcript.weight + (self._tools_weight if offered else 0), answer.usage.input
        ):
            notice("truncated", f"{warning}; raise `num_ctx`")
        answered = answer.answered(self._names.inbound)
        return answered if tools else without_calls(answered, notice)

    def _body(
        self, offered: bytes, schema: Mapping[str, Any] | None, tail: bytes, *, streamed: bool
    ) -> bytes:
        form = b',"format":' + dumps(schema) if schema is not None else b""
        stream = b',"stream":true}' if streamed else b',"stream":false}'
        return b"".join((self._head, self._transcript.json, b"]", offered, form, tail, stream))

    async def _send(self, body: bytes, tools: bool, sink: Sink | None) -> Answer:
        wire = self._wire
        fold = LineFold(
            Answer(sink.text, sink.reasoning) if sink else Answer(), wire.model, tools=tools
        )
        async with wire.transport.stream(
            self._url, body, _HEADERS, timeout=self._options.timeout
        ) as stream:
            if stream.status != 200:
                refused = await stream.read()
                raise refusal(wire.model, stream.status, stream.headers, refused, tools=tools)
            await fold_stream(stream, Lines(), fold)
        return fold.finished()

    def _notice(self, sink: Sink | None) -> Callable[[str, str], None]:
        return sink.notice if sink else lambda topic, text: self.notices.append((topic, text))

    # ---- what a person set, and what the model's description adds to it

    async def _settings(self, notice: Callable[[str, str], None]) -> bytes:
        options = self._options
        show = await self._wire.show()
        capabilities = from_show(show)
        chosen: dict[str, Any] = {"num_ctx": options.num_ctx or _window(show, capabilities)}
        named = {
            "temperature": options.temperature,
            "num_predict": options.max_tokens,
            "seed": options.seed,
        }
        chosen |= {name: value for name, value in named.items() if value is not None}
        fields: dict[str, Any] = dict(options.extra)
        fields["options"] = {**chosen, **cast(dict[str, Any], fields.get("options", {}))}
        think = _thinking(options.thinking, show, capabilities, notice)
        if think is not None:
            fields["think"] = think
        if self._wire.keep_alive is not None:
            fields["keep_alive"] = self._wire.keep_alive
        return b"," + dumps(fields)[1:-1]

    def _message(self, message: Message) -> bytes:
        if isinstance(message, UserMessage):
            return dumps({"role": "user", "content": message.text})
        if isinstance(message, ToolMessage):
            name = self._names.outbound(message.tool)
            return dumps({"role": "tool", "tool_name": name, "content": message.text})
        return self._assistant(message)

    def _assistant(self, message: AssistantMessage) -> bytes:
        fields: dict[str, Any] = {"role": "assistant", "content": message.text}
        if message.calls and message.reasoning:
            fields["thinking"] = (
                message.reasoning
            )  # gpt-oss and others go on thinking across their calls.
        encoded = dumps(fields)
        if not message.calls:
            return encoded
        made = b",".join(
            b'{"function":{"name":%b,"arguments":%b}}'
            % (dumps(self._names.outbound(call.tool)), _utf8(arguments_object(call.arguments)))
            for call in message.calls
        )
        return encoded[:-1] + b',"tool_calls":[' + made + b"]}"


class LineFold:
    """Folds the lines of one answer; an answer in one piece is one line."""

    def __init__(self, answer: Answer, who: str, *, tools: bool) -> None:
        self._answer = answer
        self._who = who
        self._tools = tools
        self.done = False

    @property
    def whole(self) -> bool:
        """Whether nothing of the answer is missing."""
        return self.done

    def add(self, lines: list[bytes]) -> None:
        """Take lines in. Raises ProviderError for an error or for what is no JSON."""
        for line in lines:
            try:
                chunk: Any = from_json(line)
            except ValueError:
                chunk = json_object(line)
            if not isinstance(chunk, dict) or not chunk:
                shown = line[:200].decode("utf-8", "replace")
                detail = f"{self._who} sent a line that is no JSON object: {shown}"
                raise ProviderError(detail, code="not_understood", retryable=False)
            self._chunk(cast(dict[str, Any], chunk))
            if self.done:
                return

    def finished(self) -> Answer:
        """The answer. Raises `interrupted` if no line said that it was over."""
        if not self.done:
            detail = f"{self._who}: the stream ended in the middle of the answer"
            raise ProviderError(detail, code="interrupted", retryable=False)
        return self._answer

    def _chunk(self, chunk: dict[str, Any]) -> None:
        answer = self._answer
        if error := chunk.get("error"):
            raise error_inside(self._who, error, tools=self._tools)
        message: Any = chunk.get("message")
        if isinstance(message, dict):
            fields = cast(dict[str, Any], message)
            if isinstance(thought := fields.get("thinking"), str) and thought:
                answer.think(mend(thought))
            if isinstance(piece := fields.get("content"), str) and piece:
                answer.say(mend(piece))
            for call in dicts(fields.get("tool_calls")):
                answer.calls.add_whole(call)
        if chunk.get("done"):
            self.done = True
            answer.finish = str(chunk.get("done_reason") or "stop")
            answer.usage = Usage(
                counted(chunk.get("prompt_eval_count")), counted(chunk.get("eval_count"))
            )


def _address(host: str) -> str:
    """OLLAMA_HOST as Ollama's own tools read it: scheme and port may be missing, 0.0.0.0 means this
    machine.
    """
    scheme, mark, rest = host.strip().rpartition("://")
    if mark and scheme not in ("http", "https"):
        raise ConfigError(f"`{host}` is not an http or https address", code="base_url")
    address, slash, path = rest.partition("/")
    name, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        name, port = address, {"http": "80", "https": "443"}.get(scheme, "11434")
    if name in ("", "0.0.0.0", "[::]"):
        name = "127.0.0.1"
    return f"{scheme or 'http'}://{name}:{port}{slash}{path}".rstrip("/")


def _window(show: Mapping[str, Any], capabilities: Capabilities) -> int:
    """Tokens to ask for: what the model's file sets, else what the model can take, up to WINDOW."""
    parameters = show.get("parameters")
    if isinstance(parameters, str) and (match := _MODELFILE_WINDOW.search(parameters)):
        return int(match[1])
    return min(capabilities.context or WINDOW, WINDOW)


def _thinking(
    wanted: bool | str | None,
    show: Mapping[str, Any],
    capabilities: Capabilities,
    notice: Callable[[str, str], None],
) -> bool | str | None:
    """`think` as this model takes it: gpt-oss knows levels only, a model that cannot think is not
    asked.
    """
    if wanted is None:
        return None
    if capabilities.thinking is False:
        if wanted:
            notice("fallback", "the model cannot think: `thinking` was left out")
        return None
    info: Any = show.get("model_info")
    architecture = (
        cast(dict[str, Any], info).get("general.architecture") if isinstance(info, dict) else ""
    )
    if isinstance(wanted, bool) and str(architecture).replace("-", "").startswith("gptoss"):
        if not wanted:
            notice("fallback", "this model always thinks: `thinking` was set to `low`")
        return "medium" if wanted else "low"
    return wanted


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
