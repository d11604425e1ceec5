"""Make the clients of models, with what the settings say about their providers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.models.client import ModelClient
from ferrule.models.registry import PROVIDERS, create_model_client, suggest_provider
from ferrule.storage.settings.settings import Settings


def create_client(settings: Settings, name: str) -> ModelClient:
    """Make the client of a model, with what the settings say about its provider.

    Raises:
        ConfigError: The model is unknown, or the variable of the API key is not set.
    """
    provider = settings.provider(name.partition(":")[0])
    options: dict[str, Any] = {}
    if provider.base_url:
        options["base_url"] = provider.base_url
    if provider.api_key_env:
        options["api_key"] = _read_key(provider.api_key_env)
    if provider.force_native_tool_search:
        options["force_native_tool_search"] = True
    if provider.ca_bundle:
        from ferrule.models.http.transport import Transport

        options["transport"] = Transport(ca_file=provider.ca_bundle)
    if name.startswith("local:"):
        options |= _read_loading_options(settings, name)
    return create_model_client(name, **options)


def _read_loading_options(settings: Settings, name: str) -> dict[str, Any]:
    """Return how the settings want a model file to be loaded.

    Raises:
        ConfigError: The file of the chat template cannot be read.
    """
    window = settings.for_model(name).num_ctx or settings["local.window"]
    chosen: dict[str, Any] = {
        "n_ctx": window,
        "threads": settings["local.threads"],
        "gpu_layers": settings["local.gpu_layers"],
        "cache_type": settings["local.cache_type"],
    }
    options = {key: value for key, value in chosen.items() if value is not None}
    template = settings["local.chat_template"]
    if template:
        place = Path(template).expanduser()
        try:
            options["chat_template"] = place.read_text()
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(
                f"the chat template {place} cannot be read: {problem}",
                hint="`local.chat_template` is the path of a file with a Jinja template",
            ) from problem
    return options


def _read_key(variable: str) -> str:
    key = os.environ.get(variable, "")
    if not key:
        raise ConfigError(
            f"the settings take the API key from `{variable}`, which is not set",
            hint=f"set `{variable}`, or change `api_key_env`",
        )
    return key


def check_provider_names(settings: Settings) -> None:
    """Raise ConfigError for a provider in the settings that does not exist.

    Without this, a misspelled name would do nothing.
    """
    for key in settings.values:
        section, _, rest = key.partition(".")
        name = rest.partition(".")[0]
        if section == "providers" and name and name not in PROVIDERS:
            raise ConfigError(
                f"{settings.origin(key).where}: `{key}`: `{name}` is not a provider",
                code="provider_unknown",
                hint=suggest_provider(name),
            )
