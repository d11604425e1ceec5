"""The list of providers, and the lookup from a model's name (`provider:model`) to its client."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from ferrule.core.errors import ConfigError

from .client import ModelClient

PROVIDERS: dict[str, tuple[str, str]] = {
    "openai": ("ferrule.models.openai.chat:OpenAIChat", "openai:MODEL"),
    "openai-responses": (
        "ferrule.models.openai.responses:OpenAIResponses",
        "openai-responses:MODEL",
    ),
    "anthropic": ("ferrule.models.anthropic.client:Anthropic", "anthropic:MODEL"),
    "ollama": ("ferrule.models.ollama.client:Ollama", "ollama:llama3.2"),
    "local": ("ferrule.models.local.client:Local", "local:smollm2"),
    "any": ("ferrule.models.any_llm.client:AnyLLM", "any:mistral/mistral-small-latest"),
    "scripted": ("ferrule.models.scripted:Scripted.load", "scripted:talk.yaml"),
}
"""Provider to `module:callable` and an example name.

The callable takes the model's name and the options. Its module is imported when a model of that
provider is requested.
"""


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
    try:
        return _load_factory(provider)(model, **options)
    except TypeError as problem:
        if not options or "argument" not in str(problem):
            raise
        raise ConfigError(
            f"`{name}` cannot be set up: {problem}", code="model_options"
        ) from problem


def _load_factory(provider: str) -> Callable[..., ModelClient]:
    module, _, path = PROVIDERS[provider][0].partition(":")
    found: Any = import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return cast(Callable[..., ModelClient], found)


def _list_examples() -> str:
    return ", ".join(f"`{example}`" for _, example in PROVIDERS.values())


def _suggest_provider(provider: str) -> str:
    # Imported here: only a misspelled provider needs it.
    from difflib import get_close_matches

    known = f"known providers: {', '.join(f'`{name}`' for name in PROVIDERS)}"
    matches = get_close_matches(provider.lower(), PROVIDERS, n=2, cutoff=0.5)
    if not matches:
        return known
    return f"did you mean {' or '.join(f'`{name}`' for name in matches)}? {known}"
