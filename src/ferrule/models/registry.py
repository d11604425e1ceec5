"""The list of providers, and the lookup from a model's name (`provider:model`) to its client.

`PROVIDERS` are those that ship; installed plugins bring more (`find_provider`, `list_providers`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from ferrule.core.errors import ConfigError
from ferrule.core.limits import DEFAULT_TURNS
from ferrule.core.similar_names import find_similar_names
from ferrule.core.value_class import frozen

from .client import (
    Exchange,
    ModelClient,
    ModelMaker,
    ModelOptions,
    ToolBounds,
    ToolModeOpener,
    ToolSpec,
)

if TYPE_CHECKING:
    from ferrule.storage.plugins.added_providers import AddedProvider

BASIC_OPTIONS = frozenset(("temperature", "max_tokens"))
CHAT_OPTIONS = BASIC_OPTIONS | {"seed", "top_p", "presence_penalty", "frequency_penalty", "stop"}
OPENAI_OPTIONS = CHAT_OPTIONS | {"thinking", "logit_bias", "service_tier", "cache_key"}
UPLOADS = frozenset({"upload_media_from"})
CACHE_MARKS = frozenset({"cache_control"})
LLAMA_OPTIONS = CHAT_OPTIONS | {"top_k", "logit_bias"}
"""What llama.cpp, vLLM and their like add to chat completions."""


@frozen
class Provider:
    """One row of the list: everything the rest of Ferrule needs to know of a provider.

    Code is named as `module:callable`; its module is imported when it is needed.

    Attributes:
        client: Makes the client from the model's name and the options.
        example: A model's full name, for hints.
        options: The fields of `ModelOptions` that the API has. Others are refused
            (`check_options`).
        key_variable: The environment variable from which the client reads the API key.
        address_variable: The environment variable from which it reads the URL of the API.
        usual_address: Where the client reaches the API by itself, for records of who was asked.
        find_models: An async function from the URL that the settings name, or "", to the names of
            the models that can be used from here. It raises ProviderError if there are none.
            Without one, a key or a URL means that there are models.
        find_tool_models: The same for models that call tools, the best first.
        describe_models: A function that returns the name of each model that its provider knows,
            whether it can be used, and what it is. It takes the place of the list of
            `find_models` where models are shown to people.
        fetch_model: A function that gets a model to this machine (`FetchModel`).
        has_hosted_tools: Whether the provider runs tools itself (`models.hosted_tools`).
        runs_here: Whether its models compute on this machine, as far as the name tells.
        is_free: Whether its models cost nothing.
        is_small: Whether its models are so small that a long system text confuses them, and that
            they are led from tool to tool instead of reading the descriptions of all.
        turns: Turns of a message where nothing is set.
        last_resort: Why `example` may be used where nothing else is there, as what people should
            know of it; "" if it is not.
        telemetry_name: What the conventions of OpenTelemetry call it, if not as we do.
        price_name: What the data of genai-prices calls it, if not as we do.
        tool_modes: What opens conversations in a tool mode, in place of `models.tool_modes`, by the
            name of the mode.
        protocol: What its API is called.
        base_url: The URL of its API, if the client does not know it.
        api_path: What belongs behind the host, if `address_variable` or the settings name only
            that.
        needs_key: Whether its own address refuses requests without a key.
        key_path: Where a request without cost says whether a key is accepted, behind the URL.
        default_model: What is used if a person has a key and names no model.
        replay_reasoning: Whether reasoning is sent back with the calls that followed from it.
        differences: How this server differs from others that speak chat completions
            (`openai.differences.ChatDifferences`).
        model_maker: Who made its models, if their names tell which options they refuse
            (`refused_options`).
        tool_bounds: What it takes of tools in one request, at its own address.
        remark: What people should know of it.
        also_called: Other names that people try.
        plugin: The plugin that brings it; "" if it ships.
    """

    client: str
    example: str
    options: frozenset[str] = BASIC_OPTIONS
    key_variable: str = ""
    address_variable: str = ""
    usual_address: str = ""
    find_models: str = ""
    find_tool_models: str = ""
    describe_models: str = ""
    fetch_model: str = ""
    has_hosted_tools: bool = False
    runs_here: bool = False
    is_free: bool = False
    is_small: bool = False
    turns: int = DEFAULT_TURNS
    last_resort: str = ""
    telemetry_name: str = ""
    price_name: str = ""
    tool_modes: Mapping[str, str] = field(default_factory=dict[str, str])
    protocol: str = ""
    base_url: str = ""
    api_path: str = ""
    needs_key: bool = True
    key_path: str = ""
    default_model: str = ""
    replay_reasoning: bool = False
    differences: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model_maker: ModelMaker = ""
    tool_bounds: ToolBounds = ToolBounds()
    remark: str = ""
    also_called: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def is_preset(self) -> bool:
        """Whether it is another server behind a client that has a row of its own."""
        return bool(self.base_url or self.api_path)

    @property
    def is_in_process(self) -> bool:
        """Whether its models compute in this process, so that there is no server to reach."""
        return self.runs_here and not (self.base_url or self.address_variable)


class FetchModel(Protocol):
    """The type of what `Provider.fetch_model` names."""

    def __call__(
        self,
        source: str,
        *,
        name: str,
        sha256: str,
        tell: Callable[[str], None],
        show_progress: Callable[[str], AbstractContextManager[Callable[[int, int], None]]],
    ) -> None:
        """Get a model to this machine unless it is here.

        Args:
            source: The name of a model, a URL or a path.
            name: The name that it shall have; "" for its own.
            sha256: The hash that its file must have; "" for any.
            tell: Tells the person one sentence.
            show_progress: Called with what is downloaded; what it yields is called with the bytes
                that arrived and with all that there are, 0 if nobody knows.

        Raises:
            ConfigError: There is no such model, or it cannot be kept.
            ProviderError: It cannot be fetched.
        """
        ...


_WITHOUT_SEED = (CHAT_OPTIONS - {"seed"}) | {"thinking"}
_UP_TO_128_TOOLS = ToolBounds(tools=128)
_BOUNDS_OF_OPENAI = ToolBounds(tools=128, description=1024)
_NEWER_LIMIT: Mapping[str, Any] = {
    "option_names": {"max_tokens": "max_completion_tokens"},
    "thinking_switch": "effort",
}
"""Servers that call the limit of an answer as OpenAI calls it today."""

_CHAT_CLIENT = "ferrule.models.openai.chat:OpenAIChat"
_CHAT_DIFFERENCES = "ferrule.models.openai.differences:ChatDifferences"
_CHAT_MODELS = "ferrule.models.openai.chat:find_models"


def _host(base_url: str, key_variable: str, example: str, **more: Any) -> Provider:
    """Return the row of a service that speaks OpenAI's chat completions."""
    fields: dict[str, Any] = {
        "options": CHAT_OPTIONS | {"thinking"},
        "protocol": "chat completions",
        "differences": {"thinking_switch": "effort"},
        "key_path": "/models",
        "default_model": example,
    }
    fields |= more
    return Provider(_CHAT_CLIENT, example, base_url=base_url, key_variable=key_variable, **fields)


