"""Discover which models can be used from here, asking all providers at the same time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

from ferrule.core.errors import ProviderError
from ferrule.core.value_class import frozen
from ferrule.models.registry import Provider, find_address, import_object
from ferrule.storage.settings.settings import ProviderSettings, Settings, load_settings

from .chosen_providers import choose_providers
from .model_choice import UnusableProvider, is_elsewhere, key_variable, list_hosted_models

SECONDS = 2.0
"""How long a provider may take to list its models."""

FindModels = Callable[[str], Awaitable[list[str]]]
"""The type of what `Provider.find_models` names."""


DescribeModels = Callable[[], Sequence[tuple[str, bool, str]]]
"""The type of what `Provider.describe_models` names: name, readiness and description of each."""


@frozen
class DiscoveredModel:
    """A model that can be used, or an example of a provider's.

    Attributes:
        model: Its full name.
        ready: Whether it can be used.
        detail: What is configured, or what is missing.
        protocol: What the provider's API is called.
        address: The URL of its API, "" if it has none.
        remark: What people should know of the provider.
    """

    model: str
    ready: bool
    detail: str = ""
    protocol: str = ""
    address: str = ""
    remark: str = ""


async def discover_models(settings: Settings | None = None) -> list[DiscoveredModel]:
    """List the models of each provider, using the addresses and keys that the settings name."""
    in_force = settings or load_settings()
    searches = [
        _find_models(name, provider, in_force)
        for name, provider in choose_providers(in_force).items()
        if provider.find_models or provider.key_variable or provider.also_called
    ]
    found = await asyncio.gather(*searches)
    return [model for models in found for model in models]


async def _find_models(name: str, provider: Provider, in_force: Settings) -> list[DiscoveredModel]:
    settings = in_force.provider(name)
    address = find_address(provider, settings.base_url)
    facts = {"protocol": provider.protocol, "address": address, "remark": provider.remark}
    example = provider.default_model or provider.example
    if provider.describe_models:
        return await _describe_models(name, provider, facts)
    is_keyed = bool(os.environ.get(key_variable(provider, settings)))
    if provider.default_model and is_keyed and is_elsewhere(provider, settings):
        # Another server may not have the provider's own models.
        listed = await list_hosted_models(name, provider, in_force)
        if isinstance(listed, UnusableProvider):
            detail = f"{listed.problem}: {listed.hint}"
            return [DiscoveredModel(f"{name}:MODEL", False, detail, **facts)]
        return [DiscoveredModel(f"{name}:{model}", True, "", **facts) for model in listed]
    if not provider.find_models:
        ready, detail = _check_key(provider, settings)
        return [DiscoveredModel(example, ready, detail, **facts)]
    find = cast("FindModels", import_object(provider.find_models))
    try:
        async with asyncio.timeout(SECONDS):
            models = await find(address)
    except TimeoutError:
        return [DiscoveredModel(example, False, f"no answer in {SECONDS:g} seconds", **facts)]
    except ProviderError as error:
        detail = f"{error.detail}: {error.hint}" if error.hint else error.detail
        if error.code == "unreachable":
            detail = "nothing answers there"
        return [DiscoveredModel(example, False, detail, **facts)]
    return [DiscoveredModel(f"{name}:{model}", True, "", **facts) for model in models]


async def _describe_models(
    name: str, provider: Provider, facts: Mapping[str, str]
) -> list[DiscoveredModel]:
    """List the models that a provider describes itself, with those that are not here yet."""
    try:
        # Nothing can be used where the library that runs them is missing.
        await cast("FindModels", import_object(provider.find_models))("")
        missing = ""
    except ProviderError as error:
        missing = f"{error.detail}: {error.hint}" if error.code == "extra_missing" else ""
    describe = cast("DescribeModels", import_object(provider.describe_models))
    rows = await asyncio.to_thread(describe)
    return [
        DiscoveredModel(f"{name}:{model}", ready and not missing, missing or detail, **facts)
        for model, ready, detail in rows
    ]


def _check_key(provider: Provider, settings: ProviderSettings) -> tuple[bool, str]:
    """Say whether a provider that is only known by its key or its URL can be used, and why."""
    variable = settings.api_key_env or provider.key_variable
    if not variable:
        return False, "needs keys of its own, under the names that the library gives them"
    moved = settings.base_url or (
        os.environ.get(provider.address_variable, "") if provider.address_variable else ""
    )
    named = [f"{variable} is set"] if os.environ.get(variable) else []
    if moved:
        named.append(f"its address is {moved}")
    is_ready = bool(named) and (bool(moved) or not provider.api_path)
    if is_ready:
        return True, ", ".join(named)
    if provider.api_path:
        return False, f"set {provider.address_variable} and {variable}"
    return False, f"set {variable}"
