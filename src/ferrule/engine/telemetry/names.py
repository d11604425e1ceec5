"""OpenTelemetry's names for generative AI, in one table: a new version is one change here.

Source: the GenAI semantic conventions
(https://github.com/open-telemetry/semantic-conventions-genai), all still in development. They ask
instrumentations to emit what they always did until a person opts in to the newest names, with
`OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental`. `LATEST` is what only they define; the
rest is common to both. The content of messages and calls is part of it, and needs a second opt-in:
`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from ferrule.models.registry import find_address, find_provider

OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
OPT_IN_VALUE = "gen_ai_latest_experimental"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CAPTURE_ON_SPANS = frozenset({"true", "1", "span_only", "span_and_event"})
"""Values that ask for content on spans. Any other value, also an unknown one, does not."""


class Attribute(StrEnum):
    """Attributes of spans and metrics."""

    OPERATION = "gen_ai.operation.name"
    PROVIDER = "gen_ai.provider.name"
    MODEL = "gen_ai.request.model"
    CONVERSATION = "gen_ai.conversation.id"
    AGENT_NAME = "gen_ai.agent.name"
    RESPONSE_ID = "gen_ai.response.id"
    RESPONSE_MODEL = "gen_ai.response.model"
    SERVER_ADDRESS = "server.address"
    SERVER_PORT = "server.port"
    ERROR = "error.type"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
    CACHE_CREATION = "gen_ai.usage.cache_creation.input_tokens"
    REASONING = "gen_ai.usage.reasoning.output_tokens"
    STREAM = "gen_ai.request.stream"
    FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    TOOL_NAME = "gen_ai.tool.name"
    TOOL_CALL_ID = "gen_ai.tool.call.id"
    TOOL_TYPE = "gen_ai.tool.type"
    TOKEN_TYPE = "gen_ai.token.type"
    SYSTEM = "gen_ai.system_instructions"
    INPUT_MESSAGES = "gen_ai.input.messages"
    OUTPUT_MESSAGES = "gen_ai.output.messages"
    TOOL_DEFINITIONS = "gen_ai.tool.definitions"
    TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
    TOOL_RESULT = "gen_ai.tool.call.result"
    REFUSED_BY = "ferrule.refused_by"


class Operation(StrEnum):
    """Values of `Attribute.OPERATION`; span names begin with them."""

    AGENT = "invoke_agent"
    CHAT = "chat"
    TOOL = "execute_tool"


class Metric(StrEnum):
    """Names of histograms."""

    TOKENS = "gen_ai.client.token.usage"
    DURATION = "gen_ai.client.operation.duration"
    AGENT_DURATION = "gen_ai.invoke_agent.duration"
    TOOL_DURATION = "gen_ai.execute_tool.duration"


TOOL_EXCEPTION = "gen_ai.execute_tool.exception"
EXCEPTION_TYPE = "exception.type"

CONTENT = frozenset(
    {
        Attribute.SYSTEM,
        Attribute.INPUT_MESSAGES,
        Attribute.OUTPUT_MESSAGES,
        Attribute.TOOL_DEFINITIONS,
        Attribute.TOOL_ARGUMENTS,
        Attribute.TOOL_RESULT,
    }
)
"""Attributes with what people and models said."""

LATEST: frozenset[str] = CONTENT | {
    Attribute.CACHE_READ,
    Attribute.CACHE_CREATION,
    Attribute.REASONING,
    Attribute.STREAM,
    Attribute.FIRST_CHUNK,
    Metric.AGENT_DURATION,
    Metric.TOOL_DURATION,
    TOOL_EXCEPTION,
}

BUCKETS: dict[Metric, tuple[float, ...]] = {
    Metric.TOKENS: tuple(float(4**power) for power in range(14)),
    **{
        metric: tuple(0.01 * 2**power for power in range(14))
        for metric in (Metric.DURATION, Metric.AGENT_DURATION, Metric.TOOL_DURATION)
    },
}
"""Boundaries that the conventions ask for, in tokens and seconds."""

_NAMES_OF_ANY_LLM = {
    "gemini": "gcp.gemini",
    "vertexai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
}
"""Providers behind any-llm alone whose names are different in the conventions."""

FINISH_REASONS = {
    "end": "stop",
    "calls": "tool_call",
    "length": "length",
    "filter": "content_filter",
}
"""Why an answer ended: our values and those of the conventions."""


def provider_and_model(name: str) -> tuple[str, str]:
    """Split a model's name into provider and model.

    `openai:gpt-5` gives `("openai", "gpt-5")`; `any:mistral/large` gives `("mistral_ai", "large")`.
    """
    provider, _, model = name.partition(":")
    if provider == "any" and "/" in model:
        provider, _, model = model.partition("/")
        provider = _NAMES_OF_ANY_LLM.get(provider, provider)
    row = find_provider(f"{provider}:")
    if row is not None and row.telemetry_name:
        provider = row.telemetry_name
    return provider or "unknown", model or name


def find_model_address(name: str) -> str:
    """Return the URL under which a model's provider is reached, "" if that is not known."""
    row = find_provider(name)
    return "" if row is None else find_address(row) or row.usual_address


def server_attributes(address: str) -> dict[str, Any]:
    """Return the attributes of a server by its URL; the port only if it is not the usual one."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return {}
    if not host:
        return {}
    attributes: dict[str, Any] = {Attribute.SERVER_ADDRESS.value: host}
    usual = 80 if parts.scheme == "http" else 443
    return (
        attributes if port in (None, usual) else {**attributes, Attribute.SERVER_PORT.value: port}
    )


class OptIn:
    """What a person opted in to, by the standard environment variables."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        asked = environment.get(OPT_IN, "")
        self.latest = OPT_IN_VALUE in {value.strip() for value in asked.split(",")}
        captured = environment.get(CAPTURE, "").strip().lower() in CAPTURE_ON_SPANS
        self.content = self.latest and captured

    def emits(self, name: str) -> bool:
        """Whether a name of the table is emitted."""
        if name in CONTENT:
            return self.content
        return self.latest or name not in LATEST