def _server(base_url: str, key_variable: str, example: str, **more: Any) -> Provider:
    """Return the row of a program that people run themselves and that needs no key."""
    fields: dict[str, Any] = {
        "find_models": _CHAT_MODELS,
        "options": LLAMA_OPTIONS | {"thinking"},
        "differences": {},
        "needs_key": False,
        "runs_here": True,
        "default_model": "",
    }
    fields |= more
    return _host(base_url, key_variable, example, **fields)


PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        "ferrule.models.openai.chat:OpenAIChat",
        "openai:MODEL",
        OPENAI_OPTIONS | UPLOADS,
        key_variable="OPENAI_API_KEY",
        address_variable="OPENAI_BASE_URL",
        usual_address="https://api.openai.com",
        protocol="chat completions",
        key_path="/models",
        default_model="openai:gpt-5.5",
        model_maker="OpenAI",
        also_called=("gpt", "chatgpt", "oai"),
        tool_bounds=_BOUNDS_OF_OPENAI,
    ),
    "openai-responses": Provider(
        "ferrule.models.openai.responses:OpenAIResponses",
        "openai-responses:MODEL",
        BASIC_OPTIONS | UPLOADS | {"top_p", "thinking", "service_tier", "cache_key"},
        key_variable="OPENAI_API_KEY",
        address_variable="OPENAI_BASE_URL",
        usual_address="https://api.openai.com",
        has_hosted_tools=True,
        telemetry_name="openai",
        price_name="openai",
        protocol="Responses",
        key_path="/models",
        model_maker="OpenAI",
        also_called=("responses",),
        tool_bounds=_BOUNDS_OF_OPENAI,
    ),
    "anthropic": Provider(
        "ferrule.models.anthropic.client:Anthropic",
        "anthropic:MODEL",
        BASIC_OPTIONS
        | UPLOADS
        | {"top_p", "top_k", "thinking", "stop", "service_tier"}
        | CACHE_MARKS,
        key_variable="ANTHROPIC_API_KEY",
        address_variable="ANTHROPIC_BASE_URL",
        usual_address="https://api.anthropic.com",
        has_hosted_tools=True,
        protocol="Messages",
        key_path="/v1/models",
        default_model="anthropic:claude-sonnet-5",
        model_maker="Anthropic",
        also_called=("claude",),
    ),
    "google": Provider(
        "ferrule.models.google.client:Google",
        "google:gemini-3.8-flash",
        CHAT_OPTIONS | UPLOADS | {"thinking", "top_k", "service_tier", "cached_content"},
        key_variable="GEMINI_API_KEY",
        address_variable="GOOGLE_GEMINI_BASE_URL",
        usual_address="https://generativelanguage.googleapis.com",
        telemetry_name="gcp.gemini",
        protocol="generateContent",
        key_path="/v1beta/models",
        default_model="google:gemini-3.8-flash",
        remark="GOOGLE_API_KEY is read, too",
        also_called=("gemini", "google-genai", "google-gla", "googleai", "aistudio"),
        tool_bounds=ToolBounds(tools=512),
    ),
    "vertex": Provider(
        "ferrule.models.google.client:Google.on_vertex",
        "vertex:gemini-3.8-flash",
        CHAT_OPTIONS | {"thinking", "top_k", "cached_content"},
        address_variable="GOOGLE_VERTEX_BASE_URL",
        find_models="ferrule.models.google.addresses:find_vertex_models",
        telemetry_name="gcp.vertex_ai",
        price_name="google",
        protocol="generateContent",
        remark="your project on Google Cloud: `GOOGLE_CLOUD_PROJECT`, `GOOGLE_CLOUD_LOCATION`",
        also_called=("vertexai", "vertex-ai", "vertex_ai", "google-vertex"),
        tool_bounds=ToolBounds(tools=512),
    ),
    "bedrock": Provider(
        "ferrule.models.bedrock.client:Bedrock",
        "bedrock:us.anthropic.claude-sonnet-5-5",
        BASIC_OPTIONS | {"top_p", "stop", "thinking", "service_tier"},
        address_variable="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        find_models="ferrule.models.bedrock.aws:find_models",
        telemetry_name="aws.bedrock",
        price_name="aws",
        protocol="Converse",
        remark="credentials of AWS, or a key in `AWS_BEARER_TOKEN_BEDROCK`; `AWS_REGION`",
        model_maker="Anthropic",
        also_called=("aws", "amazon", "amazon-bedrock", "aws-bedrock"),
    ),
    "cohere": Provider(
        "ferrule.models.cohere.client:Cohere",
        "cohere:command-a-03-2025",
        CHAT_OPTIONS | {"thinking", "top_k"},
        key_variable="CO_API_KEY",
        address_variable="CO_API_URL",
        usual_address="https://api.cohere.com",
        protocol="chat, version 2",
        key_path="/v1/models",
        default_model="cohere:command-a-03-2025",
    ),
    "ollama": Provider(
        "ferrule.models.ollama.client:Ollama",
        "ollama:llama3.2",
        CHAT_OPTIONS | {"thinking", "top_k"},
        address_variable="OLLAMA_HOST",
        usual_address="http://localhost:11434",
        find_models="ferrule.models.ollama.client:find_models",
        find_tool_models="ferrule.models.ollama.client:find_tool_models",
        runs_here=True,
        protocol="/api/chat",
    ),
    "openrouter": _host(
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        "openrouter:anthropic/claude-sonnet-5",
        options=LLAMA_OPTIONS | CACHE_MARKS | {"thinking"},
        key_path="/key",
        remark="its list of models is public and says which of them take tools",
        also_called=("open-router",),
    ),
    "azure": _host(
        "",
        "AZURE_OPENAI_API_KEY",
        "azure:DEPLOYMENT",
        address_variable="AZURE_OPENAI_ENDPOINT",
        api_path="/openai/v1",
        default_model="",
        options=OPENAI_OPTIONS,
        differences={
            "like_openai": True,
            "key_header": "api-key",
            "thinking_switch": "effort",
        },
        remark="MODEL is the name of your deployment; the key goes in `api-key`",
        telemetry_name="azure.ai.openai",
        also_called=("azure-openai", "azure_openai", "foundry"),
        tool_bounds=_BOUNDS_OF_OPENAI,
    ),
    "groq": _host(
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        "groq:openai/gpt-oss-120b",
        options=CHAT_OPTIONS | {"thinking", "service_tier"},
        differences=_NEWER_LIMIT,
        tool_bounds=_UP_TO_128_TOOLS,
    ),
    "mistral": _host(
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        "mistral:mistral-medium-latest",
        differences={
            "stream_usage": False,
            "short_call_ids": True,
            "answers_results": True,
            "option_names": {"seed": "random_seed"},
            "thinking_switch": "effort",
        },
        remark=(
            "refuses fields that it does not know, and a message right after results; its call "
            "ids have nine characters"
        ),
        telemetry_name="mistral_ai",
        also_called=("mistralai", "codestral"),
    ),
    "deepseek": _host(
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        "deepseek:deepseek-chat",
        options=_WITHOUT_SEED,
        differences={"thinking_switch": "type"},
        replay_reasoning=True,
        remark="wants its reasoning back with the calls that followed from it",
        tool_bounds=_UP_TO_128_TOOLS,
    ),
    "xai": _host(
        "https://api.x.ai/v1",
        "XAI_API_KEY",
        "xai:grok-4.5",
        telemetry_name="x_ai",
        price_name="x-ai",
        also_called=("x-ai", "x_ai", "grok"),
        tool_bounds=_UP_TO_128_TOOLS,
    ),
    "together": _host(
        "https://api.together.xyz/v1",
        "TOGETHER_API_KEY",
        "together:zai-org/GLM-5.2",
        options=LLAMA_OPTIONS | {"thinking"},
        differences={"thinking_switch": "template"},
        also_called=("togetherai", "together_ai", "together-ai"),
    ),
    "fireworks": _host(
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        "fireworks:accounts/fireworks/models/minimax-m3",
        options=LLAMA_OPTIONS | {"thinking"},
        also_called=("fireworks_ai", "fireworks-ai"),
    ),
    "cerebras": _host(
        "https://api.cerebras.ai/v1",
        "CEREBRAS_API_KEY",
        "cerebras:gpt-oss-120b",
        options=BASIC_OPTIONS | {"seed", "top_p", "stop", "thinking"},
        differences=_NEWER_LIMIT,
    ),
    "moonshot": _host(
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        "moonshot:kimi-k2.6",
        options=_WITHOUT_SEED | {"cache_key"},
        differences={"thinking_switch": "type"},
        replay_reasoning=True,
        remark="wants its reasoning back with the calls that followed from it",
        telemetry_name="moonshot_ai",
        price_name="moonshotai",
        also_called=("moonshotai", "kimi"),
        tool_bounds=_UP_TO_128_TOOLS,
    ),
    "huggingface": _host(
        "https://router.huggingface.co/v1",
        "HF_TOKEN",
        "huggingface:openai/gpt-oss-120b",
        default_model="",
        remark="many have its key for downloads alone, so it is used only if it is named",
        also_called=("hf", "hugging-face"),
    ),
    "zai": _host(
        "https://api.z.ai/api/paas/v4",
        "ZAI_API_KEY",
        "zai:glm-5.2",
        options=BASIC_OPTIONS | {"top_p", "stop", "thinking"},
        differences={"thinking_switch": "type"},
        replay_reasoning=True,
        remark="wants its reasoning back with the calls that followed from it",
        also_called=("z-ai", "z.ai", "zhipu", "zhipuai", "glm"),
        tool_bounds=_UP_TO_128_TOOLS,
    ),
    "minimax": _host(
        "https://api.minimax.io/v1",
        "MINIMAX_API_KEY",
        "minimax:MiniMax-M3",
        options=BASIC_OPTIONS | {"top_p"},
        default_model="",
        remark="reasons inside the text of its answers",
    ),
    "dashscope": _host(
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        "dashscope:qwen3.8-max",
        options=BASIC_OPTIONS
        | {"seed", "top_p", "top_k", "presence_penalty", "stop", "thinking"}
        | CACHE_MARKS,
        differences={"thinking_switch": "field"},
        default_model="",
        remark="keys belong to a region: another one is another `base_url`",
        also_called=("alibaba", "qwen", "aliyun"),
    ),
    "deepinfra": _host(
        "https://api.deepinfra.com/v1/openai",
        "DEEPINFRA_API_KEY",
        "deepinfra:zai-org/GLM-5.2",
        options=CHAT_OPTIONS | {"thinking", "top_k"},
        default_model="",
        also_called=("deep-infra",),
    ),
    "nvidia": _host(
        "https://integrate.api.nvidia.com/v1",
        "NVIDIA_API_KEY",
        "nvidia:openai/gpt-oss-120b",
        differences={"thinking_switch": "template"},
        default_model="",
        also_called=("nim", "nvidia-nim"),
    ),
    "sambanova": _host(
        "https://api.sambanova.ai/v1",
        "SAMBANOVA_API_KEY",
        "sambanova:gpt-oss-120b",
        options=BASIC_OPTIONS | {"top_p", "top_k", "stop", "thinking"},
        differences={"thinking_switch": "template"},
        default_model="",
    ),
    "vercel": _host(
        "https://ai-gateway.vercel.sh/v1",
        "AI_GATEWAY_API_KEY",
        "vercel:anthropic/claude-sonnet-5",
        options=CHAT_OPTIONS | CACHE_MARKS | {"thinking"},
        default_model="",
        remark="a gateway: the model's name begins with its provider's",
        also_called=("ai-gateway", "vercel-ai-gateway"),
    ),
    "lmstudio": _server(
        "http://127.0.0.1:1234/v1",
        "LMSTUDIO_API_KEY",
        "lmstudio:MODEL",
        also_called=("lm-studio", "lm_studio"),
    ),
    "vllm": _server(
        "http://127.0.0.1:8000/v1",
        "VLLM_API_KEY",
        "vllm:MODEL",
        remark="takes tools if it runs with `--enable-auto-tool-choice --tool-call-parser …`",
    ),
    "sglang": _server(
        "http://127.0.0.1:30000/v1",
        "SGLANG_API_KEY",
        "sglang:MODEL",
        remark="takes tools if it runs with `--tool-call-parser …`",
    ),
    "llamacpp": _server(
        "http://127.0.0.1:8080/v1",
        "LLAMA_API_KEY",
        "llamacpp:MODEL",
        remark="`/props` says what the model's template can; `--jinja` makes it call tools",
        also_called=("llama.cpp", "llama-cpp", "llama_cpp", "llama-server", "llamafile"),
    ),
    "litellm": _server(
        "http://127.0.0.1:4000/v1",
        "LITELLM_PROXY_API_KEY",
        "litellm:MODEL",
        address_variable="LITELLM_PROXY_API_BASE",
        options=OPENAI_OPTIONS | CACHE_MARKS | {"top_k"},
        runs_here=False,
        remark="a gateway: what a model can do is found out by asking it",
        also_called=("litellm_proxy", "lite-llm"),
    ),
    "any": Provider(
        "ferrule.models.any_llm.client:AnyLLM",
        "any:mistral/mistral-small-latest",
        CHAT_OPTIONS | {"thinking"},
        protocol="the library any-llm",
        also_called=("any-llm", "watsonx"),
    ),
    "scripted": Provider(
        "ferrule.models.scripted:Scripted.load",
        "scripted:talk.yaml",
        CHAT_OPTIONS | {"thinking"},
        runs_here=True,
        protocol="a script",
    ),
}
"""The providers that ship, by the name that stands in front of their models' names."""


