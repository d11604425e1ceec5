"""The client of Gemini models: `generateContent`, over the Gemini API and over Vertex AI.

Source: Google's references of both, and the types of `google-genai`, which the tests check every
request with.

* The results of a turn go into one content of the user's, in the order of their calls.
* A model's parts go back as they came if one of them carries a signature: newer models refuse a
  call whose signature is missing. A call that another model made gets the signature that Google
  names for that case.
* Schemas are sent unchanged; what Gemini passes over in them is said once (`schemas`).
* Prefixes are cached by Google itself. What must stay cached is stored by `store_prefix`, and
  named by `ModelOptions.cached_content`; it stands for system text and tools.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from json.encoder import encode_basestring as quote
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote as quote_path

from ferrule.core import messages as core
from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.media import MediaReference
from ferrule.models.answer_building import AnswerBuilder, drop_calls, objects_in
from ferrule.models.client import (
    Capabilities,
    ModelOptions,
    Sink,
    ToolSpec,
    choose_notice,
)
from ferrule.models.hosted_tools import refuse_hosted_tools
from ferrule.models.http.streaming import ModelRequest, send_request
from ferrule.models.http.transport import Transport
from ferrule.models.provider_errors import error_from_response
from ferrule.models.registry import check_options
from ferrule.models.replayed_content import Piece, repair_call, repair_content
from ferrule.models.request_encoding import (
    EncodedTurns,
    ToolNames,
    arguments_as_object,
    describe_tool,
    encode_json_bytes,
    encode_utf8,
    find_thinking_budget,
    fit_name,
    name_options,
    parse_object,
    warn_of_truncation,
    weigh_text,
)
from ferrule.models.server_client import ServerClient, find_key, open_uploads
from ferrule.models.verbatim_json import unseal

from .addresses import (
    GEMINI_URL,
    Address,
    GoogleCredentials,
    TokenSource,
    gemini_address,
    vertex_address,
)
from .answers import ContentBuilder, ResponseStreamParser, parse_answer
from .schemas import describe_ignored

if TYPE_CHECKING:
    from ferrule.models.media_uploads import MediaUploads

EMPTY_TEXT = "(nothing)"
"""Replaces text that is only blanks: the API refuses empty text."""

OTHERS_SIGNATURE = "skip_thought_signature_validator"
"""What Google names as the signature of a call that the model asked did not make."""

_IS_NEWER = re.compile(r"gemini-([3-9]|[12]\d)(?!\d)|gemini-\w+(-\w+)*-latest$")
"""Models from Gemini 3 on: levels of thinking, required signatures, schemas beside tools."""

_OPTION_NAMES = {
    "temperature": "temperature",
    "max_tokens": "maxOutputTokens",
    "seed": "seed",
    "top_p": "topP",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "stop": "stopSequences",
    "top_k": "topK",
}
_THINKING_BUDGETS = {"minimal": 512, "low": 2_048, "medium": 8_192, "high": 16_384, "max": 24_576}
_KEY_VARIABLES = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_THINKING_LEVELS = {"max": "XHIGH"}

_NO_CALLS = b',"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}'


class Google(ServerClient):
    """A Gemini model behind the Gemini API, or behind a server that speaks it.

    Args:
        model: The model's name at the server.
        base_url: The server; defaults to GOOGLE_GEMINI_BASE_URL, read here.
        api_key: Defaults to GEMINI_API_KEY or GOOGLE_API_KEY, read here. It is sent only to
            `base_url`.
        transport: Its owner closes it. Without one, the client makes and closes its own.
        headers: Further headers of every request.
        address: The model's address, instead of `base_url` (`addresses`).
        tokens: Signs requests, in place of `api_key`.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        transport: Transport | None = None,
        headers: Mapping[str, str] | None = None,
        address: Address | None = None,
        tokens: TokenSource | None = None,
    ) -> None:
        self.address = address or gemini_address(base_url)
        self.base_url = self.address.base_url
        self.model_id = model.removeprefix("models/")
        key = api_key or ""
        if address is None:
            is_required = self.base_url == GEMINI_URL
            key = find_key(api_key, _KEY_VARIABLES, f"google:{model}", required=is_required)
        self.url = self.address.model_url(quote_path(self.model_id, safe=""))
        self.headers = {"Content-Type": "application/json", **(headers or {})}
        if key:
            self.headers["x-goog-api-key"] = key.strip()
        super().__init__(transport)
        self._tokens = tokens
        self._capabilities: Capabilities | None = None
        self._prefix: _EncodedPrefix | None = None

    @classmethod
    def on_vertex(
        cls,
        model: str,
        *,
        project: str | None = None,
        location: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
        transport: Transport | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Google:
        """Return the client of a Gemini model on Vertex AI.

        Args:
            model: The model's name there.
            project: The project; defaults to GOOGLE_CLOUD_PROJECT. Without one, `api_key` decides.
            location: The region; defaults to GOOGLE_CLOUD_LOCATION, else `global`.
            credentials: Credentials of google-auth; by default those of this machine.
            base_url: Another server in front of it; defaults to GOOGLE_VERTEX_BASE_URL.
            api_key: A key for Vertex AI, sent in place of a token.
            transport: Its owner closes it.
            headers: Further headers of every request.

        Raises:
            ConfigError: There is neither a project nor a key.
        """
        owner = project or os.environ.get("GOOGLE_CLOUD_PROJECT", "")
        if api_key and not project:
            owner = ""
        region = location or os.environ.get("GOOGLE_CLOUD_LOCATION") or "global"
        address = vertex_address(base_url, owner, region)
        if not owner and not api_key:
            raise ConfigError(
                f"`vertex:{model}` needs the name of your project",
                code="project",
                hint="set GOOGLE_CLOUD_PROJECT, or give it an API key",
            )
        tokens = None if api_key else GoogleCredentials(credentials)
        return cls(
            model,
            api_key=api_key or "",
            transport=transport,
            headers=headers,
            address=address,
            tokens=tokens,
        )

    @property
    def model(self) -> str:
        return f"{self.address.provider}:{self.model_id}"

    @property
    def is_newer(self) -> bool:
        """Whether the model, by its name, is of the third generation or a later one."""
        return _IS_NEWER.match(self.model_id) is not None

    async def capabilities(self) -> Capabilities:
        """Return what the model's name and the server's description of it say.

        All Gemini models call tools and fill schemas. The window is what the server says.
        """
        if self._capabilities is None:
            is_gemini = self.model_id.startswith("gemini-")
            described = await self._describe_model()
            length = described.get("inputTokenLimit")
            thinking = described.get("thinking")
            self._capabilities = Capabilities(
                True if is_gemini else None,
                True if is_gemini else None,
                length if isinstance(length, int) and length > 0 else None,
                thinking if isinstance(thinking, bool) else None,
                "/v1beta/models" if described else "part of the format",
                structured_with_tools=self.is_newer,
            )
        return self._capabilities

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> GoogleExchange:
        check_options(self.model, options)
        refuse_hosted_tools(options.provider_tools, self.model)
        prefix = self._prefix
        if prefix is None or prefix.given != (system, tools):
            prefix = _EncodedPrefix(system, tools)
            # Only a tuple is remembered: a list could be changed later.
            self._prefix = prefix if isinstance(tools, tuple) else None
        return GoogleExchange(self, prefix, options)

    async def upload_file(self, one: MediaReference, data: bytes) -> str:
        from .files import upload_file

        return await upload_file(self, one, data)

    async def request_headers(self) -> Mapping[str, str]:
        """Return the headers of a request, with a token where one is needed.

        Raises:
            ProviderError: `unauthorized`, no token could be had.
        """
        if self._tokens is None:
            return self.headers
        return {**self.headers, **await self._tokens.headers()}

    def read_refusal(
        self, status: int, headers: Mapping[str, str], body: bytes, *, tools: bool
    ) -> ProviderError:
        """Return the error that an answer which is no success stands for.

        Google says in the body, and not in a header, when a busy server may be asked again.
        """
        first = body.lstrip()[:1]
        if first == b"[":
            # Streams of Vertex AI refuse with an array.
            listed: Any = parse_object(b'{"all":' + body + b"}").get("all")
            refusals = objects_in(listed)
            body = encode_json_bytes(refusals[0] if refusals else "")
        error = error_from_response(self.model, status, headers, body, tools=tools)
        delay = _find_retry_delay(body)
        if status == 429 and delay is not None:
            error.code = "rate_limited"
            error.retryable = True
            error.retry_after = delay
        return error

    async def _describe_model(self) -> dict[str, Any]:
        """Return what the Gemini API says of the model; Vertex AI says nothing of use."""
        if self.address.parent or self.address.provider != "google":
            return {}
        headers = await self.request_headers()
        answer = await self.transport.retry(
            lambda: self.transport.get(self.url, headers, timeout=10.0)
        )
        if answer.status == 200:
            return parse_object(answer.body)
        error = self.read_refusal(answer.status, answer.headers, answer.body, tools=False)
        if error.code == "unauthorized":
            raise error
        return {}


class _EncodedPrefix:
    """System text and tools as they are sent, encoded once for the conversations sharing them."""

    def __init__(self, system: str, tools: Sequence[ToolSpec]) -> None:
        self.given = (system, tools)
        named = _name_tools(tools)
        self.names = ToolNames(named)
        declared = ",".join(_encode_tool(tool) for tool in named)
        self.tools = encode_utf8(
            f',"tools":[{{"functionDeclarations":[{declared}]}}]' if named else ""
        )
        text = f'{{"parts":[{{"text":{quote(system)}}}]}}'
        self.system = encode_utf8(f',"systemInstruction":{text}' if system.strip() else "")
        self.weight = weigh_text(system) + weigh_text(declared)
        self.ignored = describe_ignored({tool.name: tool.schema for tool in tools})


class GoogleExchange:
    """One conversation.

    `notices` collects (topic, text) pairs of questions asked without a sink; whoever drives the
    exchange reads and clears it. With a sink, notices go there and nowhere else. After a failed or
    cancelled `ask` the exchange is as it was before, and may be asked again.
    """

    def __init__(self, client: Google, prefix: _EncodedPrefix, options: ModelOptions) -> None:
        self.notices: list[tuple[str, str]] = []
        self._client = client
        self._prefix = prefix
        self._timeout = options.timeout
        self._cached_content = options.cached_content
        self._generation, self._settings = _request_settings(client, options)
        self._encoded_turns = EncodedTurns(self._encode_message, "parts")
        self._uploads: MediaUploads | None = open_uploads(client, "generateContent", options)
        self._unnamed_calls: set[str] = set()
        self._told_ignored: set[str] = set()

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
            self._encoded_turns.extend(())
        self._encoded_turns.extend(history)
        self._report_ignored(schema, notice)
        body = self._request_body(tools, schema)
        offered = bool(self._prefix.tools)

        async def attempt() -> ContentBuilder:
            content = ContentBuilder(AnswerBuilder.for_sink(sink))
            await self._send(body, content, offered, streamed=sink is not None)
            return content

        content = await self._client.transport.retry(attempt, notice)
        answer = content.build(self._client.model, self._prefix.names.inbound)
        if answer.stop == "filter":
            said = f": {content.stop_detail}" if content.stop_detail else ""
            notice("refused", f"Google withheld the answer ({content.stop}){said}")
        weighed = self._encoded_turns.weight + self._prefix.weight
        warn_of_truncation(notice, weighed, answer.usage.input)
        if answer.calls and not tools:
            return replace(drop_calls(answer, notice), raw=None)
        return answer

    async def store_prefix(self, seconds: int) -> str:
        """Store system text and tools at Google, which bills them by the hour.

        The conversation uses what was stored from now on. Others name it as
        `ModelOptions.cached_content`.

        Args:
            seconds: How long it is kept.

        Returns:
            The name of the cached content.

        Raises:
            ProviderError: It is too short to be stored, or the server refused it.
        """
        client = self._client
        head = {"model": client.address.model_resource(client.model_id), "ttl": f"{seconds}s"}
        body = encode_json_bytes(head)[:-1] + self._prefix.system + self._prefix.tools + b"}"
        headers = await client.request_headers()
        answer = await client.transport.retry(
            lambda: client.transport.post(
                client.address.caches_url, body, headers, timeout=self._timeout
            )
        )
        name = parse_object(answer.body).get("name") if answer.status == 200 else None
        if not isinstance(name, str):
            raise client.read_refusal(answer.status, answer.headers, answer.body, tools=False)
        self._cached_content = name
        return name

    def _request_body(self, tools: bool, schema: Mapping[str, Any] | None) -> bytes:
        """Return the request. What changes between turns stands behind the conversation."""
        generation = dict(self._generation)
        offered = self._prefix.tools
        if schema is not None:
            generation["responseMimeType"] = "application/json"
            generation["responseJsonSchema"] = schema
            if not self._client.is_newer:
                # Older models refuse a schema for the reply beside tools.
                offered = b""
        parts: list[bytes | bytearray] = [b"{"]
        if self._cached_content and tools and offered == self._prefix.tools:
            parts += (b'"cachedContent":', encode_json_bytes(self._cached_content))
        else:
            # Nothing may be said of tools beside a cached content: it is left out here.
            head = self._prefix.system + offered
            parts.append(head[1:] if head else b"")
            if offered and not tools:
                parts.append(_NO_CALLS)
        if len(parts) > 2 or parts[-1]:
            parts.append(b",")
        parts += (b'"contents":[', self._encoded_turns.json, b"]")
        if generation:
            parts += (b',"generationConfig":', encode_json_bytes(generation))
        if self._settings:
            parts += (b",", encode_json_bytes(self._settings)[1:-1])
        parts.append(b"}")
        return b"".join(parts)

    async def _send(
        self, body: bytes, content: ContentBuilder, tools: bool, *, streamed: bool
    ) -> None:
        client = self._client
        method = "streamGenerateContent?alt=sse" if streamed else "generateContent"
        headers = await client.request_headers()
        await send_request(
            client.transport,
            ModelRequest(f"{client.url}:{method}", body, headers, self._timeout, streamed),
            make_error=partial(client.read_refusal, tools=tools),
            parse_whole=lambda body: parse_answer(content, body, client.model, tools=tools),
            open_parser=lambda: ResponseStreamParser(content, client.model, tools=tools),
        )

    def _report_ignored(
        self, schema: Mapping[str, Any] | None, notice: Callable[[str, str], None]
    ) -> None:
        """Say once what Gemini passes over in the schemas of tools and reply."""
        texts = [self._prefix.ignored]
        if schema is not None:
            texts.append(describe_ignored({"the answer": encode_json(schema)}))
        for text in texts:
            if text and text not in self._told_ignored:
                self._told_ignored.add(text)
                notice("schema", text)

    # ---- messages out

    def _encode_message(self, message: core.Message) -> tuple[str, str]:
        if isinstance(message, core.UserMessage):
            if message.media:
                return "user", self._encode_content(message.text, message.media)
            return "user", _encode_text(message.text)
        if isinstance(message, core.ToolMessage):
            return "user", self._encode_result(message)
        kept = unseal(message.raw, self._client.model, [call.id for call in message.calls])
        names = iter([self._outbound(call.tool) for call in message.calls])
        repair = partial(_repair_part, names)
        content = "" if kept is None else repair_content(kept["content"], repair)
        if kept is None or not content:
            return "model", self._encode_assistant(message)
        unnamed: Any = parse_json(kept.get("unnamed", "[]"))
        self._unnamed_calls.update(cast("list[str]", unnamed))
        return "model", content

    def _outbound(self, tool: str) -> str:
        """Return the name to send for a tool, or for a name that no tool has."""
        return _fit_name(self._prefix.names.outbound(tool))

    def _encode_result(self, message: core.ToolMessage) -> str:
        name = quote(self._outbound(message.tool))
        is_named = message.call_id not in self._unnamed_calls
        id = f'"id":{quote(message.call_id)},' if is_named else ""
        kind = "output" if message.success else "error"
        response = f'{{"{kind}":{quote(message.text)}}}'
        inside = beside = ""
        if message.media:
            media = self._encode_content("", message.media)
            # Models before Gemini 3 read media only beside a response.
            has_text = '{"text"' in media
            if self._client.is_newer and not has_text:
                inside = f',"parts":[{media}]'
            else:
                beside = f",{media}"
        fields = f'{id}"name":{name},"response":{response}{inside}'
        return f'{{"functionResponse":{{{fields}}}}}{beside}'

    def _encode_content(self, text: str, media: Sequence[MediaReference]) -> str:
        from ferrule.models.media_encoding import encode_content

        find_file = None if self._uploads is None else self._uploads.find_file
        return ",".join(encode_content("generateContent", text, media, _encode_text, find_file))

    def _encode_assistant(self, message: core.AssistantMessage) -> str:
        parts = [_encode_text(message.text)] if message.text.strip() or not message.calls else []
        for place, call in enumerate(message.calls):
            name = quote(self._outbound(call.tool))
            arguments = arguments_as_object(call.arguments)
            signature = ""
            if place == 0 and self._client.is_newer:
                signature = f',"thoughtSignature":{quote(OTHERS_SIGNATURE)}'
            fields = f'"id":{quote(call.id)},"name":{name},"args":{arguments}'
            parts.append(f'{{"functionCall":{{{fields}}}{signature}}}')
        return ",".join(parts)


def _encode_text(text: str) -> str:
    return f'{{"text":{quote(text if text.strip() else EMPTY_TEXT)}}}'


def _repair_part(names: Iterator[str], part: Piece) -> Piece | None:
    """Return a part of an answer as the API takes it back (`replayed_content`).

    A call gets the name that its result is sent with, the next of `names`.
    """
    call = part.get("functionCall")
    if isinstance(call, dict):
        repaired = repair_call(
            cast("Piece", call), "args", lambda given: next(names, _fit_name(given))
        )
        return part if repaired is call else {**part, "functionCall": repaired}
    is_signed = "thoughtSignature" in part
    if set(part) <= {"text", "thought"} and not part.get("text") and not is_signed:
        return None
    return part


def _fit_name(name: str) -> str:
    """Return a name as the API allows it."""
    fitting = fit_name(name) or "unnamed"
    return fitting if _may_start(fitting) else f"_{fitting}"[:64]


def _may_start(name: str) -> bool:
    return name[:1].isalpha() or name.startswith("_")


def _name_tools(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Return the tools under names that Google takes: they begin with a letter or `_`."""
    taken = {tool.api_name for tool in tools}
    named: list[ToolSpec] = []
    for tool in tools:
        name = tool.api_name
        if not _may_start(name):
            name = f"_{name}"[:64]
            while name in taken:
                name = f"_{name}"[:64]
            taken.add(name)
        named.append(replace(tool, api_name=name))
    return named


def _encode_tool(tool: ToolSpec) -> str:
    schema = f',"parametersJsonSchema":{tool.schema}' if tool.schema else ""
    return f'{{"name":{quote(tool.api_name)},"description":{quote(describe_tool(tool))}{schema}}}'


def _request_settings(
    client: Google, options: ModelOptions
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the model options as `generationConfig`, and the other members of the request."""
    generation = name_options(options, _OPTION_NAMES)
    if options.thinking is not None:
        generation["thinkingConfig"] = _thinking_settings(client, options.thinking)
    extra = name_options(options, {"service_tier": "serviceTier"}) | dict(options.extra)
    further = extra.pop("generationConfig", None)
    if isinstance(further, Mapping):
        generation |= dict(cast("Mapping[str, Any]", further))
    return generation, extra


def _thinking_settings(client: Google, wanted: bool | str) -> dict[str, Any]:
    """Return how much the model thinks. Newer models cannot be kept from it altogether.

    Raises:
        ConfigError: It thinks within a number of tokens, and no level of that name is known.
    """
    is_newer = client.is_newer
    if wanted is False:
        return {"thinkingLevel": "MINIMAL"} if is_newer else {"thinkingBudget": 0}
    settings: dict[str, Any] = {"includeThoughts": True}
    if isinstance(wanted, str) and is_newer:
        settings["thinkingLevel"] = _THINKING_LEVELS.get(wanted, wanted.upper())
    elif isinstance(wanted, str):
        settings["thinkingBudget"] = find_thinking_budget(
            client.model_id, wanted, _THINKING_BUDGETS
        )
    return settings


def _find_retry_delay(body: bytes) -> float | None:
    """Return the seconds after which Google allows another attempt, if it says so."""
    error: Any = parse_object(body).get("error")
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    for detail in objects_in(fields.get("details")):
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and re.fullmatch(r"\d+(\.\d+)?s", delay):
            return float(delay[:-1])
    return None
