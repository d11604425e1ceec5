"""Make the clients of models and the options of requests, from what the settings say of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.models.client import ModelClient, ModelOptions
from ferrule.models.hosted_tools import encode_hosted_tools, needs_approval
from ferrule.models.registry import (
    PROVIDERS,
    create_model_client,
    find_provider,
    list_providers,
    suggest_provider,
)
from ferrule.storage.settings.settings import ModelSettings, Settings, apply_model_options
from ferrule.tools.definition import Tool

from .chosen_providers import read_client_options, require_provider

Hosted = tuple[Mapping[str, Any], ...]
_VARIABLE = compile_lazily(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def create_client(settings: Settings, name: str) -> ModelClient:
    """Make the client of a model, with what the settings say about its provider.

    Raises:
        ConfigError: The model is unknown, or the variable of the API key is not set.
    """
    provider_name = name.partition(":")[0]
    provider = settings.provider(provider_name)
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
    row = find_provider(name)
    if row is not None and row.plugin:
        require_provider(provider_name, settings)
        options |= read_client_options(provider_name, name, settings)
    return create_model_client(name, **options)


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
        if section != "providers" or not name or name in PROVIDERS:
            continue
        if name not in list_providers():
            raise ConfigError(
                f"{settings.origin(key).where}: `{key}`: `{name}` is not a provider",
                code="provider_unknown",
                hint=suggest_provider(name),
            )


def read_model_options(settings: Settings, name: str) -> ModelOptions:
    """Return the request options that the settings give a model, by its full name.

    Raises:
        ConfigError: A setting of the model is wrong.
    """
    for_model = apply_model_options(settings.for_model(name), settings["model_options"])
    options = ModelOptions(
        for_model.temperature,
        for_model.max_output_tokens,
        for_model.num_ctx,
        for_model.thinking,
        for_model.seed,
        for_model.top_p,
        for_model.presence_penalty,
        for_model.frequency_penalty,
        provider_tools=_list_provider_tools(settings, name, for_model),
        stop=for_model.stop or (),
        top_k=for_model.top_k,
        logit_bias=for_model.logit_bias or {},
        extra=for_model.extra or {},
        service_tier=for_model.service_tier or "",
        cache_key=for_model.cache_key or "",
        cache_control=for_model.cache_control or "",
        upload_media_from=for_model.upload_media_from,
    )
    if for_model.timeout is None:
        return options
    return replace(options, timeout=for_model.timeout)


def _list_provider_tools(settings: Settings, model: str, mine: ModelSettings) -> Hosted:
    """Return the provider tools of a model: its own, else those of its provider.

    Raises:
        ConfigError: A tool cannot be sent, or its entry holds a secret in plain text.
    """
    entries = mine.provider_tools
    if entries is None:
        entries = settings.provider(model.partition(":")[0]).provider_tools
    tools = tuple(_fill_secrets(tool) for tool in entries)
    encode_hosted_tools(tools)
    return tools


def list_approval_tools(settings: Settings) -> tuple[Tool, ...]:
    """Return the tool that passes a provider's approval requests to the gate, if it is needed.

    It is needed if the settings name a remote server for which the provider asks for approval.
    """
    named = (value for key, value in settings.values.items() if key.endswith(".provider_tools"))
    if not any(needs_approval(cast("Hosted", value or ())) for value in named):
        return ()
    from ferrule.toolkits import remote_mcp

    return remote_mcp.TOOLS


def _fill_secrets(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fill in the secrets of a remote server from the variables that its entry names."""
    filled = dict(tool)
    if "authorization" in tool:
        filled["authorization"] = _expand(tool["authorization"])
    headers = tool.get("headers")
    if isinstance(headers, Mapping):
        values = cast("Mapping[str, Any]", headers)
        filled["headers"] = {name: _expand(value) for name, value in values.items()}
    return filled


def _expand(text: object) -> str:
    if not isinstance(text, str) or not _VARIABLE.search(text):
        raise ConfigError(
            "provider_tools: a secret must not be written into the settings",
            hint="name the variable that holds it: `Bearer ${NAME}`",
        )
    return _VARIABLE.sub(_read_variable, text)


def _read_variable(match: re.Match[str]) -> str:
    value = os.environ.get(match[1], "")
    if not value:
        raise ConfigError(
            f"provider_tools: the variable `{match[1]}` is not set", hint="set it to the secret"
        )
    return value