def list_providers() -> Mapping[str, Provider]:
    """Return all providers by name: those that ship, then those of installed plugins.

    Raises:
        ConfigError: A plugin brings a provider that is there already, or that cannot be used.
    """
    from ferrule.storage.plugins.added_providers import find_added_providers

    added = find_added_providers()
    return {**PROVIDERS, **{name: _make_row(name, one) for name, one in added.items()}}


def _make_row(name: str, added: AddedProvider) -> Provider:
    """Return the row of a plugin's provider.

    Raises:
        ConfigError: Its name is taken, or it has a field that is unknown or missing.
    """
    plugin = added.manifest.name
    if name in PROVIDERS:
        raise ConfigError(
            f"the plugin `{plugin}` brings the provider `{name}`, which Ferrule has",
            code="plugin_conflict",
            hint=f"uninstall it: `pip uninstall {added.manifest.distribution}`",
        )
    values: dict[str, Any] = {**added.fields, "plugin": plugin}
    try:
        values["options"] = frozenset(values.get("options", BASIC_OPTIONS))
        values["also_called"] = tuple(values.get("also_called", ()))
        values["tool_bounds"] = ToolBounds(**values.get("tool_bounds", {}))
        return Provider(**values)
    except TypeError as error:
        raise ConfigError(
            f"the provider `{name}` of the plugin `{plugin}` cannot be used: {error}",
            code="plugin_invalid",
            hint="its fields are those of `ferrule.models.registry.Provider`",
        ) from error


