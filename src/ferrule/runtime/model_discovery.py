"""Discover which models can be used from here, asking all providers at the same time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import cast

from ferrule.core.errors import ProviderError
from ferrule.core.value_class import frozen
from ferrule.models.registry import PROVIDERS, Provider, import_object
from ferrule.storage.settings.settings import ProviderSettings, Settings, load_settings

SECONDS = 2.0
"""How long a provider may take to list its models."""

FindModels = Callable[[str], Awaitable[list[str]]]
"""The type of what `Provider.find_models` names."""


@frozen
class DiscoveredModel:
    """A model that can be used, or an example of a provider's; `detail` says what is missing."""

    model: str
    ready: bool
    detail: str = ""


async def discover_models(settings: Settings | None = None) -> list[DiscoveredModel]:
    """List the models of each provider, using the addresses and keys that the settings name."""
    in_force = settings or load_settings()
    searches = [
        _find_models(name, provider, in_force.provider(name))
        for name, provider in PROVIDERS.items()
        if provider.find_models or provider.key_variable
    ]
    found = await asyncio.gather(*searches)
    return [model for models in found for model in models]


async def _find_models(
    name: str, provider: Provider, settings: ProviderSettings
) -> list[DiscoveredModel]:
    if not provider.find_models:
        return [_check_key(provider, settings)]
    find = cast("FindModels", import_object(provider.find_models))
    try:
        async with asyncio.timeout(SECONDS):
            models = await find(settings.base_url)
    except TimeoutError:
        return [DiscoveredModel(provider.example, False, f"no answer in {SECONDS:g} seconds")]
    except ProviderError as error:
        detail = f"{error.detail}: {error.hint}" if error.hint else error.detail
        return [DiscoveredModel(provider.example, False, detail)]
    return [DiscoveredModel(f"{name}:{model}", True) for model in models]


def _check_key(provider: Provider, settings: ProviderSettings) -> DiscoveredModel:
    """Say whether a provider that is only known by its key or its URL can be used."""
    variable = settings.api_key_env or provider.key_variable
    address = settings.base_url or os.environ.get(provider.address_variable)
    if os.environ.get(variable) or address:
        return DiscoveredModel(provider.example, True, "the key or the address is set")
    detail = f"set {variable} (and {provider.address_variable} for another server)"
    return DiscoveredModel(provider.example, False, detail)
