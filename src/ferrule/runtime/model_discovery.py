"""Discover which models can be used from here, asking all providers at the same time."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from importlib.util import find_spec

from ferrule.core.errors import FerruleError
from ferrule.storage.settings.settings import Settings, load_settings

SECONDS = 2.0
"""How long a provider may take to list its models."""


@dataclass(frozen=True, slots=True)
class DiscoveredModel:
    """A model, or a provider (`name:`) without models; `detail` says what is missing."""

    model: str
    ready: bool
    detail: str = ""


async def discover_models(settings: Settings | None = None) -> list[DiscoveredModel]:
    """List the models of each provider, using the addresses and keys that the settings name."""
    in_force = settings or load_settings()
    local, ollama, openai = await asyncio.gather(
        _find_local(), _find_ollama(in_force), _find_openai(in_force)
    )
    return [*local, *ollama, *openai]


async def _find_local() -> list[DiscoveredModel]:
    from ferrule.models.local.pull import installed_path

    if find_spec("xllamacpp") is None:
        return [DiscoveredModel("local:smollm2", False, "needs `pip install 'ferrule[local]'`")]
    try:
        installed_path("smollm2")
    except FerruleError as error:
        return [DiscoveredModel("local:smollm2", False, f"{error.detail}; `{error.hint}`")]
    return [DiscoveredModel("local:smollm2", True)]


async def _find_ollama(settings: Settings) -> list[DiscoveredModel]:
    from ferrule.models.ollama.client import Ollama

    base = settings.provider("ollama").base_url
    client = Ollama("any", base_url=base) if base else Ollama("any")
    try:
        async with asyncio.timeout(SECONDS):
            names = await client.list_installed()
    except TimeoutError:
        names = []
    finally:
        await client.close()
    if names:
        return [DiscoveredModel(f"ollama:{name}", True) for name in names]
    detail = f"no models at {client.base_url} (`ollama serve`, `ollama pull llama3.2`)"
    return [DiscoveredModel("ollama:", False, detail)]


async def _find_openai(settings: Settings) -> list[DiscoveredModel]:
    provider = settings.provider("openai")
    key = os.environ.get(provider.api_key_env or "OPENAI_API_KEY")
    if key or provider.base_url or os.environ.get("OPENAI_BASE_URL"):
        return [DiscoveredModel("openai:MODEL", True, "the key or the address is set")]
    return [
        DiscoveredModel(
            "openai:", False, "set OPENAI_API_KEY (and OPENAI_BASE_URL for another server)"
        )
    ]