def find_provider(model: str) -> Provider | None:
    """Return the row of the provider in a model's full name, or None if it has none.

    The metadata of installed packages is read only for a provider that does not ship.
    """
    provider, colon, _ = model.partition(":")
    if not colon:
        return None
    return PROVIDERS.get(provider) or list_providers().get(provider)


def default_turns(model: str) -> int:
    """Return the turns of a message where nothing is set, by the full name of the model."""
    row = find_provider(model)
    return DEFAULT_TURNS if row is None else row.turns


def find_tool_bounds(model: str | ModelClient) -> ToolBounds:
    """Return what a model's provider takes of tools; of another server than its own, unknown."""
    name = model if isinstance(model, str) else model.model
    row = find_provider(name)
    if row is None:
        return ToolBounds()
    usual = row.base_url or row.usual_address
    address = str(getattr(model, "base_url", usual))
    return row.tool_bounds if address.startswith(usual) else ToolBounds()


def list_local_providers() -> frozenset[str]:
    """Return the providers whose models compute on this machine."""
    return frozenset(name for name, row in list_providers().items() if row.runs_here)


def create_model_client(name: str, **options: Any) -> ModelClient:
    """Return the client for `provider:model`.

    Args:
        name: The model, such as `anthropic:claude-sonnet-4-5`.
        options: Passed to the provider's client (`base_url`, `api_key`, `transport`, ...).

    Raises:
        ConfigError: The name has no provider, the provider is unknown, or it does not take
            one of the options.
    """
    provider, colon, model = name.partition(":")
    if not colon or not provider or not model:
        detail = f"the model `{name}` names no provider" if name else "no model was named"
        hint = f"write `provider:model`, for example {_suggest_full_name(name) or list_examples()}"
        raise ConfigError(detail, code="model", hint=hint)
    row = find_provider(name)
    if row is None:
        raise build_provider_error(provider)
    if row.is_preset:
        options = _preset_options(provider, model, row, options)
    if row.tool_modes:
        openers = {mode: _import_on_use(place) for mode, place in row.tool_modes.items()}
        options.setdefault("tool_modes", openers)
    create = cast("Callable[..., ModelClient]", import_object(row.client))
    try:
        return create(model, **options)
    except TypeError as problem:
        if not options or "argument" not in str(problem):
            raise
        raise ConfigError(
            f"`{name}` cannot be set up: {problem}", code="model_options"
        ) from problem


