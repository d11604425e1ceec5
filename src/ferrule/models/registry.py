"""From a model's name to its wire: `provider:model`. The one list of providers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from ferrule.core.errors import ConfigError

from .client import Wire

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
"""Provider to `module:callable` (given the model's name and the options) and an example. Modules
are imported when a model of theirs is asked for.
"""


def resolve(name: str, **options: Any) -> Wire:
    """The wire for `provider:model`. `options` go to the provider (`base_url`, `api_key`,
    `transport`, ...).

    Raises ConfigError for a name without a provider, an unknown provider, or options it does not
    take.
    """
    provider, colon, model = name.partition(":")
    if not colon or not provider or not model:
        raise ConfigError(
            f"the model `{name}` names no provider" if name else "no model was named",
            code="model",
            hint=f"write `provider:model`, for example {_examples()}",
        )
    if provider not in PROVIDERS:
        raise ConfigError(
            f"`{provider}` is not a provider", code="provider_unknown", hint=_nearest(provider)
        )
    try:
        return _factory(provider)(model, **options)
    except TypeError as problem:
        if not options or "argument" not in str(problem):
            raise
        raise ConfigError(
            f"`{name}` cannot be set up: {problem}", code="model_options"
        ) from problem


def _factory(provider: str) -> Callable[..., Wire]:
    module, _, path = PROVIDERS[provider][0].partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return cast(Callable[..., Wire], found)


def _examples() -> str:
    return ", ".join(f"`{example}`" for _, example in PROVIDERS.values())


def _nearest(provider: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(provider.lower(), PROVIDERS, n=2, cutoff=0.5)
    meant = f"did you mean {' or '.join(f'`{name}`' for name in near)}? " if near else ""
    return f"{meant}there are {', '.join(f'`{name}`' for name in PROVIDERS)}"
