"""The list of providers, and the lookup from a model's name (`provider:model`) to its client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen

from .client import Exchange, ModelClient, ModelOptions, ToolModeOpener, ToolSpec

BASIC_OPTIONS = frozenset(("temperature", "max_tokens"))
CHAT_OPTIONS = BASIC_OPTIONS | {"seed", "top_p", "presence_penalty", "frequency_penalty"}


@frozen
class Provider:
    """One row of the list: everything the rest of Ferrule needs to know of a provider.

    Code is named as `module:callable`; its module is imported when it is needed.

    Attributes:
        client: Makes the client from the model's name and the options.
        example: A model's full name, for hints.
        options: The fields of `ModelOptions` that the API has, besides those that every client
            understands.
        key_variable: The environment variable from which the client reads the API key.
        address_variable: The environment variable from which it reads the URL of the API.
        find_models: An async function from the URL that the settings name, or "", to the names of
            the models that can be used from here. It raises ProviderError if there are none.
            Without one, a key or a URL means that there are models.
        has_hosted_tools: Whether the provider runs tools itself (`models.hosted_tools`).
        runs_here: Whether its models compute on this machine, as far as the name tells.
        is_free: Whether its models cost nothing.
        telemetry_name: What the conventions of OpenTelemetry call it, if not as we do.
        price_name: What the data of genai-prices calls it, if not as we do.
        tool_modes: What opens conversations in a tool mode, in place of `models.tool_modes`, by the
            name of the mode. A plug-in for the provider's models is named here, and nowhere else.
    """

    client: str
    example: str
    options: frozenset[str] = BASIC_OPTIONS
    key_variable: str = ""
    address_variable: str = ""
    find_models: str = ""
    has_hosted_tools: bool = False
    runs_here: bool = False
    is_free: bool = False
    telemetry_name: str = ""
    price_name: str = ""
    tool_modes: Mapping[str, str] = field(default_factory=dict[str, str])


PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        "ferrule.models.openai.chat:OpenAIChat",
        "openai:MODEL",
        CHAT_OPTIONS | {"thinking"},
        key_variable="OPENAI_API_KEY",
        address_variable="OPENAI_BASE_URL",
    ),
    "openai-responses": Provider(
        "ferrule.models.openai.responses:OpenAIResponses",
        "openai-responses:MODEL",
        BASIC_OPTIONS | {"top_p", "thinking"},
        key_variable="OPENAI_API_KEY",
        address_variable="OPENAI_BASE_URL",
        has_hosted_tools=True,
        telemetry_name="openai",
        price_name="openai",
    ),
    "anthropic": Provider(
        "ferrule.models.anthropic.client:Anthropic",
        "anthropic:MODEL",
        BASIC_OPTIONS | {"top_p", "thinking"},
        key_variable="ANTHROPIC_API_KEY",
        address_variable="ANTHROPIC_BASE_URL",
        has_hosted_tools=True,
    ),
    "cohere": Provider(
        "ferrule.models.cohere.client:Cohere",
        "cohere:command-a-03-2025",
        CHAT_OPTIONS | {"thinking"},
        key_variable="CO_API_KEY",
        address_variable="CO_API_URL",
    ),
    "ollama": Provider(
        "ferrule.models.ollama.client:Ollama",
        "ollama:llama3.2",
        CHAT_OPTIONS | {"thinking"},
        address_variable="OLLAMA_HOST",
        find_models="ferrule.models.ollama.client:find_models",
        runs_here=True,
    ),
    "local": Provider(
        "ferrule.models.local.client:Local",
        "local:smollm2",
        CHAT_OPTIONS,
        find_models="ferrule.models.local.pull:find_models",
        runs_here=True,
        is_free=True,
        tool_modes={"constrained": "ferrule.small_models.exchange:open_small_model_exchange"},
    ),
    "any": Provider(
        "ferrule.models.any_llm.client:AnyLLM",
        "any:mistral/mistral-small-latest",
        CHAT_OPTIONS | {"thinking"},
    ),
    "scripted": Provider(
        "ferrule.models.scripted:Scripted.load",
        "scripted:talk.yaml",
        CHAT_OPTIONS,
        runs_here=True,
    ),
}
"""The providers by the name that stands in front of their models' names."""


def find_provider(model: str) -> Provider | None:
    """Return the row of the provider in a model's full name, or None if it has none."""
    return PROVIDERS.get(model.partition(":")[0])


def list_local_providers() -> frozenset[str]:
    """Return the providers whose models compute on this machine."""
    return frozenset(name for name, provider in PROVIDERS.items() if provider.runs_here)


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
        hint = f"write `provider:model`, for example {_list_examples()}"
        raise ConfigError(detail, code="model", hint=hint)
    if provider not in PROVIDERS:
        raise ConfigError(
            f"`{provider}` is not a provider",
            code="provider_unknown",
            hint=_suggest_provider(provider),
        )
    row = PROVIDERS[provider]
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


def _list_examples() -> str:
    return ", ".join(f"`{provider.example}`" for provider in PROVIDERS.values())


def _suggest_provider(provider: str) -> str:
    # Imported here: only a misspelled provider needs it.
    from difflib import get_close_matches

    known = f"known providers: {', '.join(f'`{name}`' for name in PROVIDERS)}"
    matches = get_close_matches(provider.lower(), PROVIDERS, n=2, cutoff=0.5)
    if not matches:
        return known
    return f"did you mean {' or '.join(f'`{name}`' for name in matches)}? {known}"