def build_provider_error(provider: str) -> ConfigError:
    """Return the error for a provider that is not there: unknown, or of an extra."""
    from ferrule.core.extras import EXTRA_PROVIDERS, build_missing_error

    if provider in EXTRA_PROVIDERS:
        return build_missing_error(EXTRA_PROVIDERS[provider])
    return ConfigError(
        f"`{provider}` is not a provider",
        code="provider_unknown",
        hint=suggest_provider(provider),
    )


def import_object(place: str) -> Any:
    """Return what `module:attribute` names."""
    module, _, path = place.partition(":")
    found: Any = import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found


def _import_on_use(place: str) -> ToolModeOpener:
    """Return an opener that imports the one it stands for when a conversation is opened."""

    def open_exchange(
        client: ModelClient, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> Exchange:
        opener = cast("ToolModeOpener", import_object(place))
        return opener(client, system, tools, options)

    return open_exchange


def find_address(row: Provider, configured: str = "") -> str:
    """Return the URL at which a provider is reached, or "" if its client knows it alone.

    Args:
        row: The provider's row.
        configured: The URL that the settings name, or "".
    """
    named = configured or (os.environ.get(row.address_variable) if row.address_variable else "")
    if not named:
        return row.base_url
    address = named.rstrip("/")
    names_host_only = "/" not in address.partition("://")[2]
    return address + row.api_path if names_host_only else address


def _preset_options(
    provider: str, model: str, row: Provider, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of the client behind a preset, from its row and the environment.

    Raises:
        ConfigError: The preset has no address or no key.
    """
    address = find_address(row, given.get("base_url") or "")
    if not address:
        raise ConfigError(
            f"`{provider}:{model}` needs the address of your own server",
            code="base_url",
            hint=f"set {row.address_variable} and {row.key_variable}",
        )
    key = given.get("api_key")
    if key is None:
        key = os.environ.get(row.key_variable, "")
    if not key and row.needs_key and address == (row.base_url or address):
        raise ConfigError(
            f"`{provider}:{model}` needs an API key",
            code="api_key",
            hint=f"set {row.key_variable}, or `base_url` for another server",
        )
    differences = import_object(_CHAT_DIFFERENCES)(asks_props=not row.needs_key, **row.differences)
    return {
        **given,
        "name": provider,
        "base_url": address,
        "api_key": key,
        "replay_reasoning": row.replay_reasoning,
        "differences": differences,
    }


def list_examples() -> str:
    """Return a few models' full names, of those that most people have, for hints."""
    rows = list_providers().values()
    shown = [row.default_model or row.example for row in rows if not row.is_preset]
    return ", ".join(f"`{example}`" for example in shown if "MODEL" not in example)


def suggest_provider(provider: str) -> str:
    """Return the providers that a wrong name may mean, and the list of all."""
    rows = list_providers()
    known = f"known providers: {', '.join(f'`{name}`' for name in rows)}"
    wanted = provider.lower()
    aliases = {other: name for name, row in rows.items() for other in row.also_called}
    near = find_similar_names(wanted, [*rows, *aliases], count=2)
    if wanted in aliases:
        near = [wanted]
    matches = dict.fromkeys(aliases.get(name, name) for name in near)
    if not matches:
        return f"{known}; `ferrule models list` shows them"
    named = " or ".join(_name_provider(name, wanted) for name in matches)
    return f"did you mean {named}? {known}"


def _suggest_full_name(model: str) -> str:
    """Return what a name without a provider may mean: `openai:gpt-5` for `gpt-5`; else "".

    Families of models are known by the first word of the providers' examples.
    """
    family = _family(model)
    for name, row in list_providers().items():
        known = row.default_model or row.example
        if family and family == _family(known.partition(":")[2]):
            return f"`{name}:{model}`"
    return ""


def _family(model: str) -> str:
    return model.partition("-")[0].lower()


def _name_provider(name: str, wanted: str) -> str:
    """Return a provider's name for a hint, with an example where its models are named otherwise."""
    if name == "any" and wanted != name:
        return f"`any` (as in `any:{wanted}/MODEL`)"
    return f"`{name}`"


UNIVERSAL_OPTIONS = frozenset({"num_ctx", "timeout", "extra", "provider_tools", "tool_search"})
"""Options that are not the API's to know, or that are checked elsewhere."""


def list_set_options(options: ModelOptions) -> list[str]:
    """Return the names of the options that are set and that a provider must know."""
    names = [item.name for item in fields(options) if item.name not in UNIVERSAL_OPTIONS]
    return [name for name in names if getattr(options, name) not in (None, "", (), {})]


def check_options(model: str, options: ModelOptions) -> None:
    """Check that a model's provider knows the options that are set.

    Args:
        model: The model's full name. A client that is in no table decides for itself.
        options: Its options.

    Raises:
        ConfigError: One of them is not among the options of the provider's API, or the model is
            known to refuse it.
    """
    row = find_provider(model)
    if row is None:
        return
    names = list_set_options(options)
    unknown = [name for name in names if name not in row.options]
    if unknown:
        named = ", ".join(f"`{name}`" for name in unknown)
        known = ", ".join(f"`{name}`" for name in sorted(row.options))
        raise ConfigError(
            f"`{model}` cannot be given {named}: its provider's API has no such option",
            code="model_options",
            hint=f"leave it out for this model; it takes {known}, and what only its provider "
            "knows in `extra`",
        )
    if not names:
        return
    from .refused_options import find_refused_options

    refused, reason = find_refused_options(row.model_maker, model, options, names)
    if refused:
        named = ", ".join(f"`{name}`" for name in refused)
        raise ConfigError(
            f"`{model}` cannot be given {named}: {reason}",
            code="model_options",
            hint="leave it out for this model; `extra` sends it all the same",
        )
